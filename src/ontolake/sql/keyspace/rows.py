"""Row values: `version | flag | columns | bitmap length | null bitmap | (length | payload) per column`, by column id.

Column ids of a table start at 1 and are never used again, so a column's place in a row is its id less one: a dropped
column is NULL there, and a row that is older than a column ends before it. These are the rules one row at a time;
`vectors` has the same for whole columns.

Earlier versions wrote rows that end before columns that their head counts, where INSERT gave fewer values than the
table has columns. Such a row is short: what it lacks reads as NULL.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ontolake.errors import Corruption, Invalid
from ontolake.sql.types import IntervalParts, Items, Kind, Stored

VERSION = 1
TOMBSTONE = bytes((VERSION, 1))
"""What stands under a key that was deleted."""
LIVE = bytes((VERSION, 0))
"""How a row begins, and the whole of an index entry that carries no columns."""

_head = struct.Struct(">BBHH")
_length = struct.Struct(">I")
_number = struct.Struct(">Iq").unpack_from
_integer, _double, _date = struct.Struct(">Iq").pack, struct.Struct(">Id").pack, struct.Struct(">Ii").pack
_real, _span = struct.Struct(">If").pack, struct.Struct(">Iiiq").pack


def _bytes(raw: bytes) -> bytes:
    return _length.pack(len(raw) + 4) + _length.pack(len(raw)) + raw


def _items(value: Items) -> bytes:
    """An array: the kind of its elements, how many there are, and `0 | length | payload` or `1` for each."""
    parts = [b"\x01" if each is None else b"\x00" + _ENCODE[value.kind](each) for each in value.values]
    return _bytes(b"".join([bytes((value.kind,)), _length.pack(len(parts)), *parts]))


def _of_items(raw: bytes) -> Items:
    data = _octets(raw)
    kind, (count,), at = data[0], _length.unpack_from(data, 1), 5
    values: list[Stored] = []
    for _ in range(count):
        is_null, at = data[at], at + 1
        if is_null:
            values.append(None)
            continue
        (length,) = _length.unpack_from(data, at)
        at += 4 + length
        values.append(_DECODE[kind](data[at - length : at]))
    if at != len(data):
        raise ValueError("it does not end with its last element")
    return Items(kind, tuple(values))


_ENCODE: dict[int, Callable[..., bytes]] = {
    Kind.BOOLEAN: lambda value: b"\x00\x00\x00\x01\x01" if value else b"\x00\x00\x00\x01\x00",
    Kind.INT64: lambda value: _integer(8, value),
    Kind.TIMESTAMP_NS: lambda value: _integer(8, value),
    Kind.UTF8: lambda value: _bytes(value.encode()),
    Kind.BYTES: _bytes,
    Kind.DOUBLE: lambda value: _double(8, value),
    Kind.DATE: lambda value: _date(4, value),
    Kind.DECIMAL: lambda value: b"\x00\x00\x00\x10" + value.to_bytes(16, "big", signed=True),
    Kind.TIMESTAMP_US: lambda value: _integer(8, value),
    Kind.TIME: lambda value: _integer(8, value),
    Kind.REAL: lambda value: _real(4, value),
    Kind.UUID: lambda value: b"\x00\x00\x00\x10" + value,
    Kind.INTERVAL: lambda value: _span(16, *value),
    Kind.ENUM: lambda value: _double(8, value),
    Kind.NUMERIC: lambda value: _bytes(value.encode()),
    Kind.JSON: lambda value: _bytes(value.encode()),
    Kind.JSONB: lambda value: _bytes(value.encode()),
    Kind.ARRAY: _items,
}  # fmt: skip


def _octets(raw: bytes) -> bytes:
    size = int.from_bytes(raw[:4], "big")
    if size != len(raw) - 4:
        raise ValueError(f"it says {size} bytes and has {len(raw) - 4}")
    return raw[4:]


_DECODE: dict[int, Callable[[bytes], Stored]] = {
    Kind.BOOLEAN: lambda raw: struct.unpack("?", raw)[0],
    Kind.INT64: lambda raw: struct.unpack(">q", raw)[0],
    Kind.TIMESTAMP_NS: lambda raw: struct.unpack(">q", raw)[0],
    Kind.UTF8: lambda raw: _octets(raw).decode(),
    Kind.BYTES: _octets,
    Kind.DOUBLE: lambda raw: struct.unpack(">d", raw)[0],
    Kind.DATE: lambda raw: struct.unpack(">i", raw)[0],
    Kind.DECIMAL: lambda raw: int.from_bytes(struct.unpack("16s", raw)[0], "big", signed=True),
    Kind.TIMESTAMP_US: lambda raw: struct.unpack(">q", raw)[0],
    Kind.TIME: lambda raw: struct.unpack(">q", raw)[0],
    Kind.REAL: lambda raw: struct.unpack(">f", raw)[0],
    Kind.UUID: lambda raw: struct.unpack("16s", raw)[0],
    Kind.INTERVAL: lambda raw: IntervalParts(*struct.unpack(">iiq", raw)),
    Kind.ENUM: lambda raw: struct.unpack(">d", raw)[0],
    Kind.NUMERIC: lambda raw: _octets(raw).decode(),
    Kind.JSON: lambda raw: _octets(raw).decode(),
    Kind.JSONB: lambda raw: _octets(raw).decode(),
    Kind.ARRAY: _of_items,
}
_DECODE = {int(kind): decode for kind, decode in _DECODE.items()}  # members of an enum are found more slowly
_INTEGERS = {int(Kind.INT64), int(Kind.TIMESTAMP_NS), int(Kind.TIMESTAMP_US), int(Kind.TIME)}


def head(columns: int) -> bytes:
    """How a row of so many columns begins, up to its null bitmap."""
    return _head.pack(VERSION, 0, columns, (columns + 7) // 8)


def encode_row(kinds: Sequence[int], values: Sequence[Stored]) -> bytes:
    """The value of a row whose columns, by id, have these kinds and values. Raises `Invalid` unless all have one."""
    if len(values) != len(kinds):
        raise Invalid(f"a row has {len(values)} values for {len(kinds)} columns")
    width = (len(kinds) + 7) // 8
    nulls = 0
    parts = [b""]
    for number, value in enumerate(values):
        if value is None:
            nulls |= 1 << number
        else:
            parts.append(_ENCODE[kinds[number]](value))
    parts[0] = head(len(kinds)) + nulls.to_bytes(width, "little")
    return b"".join(parts)


def _opened(data: bytes) -> tuple[int, int, int]:
    """How many columns a row counts, its null bitmap, and where its payloads begin."""
    version, flag, count, width = _head.unpack_from(data)
    if version != VERSION or flag:
        raise ValueError(f"it begins with {data[:2].hex()}")
    at = 6 + width
    return count, int.from_bytes(data[6:at], "little"), at


def _damaged(data: bytes, error: Exception) -> Corruption:
    return Corruption(f"a row value of {len(data)} bytes is not one: {error}")


def decode_row(kinds: Sequence[int], data: bytes, absent: Sequence[Stored] = ()) -> list[Stored]:
    """The values of a row, by column id; `absent` has what columns read as that the row is too old for.

    Raises `Corruption` if it is not a live row.
    """
    values: list[Stored] = []
    try:
        count, nulls, at = _opened(data)
        end = len(data)
        for number, kind in enumerate(kinds):
            if number >= count:
                values.append(absent[number] if absent else None)
            elif nulls >> number & 1 or at == end:
                values.append(None)
            elif kind in _INTEGERS:
                length, value = _number(data, at)
                if length != 8:
                    raise ValueError(f"a number has {length} bytes")
                values.append(value)
                at += 12
            else:
                (length,) = _length.unpack_from(data, at)
                start, at = at + 4, at + 4 + length
                values.append(_DECODE[kind](data[start:at]))
    except (ValueError, IndexError, KeyError, struct.error) as error:
        raise _damaged(data, error) from error
    return values


class Cells(NamedTuple):
    """The payloads of a row, by column id, None for NULL, and the first column that the row is too short for."""

    payloads: list[bytes | None]
    short: int | None


def split_row(data: bytes) -> Cells:
    """The payloads of a row. Raises `Corruption` if it is not a live row."""
    short: int | None = None
    payloads: list[bytes | None] = []
    try:
        count, nulls, at = _opened(data)
        for number in range(count):
            if nulls >> number & 1:
                payloads.append(None)
            elif at == len(data):
                short = number if short is None else short
                payloads.append(None)
            else:
                (length,) = _length.unpack_from(data, at)
                at += 4 + length
                if at > len(data):
                    raise ValueError("it ends too early")
                payloads.append(data[at - length : at])
    except (ValueError, IndexError, KeyError, struct.error) as error:
        raise _damaged(data, error) from error
    return Cells(payloads, short)


def decode_payload(kind: int, raw: bytes) -> Stored:
    """The value of one column. Raises `Corruption` for a payload that is not of this kind."""
    try:
        return _DECODE[kind](raw)
    except (ValueError, IndexError, KeyError, struct.error) as error:
        raise Corruption(f"a payload of {len(raw)} bytes is not a {Kind(kind).name}: {error}") from error
