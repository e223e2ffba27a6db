"""Rows as a merge compares them: values that Arrow cannot compare stand there as the text that PostgreSQL has for them.

The text is exact: reading it gives the stored form again. A key has the text of its shortest form, so that rows are
found by keys that are equal but written otherwise.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ontolake.sql.catalog.coercion import as_text, read_texts
from ontolake.sql.catalog.records import ColumnMeta, Table
from ontolake.sql.keyspace import vectors
from ontolake.sql.keyspace.columns import stored_list
from ontolake.sql.types import TEXTS, Kind, Type

_AS_TEXT = TEXTS | {Kind.UUID, Kind.INTERVAL, Kind.ARRAY, Kind.ENUM}


def is_text(type: Type) -> bool:
    """Whether values of a type stand as text."""
    return type.kind in _AS_TEXT or type.padded


def schema_of(table: Table) -> pa.Schema:
    """The schema of comparable rows of a table."""
    return pa.schema([pa.field(column.name, pa.string() if is_text(column.type) else column.type.arrow)
                      for column in table.columns])  # fmt: skip


def comparable(type: Type, values: pa.Array, *, is_key: bool = False) -> pa.Array:
    """A column for comparing."""
    if not is_text(type):
        return values
    if is_key and not type.is_exact_in_keys:
        encoded = vectors.encode_keys(b"", [type], [values])
        values = vectors.decode_keys([type], encoded, 0)[0][0] if len(values) else values
    return as_text(type, values)


def restored(table: Table, rows: pa.Table) -> pa.Table:
    """Comparable rows with the types of the table's columns."""
    for place, name in enumerate(rows.column_names):
        column = table.by_name.get(name)
        type = None if column is None else column.type  # the expressions of indexes stand as they are
        if type is not None and is_text(type):
            values = rows.column(name).combine_chunks()
            values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
            rows = rows.set_column(place, pa.field(name, type.arrow), read_texts(type, values))
    return rows


def compared(table: Table, rows: pa.Table) -> pa.Table:
    """Rows of a table for comparing."""
    for place, name in enumerate(rows.column_names):
        column = table.by_name[name]
        if is_text(column.type):
            parts = [comparable(column.type, chunk, is_key=column in table.primary_key)
                     for chunk in rows.column(name).chunks]  # fmt: skip
            rows = rows.set_column(place, pa.field(name, pa.string()), pa.chunked_array(parts, pa.string()))
    return rows


def loaded(column: ColumnMeta, value: Any) -> Any:
    """A value of a comparable row as users see it."""
    if value is None:
        return None
    type = column.type
    if is_text(type):
        return type.show(type.store(value))
    return type.show(stored_list(type, pa.array([value], type.arrow))[0])
