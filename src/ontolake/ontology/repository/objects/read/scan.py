"""Rows of a type at a moment: the latest, those as of a commit, all of history, or those of some keys.

The one place that says which row of a key is the latest on objects: that of the newest run, or of the highest commit up
to a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_values import int_scalar, numbers
from ontolake.model.columns import Column
from ontolake.ontology.arrow.physical import (
    COMMIT,
    DELETED,
    REPLACES,
    ROW,
    SUPERSEDED,
    Type,
    by_row,
    concat,
    empty_table,
    encoded,
    flags,
    key_texts,
    living,
    naive_place,
    physical_type,
    place,
    places,
)
from ontolake.ontology.repository.objects.files import Files
from ontolake.ontology.repository.objects.layout import DataFile, TypeState
from ontolake.ontology.repository.objects.read.search import KeySearch, is_searchable, leading_type, place_of

Prune = Callable[[Any, int, DataFile], bool]
"""Whether a row group, given the metadata of its file, its number and the file, can have rows that are wanted."""


class Span(NamedTuple):
    """Which rows: up to a commit, after a commit, and whether all of history or the last ones only.

    With `deletions` a history has the rows that end keys too, and a column that tells them.
    """

    as_of: int | None = None
    since: int | None = None
    history: bool = False
    deletions: bool = False


LATEST = Span()

_LONG = 4096
"""Rows from which on a piece of a table is worth a chunk of its own."""


Adapt = Callable[[Type, pa.Table, int], pa.Table]
"""Makes rows of the current version from those of another one, given its number."""


class Scanner:
    """Reads rows of types from their files. Without `adapt` all files of a state are of its version."""

    def __init__(self, files: Files, adapt: Adapt | None = None) -> None:
        self.files = files
        self._search = KeySearch(files)
        self._adapt = adapt

    def _foreign(self, state: TypeState | None, file: DataFile) -> bool:
        """Whether rows of a file are of another version than is current."""
        return self._adapt is not None and state is not None and file.schema_version_id != state.schema_version_id

    def _adapted(self, info: Type, file: DataFile, names: Sequence[str] | None = None) -> pa.Table:
        assert self._adapt is not None
        found = self._adapt(info, self.files.table(file), file.schema_version_id)
        return found if names is None else found.select([name for name in names if name in found.column_names])

    def scan(
        self, info: Type, state: TypeState | None, span: Span = LATEST, columns: Sequence[Column] | None = None,
        prune: Prune | None = None, *, keys: Sequence[Any] | None = None,
    ) -> pa.Table:  # fmt: skip
        """Rows within a span, with the keys, the commit and the place, in the order in which they were written. Keys
        that have ended are left out, unless deletions are asked for.

        With `keys`, those that have one of these as their first key.
        """
        wanted = (*info.keys, *(info.columns if columns is None else (c for c in columns if c not in info.keys)))
        runs, past = relevant(state, span)
        if not runs and not past:
            nothing = empty_table(info, wanted)
            return marked(nothing) if span.deletions else nothing
        names = [*places(wanted), COMMIT, ROW, DELETED]
        self.files.load([*runs, *past])
        if keys is not None:
            prune = self._only(info, keys)
        if span.history:
            tables = [self._read(info, state, file, names, prune) for file in (*past, *runs)]
            found = within(concat([one.select([n for n in one.column_names if n != SUPERSEDED]) for one in tables]),
                           span)
        elif past:
            found = self._as_of(info, state, runs, past, names, span, prune if keys is not None else None)
        else:
            found = self._latest(info, state, runs, names, span, prune, keys is not None)
        if keys is not None:
            found = found.filter(pc.is_in(_leading(info, found), value_set=pa.array(keys, leading_type(info))))
        found = marked(found) if span.deletions else living(found)
        return by_row(_completed(found, wanted))

    def _only(self, info: Type, keys: Sequence[Any]) -> Prune:
        """Lets through the row groups that can have one of these keys."""
        known: dict[str, set[int]] = {}

        def wanted(meta: Any, number: int, file: DataFile) -> bool:
            groups = known.get(file.path)
            if groups is None:
                groups = known[file.path] = set(self.files.groups_of(info, file, keys))
            return number in groups

        return wanted

    def _read(
        self, info: Type, state: TypeState | None, file: DataFile, names: Sequence[str], prune: Prune | None = None
    ) -> pa.Table:  # fmt: skip
        if self._foreign(state, file):
            return self._adapted(info, file, names)
        if prune is not None and file.row_count > self.files.sizes.small_rows:
            meta = self.files.statistics(file)
            groups = [n for n in range(meta.num_row_groups) if prune(meta, n, file)]
            if len(groups) < meta.num_row_groups:
                return self.files.groups(file, groups, names) if groups else self.files.groups(file, [0], names)[:0]
        return self.files.table(file, names)

    def _latest(
        self, info: Type, state: TypeState | None, runs: Sequence[DataFile], names: Sequence[str], span: Span,
        prune: Prune | None, by_key: bool,
    ) -> pa.Table:  # fmt: skip
        """Newest runs first; of older ones what they lack. A run that replaces rows is read whole, or by key.

        Runs that say which rows they replace are taken at their word; the keys of others are compared.
        """
        found: list[pa.Table] = []
        newer: list[tuple[DataFile, pa.Array]] = []
        gone = np.zeros(0, np.int64)
        for number in range(len(runs) - 1, -1, -1):
            file = runs[number]
            replaces = bool(file.updates and number)
            linked = replaces and file.replaces
            table = self._read(info, state, file, [*names, REPLACES] if linked else names,
                               None if replaces and not by_key else prune)
            if span.as_of is not None and file.max_commit_id > span.as_of:
                table = within(table, span)
            over = [keys for other, keys in newer if self._foreign(state, file) or _overlap(file, other)]
            # What a row replaces is gone, whether the row itself was replaced or not: all of them count.
            keys = key_texts(info, table) if over or (replaces and not linked) else None
            below = numbers(table.column(REPLACES).drop_null()) if linked else gone[:0]
            table = table.drop_columns([REPLACES]) if linked else table
            if over and keys is not None:
                table = table.filter(pc.invert(pc.is_in(keys, value_set=pa.concat_arrays(over))))
            found.append(without(table, gone, one_commit=file.min_commit_id == file.max_commit_id))
            if replaces and not linked:
                newer.append((file, keys))
            gone = np.concatenate([gone, below]) if len(below) else gone
        return concat(found[::-1])

    def _as_of(
        self, info: Type, state: TypeState | None, runs: Sequence[DataFile], past: Sequence[DataFile],
        names: Sequence[str], span: Span, prune: Prune | None,
    ) -> pa.Table:  # fmt: skip
        assert span.as_of is not None  # who asks for the latest rows needs no replaced ones
        tables = []
        for file in runs:
            table = self._read(info, state, file, names, prune)
            tables.append(table if file.max_commit_id <= span.as_of else within(table, span))
        for file in past:
            table = self._read(info, state, file, [*names, SUPERSEDED], prune)
            table = within(table.filter(pc.greater(table.column(SUPERSEDED), int_scalar(span.as_of))), span)
            tables.append(table.drop_columns([SUPERSEDED]))
        # One file of the past can have several states of a key; its successors are bounds, not always exact.
        return last_of_each(info, concat(tables))

    # by key
    def find(self, info: Type, state: TypeState | None, keys: pa.Array, leading: Sequence[Any]) -> pa.Table:
        """The latest rows of keys, given as `key_texts` and by their leading key; in no order."""
        if not len(keys):
            return empty_table(info)
        first, last = min(leading), max(leading)
        runs = [file for file in relevant(state, LATEST)[0]
                if self._foreign(state, file) or (_le(file.low, last) and _le(first, file.high))]
        self.files.load(runs)
        found: list[pa.Table] = []
        missing = keys
        if is_searchable(info) and not any(self._foreign(state, file) for file in runs):
            wanted = sorted(leading)
            for file in reversed(runs):
                table, wanted = self._search.rows(info, file, wanted)
                found += [] if table is None else [table]
            runs = []
        for file in reversed(runs):
            if not len(missing):
                break
            table = self._candidates(info, state, file, leading)
            if table is None:
                continue
            # The smaller side is hashed: usually that of the keys.
            at = pc.index_in(key_texts(info, table), value_set=missing)
            there = at.is_valid()
            if pc.any(there).as_py():
                found.append(table.filter(there))
                seen = np.zeros(len(missing), dtype=bool)
                seen[numbers(at.drop_null())] = True
                missing = missing.filter(pa.array(~seen))
        return _completed(living(concat(found)), info.columns) if found else empty_table(info)

    def _candidates(
        self, info: Type, state: TypeState | None, file: DataFile, leading: Sequence[Any]
    ) -> pa.Table | None:  # fmt: skip
        """The part of a run that can have one of these keys."""
        if self._foreign(state, file):
            return self._adapted(info, file)
        if file.row_count <= self.files.sizes.small_rows:
            return self.files.table(file)
        groups = self.files.groups_of(info, file, leading)
        if not groups:
            return None
        if len(groups) <= self.files.sizes.kept_groups:
            return concat([self.files.group(file, number) for number in groups])
        if len(groups) * 2 > self.files.statistics(file).num_row_groups:
            return self.files.table(file)
        return self.files.groups(file, groups)

    def lookup(self, info: Type, state: TypeState | None, text: Any, leading: Any) -> pa.Table | None:
        """The latest row of one key as a table of one row."""
        runs, _ = relevant(state, LATEST)
        for file in reversed(runs):
            if self._foreign(state, file):
                table = self._adapted(info, file)
                at = pc.index(key_texts(info, table), text).as_py()
                if at >= 0:
                    return table.slice(at, 1)
                continue
            if not (_le(file.low, leading) and _le(leading, file.high)):
                continue
            if file.row_count <= self.files.sizes.small_rows:
                at = self.files.positions(info, file).get(text)
                if at is not None:
                    row = self.files.table(file).slice(at, 1)
                    return _alive(row) if file.deleted else row
                continue
            for number in self.files.group_of(info, file, leading):
                group = self.files.group(file, number)
                at = _place_of(info, group, text)
                if at >= 0:
                    row = group.slice(at, 1)
                    return _alive(row) if file.deleted else row
        return None


def _place_of(info: Type, group: pa.Table, text: Any) -> int:
    """Where a row group, which is in the order of keys, has a key; -1 if it does not."""
    if len(info.keys) > 1 or info.keys[0].type.encodes_arrow():
        return int(pc.index(key_texts(info, group), text).as_py())
    return place_of(info, group, text)


def _alive(row: pa.Table) -> pa.Table | None:
    """A row, unless it ends its key."""
    found = living(row)
    return found if len(found) else None


def marked(table: pa.Table) -> pa.Table:
    """The rows with a mark on those that end their keys."""
    marks = pa.array(flags(table), pa.bool_())
    if DELETED in table.column_names:
        return table.set_column(table.column_names.index(DELETED), DELETED, marks)
    return table.append_column(DELETED, marks)


def relevant(state: TypeState | None, span: Span) -> tuple[list[DataFile], list[DataFile]]:
    """The runs and the files of replaced rows that can have rows within a span."""
    if state is None:
        return [], []
    until = span.as_of
    low = 0 if not span.history or span.since is None else span.since
    runs = [file for file in state.runs
            if (until is None or file.min_commit_id <= until) and file.max_commit_id > low]
    if span.history:
        past = [file for file in state.past
                if (until is None or file.min_commit_id <= until) and file.max_commit_id > low]
    elif until is None:
        past = []
    else:
        past = [file for file in state.past if file.min_commit_id <= until and (file.superseded or 0) > until]
    return runs, past


def within(table: pa.Table, span: Span) -> pa.Table:
    """The rows of a table whose commits lie within a span."""
    commits = table.column(COMMIT)
    if span.as_of is not None:
        table = table.filter(pc.less_equal(commits, int_scalar(span.as_of)))
    if span.since is not None:
        table = table.filter(pc.greater(table.column(COMMIT), int_scalar(span.since)))
    return table


def _in_order(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Numbers in order, which they often are already."""
    return values if bool((values[1:] >= values[:-1]).all()) else np.sort(values)


def without(table: pa.Table, gone: np.ndarray[Any, Any], *, one_commit: bool = False) -> pa.Table:
    """The rows of a table but for those with one of these numbers.

    `one_commit` says that all rows are of one commit.
    """
    if not len(gone) or not len(table):
        return table
    rows = numbers(table.column(ROW))
    first = int(rows[0])
    numbered = int(rows[-1]) - first == len(rows) - 1 and bool((rows[1:] > rows[:-1]).all())
    if numbered:  # without a gap: a number is a place
        gone = _in_order(gone)
        start, end = np.searchsorted(gone, [first, first + len(rows)])
        places = gone[start:end] - first
    else:
        places = np.flatnonzero(np.isin(rows, gone))
    if not len(places):
        return table
    ends = places[1:][places[1:] > places[:-1] + 1]
    if (len(ends) + 1) * _LONG * 2 > len(table):
        return _others(table, places, first if numbered else None, one_commit)
    # Long pieces need not be copied.
    starts = [0, *(places[np.append(places[1:] > places[:-1] + 1, True)] + 1).tolist()]
    pieces = zip(starts, [int(places[0]), *ends.tolist(), len(table)], strict=True)
    return pa.concat_tables([table.slice(start, end - start) for start, end in pieces if end > start] or [table[:0]])


def _others(table: pa.Table, places: np.ndarray[Any, Any], first: int | None, one_commit: bool) -> pa.Table:
    """The rows of a table but for those at these places, each column as it is cheapest. `first` is the number of the
    first row if they are numbered one after the other."""
    kept = np.ones(len(table), dtype=bool)
    kept[places] = False
    mask, others = pa.array(kept), np.flatnonzero(kept)
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name == ROW and first is not None:
            columns.append(pa.chunked_array([others + first]))
        elif name == COMMIT and one_commit:
            columns.append(column.slice(0, len(others)))
        elif column.num_chunks == 1 and column.type == pa.bool_():
            columns.append(column.take(pa.array(others)))
        else:
            columns.append(column.filter(mask))
    return pa.table(columns, schema=table.schema)


def last_of_each(info: Type, table: pa.Table) -> pa.Table:
    """Of every key the row that was written last."""
    if len(table) < 2:
        return table
    codes = numbers(key_texts(info, table).dictionary_encode().indices)
    order = np.lexsort((numbers(table.column(ROW)), codes))
    last = np.append(codes[order][1:] != codes[order][:-1], True)
    return table.take(pa.array(order[last]))


def same_keys(info: Type, table: pa.Table) -> np.ndarray[Any, Any]:
    """For a table in the order of keys: whether the key of each row is that of the next one."""
    found = np.zeros(len(table), dtype=bool)
    if len(table) < 2:
        return found
    alike: Any = None
    for column in info.keys:
        for name in (place(column), naive_place(column)):
            if name in table.column_names:
                values = table.column(name).combine_chunks()
                if values.null_count:
                    values = values.fill_null(False)
                one = pc.equal(values[:-1], values[1:])
                alike = one if alike is None else pc.and_(alike, one)
    found[:-1] = numbers(alike)
    return found


def _completed(table: pa.Table, columns: Collection[Column]) -> pa.Table:
    """With every column that was asked for, missing where no file has it."""
    lacking = [column for column in columns if place(column) not in table.column_names]
    for column in lacking:
        table = table.append_column(place(column), pa.nulls(len(table), physical_type(column)))
    return table


def _leading(info: Type, table: pa.Table) -> pa.Array:
    """The first keys of rows, encoded."""
    column = info.keys[0]
    if column.type.encodes_arrow():
        return pa.array(encoded(column, table), leading_type(info))
    return table.column(place(column)).combine_chunks()


def _overlap(one: DataFile, two: DataFile) -> bool:
    """Whether two files can have rows of one key."""
    return _le(one.low, two.high) and _le(two.low, one.high)


def _le(one: Any, two: Any) -> bool:
    try:
        return bool(one <= two)
    except TypeError:
        return True


__all__ = ["LATEST", "Scanner", "Span", "last_of_each", "relevant", "same_keys", "within", "without"]
