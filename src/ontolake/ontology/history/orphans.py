"""Relations of a merge that one side has to an entity that the other deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ontolake.history import Conflict, ConflictKind, Decisions
from ontolake.history.operations import Sides
from ontolake.history.rows import RowChanges, positions
from ontolake.model.types import TypeInfo
from ontolake.ontology.history.row_tables import RowTables
from ontolake.ontology.history.states import Name
from ontolake.ontology.history.type_plans import TypedChanges, TypePlan, table_name, without
from ontolake.ontology.repository.protocol import Row


class Orphans:
    """Relations that one side has to an entity that the other deleted."""

    def __init__(self, sides: Sides[int], decisions: Decisions, changes: TypedChanges) -> None:
        self._states, self._sides, self._decisions = changes.states, sides, decisions
        self._changes = changes

    def settled(self) -> list[Conflict]:
        """Settle what decisions settle, and return the other conflicts."""
        return [*self._of_deleted_entities(), *self._of_new_relations()]

    def _relations(self, entity: str) -> Iterator[tuple[Name, TypeInfo, str]]:
        for name in sorted(self._states.targets):
            if name[0] == "relation":
                schema = self._states.schema(name).schema
                for side in ("left", "right"):
                    if schema.get(side) == entity:
                        yield name, self._states.info(name), side

    def _of_deleted_entities(self) -> Iterator[Conflict]:
        """Entities that the step deletes while relations of the target, or new ones, lead to them."""
        for (kind, entity), plan in sorted(self._changes.types.items()):
            if kind != "entity" or not plan.changes.deletes.num_rows:
                continue
            gone = plan.tables.rows(plan.changes.deletes)
            for name, info, side in self._relations(entity):
                for key in self._leading(name, side, (kind, entity), gone):
                    end = (key[0 if side == "left" else 1],)
                    conflict = self._conflict(plan, end, name, info, key)
                    chosen = self._decisions.side(conflict)
                    if chosen is None:
                        yield conflict
                    elif chosen == "ours":
                        plan.keep(self._states, end, self._sides.ours)
                    else:
                        self._delete(name, key)

    def _of_new_relations(self) -> Iterator[Conflict]:
        """Relations that the step brings to entities that the target deleted and the source has."""
        for name, plan in sorted(self._changes.types.items()):
            if name[0] != "relation" or not plan.changes.puts.num_rows:
                continue
            schema = self._states.schema(name).schema
            for place, side in enumerate(("left", "right")):
                entity: Name = ("entity", schema[side])
                if entity not in self._states.targets:
                    continue
                rows = plan.tables.rows(plan.changes.puts)
                ends = sorted({(row[place],) for row in rows})
                held = {row[0]: row for row in self._states.rows(entity, ends, self._sides.theirs)}
                here = {row[0] for row in self._states.rows(entity, ends, self._sides.ours)}
                put = self._puts(entity)
                for row in rows:
                    if row[place] in held and row[place] not in here and row[place] not in put:
                        key = row[: len(plan.tables.names)]
                        conflict = self._conflict(self._changes.plan_of(entity), (row[place],), name,
                                                  plan.tables.info, key)
                        chosen = self._decisions.side(conflict)
                        if chosen is None:
                            yield conflict
                        elif chosen == "ours":
                            plan.keep(self._states, key, self._sides.ours)
                        else:
                            self._put(entity, held[row[place]])
                            put.add(row[place])

    def _leading(self, name: Name, side: str, entity: Name, gone: Sequence[Row]) -> list[Row]:
        """The relations that will lead to these entities once the step is done."""
        there = set(self._states.live_relations(name, side, entity, gone, self._sides.ours))
        plan = self._changes.types.get(name)
        if plan is not None:
            place, wanted = 0 if side == "left" else 1, {key[0] for key in gone}
            there -= set(plan.tables.rows(plan.changes.deletes))
            there |= {row[: len(plan.tables.names)] for row in plan.tables.rows(plan.changes.puts)
                      if row[place] in wanted}
        return sorted(there)

    def _puts(self, name: Name) -> set[Any]:
        plan = self._changes.types.get(name)
        return set() if plan is None else {row[0] for row in plan.tables.rows(plan.changes.puts)}

    def _put(self, name: Name, row: Row) -> None:
        plan = self._changes.plan_of(name)
        plan.changes = plan.changes._replace(puts=pa.concat_tables([plan.changes.puts, plan.tables.table([row])]))

    def _delete(self, name: Name, key: Row) -> None:
        plan = self._changes.plan_of(name)
        keys = plan.tables.keys([key])
        puts = without(plan.changes.puts, keys, list(plan.tables.names))
        held = positions(plan.tables.names, keys, plan.ours)[0] >= 0 or bool(
            self._states.rows(name, [key], self._sides.ours))
        deletes = [plan.changes.deletes, *([keys] if held else [])]
        plan.changes = RowChanges(puts, pa.concat_tables(deletes))

    def _conflict(self, plan: TypePlan, end: Row, name: Name, info: TypeInfo, key: Row) -> Conflict:
        tables = plan.tables
        states = [self._states.rows(plan.name, [end], one) for one in (self._sides.ours, self._sides.theirs)]
        shown = [tables.plain(tables.table(found).to_pylist()[0]) if found else None for found in states]
        relation = RowTables(info)
        rows = ((table_name(name), relation.key_of(dict(zip(relation.names, key, strict=True)))),)
        what = "a relation of the target leads to it, and the source deleted it" if shown[0] else \
            "a relation of the source leads to it, and the target deleted it"
        return Conflict(table_name(plan.name), end[0], ConflictKind.ORPHAN, None, None, shown[0],
                        shown[1], what, rows)


