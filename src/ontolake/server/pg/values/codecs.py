"""How a type is described and written on the wire."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ontolake.sql.encodings.single_values import Writer, binary_writer, text_writer
from ontolake.sql.types import Type
from ontolake.sql.types.oids import type_modifier, type_oid, type_size


class WireCodec(NamedTuple):
    """A type on the wire: its description, and how one stored form that is not NULL is written."""

    oid: int
    size: int
    typmod: int
    text: Writer
    binary: Writer


@lru_cache(maxsize=1024)
def codec_for(type: Type) -> WireCodec:
    """How values of a type are written."""
    return WireCodec(type_oid(type), type_size(type), type_modifier(type), text_writer(type), binary_writer(type))
