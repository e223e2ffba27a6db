"""Rows in an order of the request's: the first ones behind a row, found by one pass over the table in bounded memory.

Missing values come last, and before them what is not a number, in either direction. Rows that are equal in the order
come by their keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake.server.problems import RefusedError

if TYPE_CHECKING:
    import pyarrow as pa


class OrderTerm(NamedTuple):
    """A column to sort by."""

    column: str
    descending: bool


def parse(text: str, schema: pa.Schema, keys: Sequence[str]) -> list[OrderTerm]:
    """`-total,name` as terms, with the keys behind them. Raises `RefusedError` with 422, which names the column."""
    import pyarrow.types as types

    found: list[OrderTerm] = []
    for part in text.split(","):
        column, descending = part.strip().removeprefix("-"), part.strip().startswith("-")
        if column not in schema.names:
            raise RefusedError(422, f"there is no column {column!r}", hint=f"there are {', '.join(schema.names)}")
        kind = schema.field(column).type
        if types.is_nested(kind) or types.is_null(kind):
            raise RefusedError(422, f"column {column!r}: {kind} has no order", hint="order by another column")
        if column not in [one.column for one in found]:
            found.append(OrderTerm(column, descending))
    return [*found, *(OrderTerm(key, False) for key in keys if key not in [one.column for one in found])]


def first_rows(
    batches: Iterable[pa.RecordBatch], terms: Sequence[OrderTerm], after: Sequence[Any] | None, limit: int,
    schema: pa.Schema,
) -> pa.Table:  # fmt: skip
    """The first `limit` rows in an order, of those behind a row with the values `after`."""
    import pyarrow as pa

    kept = schema.empty_table()
    waiting: list[pa.Table] = []
    rows = 0
    for batch in batches:
        table = pa.Table.from_batches([batch])
        if after is not None:
            table = table.filter(_behind(table, terms, after))
        if table.num_rows:
            waiting.append(table)
            rows += table.num_rows
        if rows > 4 * limit + 65_536:
            kept, waiting, rows = _sorted(pa.concat_tables([kept, *waiting]), terms).slice(0, limit), [], 0
    return _sorted(pa.concat_tables([kept, *waiting]), terms).slice(0, limit)


def _sorted(table: pa.Table, terms: Sequence[OrderTerm]) -> pa.Table:
    return table.sort_by([(one.column, "descending" if one.descending else "ascending") for one in terms])


def _behind(table: pa.Table, terms: Sequence[OrderTerm], after: Sequence[Any]) -> Any:
    """Which rows come behind a row with these values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found: Any = pa.chunked_array([pa.array([False] * table.num_rows)])
    for term, value in reversed(list(zip(terms, after, strict=True))):
        column = table.column(term.column)
        rank = _rank(column)
        there = _rank_of(value)
        behind, level = pc.greater(rank, there), pc.equal(rank, there)
        if there == 0:
            scalar = pa.scalar(value, column.type)
            compared = pc.less(column, scalar) if term.descending else pc.greater(column, scalar)
            behind = pc.or_(behind, pc.and_(level, pc.fill_null(compared, False)))
            level = pc.and_(level, pc.fill_null(pc.equal(column, scalar), False))
        found = pc.or_(behind, pc.and_(level, found))
    return found


def _rank(column: Any) -> Any:
    """Whether a value is one that compares (0), not a number (1) or missing (2)."""
    import pyarrow.compute as pc
    import pyarrow.types as types

    missing = pc.multiply(pc.cast(pc.is_null(column), "int8"), 2)
    if not types.is_floating(column.type):
        return missing
    return pc.add(missing, pc.cast(pc.fill_null(pc.is_nan(column), False), "int8"))


def _rank_of(value: Any) -> int:
    return 2 if value is None else 1 if isinstance(value, float) and value != value else 0
