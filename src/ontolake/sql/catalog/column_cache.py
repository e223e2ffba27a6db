"""Columns of whole tables that were read before, decoded, for queries that come back to them.

A table is kept in chunks of about as many rows each, by ranges of its keys. When something has been written, the keys
in the commit log tell which chunks changed; all others stay. A table as it was at a version is kept apart, and never
changes. What does not fit into memory is mapped from a file that has no name any more. What was not used for longest
goes first.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.catalog import column_files
from ontolake.sql.catalog.column_files import ERASE, SavedChunk, SavedColumns, SavedTable, TableToSave
from ontolake.sql.catalog.records import ColumnMeta, Table
from ontolake.sql.keyspace import vectors
from ontolake.sql.keyspace.batches import Batch
from ontolake.sql.keyspace.commit_log import keys_within
from ontolake.sql.keyspace.vectors import Strings, Wanted
from ontolake.sql.keyspace.versions import KeySpan
from ontolake.sql.types import TIMESTAMPS, Kind

if TYPE_CHECKING:
    from ontolake.sql.transactions import SqlSession

CHUNK = 65_536
"""Rows of a chunk, about."""
FRACTION = 4
"""Unless a size is given, a cache takes this part of the machine's memory."""
ON_DISK = 8
"""A cache takes up to this many times as much room on disk as in memory."""

_LONG = 512
"""Bytes of rows from which on no more columns are decoded than a query needs."""
_AS_LOADED = TIMESTAMPS | {Kind.BOOLEAN, Kind.INT64, Kind.UTF8, Kind.DATE, Kind.DECIMAL, Kind.DOUBLE}
"""Kinds of columns whose Arrow arrays are the same before they are stored and after they are read."""

Where = tuple[int, "int | None"]
"""A table, by its id, and the version at which it is read; None for the newest."""


def default_room() -> int:
    """The bytes that a cache takes unless told otherwise: a part of the machine's memory."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // FRACTION
    except (ValueError, OSError, AttributeError):  # not every system tells
        return 1 << 29


class _Chunk:
    """The rows of a range of keys: the columns of them that were decoded."""

    def __init__(self, span: KeySpan, saved: SavedChunk | None = None) -> None:
        self.span = span
        self.rows: int | None = None if saved is None else saved.rows
        self.arrays: dict[Wanted, pa.Array] = {}
        self.saved = saved

    def has(self, wanted: Wanted) -> bool:
        """Whether a column is there, or can be had from a file."""
        if wanted not in self.arrays and self.saved is not None:
            found = self.saved.load(wanted)
            if found is not None:
                self.arrays[wanted] = found
        return wanted in self.arrays

    def forget(self) -> None:
        self.arrays, self.saved, self.rows = {}, None, None


class _Kept:
    """What is kept of a table, and the version that it is of."""

    def __init__(self, version: int, chunks: list[_Chunk]) -> None:
        self.version, self.chunks = version, chunks

    def changed(self, keys: Iterable[bytes]) -> Iterator[_Chunk]:
        """The chunks that keys are in."""
        starts = [chunk.span.start for chunk in self.chunks]
        places = {bisect_right(starts, key) - 1 for key in keys}
        return (self.chunks[place] for place in places if place >= 0)


class _Held(NamedTuple):
    """A decoded column of a chunk in memory or, with no size, mapped from a file."""

    chunk: _Chunk
    size: int
    on_disk: int


class ColumnCache:
    """Decoded columns, by table and moment. Threads may share it."""

    def __init__(self, room: int, folder: SavedColumns | None = None) -> None:
        self.room = room
        self.size = 0
        """Bytes in memory."""
        self.on_disk = 0
        self.decoded = 0
        """How many rows were decoded so far, a column each: what a cache is to save."""
        self.is_new = False
        """Whether there may be columns that no file has."""
        self._folder = folder
        self._kept: OrderedDict[Where, _Kept] = OrderedDict()
        self._held: OrderedDict[tuple[int, Wanted], _Held] = OrderedDict()
        self._checked = 0
        """The version up to which no row was erased."""
        self._lock = threading.RLock()

    def read(self, session: SqlSession, table: Table, columns: Sequence[ColumnMeta], at: int | None) -> pa.Table:
        """All rows of some columns, now or at a version. Inside a transaction that has written nothing."""
        version = session.state()[0]
        where = (table.id, None if at == version else at)
        wanted = [column.wanted for column in columns]
        with self._lock:
            kept = self._current(session, table, where, version)
            chunks = None if kept is None else list(kept.chunks)
            if chunks is not None:
                self._use(chunks, wanted)
                found = [{each: [chunk.arrays[each]] for each in wanted if chunk.has(each)} for chunk in chunks]
        if kept is None or chunks is None:  # an older state is read than the one that is kept
            chunks, found = [_Chunk(table.span)], [{}]
        jobs = [n for n, arrays in enumerate(found) if len(arrays) < len(set(wanted))]
        reader = _Reader(session, table, where[1])
        rest = [column.wanted for column in table.columns] if kept is not None and self.size < self.room // 2 else []
        owners: list[tuple[int, Sequence[_Chunk]]] = []
        for n, pieces in reader.read([_job(chunks[n], [each for each in dict.fromkeys(wanted) if each not in found[n]],
                                           rest) for n in jobs], jobs):  # fmt: skip
            self.is_new = True
            self.decoded += sum(chunk.rows or 0 for chunk in pieces) * len(pieces[0].arrays)
            found[n] |= {each: [piece.arrays[each] for piece in pieces] for each in pieces[0].arrays}
            if kept is not None:
                owners.append((n, self._put(where, kept, version, chunks[n], pieces)))
                if self.on_disk:
                    self._exchange(owners, found)
        arrays = [pa.chunked_array([array for each in found for array in each[one]], one.type.arrow) for one in wanted]
        return pa.Table.from_arrays(arrays, names=[column.name for column in columns])

    def _exchange(
        self, owners: Iterable[tuple[int, Sequence[_Chunk]]], found: list[dict[Wanted, list[pa.Array]]]
    ) -> None:
        """Go on with what has been mapped from a file meanwhile, so that it need not stay in memory."""
        with self._lock:
            for n, chunks in owners:
                for wanted, arrays in found[n].items():
                    if len(arrays) == len(chunks):
                        found[n][wanted] = [chunk.arrays.get(wanted, array)
                                            for chunk, array in zip(chunks, arrays, strict=True)]  # fmt: skip

    def known(self, session: SqlSession, table: Table, columns: Sequence[ColumnMeta]) -> list[list[pa.Array]] | None:
        """All rows of some columns of now, by chunks, if none has to be decoded for it. Inside a transaction."""
        version = session.state()[0]
        wanted = [column.wanted for column in columns]
        with self._lock:
            if not self.room or (table.id, None) not in self._kept:
                return None
            kept = self._current(session, table, (table.id, None), version)
            if kept is None or not all(chunk.has(each) for chunk in kept.chunks for each in wanted):
                return None
            self._use(kept.chunks, wanted)
            return [[chunk.arrays[each] for each in wanted] for chunk in kept.chunks]

    def adopt(self, table: Table, version: int, keys: Strings, columns: Sequence[pa.Array]) -> None:
        """Keep the columns of rows that a commit has loaded into an empty table, in the order of their keys."""
        kept = [(column.wanted, array) for column, array in zip(table.columns, columns, strict=True)
                if column.type.kind in _AS_LOADED and array.type == column.type.arrow]  # fmt: skip
        if sum(array.nbytes for _, array in kept) > self.room // 2:
            return
        begins = range(0, len(keys), CHUNK)
        edges = [table.span.start, *(keys.at(begin) for begin in begins[1:]), table.span.end]
        chunks = []
        for begin, span in zip(begins, map(KeySpan, edges, edges[1:]), strict=False):
            chunk = _Chunk(span)
            chunk.rows = min(CHUNK, len(keys) - begin)
            chunk.arrays = {wanted: column_files.copied(array.slice(begin, CHUNK)) for wanted, array in kept}
            chunks.append(chunk)
        with self._lock:
            where = (table.id, None)
            before = self._kept.get(where)
            if before is not None and before.version >= version:
                return
            self._release([] if before is None else before.chunks)
            self._kept[where] = _Kept(version, chunks)
            self._checked = self._checked or version
            self.is_new = True
            for chunk in chunks:
                for wanted, array in chunk.arrays.items():
                    self._hold(chunk, wanted, array.nbytes, 0)
            if self.size > self.room:
                self._spill()

    def _current(self, session: SqlSession, table: Table, where: Where, version: int) -> _Kept | None:
        """What is kept of a table, without what has changed since; None if something newer is kept."""
        if version > self._checked:
            if self._checked and any(row[2] == ERASE for row in session.log.page(
                    self._checked, version, version - self._checked)):
                self.clear()
            self._checked = version
        kept = self._kept.get(where)
        if kept is not None:
            if where[1] is None and version < kept.version:
                return None
            if where[1] is None and version > kept.version:
                self._catch_up(session, table, kept, version)
            self._kept.move_to_end(where)
        if kept is None and where[1] is None and (saved := self._saved(session, table)) is not None:
            kept = self._kept[where] = _Kept(saved.version, [_Chunk(each.span, each) for each in saved.chunks])
            self._catch_up(session, table, kept, version)
        if kept is None or _is_sparse(kept.chunks):
            if kept is not None:
                self._release(kept.chunks)
            spans = list(session.keyspace.steps(table.span, where[1], CHUNK))
            kept = self._kept[where] = _Kept(version, [_Chunk(span) for span in spans or [table.span]])
        return kept

    def _saved(self, session: SqlSession, table: Table) -> SavedTable | None:
        return None if self._folder is None else self._folder.load(session, table.id)

    def _catch_up(self, session: SqlSession, table: Table, kept: _Kept, version: int) -> None:
        """Drop the chunks that the commits since have changed; all, if gc may have removed such commits."""
        if kept.version < session.state()[2]:
            self._release(kept.chunks)
            for chunk in kept.chunks:
                chunk.forget()
            kept.version = version
            return
        for _, blob in session.log.written(kept.version, version):
            for chunk in kept.changed(keys_within(blob, *table.span)):
                self._release([chunk])
                chunk.forget()
        kept.version = version

    def _put(
        self, where: Where, kept: _Kept, version: int, chunk: _Chunk, pieces: Sequence[_Chunk]
    ) -> Sequence[_Chunk]:  # fmt: skip
        """Keep what was read of a chunk, which may have become several, unless somebody has written meanwhile.

        Returns the chunks that have it now.
        """
        with self._lock:
            if self._kept.get(where) is not kept or kept.version != version or chunk not in kept.chunks:
                return pieces
            if not chunk.arrays and chunk.saved is None and len(pieces) > 1:
                place = kept.chunks.index(chunk)
                kept.chunks[place : place + 1] = pieces
            elif len(pieces) == 1:
                chunk.rows = pieces[0].rows
                chunk.arrays |= pieces[0].arrays
                pieces = [chunk]
            else:
                return pieces
            for piece in pieces:
                for wanted, array in piece.arrays.items():
                    self._hold(piece, wanted, array.nbytes, 0)
            if self.size > self.room:
                self._spill()
            return pieces

    # what is in memory, and what on disk

    def _hold(self, chunk: _Chunk, wanted: Wanted, size: int, on_disk: int) -> None:
        before = self._held.pop((id(chunk), wanted), None)
        if before is not None and before.on_disk:
            size, on_disk = before.size, before.on_disk
        elif before is not None:
            self.size -= before.size
            self.on_disk -= before.on_disk
        if before is None or not before.on_disk:
            self.size += size
            self.on_disk += on_disk
        self._held[id(chunk), wanted] = _Held(chunk, size, on_disk)

    def _use(self, chunks: Iterable[_Chunk], wanted: Sequence[Wanted]) -> None:
        for chunk in chunks:
            for each in wanted:
                if (id(chunk), each) in self._held:
                    self._held.move_to_end((id(chunk), each))

    def _release(self, chunks: Iterable[_Chunk]) -> None:
        for chunk in chunks:
            for wanted in chunk.arrays:
                held = self._held.pop((id(chunk), wanted), None)
                if held is not None:
                    self.size -= held.size
                    self.on_disk -= held.on_disk

    def _spill(self) -> None:
        """Move what was not used for longest to a file, until a quarter of the room is free."""
        victims: list[tuple[_Chunk, Wanted, int]] = []
        for (_, wanted), held in list(self._held.items()):
            if self.size <= self.room * 3 // 4:
                break
            if held.size:
                victims.append((held.chunk, wanted, held.size))
                self._held.pop((id(held.chunk), wanted))
                self.size -= held.size
        mapped = column_files.mapped([chunk.arrays[wanted] for chunk, wanted, _ in victims],
                                     None if self._folder is None else self._folder.path)  # fmt: skip
        for n, (chunk, wanted, size) in enumerate(victims):
            if mapped is None:
                del chunk.arrays[wanted]
            else:
                chunk.arrays[wanted] = mapped[n]
                self._held[id(chunk), wanted] = _Held(chunk, 0, size)
                self.on_disk += size
        for (_, wanted), held in list(self._held.items()):
            if self.on_disk <= self.room * ON_DISK:
                break
            if held.on_disk:
                self._held.pop((id(held.chunk), wanted))
                self.on_disk -= held.on_disk
                del held.chunk.arrays[wanted]

    def clear(self) -> None:
        """Forget all, and remove what is kept in files."""
        with self._lock:
            self._kept.clear()
            self._held.clear()
            self.size = self.on_disk = 0
            if self._folder is not None:
                self._folder.drop()

    def save(self, session: SqlSession) -> None:
        """Keep the columns of big tables of now in files, for whoever opens the database next."""
        with self._lock:
            if self._folder is None or session.readonly or not session.is_native or not self.is_new:
                return
            tables = [TableToSave(table, kept.version, [(chunk.span, chunk.rows, chunk.arrays, chunk.saved)
                                                        for chunk in kept.chunks])
                      for (table, at), kept in self._kept.items() if at is None and len(kept.chunks) > 1]  # fmt: skip
            self._folder.save(session, tables)


def _is_sparse(chunks: Sequence[_Chunk]) -> bool:
    """Whether so many rows were deleted that there are many small chunks."""
    known = [chunk.rows for chunk in chunks if chunk.rows is not None]
    return len(known) > 16 and len(known) == len(chunks) and sum(known) < len(known) * CHUNK // 8


class _Job(NamedTuple):
    """Columns of a chunk to be read, and others that are worth decoding with them unless rows are long."""

    chunk: _Chunk
    wanted: list[Wanted]
    more: list[Wanted]


def _job(chunk: _Chunk, wanted: list[Wanted], rest: Sequence[Wanted]) -> _Job:
    """What is to be read of a chunk. One that is read for the second time is read whole, lest there is a third."""
    known = {*wanted, *chunk.arrays}
    return _Job(chunk, wanted, [each for each in rest if each not in known] if chunk.arrays else [])


class _Reader:
    """Reads and decodes chunks; the next one is fetched while one is decoded."""

    def __init__(self, session: SqlSession, table: Table, at: int | None) -> None:
        self._session, self._at = session, at
        self._types = [column.type for column in table.all_columns]

    def read(
        self, jobs: Sequence[_Job], numbers: Sequence[int]
    ) -> Iterator[tuple[int, list[_Chunk]]]:
        """The number of each job, and the chunk with its columns: several if it has become too large."""
        if not jobs:
            return
        with ThreadPoolExecutor(1, "sql-columns") as pool:
            waiting: Future[list[tuple[KeySpan, list[Batch]]]] | None = None
            for place, job in enumerate(jobs):
                fetched = self._fetch(job.chunk) if waiting is None else waiting.result()
                waiting = pool.submit(self._fetch, jobs[place + 1].chunk) if place + 1 < len(jobs) else None
                yield numbers[place], [self._decoded(span, batches, job) for span, batches in fetched]

    def _fetch(self, chunk: _Chunk) -> list[tuple[KeySpan, list[Batch]]]:
        """The stored rows of a chunk; with their keys where they come in another order than that of keys."""
        keyspace, spans = self._session.keyspace, [chunk.span]
        unordered = self._at is not None or not keyspace.is_ordered()
        if chunk.rows is None:
            spans = list(keyspace.steps(chunk.span, self._at, CHUNK)) or [chunk.span]
            if spans[-1].end < chunk.span.end:
                spans.append(KeySpan(spans[-1].end, chunk.span.end))
        return [(span, list(keyspace.scan(span, self._at, keys=unordered))) for span in spans]

    def _decoded(self, span: KeySpan, batches: Sequence[Batch], job: _Job) -> _Chunk:
        found = _Chunk(span)
        found.rows = sum(len(batch.values) for batch in batches)
        wanted = job.wanted
        if sum(int(batch.values.offsets[-1]) for batch in batches) < found.rows * _LONG:
            wanted = [*wanted, *job.more]
        decoded = [vectors.decode_rows(batch.values, wanted, self._types) for batch in batches]
        order = _key_order(batches)
        for n, each in enumerate(wanted):
            parts = [arrays[n] for arrays in decoded]
            array = parts[0] if len(parts) == 1 else pa.concat_arrays(parts) if parts else pa.nulls(0, each.type.arrow)
            found.arrays[each] = array if order is None else array.take(order)
        return found


def _key_order(batches: Sequence[Batch]) -> pa.Array | None:
    """The places of rows in the order of their keys; None if they come in that order.

    Where the rows of a past version or of a branch are stored depends on what was written since. Columns of a chunk
    that are read at different times fit together only if both have the order of keys.
    """
    keys = [vectors.as_arrow(batch.keys) for batch in batches if batch.keys is not None]
    return pc.array_sort_indices(pa.concat_arrays(keys)) if keys else None
