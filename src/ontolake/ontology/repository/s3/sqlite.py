"""Plans that no column can answer by itself: joins, paths into JSON, decimals. Their rows go through SQLite in memory,
whose statements are those of the engines on SQLite, so that a question means the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apsw
import pyarrow as pa

from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo
from ontolake.ontology.errors import QueryError
from ontolake.ontology.plan import Plan, Values
from ontolake.ontology.repository.protocol import Row
from ontolake.ontology.repository.s3.rows import COMMIT, ROW, encoded, place
from ontolake.ontology.repository.sqlite.functions import install
from ontolake.ontology.repository.sqlite.latest import quoted
from ontolake.ontology.repository.sqlite.statements import compile_plan, key_columns
from ontolake.ontology.sizes import DEFAULT


def run_in_sqlite(
    plan: Plan, values: Values, tables: Mapping[TypeInfo, pa.Table], batch: int = DEFAULT.batch_rows
) -> Iterator[Row]:  # fmt: skip
    """The answer to a plan from the rows that it is about, which are within its bounds in time already.

    With hops, a history holds more states of an entity than the last; the statement picks the last itself.
    """
    sources = _Loaded(plan.history, batch)
    for info, table in tables.items():
        sources.add(info, table)
    bounded = plan._replace(as_of=False, since=plan.since and bool(plan.hops))
    statement = compile_plan(bounded, sources)
    try:
        return iter(sources.db.execute(statement.sql, statement.parameters(values)).fetchall())
    except apsw.SQLError as error:
        if "integer overflow" not in str(error):
            raise
        raise QueryError("the sum is a number that does not fit into 64 bits",
                         hint="ask for avg(), or sum fewer rows") from error


class _Loaded:
    """Tables in memory, as statements ask for them."""

    def __init__(self, history: bool, batch: int) -> None:
        self.db = apsw.Connection(":memory:")
        install(self.db)
        self._history = history
        self._batch = batch
        self._names: dict[str, str] = {}

    def add(self, info: TypeInfo, table: pa.Table) -> None:
        name = self._names[f"{info.kind}/{info.name}"] = f"rows{len(self._names)}"
        there = set(table.column_names)
        columns = [column for column in (*info.keys, *info.columns) if place(column) in there]
        more = ["instance_key"] if info.kind == "relation" and len(info.keys) < 3 else []
        # Beside their types columns have no constraints, as the rows were checked when they were written. Floats have
        # no type: a REAL column would turn -0.0 into 0.0.
        typed = [f"{quoted(column.column)} {'' if column.scalar == 'float' else column.sqlite_type}"
                 for column in columns]
        typed += [f"{key} TEXT DEFAULT ''" for key in more]
        self.db.execute(f"CREATE TABLE {name} ({', '.join([*typed, 'commit_id INTEGER', 'row_id INTEGER'])})")
        self._fill(name, columns, table)
        for key in key_columns(info)[:2]:
            self.db.execute(f"CREATE INDEX {name}_{key} ON {name} ({key}, commit_id)")

    def _fill(self, name: str, columns: Sequence[Column], table: pa.Table) -> None:
        names = ", ".join([*(quoted(column.column) for column in columns), "commit_id", "row_id"])
        sql = f"INSERT INTO {name} ({names}) VALUES ({', '.join('?' * (len(columns) + 2))})"
        with self.db:
            for start in range(0, len(table), self._batch):
                part = table.slice(start, self._batch)
                lists: list[list[Any]] = [encoded(column, part) for column in columns]
                lists += [part.column(COMMIT).to_pylist(), part.column(ROW).to_pylist()]
                self.db.executemany(sql, zip(*lists, strict=True))

    # what a statement asks for
    def source(self, info: Any) -> str:
        return self._names[f"{info.kind}/{info.name}"]

    def key(self, alias: str, column: str) -> str:
        return f"{alias}.{column}"

    def key_column(self, column: str) -> str:
        return column

    def exact(self, alias: str, column: Column) -> str | None:
        """Nothing: a key has one form only."""
        return None

    def latest(self, info: Any, alias: str, as_of: str | None) -> str:
        return "1"
