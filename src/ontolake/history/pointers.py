"""JSON pointers (RFC 6901) as tuples of tokens. They name the fields of documents in conflicts and resolutions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

Tokens = tuple[str, ...]

END = "-"
"""The token for the place behind the last element of an array."""

_MAX_INDEX_DIGITS = 15


@lru_cache(maxsize=8192)
def parse(pointer: str) -> Tokens:
    """The tokens of a pointer; `""` is the whole document and has none. Raises `ValueError` if it is malformed."""
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise ValueError(f"the pointer {pointer!r} does not start with '/'")
    if "~" not in pointer:
        return tuple(pointer[1:].split("/"))
    return tuple(_unescaped(token, pointer) for token in pointer[1:].split("/"))


def _unescaped(token: str, pointer: str) -> str:
    if token.count("~") != token.count("~0") + token.count("~1"):
        raise ValueError(f"the pointer {pointer!r} has a '~' that is neither '~0' nor '~1'")
    return token.replace("~1", "/").replace("~0", "~")


def format(tokens: Iterable[str | int]) -> str:
    """The pointer for these tokens, which may be array indices too."""
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in tokens)


def index(token: str) -> int | None:
    """The array index that a token means, or None: digits without a leading zero, as RFC 6901 has it."""
    if not (token.isascii() and token.isdigit()) or (token[0] == "0" and token != "0"):
        return None
    return int(token) if len(token) <= _MAX_INDEX_DIGITS else None


def overlap(a: Tokens, b: Tokens) -> bool:
    """Whether one path leads to the other, or is it."""
    return a[: len(b)] == b[: len(a)]


def value_at(row: Mapping[str, Any], field: str) -> Any:
    """The value of a field, which is a pointer or the name of a column; None if it is not there.

    An element of an array is named by its index, or by its identity: `id=5`.
    """
    value: Any = row
    for token in parse(field) if field.startswith("/") else (field,):
        place = index(token)
        if isinstance(value, Mapping):
            value = value.get(token)
        elif isinstance(value, list) and place is not None and place < len(value):
            value = value[place]
        elif isinstance(value, list) and "=" in token:
            name, _, wanted = token.partition("=")
            value = next((one for one in value if isinstance(one, Mapping) and str(one.get(name)) == wanted), None)
        else:
            return None
    return value
