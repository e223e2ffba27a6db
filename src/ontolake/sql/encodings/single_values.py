"""One stored form in PostgreSQL's formats: written as text and in binary, and read from binary."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ontolake.sql.encodings.binaries import EPOCH, EPOCH_DAYS, NEVER
from ontolake.sql.encodings.decimals import digits_of, text_of_digits, wrong_bytes
from ontolake.sql.encodings.texts import float_text
from ontolake.sql.errors import DataError, UnsupportedError
from ontolake.sql.types import TIMESTAMP, TIMESTAMPTZ, IntervalParts, Items, Kind, Stored, Type
from ontolake.sql.types.moments import EVER, FIRST_DAY, FOREVER
from ontolake.sql.types.oids import BY_OID, builtin_name, builtin_type, type_oid

_LAST_DAY = 2**31 - 1
_DATE, _MOMENT, _DOUBLE, _REAL = struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">d"), struct.Struct(">f")
_INTEGERS = {16: struct.Struct(">h"), 32: struct.Struct(">i"), 64: struct.Struct(">q")}
_SPAN = struct.Struct(">qii")

Writer = Callable[[Any], bytes]


def text_writer(type: Type) -> Writer:
    """Writes a stored form that is not NULL as text."""
    if type.kind == Kind.UTF8 and not type.padded:
        return str.encode
    if type.kind == Kind.INT64:
        return lambda stored: b"%d" % stored
    if type.kind == Kind.BOOLEAN:
        return lambda stored: b"t" if stored else b"f"
    if type.kind == Kind.DOUBLE:
        return lambda stored: float_text(stored).encode()
    if type.kind == Kind.TIMESTAMP_NS:
        text = (TIMESTAMPTZ if type.zoned else TIMESTAMP).text
        return lambda stored: text(stored // 1000).encode()
    text = type.text
    return lambda stored: text(stored).encode()


def binary_writer(type: Type) -> Writer:
    """Writes a stored form that is not NULL in binary."""
    kind = Kind(type.kind)
    if kind == Kind.INT64:
        return _INTEGERS[type.bits].pack
    if kind == Kind.DECIMAL:
        text = type.text
        return lambda stored: digits_of(text(stored))
    if type.item is not None:
        return _array_writer(type.item)
    return _WRITE.get(kind) or text_writer(type)


def _moment(stored: int) -> bytes:
    if stored in (FOREVER, EVER):
        return _MOMENT.pack(FOREVER if stored > 0 else NEVER)
    return _MOMENT.pack(stored - EPOCH)


def _date(stored: int) -> bytes:
    if stored in (_LAST_DAY, FIRST_DAY):
        return _DATE.pack(_LAST_DAY if stored > 0 else -(2**31))
    return _DATE.pack(stored - EPOCH_DAYS)


def _array_writer(item: Type) -> Writer:
    write, oid = binary_writer(item), type_oid(item)

    def array(stored: Items) -> bytes:
        values = stored.values
        if not values:
            return struct.pack(">iii", 0, 0, oid)
        parts = [struct.pack(">iiiii", 1, any(each is None for each in values), oid, len(values), 1)]
        for each in values:
            data = b"" if each is None else write(each)
            parts.append(_DATE.pack(-1 if each is None else len(data)) + data)
        return b"".join(parts)

    return array


_WRITE: dict[Kind, Writer] = {
    Kind.BOOLEAN: lambda stored: b"\1" if stored else b"\0", Kind.DOUBLE: _DOUBLE.pack, Kind.REAL: _REAL.pack,
    Kind.TIMESTAMP_US: _moment, Kind.TIMESTAMP_NS: lambda stored: _moment(stored // 1000), Kind.DATE: _date,
    Kind.TIME: _MOMENT.pack, Kind.INTERVAL: lambda stored: _SPAN.pack(stored[2], stored[1], stored[0]),
    Kind.UUID: lambda stored: stored, Kind.BYTES: lambda stored: stored, Kind.NUMERIC: digits_of,
    Kind.JSONB: lambda stored: b"\1" + stored.encode(),
}  # fmt: skip


# reading


def read_binary(type: Type, data: bytes) -> Stored:
    """The stored form of a value in binary. Raises `DataError` (22P03) for bytes that no value of the type has."""
    try:
        return _read(type, data)
    except struct.error:
        raise wrong_bytes(builtin_name(type) if type.kind != Kind.ARRAY else "array") from None


def _read(type: Type, data: bytes) -> Stored:
    kind = Kind(type.kind)
    if kind == Kind.INT64:
        return int(_INTEGERS[type.bits].unpack(data)[0])
    if kind == Kind.NUMERIC:
        return text_of_digits(data)
    if kind == Kind.DECIMAL:
        return type.store(text_of_digits(data))
    if type.item is not None:
        return _read_array(type.item, data)
    if kind in _READ:
        return type.store(found) if isinstance(found := _READ[kind](data), str) else found
    return type.store(text_from(data))


def text_from(data: bytes) -> str:
    """Bytes as text. Raises `DataError` (22021)."""
    try:
        found = data.decode()
    except UnicodeDecodeError:
        raise DataError("there are bytes that are not UTF-8", sqlstate="22021") from None
    if "\0" in found:
        raise DataError("text cannot have the character 0", sqlstate="22021")
    return found


def _read_boolean(data: bytes) -> bool:
    if len(data) != 1:
        raise wrong_bytes("boolean")
    return data != b"\0"


def _read_moment(data: bytes) -> int:
    found = int(_MOMENT.unpack(data)[0])
    if found in (FOREVER, NEVER):
        return FOREVER if found > 0 else EVER
    return found + EPOCH


def _read_date(data: bytes) -> int:
    found = int(_DATE.unpack(data)[0])
    if found in (_LAST_DAY, -(2**31)):
        return _LAST_DAY if found > 0 else FIRST_DAY
    return found + EPOCH_DAYS


def _read_span(data: bytes) -> IntervalParts:
    microseconds, days, months = _SPAN.unpack(data)
    return IntervalParts(months, days, microseconds)


def _read_uuid(data: bytes) -> bytes:
    if len(data) != 16:
        raise wrong_bytes("uuid")
    return bytes(data)


def _read_jsonb(data: bytes) -> str:
    if data[:1] != b"\1":
        raise DataError(f"unsupported jsonb version number {data[0] if data else -1}", sqlstate="22P03")
    return text_from(data[1:])


def _read_array(item: Type, data: bytes) -> Items:
    dimensions, _, oid = struct.unpack_from(">iii", data)
    if dimensions == 0:
        return Items(item.kind, ())
    if dimensions != 1:
        raise UnsupportedError("arrays of more than one dimension are not supported", hint="use JSONB")
    if (known := BY_OID.get(oid)) is not None and item.kind != Kind.ENUM:
        item = item if builtin_type(oid) is None or builtin_name(item) in (known.name, "varchar", "bpchar") else \
            builtin_type(oid) or item  # fmt: skip
    count = struct.unpack_from(">i", data, 12)[0]
    at, values = 20, list[Stored]()
    for _ in range(count):
        length = struct.unpack_from(">i", data, at)[0]
        at += 4
        if length < 0:
            values.append(None)
            continue
        if at + length > len(data):
            raise wrong_bytes("array")
        values.append(read_binary(item, data[at : at + length]))
        at += length
    if at != len(data):
        raise wrong_bytes("array")
    return Items(item.kind, tuple(values))


_READ: dict[Kind, Callable[[bytes], Any]] = {
    Kind.BOOLEAN: _read_boolean, Kind.DOUBLE: lambda data: _DOUBLE.unpack(data)[0] + 0.0,
    Kind.REAL: lambda data: _REAL.unpack(data)[0] + 0.0, Kind.TIMESTAMP_US: _read_moment,
    Kind.TIMESTAMP_NS: lambda data: _read_moment(data) * 1000, Kind.DATE: _read_date,
    Kind.TIME: lambda data: _MOMENT.unpack(data)[0], Kind.INTERVAL: _read_span, Kind.UUID: _read_uuid,
    Kind.BYTES: bytes, Kind.JSONB: _read_jsonb,
}  # fmt: skip
"""How the bytes of a value are read; what is text still has to be stored."""
