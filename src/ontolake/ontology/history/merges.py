"""Merges of typed stores: what the operations of `ontolake.history` ask, answered from the keys that commits wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ontolake import faults
from ontolake.errors import Invalid
from ontolake.history import Commit, Conflict, ConflictKind, Counts, Decisions, Point, UnknownBranchError
from ontolake.history.dag import is_ancestor
from ontolake.history.metadata import AUTHOR, MERGED, MESSAGE
from ontolake.history.operations import CommitNote, MergePlan, Moved, Sides
from ontolake.history.rows import RowChanges, RowSides, count, merge_rows, overridden, positions
from ontolake.model.types import TypeInfo
from ontolake.ontology.history.references import TypedDag, TypedRefs
from ontolake.ontology.history.row_tables import RowTables, base_table
from ontolake.ontology.history.states import Name, StoreStates
from ontolake.ontology.repository.branched import BranchedRepository
from ontolake.ontology.repository.protocol import Row


@dataclass
class TypePlan:
    """What a step does to the rows of a type, in the version of the target."""

    tables: RowTables
    version: int
    changes: RowChanges
    ours: pa.Table
    theirs: pa.Table

    @property
    def counts(self) -> Counts:
        return count(self.tables.names, self.ours, self.changes.puts, self.changes.deletes)


@dataclass
class TypedChanges:
    """What a step does to each type."""

    types: dict[Name, TypePlan] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(not plan.changes.is_empty for plan in self.types.values())


class TypedMergeable:
    """A typed store as the operations see it: a `history.operations.Mergeable`."""

    def __init__(self, repository: BranchedRepository, owner: str) -> None:
        self._repository = repository
        self._owner = owner
        self._refs = TypedRefs(repository)
        self._states = StoreStates(repository)

    @property
    def dag(self) -> TypedDag:
        return self._states.dag

    def resolve(self, ref: str | int) -> Point[int]:
        return self._refs.resolve(ref)

    def head(self, branch: str) -> int:
        found = self._refs.head(branch)
        if found is None:
            raise UnknownBranchError(branch)
        return found

    def is_news(self, theirs: int, ours: int) -> bool:
        return not is_ancestor(self.dag, theirs, ours)

    # planning

    def plan(self, sides: Sides[int], decisions: Decisions) -> MergePlan[TypedChanges]:
        with self._repository.reading():
            return self._plan(sides, decisions)

    def _plan(self, sides: Sides[int], decisions: Decisions) -> MergePlan[TypedChanges]:
        commits = self._states.apart((sides.theirs, base) for base in sides.bases)
        base, ours, theirs = (self._states.versions_at(one) for one in (sides.bases[-1], sides.ours, sides.theirs))
        self._check_tables(sides, {*base, *ours, *theirs})
        changes, conflicts = TypedChanges(), []
        for name in sorted({*base, *ours, *theirs}):
            if sides.tables is not None and _table(name) not in sides.tables:
                continue
            versions = [side.get(name) for side in (base, ours, theirs)]
            if len({one for one in versions if one is not None}) > 1:
                conflicts += self._schema(name, versions, commits, decisions)
                continue
            version = next(one for one in versions if one is not None)
            info = self._states.info(name, version)
            keys = self._states.touched(info, version, commits)
            if keys:
                plan, found = self._merged(sides, decisions, info, version, keys)
                changes.types[name] = plan
                conflicts += found
        conflicts += _Orphans(self._states, sides, decisions, changes, ours).settled()
        counts = {_table(name): plan.counts for name, plan in changes.types.items() if any(plan.counts)}
        return MergePlan(changes, counts, conflicts)

    def _check_tables(self, sides: Sides[int], known: set[Name]) -> None:
        unknown = sorted((sides.tables or frozenset()) - {_table(name) for name in known})
        if unknown:
            raise Invalid(f"there is no table {unknown[0]!r}",
                          hint=f"there are {', '.join(sorted(map(_table, known)))}")

    def _schema(
        self, name: Name, versions: Sequence[int | None], commits: set[int], decisions: Decisions
    ) -> list[Conflict]:  # fmt: skip
        """What to say of a type that the sides have in different versions: nothing if they did nothing to it."""
        base, _, theirs = versions
        if base == theirs and theirs is not None and not self._states.touched(
                self._states.info(name, theirs), theirs, commits):
            return []
        before, ours, new = (None if one is None else self._states.version(name, one).schema for one in versions)
        conflict = Conflict(_table(name), None, ConflictKind.SCHEMA, None, before, ours, new,
                            "the sides have the type in different schema versions")
        return [] if decisions.side(conflict) == "ours" else [conflict]

    def _merged(
        self, sides: Sides[int], decisions: Decisions, info: TypeInfo, version: int, keys: Sequence[Row]
    ) -> tuple[TypePlan, list[Conflict]]:  # fmt: skip
        tables = RowTables(info)
        base, disputed, fields = base_table(tables, self._states, version, self.dag, sides.bases, keys)
        ours, theirs = (tables.table(self._states.rows(info, version, keys, one)) for one in (sides.ours, sides.theirs))
        try:
            found = merge_rows(RowSides(
                _table((info.kind, info.name)), tables.schema, tables.names, tables.keys(keys), base, ours, theirs,
                tables.key_of, tables.plain, disputed, fields), decisions)  # fmt: skip
        except pa.ArrowException as error:
            raise Invalid(f"a resolution gives {info.name} a value that does not fit: {error}",
                          hint="give values of the fields' types") from error
        return TypePlan(tables, version, found.changes, ours, theirs), found.conflicts

    # writing

    def publish(self, sides: Sides[int], plan: MergePlan[TypedChanges], note: CommitNote) -> Commit[int]:
        row = self._repository.branch_named(sides.into)
        if row is None:
            raise UnknownBranchError(sides.into)
        metadata: dict[str, Any] = {**sides.metadata, **({MERGED: sides.source} if sides.is_merge else {})}
        metadata |= {name: text for name, text in ((MESSAGE, note.message), (AUTHOR, note.author)) if text is not None}
        target = self._repository.on(row.id)
        with target.transaction(self._owner) as transaction:
            if target.head() != sides.ours:
                raise Moved
            transaction.merged = sides.theirs if sides.is_merge else None
            for _, each in sorted(plan.changes.types.items()):
                rows = each.tables.rows(each.changes.puts)
                if rows:
                    transaction.reconcile(each.tables.info, _checked(each.tables.info, rows))
                faults.reach("ontology: merged rows written")
                transaction.delete(each.tables.info, each.tables.rows(each.changes.deletes))
            id = transaction.finish(metadata)
        return self._repository.commit(id)


def _checked(info: TypeInfo, rows: list[Row]) -> list[Row]:
    """Rows that have what their columns need. Raises `Invalid` for what a resolution left out."""
    for column, place in ((one, number) for number, one in enumerate((*info.keys, *info.columns)) if not one.nullable):
        for row in rows:
            if row[place] is None:
                raise Invalid(f"{info.name} {row[: len(info.keys)]!r} needs a value for {column.stored}",
                              hint="give it in the resolution")
    return rows


def _table(name: Name) -> str:
    return f"{name[0]}/{name[1]}"


class _Orphans:
    """Relations that one side has to an entity that the other deleted."""

    def __init__(
        self, states: StoreStates, sides: Sides[int], decisions: Decisions, changes: TypedChanges,
        versions: Mapping[Name, int],
    ) -> None:  # fmt: skip
        self._states, self._sides, self._decisions = states, sides, decisions
        self._changes = changes
        self._versions = {**{name: plan.version for name, plan in changes.types.items()}, **versions}

    def settled(self) -> list[Conflict]:
        """Settle what decisions settle, and return the other conflicts."""
        return [*self._of_deleted_entities(), *self._of_new_relations()]

    def _relations(self, entity: str) -> Iterator[tuple[Name, TypeInfo, str]]:
        for name, version in sorted(self._versions.items()):
            if name[0] == "relation":
                schema = self._states.version(name, version).schema
                for side in ("left", "right"):
                    if schema.get(side) == entity:
                        yield name, self._states.info(name, version), side

    def _of_deleted_entities(self) -> Iterator[Conflict]:
        """Entities that the step deletes while relations of the target, or new ones, lead to them."""
        for (kind, entity), plan in sorted(self._changes.types.items()):
            if kind != "entity" or not plan.changes.deletes.num_rows:
                continue
            gone = plan.tables.rows(plan.changes.deletes)
            for name, info, side in self._relations(entity):
                for key in self._leading(name, info, side, gone):
                    end = (key[0 if side == "left" else 1],)
                    conflict = self._conflict(plan, end, name, info, key)
                    chosen = self._decisions.side(conflict)
                    if chosen is None:
                        yield conflict
                    elif chosen == "ours":
                        plan.changes = overridden(plan.changes, plan.tables.names, plan.tables.keys([end]), None,
                                                  plan.ours)
                    else:
                        self._delete(name, info, key)

    def _of_new_relations(self) -> Iterator[Conflict]:
        """Relations that the step brings to entities that the target deleted and the source has."""
        for name, plan in sorted(self._changes.types.items()):
            if name[0] != "relation" or not plan.changes.puts.num_rows:
                continue
            schema = self._states.version(name, plan.version).schema
            for place, side in enumerate(("left", "right")):
                entity: Name = ("entity", schema[side])
                if entity not in self._versions:
                    continue
                version = self._versions[entity]
                info = self._states.info(entity, version)
                rows = plan.tables.rows(plan.changes.puts)
                ends = sorted({(row[place],) for row in rows})
                held = {row[0]: row for row in self._states.rows(info, version, ends, self._sides.theirs)}
                here = {row[0] for row in self._states.rows(info, version, ends, self._sides.ours)}
                put = self._puts(entity)
                for row in rows:
                    if row[place] in held and row[place] not in here and row[place] not in put:
                        key = row[: len(plan.tables.names)]
                        conflict = self._conflict(self._plan(entity, info, version), (row[place],), name,
                                                  plan.tables.info, key)
                        chosen = self._decisions.side(conflict)
                        if chosen is None:
                            yield conflict
                        elif chosen == "ours":
                            plan.changes = overridden(plan.changes, plan.tables.names, plan.tables.keys([key]), None,
                                                      plan.ours)
                        else:
                            self._put(entity, info, version, held[row[place]])
                            put.add(row[place])

    def _leading(self, name: Name, info: TypeInfo, side: str, gone: Sequence[Row]) -> list[Row]:
        """The relations that will lead to these entities once the step is done."""
        version = self._versions[name]
        there = set(self._states.live_relations(info, version, side, gone, self._sides.ours))
        plan = self._changes.types.get(name)
        if plan is not None:
            place, wanted = 0 if side == "left" else 1, {key[0] for key in gone}
            there -= set(plan.tables.rows(plan.changes.deletes))
            there |= {row[: len(plan.tables.names)] for row in plan.tables.rows(plan.changes.puts)
                      if row[place] in wanted}
        return sorted(there)

    def _plan(self, name: Name, info: TypeInfo, version: int) -> TypePlan:
        plan = self._changes.types.get(name)
        if plan is None:
            tables = RowTables(info)
            nothing = RowChanges(tables.schema.empty_table(), tables.keys([]))
            plan = self._changes.types[name] = TypePlan(tables, version, nothing, tables.table([]), tables.table([]))
        return plan

    def _puts(self, name: Name) -> set[Any]:
        plan = self._changes.types.get(name)
        return set() if plan is None else {row[0] for row in plan.tables.rows(plan.changes.puts)}

    def _put(self, name: Name, info: TypeInfo, version: int, row: Row) -> None:
        plan = self._plan(name, info, version)
        plan.changes = plan.changes._replace(puts=pa.concat_tables([plan.changes.puts, plan.tables.table([row])]))

    def _delete(self, name: Name, info: TypeInfo, key: Row) -> None:
        plan = self._plan(name, info, self._versions[name])
        keys = plan.tables.keys([key])
        kept = np.flatnonzero(positions(plan.tables.names, plan.changes.puts.select(list(plan.tables.names)), keys) < 0)
        held = positions(plan.tables.names, keys, plan.ours)[0] >= 0 or bool(
            self._states.rows(info, self._versions[name], [key], self._sides.ours))
        deletes = [plan.changes.deletes, *([keys] if held else [])]
        plan.changes = RowChanges(plan.changes.puts.take(pa.array(kept)), pa.concat_tables(deletes))

    def _conflict(self, plan: TypePlan, end: Row, name: Name, info: TypeInfo, key: Row) -> Conflict:
        tables = plan.tables
        states = [self._states.rows(tables.info, plan.version, [end], one) for one in (self._sides.ours,
                                                                                      self._sides.theirs)]
        shown = [tables.plain(tables.table(found).to_pylist()[0]) if found else None for found in states]
        relation = RowTables(info)
        rows = ((_table(name), relation.key_of(dict(zip(relation.names, key, strict=True)))),)
        what = "a relation of the target leads to it, and the source deleted it" if shown[0] else \
            "a relation of the source leads to it, and the target deleted it"
        return Conflict(_table((tables.info.kind, tables.info.name)), end[0], ConflictKind.ORPHAN, None, None, shown[0],
                        shown[1], what, rows)


