"""How a type is described and written on the wire."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from ontolake.sql.types import Type
from ontolake.sql.types.oids import type_modifier, type_oid, type_size


class WireCodec(NamedTuple):
    """A type on the wire: its description, and how one stored form that is not NULL is written."""

    oid: int
    size: int
    typmod: int
    text: Callable[[Any], bytes]
    binary: Callable[[Any], bytes]


@lru_cache(maxsize=1024)
def codec_for(type: Type) -> WireCodec:
    """How values of a type are written."""
    text = type.text

    def as_text(stored: Any) -> bytes:
        return text(stored).encode()

    return WireCodec(type_oid(type), type_size(type), type_modifier(type), as_text, as_text)
