"""Rows of a result as DataRow messages, and the RowDescription before them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.server.pg.values.codecs import codec_for
from ontolake.sql.descriptions import ColumnDescription
from ontolake.sql.encodings.binaries import Block, binary_column, lengths_column
from ontolake.sql.encodings.single_values import Writer
from ontolake.sql.encodings.texts import fixed_column, text_column
from ontolake.sql.results import Result
from ontolake.sql.types import TEXT, TIMESTAMP, TIMESTAMPTZ, Kind, Type, from_arrow
from ontolake.sql.types.oids import builtin_type, type_oid

ROWS = 16_384
"""Rows that are written at a time."""
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
    return [ColumnDescription(name, *codec_for(type)[:3])
            for name, type in zip(result.columns, result_types(result), strict=True)]  # fmt: skip


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
    codecs = [codec_for(type) for type in types]
    same = columns is None or all(codec.oid == column.oid for codec, column in zip(codecs, columns, strict=True))
    if stored is not None and same:
        writers = [codec.binary if format else codec.text for codec, format in zip(codecs, wanted, strict=True)]
        end = None if count is None else begin + count
        yield _few_rows(stored if end is None and not begin else stored[begin:end], writers)
        return
    table = result.typed().slice(begin, count)
    if columns is not None and not same:
        table = _as_described(table, [column.oid for column in columns])
        types = [from_arrow(arrow) or TEXT for arrow in table.schema.types]
    for batch in table.to_batches(max_chunksize=ROWS):
        if batch.num_rows:
            yield _many_rows(batch, types, wanted)


def _as_described(table: pa.Table, oids: Sequence[int]) -> pa.Table:
    """Rows whose numbers have the types that were described, such as a bigint where an integer was computed."""
    for n, (field, oid) in enumerate(zip(table.schema, oids, strict=True)):
        type, given = builtin_type(oid), from_arrow(field.type)
        if type is None or given is None or type_oid(given) == oid or type.arrow == field.type:
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


def _many_rows(batch: pa.RecordBatch, types: Sequence[Type], formats: Sequence[int]) -> bytes | memoryview:
    columns = [_encoded(*each) for each in zip(batch.columns, types, formats, strict=True)]
    if not columns:
        return b"".join([_HEAD.pack(b"D", 6, 0)] * batch.num_rows)
    missing = [np.asarray(column.is_null()) if column.null_count else None for column in batch.columns]
    blocks = [column for column in columns if isinstance(column, np.ndarray)]
    if len(blocks) == len(columns) and all(each is None for each in missing):
        return _fixed_rows(blocks)
    return _joined_rows(columns, missing, batch.num_rows)


def _encoded(column: pa.Array, type: Type, format: int) -> pa.Array | Block:
    if type.kind == Kind.TIMESTAMP_NS:  # which no client knows
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
        type = TIMESTAMPTZ if type.zoned else TIMESTAMP
    if format:
        return binary_column(column, type)
    return text_column(column, type).cast(pa.binary())


def _fixed_rows(columns: Sequence[Block]) -> memoryview:
    """Rows that all have the same width and no NULL."""
    count, width = len(columns[0]), 7 + sum(4 + column.shape[1] for column in columns)
    rows = np.empty((count, width), np.uint8)
    rows[:, :7] = np.frombuffer(_HEAD.pack(b"D", width - 1, len(columns)), np.uint8)
    at = 7
    for column in columns:
        size = column.shape[1]
        rows[:, at : at + 4] = np.frombuffer(_LENGTH.pack(size), np.uint8)
        rows[:, at + 4 : at + 4 + size] = column
        at += 4 + size
    return rows.reshape(-1).data


def _joined_rows(
    columns: Sequence[pa.Array | Block], missing: Sequence[npt.NDArray[np.bool_] | None], count: int
) -> memoryview:
    """Rows put together from the lengths and values of columns."""
    parts = []
    sizes = np.full(count, 6 + 4 * len(columns), np.int64)
    for column, gone in zip(columns, missing, strict=True):
        values = column if isinstance(column, pa.Array) else fixed_column(column)
        absent = np.zeros(count, np.bool_) if gone is None else gone
        if gone is not None and not values.null_count:  # blocks have something where there is NULL
            values = pc.if_else(pa.array(~gone), values, pa.scalar(None, pa.binary()))
        lengths = lengths_column(values, absent)
        sizes += np.maximum(np.frombuffer(lengths.buffers()[2], ">i4"), 0)
        parts += [lengths, values]
    heads = np.empty((count, 7), np.uint8)
    heads[:, 0] = ord("D")
    heads[:, 1:5] = sizes.astype(">i4").view(np.uint8).reshape(-1, 4)
    heads[:, 5:7] = np.frombuffer(struct.pack(">h", len(columns)), np.uint8)
    joined = pc.binary_join_element_wise(fixed_column(heads), *parts, b"", null_handling="replace",
                                         null_replacement=b"")  # fmt: skip
    ends = np.frombuffer(joined.buffers()[1], np.int32)
    first, last = int(ends[joined.offset]), int(ends[joined.offset + count])
    return memoryview(joined.buffers()[2])[first:last]
