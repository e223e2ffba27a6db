"""Rows as Arrow tables and Arrow tables as rows, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ontolake.model.columns import Column
from ontolake.ontology.sizes import DEFAULT

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_table(
    columns: Sequence[Column], rows: Iterator[tuple[Any, ...]], batch_rows: int = DEFAULT.batch_rows, *,
    deletions: bool = False,
) -> pa.Table:  # fmt: skip
    """Encoded rows of these columns, the commit behind them, as a table.

    With `deletions` rows say behind their commit whether they are one, and the table has a column for it.
    """
    import pyarrow as pa

    schema = arrow_schema(columns)
    if deletions:
        schema = schema.append(pa.field(deleted_name(columns), pa.bool_(), False))
    width = len(columns)
    batches = []
    while True:
        batch = _some(rows, batch_rows)
        if not batch:
            break
        parts = list(zip(*batch, strict=True))
        arrays = [typed_array(column, part) for column, part in zip(columns, parts, strict=False)]
        more = [pa.array(list(map(bool, parts[width + 1])), pa.bool_())] if deletions else []
        batches.append(pa.record_batch([*arrays, pa.array(parts[width], pa.int64()), *more], schema=schema))
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


def deleted_name(columns: Sequence[Column]) -> str:
    """What the column is called that says whether a row of a history is a deletion."""
    return "deleted" if "deleted" not in {column.stored for column in columns} else "_deleted"


def typed_array(column: Column, values: Sequence[Any]) -> pa.Array:
    """Encoded values of a column as an Arrow array of its type."""
    return column.type.to_arrow(values, column.decimal)
