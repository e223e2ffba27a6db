"""Rows of a result as DataRow messages, and the RowDescription before them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from ontolake.server.pg.values.codecs import codec_for
from ontolake.sql.descriptions import ColumnDescription
from ontolake.sql.keyspace.columns import stored_list
from ontolake.sql.results import Result
from ontolake.sql.types import TEXT, Type, from_arrow

_NULL = b"\xff\xff\xff\xff"


def column_formats(formats: Sequence[int], count: int) -> Sequence[int]:
    """A format for each column: none stands for text, one for all columns."""
    if not formats:
        return (0,) * count
    return (formats[0],) * count if len(formats) == 1 else formats


def row_description(columns: Sequence[ColumnDescription], formats: Sequence[int] = ()) -> bytes:
    """The RowDescription message of columns, as `Database.describe` or `result_columns` has them."""
    parts = [struct.pack(">h", len(columns))]
    for (name, oid, size, modifier), format in zip(columns, column_formats(formats, len(columns)), strict=True):
        parts.append(name.encode() + struct.pack(">xihihih", 0, 0, oid, size, modifier, format))
    body = b"".join(parts)
    return b"T" + struct.pack(">i", len(body) + 4) + body


def result_types(result: Result) -> Sequence[Type]:
    """The types of a result's columns."""
    if result.stored() is not None:
        return result.types
    return [from_arrow(arrow) or TEXT for _, arrow in result.description]


def result_columns(result: Result) -> list[ColumnDescription]:
    """The columns of a result."""
    return [ColumnDescription(name, *codec_for(type)[:3])
            for name, type in zip(result.columns, result_types(result), strict=True)]  # fmt: skip


def encode_rows(result: Result, formats: Sequence[int] = (), begin: int = 0, count: int | None = None) -> bytes:
    """All DataRow messages of a result, or of `count` rows from `begin` on."""
    return b"".join(row_blocks(result, formats, begin, count))


def row_blocks(
    result: Result, formats: Sequence[int] = (), begin: int = 0, count: int | None = None
) -> Iterator[bytes]:
    """The same, in blocks of bounded size."""
    types = result_types(result)
    wanted = column_formats(formats, len(types))
    codecs = [codec_for(type) for type in types]
    writers = [codec.binary if format else codec.text for codec, format in zip(codecs, wanted, strict=True)]
    end = None if count is None else begin + count
    stored = result.stored()
    if stored is None:
        table = result.typed().slice(begin, count).combine_chunks()
        columns = [stored_list(type, chunk) for type, column in zip(types, table.columns, strict=True)
                   for chunk in column.chunks]  # fmt: skip
        rows = list(zip(*columns, strict=True))
    else:
        rows = list(stored[begin:end])
    head = struct.Struct(">cih")
    length = struct.Struct(">i")
    for row in rows:
        parts = []
        for value, write in zip(row, writers, strict=True):
            if value is None:
                parts.append(_NULL)
            else:
                data = write(value)
                parts.append(length.pack(len(data)) + data)
        body = b"".join(parts)
        yield head.pack(b"D", len(body) + 6, len(parts)) + body
