"""The one JSON codec, applied where documents meet the database and nowhere else.

What it stores comes back equal: integers stay exact and floats the same, and what JSON cannot say (NaN, dates, keys
that are not text, …) is refused, never converted.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

import msgspec

from ontolake.history import pointers

Json = Any
"""None, bool, int, float, str, a list of these or a dict from str to these."""

Document = dict[str, Json]

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1
"""Beyond these, common JSON readers turn integers into floats."""

MAX_DEPTH = 200
"""How deep arrays and objects may be nested: far below what the recursion of readers allows."""

MAX_BYTES = 64 * 2**20
"""How long a document or a patch list may be as JSON."""

_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_MOST_DIGITS = 19  # the fewest that an integer beyond the limits can have
_LONG_NUMBER = b"0" * _MOST_DIGITS


class Unstorable(ValueError):
    """A value cannot be stored as it is. `path` is the pointer to the part that stands in the way."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path!r}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


def encode(value: object) -> str:
    """JSON text for a value that is known to be sound: `seal` it first if it comes from outside."""
    return _encode(value).decode()


def decode(text: str) -> Json:
    """The value of JSON text. Raises `Unstorable` if it is not JSON."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError) as error:
        raise Unstorable("", f"not JSON: {error}") from None


def seal(value: Json) -> tuple[str, Json]:
    """The JSON text of a value, and a copy of it that nobody else holds. Raises `Unstorable`.

    That the copy is equal proves that nothing was converted on the way; the long way through `inspect` is only taken
    to say what is wrong, or when the text looks as if something might be.
    """
    data = write(value)
    try:
        copy = _decode(data)
    except RecursionError:
        raise Unstorable("", _TOO_DEEP) from None
    # The first two comparisons are cheap, and rule out most of what could be too deep.
    if len(data) > 2 * MAX_DEPTH and data.count(b"{") + data.count(b"[") > MAX_DEPTH and height(copy) > MAX_DEPTH:
        inspect(value)
    if copy != value:
        inspect(value)
        raise Unstorable("", "it does not come back from JSON as it is")
    return data.decode(), copy


def write(value: Json) -> bytes:
    """JSON for a value that the caller compares with what the JSON says. Raises `Unstorable`."""
    try:
        data = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        inspect(value)
        raise Unstorable("", str(error)) from None
    if len(data) > MAX_BYTES:
        raise Unstorable("", too_long(len(data)))
    # Most have fewer digits altogether than one integer beyond the limits has.
    if len(data) - len(data.translate(None, b"0123456789")) >= _MOST_DIGITS and _LONG_NUMBER in data.translate(_DIGITS):
        inspect(value)
    return data


def too_long(size: int) -> str:
    """What to say of a document or patch list of this many bytes, which is over the limit."""
    return f"it takes {size:,} bytes as JSON, and {MAX_BYTES:,} are the limit"


def duplicate(value: Json) -> Json:
    """A deep copy of a sound value."""
    return _decode(_encode(value))


def size(value: Json) -> int:
    """How many bytes a sound value takes as JSON."""
    return len(_encode(value))


def height(value: Json) -> int:
    """How deep a value is nested: 0 for a scalar, 1 for `{}`, 2 for `[{}]`. Stops counting beyond the limit."""
    if type(value) is not dict and type(value) is not list:
        return 0
    level = [value]
    reached = 0
    while level and reached <= MAX_DEPTH:
        reached += 1
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) is dict or type(child) is list
        ]
    return reached


def same(a: Json, b: Json) -> bool:
    """Whether two values are equal as JSON: 1 and 1.0 are, 1 and true are not, the order of keys does not matter."""
    return bool(a == b) and _same_kinds(a, b)


def _same_kinds(a: Json, b: Json) -> bool:
    """Given that Python finds them equal: whether no boolean stands where the other has a number."""
    if isinstance(a, dict):
        return all(_same_kinds(child, b[key]) for key, child in a.items())
    if isinstance(a, list):
        return all(map(_same_kinds, a, b))
    return isinstance(a, bool) == isinstance(b, bool)


def inspect(value: Json) -> None:
    """Walk through a value and raise `Unstorable` at the first part that cannot be stored, if there is one."""
    _inspect(value, ())


def _inspect(value: Json, at: tuple[str | int, ...]) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        _inspect_text(value, at, "text")
    elif isinstance(value, int):
        if not MIN_INTEGER <= value <= MAX_INTEGER:
            _refuse(at, "an integer beyond 64 bits, which JSON readers would not keep exact; store it as text")
    elif isinstance(value, float):
        if not math.isfinite(value):
            _refuse(at, f"{value} is not JSON; use null or text")
    elif isinstance(value, dict | list) and len(at) >= MAX_DEPTH:
        _refuse(at, _TOO_DEEP)
    elif isinstance(value, dict):
        for key, child in value.items():
            if not isinstance(key, str):
                _refuse(at, f"the key {key!r} is not text")
            _inspect_text(key, at, "the key")
            _inspect(child, (*at, key))
    elif isinstance(value, list):
        for number, child in enumerate(value):
            _inspect(child, (*at, number))
    else:
        _refuse(at, f"{type(value).__name__} is not a JSON type; use null, booleans, numbers, text, lists and dicts")


def _inspect_text(text: str, at: tuple[str | int, ...], what: str) -> None:
    if not is_unicode(text):
        _refuse(at, f"{what} {text!r} has half a surrogate pair in it")


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: Python's may hold halves of surrogate pairs."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(at: tuple[str | int, ...], reason: str) -> NoReturn:
    # A key may itself be what cannot be shown.
    path = pointers.format(at).encode("utf-8", "backslashreplace").decode()
    raise Unstorable(path, reason)
