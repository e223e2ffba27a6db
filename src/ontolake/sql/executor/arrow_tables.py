"""Arrow tables on their way into DuckDB and out of it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.executor import pg_types
from ontolake.sql.executor.pg_types import DIGITS, PgType
from ontolake.sql.executor.scopes import Output


class ReadableTable(NamedTuple):
    """A table whose columns are named c0, c1, … and have types that DuckDB reads, with their names and types."""

    arrow: pa.Table
    columns: list[tuple[str, PgType]]


def readable_table(table: pa.Table) -> ReadableTable:
    """A table as DuckDB is given it. Raises `UnsupportedError` for types and numbers that it does not have."""
    arrays, columns = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        type = pg_types.from_arrow(field.type)
        if type.name == "numeric" and pg_types.is_wide():
            column = column.cast(pa.string()) if pa.types.is_decimal(column.type) else column
            type = pg_types.numeric(0)
        elif type.name == "numeric" and type.scale < 0:
            column = _decimals(column)
            type = pg_types.numeric(column.type.scale)._replace(arrow=field.type)  # as which it is handed out again
        arrays.append(_plain(column))
        columns.append((field.name, type))
    return ReadableTable(pa.table(arrays, names=[f"c{n}" for n in range(len(arrays))]), columns)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    type = column.type
    if pa.types.is_timestamp(type) and type.tz:
        return column.cast(pa.timestamp(type.unit))
    if isinstance(type, pa.BaseExtensionType) and type != pa.uuid():
        found = pg_types.from_arrow(type)
        return pc.utf8_rpad(_storage(column), found.length) if found.name == "bpchar" else _storage(column)
    if pa.types.is_list(type) and isinstance(type.value_type, pa.BaseExtensionType) and type.value_type != pa.uuid():
        return column.cast(pa.list_(type.value_type.storage_type))
    if pa.types.is_null(type):
        return column.cast(pa.string())
    return column


def _storage(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)


def _decimals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers that are kept as text, with as many digits behind the point as the longest has."""
    texts = _storage(column)
    point = pc.find_substring(texts, ".")
    behind = pc.if_else(pc.less(point, 0), 0, pc.subtract(pc.subtract(pc.utf8_length(texts), point), 1))
    scale = int(pc.max(behind).as_py() or 0)
    before = pc.if_else(pc.less(point, 0), pc.utf8_length(texts), point)
    whole = pc.max(pc.subtract(before, pc.starts_with(texts, "-").cast(pa.int32()))).as_py() or 0
    if whole + scale > DIGITS:  # which the cast does not always notice
        raise pg_types.WideNumber
    try:
        return texts.cast(pa.decimal128(DIGITS, min(scale, DIGITS)))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise pg_types.WideNumber from None


def answer_table(table: pa.Table, outputs: Sequence[Output]) -> pa.Table:
    """An answer of DuckDB with PostgreSQL's names, in the Arrow types that tables of ours have."""
    arrays = []
    for column, output in zip(table.columns, outputs, strict=False):
        wanted = pg_types.to_arrow(output.type, column.type)
        arrays.append(column if column.type == wanted else _converted(column, wanted))
    return pa.Table.from_arrays(arrays, names=[output.name for output in outputs])


def _converted(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_list(wanted) and isinstance(wanted.value_type, pa.BaseExtensionType):
        return pa.chunked_array([_list(chunk, wanted) for chunk in column.chunks], wanted)
    if wanted == pa.uuid():
        chunks = [[None if value is None else uuid.UUID(str(value)).bytes for value in chunk.to_pylist()]
                  for chunk in column.chunks]  # fmt: skip
        return pa.chunked_array([pa.array(chunk, pa.binary(16)) for chunk in chunks], pa.binary(16)).cast(wanted)
    if isinstance(wanted, pa.BaseExtensionType):
        texts = column.cast(wanted.storage_type)
        return pa.chunked_array([pa.ExtensionArray.from_storage(wanted, chunk) for chunk in texts.chunks], wanted)
    return column.cast(wanted, safe=False)


def _list(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A column of arrays whose elements are of an extension type."""
    items = _converted(pa.chunked_array([column.values]), wanted.value_type)
    return pa.Array.from_buffers(wanted, len(column), column.buffers()[:2], column.null_count, column.offset,
                                 [pa.concat_arrays(items.chunks) if items.num_chunks else pa.nulls(0, items.type)])
