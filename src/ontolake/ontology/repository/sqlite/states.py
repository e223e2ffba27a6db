"""Rows of sqlite/v3 by key and commit: each question is one statement over the indexes of the keys."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo
from ontolake.ontology.query.compiler.functions import VALUES, given_list, key_list
from ontolake.ontology.query.compiler.latest import DELETED, quoted
from ontolake.ontology.query.compiler.statements import key_columns
from ontolake.ontology.repository.branched import KeyState
from ontolake.ontology.repository.protocol import Row
from ontolake.ontology.repository.sqlite import zeros

if TYPE_CHECKING:
    from ontolake.ontology.repository.sqlite.v3 import SqliteRepositoryV3


class SqliteStates:
    """A `StateReader` over the tables of a store."""

    def __init__(self, repository: SqliteRepositoryV3) -> None:
        self._repository = repository
        self._db = repository.db

    def touched(self, info: TypeInfo, version: int, commits: Collection[int]) -> list[Row]:
        keys = ", ".join(key_columns(info)[: len(info.keys)])
        rows: Any = self._db.execute(
            f"SELECT DISTINCT {keys} FROM main.{quoted(self._table(info, version))} WHERE commit_id IN "
            f"(SELECT value FROM {VALUES}(?))", (given_list(commits),))
        return sorted(rows)

    def rows(self, info: TypeInfo, version: int, keys: Sequence[Row], commit: int) -> list[Row]:
        if not keys or not commit:
            return []
        source, seen = self._source(info, version), self._repository.holding(commit).lineage.sees_row("n")
        columns = ", ".join(f"t.{quoted(column.column)}" for column in (*info.keys, *info.columns))
        if info.kind == "entity":
            wanted, given = key_list(map(itemgetter(0), keys))
            newest = f"SELECT n.rowid FROM {source} AS n WHERE n.entity_key = wanted.value AND {seen}"
            return list(self._db.execute(
                f"SELECT {columns} FROM {wanted}(?1) AS wanted JOIN {source} AS t ON t.rowid = ({newest} AND "
                f"n.commit_id <= ?2 ORDER BY n.commit_id DESC LIMIT 1) WHERE NOT t.{DELETED}",
                (given, commit)))
        same = " AND ".join(f"n.{key} = ?{number}" for number, key in enumerate(key_columns(info), 1))
        sql = (f"SELECT {columns} FROM {source} AS t WHERE t.rowid = (SELECT n.rowid FROM {source} AS n WHERE {same} "
               f"AND {seen} AND n.commit_id <= ?4 ORDER BY n.commit_id DESC LIMIT 1) AND NOT t.{DELETED}")
        padding = ("",) * (3 - len(info.keys))
        return [row for key in keys for row in self._db.execute(sql, (*key, *padding, commit))]

    def written(self, info: TypeInfo, version: int, key: Row, commit: int) -> list[KeyState]:
        seen = self._repository.holding(commit).lineage.sees_row("t")
        columns = ", ".join(f"t.{quoted(column.column)}" for column in (*info.keys, *info.columns))
        same = " AND ".join(f"t.{column} = ?" for column in key_columns(info))
        rows: Any = self._db.execute(
            f"SELECT t.commit_id, t.{DELETED}, {columns} FROM {self._source(info, version)} AS t "
            f"WHERE {same} AND {seen} AND t.commit_id <= ?",
            (*key, *("",) * (len(key_columns(info)) - len(key)), commit))
        return [KeyState(row[0], None if row[1] else row[2:]) for row in rows]

    def live_relations(self, info: TypeInfo, version: int, side: str, keys: Collection[Row], commit: int) -> list[Row]:
        source, lineage = self._source(info, version), self._repository.holding(commit).lineage
        names = ", ".join(f"t.{key}" for key in key_columns(info)[: len(info.keys)])
        same = " AND ".join(f"n.{key} = t.{key}" for key in key_columns(info))
        return list(self._db.execute(
            f"SELECT {names} FROM {source} AS t WHERE t.{side}_key IN (SELECT value FROM {VALUES}(?1)) AND "
            f"{lineage.sees_row('t')} AND t.commit_id <= ?2 AND NOT t.{DELETED} AND NOT EXISTS (SELECT 1 FROM {source} "
            f"AS n WHERE {same} AND {lineage.sees_row('n')} AND n.commit_id <= ?2 AND n.commit_id > t.commit_id)",
            (given_list(key[0] for key in keys), commit)))

    def holders(
        self, info: TypeInfo, version: int, column: Column, values: Iterable[Any], commit: int
    ) -> list[tuple[Row, Any]]:  # fmt: skip
        source, lineage = self._source(info, version), self._repository.holding(commit).lineage
        names = ", ".join(f"t.{key}" for key in key_columns(info)[: len(info.keys)])
        same = " AND ".join(f"n.{key} = t.{key}" for key in key_columns(info))
        rows: Any = self._db.execute(
            f"SELECT {names}, t.{quoted(column.column)} FROM {source} AS t WHERE t.{quoted(column.column)} IN "
            f"(SELECT value FROM {VALUES}(?1)) AND {lineage.sees_row('t')} AND t.commit_id <= ?2 AND NOT t.{DELETED} "
            f"AND NOT EXISTS (SELECT 1 FROM {source} AS n WHERE {same} AND {lineage.sees_row('n')} AND "
            f"n.commit_id <= ?2 AND n.commit_id > t.commit_id)", (given_list(values), commit))
        return [(row[:-1], row[-1]) for row in rows]

    def _table(self, info: TypeInfo, version: int) -> str:
        name: Any = self._db.execute(
            "SELECT table_name FROM type_layout_catalog WHERE type_kind = ? AND type_name = ? AND "
            "schema_version_id = ? LIMIT 1", (info.kind, info.name, version)).get  # fmt: skip
        return str(name)

    def _source(self, info: TypeInfo, version: int) -> str:
        table = self._table(info, version)
        if zeros.is_marked(self._db, table):
            return zeros.marked_source(info, table, self._repository.row_columns)
        return f"main.{quoted(table)}"
