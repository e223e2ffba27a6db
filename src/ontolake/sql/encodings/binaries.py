"""Columns in PostgreSQL's binary format."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.encodings.decimals import decimal_digits, numeric_digits
from ontolake.sql.encodings.texts import fixed_column, offsets_of, text_column
from ontolake.sql.keyspace.columns import numbers, storage_of
from ontolake.sql.types import Kind, Type, from_arrow, is_system
from ontolake.sql.types.moments import EVER, FIRST_DAY, FOREVER
from ontolake.sql.types.oids import arrow_numbers, type_oid

EPOCH_DAYS = 10_957
EPOCH = EPOCH_DAYS * 86_400_000_000
"""2000-01-01, from which PostgreSQL counts, in days and microseconds since 1970."""
NEVER = -(2**63)
"""-infinity in the binary format."""
_LAST_DAY = 2**31 - 1
_SPAN = np.dtype([("microseconds", ">i8"), ("days", ">i4"), ("months", ">i4")])

Block = npt.NDArray[np.uint8]


def binary_column(column: pa.Array, type: Type | None = None) -> pa.Array | Block:
    """Values in binary: a column of bytes, or a block of rows of one width, of which those that are NULL do not
    count."""
    type = type or from_arrow(column.type)
    if type is None:
        return storage_of(column).cast(pa.binary())
    if column.type != type.arrow and not isinstance(column, pa.ExtensionArray):
        column = column.cast(type.arrow)
    return _WRITE[Kind(type.kind)](type, column)


def _block(values: npt.NDArray[Any], dtype: Any) -> Block:
    return np.ascontiguousarray(values.astype(dtype)).view(np.uint8).reshape(len(values), np.dtype(dtype).itemsize)


def _integers(type: Type, column: pa.Array) -> Block:
    return _block(numbers(type, column), f">i{type.bits // 8}")


def _moments(type: Type, column: pa.Array) -> Block:
    given = numbers(type, column)
    if type.kind == Kind.TIMESTAMP_NS:
        return _block(given // 1000 - EPOCH, ">i8")
    with np.errstate(over="ignore"):
        found = given - EPOCH
    found = np.where(given == FOREVER, FOREVER, np.where(given == EVER, NEVER, found))
    return _block(found, ">i8")


def _dates(type: Type, column: pa.Array) -> Block:
    given = numbers(type, column).astype(np.int64)
    found = np.where(given == _LAST_DAY, _LAST_DAY, np.where(given == FIRST_DAY, -(2**31), given - EPOCH_DAYS))
    return _block(found, ">i4")


def _spans(type: Type, column: pa.Array) -> Block:
    given = numbers(type, column)
    found = np.empty(len(given), _SPAN)
    for name in ("months", "days", "microseconds"):
        found[name] = given[name]
    return found.view(np.uint8).reshape(len(given), _SPAN.itemsize)


def _texts(type: Type, column: pa.Array) -> pa.Array:
    return text_column(column, type).cast(pa.binary())


def _jsonb(type: Type, column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(b"\1", storage_of(column).cast(pa.binary()), b"")


def _arrays(type: Type, column: pa.Array) -> pa.Array:
    assert type.item is not None
    if not isinstance(column, pa.ListArray):
        column = column.cast(type.arrow)
    offsets = np.asarray(column.offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    offsets = offsets - first
    values = column.values.slice(first, last - first)
    items = binary_column(values, type.item)
    items = items if isinstance(items, pa.Array) else fixed_column(items, values)
    missing = np.asarray(values.is_null())
    framed = pc.binary_join_element_wise(lengths_column(items, missing), items, b"", null_handling="replace",
                                         null_replacement=b"")  # fmt: skip
    ends, data = offsets_of(framed)[offsets], framed.buffers()[2] or pa.py_buffer(b"")
    bodies = pa.Array.from_buffers(pa.binary(), len(column), [None, pa.py_buffer(ends), data])
    counts, nulls = np.diff(offsets), np.diff(np.concatenate([[0], np.cumsum(missing)])[offsets])
    oid = arrow_numbers(values.type)[0] if is_system(values.type) else type_oid(type.item)
    heads = _array_heads(counts, nulls > 0, oid)
    found = pc.binary_join_element_wise(heads, bodies, b"")
    return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.binary())) if column.null_count else found


def _array_heads(counts: npt.NDArray[Any], flags: npt.NDArray[Any], oid: int) -> pa.Array:
    """What stands before the elements of arrays: dimensions, whether there are NULLs, the type, and the bounds."""
    heads = np.empty((len(counts), 5), ">i4")
    heads[:, 0], heads[:, 1], heads[:, 2], heads[:, 3], heads[:, 4] = 1, flags, oid, counts, 1
    found = fixed_column(heads.view(np.uint8).reshape(len(counts), 20))
    if (counts > 0).all():
        return found
    return pc.if_else(pa.array(counts > 0), found, pa.scalar(struct.pack(">iii", 0, 0, oid)))


def lengths_column(column: pa.Array, missing: npt.NDArray[np.bool_]) -> pa.Array:
    """The lengths of values in four bytes, -1 for NULL, as a column of bytes."""
    lengths = np.diff(offsets_of(column)).astype(">i4")
    lengths[missing] = -1
    return fixed_column(lengths.view(np.uint8).reshape(-1, 4))


def _raw(type: Type, column: pa.Array) -> Block:
    return np.ascontiguousarray(numbers(type, column))


_WRITE: dict[Kind, Callable[[Type, Any], Any]] = {
    Kind.BOOLEAN: lambda type, column: _block(numbers(type, column), "u1"), Kind.INT64: _integers, Kind.UTF8: _texts,
    Kind.TIMESTAMP_NS: _moments, Kind.TIMESTAMP_US: _moments, Kind.DATE: _dates, Kind.INTERVAL: _spans,
    Kind.TIME: lambda type, column: _block(numbers(type, column), ">i8"),
    Kind.DOUBLE: lambda type, column: _block(numbers(type, column), ">f8"),
    Kind.REAL: lambda type, column: _block(numbers(type, column), ">f4"), Kind.UUID: _raw,
    Kind.BYTES: lambda type, column: column.cast(pa.binary()), Kind.JSON: _texts, Kind.JSONB: _jsonb,
    Kind.DECIMAL: lambda type, column: decimal_digits(column),
    Kind.NUMERIC: lambda type, column: numeric_digits(storage_of(column)), Kind.ENUM: _texts, Kind.ARRAY: _arrays,
}  # fmt: skip
