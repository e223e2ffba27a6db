"""Rows as Arrow tables and Arrow tables as rows, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ontolake.model.columns import Column
from ontolake.ontology.sizes import DEFAULT

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_table(
    columns: Sequence[Column], rows: Iterator[tuple[Any, ...]], batch_rows: int = DEFAULT.batch_rows
) -> pa.Table:  # fmt: skip
    """Encoded rows of these columns, the commit behind them, as a table."""
    import pyarrow as pa

    schema = arrow_schema(columns)
    batches = []
    while True:
        batch = _some(rows, batch_rows)
        if not batch:
            break
        parts = list(zip(*batch, strict=True))
        arrays = [typed_array(column, part) for column, part in zip(columns, parts, strict=False)]
        batches.append(pa.record_batch([*arrays, pa.array(parts[-1], pa.int64())], schema=schema))
    return pa.Table.from_batches(batches, schema)


def _some(rows: Iterator[tuple[Any, ...]], most: int) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for row in rows:
        found.append(row)
        if len(found) == most:
            break
    return found


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Columns under their stored names, and `commit_id`."""
    import pyarrow as pa

    fields = [pa.field(column.stored, column.arrow_type, column.nullable) for column in columns]
    taken = {column.stored for column in columns}
    commit = "commit_id" if "commit_id" not in taken else "_commit_id"
    return pa.schema([*fields, pa.field(commit, pa.int64(), False)])


def typed_array(column: Column, values: Sequence[Any]) -> pa.Array:
    """Encoded values of a column as an Arrow array of its type."""
    return column.type.to_arrow(values, column.decimal)
