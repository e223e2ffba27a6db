"""Three-way merging of rows in Arrow, by field: whoever changed a field alone decides, all else is a conflict.

Nothing here reads a store: the rows of all three sides are handed in, with the columns that the merge gives the table.
Rows are compared column by column; only conflicts are looked at one by one, and only if a side does not win them all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_keys import codes, contains
from ontolake.arrow_values import numbers
from ontolake.errors import Invalid
from ontolake.history.conflicts import Conflict, ConflictKind, Decisions, Value
from ontolake.history.ids import Key
from ontolake.history.results import Counts
from ontolake.history.threeway import Disputed, Outcome, decide

Mask = Any
"""A numpy array of booleans."""

_INSERTED = "both sides inserted it, differently"
_UPDATED = "both sides changed it, differently"
_THEY_DELETED = "the source deleted it, the target changed it"
_WE_DELETED = "the source changed it, the target deleted it"


@dataclass(frozen=True)
class RowSides:
    """The rows of one table, with the columns of `schema`, whose keys are in `keys`; a side may lack some.

    `disputed` marks keys of rows on which several bases disagree as a whole, `disputed_fields` those on which they
    disagree in one column. `our_missing` and `their_missing` are
    the columns of `schema` that a side does not have: the other side decides them. `key_of` gives the key of a row as
    users see it, `plain` a row or a value of a column as users see it.
    """

    table: str
    schema: pa.Schema
    key_columns: tuple[str, ...]
    keys: pa.Table
    base: pa.Table
    ours: pa.Table
    theirs: pa.Table
    key_of: Callable[[Mapping[str, Any]], Key]
    plain: Callable[[Mapping[str, Any]], Any]
    disputed: Mask | None = None
    disputed_fields: Mapping[str, Mask] = field(default_factory=dict)
    our_missing: Collection[str] = ()
    their_missing: Collection[str] = ()


class RowChanges(NamedTuple):
    """What to do to the rows of the target: rows to insert or replace, and keys to delete."""

    puts: pa.Table
    deletes: pa.Table

    @property
    def is_empty(self) -> bool:
        return not self.puts.num_rows and not self.deletes.num_rows


class MergedRows(NamedTuple):
    """What a merge does to the rows of a table, and what it cannot decide."""

    changes: RowChanges
    counts: Counts
    conflicts: list[Conflict]


class _Located(NamedTuple):
    rows: pa.Table
    at: Any
    """For each key the position of its row; -1 for a key without one."""

    @property
    def there(self) -> Mask:
        return self.at >= 0

    def taken(self, which: Any) -> pa.Table:
        """The rows of some keys; all missing where a key has none."""
        at = self.at[which]
        return self.rows.take(pa.array(at, mask=at < 0))


def merge_rows(sides: RowSides, decisions: Decisions) -> MergedRows:
    """Bring what changed between the base and their rows to our rows. A row that stays as it is, is not a change."""
    ours, theirs = _located(sides, sides.ours), _located(sides, sides.theirs)
    base = ours if sides.base is sides.ours else _located(sides, sides.base)
    names = sides.schema.names
    disputed = np.zeros(sides.keys.num_rows, dtype=bool) if sides.disputed is None else sides.disputed
    unknown = np.logical_or.reduce([disputed, *sides.disputed_fields.values()])
    their_change = ~_same(names, theirs, base) | unknown
    our_change = ~_same(names, ours, base) | unknown
    take = their_change & ~our_change
    clash = their_change & our_change
    if clash.any():
        clash &= ~_same(names, theirs, ours)
    merge = _Clashes(sides, decisions, base, ours, theirs, disputed)
    merge.fields(np.flatnonzero(clash & ours.there & theirs.there))
    take[merge.one_gone(np.flatnonzero(clash & ~(ours.there & theirs.there)))] = True
    settled = [_changed(sides, ours.rows, table.select(names).cast(sides.schema)) for table in merge.puts]
    taken = theirs.rows.take(pa.array(theirs.at[take & theirs.there])).select(names).cast(sides.schema)
    rows = pa.concat_tables([taken, *settled])
    deletes = pa.concat_tables([sides.keys.filter(pa.array(take & ~theirs.there)), *merge.deletes])
    if merge.deletes:
        deletes = deletes.filter(pa.array(positions(sides.key_columns, deletes, ours.rows) >= 0))
    return MergedRows(RowChanges(rows, deletes), count(sides.key_columns, ours.rows, rows, deletes), merge.conflicts)


def _located(sides: RowSides, rows: pa.Table) -> _Located:
    return _Located(rows, positions(sides.key_columns, sides.keys, rows))


def _changed(sides: RowSides, ours: pa.Table, rows: pa.Table) -> pa.Table:
    """The rows that differ from ours, of some that conflicts were settled to: a side that wins may change nothing."""
    at = positions(sides.key_columns, rows, ours)
    return rows.filter(pa.array(~same(sides.schema.names, rows, np.arange(rows.num_rows), ours, at)))


class _Clashes:
    """Rows that both sides changed, differently."""

    def __init__(
        self, sides: RowSides, decisions: Decisions, base: _Located, ours: _Located, theirs: _Located, disputed: Mask
    ) -> None:  # fmt: skip
        self._sides, self._choices = sides, decisions
        self._base, self._ours, self._theirs = base, ours, theirs
        self._disputed = disputed
        self.conflicts: list[Conflict] = []
        self.puts: list[pa.Table] = []
        self.deletes: list[pa.Table] = []

    def fields(self, rows: Any) -> None:
        """Rows that both sides have: field by field."""
        if not len(rows):
            return
        sides = self._sides
        old, own, new = self._base.taken(rows), self._ours.taken(rows), self._theirs.taken(rows)
        has_base = self._base.there[rows] & ~self._disputed[rows]
        columns: dict[str, Any] = {}
        clashing: dict[str, Mask] = {}
        for name in sides.schema.names:
            ours, theirs = own.column(name), new.column(name)
            if name in sides.our_missing or name in sides.their_missing:
                columns[name] = theirs if name in sides.our_missing else ours
                continue
            before, known = old.column(name), has_base
            if name in sides.disputed_fields:
                known = has_base & ~sides.disputed_fields[name][rows]
            stayed = equal(ours, before) & known
            columns[name] = pc.if_else(pa.array(stayed), theirs, ours)
            clashes = ~(equal(ours, theirs) | stayed | (equal(theirs, before) & known))
            if clashes.any():
                clashing[name] = clashes
        merged = pa.table(columns, schema=sides.schema) if columns else own
        decided = self._settled(merged, clashing, (old, own, new), rows)
        if decided is not None:
            self.puts.append(decided)

    def _settled(
        self, merged: pa.Table, clashing: dict[str, Mask], values: tuple[pa.Table, pa.Table, pa.Table], rows: Any
    ) -> pa.Table | None:  # fmt: skip
        """The rows without those that stay in conflict, with conflicting fields as decisions settle them."""
        table, size = self._sides.table, merged.num_rows
        if not clashing:
            return merged
        strategy = self._choices.strategy(table)
        if strategy is not None and not self._choices.has_resolutions(table):
            if strategy == "theirs":
                for name, clashes in clashing.items():
                    merged = _replaced(merged, name, pc.if_else(pa.array(clashes), values[2].column(name),
                                                                merged.column(name)))
            return merged
        open_rows = np.zeros(size, dtype=bool)
        whole: dict[int, Any] = {}
        for name, clashes in clashing.items():
            column: list[Any] | None = None
            for row in np.flatnonzero(clashes):
                old, own, new = (side.slice(row, 1).to_pylist()[0] for side in values)
                conflict = self._conflict(int(rows[row]), name, old, own, new)
                take = self._choices.take(conflict)
                if take is None:
                    open_rows[row] = True
                    self.conflicts.append(conflict)
                    continue
                given = self._choices.whole(table, conflict.key)
                if given is not None:
                    whole[int(row)] = given.value
                if column is None:
                    column = merged.column(name).to_pylist()
                column[row] = self._fitting(name, take.value) if isinstance(take, Value) else {
                    "ours": own, "theirs": new, "base": old}[take][name]
            if column is not None:
                merged = _replaced(merged, name, pa.array(column, self._sides.schema.field(name).type))
        return self._with_whole(merged, whole, ~open_rows, rows)

    def _fitting(self, name: str, value: Any) -> Any:
        """A value that a resolution gives a field. Raises `Invalid` if Arrow would cut it."""
        if isinstance(value, float | Decimal) and pa.types.is_integer(self._sides.schema.field(name).type) \
                and not _is_whole(value):
            raise Invalid(f"{self._sides.table}: {value!r} is not a whole number, which {name} needs",
                          hint="give values of the columns' types")
        return value

    def _with_whole(self, merged: pa.Table, whole: dict[int, Any], kept: Mask, rows: Any) -> pa.Table:
        """Put rows that a resolution gives as a whole in place; None among them deletes."""
        for row, given in whole.items():
            kept[row] = False
            self._give(rows[row], given)
        return merged.filter(pa.array(kept))

    def _give(self, row: int, given: Any) -> None:
        """Take the row that a resolution gives for a key, or delete it."""
        keys = self._sides.keys.slice(row, 1)
        if given is None:
            self.deletes.append(keys)
        else:
            unknown = sorted(map(str, {*given} - {*self._sides.schema.names}))
            if unknown:
                raise Invalid(f"{self._sides.table} has no field {unknown[0]!r}, which a resolution gives",
                              hint=f"its fields are {', '.join(self._sides.schema.names)}")
            key = keys.to_pylist()[0]
            if any(name in given and given[name] != value for name, value in key.items()):
                raise Invalid(f"{self._sides.table}: a resolution gives the row {key!r} another key",
                              hint="leave its key out; a row of another key is written after the merge")
            whole = {**{name: self._fitting(name, value) for name, value in given.items()}, **key}
            self.puts.append(pa.Table.from_pylist([whole], self._sides.schema))

    def _conflict(self, row: int, name: str, old: Any, own: Any, new: Any) -> Conflict:
        disputed = self._disputed[row] or (name in self._sides.disputed_fields
                                           and self._sides.disputed_fields[name][row])
        has_base = bool(self._base.there[row]) and not disputed
        inserted = not self._base.there[row] and not disputed
        kind = ConflictKind.DIVERGENT_INSERT if inserted else ConflictKind.DIVERGENT_UPDATE
        shown = [self._sides.plain({name: side[name]})[name] for side in (own, new)]
        before = self._sides.plain({name: old[name]})[name] if has_base else None
        return Conflict(self._sides.table, self._sides.key_of(own), kind, name, before, shown[0], shown[1],
                        _INSERTED if inserted else _UPDATED)  # fmt: skip

    def one_gone(self, rows: Any) -> Any:
        """Rows that one side deleted and the other changed. Returns those of which the source's state is taken."""
        taken = []
        table = self._sides.table
        strategy = self._choices.strategy(table)
        if strategy is not None and not self._choices.has_resolutions(table):
            return rows if strategy == "theirs" else rows[:0]
        for row in rows:
            states = [self._row(side, row) for side in (self._base, self._ours, self._theirs)]
            there = next(state for state in (states[1], states[2], states[0]) if state is not None)
            shown = [None if state is None else self._sides.plain(state) for state in states]
            conflict = Conflict(table, self._sides.key_of(there), ConflictKind.DELETE_UPDATE, None, shown[0], shown[1],
                                shown[2], _THEY_DELETED if states[2] is None else _WE_DELETED)  # fmt: skip
            take = self._choices.take(conflict)
            if take is None:
                self.conflicts.append(conflict)
            elif take == "theirs":
                taken.append(row)
            elif isinstance(take, Value) or take == "base":
                self._give(row, take.value if isinstance(take, Value) else states[0])
        return np.array(taken, dtype=np.int64)

    def _row(self, side: _Located, row: int) -> Any:
        return side.rows.slice(int(side.at[row]), 1).to_pylist()[0] if side.at[row] >= 0 else None


def _is_whole(value: float | Decimal) -> bool:
    try:
        return value == int(value)
    except (ValueError, OverflowError):
        return False


def virtual_row(
    base: dict[str, Any] | Disputed | None, ours: dict[str, Any] | Disputed | None,
    theirs: dict[str, Any] | Disputed | None, same: Callable[[Any, Any], bool],
) -> dict[str, Any] | Disputed | None:  # fmt: skip
    """What merging two bases gives for one row, by field. Where they conflict, the row or the field is disputed."""

    def same_rows(one: Any, other: Any) -> bool:
        if not isinstance(one, dict) or not isinstance(other, dict):
            return one is None and other is None
        return all(same(value, other[name]) for name, value in one.items())

    outcome = decide(base, theirs, ours, same_rows)
    if outcome is not Outcome.CLASH:
        return ours if outcome is Outcome.KEEP else theirs
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return Disputed()
    merged = dict(ours)
    for name, value in theirs.items():
        before = base[name] if isinstance(base, dict) else Disputed()
        outcome = decide(before, value, ours[name], same)
        if outcome is not Outcome.KEEP:
            merged[name] = value if outcome is Outcome.TAKE else Disputed()
    return merged


def _replaced(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)


def count(key_columns: tuple[str, ...], ours: pa.Table, puts: pa.Table, deletes: pa.Table) -> Counts:
    """How many rows changes insert, update and delete, where `ours` has the rows of the target with their keys."""
    updated = int((positions(key_columns, puts.select(list(key_columns)), ours) >= 0).sum())
    return Counts(puts.num_rows - updated, updated, deletes.num_rows)


def overridden(
    changes: RowChanges, key_columns: tuple[str, ...], keys: pa.Table, rows: pa.Table | None, ours: pa.Table
) -> RowChanges:  # fmt: skip
    """Changes that give some keys the rows of one side: `rows`, or None to leave the target's rows, `ours`, alone."""
    names = list(key_columns)
    puts = changes.puts.filter(pc.invert(contains(keys, changes.puts, names)))
    deletes = changes.deletes.filter(pc.invert(contains(keys, changes.deletes, names)))
    if rows is None:
        return RowChanges(puts, deletes)
    gone = keys.filter(pc.invert(contains(rows.select(names), keys, names)))
    gone = gone.filter(contains(ours.select(names), gone, names))
    return RowChanges(pa.concat_tables([puts, rows.select(puts.schema.names).cast(puts.schema)]),
                      pa.concat_tables([deletes, gone.select(names).cast(deletes.schema)]))


def positions(key_columns: Collection[str], keys: pa.Table, table: pa.Table) -> Any:
    """Where each key is in a table; -1 where it is not."""
    if keys.num_rows == 0 or table.num_rows == 0:
        return np.full(keys.num_rows, -1)
    if keys.num_rows == table.num_rows and all(keys.column(name).equals(table.column(name)) for name in key_columns):
        return np.arange(keys.num_rows)  # as in most merges; the rest would find the same out
    columns = [pa.chunked_array([*keys.column(name).chunks, *table.column(name).chunks], table.schema.field(name).type)
               for name in key_columns]  # fmt: skip
    both = codes(*columns)
    wanted, stored = both[: keys.num_rows], both[keys.num_rows :]
    order = np.argsort(stored, kind="stable")
    place = np.searchsorted(stored[order], wanted)
    place = np.minimum(place, len(stored) - 1)
    return np.where(stored[order][place] == wanted, order[place], -1)


def _same(names: Collection[str], a: _Located, b: _Located) -> Mask:
    return np.ones(len(a.at), dtype=bool) if a is b else same(names, a.rows, a.at, b.rows, b.at)


def same(names: Collection[str], a: pa.Table, at_a: Any, b: pa.Table, at_b: Any) -> Mask:
    """For each pair of positions, whether the rows are equal in these columns; two that are not there are."""
    result = (at_a < 0) == (at_b < 0)
    both = np.flatnonzero((at_a >= 0) & (at_b >= 0))
    if len(both):
        left, right = _rows_at(a, at_a[both]), _rows_at(b, at_b[both])
        rows = np.ones(len(both), dtype=bool)
        for name in names:
            rows &= equal(left.column(name), right.column(name))
        result[both] = rows
    return result


def _rows_at(table: pa.Table, places: Any) -> pa.Table:
    every = len(places) == table.num_rows and bool((places == np.arange(len(places))).all())
    return table if every else table.take(pa.array(places))


def equal(a: Any, b: Any) -> Mask:
    """For each pair of values whether they are equal; two that are missing are, and two that are not a number."""
    if a.equals(b):  # most columns are; this is one comparison of their bytes
        return np.ones(len(a), dtype=bool)
    if pa.types.is_nested(a.type):
        return np.array([x == y for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)], dtype=bool)
    found = pc.fill_null(pc.equal(a, b), False)
    found = pc.or_(found, pc.and_(pc.is_null(a), pc.is_null(b)))
    if pa.types.is_floating(a.type):
        found = pc.or_(found, pc.fill_null(pc.and_(pc.is_nan(a), pc.is_nan(b)), False))
    return numbers(found)

