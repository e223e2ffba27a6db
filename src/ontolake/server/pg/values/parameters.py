"""Parameters as clients send them, into the values that statements take."""

from __future__ import annotations

from typing import Any

from ontolake.sql.encodings.decimals import wrong_bytes
from ontolake.sql.encodings.single_values import read_binary, text_from
from ontolake.sql.errors import SqlError, UnsupportedError
from ontolake.sql.types import INTEGER, Kind, Stored, Type
from ontolake.sql.types.oids import BUILTINS, BY_NAME, BY_OID, builtin_type

_NUMBERS = frozenset(each.oid for each in BUILTINS if each.name in ("oid", "xid") or each.name.startswith("reg"))
_NUMBER_ARRAYS = frozenset(BY_OID[oid].array_oid for oid in _NUMBERS)
"""The types of numbers of objects, and of arrays of these."""
_INT4 = BY_NAME["int4"].oid.to_bytes(4, "big")
_AS_TEXT = (Kind.INTERVAL, Kind.JSON, Kind.JSONB)


def decode_parameter(oid: int, format: int, data: bytes | None, type: Type | None = None) -> Any:
    """The value of a parameter of a type (0 if it is not known), in text (0) or binary (1). None is NULL.

    `type` is that of an enum, which has an oid of its own. Raises `DataError` for bytes that are not of that type,
    `UnsupportedError` for a type that is not known.
    """
    if data is None:
        return None
    type = type or (builtin_type(oid) if oid else None)
    if format == 0:
        text = text_from(data)
        return text if type is None else _value(type, type.store(text))
    if format != 1:
        raise SqlError(f"{format} is not a format of parameters", sqlstate="08P01", hint="0 is text, 1 is binary")
    if oid in _NUMBERS:
        if len(data) != 4:
            raise wrong_bytes("oid")
        return int.from_bytes(data, "big")
    if oid in _NUMBER_ARRAYS:  # read as integers, which have as many bytes and a sign
        numbers = Type(Kind.ARRAY, item=INTEGER)
        found = _value(numbers, read_binary(numbers, data[:8] + _INT4 + data[12:]))
        return [None if each is None else each % 2**32 for each in found]
    if type is None:
        if oid in (0, 705):
            return text_from(data)
        raise UnsupportedError(f"parameters of the type with the oid {oid} are not supported in binary")
    return _value(type, read_binary(type, data))


def _value(type: Type, stored: Stored) -> Any:
    """What statements take for a stored form: its text where Python's value says less."""
    return type.text(stored) if (type.item or type).kind in _AS_TEXT else type.show(stored)
