"""What a step of a merge does to the rows of a type: rows that change, or a whole state under another schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ontolake.history import Counts
from ontolake.history.rows import RowChanges, count, positions, same
from ontolake.ontology.history.lifted_states import LiftedStates
from ontolake.ontology.history.row_tables import RowTables
from ontolake.ontology.history.states import Name
from ontolake.ontology.repository.protocol import Row


@dataclass
class TypePlan:
    """What a step does to the rows of a type, in the version that the target has afterwards.

    `ours` and `theirs` have the rows of both sides that may change.
    """

    name: Name
    tables: RowTables
    changes: RowChanges
    ours: pa.Table
    theirs: pa.Table

    @property
    def counts(self) -> Counts:
        return count(self.tables.names, self.ours, self.changes.puts, self.changes.deletes)

    @property
    def is_empty(self) -> bool:
        return self.changes.is_empty

    @property
    def leaves_out(self) -> bool:
        """Whether a row of the source that differs from that of the target is not taken as it is."""
        names = list(self.tables.names)
        written, deleted = self.changes
        if written.equals(self.theirs) and self.ours.select(names).equals(self.theirs.select(names)):
            return False  # as in most merges; the rest would find the same out
        keys = pa.concat_tables([self.ours.select(names), self.theirs.select(names)])
        ours, theirs, put, gone = (positions(names, keys, one) for one in (self.ours, self.theirs, written, deleted))
        columns = self.tables.schema.names
        differ = ~same(columns, self.theirs, theirs, self.ours, ours)
        taken = np.where(theirs < 0, gone >= 0, (put >= 0) & same(columns, self.theirs, theirs, written, put))
        return bool((differ & ~taken).any())

    def keep(self, states: LiftedStates, key: Row, ours: int) -> None:
        """Leave the row of a key as the target has it at the commit `ours`."""
        keys = self.tables.keys([key])
        names = list(self.tables.names)
        self.changes = RowChanges(without(self.changes.puts, keys, names), without(self.changes.deletes, keys, names))


@dataclass
class RewritePlan(TypePlan):
    """The type gets the schema of the source, and all of its rows are written anew.

    Rows are those of the source, save those that the target changed too, which are compared.
    """

    old_version: int = 0
    source: int = 0
    """The commit of the source."""
    held: set[Row] = field(default_factory=set)
    """The keys of the target."""
    compared: frozenset[Row] = frozenset()
    """The keys whose rows are those of `ours`, unless `changes` has others."""

    @property
    def counts(self) -> Counts:
        width = len(self.tables.names)
        inserted = {row[:width] for row in self.tables.rows(self.changes.puts)} - self.held
        deleted = self.changes.deletes.num_rows
        return Counts(len(inserted), len(self.held) - deleted, deleted)

    @property
    def is_empty(self) -> bool:
        return False

    def keep(self, states: LiftedStates, key: Row, ours: int) -> None:
        super().keep(states, key, ours)
        names = list(self.tables.names)
        rest = without(self.ours, self.tables.keys([key]), names)
        self.ours = pa.concat_tables([rest, self.tables.table(states.rows(self.name, [key], ours))])
        self.compared |= {key}

    def rows(self, states: LiftedStates) -> Iterator[Row]:
        """All rows of the type once the step is done."""
        width = len(self.tables.names)
        puts, kept = self.tables.rows(self.changes.puts), self.tables.rows(self.ours)
        written = {row[:width] for row in puts}
        gone = set(self.tables.rows(self.changes.deletes))
        decided = written | gone | self.compared
        yield from (row for row in states.every_row(self.name, self.source) if row[:width] not in decided)
        yield from (row for row in kept if row[:width] not in written | gone)
        yield from puts


@dataclass
class TypedChanges:
    """What a step does to each type. `states` reads rows in the versions that the target has afterwards."""

    states: LiftedStates
    types: dict[Name, TypePlan] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(not plan.is_empty for plan in self.types.values())

    def plan_of(self, name: Name) -> TypePlan:
        """The plan of a type, which does nothing unless there is one."""
        plan = self.types.get(name)
        if plan is None:
            tables = RowTables(self.states.info(name))
            nothing = RowChanges(tables.schema.empty_table(), tables.keys([]))
            plan = self.types[name] = TypePlan(name, tables, nothing, tables.table([]), tables.table([]))
        return plan


def table_name(name: Name) -> str:
    """What users call the table of a type."""
    return f"{name[0]}/{name[1]}"


def without(table: pa.Table, keys: pa.Table, names: list[str]) -> pa.Table:
    """The rows of a table that have none of these keys."""
    return table.take(pa.array(np.flatnonzero(positions(names, table.select(names), keys) < 0)))
