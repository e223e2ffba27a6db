"""What a statement gives back: rows as Python values or as an Arrow table, and how many rows it changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.keyspace.columns import stored_array, stored_list
from ontolake.sql.types import JSON, TIMESTAMPS, Kind, Type, from_arrow, is_system

BATCH = 65_536
"""Rows of a batch, at most."""
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
        """All rows as an Arrow table. A NUMERIC without a precision has decimals of the scale that its values need."""
        table = self.typed()
        for place, field in enumerate(table.schema):
            if isinstance(field.type, pa.BaseExtensionType) or pa.types.is_list(field.type):
                table = table.set_column(place, field.name, _plain_column(table.column(place)))
        return table

    def typed(self) -> pa.Table:
        """The same with Arrow types that name the type of each column, as tables are kept and computed with."""
        if self._table is None:
            rows = self._stored or ()
            arrays = [stored_array(type, [row[n] for row in rows]) for n, type in enumerate(self._types)]
            self._table = pa.Table.from_arrays(arrays, names=self.columns) if arrays else pa.table({})
        return self._table

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The same as `typed` in batches, at least one. `Database.stream` gives them as they are read."""
        table = self.typed()
        return iter(table.to_batches(max_chunksize=BATCH) or [pa.RecordBatch.from_arrays(
            [pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
             for column in table.columns], schema=table.schema)])  # fmt: skip

    def stored(self) -> Sequence[Sequence[Any]] | None:
        """The rows in their stored forms, if they are few and came straight from keys."""
        return self._stored

    @property
    def types(self) -> Sequence[Type]:
        """The types of the columns, if they are columns of tables."""
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


def _plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column in the Arrow type that other programs know."""
    if is_system(column.type):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    type = from_arrow(column.type)
    is_known = type is not None and (type.item or type).kind in (Kind.NUMERIC, Kind.ENUM, Kind.JSONB, Kind.UTF8)
    if type is None or not (is_known or (type.item is not None and is_system(column.type.value_type))):
        return column
    whole = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    return pa.chunked_array([_plain(type, whole)])


def _plain(type: Type, column: pa.Array) -> pa.Array:
    if is_system(column.type):
        return column.storage
    if type.item is not None:
        items = _plain(type.item, column.values)
        return pa.Array.from_buffers(pa.list_(items.type), len(column), column.buffers()[:2], column.null_count,
                                     column.offset, [items])  # fmt: skip
    if type.kind == Kind.NUMERIC:
        return _decimals(column)
    if type.kind == Kind.JSONB:
        return pa.ExtensionArray.from_storage(JSON.arrow, column.storage)
    if type.kind == Kind.ENUM:
        labels = pa.array([label for label, _ in type.labels], pa.string())
        return pa.DictionaryArray.from_arrays(column.storage, labels, ordered=True)
    return pc.utf8_rpad(column.storage, type.length) if type.padded else column


def _decimals(column: pa.Array) -> pa.Array:
    """Numbers as decimals; as they are kept if they have more digits than Arrow's decimals, or are not finite."""
    behind = pc.struct_field(pc.extract_regex(column.storage, r"\.(?P<digits>\d+)$"), "digits")
    scale = pc.max(pc.utf8_length(behind)).as_py() or 0
    for make, digits in ((pa.decimal128, 38), (pa.decimal256, 76)):
        if scale <= digits:
            try:
                return column.storage.cast(make(digits, scale))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                continue
    return column


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
    if type is not None and type.kind == Kind.REAL:  # the shortest decimals that read as these numbers
        return pc.cast(pc.cast(column, pa.string()), pa.float64()).to_pylist()  # type: ignore[no-any-return]
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
