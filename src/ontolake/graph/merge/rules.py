"""Rules that rows break together: what neither side did wrong by itself can be wrong in the result of a step.

Each is a conflict that names all rows in it. Whoever settles it for a side gives all these rows the state that they
have there; then the rules are checked again, until nothing is open or nothing changes any more.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_keys import contains
from ontolake.graph.commit.records import GraphState, Pin
from ontolake.graph.errors import ConstraintError, ExpectedVersionMismatch, reading
from ontolake.graph.merge.columns import translated
from ontolake.graph.merge.merge import MergeStep
from ontolake.graph.merge.types import check_whole
from ontolake.graph.tables.constraints import Checker
from ontolake.graph.tables.datasets import having
from ontolake.graph.tables.rows import check_values, key_at
from ontolake.graph.tables.types import GraphType
from ontolake.history.conflicts import Conflict, ConflictKind, Side

_KINDS = {"endpoint": ConflictKind.ORPHAN, "unique": ConflictKind.UNIQUE, "cardinality": ConflictKind.CARDINALITY}
_STAYS = "; the rows as that side has them do not keep the rule either"


class RuleCheck:
    """The rules of the graph, asked of the result of a step."""

    def __init__(self, step: MergeStep) -> None:
        self._step = step

    def settle(self) -> None:
        """Settle what decisions settle; the rest becomes conflicts of the step."""
        given: set[tuple[str, Any]] = set()
        while True:
            is_open: list[Conflict] = []
            moved = False
            for conflict in self._found():
                side = self._step.decisions.side(conflict)
                rows = [row for row in ((conflict.table, conflict.key), *conflict.rows) if row not in given]
                if side is None or not rows:
                    is_open.append(conflict if side is None else conflict._replace(detail=conflict.detail + _STAYS))
                else:
                    given.update(rows)
                    self._give(rows, side)
                    moved = True
            if not moved:
                self._step.conflicts += is_open
                return

    def _give(self, rows: list[tuple[str, Any]], side: Side) -> None:
        by_table: dict[str, list[Any]] = {}
        for table, key in rows:
            by_table.setdefault(table.replace("/", ":", 1), []).append(key)
        for key, some in by_table.items():
            self._step.give(key, some, side)

    def _found(self) -> list[Conflict]:
        """All that is wrong with the result."""
        step = self._step
        problems: list[ConstraintError] = []
        tables, changes = step.parts.tables, step.changes()
        types = {**step.ours.types, **step.added}
        for key, kind in step.reshaped.items():
            check_whole(kind, self._stored(key, kind), changes.get(key), problems.append)
        plain = {key: change for key, change in changes.items() if key not in step.reshaped}
        for key, change in plain.items():
            if change.puts is not None:
                try:
                    check_values(types[key], change.puts)
                except ConstraintError as error:
                    problems.append(error)
        pins = self.pins(step.ours)
        Checker(tables, types, pins, plain, problems.append).within_tables()
        checker = Checker(tables, types, pins, changes, problems.append)
        checker.between_tables()
        step.reads = checker.reads()
        return [self._conflict(problem) for problem in problems]

    def pins(self, state: GraphState) -> dict[str, Pin]:
        """What is shown, and new tables as empty ones."""
        return {**{key: Pin(None, 0, 0, kind.hash) for key, kind in self._step.added.items()}, **state.pins}

    def recheck(self, state: GraphState) -> None:
        """Ask again of a state that others have published meanwhile. Raises what does not hold any more."""
        step = self._step
        for key in step.dropped:  # whoever came meanwhile may have made edges to what goes
            left = [kind for one, kind in state.types.items() if one not in step.dropped]
            if any(key == end for kind in left for _, end in kind.ends):
                raise ExpectedVersionMismatch(key, step.ours.pins[key].version, None)
        if any(state.pins.get(key) != step.ours.pins.get(key) for key in step.reads):
            changes = step.changes()
            pins = {**self.pins(state), **{key: step.ours.pins[key] for key in changes if key in step.ours.pins}}
            Checker(step.parts.tables, {**state.types, **step.added}, pins, changes).between_tables()

    def _stored(self, key: str, kind: GraphType) -> pa.Table:
        """All rows of the target, in the type that the step gives the table."""
        step, old = self._step, self._step.ours.types[key]
        with reading(kind.table):
            rows = step.parts.tables.at(old, step.ours.pins[key]).to_table(columns=[one.name for one in old.fields])
        return translated(rows, kind, step.sources[key])

    def _conflict(self, error: ConstraintError) -> Conflict:
        key, step = error.table.replace("/", ":", 1), self._step
        what = _KINDS.get(error.constraint, ConflictKind.VALUE)
        rows: list[tuple[str, Any]] = []
        if what is ConflictKind.ORPHAN:
            rows = self._ends(key, error)
        elif what is not ConflictKind.VALUE and error.column is not None:
            rows = [(error.table, other) for other in self._sharing(key, error) if other != error.key]
        return Conflict(error.table, error.key, what, None, None, step.row_of(key, error.key, "ours"),
                        step.row_of(key, error.key, "theirs"), error.reason, tuple(rows))  # fmt: skip

    def _ends(self, key: str, error: ConstraintError) -> list[tuple[str, Any]]:
        """The node that an edge has lost, and the other edges that come with it."""
        kind = self._step.kind(key)
        column = str(error.column)
        value = error.key[kind.keys.index(column)]
        end = dict(kind.ends)[column].replace(":", "/", 1)
        changes = self._step.rows.get(key)
        others = [] if changes is None else self._with(kind, changes.puts, column, value)
        return [(end, value), *((kind.table, other) for other in others if other != error.key)]

    def _with(self, kind: GraphType, rows: pa.Table, column: str, value: Any) -> list[Any]:
        some = rows.filter(pc.equal(rows.column(column), pa.scalar(value, rows.schema.field(column).type)))
        return [key_at(kind, some, row) for row in range(some.num_rows)]

    def _sharing(self, key: str, error: ConstraintError) -> list[Any]:
        """The keys of all rows that have the value of a row in a column, after the step."""
        step, kind, column = self._step, self._step.kind(key), str(error.column)
        changes = step.rows.get(key)
        names = list(dict.fromkeys((*kind.keys, column)))
        puts = (changes.puts if changes is not None else kind.schema.empty_table()).select(names)
        own = next((puts.slice(row, 1) for row in range(puts.num_rows) if key_at(kind, puts, row) == error.key), None)
        stored = self._stored(key, kind).select(names) if key in step.reshaped else None
        if own is None and stored is not None:
            own = next(stored.slice(row, 1) for row in range(stored.num_rows) if key_at(kind, stored, row) == error.key)
        if own is None:
            return []
        value = own.column(column)[0].as_py()
        if stored is None:
            pin = step.ours.pins.get(key)
            if pin is None or not pin.rows:
                return self._with(kind, puts, column, value)
            with reading(kind.table):
                stored = having(step.parts.tables.at(kind, pin), names, column, own.column(column))
        for keys in (changes.puts, changes.deletes) if changes is not None else ():
            stored = stored.filter(pc.invert(contains(keys, stored, kind.keys)))
        return [*self._with(kind, puts, column, value), *self._with(kind, stored, column, value)]
