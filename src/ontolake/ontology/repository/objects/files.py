"""Parquet files of a store: written whole, read as far as needed, and kept in memory as long as there is room.

Files never change, so what was read once is good for ever. Small ones are kept whole; of big ones the row groups that
somebody looked at, so that looking up a key again reads nothing.
"""

from __future__ import annotations

import hashlib
import io
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec.structs import replace

from ontolake.model.stored import StoredType
from ontolake.ontology.arrow.physical import (
    COMMIT,
    FIRST,
    REPLACES,
    ROW,
    SUPERSEDED,
    VERSION,
    Type,
    by_key,
    encoded,
    flags,
    key_texts,
    place,
)
from ontolake.ontology.errors import StorageBackendError
from ontolake.ontology.repository.objects.access import StoreObjects
from ontolake.ontology.repository.objects.layout import DataFile
from ontolake.ontology.repository.objects.read import bloom
from ontolake.ontology.repository.strangers import stranger
from ontolake.ontology.sizes import DEFAULT, Sizes

BATCH = 8192
"""Values that Arrow hands to Parquet at a time: with fewer it takes longer."""


class Ranges(NamedTuple):
    """The first and last leading key of every row group of a file; what is not known is None."""

    low: list[Any]
    high: list[Any]


def write_file(
    info: Type, table: pa.Table, path: str, version: int, *, level: int = 0, updates: int = 0, replaces: bool = False,
    ordered: bool = False, sizes: Sizes = DEFAULT,
) -> tuple[DataFile, bytes]:  # fmt: skip
    """A table as a file sorted by key, which is to be written to `path`. `ordered` says that it is sorted already.

    Without `replaces` the column of replaced rows is left out. A table from `required` has required columns.
    """
    is_required = not table.schema.field(0).nullable
    if not replaces and REPLACES in table.column_names:
        table = table.drop_columns([REPLACES])
    if not ordered:
        table = by_key(info, table)
    if VERSION not in table.column_names:
        table = table.append_column(VERSION, pa.array(np.full(len(table), version, np.int64)))
    found = described(info, table, path, version)
    # Least and greatest values are kept for filters to look at, of keys and what is indexed always: of other text it
    # takes long, and seldom tells row groups apart. What is indexed only a class says; without one all text may be.
    any_text = isinstance(info, StoredType)
    told = [place(column) for column in (*info.keys, *info.columns) if column.type.statistics
            or (any_text and column.type.textual) or column.indexed or column in info.keys]
    sink = pa.BufferOutputStream()
    # Looking for repetitions takes longer than packing them; numbers pack better byte by byte.
    packed = {field.name: "BYTE_STREAM_SPLIT" for field in table.schema if field.type == pa.float64()}
    packed |= dict.fromkeys([name for name in (ROW, REPLACES) if name in table.column_names], "DELTA_BINARY_PACKED")
    # One value over and over is packed well enough, and a dictionary of it takes longer.
    is_constant = is_required and found.min_commit_id == found.max_commit_id
    repeated = [] if is_constant else [COMMIT] if is_required else [COMMIT, VERSION]
    # Of files that are read by row groups, filters say which of these can have a value that must be unique.
    unique = [place(column) for column in info.unique if bloom.is_filtered(column.type.physical_type())]
    filters = bloom.filter_options(unique if len(table) > sizes.small_rows else (), sizes.group_rows)
    pq.write_table(required(table) if is_required else table, sink, row_group_size=sizes.group_rows,
                   write_batch_size=BATCH, compression="lz4", write_page_checksum=True,
                   use_dictionary=[*repeated, FIRST, SUPERSEDED], write_statistics=told,
                   column_encoding=packed, store_schema=False, **filters)
    data = sink.getvalue().to_pybytes()
    return replace(found, size=len(data), content_sha256=hashlib.sha256(data).hexdigest(), updates=updates,
                   level=level, replaces=replaces), data  # fmt: skip


def described(info: Type, table: pa.Table, path: str, version: int) -> DataFile:
    """What a manifest says of a file that has these rows, in the order of their keys, but for its bytes."""
    low, high = encoded(info.keys[0], table.take(pa.array([0, len(table) - 1], pa.int64())))
    if info.keys[0].type.zoned:  # with and without a zone they sort otherwise as text
        low = high = None
    later = pc.max(table.column(SUPERSEDED)).as_py() if SUPERSEDED in table.column_names else None
    return DataFile(path, len(table), 0, version, *_bounds(table.column(COMMIT)), low=low, high=high, superseded=later,
                    deleted=int(flags(table).sum()))


def required(table: pa.Table) -> pa.Table:
    """The same, columns without missing values told to be so: Parquet need not note for each value that it is there."""
    return pa.table(table.columns, pa.schema([field.with_nullable(column.null_count > 0) for field, column
                                              in zip(table.schema, table.columns, strict=True)]))  # fmt: skip


def _optional(table: pa.Table) -> pa.Table:
    """The same as tables are elsewhere, where no column is told to be without missing values."""
    return pa.table(table.columns, pa.schema([field.with_nullable(True) for field in table.schema]))


def parquet_table(data: bytes) -> pa.Table:
    """A file that is read as a whole, its checksums with it."""
    return _decoded(data)


def _bounds(values: pa.ChunkedArray) -> tuple[int, int]:
    found = pc.min_max(values)
    return int(found["min"].as_py()), int(found["max"].as_py())


class Files:
    """The files of one store, through a cache. Safe to use from threads."""

    def __init__(self, access: StoreObjects, sizes: Sizes = DEFAULT) -> None:
        self._access = access
        self.sizes = sizes
        self._used = 0
        self._kept: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    # the cache
    def kept(self, key: Any) -> Any:
        """What was kept under a key, which begins with the path of its file; None if it is not there (any more)."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def keep(self, key: Any, value: Any, size: int) -> None:
        """Keep something that follows from a file, and takes so many bytes, as long as there is room."""
        with self._lock:
            before = self._kept.pop(key, None)
            self._used += size - (before[1] if before else 0)
            self._kept[key] = (value, size)
            while self._used > self.sizes.kept_bytes and len(self._kept) > 1:
                _, (_, freed) = self._kept.popitem(last=False)
                self._used -= freed

    def remember(self, file: DataFile, table: pa.Table) -> None:
        """Keep what was just written, so that it need not be read."""
        if file.row_count <= self.sizes.small_rows:
            self.keep(file.path, table, table.nbytes)

    # whole files
    def load(self, files: Iterable[DataFile]) -> None:
        """Read small files that will be needed, all at once."""
        wanted = [file for file in files if file.row_count <= self.sizes.small_rows and self.kept(file.path) is None]
        if wanted:
            for file, data in zip(wanted, self._access.whole([(one.path, one.size) for one in wanted]), strict=True):
                if file.content_sha256 and hashlib.sha256(data).hexdigest() != file.content_sha256:
                    raise StorageBackendError(f"the object {file.path!r} in {self._access.url} has other bytes than "
                                              "were written", hint="it is damaged; restore it from a copy")
                table = self._parsed(file, lambda data=data: _decoded(data))  # type: ignore[misc]
                self._complete(file, table.column_names)
                self.keep(file.path, table, table.nbytes)

    def table(self, file: DataFile, columns: Sequence[str] | None = None) -> pa.Table:
        """A file, or some of its columns. Columns that the file does not have are left out."""
        if file.row_count <= self.sizes.small_rows:
            found = self.kept(file.path)
            if found is None:
                self.load([file])
                found = self.kept(file.path)
            return found if columns is None else found.select(_there(columns, found.column_names))
        opened = self._opened(file)
        wanted = None if columns is None else _there(columns, opened.schema_arrow.names)
        if wanted is not None and _share(opened, wanted) < 0.6:
            return self._parsed(file, lambda: _optional(opened.read(columns=wanted)))
        data = self._access.some(file.path, 0, file.size)
        return self._parsed(file, lambda: _decoded(data, wanted, threads=True))

    def whole(self, file: DataFile) -> pa.Table:
        """A big file in one piece, kept."""
        found = self.kept((file.path, "whole"))
        if found is None:
            found = self.table(file).combine_chunks()
            self.keep((file.path, "whole"), found, found.nbytes)
        return found

    # parts of big files
    def ranges(self, info: Type, file: DataFile) -> Ranges:
        """Which keys the row groups of a file have."""
        found: Ranges | None = self.kept((file.path, "ranges"))
        if found is None:
            meta = self._opened(file).metadata
            at = self._opened(file).schema_arrow.names.index(place(info.keys[0]))
            stats = [meta.row_group(n).column(at).statistics for n in range(meta.num_row_groups)]
            known = all(one is not None and one.has_min_max for one in stats)
            scalar = info.keys[0].type
            if not known or scalar.zoned:
                found = Ranges([], [])
            elif not scalar.encodes_arrow():
                found = Ranges([one.min for one in stats], [one.max for one in stats])
            else:
                kind = scalar.physical_type()
                found = Ranges(scalar.from_arrow(pa.array([one.min for one in stats], kind)),
                               scalar.from_arrow(pa.array([one.max for one in stats], kind)))
            self.keep((file.path, "ranges"), found, 200 * len(stats))
        return found

    def groups_of(self, info: Type, file: DataFile, keys: Iterable[Any]) -> list[int]:
        """The row groups that can have one of these leading keys."""
        ranges = self.ranges(info, file)
        if not ranges.low:
            return list(range(self._opened(file).metadata.num_row_groups))
        wanted = sorted(keys)
        found: list[int] = []
        for number, (low, high) in enumerate(zip(ranges.low, ranges.high, strict=True)):
            at = bisect_left(wanted, low)
            if at < len(wanted) and wanted[at] <= high:
                found.append(number)
        return found

    def group_of(self, info: Type, file: DataFile, key: Any) -> range | list[int]:
        """The same for one key."""
        ranges = self.ranges(info, file)
        if not ranges.low:
            return self.groups_of(info, file, [key])
        return range(bisect_left(ranges.high, key), bisect_right(ranges.low, key))

    def group(self, file: DataFile, number: int) -> pa.Table:
        """One row group, kept."""
        found = self.kept((file.path, number))
        if found is None:
            whole = self.kept((file.path, "whole"))
            if whole is None:
                found = self._parsed(file, lambda: _optional(
                    self._opened(file).read_row_group(number, use_threads=False)))
            else:
                meta = self._opened(file).metadata
                before = sum(meta.row_group(n).num_rows for n in range(number))
                found = whole.slice(before, meta.row_group(number).num_rows)
            self.keep((file.path, number), found, found.nbytes)
        return found

    def groups(self, file: DataFile, numbers: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        """Several row groups, not kept."""
        opened = self._opened(file)
        wanted = None if columns is None else _there(columns, opened.schema_arrow.names)
        return self._parsed(file, lambda: _optional(opened.read_row_groups(list(numbers), columns=wanted)))

    def groups_with(self, file: DataFile, name: str, values: bloom.ValueHashes) -> list[int] | None:
        """The row groups that can have one of these values in a column; None if the file does not say."""
        filters: list[bloom.Words] | None = self.kept((file.path, "filters", name))
        if filters is None:
            places = bloom.extents(self._opened(file).metadata, name)
            if places is None:
                return None
            start, end = min(at for at, _ in places), max(at + length for at, length in places)
            data = self._access.some(file.path, start, end - start)
            parsed = [bloom.parse(data[at - start : at - start + length]) for at, length in places]
            filters = [one for one in parsed if one is not None]
            if len(filters) < len(parsed):
                return None
            self.keep((file.path, "filters", name), filters, len(data))
        return [number for number, blocks in enumerate(filters) if bloom.possible(blocks, values)]

    def statistics(self, file: DataFile) -> Any:
        """The Parquet metadata of a file."""
        return self._opened(file).metadata

    def positions(self, info: Type, file: DataFile) -> dict[Any, int]:
        """Where each key is in a small run."""
        found: dict[Any, int] | None = self.kept((file.path, "keys"))
        if found is None:
            keys = key_texts(info, self.table(file)).to_pylist()
            found = dict(zip(keys, range(len(keys)), strict=True))
            self.keep((file.path, "keys"), found, 120 * len(keys))
        return found

    def _opened(self, file: DataFile) -> pq.ParquetFile:
        found: pq.ParquetFile | None = self.kept((file.path, "open"))
        if found is None:
            source = pa.PythonFile(ObjectFile(self._access, file, self.sizes.group_rows), mode="r")
            found = self._parsed(file, lambda: pq.ParquetFile(source, pre_buffer=True,
                                                              page_checksum_verification=True))
            self._complete(file, found.schema_arrow.names)
            self.keep((file.path, "open"), found, 4096 + 400 * found.metadata.num_row_groups)
        return found

    def _complete(self, file: DataFile, names: Sequence[str]) -> None:
        """Raise `StorageBackendError` if a file lacks a column that all of ours have."""
        for name in (COMMIT, ROW):
            if name not in names:
                raise stranger(self._access.url, f"its object {file.path!r} has no column {name}")

    def _parsed(self, file: DataFile, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (pa.ArrowException, OSError) as error:
            if isinstance(error.__cause__, StorageBackendError):
                raise error.__cause__ from None
            raise StorageBackendError(f"the object {file.path!r} in {self._access.url} cannot be read as Parquet: "
                                      f"{error}", hint="it is damaged; restore it from a copy") from error


def _decoded(data: bytes, columns: Sequence[str] | None = None, *, threads: bool = False) -> pa.Table:
    with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as opened:
        return _optional(opened.read(columns=columns, use_threads=threads))


def _there(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    return [name for name in columns if name in names]


def _share(opened: pq.ParquetFile, columns: Sequence[str]) -> float:
    """Which part of a file these columns are."""
    group = opened.metadata.row_group(0)
    sizes = {group.column(n).path_in_schema: group.column(n).total_compressed_size for n in range(group.num_columns)}
    return float(sum(sizes.get(name, 0) for name in columns) / max(1, sum(sizes.values())))


class ObjectFile(io.RawIOBase):
    """A data file as Arrow reads it: by ranges. The end, where Parquet has its directory, is read ahead."""

    def __init__(self, access: StoreObjects, file: DataFile, group_rows: int) -> None:
        super().__init__()
        self._access = access
        self._file = file
        self._at = 0
        self._tail_at = max(0, file.size - (64 << 10) - 64 * (file.row_count // group_rows) * 10)
        self._tail: bytes | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._file.size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        start = min(self._at, self._file.size)
        length = self._file.size - start if size < 0 else min(size, self._file.size - start)
        self._at = start + length
        if not length:
            return b""
        if start >= self._tail_at:
            if self._tail is None:
                self._tail = self._access.some(self._file.path, self._tail_at, self._file.size - self._tail_at)
            return self._tail[start - self._tail_at : start - self._tail_at + length]
        return self._access.some(self._file.path, start, length)
