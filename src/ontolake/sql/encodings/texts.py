"""Columns as the text that PostgreSQL writes for their values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.encodings.decimals import decimal_texts
from ontolake.sql.keyspace.columns import storage_of, stored_list
from ontolake.sql.types import TEXTS, Kind, Type, from_arrow
from ontolake.sql.types.moments import DAY, days_of

_FIRST, _LAST = days_of(1, 1, 1), days_of(9999, 12, 31)
"""Dates that Arrow writes as PostgreSQL does."""
_HEX = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], np.uint8)
_DASHES = np.array([8, 13, 18, 23])
_DIGITS = np.setdiff1d(np.arange(36), _DASHES)
_QUOTED = r'[{},"\\\s\v]|^$|^(?i:null)$'
"""Elements of arrays that stand in quotes."""


def text_column(column: pa.Array, type: Type | None = None) -> pa.Array:
    """Values as text, in UTF-8: a column of strings or of bytes."""
    type = type or from_arrow(column.type)
    if type is None:
        return storage_of(column).cast(pa.string())
    if column.type != type.arrow and not isinstance(column, pa.ExtensionArray):
        column = column.cast(type.arrow)
    write = _WRITE.get(Kind(type.kind))
    return _one_by_one(type, column) if write is None else write(type, column)


def _one_by_one(type: Type, column: pa.Array) -> pa.Array:
    text = type.text
    return pa.array([None if one is None else text(one) for one in stored_list(type, column)], pa.string())


def _corrected(type: Type, column: pa.Array, texts: pa.Array, wrong: pa.Array) -> pa.Array:
    """Texts of which some are written one by one."""
    wrong = pc.fill_null(wrong, False)
    if not pc.any(wrong).as_py():
        return texts
    return pc.replace_with_mask(texts, wrong, _one_by_one(type, column.filter(wrong)))


def _text(type: Type, column: pa.Array) -> pa.Array:
    plain = storage_of(column)
    return pc.utf8_rpad(plain, type.length) if type.padded else plain


def _stored_text(type: Type, column: pa.Array) -> pa.Array:
    return storage_of(column)


def _floats(type: Type, column: pa.Array) -> pa.Array:
    """Arrow writes the shortest digits, too, but other exponents than PostgreSQL."""
    size = pc.abs(column)
    limits = (1e-4, 1e15) if type.kind == Kind.DOUBLE else (1e-4, 1e6)
    plain = pc.and_(pc.greater_equal(size, limits[0]), pc.less(size, limits[1]))
    texts = column.cast(pa.string())
    wrong = pc.or_(pc.invert(plain), pc.match_substring(texts, "e"))
    if type.kind == Kind.DOUBLE:
        wrong = pc.fill_null(wrong, False)
        if not pc.any(wrong).as_py():
            return texts
        return pc.replace_with_mask(texts, wrong, pa.array(map(float_text, column.filter(wrong).to_pylist()),
                                                           pa.string()))  # fmt: skip
    return _corrected(type, column, texts, wrong)


def float_text(number: float) -> str:
    """A double as PostgreSQL writes it: the shortest digits that read as the number."""
    if not math.isfinite(number):
        return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    found, size = repr(number), abs(number)
    if number == 0:
        return "0"
    if 1e-4 <= size < 1e15:
        return found.removesuffix(".0")
    if "e" in found:
        return found
    digits = found.removesuffix(".0")  # repr has exponents from 1e16 on
    sign, digits = ("-", digits[1:]) if number < 0 else ("", digits)
    part = (digits[1:16] + digits[17:]).rstrip("0")
    return f"{sign}{digits[0]}{'.' + part if part else ''}e+15"


def _dates(type: Type, column: pa.Array) -> pa.Array:
    days = column.view(pa.int32())
    wrong = pc.or_(pc.less(days, _FIRST), pc.greater(days, _LAST))
    if pc.any(wrong).as_py():
        column = pc.if_else(wrong, pa.scalar(0, pa.int32()), days).view(pa.date32())
        return _corrected(type, days.view(pa.date32()), column.cast(pa.string()), wrong)
    return column.cast(pa.string())


def _timestamps(type: Type, column: pa.Array) -> pa.Array:
    moments = column.view(pa.int64())
    wrong = pc.or_(pc.less(moments, _FIRST * DAY), pc.greater(moments, _LAST * DAY))
    some = pc.any(wrong).as_py()
    plain = pc.if_else(wrong, pa.scalar(0, pa.int64()), moments) if some else moments
    texts = _without_zeros(plain.view(pa.timestamp("us")).cast(pa.string()))
    if type.zoned:
        texts = pc.binary_join_element_wise(texts, "+00", "")
    return _corrected(type, column, texts, wrong) if some else texts


def _without_zeros(texts: pa.Array) -> pa.Array:
    return pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")


def _nanoseconds(type: Type, column: pa.Array) -> pa.Array:
    texts = _without_zeros(column.view(pa.int64()).view(pa.timestamp("ns")).cast(pa.string()))
    return pc.binary_join_element_wise(texts, "+00", "") if type.zoned else texts


def _times(type: Type, column: pa.Array) -> pa.Array:
    wrong = pc.greater_equal(column.view(pa.int64()), DAY)
    if pc.any(wrong).as_py():
        return _one_by_one(type, column)
    return _without_zeros(column.cast(pa.string()))


def _uuids(type: Type, column: pa.Array) -> pa.Array:
    stored = storage_of(column)
    raw = np.frombuffer(stored.buffers()[1] or b"", np.uint8)
    raw = raw[16 * stored.offset : 16 * (stored.offset + len(stored))].reshape(-1, 16)
    shown = np.full((len(raw), 36), ord("-"), np.uint8)
    shown[:, _DIGITS] = _HEX[raw].reshape(len(raw), 32)
    return fixed_column(shown, stored)


def fixed_column(block: npt.NDArray[np.uint8], like: pa.Array | None = None) -> pa.Array:
    """A column of bytes from the rows of a block; what is NULL in `like` is so here."""
    count, width = block.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32) if width else np.zeros(count + 1, np.int32)
    found = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets),
                                                       pa.py_buffer(np.ascontiguousarray(block))])  # fmt: skip
    if like is None or not like.null_count:
        return found
    return pc.if_else(like.is_valid(), found, pa.scalar(None, pa.binary()))


def offsets_of(column: pa.Array) -> npt.NDArray[np.int32]:
    """Where the values of a column of bytes or text begin in its data, and where the last one ends."""
    if not len(column):
        return np.zeros(1, np.int32)
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def _bytes(type: Type, column: pa.Array) -> pa.Array:
    if column.offset or column.type != pa.binary():
        column = pa.concat_arrays([column.cast(pa.binary())])
    offsets = offsets_of(column)
    raw = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    if 2 * len(raw) >= 2**31:
        return _one_by_one(type, column)
    buffers = [column.buffers()[0], pa.py_buffer((offsets - offsets[0]) * 2), pa.py_buffer(_HEX[raw])]
    shown = pa.Array.from_buffers(pa.binary(), len(column), buffers, column.null_count)
    return pc.binary_join_element_wise(b"\\x", shown, b"")


def _labels(type: Type, column: pa.Array) -> pa.Array:
    known = from_arrow(column.type) or type
    return pa.array([label for label, _ in known.labels], pa.string()).take(storage_of(column))


def _arrays(type: Type, column: pa.Array) -> pa.Array:
    assert type.item is not None
    if not isinstance(column, pa.ListArray):
        column = column.cast(type.arrow)
    items = text_column(column.values, type.item)
    items = items if pa.types.is_string(items.type) else items.cast(pa.string())
    if type.item.kind != Kind.INT64:
        quoted = pc.fill_null(pc.match_substring_regex(items, _QUOTED), False)
        if pc.any(quoted).as_py():
            inner = pc.replace_substring(pc.replace_substring(items, "\\", "\\\\"), '"', '\\"')
            items = pc.if_else(quoted, pc.binary_join_element_wise('"', inner, '"', ""), items)
    lists = pa.Array.from_buffers(pa.list_(pa.string()), len(column), column.buffers()[:2], column.null_count,
                                  column.offset, [pc.fill_null(items, "NULL")])  # fmt: skip
    return pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "")


_WRITE: dict[Kind, Callable[[Type, Any], Any]] = {
    Kind.UTF8: _text, Kind.INT64: lambda type, column: column.cast(pa.string()),
    Kind.BOOLEAN: lambda type, column: pc.if_else(column, "t", "f"), Kind.DOUBLE: _floats, Kind.REAL: _floats,
    Kind.DATE: _dates, Kind.TIMESTAMP_US: _timestamps, Kind.TIMESTAMP_NS: _nanoseconds, Kind.TIME: _times,
    Kind.UUID: _uuids, Kind.BYTES: _bytes, Kind.ENUM: _labels, Kind.ARRAY: _arrays,
    Kind.DECIMAL: lambda type, column: decimal_texts(column), **dict.fromkeys((Kind(each) for each in TEXTS),
                                                                              _stored_text),
}  # fmt: skip
