"""Which rows the commits of a store in SQLite wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ontolake.model.stored import StoredType
from ontolake.ontology.repository.protocol import SchemaVersion
from ontolake.ontology.repository.sqlite.checks import commit_counts, stored_history

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.ontology.repository.sqlite.base import SqliteRepository


class CommitSpanRows(NamedTuple):
    """What the commits in `(since, until]` wrote under a version of a type."""

    version: SchemaVersion
    since: int
    until: int

    def table(self, repository: SqliteRepository) -> pa.Table | None:
        import pyarrow as pa

        from ontolake.ontology.arrow.physical import COMMIT, table_of

        stored = StoredType(self.version.schema)
        rows = list(stored_history(repository, self.version, self.since, self.until))
        names = [column.name for column in stored.all_columns]
        wanted = [names.index(column.name) for column in (*stored.keys, *stored.columns)]
        table = table_of(stored, [tuple(row[place] for place in wanted) for row in rows])
        return table.append_column(COMMIT, pa.array([row[-1] for row in rows], pa.int64())) if rows else None


class SqliteCommits:
    """`CommitLog` of a store in SQLite."""

    def __init__(self, repository: SqliteRepository) -> None:
        self._repository = repository

    def counts(self, version: SchemaVersion) -> Mapping[int, int]:
        return commit_counts(self._repository, version)

    def rows(self, version: SchemaVersion, since: int, until: int) -> CommitSpanRows:
        return CommitSpanRows(version, since, until)
