"""Declared rows that stay Arrow columns all the way, for types whose fields Arrow can check by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_values import text_scalar
from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo
from ontolake.ontology.errors import SchemaValidationError

_SCALARS = ("str", "int", "float", "bool", "date", "datetime", "bytes")


class ArrowRows(Collection[tuple[Any, ...]]):
    """Rows of a type as columns; iterating gives them encoded, like those from objects."""

    def __init__(self, info: TypeInfo, arrays: dict[str, pa.ChunkedArray], size: int) -> None:
        self._info = info
        self._arrays = arrays
        self._size = size
        self.ascending = False
        """Whether the keys are known to be in order."""

    def columns(self) -> Iterator[tuple[Column, pa.ChunkedArray]]:
        """The columns, keys first."""
        for column in (*self._info.keys, *self._info.columns):
            yield column, self._arrays[column.name]

    def unique(self) -> bool:
        """Whether no key repeats. Only asked for types with one key; others are looked at row by row."""
        if len(self._info.keys) > 1:
            return False
        keys = self._arrays[self._info.keys[0].name].combine_chunks()
        self.ascending = len(keys) < 2 or pc.all(pc.less(keys[:-1], keys[1:])).as_py()
        return self.ascending or len(pc.unique(keys)) == len(keys)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        from ontolake.ontology.arrow_rows import rows_from_arrow

        return iter(rows_from_arrow(self._info, pa.table(self._arrays))[0])

    def __contains__(self, row: object) -> bool:
        return any(row == one for one in self)


def columns_from_arrow(info: TypeInfo, table: Any) -> ArrowRows | None:
    """The rows of a table as columns of their declared types, checked; None if that takes more than Arrow can do.

    Raises `SchemaValidationError` for an empty key. What else is wrong is left to whoever looks at it row by row.
    """
    if not isinstance(table, pa.Table) or not all(map(_plain, info.all_columns)) or _validates(info):
        return None
    places = {column.name: column for column in info.all_columns}
    places.update({column.stored: column for column in info.all_columns})
    given = [places.get(name) for name in table.column_names]
    names = {column.name for column in given if column is not None}
    if None in given or len(names) < len(info.all_columns) or len(given) > len(names):
        return None
    arrays: dict[str, pa.ChunkedArray] = {}
    for column, values in zip(given, table.columns, strict=True):
        assert column is not None
        wanted = column.arrow_type
        if values.null_count and not column.nullable:
            return None
        if values.type != wanted:
            try:
                values = values.cast(wanted)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                return None
        arrays[column.name] = values
    for column in info.keys:
        if column.scalar == "str" and pc.any(pc.equal(arrays[column.name], text_scalar(""))).as_py():
            raise SchemaValidationError("a key must not be empty", type_name=info.name, field=column.name)
    return ArrowRows(info, arrays, table.num_rows)


def _plain(column: Column) -> bool:
    """Whether every value that Arrow can cast to the column's type is one of the field's."""
    parts = column.spec["members"] if column.spec["kind"] == "union" else [column.spec]
    return column.scalar in _SCALARS and all(part["kind"] == "primitive" for part in parts)


def _validates(info: TypeInfo) -> bool:
    """Whether the type asks more of its values than their types."""
    own = info.cls.__pydantic_decorators__
    if own.validators or own.field_validators or own.root_validators or own.model_validators:
        return True
    return any(field.metadata for field in info.cls.model_fields.values())
