"""JSON and JSONB. JSON keeps its text; JSONB has one text for equal values, and an order.

The text of a JSONB value is PostgreSQL's: keys once, the shorter ones first, numbers with their scale.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

from ontolake.errors import Corruption
from ontolake.sql.errors import DataError
from ontolake.sql.types import numerics

_EMPTY, _NULL, _STRING, _NUMBER, _BOOLEAN, _ARRAY, _OBJECT = range(7)
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED = re.compile(r'["\\\x00-\x1f]')


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_exact = json.JSONDecoder(parse_float=Decimal, parse_int=Decimal, parse_constant=_refused)


def read(what: str, text: str) -> Any:
    """A JSON text as Python values, with every number a `Decimal`. Raises `DataError` with 22P02."""
    try:
        found = _exact.decode(text.strip(" \t\n\r"))
        text.encode()
    except (ValueError, RecursionError) as error:
        raise DataError(f"{_short(text)} cannot be read as {what}: {error}", sqlstate="22P02") from None
    return found


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


def text_of(value: Any, what: str = "JSON") -> str:
    """Python values as JSON text. Raises `DataError`."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_number)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{_short(str(value))} cannot be written as {what}: {error}", sqlstate="22P02") from None


def _number(value: Any) -> Any:
    if isinstance(value, Decimal) and value.is_finite():
        return _Verbatim(value)
    raise TypeError(f"a {value.__class__.__name__} has no form in JSON")


class _Verbatim(float):
    """A decimal that is written as it is: the encoder writes a float by its `__repr__`."""

    def __new__(cls, value: Decimal) -> _Verbatim:
        found = super().__new__(cls, 0)
        found.__dict__["text"] = numerics.text_of(value)
        return found

    def __repr__(self) -> str:
        return str(self.__dict__["text"])


def canonical(value: Any) -> str:
    """The text of a JSONB value, from what `read` returns. Raises `DataError`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return numerics.text_of(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(canonical, value))}]"
    return "{" + ", ".join(f"{_quoted(key)}: {canonical(each)}" for key, each in _pairs(value)) + "}"


def _pairs(value: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(value.items(), key=lambda pair: (len(raw := pair[0].encode()), raw))


def _quoted(text: str) -> str:
    if "\x00" in text:
        raise DataError("JSONB cannot hold the character \\u0000", sqlstate="22P05")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{text!r} is half of a surrogate pair, which JSONB cannot hold", sqlstate="22P02") from None
    return '"' + _ESCAPED.sub(lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}", text) + '"'


def sort_bytes(text: str) -> bytes:
    """Bytes that sort as PostgreSQL sorts JSONB, from the stored form."""
    value = _exact.decode(text)
    return bytes((_EMPTY,)) if value == [] else _sorted(value)


def _sorted(value: Any) -> bytes:
    if value is None:
        return bytes((_NULL,))
    if isinstance(value, bool):
        return bytes((_BOOLEAN, value))
    if isinstance(value, Decimal):
        return bytes((_NUMBER,)) + numerics.sort_bytes(numerics.text_of(value))
    if isinstance(value, str):
        return bytes((_STRING,)) + _string(value)
    count = len(value).to_bytes(4, "big")
    if isinstance(value, list):
        return bytes((_ARRAY,)) + count + b"".join(map(_sorted, value))
    return bytes((_OBJECT,)) + count + b"".join(_string(key) + _sorted(each) for key, each in _pairs(value))


def _string(text: str) -> bytes:
    return text.encode() + b"\x00"  # no string has that character


def of_sort_bytes(data: bytes) -> str:
    """The stored form of a JSONB value from its sort bytes. Raises `Corruption`."""
    try:
        value, end = ([], 1) if data[0] == _EMPTY else _value(data, 0)
        if end != len(data):
            raise ValueError("there are bytes behind it")
    except (IndexError, ValueError) as error:
        raise Corruption(f"{data.hex()} is not JSONB in a key: {error}") from error
    return canonical(value)


def _value(data: bytes, at: int) -> tuple[Any, int]:
    kind, at = data[at], at + 1
    if kind == _NULL:
        return None, at
    if kind == _BOOLEAN:
        return bool(data[at]), at + 1
    if kind == _NUMBER:
        number, at = numerics.read_sort_bytes(data, at)
        return Decimal(number), at
    if kind == _STRING:
        return _text(data, at)
    if kind not in (_ARRAY, _OBJECT):
        raise ValueError(f"{kind:#x} begins no value")
    count, at = int.from_bytes(data[at : at + 4], "big"), at + 4
    items: list[Any] = []
    pairs: dict[str, Any] = {}
    for _ in range(count):
        key = ""
        if kind == _OBJECT:
            key, at = _text(data, at)
        value, at = _value(data, at)
        items.append(value)
        pairs[key] = value
    return (items if kind == _ARRAY else pairs), at


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\x00", at)
    return data[at:end].decode(), end + 1
