"""A commit in the making on SQLite: one transaction, in which rows are compared with the latest state and written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake import faults
from ontolake.model.schema import schema_of
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo, type_info, unstorable
from ontolake.ontology.errors import TypeDroppedError
from ontolake.ontology.query.compiler.latest import quoted
from ontolake.ontology.query.compiler.statements import key_columns
from ontolake.ontology.repository.features import check_kept
from ontolake.ontology.repository.protocol import LiveRelation, Row
from ontolake.ontology.repository.sqlite import control
from ontolake.ontology.repository.sqlite.events import apply_queue
from ontolake.ontology.repository.sqlite.stage import discard_unchanged, stage, staged_key
from ontolake.ontology.repository.times import now_text

if TYPE_CHECKING:
    from ontolake.ontology.events.records import QueueChange
    from ontolake.ontology.repository.sqlite.base import SqliteRepository
    from ontolake.parallel import Fragment

InsertOne = Callable[[int, Row, int | None], None]


class OneByOne(NamedTuple):
    """SQL that finds the latest row of a key, and what writes a row."""

    find: str
    insert: InsertOne


class SqliteTransaction:
    """A commit in the making: one SQLite transaction."""

    def __init__(self, repository: SqliteRepository) -> None:
        self._repository = repository
        self._db = repository.db
        self._commit_id: int | None = None
        self._began = now_text()
        self._versions: dict[TypeInfo, int] = {}
        self.merged: int | None = None
        """The second parent of a merge."""
        self.created_at: datetime | None = None
        """When the commit was made, if it is a copy of one; else now."""

    @property
    def commit_id(self) -> int:
        if self._commit_id is None:
            last = self._repository.last_commit
            self._commit_id = control.next_commit(self._db) if last is None else last + 1
        return self._commit_id

    def register(self, info: TypeInfo, *, reason: str = "initial") -> int:
        version = self._versions.get(info)
        if version is None:
            repository = self._repository
            check_kept(repository, [info])
            known = repository.current_version(info)
            if known is None:
                if (info.kind, info.name) in repository.dropped():
                    raise TypeDroppedError(info.name)
                known = repository.new_version(info, reason, self.commit_id)
                repository.forget()
            version = self._versions[info] = known
        return version

    def reconcile(self, info: TypeInfo, rows: Collection[Row]) -> int:
        version = self.register(info)
        self._repository.prepare(info, version, self.commit_id)
        work = reconcile_few if len(rows) <= self._repository.config.sizes.single_rows else reconcile
        try:
            return work(self._repository, info, version, self.commit_id, rows)
        except UnicodeEncodeError:
            raise unstorable(info, rows) from None

    def delete(self, info: TypeInfo | StoredType, keys: Collection[Row]) -> int:
        version = self._repository.current_version(info)
        if not keys or version is None:
            return 0
        return self._repository.delete_keys(info, version, self.commit_id, keys)

    def keys_besides(self, info: TypeInfo, keys: Collection[Row]) -> Sequence[Row]:
        return self._repository.keys_besides(info, keys)

    def relations_of(self, info: TypeInfo, keys: Collection[Row]) -> Sequence[LiveRelation]:
        return self._repository.relations_of(info, keys)

    def missing_endpoints(self, info: TypeInfo, *, limit: int = 10) -> Sequence[tuple[str, Any, Row]]:
        found: list[tuple[str, Any, Row]] = []
        repository = self._repository
        for side, end in (("left", info.left), ("right", info.right)):
            entities, same = repository.source(type_info(end)), repository.key("r", f"{side}_key")
            there = f"{repository.key('e', 'entity_key')} = {same}"
            written = "r.commit_id = ?"
            if repository.keeps_deletions:
                there += f" AND {repository.latest_of(type_info(end), 'e', same, None)}"
                deleted = repository.deleted(info, "r")
                written += f" AND NOT {deleted}" if deleted else ""
            rows = self._db.execute(
                f"SELECT r.{side}_key, r.left_key, r.right_key FROM {repository.source(info)} AS r "
                f"WHERE {written} AND NOT EXISTS (SELECT 1 FROM {entities} AS e WHERE {there}) LIMIT ?",
                (self.commit_id, limit))  # fmt: skip
            found += [(side, key, (left, right)) for key, left, right in rows]
        return found[:limit]

    def rewrite(self, info: TypeInfo, version: int, rows: Iterable[Row]) -> int:
        repository = self._repository
        check_kept(repository, [info])
        with stage(self._db, info, rows, "NULL", repository.staged) as table:
            faults.reach("ontology: rewritten rows staged")
            known = {one.schema_version_id for one in repository.every_version(info.kind, info.name)}
            if version not in known:
                control.put_schema(self._db, schema_of(info.cls), version, "migration", repository.runtime_id)
            repository.forget()
            repository.switch(info, version, self.commit_id)
            self._versions[info] = version
            return repository.write_staged(info, version, self.commit_id, table)

    def attach(self, info: TypeInfo, fragments: Sequence[Fragment]) -> int | None:
        return None

    def finish(self, metadata: Mapping[str, Any], *, queue: QueueChange | None = None) -> int:
        for info in self._versions:
            if info.unique:
                self._repository.check_unique(info, self.commit_id)
        self._repository.insert_commit(self.commit_id, metadata, self.created_at, self.merged)
        if queue is not None:
            self._change_queue(queue, self.commit_id)
        faults.reach("ontology: commit written, not yet durable")
        self._end(self.commit_id)
        return self.commit_id

    def finish_queue(self, queue: QueueChange) -> None:
        self._change_queue(queue, None)
        self._end(None)

    def _change_queue(self, queue: QueueChange, commit_id: int | None) -> None:
        self._repository.events.prepare()
        apply_queue(self._db, queue, commit_id, self._began)

    def _end(self, commit_id: int | None) -> None:
        self._repository.lock.keep()
        self._db.execute("COMMIT")
        self._repository.committed(commit_id)
        faults.reach("ontology: commit durable")


def reconcile(
    repository: SqliteRepository, info: TypeInfo, version: int, commit_id: int, rows: Collection[Row]
) -> int:  # fmt: skip
    """Write the rows that differ from the latest state: one staging, one comparison, one insert."""
    newest = repository.newest(info, [staged_key(info, key) for key in key_columns(info)])
    with stage(repository.db, info, rows, newest, repository.staged) as table:
        faults.reach("ontology: rows staged")
        discard_unchanged(repository.db, info, repository.source(info), table, repository.deleted(info, "old"))
        written = repository.write_staged(info, version, commit_id, table)
        faults.reach("ontology: rows written")
        return written


def reconcile_few(
    repository: SqliteRepository, info: TypeInfo, version: int, commit_id: int, rows: Collection[Row]
) -> int:  # fmt: skip
    """The same for so few rows that staging them would take longer than looking at each."""
    find, insert = repository.one_by_one(info, version)
    width, written = len(info.keys), 0
    padding = ("",) * (len(key_columns(info)) - width)
    for row in rows:
        found: Any = repository.db.execute(find, row[:width] + padding).fetchone()
        if found is None or found[1] or not _same(info, found[2:], row[width:]):
            insert(commit_id, row, None if found is None else found[0])
            written += 1
    faults.reach("ontology: rows written")
    return written


def find_latest(repository: SqliteRepository, info: TypeInfo) -> str:
    """SQL for the place of the latest row of a key, which is bound, whether it is a deletion, and its fields."""
    newest = repository.newest(info, [f"?{n}" for n in range(1, len(key_columns(info)) + 1)])
    deleted = repository.deleted(info, "t") or "0"
    fields = ", ".join(["t.rowid", deleted, *(f"t.{quoted(column.column)}" for column in info.columns)])
    return f"SELECT {fields} FROM {repository.source(info)} AS t WHERE t.rowid = {newest}"


def _same(info: TypeInfo, old: Row, new: Row) -> bool:
    if old == new:
        return True
    return all(
        column.type.same(one, two) for column, one, two in zip(info.columns, old, new, strict=True)
    )
