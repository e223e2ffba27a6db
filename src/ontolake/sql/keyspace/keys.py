"""Keys: bytes that sort as SQL sorts what they stand for.

`20 | table | primary key` is a row, `30 | table | index | indexed values | primary key` an index entry; the catalog has
`01` to `0E`, and `0F` is where sequences stand. A tuple is its elements one after the other, each
`type tag | is null | payload`; NULL sorts last. These are the rules one value at a time; `vectors` has the same for
whole columns.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from ontolake.errors import Corruption
from ontolake.sql.types import WIDTHS, Items, Kind, Stored, Type, documents, moments, numerics, spans

DATABASE, SCHEMA, TABLE, COLUMN, INDEX = 0x01, 0x02, 0x03, 0x04, 0x05
DATABASE_NAME, SCHEMA_NAME, TABLE_NAME = 0x06, 0x07, 0x08
SEQUENCE, VIEW, USER_TYPE, COMMENT, FOREIGN_KEY, NAME = 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x0E
SEQUENCE_STATE = 0x0F
ROW, ENTRY = 0x20, 0x30

META_START = b"\x01"
"""The least key of the catalog."""
FIRST_ADDED = 0x09
"""The least prefix that came with version 5 of the layout."""

ESCAPED, END = b"\x00\xff", b"\x00\x01"
SIGN = 1 << 63
_NAN = 0x7FF8000000000000
_INVERTED = bytes(255 - byte for byte in range(256))

_u64 = struct.Struct(">Q").pack
_u32 = struct.Struct(">I").pack
_f64, _bits = struct.Struct(">d"), struct.Struct(">Q")
_f32, _bits32 = struct.Struct(">f"), struct.Struct(">I")
_MORE, _LAST = 1, 0
"""What stands before each element of an array, and behind the last one."""


def meta_key(family: int, *ids: int) -> bytes:
    """The key of a catalog record."""
    return bytes((family,)) + b"".join(map(_u64, ids))


def name_key(family: int, *ids: int, name: str) -> bytes:
    """The key under which a name leads to an id."""
    encoded = name.encode()
    return meta_key(family, *ids) + len(encoded).to_bytes(2, "big") + encoded


def row_prefix(table: int) -> bytes:
    return bytes((ROW,)) + _u64(table)


def entry_prefix(table: int, index: int) -> bytes:
    return bytes((ENTRY,)) + _u64(table) + _u64(index)


def after(prefix: bytes) -> bytes:
    """The least key above all that start with `prefix`."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes((trimmed[-1] + 1,)) if trimmed else b""


def _octets(raw: bytes) -> bytes:
    return raw.replace(b"\x00", ESCAPED) + END


def _double(value: float) -> bytes:
    bits = _NAN if math.isnan(value) else _bits.unpack(_f64.pack(value + 0.0))[0]
    return _u64(bits ^ (2**64 - 1) if bits & SIGN else bits | SIGN)


def _real(value: float) -> bytes:
    bits = 0x7FC00000 if math.isnan(value) else _bits32.unpack(_f32.pack(value + 0.0))[0]
    return _u32(bits ^ 0xFFFFFFFF if bits >> 31 else bits | 1 << 31)


def _span(days: int, rest: int) -> bytes:
    return _u64(days + SIGN) + _u64(rest)


def _items(value: Items) -> bytes:
    """The sort bytes of an array: by its elements, then the shorter one first."""
    parts = [bytes((_MORE,)) + element(value.kind, each) for each in value.values]
    return bytes((value.kind,)) + b"".join(parts) + bytes((_LAST,))


def _of_items(data: bytes) -> Items:
    values: list[Stored] = []
    kind, at = data[0], 1
    while data[at] != _LAST:
        value, at = _decode_element(kind, data, at + 1, False)
        values.append(value)
    return Items(kind, tuple(values))


_ELEMENTS: dict[int, Callable[[Any], bytes]] = {
    Kind.INT64: lambda value: b"\x02\x00" + _u64(value + SIGN),
    Kind.TIMESTAMP_NS: lambda value: b"\x04\x00" + _u64(value + SIGN),
    Kind.UTF8: lambda value: b"\x03\x00" + _octets(value.encode()),
    Kind.BYTES: lambda value: b"\x08\x00" + _octets(value),
    Kind.DOUBLE: lambda value: b"\x06\x00" + _double(value),
    Kind.BOOLEAN: lambda value: b"\x01\x00\x01" if value else b"\x01\x00\x00",
    Kind.DATE: lambda value: b"\x07\x00" + _u32(value + (1 << 31)),
    Kind.DECIMAL: lambda value: b"\x05\x00" + (value + (1 << 127)).to_bytes(16, "big"),
    Kind.TIMESTAMP_US: lambda value: b"\x09\x00" + _u64(value + SIGN),
    Kind.REAL: lambda value: b"\x0a\x00" + _real(value),
    Kind.NUMERIC: lambda value: b"\x0b\x00" + _octets(numerics.sort_bytes(value)),
    Kind.UUID: lambda value: b"\x0c\x00" + value,
    Kind.TIME: lambda value: b"\x0d\x00" + _u64(value + SIGN),
    Kind.INTERVAL: lambda value: b"\x0e\x00" + _span(*divmod(spans.span_order(value), moments.DAY)),
    Kind.JSONB: lambda value: b"\x0f\x00" + _octets(documents.sort_bytes(value)),
    Kind.ARRAY: lambda value: b"\x10\x00" + _octets(_items(value)),
    Kind.ENUM: lambda value: b"\x11\x00" + _double(value),
    Kind.JSON: lambda value: b"\x12\x00" + _octets(value.encode()),
}
"""How a value that is not NULL becomes an element of a tuple, by its kind."""

SORT_BYTES: dict[int, tuple[Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    Kind.NUMERIC: (numerics.sort_bytes, numerics.of_sort_bytes), Kind.ARRAY: (_items, _of_items),
    Kind.JSONB: (documents.sort_bytes, documents.of_sort_bytes),
    Kind.UTF8: (str.encode, bytes.decode), Kind.JSON: (str.encode, bytes.decode),
}  # fmt: skip
"""How a value becomes the bytes that are escaped and ended in a key, and back; bytes are such themselves."""


def element(kind: int, value: Stored, desc: bool = False) -> bytes:
    """One element of a tuple. With `desc` it sorts the other way round, NULL first."""
    encoded = bytes((kind, 1)) if value is None else _ELEMENTS[kind](value)
    return encoded.translate(_INVERTED) if desc else encoded


def encode_tuple(types: Sequence[Type], values: Sequence[Stored], desc: Sequence[bool] = ()) -> bytes:
    """A tuple of values. Those given may be fewer than the types: a prefix of the tuple."""
    if None in values or True in desc:
        flags = desc or (False,) * len(values)
        return b"".join([element(type.kind, value, flag)
                         for type, value, flag in zip(types, values, flags, strict=False)])  # fmt: skip
    return b"".join([_ELEMENTS[type.kind](value) for type, value in zip(types, values, strict=False)])


def decode_tuple(
    types: Sequence[Type], data: bytes, at: int = 0, desc: Sequence[bool] = ()
) -> tuple[list[Stored], int]:
    """The values of a tuple that starts at `at`, and where it ends. Raises `Corruption`."""
    values: list[Stored] = []
    try:
        for number, type in enumerate(types):
            value, at = _decode_element(type.kind, data, at, bool(desc) and desc[number])
            values.append(value)
    except (IndexError, ValueError, struct.error) as error:
        raise Corruption(f"the key {data.hex()} is not one: {error}") from error
    return values, at


def _decode_element(kind: int, data: bytes, at: int, desc: bool) -> tuple[Stored, int]:
    flip = 0xFF if desc else 0
    if data[at] ^ flip != kind:
        raise ValueError(f"tag {data[at] ^ flip:#x} where {kind:#x} belongs, at byte {at}")
    if data[at + 1] ^ flip:
        return None, at + 2
    at += 2
    width = WIDTHS.get(Kind(kind))
    end = at + width if width else data.index(END.translate(_INVERTED) if desc else END, at)
    raw = data[at:end].translate(_INVERTED) if desc else data[at:end]
    if width is None:
        raw = raw.replace(ESCAPED, b"\x00")
        return (SORT_BYTES[kind][1](raw) if kind in SORT_BYTES else raw), end + 2
    if len(raw) != width:
        raise ValueError("it ends too early")
    number = int.from_bytes(raw, "big")
    if kind == Kind.BOOLEAN:
        return bool(number), end
    if kind == Kind.UUID:
        return raw, end
    if kind == Kind.REAL:
        return _f32.unpack(_u32(number ^ 1 << 31 if number >> 31 else number ^ 0xFFFFFFFF))[0], end
    if kind == Kind.INTERVAL:
        return spans.span_of(((number >> 64) - SIGN) * moments.DAY + (number & (1 << 64) - 1)), end
    if kind in (Kind.DOUBLE, Kind.ENUM):
        return _f64.unpack(_u64(number ^ SIGN if number & SIGN else number ^ (2**64 - 1)))[0], end
    return number - (1 << 8 * width - 1), end
