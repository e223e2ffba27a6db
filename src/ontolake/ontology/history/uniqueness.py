"""Unique fields in merges: rows that would have one value, of which a side has to say whose stay."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ontolake.history import Conflict, ConflictKind, Decisions
from ontolake.history.operations import Sides
from ontolake.history.rows import overridden, positions
from ontolake.model.columns import Column
from ontolake.ontology.history.type_plans import RewritePlan, TypedChanges, TypePlan, table_name
from ontolake.ontology.repository.protocol import Row

_ROUNDS = 1_000
"""So many clashes are settled, each of which may bring another, before the rest is left open."""


class UniqueRows:
    """The clashes that a step would bring into the target."""

    def __init__(self, sides: Sides[int], decisions: Decisions, changes: TypedChanges) -> None:
        self._states, self._sides, self._decisions = changes.states, sides, decisions
        self._changes = changes

    def settled(self) -> list[Conflict]:
        """Settle what decisions settle, by giving all rows of a clash to one side, and return the other conflicts."""
        return [conflict for _, plan in sorted(self._changes.types.items()) if plan.tables.info.unique
                for conflict in self._settle(plan)]  # fmt: skip

    def _settle(self, plan: TypePlan) -> list[Conflict]:
        left: list[Conflict] = []
        for _ in range(_ROUNDS):
            left = []
            for conflict, keys in self._clashes(plan):
                side = self._decisions.side(conflict)
                if side is None:
                    left.append(conflict)
                    continue
                self._give(plan, keys, side)
                break
            else:
                break
        return left

    def _give(self, plan: TypePlan, keys: list[Row], side: str) -> None:
        tables, names = plan.tables, list(plan.tables.names)
        ours, theirs = (tables.table(self._states.rows(plan.name, keys, commit))
                        for commit in (self._sides.ours, self._sides.theirs))
        if side == "ours":
            for key in keys:
                plan.keep(self._states, key, self._sides.ours)
        else:
            plan.changes = overridden(plan.changes, plan.tables.names, tables.keys(keys), theirs, ours)
        if not isinstance(plan, RewritePlan):  # counts compare with what the target has
            new = positions(names, ours.select(names), plan.ours) < 0
            plan.ours = pa.concat_tables([plan.ours, ours.filter(pa.array(new))])

    def _clashes(self, plan: TypePlan) -> list[tuple[Conflict, list[Row]]]:
        tables, info = plan.tables, plan.tables.info
        width = len(info.keys)
        whole = isinstance(plan, RewritePlan)
        rows = list(plan.rows(self._states)) if isinstance(plan, RewritePlan) else tables.rows(plan.changes.puts)
        changed = {row[:width] for row in rows} | set(tables.rows(plan.changes.deletes))
        found: list[tuple[Conflict, list[Row]]] = []
        for column in info.unique:
            place = tables.columns.index(column)
            holders: dict[Any, list[Row]] = {}
            for row in rows:
                if row[place] is not None:
                    holders.setdefault(row[place], []).append(row[:width])
            if not whole and holders:
                for key, value in self._states.holders(plan.name, column, list(holders), self._sides.ours):
                    if key not in changed:
                        holders[value].append(key)
            found += [(self._conflict(plan, column, value, keys), keys) for value, keys in holders.items()
                      if len(keys) > 1]
        return found

    def _conflict(self, plan: TypePlan, column: Column, value: Any, keys: list[Row]) -> Conflict:
        tables, table = plan.tables, table_name(plan.name)
        states = (self._states.rows(plan.name, keys[:1], commit) for commit in (self._sides.ours, self._sides.theirs))
        ours, theirs = (tables.plain(tables.table(rows).to_pylist()[0]) if rows else None for rows in states)
        shown = [tables.key_of(dict(zip(tables.names, key, strict=True))) for key in keys]
        return Conflict(table, shown[0], ConflictKind.UNIQUE, None, None, ours, theirs,
                        f"{len(keys)} rows have {column.stored} {column.decode(value)!r}, which is unique",
                        tuple((table, key) for key in shown[1:]))  # fmt: skip
