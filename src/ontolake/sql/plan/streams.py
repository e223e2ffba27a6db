"""Reading tables a step at a time for queries of which each row comes from one row of a table.

A step has about as many bytes as the last, so that neither long rows nor many need more memory than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from ontolake.sql.catalog.records import ColumnMeta
from ontolake.sql.keyspace.versions import BATCH, KeySpan
from ontolake.sql.plan import execution, scans
from ontolake.sql.plan.access import AccessPath
from ontolake.sql.types import Kind, from_arrow

if TYPE_CHECKING:
    from ontolake.sql.plan.queries import Direct, TableSource
    from ontolake.sql.transactions import SqlSession

STEP = 4 * 1024 * 1024
"""Bytes of decoded rows that a step aims at."""
_FIRST, _FEWEST = 1024, 16
"""Rows of the first step, when it is not known how long they are, and of the shortest one."""
_DIGITS = 38
"""Decimals with as many digits are worked out of others, by rules that look at all rows."""


def _steps(
    session: SqlSession, source: TableSource, way: AccessPath, columns: Sequence[ColumnMeta], most: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows that an access finds, in the order that it has with a limit, `most`, or without."""
    keyspace, size = session.keyspace, _FIRST
    for span in way.spans:
        rest = span
        while rest.start < rest.end:
            step = next(keyspace.steps(rest, source.at, size))
            found = list(scans.read(keyspace, way._replace(spans=[step]), columns, source.at, most))
            count = sum(batch.num_rows for batch in found)
            if count:
                average = max(1, sum(batch.nbytes for batch in found) // count)
                size = max(_FEWEST, min(STEP // average, BATCH, size * 4))
            yield from (batch for batch in found if batch.num_rows)
            rest = KeySpan(step.end, rest.end)


def direct(
    session: SqlSession, source: TableSource, way: AccessPath, wanted: Direct, window: tuple[int | None, int]
) -> Iterator[pa.RecordBatch]:
    """What an access finds, as the whole answer: so many rows, if that is limited, from an offset on."""
    unique = list(dict.fromkeys(wanted.columns))
    places = [unique.index(column) for column in wanted.columns]
    limit, offset = window
    found = False
    most = None if limit is None else limit + offset
    for batch in _steps(session, source, way, unique, most) if limit != 0 else ():
        skipped = min(offset, batch.num_rows)
        offset -= skipped
        some = batch.slice(skipped, limit)
        if some.num_rows:
            found = True
            yield pa.RecordBatch.from_arrays([some.column(n) for n in places], names=wanted.names)
        if limit is not None and (limit := limit - some.num_rows) <= 0:
            break
    if not found:
        schema = scans.schema_of(wanted.columns)
        yield execution.empty_batch(pa.schema(list(zip(wanted.names, schema.types, strict=True))))


def by_rows(
    session: SqlSession, source: TableSource, way: AccessPath, answer: Callable[[dict[str, pa.Table]], pa.Table]
) -> Iterator[pa.RecordBatch] | None:
    """What the executor makes of the rows that an access finds, some at a time; None if it has to see all at once."""
    schema = answer({source.name: scans.empty_table(source.columns)}).schema
    if any(map(_depends_on_all, [*schema.types, *(column.type.arrow for column in source.columns)])):
        return None
    return _by_rows(session, source, way, answer, schema)


def _by_rows(
    session: SqlSession, source: TableSource, way: AccessPath, answer: Callable[[dict[str, pa.Table]], pa.Table],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    found = False
    for batch in _steps(session, source, way, source.columns):
        for each in answer({source.name: pa.Table.from_batches([batch])}).cast(schema).to_batches():
            if each.num_rows:
                found = True
                yield each
    if not found:
        yield execution.empty_batch(schema)


def _depends_on_all(type: pa.DataType) -> bool:
    """Whether a column has values whose digits depend on those of all rows."""
    if pa.types.is_list(type):
        return _depends_on_all(type.value_type)
    if pa.types.is_decimal(type):
        return bool(type.precision >= _DIGITS)
    known = from_arrow(type)
    return known is None or known.kind == Kind.NUMERIC
