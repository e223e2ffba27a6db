"""What differs between two versions of a table, found from what was written since they had the same rows.

Lance tells for every row when it was written last and which rows went between two versions, so the cost follows the
change and not the table. Lines of versions that forked are compared through the version at which they parted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ontolake.arrow_keys import codes
from ontolake.graph.commit.records import Pin
from ontolake.graph.errors import reading
from ontolake.graph.read.views import SnapshotTables, plain_row, row_key
from ontolake.graph.tables.datasets import GraphTables
from ontolake.graph.tables.types import GraphType
from ontolake.history import Change as RowChange
from ontolake.history.rows import positions, same

if TYPE_CHECKING:
    from lance import LanceDataset

_CHUNK = 50_000


class Touched(NamedTuple):
    """Keys of rows that may differ between two versions, and the rows on both sides that are there."""

    keys: pa.Table
    before: pa.Table
    after: pa.Table


def _lines(tables: GraphTables, kind: GraphType, pin: Pin) -> list[tuple[str | None, int]]:
    """The versions that a pin goes back to: its own, then where each line left its parent."""
    found: list[tuple[str | None, int]] = [(pin.branch, pin.version)]
    if pin.branch is not None:
        listed: dict[str, Any] = dict(tables.base(kind).branches.list())
        branch: str | None = pin.branch
        while branch is not None:
            fork = listed[branch]
            branch = fork["parent_branch"]
            found.append((branch, fork["parent_version"]))
    return found


def _parted(tables: GraphTables, kind: GraphType, a: Pin, b: Pin) -> tuple[str | None, int]:
    """The newest version that two pins have both grown from."""
    if a.branch == b.branch:
        return a.branch, min(a.version, b.version)
    others = dict(_lines(tables, kind, b))
    for branch, version in _lines(tables, kind, a):
        if branch in others:
            return branch, min(version, others[branch])
    raise AssertionError("every line goes back to the first")


def grew_from(tables: GraphTables, kind: GraphType, base: Pin, pin: Pin) -> bool:
    """Whether a version of a table is another or one that followed it, on its line or on one that left it."""
    return _parted(tables, kind, base, pin) == (base.branch, base.version)


def physical_ids(tables: GraphTables, kind: GraphType, pin: Pin) -> dict[str, int]:
    """The number that each column has in the files of a version. One that is added again gets another."""
    return {field.name(): field.id() for field in tables.at(kind, pin).lance_schema.fields()}


def _same_columns(tables: GraphTables, before: tuple[Pin, GraphType], after: tuple[Pin, GraphType]) -> bool:
    """Whether two versions have the same columns, so that rows differ only where they were written."""
    (old, old_type), (new, new_type) = before, after
    if old_type.schema != new_type.schema:
        return False
    then, now = physical_ids(tables, old_type, old), physical_ids(tables, new_type, new)
    if then != now or old.branch == new.branch:
        return then == now
    branch, version = _parted(tables, new_type, old, new)  # beyond it, both lines may have given out a number
    return physical_ids(tables, new_type, Pin(branch, version, -1, new.schema)) == now


def _touched_keys(tables: GraphTables, kind: GraphType, old: Pin, new: Pin) -> pa.Table:
    """The keys of rows that were written or went between a version and one that grew from it."""
    names = list(kind.keys)
    schema = pa.schema([kind.schema.field(name) for name in names])
    if (old.branch, old.version) == (new.branch, new.version):
        return pa.Table.from_batches([], schema)
    before, after = tables.at(kind, old), tables.at(kind, new)
    found = [_written(before, after, old.version, names)]
    gone: list[int] = []
    lines = _lines(tables, kind, new)
    for branch, version in lines:
        begin = old.version if branch == old.branch else next(
            v for (line, _), (_, v) in pairwise(lines) if line == branch)
        if version > begin:
            dataset = tables.at(kind, Pin(branch, version, -1, new.schema))
            ids = dataset.delta(begin_version=begin, end_version=version).get_deleted_row_ids().read_all()
            gone += ids.column("_rowid").to_pylist()
        if branch == old.branch:
            break
    for start in range(0, len(gone), _CHUNK):
        some = ", ".join(map(str, gone[start : start + _CHUNK]))
        found.append(before.to_table(columns=names, filter=f"_rowid IN ({some})"))
    return pa.concat_tables([table.cast(schema) for table in found])


def _written(before: LanceDataset, after: LanceDataset, since: int, names: list[str]) -> pa.Table:
    """Keys of rows written since a version: only fragments that were not there then can have them."""
    known = {fragment.fragment_id: _files(fragment) for fragment in before.get_fragments()}
    new = [fragment for fragment in after.get_fragments() if known.get(fragment.fragment_id) != _files(fragment)]
    if not new:
        return after.to_table(columns=names, filter="false")
    return after.scanner(columns=names, fragments=new, filter=f"_row_last_updated_at_version > {since}").to_table()


def _files(fragment: Any) -> tuple[str, ...]:
    return tuple(file.path for file in fragment.metadata.files)


def touched_keys(tables: GraphTables, kind: GraphType, before: Pin, after: Pin) -> pa.Table:
    """The keys of rows that may differ between any two versions of a table. Raises `DamagedGraphError`."""
    with reading(kind.table):
        branch, version = _parted(tables, kind, before, after)
        base = Pin(branch, version, -1, after.schema)
        keys = pa.concat_tables([_touched_keys(tables, kind, base, before), _touched_keys(tables, kind, base, after)])
    return distinct(kind, keys)


def distinct(kind: GraphType, keys: pa.Table) -> pa.Table:
    """Keys, each of them once."""
    if keys.num_rows < 2:
        return keys
    _, first = np.unique(codes(*(keys.column(name) for name in kind.keys)), return_index=True)
    return keys.take(pa.array(np.sort(first)))


def touched(tables: GraphTables, kind: GraphType, before: Pin, after: Pin) -> Touched:
    """The rows that may differ between any two versions of a table with the same columns."""
    keys = touched_keys(tables, kind, before, after)
    return Touched(keys, rows_at(tables, kind, before, keys), rows_at(tables, kind, after, keys))


def rows_at(tables: GraphTables, kind: GraphType, pin: Pin, keys: pa.Table) -> pa.Table:
    """The rows of a version with these keys."""
    return tables.lookup(kind, tables.at(kind, pin), keys).cast(kind.schema)


def diff_tables(tables: GraphTables, before: SnapshotTables, after: SnapshotTables) -> Iterator[RowChange[str]]:
    """What turns one snapshot into another, table by table, rows by key."""
    for key in sorted(before.pins.keys() | after.pins.keys()):
        old, new = before.pins.get(key), after.pins.get(key)
        if old is not None and new is not None:
            if (old.branch, old.version) == (new.branch, new.version):
                continue
            kind = after.types[key]
            with reading(kind.table):
                same_columns = _same_columns(tables, (old, before.types[key]), (new, kind))
            if same_columns:
                yield from _changes(kind, touched(tables, kind, old, new), after.commit)
            else:
                yield from _other_columns(before, after, key)
            continue
        snapshot = after if old is None else before
        kind = snapshot.types[key]
        for row_key_, row in snapshot.rows(key):
            yield RowChange.of(after.commit, kind.table, row_key_, None if old is None else row,
                               row if old is None else None)


def _other_columns(before: SnapshotTables, after: SnapshotTables, key: str) -> Iterator[RowChange[str]]:
    """The same for a table whose columns are others: every row is."""
    rows, table = dict(after.rows(key)), after.types[key].table
    for row_key_, row in before.rows(key):
        now = rows.pop(row_key_, None)
        if now != row:
            yield RowChange.of(after.commit, table, row_key_, row, now)
    for row_key_, row in rows.items():
        yield RowChange.of(after.commit, table, row_key_, None, row)


def _changes(kind: GraphType, found: Touched, commit: str) -> Iterator[RowChange[str]]:
    at_old, at_new = positions(kind.keys, found.keys, found.before), positions(kind.keys, found.keys, found.after)
    names = [field.name for field in kind.fields]
    differing = np.flatnonzero(~same(names, found.before, at_old, found.after, at_new))
    changed = [(at_old[i], at_new[i]) for i in differing]
    told: list[RowChange[str]] = []
    for old, new in changed:
        before = _row(kind, found.before, old)
        after = _row(kind, found.after, new)
        key = row_key(kind, before if before is not None else after or {})
        told.append(RowChange.of(commit, kind.table, key, before, after))
    yield from sorted(told, key=lambda change: change.key)


def _row(kind: GraphType, table: pa.Table, index: int) -> dict[str, Any] | None:
    if index < 0:
        return None
    return plain_row(kind, table.slice(index, 1).to_pylist()[0])
