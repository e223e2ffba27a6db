"""PostgreSQL's binary format of COPY: a signature, tuples of fields with their lengths, and a mark at the end."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ontolake.sql.catalog.coercion import coerced
from ontolake.sql.catalog.records import ColumnMeta
from ontolake.sql.copy.records import BLOCK, bad_format
from ontolake.sql.copy.values import as_strings, located
from ontolake.sql.encodings.binaries import EPOCH, EPOCH_DAYS, NEVER
from ontolake.sql.encodings.decimals import read_mantissas, wrong_bytes
from ontolake.sql.encodings.single_values import read_binary
from ontolake.sql.errors import DataError
from ontolake.sql.keyspace.columns import of_numbers, stored_array
from ontolake.sql.types import TIMESTAMPS, Kind, Type
from ontolake.sql.types.moments import EVER, FIRST_DAY, FOREVER
from ontolake.sql.types.oids import builtin_name

SIGNATURE = b"PGCOPY\n\xff\r\n\0"
HEAD, END = SIGNATURE + struct.pack(">ii", 0, 0), struct.pack(">h", -1)
_CRITICAL = 0xFFFF0000
_WIDTHS = {Kind.BOOLEAN: "u1", Kind.DOUBLE: ">f8", Kind.REAL: ">f4", Kind.TIMESTAMP_US: ">i8", Kind.TIME: ">i8",
           Kind.DATE: ">i4", Kind.TIMESTAMP_NS: ">i8"}  # fmt: skip

Places = npt.NDArray[np.int64]


class TupleReader:
    """Reads tuples from a source of bytes, block by block: for each block its columns, and the numbers of its rows.

    `read` gives up to so many bytes, none at the end.
    """

    def __init__(self, read: Callable[[int], bytes], columns: Sequence[ColumnMeta], name: str) -> None:
        self._read, self._columns, self._name = read, columns, name
        self._row = 1

    def __iter__(self) -> Iterator[tuple[npt.NDArray[np.int64], list[pa.Array]]]:
        """The tuples. Raises `DataError` (22P04, 22P03)."""
        data, at = self._head()
        size, is_ended = BLOCK, False
        while not is_ended:
            block = self._read(size)
            data = data[at:] + block
            starts, ends, at, is_ended = self._fields(data, last=not block)
            size = BLOCK if len(starts) else size * 2
            count = len(starts) // max(len(self._columns), 1)
            if count:
                rows = np.arange(self._row, self._row + count)
                yield rows, self._arrays(data, rows, starts, ends)
                self._row += count

    def _head(self) -> tuple[bytes, int]:
        data = b""
        while len(data) < len(HEAD) and (more := self._read(BLOCK)):
            data += more
        if not data.startswith(SIGNATURE):
            raise bad_format(self._name, 1, "the signature of a binary file is missing")
        if len(data) < len(HEAD):
            raise bad_format(self._name, 1, "the head of a binary file is not complete")
        flags, extension = struct.unpack_from(">Ii", data, len(SIGNATURE))
        if flags & _CRITICAL:
            raise bad_format(self._name, 1, "the file has flags that are not known")
        if extension < 0:
            raise bad_format(self._name, 1, "the head of a binary file is not complete")
        while len(data) < len(HEAD) + extension and (more := self._read(BLOCK)):
            data += more
        return data, len(HEAD) + extension

    def _fields(self, data: bytes, *, last: bool) -> tuple[Places, Places, int, bool]:
        """Where the fields of complete tuples begin and end (-1 for NULL), how many bytes those take, and whether the
        mark of the end was read."""
        starts: list[int] = []
        ends: list[int] = []
        count_at, length_at = struct.Struct(">h").unpack_from, struct.Struct(">i").unpack_from
        width, at, tuples, is_ended = len(self._columns), 0, 0, False
        try:
            while not is_ended:
                (count,) = count_at(data, at)
                place, is_ended = at + 2, count == -1
                if count not in (width, -1):
                    raise bad_format(self._name, self._row + tuples, f"there are {count} fields for {width} columns")
                for _ in range(count):
                    (length,) = length_at(data, place)
                    place += 4
                    starts.append(place)
                    if length < -1:
                        raise bad_format(self._name, self._row + tuples, "a field has a length below 0")
                    place += max(length, 0)
                    ends.append(-1 if length < 0 else place)
                if place > len(data):
                    break
                at, tuples = place, tuples + (not is_ended)
        except struct.error:
            pass  # the last tuple is not complete
        if (is_ended or last) and at < len(data):
            raise bad_format(self._name, self._row + tuples,
                             "there is data behind the end" if is_ended else "the data ends within a row")
        kept = tuples * width
        return np.array(starts[:kept], np.int64), np.array(ends[:kept], np.int64), at, is_ended or last

    def _arrays(self, data: bytes, rows: Places, starts: Places, ends: Places) -> list[pa.Array]:
        width, buffer = len(self._columns), np.frombuffer(data, np.uint8)
        found = []
        for place, column in enumerate(self._columns):
            fields = BinaryFields(data, buffer, starts[place::width], ends[place::width])
            found.append(located(f"{self._name}, line", rows, column.name, fields.attempt(column)))
        return found


class BinaryFields:
    """The fields of a column: where they begin and end in the data."""

    def __init__(self, data: bytes, buffer: npt.NDArray[np.uint8], starts: Places, ends: Places) -> None:
        self._data, self._buffer, self._starts, self._ends = data, buffer, starts, ends

    def attempt(self, column: ColumnMeta) -> Callable[[int], pa.Array]:
        """Reads the first of them as values of a column. Raises `DataError`."""
        return lambda count: BinaryFields(self._data, self._buffer, self._starts[:count],
                                          self._ends[:count])._array(column)

    def _array(self, column: ColumnMeta) -> pa.Array:
        type = column.type
        if type.kind == Kind.UTF8:
            return coerced(column, as_strings(self._bytes()))
        if type.kind == Kind.BYTES:
            return self._bytes()
        dtype = f">i{type.bits // 8}" if type.kind == Kind.INT64 else _WIDTHS.get(Kind(type.kind))
        if dtype is not None and not type.scale:
            return _of_fixed(type, *self._fixed(type, dtype))
        if type.kind == Kind.DECIMAL and (decimals := self._decimals(type)) is not None:
            return decimals
        return stored_array(type, [None if end < 0 else read_binary(type, self._data[start:end])
                                   for start, end in zip(self._starts.tolist(), self._ends.tolist(), strict=True)])

    def _decimals(self, type: Type) -> pa.Array | None:
        """The values of a column of decimals; None if they have to be read one by one."""
        missing = self._ends < 0
        there = ~missing
        starts, ends = self._starts[there], self._ends[there]
        if type.precision > 18 or (ends - starts < 8).any():
            return None
        known = read_mantissas(self._buffer, starts, ends, type.scale)
        if known is None or (np.abs(known) >= 10**type.precision).any():
            return None
        values = np.zeros((len(missing), 2), "<i8")
        values[there, 0], values[there, 1] = known, known >> 63
        return of_numbers(type, values.view(np.uint8), missing)

    def _bytes(self) -> pa.Array:
        missing = self._ends < 0
        bounds = np.empty(2 * len(self._starts) + 1, np.int32)
        bounds[:-1:2], bounds[1::2] = self._starts, np.where(missing, self._starts, self._ends)
        bounds[-1] = len(self._data)
        fields = pa.Array.from_buffers(pa.binary(), 2 * len(self._starts), [
            None, pa.py_buffer(bounds), pa.py_buffer(self._data)])  # fmt: skip
        return fields.take(pa.array(np.arange(0, 2 * len(self._starts), 2), mask=missing))

    def _fixed(self, type: Type, dtype: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        width, missing = np.dtype(dtype).itemsize, self._ends < 0
        sizes = self._ends[~missing] - self._starts[~missing]
        if (sizes < width).any():
            raise DataError("insufficient data left in message", sqlstate="08P01")
        if (sizes > width).any():
            raise wrong_bytes(builtin_name(type))
        starts = np.where(missing, 0, self._starts)
        block = self._buffer[starts[:, None] + np.arange(width)]
        return np.ascontiguousarray(block).view(dtype).reshape(-1), missing


def _of_fixed(type: Type, values: npt.NDArray[Any], missing: npt.NDArray[np.bool_]) -> pa.Array:
    if type.kind in TIMESTAMPS:
        given = values.astype(np.int64)
        values = np.where(given == FOREVER, FOREVER, np.where(given == NEVER, EVER, given + EPOCH))
        values = values * 1000 if type.kind == Kind.TIMESTAMP_NS else values
    elif type.kind == Kind.DATE:
        given = values.astype(np.int64)
        least, most = -(2**31), 2**31 - 1
        values = np.where(given == most, most, np.where(given == least, FIRST_DAY, given + EPOCH_DAYS))
    return of_numbers(type, values.astype(values.dtype.newbyteorder("=")), missing)
