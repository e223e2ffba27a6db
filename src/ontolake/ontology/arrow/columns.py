"""Declared rows that stay Arrow columns all the way, for types whose fields Arrow can check by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_values import text_scalar
from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo
from ontolake.ontology.arrow.fields import encoded, is_plain, refused, typed, validates_itself


class ArrowRows(Collection[tuple[Any, ...]]):
    """Rows of a type as columns; iterating gives them encoded, like those from objects.

    Moments without a zone are a column without one.
    """

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
        return zip(*(encoded(column, values) for column, values in self.columns()), strict=True)

    def __contains__(self, row: object) -> bool:
        return any(row == one for one in self)


def stays_columns(info: TypeInfo) -> bool:
    """Whether Arrow can check every field of a type by itself."""
    return not validates_itself(info) and all(is_plain(info, column) for column in info.all_columns)


def columns_from_arrow(info: TypeInfo, table: Any) -> ArrowRows | None:
    """The rows of a table as columns of their declared types, checked; None if that takes more than Arrow can do.

    Raises `SchemaValidationError` for an empty key. What else is wrong is left to whoever looks at it row by row.
    """
    if not isinstance(table, pa.Table) or not stays_columns(info):
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
        found = typed(info, column, values)
        if found is None:
            return None
        arrays[column.name] = found
    for column in info.keys:
        if column.type.textual and pc.min(pc.binary_length(arrays[column.name])).as_py() == 0:
            empty = pc.index(arrays[column.name], text_scalar("")).as_py()
            raise refused(info, column, empty, "a key must not be empty")
    return ArrowRows(info, arrays, table.num_rows)
