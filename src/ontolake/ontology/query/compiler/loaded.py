"""Rows in memory that plans are answered from, by the statements of the engines on SQLite.

A question means the same everywhere, wherever its rows come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import apsw

from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo
from ontolake.ontology.query.compiler.failures import query_failure
from ontolake.ontology.query.compiler.functions import install
from ontolake.ontology.query.compiler.latest import DELETED, newest_of, quoted
from ontolake.ontology.query.compiler.statements import compile_plan, key_columns
from ontolake.ontology.query.plan import Plan, Values

if TYPE_CHECKING:
    from ontolake.ontology.repository.protocol import Row


class Loaded:
    """Tables in memory, as statements ask for them. They hold the rows that count at one moment.

    Only a root whose history is asked for may have several states of a key, and then the last one of an entity is
    picked by the statement where it is an end of a relation.
    """

    def __init__(self) -> None:
        self._db = apsw.Connection(":memory:")
        install(self._db)
        self._names: dict[str, str] = {}
        self._marked: set[str] = set()

    def add(
        self, info: TypeInfo, columns: Sequence[Column], rows: Iterable[Sequence[Any]], *, deletions: bool = False
    ) -> None:  # fmt: skip
        """Take the rows of a type: encoded values of these columns, then the commit and the place of each, and with
        `deletions` whether it is one."""
        name = self._names[f"{info.kind}/{info.name}"] = f"rows{len(self._names)}"
        more = ["instance_key"] if info.kind == "relation" and len(info.keys) < 3 else []
        # Beside their types columns have no constraints, as the rows were checked when they were written. Floats have
        # no type: a REAL column would turn -0.0 into 0.0.
        typed = [f"{quoted(column.column)} {'' if column.sqlite_type == 'REAL' else column.sqlite_type}"
                 for column in columns]
        typed += [f"{key} TEXT DEFAULT ''" for key in more]
        typed += ["commit_id INTEGER", "row_id INTEGER", f"{DELETED} INTEGER NOT NULL DEFAULT 0"]
        self._db.execute(f"CREATE TABLE {name} ({', '.join(typed)})")
        names = [*(quoted(column.column) for column in columns), "commit_id", "row_id"]
        if deletions:
            self._marked.add(name)
            names.append(DELETED)
        insert = f"INSERT INTO {name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        with self._db:
            self._db.executemany(insert, rows)
        for key in key_columns(info)[:2]:
            self._db.execute(f"CREATE INDEX {name}_{key} ON {name} ({key}, commit_id)")

    def run(self, plan: Plan, values: Values) -> Iterator[Row]:
        """The answer to a plan. Raises `QueryError`."""
        statement = compile_plan(plan, self)
        try:
            return iter(self._db.execute(statement.sql, statement.parameters(values)).fetchall())
        except (apsw.SQLError, apsw.TooBigError, UnicodeEncodeError) as error:
            raise query_failure(error) from error

    # what a statement asks for
    def source(self, info: Any) -> str:
        return self._names[f"{info.kind}/{info.name}"]

    def key(self, alias: str, column: str) -> str:
        return f"{alias}.{column}"

    def key_column(self, column: str) -> str:
        return column

    def latest(self, info: Any, alias: str, as_of: str | None) -> str:
        return "1"

    def scan(self, info: Any, alias: str, as_of: str | None, *, filtered: bool = False) -> tuple[str, str]:
        return f"{self.source(info)} AS {alias}", "1"

    def latest_of(self, info: Any, alias: str, key: str, as_of: str | None) -> str:
        return newest_of(alias, self.source(info), [("entity_key", key)], as_of)

    def visible(self, info: Any, alias: str) -> str | None:
        return None

    def deleted(self, info: Any, alias: str) -> str | None:
        return f"{alias}.{DELETED}" if self.source(info) in self._marked else None
