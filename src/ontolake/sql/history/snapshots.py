"""All tables as they were at one version: a `history.Snapshot`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from ontolake.sql.catalog.records import Table
from ontolake.sql.history.commits import key_of, row_of
from ontolake.sql.history.table_names import full_name
from ontolake.sql.plan import scans
from ontolake.sql.plan.access import AccessPath
from ontolake.sql.transactions import SqlSession


class SqlSnapshot:
    """The tables of a branch at a version. Stays the same for as long as it is held."""

    def __init__(
        self, on: Callable[[str | None], AbstractContextManager[SqlSession]], url: str, branch: str, commit: int,
        where: str | None = None,
    ) -> None:  # fmt: skip
        self.url = url
        self.branch = branch
        self.commit = commit
        self.where = branch if where is None else where
        """The branch of the storage that has the commit: a hidden one for a tag."""
        self._on = on

    def tables(self) -> Sequence[str]:
        """The full names of all tables, sorted."""
        with self._on(self.where) as session, session.reading():
            return sorted(session.catalog(session.check_version(self.commit)).by_full_name)

    def rows(self, table: str) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Every row with its primary key, by key. Raises `NotFound` for a table that is not there."""
        with self._on(self.where) as session, session.reading():
            found = self.definition(session, table)
            batches = list(session.keyspace.scan(found.span, self.commit, keys=True))
        stored: list[tuple[bytes, bytes]] = []
        for batch in batches:
            assert batch.keys is not None
            stored += zip(batch.keys.to_list(), batch.values.to_list(), strict=True)
        stored.sort()
        for key, value in stored:
            row = row_of(found, value)
            assert row is not None
            yield key_of(found, key), row

    def arrow(self, table: str) -> pa.Table:
        """All rows as an Arrow table, by no particular order. Raises `NotFound`."""
        with self._on(self.where) as session, session.reading():
            found = self.definition(session, table)
            access = AccessPath("full scan", found, None, [found.span], frozenset())
            return scans.read_table(session.keyspace, access, found.visible, self.commit)

    def session(self) -> AbstractContextManager[SqlSession]:
        """A session that reads the version."""
        return self._on(self.where)

    def definition(self, session: SqlSession, name: str) -> Table:
        """A table as it was defined then. Raises `NotFound`."""
        tables = session.catalog(session.check_version(self.commit)).by_full_name
        return tables[full_name(name, tables)]
