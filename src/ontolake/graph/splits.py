"""Splits of graphs: fragments of a Lance dataset at one version, or what some commits did to a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, assert_never

from ontolake.errors import NotFound
from ontolake.graph.commit.records import Pin
from ontolake.graph.place import GraphPlace
from ontolake.graph.tables.datasets import GraphTables
from ontolake.graph.tables.filters import literal
from ontolake.graph.tables.types import GraphField, GraphType
from ontolake.model.scalars import Scalar
from ontolake.parallel import BATCH, Filter, Mode, past_schema, with_past

if TYPE_CHECKING:
    import pyarrow as pa


def public_schema(kind: GraphType, mode: Mode) -> pa.Schema:
    """The columns that reading gives. Vectors are lists, as Spark has them; JSON is text."""
    import pyarrow as pa

    return past_schema([pa.field(field.name, pa.list_(pa.float32()) if field.scalar is None
                                 else field.scalar.parallel_type(field.digits)) for field in kind.fields], mode)


@dataclass(frozen=True)
class FragmentRows:
    """Fragments of a table at one version, or the rows `[start, stop)` of a single one."""

    url: str
    kind: str
    pin: Pin
    columns: tuple[str, ...]
    filter: str | None
    fragments: tuple[int, ...]
    rows: int
    start: int = 0
    stop: int | None = None
    scalars: tuple[Scalar, ...] = ()
    """Those of the type that are not the library's own."""

    def read(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        kind = GraphType.from_json(json.loads(self.kind))
        place = GraphPlace(self.url)
        try:
            dataset = GraphTables(place).at(kind, self.pin)
            fragments = [dataset.get_fragment(number) for number in self.fragments]
            if None in fragments:
                raise NotFound(f"a fragment of {dataset.uri!r} is gone since this read was planned",
                               hint="read it again")
            schema = public_schema(kind, "latest")
            wanted = pa.schema([schema.field(name) for name in self.columns])
            part = {} if self.stop is None else {"offset": self.start, "limit": self.stop - self.start}
            scanner: Any = dataset.scanner(
                fragments=fragments, columns=list(self.columns), filter=self.filter, batch_size=BATCH,  # type: ignore[arg-type]
                with_row_id=not self.columns, **part)  # type: ignore[arg-type]
            for batch in scanner.to_batches():
                yield fitted(batch, wanted)
        finally:
            place.store.close()


def fitted(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """A batch as `public_schema` has its columns, and only how many rows there are if none is wanted."""
    import pyarrow as pa

    if batch.schema.equals(wanted):
        return batch
    if not len(wanted):  # only how many there are
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    arrays = [batch.column(field.name) for field in wanted]
    return pa.RecordBatch.from_arrays([array if array.type == field.type else array.cast(field.type)
                                       for array, field in zip(arrays, wanted, strict=True)], schema=wanted)


def condition(kind: GraphType, filters: Iterable[Filter]) -> str | None:
    """SQL that every row fulfils which fulfils the filters; None if there is nothing to say."""
    found = [text for one in filters if one.column in kind.by_name and (text := _part(kind.by_name[one.column], one))]
    return " AND ".join(found) or None


def _part(field: GraphField, one: Filter) -> str | None:
    name = f"`{field.name}`"
    if field.type == "json" or "`" in field.name:
        return None
    match one.op:
        case "is_null":
            return f"{name} IS NULL"
        case "is_not_null":
            return f"{name} IS NOT NULL"
        case "==":
            texts = _literals(field, one)
            return None if texts is None else f"{name} = {texts[0]}"
        case "<" | "<=" | ">" | ">=":
            texts = _literals(field, one)
            return None if texts is None else f"{name} {one.op} {texts[0]}"
        case "in":
            texts = _literals(field, one)
            return None if texts is None else f"{name} IN ({', '.join(texts)})"
        case "startswith":
            texts = _literals(field, one) if field.scalar is not None and field.scalar.textual else None
            return None if texts is None else f"starts_with({name}, {texts[0]})"
        case _:
            assert_never(one.op)


def _literals(field: GraphField, one: Filter) -> list[str] | None:
    """The values of a filter as SQL text; None if Lance does not compare them as Spark does."""
    values = one.values
    if not values or len(values) > 1000 or not all(_comparable(field, value) for value in values):
        return None
    floats = field.scalar is not None and field.scalar.sqlite == "REAL"
    if floats and (one.op in (">", ">=") or any(value != value or value == 0 for value in values)):
        return None  # Spark knows one zero, and holds what is not a number to be greater than all others
    return [_literal(field, value) for value in values]


def _comparable(field: GraphField, value: Any) -> bool:
    if field.digits is not None:
        return isinstance(value, Decimal | int) and not isinstance(value, bool)
    scalar = field.scalar
    if scalar is None or scalar.fixed_point:
        return False
    allowed = (str,) if str(field.arrow_type) == "string" else scalar.filter_types
    return isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool)) and (
        datetime in allowed or not isinstance(value, datetime))  # fmt: skip


def _literal(field: GraphField, value: Any) -> str:
    if field.digits is not None:
        return f"CAST('{value}' AS DECIMAL({field.digits[0]}, {field.digits[1]}))"
    return literal(value)


@dataclass(frozen=True)
class CommitSteps:
    """What some commits did to a table: the number of each, and where the rows were before and are after it."""

    url: str
    kind: str
    steps: tuple[tuple[int, Pin | None, Pin | None], ...]
    mode: Mode
    columns: tuple[str, ...]
    rows: int
    scalars: tuple[Scalar, ...] = ()

    def read(self) -> Iterator[pa.RecordBatch]:
        kind = GraphType.from_json(json.loads(self.kind))
        place = GraphPlace(self.url)
        try:
            tables, schema = GraphTables(place), public_schema(kind, "latest")
            for number, before, after in self.steps:
                rows, kinds = _changed(tables, kind, before, after)
                yield from with_past(rows.cast(schema), kinds, number, self.mode, self.columns)
        finally:
            place.store.close()


def _changed(tables: GraphTables, kind: GraphType, before: Pin | None, after: Pin | None) -> tuple[pa.Table, Any]:
    """The rows that differ, in the columns of `kind`, and what became of each. Of a row that is gone only the key."""
    import numpy as np
    import pyarrow as pa

    from ontolake.graph.merge.differences import rows_at, touched
    from ontolake.history.rows import positions, same

    if before is not None and after is not None:
        keys, old, new = touched(tables, kind, before, after)
    else:
        there = after if before is None else before
        assert there is not None
        keys = tables.at(kind, there).to_table(columns=list(kind.keys))
        rows = rows_at(tables, kind, there, keys)
        old, new = (rows.slice(0, 0), rows) if before is None else (rows, rows.slice(0, 0))
    at_old, at_new = positions(kind.keys, keys, old), positions(kind.keys, keys, new)
    differing = np.flatnonzero(~same([field.name for field in kind.fields], old, at_old, new, at_new))
    at_old, at_new = at_old[differing], at_new[differing]
    kinds = np.where(at_new < 0, "delete", np.where(at_old < 0, "insert", "update"))
    places = pa.array(at_new, mask=at_new < 0)
    shown = {field.name: new.column(field.name).take(places) for field in kind.fields}
    named = keys.take(pa.array(differing))
    return pa.table(shown | {name: named.column(name).cast(kind.by_name[name].arrow_type) for name in kind.keys}), kinds
