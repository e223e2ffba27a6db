"""Pages of typed stores: rows by key, found by queries with a condition on the key."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ontolake.model.filters import Condition, FieldRef, Order, ValueRef
from ontolake.ontology.parallel.filters import conditions_of
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.arrow import typed_array
from ontolake.ontology.repository.ranges import public_schema
from ontolake.parallel import Filter
from ontolake.server.tables.pages import CHUNK, RowChunk, TableReader
from ontolake.stores import Store
from ontolake.urls import Place

if TYPE_CHECKING:
    import pyarrow as pa

_HELD = 2 << 30
"""Tables of native files of up to this many bytes are read at once."""


class TypedTable(TableReader):
    """The rows of a type. Positions are stored keys."""

    def __init__(self, found: Store, store: Any, snapshot: Any, table: str) -> None:
        """Raises `NotFound` for a table that is not there."""
        self.found, self.table = found, table
        self.commit, self.branch, self.place = snapshot.commit, snapshot.branch, snapshot.branch
        self._info = snapshot.type_of(table)
        self._repository = store.repository.holding(snapshot.commit)
        self.schema = public_schema(self._info, "latest")
        self.keys = [column.stored for column in self._info.keys]

    def _field(self, place: int) -> FieldRef[Any]:
        return FieldRef(ValueRef(self._info.cls, self._info.keys[place].name))

    def _behind(self, position: Sequence[Any]) -> Condition:
        """That a key comes behind another one."""
        values = [column.decode(part) for column, part in zip(self._info.keys, position, strict=True)]
        found: Condition = self._field(len(values) - 1) > values[-1]
        for place in range(len(values) - 2, -1, -1):
            field = self._field(place)
            found = (field >= values[place]) & ((field > values[place]) | found)
        return found

    def batches(self, columns: Sequence[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        """All rows, of a native file from the columns that are kept beside it unless it is very big."""
        import pyarrow as pa

        site = self.found.site
        if filters or site.location.place is not Place.SQLITE or os.path.getsize(site.location.path) > _HELD:
            yield from super().batches(columns, filters)
            return
        with self._repository.reading():
            table = self._repository.run_arrow(Plan(self._info.cls, as_of=True), Values((), as_of=self.commit))
        names = list(columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        yield from table.select(names).cast(schema).to_batches(CHUNK)

    def chunk(self, columns: Sequence[str], filters: Sequence[Filter], after: Any, size: int) -> RowChunk:
        import pyarrow as pa

        info = self._info
        joined: Condition | None = None
        for one in [*conditions_of(info, filters), *([] if after is None else [self._behind(after)])]:
            joined = one if joined is None else joined & one
        order = tuple(Order(ValueRef(info.cls, column.name), False) for column in info.keys)
        plan = Plan(info.cls, where=None if joined is None else joined.shape, order=order, as_of=True, limit=True)
        values = Values(() if joined is None else joined.values, as_of=self.commit, limit=size)
        with self._repository.reading():
            rows = list(self._repository.run(plan, values))
        parts: list[Any] = list(zip(*rows, strict=True)) or [()] * len(self.schema)
        arrays = []
        for name in columns:
            place, field = self.schema.names.index(name), self.schema.field(name)
            array = (typed_array(info.all_columns[place], parts[place]) if place < len(info.all_columns)
                     else pa.array(parts[place], pa.int64()))
            arrays.append(array if array.type == field.type else array.cast(field.type))
        fields = pa.schema([self.schema.field(name) for name in columns])
        places = [info.all_columns.index(column) for column in info.keys]
        positions = [tuple(row[place] for place in places) for row in rows]
        end = positions[-1] if len(rows) == size else None
        return RowChunk(pa.table(arrays, schema=fields), positions, end)
