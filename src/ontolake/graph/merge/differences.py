"""What differs between two versions of a table, found from what was written since they had the same rows.

Lance tells for every row when it was written last and which rows went between two versions, so the cost follows the
change and not the table. Lines of versions that forked are compared through the version at which they parted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_keys import codes, contains
from ontolake.graph.commit.records import Pin
from ontolake.graph.errors import DamagedGraphError, reading
from ontolake.graph.read.views import SnapshotTables, plain_row, row_key
from ontolake.graph.tables.datasets import GraphTables
from ontolake.graph.tables.types import GraphType
from ontolake.history import Change as RowChange
from ontolake.history.rows import positions, same

if TYPE_CHECKING:
    from lance import LanceDataset

ROW_ID = "_rowid"
_NEAR = 20_000
"""Rows that are written sooner than some are looked up by their keys."""
FEW_IDS = 20_000
"""Up to so many rows are asked for by their ids; for more, all are read."""


class Touched(NamedTuple):
    """Keys of rows that may differ between two versions, and the rows on both sides that are there."""

    keys: pa.Table
    before: pa.Table
    after: pa.Table


Forks = Mapping[str, Any]
"""The lines of versions of a table that left others, as Lance describes them; none if nobody asks for one."""


def _forks(tables: GraphTables, kind: GraphType, *pins: Pin) -> Forks:
    return dict(tables.base(kind).branches.list()) if any(pin.branch is not None for pin in pins) else {}


def _lines(forks: Forks, pin: Pin) -> list[tuple[str | None, int]]:
    """The versions that a pin goes back to: its own, then where each line left its parent."""
    found: list[tuple[str | None, int]] = [(pin.branch, pin.version)]
    branch = pin.branch
    while branch is not None:
        fork = forks[branch]
        branch = fork["parent_branch"]
        found.append((branch, fork["parent_version"]))
    return found


def _parted(forks: Forks, a: Pin, b: Pin) -> tuple[str | None, int]:
    """The newest version that two pins have both grown from."""
    if a.branch == b.branch:
        return a.branch, min(a.version, b.version)
    others = dict(_lines(forks, b))
    for branch, version in _lines(forks, a):
        if branch in others:
            return branch, min(version, others[branch])
    raise AssertionError("every line goes back to the first")


def grew_from(tables: GraphTables, kind: GraphType, base: Pin, pin: Pin) -> bool:
    """Whether a version of a table is another or one that followed it, on its line or on one that left it."""
    return _parted(_forks(tables, kind, base, pin), base, pin) == (base.branch, base.version)


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
    # Beyond where they parted, both lines may have given out a number.
    branch, version = _parted(_forks(tables, new_type, old, new), old, new)
    return physical_ids(tables, new_type, Pin(branch, version, -1, new.schema)) == now


class Delta(NamedTuple):
    """What was written between a version and one that grew from it: the rows as they are now, and as they were.

    `before` has the rows of the earlier version that are others now, or gone; both have the columns that were asked
    for.
    """

    before: pa.Table
    after: pa.Table

    def keys(self, kind: GraphType) -> pa.Table:
        """The keys of all these rows, each of them once."""
        names = list(kind.keys)
        return distinct(kind, pa.concat_tables([self.before.select(names), self.after.select(names)]))


def _delta(
    tables: GraphTables, kind: GraphType, forks: Forks, pins: tuple[Pin, Pin], names: Sequence[str]
) -> Delta:  # fmt: skip
    """What was written between a version and one that grew from it. No row is looked for by its key."""
    old, new = pins
    schema = pa.schema([pa.field(ROW_ID, pa.uint64()) if name == ROW_ID else kind.schema.field(name)
                        for name in names])  # fmt: skip
    if (old.branch, old.version) == (new.branch, new.version):
        return Delta(schema.empty_table(), schema.empty_table())
    before, after = tables.at(kind, old), tables.at(kind, new)
    _check_deletions(tables, kind, before, _lines(forks, old))
    columns = [name for name in names if name != ROW_ID]
    written = _written(before, after, old.version, columns)
    # An update of Lance's own keeps the id of a row, and when it was made; ours gives it another.
    kept = written.filter(pc.less_equal(written.column("_row_created_at_version"), old.version))
    ids = [kept.column(ROW_ID)]
    lines = _lines(forks, new)
    for branch, version in lines:
        begin = old.version if branch == old.branch else next(
            v for (line, _), (_, v) in pairwise(lines) if line == branch)
        if version > begin:
            dataset = tables.at(kind, Pin(branch, version, -1, new.schema))
            gone = dataset.delta(begin_version=begin, end_version=version).get_deleted_row_ids().read_all()
            ids.append(gone.column(ROW_ID))
        if branch == old.branch:
            break
    found = rows_by_id(before, columns, np.unique(np.concatenate([column.to_numpy() for column in ids])))
    return Delta(found.select(names).cast(schema), written.select(names).cast(schema))


def _check_deletions(
    tables: GraphTables, kind: GraphType, dataset: LanceDataset, lines: Sequence[tuple[str | None, int]]
) -> None:  # fmt: skip
    """Raises `DamagedGraphError` if a directory lacks a file of deleted rows.

    Both sides may have it, so that nothing else reads it: nobody shall merge into a table that cannot be read. A bucket
    is not asked, where each file would be a request.
    """
    if not tables.place.local:
        return
    for fragment in dataset.get_fragments():
        deletions = fragment.metadata.deletion_file
        if deletions is None:
            continue
        name = deletions.path(fragment.fragment_id)
        folders = (kind.location if line is None else f"{kind.location}/tree/{line}" for line, _ in lines)
        if not any(os.path.exists(tables.place.uri(f"{folder}/{name}")) for folder in folders):
            raise DamagedGraphError(f"{kind.table} cannot be read: there is no {name}",
                                    hint="onto verify says what is damaged, and what to do")


def rows_by_id(dataset: LanceDataset, names: Sequence[str], ids: Any) -> pa.Table:
    """The rows with these ids, those that are there, in no order, with their ids."""
    if len(ids) == 0:
        return pa.schema([*(dataset.schema.field(name) for name in names), (ROW_ID, pa.uint64())]).empty_table()
    if len(ids) <= FEW_IDS:  # taking rows by their ids costs a version's first caller a look at all of its ids
        wanted = ", ".join(map(str, ids.tolist()))
        return dataset.to_table(columns=list(names), filter=f"{ROW_ID} IN ({wanted})", with_row_id=True)
    batches = [batch.filter(pa.array(np.isin(batch.column(ROW_ID).to_numpy(), ids)))
               for batch in dataset.to_batches(columns=list(names), with_row_id=True)]  # fmt: skip
    return pa.Table.from_batches(batches, batches[0].schema) if batches else rows_by_id(dataset, names, ids[:0])


def _written(before: LanceDataset, after: LanceDataset, since: int, names: Sequence[str]) -> pa.Table:
    """Rows written since a version, with their ids: only fragments that were not there then can have them."""
    known = {fragment.fragment_id: _files(fragment) for fragment in before.get_fragments()}
    new = [fragment for fragment in after.get_fragments() if known.get(fragment.fragment_id) != _files(fragment)]
    columns = [*names, "_row_created_at_version"]
    if not new:
        fields = [after.schema.field(name) for name in names]
        own = [pa.field("_row_created_at_version", pa.uint64()), pa.field(ROW_ID, pa.uint64())]
        return pa.schema([*fields, *own]).empty_table()
    return after.scanner(columns=columns, fragments=new, with_row_id=True,
                         filter=f"_row_last_updated_at_version > {since}").to_table()  # fmt: skip


def _files(fragment: Any) -> tuple[str, ...]:
    return tuple(file.path for file in fragment.metadata.files)


def touched_keys(tables: GraphTables, kind: GraphType, before: Pin, after: Pin) -> pa.Table:
    """The keys of rows that may differ between any two versions of a table. Raises `DamagedGraphError`."""
    with reading(kind.table):
        forks = _forks(tables, kind, before, after)
        branch, version = _parted(forks, before, after)
        base = Pin(branch, version, -1, after.schema)
        deltas = [_delta(tables, kind, forks, (base, pin), kind.keys) for pin in (before, after)]
    return distinct(kind, pa.concat_tables([delta.keys(kind) for delta in deltas]))


def distinct(kind: GraphType, keys: pa.Table) -> pa.Table:
    """Keys, each of them once."""
    if keys.num_rows < 2:
        return keys
    _, first = np.unique(codes(*(keys.column(name) for name in kind.keys)), return_index=True)
    return keys if len(first) == keys.num_rows else keys.take(pa.array(np.sort(first)))


def touched(tables: GraphTables, kind: GraphType, before: Pin, after: Pin, *, ids: bool = False) -> Touched:
    """The rows that may differ between any two versions of a table with the same columns. Raises `DamagedGraphError`.

    A row that one side has not written since both had the same rows is what the other side has found there. With `ids`,
    each row has the one that it has on its side as `_rowid`, unless columns were added meanwhile.
    """
    names = [field.name for field in kind.fields]
    with reading(kind.table):
        forks = _forks(tables, kind, before, after)
        branch, version = _parted(forks, before, after)
        base = Pin(branch, version, -1, after.schema)
        if len({tuple(physical_ids(tables, kind, pin).items()) for pin in (base, before, after)}) > 1:
            keys = touched_keys(tables, kind, before, after)
            return Touched(keys, rows_at(tables, kind, before, keys), rows_at(tables, kind, after, keys))
        ours, theirs = (_delta(tables, kind, forks, (base, pin), [*names, *([ROW_ID] if ids else [])])
                        for pin in (before, after))  # fmt: skip
    our_keys, their_keys = ours.keys(kind), theirs.keys(kind)
    keys = distinct(kind, pa.concat_tables([our_keys, their_keys]))
    return Touched(keys, _completed(kind, ours.after, our_keys, theirs.before),
                   _completed(kind, theirs.after, their_keys, ours.before))


def rows_beside(
    tables: GraphTables, kind: GraphType, pins: tuple[Pin, Pin], keys: pa.Table, known: pa.Table
) -> pa.Table:  # fmt: skip
    """The rows of the second version with these keys, where it is known what the first one has.

    Where little lies between the two, only that is read. Rows have ids if the known ones do and all are found that way.
    """
    one, other = pins
    if one == other:
        return known
    with reading(kind.table):
        branch, version = _parted(_forks(tables, kind, one, other), one, other)
        base = tables.at(kind, Pin(branch, version, -1, other.schema))
        between = sum(_extent(base, tables.at(kind, pin)) for pin in pins)
    if between > _NEAR + 4 * keys.num_rows:
        return rows_at(tables, kind, other, keys)
    found = touched(tables, kind, one, other, ids=ROW_ID in known.column_names)
    rows = [found.after.filter(contains(keys, found.after, kind.keys)),
            known.filter(pc.invert(contains(found.keys, known, kind.keys)))]
    names = [name for name in known.column_names if name in found.after.column_names]
    return pa.concat_tables([table.select(names) for table in rows])


def _extent(before: LanceDataset, after: LanceDataset) -> int:
    """About how many rows were written or removed, or put elsewhere, between two versions."""
    then = {one.fragment_id: (_files(one), one.metadata.num_rows) for one in before.get_fragments()}
    now = {one.fragment_id: (_files(one), one.metadata.num_rows) for one in after.get_fragments()}
    same = {id for id, (files, _) in now.items() if id in then and then[id][0] == files}
    return (sum(then[id][1] - now[id][1] for id in same) + sum(rows for id, (_, rows) in now.items() if id not in same)
            + sum(rows for id, (_, rows) in then.items() if id not in same))


def _completed(kind: GraphType, written: pa.Table, keys: pa.Table, others: pa.Table) -> pa.Table:
    """What a side has written, and rows that only the other one has written, as they were before that."""
    if not others.num_rows:
        return written
    return pa.concat_tables([written, others.filter(pc.invert(contains(keys, others, kind.keys)))])


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
    before, after = _plain(kind, found.before, at_old[differing]), _plain(kind, found.after, at_new[differing])
    told = [RowChange.of(commit, kind.table, row_key(kind, new if old is None else old), old, new)  # type: ignore[arg-type]
            for old, new in zip(before, after, strict=True)]  # fmt: skip
    yield from sorted(told, key=lambda change: change.key)


def _plain(kind: GraphType, table: pa.Table, places: Any) -> list[dict[str, Any] | None]:
    """The rows at these places of a table; None where there is none."""
    rows = iter(table.take(pa.array(places[places >= 0])).to_pylist())
    return [plain_row(kind, next(rows)) if place >= 0 else None for place in places]
