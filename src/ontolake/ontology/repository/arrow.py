"""Rows as Arrow tables and Arrow tables as rows, column by column."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ontolake.model.columns import Column
from ontolake.ontology.sizes import DEFAULT

if TYPE_CHECKING:
    import pyarrow as pa


_FETCHED = 512
"""Rows that are fetched at a time: so few that their tuples are gone before the garbage collector looks at them."""


def arrow_table(
    columns: Sequence[Column], rows: Iterator[tuple[Any, ...]], batch_rows: int = DEFAULT.batch_rows, *,
    deletions: bool = False,
) -> pa.Table:  # fmt: skip
    """Encoded rows of these columns, the commit behind them, as a table.

    With `deletions` rows say behind their commit whether they are one, and the table has a column for it.
    """
    import pyarrow as pa

    found = numbered_table(columns, rows, batch_rows, [deleted_name(columns)] if deletions else [])
    if deletions:
        place = found.num_columns - 1
        field = found.schema.field(place).with_type(pa.bool_())
        found = found.set_column(place, field, found.column(place).cast(pa.bool_()))
    return found


def numbered_table(
    columns: Sequence[Column], rows: Iterator[tuple[Any, ...]], batch_rows: int, numbers: Sequence[str]
) -> pa.Table:  # fmt: skip
    """The same with these columns of whole numbers behind the commit."""
    import pyarrow as pa

    schema = arrow_schema(columns)
    for name in numbers:
        schema = schema.append(pa.field(name, pa.int64(), False))
    batches = []
    for parts in _batches(rows, batch_rows):
        arrays = [typed_array(column, part) for column, part in zip(columns, parts, strict=False)]
        arrays += [pa.array(part, pa.int64()) for part in parts[len(columns) :]]
        batches.append(pa.record_batch(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema)


def _batches(rows: Iterator[tuple[Any, ...]], most: int) -> Iterator[list[list[Any]]]:
    """Rows column by column, so many at a time."""
    parts: list[list[Any]] = []
    while some := list(itertools.islice(rows, min(_FETCHED, most))):
        columns = zip(*some, strict=True)
        if parts:
            for part, values in zip(parts, columns, strict=True):
                part.extend(values)
        else:
            parts = [list(values) for values in columns]
        if len(parts[0]) >= most:
            yield parts
            parts = []
    if parts:
        yield parts


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Columns under their stored names, and `commit_id`."""
    import pyarrow as pa

    fields = [pa.field(column.stored, column.arrow_type, column.nullable) for column in columns]
    taken = {column.stored for column in columns}
    commit = "commit_id" if "commit_id" not in taken else "_commit_id"
    return pa.schema([*fields, pa.field(commit, pa.int64(), False)])


def deleted_name(columns: Sequence[Column]) -> str:
    """What the column is called that says whether a row of a history is a deletion."""
    return "deleted" if "deleted" not in {column.stored for column in columns} else "_deleted"


def typed_array(column: Column, values: Sequence[Any]) -> pa.Array:
    """Encoded values of a column as an Arrow array of its type."""
    return column.type.to_arrow(values, column.decimal)
