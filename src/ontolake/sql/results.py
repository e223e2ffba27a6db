"""What a statement gives back: rows as Python values or as an Arrow table, and how many rows it changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Any

import pyarrow as pa

from ontolake.sql.keyspace.columns import stored_array, stored_list
from ontolake.sql.types import TIMESTAMPS, Kind, Type, from_arrow

_LOADED = frozenset({Kind.NUMERIC, Kind.INTERVAL, Kind.JSON, Kind.JSONB, Kind.UUID, Kind.ARRAY, Kind.ENUM})
"""Kinds whose values Arrow does not turn into what callers get."""


class Result:
    """The answer of one statement. `columns` is empty for a statement that gives no rows.

    `count` is how many rows it gave or changed. Iterating gives tuples; `arrow()` gives a table.
    """

    def __init__(
        self, status: str, count: int, *, table: pa.Table | None = None,
        columns: Sequence[str] = (), types: Sequence[Type] = (), stored: Sequence[Sequence[Any]] | None = None,
    ) -> None:  # fmt: skip
        self.status = status
        """What was done, such as `INSERT 3`."""
        self.count = count
        self.notices: tuple[str, ...] = ()
        """What the user should know besides."""
        self._table = table
        self._types = types
        self._stored = stored
        self.columns: Sequence[str] = columns if table is None else table.column_names
        self._rows: Iterator[tuple[Any, ...]] | None = None

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        if self._table is None:
            rows = self._stored or ()
            arrays = [stored_array(type, [row[n] for row in rows]) for n, type in enumerate(self._types)]
            self._table = pa.Table.from_arrays(arrays, names=self.columns) if arrays else pa.table({})
        return self._table

    def stored(self) -> Sequence[Sequence[Any]] | None:
        """The rows in their stored forms, if they are few and came straight from keys."""
        return self._stored

    @property
    def types(self) -> Sequence[Type]:
        """The types of the columns, if the rows came straight from keys."""
        return self._types

    @property
    def description(self) -> list[tuple[str, pa.DataType]]:
        """The names and Arrow types of the columns."""
        if self._table is None:
            return [(name, type.arrow) for name, type in zip(self.columns, self._types, strict=True)]
        return list(zip(self._table.column_names, self._table.schema.types, strict=True))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        if self._rows is None:
            self._rows = self._tuples()
        return self._rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row as Python values, or None."""
        return next(iter(self), None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left, as Python values."""
        if self._rows is None and self._stored is not None:  # the few rows of a point get, without a generator
            self._rows = iter(())
            return self._loaded(self._stored)
        return list(iter(self))

    def _tuples(self) -> Iterator[tuple[Any, ...]]:
        if self._stored is not None:
            yield from self._loaded(self._stored)
        elif self._table is not None:
            for batch in self._table.to_batches():
                yield from zip(*map(python_values, batch.columns), strict=True) if batch.num_columns else ()

    def _loaded(self, stored: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        loads = [(n, type.load) for n, type in enumerate(self._types) if not type.loads_as_stored]
        if not loads:
            return [tuple(row) for row in stored]
        found = []
        for row in stored:
            values = list(row)
            for n, load in loads:
                values[n] = load(values[n])
            found.append(tuple(values))
        return found


def python_values(column: pa.Array) -> list[Any]:
    """A column as Python values. A `datetime` or `timedelta` has no nanoseconds: what is finer is cut off."""
    if pa.types.is_duration(column.type):
        found: list[Any] = column.cast(pa.duration("us"), safe=False).to_pylist()
        return found
    type = from_arrow(column.type)
    if type is not None and (type.kind in _LOADED or type.padded):
        return list(map(type.load, stored_list(type, column)))
    if type is not None and type.kind == Kind.TIMESTAMP_NS:
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    try:
        if type is not None and type.kind in TIMESTAMPS and type.zoned:
            naive = column.cast(pa.timestamp("us")).to_pylist()
            return [None if value is None else value.replace(tzinfo=UTC) for value in naive]
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        if type is None:
            raise
        return list(map(type.load, stored_list(type, column)))  # raises an error that names the value
    return values
