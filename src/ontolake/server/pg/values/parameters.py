"""Parameters as clients send them, into the values that statements take."""

from __future__ import annotations

from typing import Any

from ontolake.sql.errors import DataError, UnsupportedError
from ontolake.sql.types.oids import builtin_type


def decode_parameter(oid: int, format: int, data: bytes | None) -> Any:
    """The value of a parameter of a type (0 if it is not known), in text (0) or binary (1). None is NULL.

    Raises `DataError` for bytes that are not of that type, `UnsupportedError` for a type that is not known.
    """
    if data is None:
        return None
    if format:
        raise UnsupportedError("binary parameters are not supported yet")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise DataError("there are bytes that are not UTF-8", sqlstate="22021") from None
    type = builtin_type(oid) if oid else None
    return text if type is None else type.load(type.store(text))
