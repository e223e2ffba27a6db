"""Rows of a result as DataRow messages, and the RowDescription before them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ontolake.server.pg.values.codecs import codec_for
from ontolake.sql.descriptions import ColumnDescription
from ontolake.sql.encodings.single_values import Writer
from ontolake.sql.encodings.texts import text_column
from ontolake.sql.encodings.tuples import ROWS, tuple_block
from ontolake.sql.results import Result
from ontolake.sql.types import TEXT, Kind, Type, from_arrow, is_system
from ontolake.sql.types.oids import arrow_numbers, builtin_type, type_oid

_NULL = b"\xff\xff\xff\xff"
_HEAD = struct.Struct(">cih")
_LENGTH = struct.Struct(">i")


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
    if result.stored() is not None or result.types:
        return result.types
    return [from_arrow(arrow) or TEXT for _, arrow in result.description]


def result_columns(result: Result) -> list[ColumnDescription]:
    """The columns of a result."""
    if result.stored() is not None or result.types:
        return [ColumnDescription(name, *codec_for(type)[:3])
                for name, type in zip(result.columns, result.types, strict=True)]  # fmt: skip
    return [ColumnDescription(name, *arrow_numbers(arrow)) for name, arrow in result.description]


def encode_rows(
    result: Result, formats: Sequence[int] = (), begin: int = 0, count: int | None = None,
    columns: Sequence[ColumnDescription] | None = None,
) -> bytes:  # fmt: skip
    """The DataRow messages of a result, or of `count` rows of it from `begin` on. `columns` are what the client was
    told: values are of those types."""
    return b"".join(row_blocks(result, formats, begin, count, columns))


def row_blocks(
    result: Result, formats: Sequence[int] = (), begin: int = 0, count: int | None = None,
    columns: Sequence[ColumnDescription] | None = None,
) -> Iterator[bytes | memoryview]:  # fmt: skip
    """The same, in blocks of some thousand rows."""
    stored, types = result.stored(), result_types(result)
    wanted = column_formats(formats, len(types))
    if columns is not None and len(columns) != len(types):  # the tables have changed since
        columns = None
    if stored is not None:
        codecs = [codec_for(type) for type in types]
        if columns is None or all(codec.oid == column.oid for codec, column in zip(codecs, columns, strict=True)):
            writers = [codec.binary if format else codec.text for codec, format in zip(codecs, wanted, strict=True)]
            end = None if count is None else begin + count
            yield _few_rows(stored if end is None and not begin else stored[begin:end], writers)
            return
    table = result.typed().slice(begin, count)
    if columns is not None and [each.oid for each in columns] != [each.oid for each in result_columns(result)]:
        table = _as_described(table, [column.oid for column in columns])
        types = [from_arrow(arrow) or TEXT for arrow in table.schema.types]
    for batch in table.to_batches(max_chunksize=ROWS):
        if batch.num_rows:
            yield tuple_block(batch, types, wanted, b"D")


def _as_described(table: pa.Table, oids: Sequence[int]) -> pa.Table:
    """Rows whose numbers have the types that were described, such as a bigint where an integer was computed."""
    for n, (field, oid) in enumerate(zip(table.schema, oids, strict=True)):
        type, given = builtin_type(oid), from_arrow(field.type)
        if type is None or given is None or is_system(field.type) or type_oid(given) == oid or type.arrow == field.type:
            continue
        column = table.column(n)
        if type.kind == Kind.UTF8:
            chunks = [text_column(chunk, given).cast(pa.string()) for chunk in column.chunks]
            table = table.set_column(n, field.name, pa.chunked_array(chunks, pa.string()))
        elif type.kind == Kind.NUMERIC:
            table = table.set_column(n, field.name, column.cast(pa.decimal128(38, 0)))
        else:
            table = table.set_column(n, field.name, column.cast(type.arrow))
    return table


def _few_rows(rows: Sequence[Sequence[Any]], writers: Sequence[Writer]) -> bytes:
    found = []
    for row in rows:
        size = 6
        parts = [b""]
        for value, write in zip(row, writers, strict=True):
            if value is None:
                parts.append(_NULL)
                size += 4
            else:
                data = write(value)
                parts.append(_LENGTH.pack(len(data)))
                parts.append(data)
                size += 4 + len(data)
        parts[0] = _HEAD.pack(b"D", size, len(writers))
        found += parts
    return b"".join(found)
