"""Rows from Arrow tables: checked and encoded column by column, and refused by field and row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ontolake.model.columns import Column
from ontolake.model.field import UNSET
from ontolake.model.scalars.base import json_text
from ontolake.model.types import TypeInfo
from ontolake.ontology.arrow.fields import (
    by_value,
    encoded,
    is_text,
    python_values,
    refused,
    typed,
    validates_itself,
)
from ontolake.ontology.errors import SchemaValidationError

if TYPE_CHECKING:
    import pyarrow as pa


def rows_from_arrow(info: TypeInfo, table: pa.Table) -> tuple[list[tuple[Any, ...]], bool]:
    """Encoded rows, and whether no key repeats. Columns may be called by the stored name or by the attribute's.

    Takes the values that objects of the type take, and no others. Raises `SchemaValidationError` for unknown or missing
    columns, and with the row for values that do not fit.
    """
    import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise SchemaValidationError(f"an Arrow table is needed, not {type(table).__name__}", type_name=info.name)
    given = named(info, table)
    if validates_itself(info):
        rows = list(_of_objects(info, given, table.num_rows))
        return rows, len({info.key_of(row) for row in rows}) == len(rows)
    parts = [_encoded(info, column, given.get(column.name), table.num_rows) for column in (*info.keys, *info.columns)]
    for column, values in zip(info.keys, parts, strict=False):
        if "" in values:
            raise refused(info, column, values.index(""), "a key must not be empty")
    rows = list(zip(*parts, strict=True))
    return rows, _unique(parts[: len(info.keys)], len(rows))


def keys_from_arrow(info: TypeInfo, table: pa.Table) -> list[tuple[Any, ...]]:
    """Encoded keys. Raises `SchemaValidationError` for unknown and missing columns, and for values that do not fit."""
    given = named(info, table)
    if info.parts and info.keys[0].name not in given:
        for column in info.parts:
            if column.name not in given:
                raise SchemaValidationError("the table has no such column", type_name=info.name, field=column.name)
        parts = [_encoded(info, column, given[column.name], table.num_rows) for column in info.parts]
        return [(json_text(list(values)),) for values in zip(*parts, strict=True)]
    for column in info.keys:
        if column.name not in given:
            raise SchemaValidationError("the table has no such column", type_name=info.name, field=column.name)
    return list(zip(*[_encoded(info, column, given[column.name], table.num_rows) for column in info.keys], strict=True))


def named(info: TypeInfo, table: pa.Table) -> dict[str, pa.ChunkedArray]:
    """The columns of a table by attribute. Raises `SchemaValidationError` for one that is unknown or there twice."""
    places = {column.name: column for column in info.all_columns}
    places.update({column.stored: column for column in info.all_columns})
    given: dict[str, Any] = {}
    for name, values in zip(table.column_names, table.columns, strict=True):
        column = places.get(name)
        if column is None:
            raise SchemaValidationError("there is no such field", type_name=info.name, field=name)
        if column.name in given:
            raise SchemaValidationError("the table has this column twice", type_name=info.name, field=name)
        given[column.name] = values
    return given


def _of_objects(info: TypeInfo, given: dict[str, pa.ChunkedArray], size: int) -> Iterator[tuple[Any, ...]]:
    """Rows by way of objects, for types that look at them themselves."""
    parts = []
    for name, values in given.items():
        column = info.by_name[name]
        plain = python_values(info, column, values)
        if column.scalar is None and is_text(values.type):
            plain = [column.decode(text) for text in by_value(info, column, values)]
        parts.append(plain)
    for row in range(size):
        try:
            yield info.encode(info.cls(**{name: part[row] for name, part in zip(given, parts, strict=True)}))
        except SchemaValidationError as error:
            raise SchemaValidationError(f"row {row}: {error.reason}", type_name=info.name, key=error.key,
                                        field=error.field, hint=error.hint) from error


def _unique(keys: list[list[Any]], size: int) -> bool:
    return len(set(keys[0] if len(keys) == 1 else zip(*keys, strict=True))) == size


def _encoded(info: TypeInfo, column: Column, values: pa.ChunkedArray | None, size: int) -> list[Any]:
    if values is None:
        return [column.encode(_default(info, column), info.name) for _ in range(size)]
    found = typed(info, column, values)
    return by_value(info, column, values) if found is None else encoded(column, found)


def _default(info: TypeInfo, column: Column) -> Any:
    value = column.default_value()
    if value is UNSET:
        raise SchemaValidationError("the table has no such column, and there is no default", type_name=info.name,
                                    field=column.name)
    return value
