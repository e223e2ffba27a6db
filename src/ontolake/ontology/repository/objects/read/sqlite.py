"""Plans that no column can answer by itself: joins, paths into JSON, decimals. Rows go through SQLite in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo
from ontolake.ontology.arrow.physical import COMMIT, DELETED, ROW, encoded, place
from ontolake.ontology.query.compiler.loaded import Loaded
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.protocol import Row
from ontolake.ontology.sizes import DEFAULT


def run_in_sqlite(
    plan: Plan, values: Values, tables: Mapping[TypeInfo, pa.Table], batch: int = DEFAULT.batch_rows
) -> Iterator[Row]:  # fmt: skip
    """The answer to a plan from the rows that it is about, which are within its bounds in time already."""
    loaded = Loaded()
    for info, table in tables.items():
        there = set(table.column_names)
        columns = [column for column in (*info.keys, *info.columns) if place(column) in there]
        is_marked = plan.deletions and DELETED in there
        loaded.add(info, columns, _rows(columns, table, batch, is_marked), deletions=is_marked)
    return loaded.run(plan._replace(as_of=False, since=plan.since and bool(plan.hops)), values)


def _rows(columns: Sequence[Column], table: pa.Table, batch: int, is_marked: bool) -> Iterator[tuple[Any, ...]]:
    for start in range(0, len(table), batch):
        part = table.slice(start, batch)
        lists: list[list[Any]] = [encoded(column, part) for column in columns]
        lists += [part.column(name).to_pylist() for name in (COMMIT, ROW, *((DELETED,) if is_marked else ()))]
        yield from zip(*lists, strict=True)
