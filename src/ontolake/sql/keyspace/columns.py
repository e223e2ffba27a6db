"""Arrow columns of every type: from stored forms and back, and as blocks of bytes for keys and rows.

A column of a type whose payloads all have one width is numbers or raw bytes in numpy; `key_block` and `row_block` turn
them into what keys and rows hold, an n × width array, and `of_key_block` and `of_row_block` back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.keyspace.keys import SIGN
from ontolake.sql.types import TEXTS, TIMESTAMPS, WIDTHS, IntervalParts, Items, Kind, Stored, Type, from_arrow
from ontolake.sql.types.moments import DAY
from ontolake.sql.types.spans import span_of

Octets: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = "npt.NDArray[np.bool_] | None"

_RAW = (Kind.DECIMAL, Kind.UUID)
_SPAN = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
_STORED_SPAN = np.dtype([("months", ">i4"), ("days", ">i4"), ("microseconds", ">i8")])
_NATIVE = {
    Kind.BOOLEAN: "u1", Kind.INT64: "i8", Kind.TIMESTAMP_NS: "i8", Kind.TIMESTAMP_US: "i8", Kind.TIME: "i8",
    Kind.DOUBLE: "f8", Kind.REAL: "f4", Kind.DATE: "i4", Kind.ENUM: "f8",
}  # fmt: skip
NAN = {8: np.uint64(0x7FF8000000000000), 4: np.uint32(0x7FC00000)}
_FLOATS = (Kind.DOUBLE, Kind.REAL, Kind.ENUM)


def storage_of(column: pa.Array) -> pa.Array:
    """A column of an extension type as what it is kept as."""
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def of_storage(type: Type, storage: pa.Array) -> pa.Array:
    """A column of a type from what Arrow keeps it as."""
    arrow = type.arrow
    return pa.ExtensionArray.from_storage(arrow, storage) if isinstance(arrow, pa.BaseExtensionType) else storage


def row_layout(kind: int) -> tuple[Any, ...]:
    """The field `value` of a numpy record that holds a payload."""
    if kind in _RAW:
        return ("value", "u1", WIDTHS[Kind(kind)])
    return ("value", _STORED_SPAN) if kind == Kind.INTERVAL else ("value", f">{_NATIVE[Kind(kind)]}")


def numbers(type: Type, column: pa.Array) -> Numbers:
    """The numbers of a column in their stored form; what is NULL has any."""
    kind = type.kind
    if kind == Kind.BOOLEAN:
        return np.asarray(pc.fill_null(column, False).cast(pa.uint8()).to_numpy(zero_copy_only=False))
    if kind == Kind.ENUM:
        return _orders(type, column)
    column = storage_of(column)
    raw, span = column.buffers()[1], slice(column.offset, column.offset + len(column))
    if kind in _RAW:
        return np.frombuffer(raw, np.uint8).reshape(-1, 16)[span]
    if kind == Kind.INTERVAL:
        given = np.frombuffer(raw, _SPAN)[span]
        found = np.empty(len(given), _STORED_SPAN)
        found["months"], found["days"] = given["months"], given["days"]
        found["microseconds"] = given["nanoseconds"] // 1000
        return found
    if kind == Kind.INT64:
        return np.frombuffer(raw, f"i{column.type.bit_width // 8}")[span].astype(np.int64, copy=False)
    return np.frombuffer(raw, _NATIVE[Kind(kind)])[span]


def _orders(type: Type, column: pa.Array) -> Numbers:
    """The places in an enum's order that the values of a column have."""
    known = type if column.type == type.arrow else from_arrow(column.type)
    if known is None or not known.labels:
        return np.zeros(len(column))
    orders = np.array([type.order_of.get(label, 0.0) for label, _ in known.labels])
    found: Numbers = orders[np.asarray(pc.fill_null(column.storage, 0))]
    return found


def validity(missing: Mask) -> pa.Buffer | None:
    """The bitmap of Arrow for what is missing."""
    if missing is None or not missing.any():
        return None
    return pa.py_buffer(np.packbits(~missing, bitorder="little"))


def of_numbers(type: Type, values: Numbers, missing: Mask) -> pa.Array:
    """A column from numbers in their stored form."""
    kind, arrow = type.kind, type.arrow
    if kind == Kind.ENUM:
        return _labelled(type, values, missing)
    packed: Numbers
    if kind == Kind.BOOLEAN:
        packed = np.packbits(values.astype(np.bool_), bitorder="little")
    elif kind == Kind.INTERVAL:
        packed = np.empty(len(values), _SPAN)
        packed["months"], packed["days"] = values["months"], values["days"]
        packed["nanoseconds"] = values["microseconds"].astype(np.int64) * 1000
    elif kind in _RAW:
        packed = np.ascontiguousarray(values)
    else:
        width = f"i{type.bits // 8}" if kind == Kind.INT64 else _NATIVE[Kind(kind)]
        packed = np.ascontiguousarray(values.astype(width, copy=False))
    inner = arrow.storage_type if isinstance(arrow, pa.BaseExtensionType) else arrow
    return of_storage(type, pa.Array.from_buffers(inner, len(values), [validity(missing), pa.py_buffer(packed)]))


def _labelled(type: Type, values: Numbers, missing: Mask) -> pa.Array:
    """An enum's column from places in its order. A place that it does not have is NULL."""
    places = np.searchsorted(type.orders, values)
    within = np.minimum(places, max(len(type.orders) - 1, 0))
    wrong = type.orders[within] != values if len(type.orders) else np.ones(len(values), np.bool_)
    return of_storage(type, pa.array(within.astype(np.int32), mask=wrong if missing is None else wrong | missing))


def _block(values: Numbers, dtype: str) -> Octets:
    return values.astype(dtype).view(np.uint8).reshape(len(values), -1)


def key_block(type: Type, column: pa.Array) -> Octets:
    """The payloads of a column in keys: their bytes sort as the values."""
    kind, values = type.kind, numbers(type, column)
    if kind == Kind.BOOLEAN:
        return _block(values, "u1")
    if kind == Kind.UUID:
        return np.ascontiguousarray(values)
    if kind == Kind.DECIMAL:
        block = np.ascontiguousarray(values[:, ::-1])
        block[:, 0] ^= 0x80
        return block
    if kind == Kind.INTERVAL:
        more, rest = np.divmod(values["microseconds"].astype(np.int64), DAY)
        days = values["months"].astype(np.int64) * 30 + values["days"] + more
        return np.hstack([_block(days.view(np.uint64) ^ np.uint64(SIGN), ">u8"), _block(rest, ">u8")])
    if kind in _FLOATS:
        width = values.dtype.itemsize
        unsigned: Any = np.uint64 if width == 8 else np.uint32
        bits = (values + values.dtype.type(0)).view(unsigned)
        bits[np.isnan(values)] = NAN[width]
        sign = unsigned(1 << 8 * width - 1)
        return _block(np.where(bits & sign, ~bits, bits | sign), f">u{width}")
    if kind == Kind.DATE:
        return _block(values.view(np.uint32) ^ np.uint32(1 << 31), ">u4")
    return _block(values.view(np.uint64) ^ np.uint64(SIGN), ">u8")


def of_key_block(type: Type, block: Octets, missing: Mask) -> pa.Array:
    """A column from the payloads of keys."""
    kind, block = type.kind, np.ascontiguousarray(block)
    if kind == Kind.BOOLEAN:
        return of_numbers(type, block.reshape(-1), missing)
    if kind == Kind.UUID:
        return of_numbers(type, block, missing)
    if kind == Kind.DECIMAL:
        block[:, 0] ^= 0x80
        return of_numbers(type, np.ascontiguousarray(block[:, ::-1]), missing)
    if kind == Kind.DATE:
        days = block.view(">u4").reshape(-1).astype(np.uint32) ^ np.uint32(1 << 31)
        return of_numbers(type, days.view(np.int32), missing)
    if kind == Kind.INTERVAL:
        pairs = block.view(">u8").reshape(-1, 2).tolist()
        absent = [False] * len(pairs) if missing is None else missing.tolist()
        spans: list[Stored] = [None if gone else span_of((days - SIGN) * DAY + rest)
                               for (days, rest), gone in zip(pairs, absent, strict=True)]  # fmt: skip
        return stored_array(type, spans)
    if kind in _FLOATS:
        width = WIDTHS[Kind(kind)]
        unsigned: Any = np.uint64 if width == 8 else np.uint32
        bits = block.view(f">u{width}").reshape(-1).astype(unsigned)
        sign = unsigned(1 << 8 * width - 1)
        return of_numbers(type, np.where(bits & sign, bits ^ sign, ~bits).view(f"f{width}"), missing)
    bits = block.view(">u8").reshape(-1).astype(np.uint64)
    return of_numbers(type, (bits ^ np.uint64(SIGN)).view(np.int64), missing)


def row_block(type: Type, column: pa.Array) -> Octets:
    """The payloads of a column in rows."""
    values = numbers(type, column)
    if type.kind == Kind.DECIMAL:
        return np.ascontiguousarray(values[:, ::-1])
    if type.kind == Kind.UUID:
        return np.ascontiguousarray(values)
    if type.kind == Kind.INTERVAL:
        return values.view(np.uint8).reshape(len(values), -1)
    return _block(values, f">{_NATIVE[Kind(type.kind)]}")


def of_row_block(type: Type, values: Numbers, missing: Mask) -> pa.Array:
    """A column from the payloads of rows, gathered as `row_layout` has them."""
    if type.kind == Kind.DECIMAL:
        return of_numbers(type, np.ascontiguousarray(values[:, ::-1]), missing)
    if type.kind in (Kind.UUID, Kind.INTERVAL):
        return of_numbers(type, values, missing)
    return of_numbers(type, values.astype(_NATIVE[Kind(type.kind)]), missing)


# stored forms, one value at a time


def stored_array(type: Type, values: Sequence[Any]) -> pa.Array:
    """A column from stored forms."""
    kind = type.kind
    if kind == Kind.DECIMAL:
        return pa.array([None if value is None else type.load(value) for value in values], type.arrow)
    if kind == Kind.DATE:
        return pa.array(values, pa.int32()).view(type.arrow)
    if kind in TIMESTAMPS or kind == Kind.TIME:
        return pa.array(values, pa.int64()).view(type.arrow)
    if kind in TEXTS or type.padded:
        return of_storage(type, pa.array(values, pa.string()))
    if kind == Kind.UUID:
        return of_storage(type, pa.array(values, pa.binary(16)))
    if kind == Kind.INTERVAL:
        return pa.array([None if value is None else pa.MonthDayNano([value[0], value[1], value[2] * 1000])
                         for value in values], type.arrow)  # fmt: skip
    if kind == Kind.ENUM:
        missing = np.array([value is None for value in values], np.bool_)
        return _labelled(type, np.array([0.0 if value is None else value for value in values]), missing)
    if type.item is not None:
        lengths = [0 if value is None else len(value.values) for value in values]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        items = stored_array(type.item, [each for value in values if value is not None for each in value.values])
        return list_array(type, offsets, items, np.array([value is None for value in values], np.bool_))
    return pa.array(values, type.arrow)


def list_array(type: Type, offsets: npt.NDArray[np.int32], items: pa.Array, missing: Mask) -> pa.Array:
    """A column of arrays from their elements, one array behind the other."""
    return pa.Array.from_buffers(type.arrow, len(offsets) - 1, [validity(missing), pa.py_buffer(offsets)],
                                 children=[items])  # fmt: skip


def stored_list(type: Type, column: pa.Array) -> list[Stored]:
    """The stored forms of a column."""
    kind = type.kind
    if kind == Kind.DECIMAL:
        return [None if value is None else type.store(value) for value in column.to_pylist()]
    if kind == Kind.DATE:
        column = column.cast(pa.int32())
    elif kind in TIMESTAMPS or kind == Kind.TIME:
        column = column.cast(pa.int64())
    elif kind == Kind.INTERVAL:
        return [None if value is None else IntervalParts(value[0], value[1], value[2] // 1000)
                for value in column.to_pylist()]  # fmt: skip
    elif kind == Kind.ENUM:
        known = from_arrow(column.type)
        assert known is not None
        labels = [label for label, _ in known.labels]
        return [None if value is None else type.order_of[labels[value]] for value in column.storage.to_pylist()]
    elif type.item is not None:
        if isinstance(column, pa.LargeListArray | pa.FixedSizeListArray):
            column = column.cast(type.arrow)
        items, offsets = stored_list(type.item, column.values), column.offsets.to_pylist()
        kept = column.is_valid().to_pylist()
        return [Items(type.item.kind, tuple(items[offsets[n] : offsets[n + 1]])) if there else None
                for n, there in enumerate(kept)]  # fmt: skip
    values: list[Stored] = storage_of(column).to_pylist()
    return values
