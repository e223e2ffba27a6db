"""Rows of typed stores as commits had them, by key: what merges, differences and histories are made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake.history.dag import missing
from ontolake.model.restoration import restore
from ontolake.model.types import Kind, TypeInfo, type_info
from ontolake.ontology.history.references import TypedDag
from ontolake.ontology.query.compiler.functions import VALUES, given_list
from ontolake.ontology.query.compiler.latest import DELETED, quoted
from ontolake.ontology.query.compiler.statements import key_columns
from ontolake.ontology.repository.protocol import Row, SchemaVersion
from ontolake.ontology.repository.sqlite import zeros

if TYPE_CHECKING:
    from ontolake.ontology.repository.sqlite.v3 import SqliteRepositoryV3

Name = tuple[Kind, str]


class StateOfKey(NamedTuple):
    """What a commit wrote for a key: a row of keys and columns, or None if it deleted it."""

    commit: int
    row: Row | None


class StoreStates:
    """Reads rows of any version, by key and commit, through one repository."""

    def __init__(self, repository: SqliteRepositoryV3) -> None:
        self.repository = repository
        self.dag = TypedDag(repository)
        self._infos: dict[tuple[Name, int], TypeInfo] = {}

    def versions_at(self, commit: int) -> Mapping[Name, int]:
        """The schema version that each type had at a commit."""
        found: dict[Name, int] = {}
        there = self.repository.holding(commit)
        known = there.current_layouts()
        for one in sorted(there.catalog(), key=lambda one: one.activation_commit_id):
            if one.activation_commit_id <= commit and one[:2] in known:
                found[one.type_kind, one.type_name] = one.schema_version_id
        return found

    def version(self, name: Name, version: int) -> SchemaVersion:
        """A version of a type."""
        return next(one for one in self.repository.every_version(*name) if one.schema_version_id == version)

    def info(self, name: Name, version: int) -> TypeInfo:
        """A class for the rows of a version, whose relations lead to classes of the store."""
        found = self._infos.get((name, version))
        if found is None:
            schema = self.version(name, version).schema
            found = self._infos[name, version] = type_info(restore([schema])[name])
        return found

    def touched(self, info: TypeInfo, version: int, commits: Collection[int]) -> list[Row]:
        """The keys of a version that some commits wrote, sorted."""
        keys = ", ".join(key_columns(info)[: len(info.keys)])
        rows: Any = self.repository.db.execute(
            f"SELECT DISTINCT {keys} FROM {self._table(info, version)} WHERE commit_id IN "
            f"(SELECT value FROM {VALUES}(?))", (given_list(commits),))
        return sorted(rows)

    def apart(self, pairs: Iterable[tuple[int, int]]) -> set[int]:
        """The commits that one of two has in its history and the other has not."""
        found: set[int] = set()
        for one, other in pairs:
            found.update(missing(self.dag, one, [other]), missing(self.dag, other, [one]))
        return found

    def rows(self, info: TypeInfo, version: int, keys: Sequence[Row], commit: int) -> list[Row]:
        """The rows of these keys at a commit, keys first; none for a key that was not there."""
        if not keys or not commit:
            return []
        source, seen = self._source(info, version), self.repository.holding(commit).lineage.sees_row("n")
        columns = ", ".join(f"t.{quoted(column.column)}" for column in (*info.keys, *info.columns))
        if info.kind == "entity":
            newest = f"SELECT n.rowid FROM {source} AS n WHERE n.entity_key = wanted.value AND {seen}"
            return list(self.repository.db.execute(
                f"SELECT {columns} FROM {VALUES}(?1) AS wanted JOIN {source} AS t ON t.rowid = ({newest} AND "
                f"n.commit_id <= ?2 ORDER BY n.commit_id DESC LIMIT 1) WHERE NOT t.{DELETED}",
                (given_list(key[0] for key in keys), commit)))
        same = " AND ".join(f"n.{key} = ?{number}" for number, key in enumerate(key_columns(info), 1))
        sql = (f"SELECT {columns} FROM {source} AS t WHERE t.rowid = (SELECT n.rowid FROM {source} AS n WHERE {same} "
               f"AND {seen} AND n.commit_id <= ?4 ORDER BY n.commit_id DESC LIMIT 1) AND NOT t.{DELETED}")
        padding = ("",) * (3 - len(info.keys))
        return [row for key in keys for row in self.repository.db.execute(sql, (*key, *padding, commit))]

    def chain(self, name: Name, key: Row, commit: int) -> Iterator[tuple[TypeInfo, StateOfKey]]:
        """All that was written for a key along the first parents of a commit, oldest first, by any schema version."""
        there = self.repository.holding(commit)
        seen = there.lineage.sees_row("t")
        found: list[tuple[TypeInfo, StateOfKey]] = []
        for version in there.schema_versions(*name):
            info = self.info(name, version.schema_version_id)
            columns = ", ".join(f"t.{quoted(column.column)}" for column in (*info.keys, *info.columns))
            same = " AND ".join(f"t.{column} = ?" for column in key_columns(info))
            rows: Any = self.repository.db.execute(
                f"SELECT t.commit_id, t.{DELETED}, {columns} FROM {self._source(info, version.schema_version_id)} AS t "
                f"WHERE {same} AND {seen} AND t.commit_id <= ?",
                (*key, *("",) * (len(key_columns(info)) - len(key)), commit))
            found += [(info, StateOfKey(row[0], None if row[1] else row[2:])) for row in rows]
        yield from sorted(found, key=lambda item: item[1].commit)

    def live_relations(self, info: TypeInfo, version: int, side: str, keys: Collection[Row], commit: int) -> list[Row]:
        """The keys of relations that lead to some entities at a commit."""
        source, lineage = self._source(info, version), self.repository.holding(commit).lineage
        names = ", ".join(f"t.{key}" for key in key_columns(info)[: len(info.keys)])
        same = " AND ".join(f"n.{key} = t.{key}" for key in key_columns(info))
        return list(self.repository.db.execute(
            f"SELECT {names} FROM {source} AS t WHERE t.{side}_key IN (SELECT value FROM {VALUES}(?1)) AND "
            f"{lineage.sees_row('t')} AND t.commit_id <= ?2 AND NOT t.{DELETED} AND NOT EXISTS (SELECT 1 FROM {source} "
            f"AS n WHERE {same} AND {lineage.sees_row('n')} AND n.commit_id <= ?2 AND n.commit_id > t.commit_id)",
            (given_list(key[0] for key in keys), commit)))

    def _table(self, info: TypeInfo, version: int) -> str:
        name: Any = self.repository.db.execute(
            "SELECT table_name FROM type_layout_catalog WHERE type_kind = ? AND type_name = ? AND "
            "schema_version_id = ? LIMIT 1", (info.kind, info.name, version)).get  # fmt: skip
        return f"main.{quoted(str(name))}"

    def _source(self, info: TypeInfo, version: int) -> str:
        table = self._table(info, version)
        plain = table.removeprefix('main."').removesuffix('"').replace('""', '"')
        if zeros.is_marked(self.repository.db, plain):
            return zeros.marked_source(info, plain, self.repository.row_columns)
        return table
