"""sqlite/v3: v2's tables, in which rows say on which branch they were written and whether they end their key.

A branch reads its own rows and those of its parent up to where it left that, which is its lineage; no row is ever
copied for a branch. A lineage never changes, so it stands in statements as constants.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from ontolake.history import Commit, Damage, Garbage
from ontolake.history.errors import ProtectedBranchError, UnknownBranchError
from ontolake.history.metadata import AUTHOR, MESSAGE
from ontolake.history.names import MAIN as MAIN_NAME
from ontolake.model.codecs import encode_datetime
from ontolake.model.schema import schema_of
from ontolake.model.stored import StoredType
from ontolake.model.types import Kind, TypeInfo, type_info
from ontolake.ontology.config import Config
from ontolake.ontology.errors import UnknownCommitError
from ontolake.ontology.query.compiler.latest import (
    ALONE,
    BRANCH,
    DELETED,
    MAIN,
    BranchLineage,
    Segment,
    newest_of,
    newest_row,
    not_superseded_on,
    quoted,
    scan_on,
)
from ontolake.ontology.query.compiler.statements import key_columns
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.branched import BranchedRepository, BranchRow, ErasureRecord, Names, TagRow
from ontolake.ontology.repository.metadata import metadata_text
from ontolake.ontology.repository.protocol import LiveRelation, Row, RowChange, SchemaVersion
from ontolake.ontology.repository.sqlite import control, deletions, names
from ontolake.ontology.repository.sqlite.beside import write_transaction
from ontolake.ontology.repository.sqlite.columns import ColumnReader, Moment, renew
from ontolake.ontology.repository.sqlite.erasure import SqliteErasure, note
from ontolake.ontology.repository.sqlite.scans import scans_of
from ontolake.ontology.repository.sqlite.states import SqliteStates
from ontolake.ontology.repository.sqlite.tables import create_table, elsewhere, successors, table_name
from ontolake.ontology.repository.sqlite.uniqueness import check_unique
from ontolake.ontology.repository.sqlite.v2 import Layout, SqliteRepositoryV2
from ontolake.ontology.repository.times import now_text, parse_time

if TYPE_CHECKING:
    import pyarrow as pa

LAYOUT = (
    "DROP TABLE commits",  # AUTOINCREMENT would have every commit write one page more, and no commit is ever removed
    """CREATE TABLE commits (
    id INTEGER PRIMARY KEY, created_at TEXT NOT NULL, metadata_json TEXT, branch_id INTEGER NOT NULL DEFAULT 0,
    parent_id INTEGER, second_parent_id INTEGER)""",
    """CREATE TABLE type_layout_catalog (
    type_kind TEXT NOT NULL, type_name TEXT NOT NULL, schema_version_id INTEGER NOT NULL, table_name TEXT NOT NULL,
    activation_commit_id INTEGER NOT NULL, is_current INTEGER NOT NULL DEFAULT 0,
    branch_id INTEGER NOT NULL DEFAULT 0, created_at TEXT NOT NULL DEFAULT (datetime('now')),
    PRIMARY KEY (type_kind, type_name, schema_version_id, branch_id))""",
    """CREATE TABLE branches (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, parent_id INTEGER, base_commit_id INTEGER NOT NULL,
    head_commit_id INTEGER NOT NULL, protected INTEGER NOT NULL DEFAULT 0, created_at TEXT NOT NULL, deleted_at TEXT,
    collected_at TEXT)""",
    "CREATE UNIQUE INDEX branches_by_name ON branches (name) WHERE deleted_at IS NULL",
    """CREATE TABLE tags (
    name TEXT PRIMARY KEY, commit_id INTEGER NOT NULL, message TEXT, created_at TEXT NOT NULL)""",
    """CREATE TABLE erasures (
    id INTEGER PRIMARY KEY AUTOINCREMENT, erased_at TEXT NOT NULL, author TEXT, reason TEXT NOT NULL,
    type_kind TEXT NOT NULL, type_name TEXT NOT NULL, rows INTEGER NOT NULL, salt TEXT NOT NULL,
    key_hash TEXT NOT NULL)""",
)
MANY = 1 << 62
"""More commits than a store can have."""
T = TypeVar("T")
_WRITTEN = "EXISTS (SELECT 1 FROM branches WHERE id > 0 AND head_commit_id <> base_commit_id)"
"""Whether another branch than the first has commits of its own, as SQL."""
_REMEMBERED = 100_000
"""So many commits are remembered with their branch before they are looked up anew."""


class SqliteRepositoryV3(SqliteRepositoryV2):
    """A typed store with deletions and branches, read and written on one branch."""

    engine_version = "v3"
    keeps_deletions = True
    keeps_branches = True
    keeps_unique = True
    row_columns = (BRANCH, DELETED)
    lineage: BranchLineage

    def __init__(self, db: apsw.Connection, uri: str, config: Config) -> None:
        self.lineage = MAIN
        self.branch_id = 0
        self._branch_of: dict[int, int] = {}
        self._views: dict[int, SqliteRepositoryV3] = {0: self}
        self._before: SqliteRepositoryV3 | None = None
        self._is_before = False
        self._aside = False
        """Whether this connection has begun to write on another branch than the first."""
        self._scans = scans_of(uri, config)
        super().__init__(db, uri, config)
        if config.branch != MAIN_NAME:
            row = self.branch_named(config.branch)
            if row is None:
                raise UnknownBranchError(config.branch)
            self.branch_id, self.lineage = row.id, self._lineage(row)
            self._views = {row.id: self}

    def start_afresh(self) -> None:
        super().start_afresh()
        self._head = 0
        self._whole: int | None = None
        self._without_deletions: frozenset[str] | None = None

    @property
    def seam_branch(self) -> str:
        return MAIN_NAME

    @classmethod
    def create_layout(cls, db: apsw.Connection) -> None:
        for statement in LAYOUT:
            db.execute(statement)
        db.execute("INSERT INTO branches (id, name, base_commit_id, head_commit_id, created_at) VALUES (0, ?, 0, 0, ?)",
                   (MAIN_NAME, now_text()))
        renew(db)

    @property
    def rows_seen(self) -> BranchLineage:
        """The lineage as conditions on rows have it. It is part of what is remembered of the layout."""
        if self._is_before:
            return ALONE
        return self.lineage if self.branch_id or self._unbranched() < MANY else ALONE

    def _unbranched(self) -> int:
        """The commit up to which this branch sees every commit of the store; `MANY` if no other branch has commits."""
        if self.branch_id:
            return self.lineage.whole
        if self._whole is None:
            least, written = self.db.execute(f"SELECT min(base_commit_id), {_WRITTEN} FROM branches WHERE id > 0").get
            self._whole = least if written or (self._aside and least is not None) else MANY
        return self._whole

    def _begin(self, owner: str) -> None:
        super()._begin(owner)
        if self.branch_id and not self._aside:  # from now on, the first branch may meet rows of another
            for view in self._views.values():
                view._aside = True
                view.forget()

    def forget_layout(self) -> None:
        super().forget_layout()
        self._whole = None
        self._without_deletions = None

    def _has_deletions(self, info: TypeInfo | StoredType) -> bool:
        """Whether the rows of a type may have deletions among them. It is part of what is remembered of the layout."""
        if self._without_deletions is None:
            self._without_deletions = deletions.tables_without(self.db)
        found = self.layout_of(info)
        return found is not None and found.table_name not in self._without_deletions

    # branches
    def branch_rows(self) -> list[BranchRow]:
        return names.branch_rows(self.db)

    def branch_named(self, name: str) -> BranchRow | None:
        return names.branch_named(self.db, name)

    def branch_row(self, id: int) -> BranchRow:
        return names.branch_row(self.db, id)

    def tag_rows(self) -> list[TagRow]:
        return names.tag_rows(self.db)

    def tag_named(self, name: str) -> TagRow | None:
        return names.tag_named(self.db, name)

    def change_names(self, change: Callable[[Names], T]) -> T:
        return names.change_names(self, change)

    def branch_of(self, commit: int) -> int:
        found = self._branch_of.get(commit)
        if found is None:
            row: Any = self.db.execute("SELECT branch_id FROM commits WHERE id = ?", (commit,)).get
            if row is None:
                raise UnknownCommitError(commit)
            if len(self._branch_of) >= _REMEMBERED:
                self._branch_of.clear()
            found = int(row)
            if self._transaction is None:  # else the commit may never come to be
                self._branch_of[commit] = found
        return found

    def _lineage(self, row: BranchRow) -> BranchLineage:
        segments = [Segment(row.id, None)]
        commit = row.base_commit_id
        while commit:
            branch = self.branch_of(commit)
            segments.append(Segment(branch, commit))
            commit = self.branch_row(branch).base_commit_id
        own = ", ".join(str(one.branch) for one in segments)
        others: Any = self.db.execute(f"SELECT min(base_commit_id) FROM branches WHERE id NOT IN ({own})").get
        until = segments[-1].until or 0
        return BranchLineage(tuple(segments), until if others is None else min(until, int(others)))

    def on(self, branch_id: int) -> SqliteRepositoryV3:
        found = self._views.get(branch_id)
        if found is None:
            row = self.branch_row(branch_id)
            found = copy.copy(self)
            vars(found).pop("events", None)
            found.branch_id, found.lineage = row.id, self._lineage(row)
            found._before, found._is_before = None, False
            found.start_afresh()
            self._views[branch_id] = found
        return found

    def _before_branches(self) -> SqliteRepositoryV3:
        """The same branch for questions about commits from before there were others: its rows need no looking at."""
        if self._before is None:
            found = copy.copy(self)
            vars(found).pop("events", None)
            found._is_before = True
            found.start_afresh()
            self._before = found
        return self._before

    def holding(self, commit: int) -> SqliteRepositoryV3:
        if not commit:
            return self
        branch = self.branch_of(commit)
        if self.lineage.place_of(branch, commit) is not None:
            return self
        row = self.branch_row(branch)
        if row.is_collected:
            raise UnknownCommitError(commit)
        return self.on(branch)

    def in_line(self, branch_id: int, commit: int) -> bool:
        return self.on(branch_id).lineage.place_of(self.branch_of(commit), commit) is not None

    def parents(self, commit: int) -> Sequence[int]:
        row: Any = self.db.execute("SELECT parent_id, second_parent_id FROM commits WHERE id = ?", (commit,)).fetchone()
        return tuple(one for one in row or () if one is not None)

    def commit_before(self, time: datetime, branch_id: int) -> int | None:
        seen = self.on(branch_id).lineage.sees("branch_id", "id")
        found: Any = self.db.execute(
            f"SELECT id FROM commits WHERE {seen} AND created_at <= ? ORDER BY id DESC LIMIT 1",
            (encode_datetime(time.astimezone(UTC)),)).get
        return None if found is None else int(found)

    @property
    def states(self) -> SqliteStates:
        return SqliteStates(self)

    def erasure(self, kind: Kind, name: str, key: Row, *, cascade: bool) -> SqliteErasure:
        return SqliteErasure(self, kind, name, key, cascade=cascade)

    def beyond_lines(self) -> Sequence[str]:
        db = self.db
        found = []
        if db.execute("SELECT count(*) FROM branches").get != 1:
            found.append("branches")
        if db.execute("SELECT count(*) FROM tags").get:
            found.append("tags")
        tables: Any = db.execute("SELECT type_name, table_name FROM type_layout_catalog ORDER BY 1").fetchall()
        gone = [name for name, table in tables
                if db.execute(f"SELECT 1 FROM main.{quoted(table)} WHERE {DELETED} LIMIT 1").get]
        unique = [name for (_, name), one in sorted(self.schemas().items()) if one.schema.get("unique")]
        return [*found, *(f"deleted rows of {name}" for name in dict.fromkeys(gone)),
                *(f"unique fields of {name}" for name in unique)]

    def on_branch(self, name: str) -> SqliteRepositoryV3:
        row = self.branch_named(name)
        if row is None:
            raise UnknownBranchError(name)
        return self.on(row.id)

    def resolve(self, ref: str | datetime) -> int:
        from ontolake.ontology.history.references import TypedRefs

        return TypedRefs(self).resolve(ref).commit

    # commits
    def head(self) -> int:
        return int(self.db.execute("SELECT head_commit_id FROM branches WHERE id = ?", (self.branch_id,)).get or 0)

    def insert_commit(
        self, commit_id: int, metadata: Mapping[str, Any], created_at: datetime | None = None,
        merged: int | None = None,
    ) -> None:  # fmt: skip
        head = self._head
        while not self._moved(head, commit_id, merged):  # it is what it was after the last commit, unless others wrote
            row = self.branch_row(self.branch_id)
            if row.is_deleted:
                raise UnknownBranchError(row.name, hint="it was deleted meanwhile")
            if row.protected and merged is None:
                raise ProtectedBranchError(row.name)
            head = row.head_commit_id
        self._head = commit_id
        self.db.execute(
            "INSERT INTO commits (id, created_at, metadata_json, branch_id, parent_id, second_parent_id) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (commit_id, now_text() if created_at is None else encode_datetime(created_at),
             metadata_text(metadata) if metadata else None, self.branch_id, head or None, merged))

    def _moved(self, head: int, commit_id: int, merged: int | None) -> bool:
        """Move the head of the branch to a commit if it is `head` now, and the branch may be written to."""
        self.db.execute("UPDATE branches SET head_commit_id = ?1 WHERE id = ?2 AND head_commit_id = ?3 AND "
                        "deleted_at IS NULL AND (NOT protected OR ?4 IS NOT NULL)",
                        (commit_id, self.branch_id, head, merged))
        return bool(self.db.changes())

    def commits(self, *, since: int = 0, until: int | None = None, limit: int | None = None) -> Iterator[Commit[int]]:
        seen = self.lineage.sees("branch_id", "id")
        rows: list[Any] = self.db.execute(
            f"SELECT id, created_at, metadata_json, parent_id, second_parent_id FROM commits WHERE id > ?1 AND "
            f"(?2 IS NULL OR id <= ?2) AND {seen} ORDER BY id DESC LIMIT ?3",
            (since, until, -1 if limit is None else limit)).fetchall()
        return map(commit_of, rows)

    def commit(self, id: int) -> Commit[int]:
        """One commit, on whichever branch. Raises `UnknownCommitError`."""
        row: Any = self.db.execute("SELECT id, created_at, metadata_json, parent_id, second_parent_id FROM commits "
                                   "WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise UnknownCommitError(id)
        return commit_of(row)

    def commit_changes(self, commit_id: int, info: TypeInfo) -> Iterator[RowChange]:
        there = self.holding(commit_id)
        return super().commit_changes(commit_id, info) if there is self else there.commit_changes(commit_id, info)

    # schemas, which are those of the lineage
    def shape_now(self) -> object:
        return (control.shape(self.db), self.db.execute(
            "SELECT count(*), max(activation_commit_id), "
            f"{_WRITTEN}, (SELECT count(*) FROM storage_meta) FROM type_layout_catalog").fetchone())

    def current_layouts(self) -> Mapping[tuple[Kind, str], Layout]:
        self.refresh()
        if self._layouts is None:
            self._every = self.catalog()
            known = set(self.db.execute("SELECT type_kind, type_name FROM schema_registry"))
            ordered = sorted(self._every, key=lambda one: one.activation_commit_id)
            self._layouts = {(one.type_kind, one.type_name): one._replace(is_current=True) for one in ordered
                             if (one.type_kind, one.type_name) in known}
        return self._layouts

    def catalog(self) -> list[Layout]:
        """The versions of the types that the branch sees, in order."""
        rows: Any = self.db.execute(
            f"""SELECT type_kind, type_name, schema_version_id, table_name, activation_commit_id, is_current
            FROM type_layout_catalog WHERE {self.lineage.sees('branch_id', 'activation_commit_id')}
            ORDER BY type_kind, type_name, activation_commit_id""")
        # The last one counts where a branch took a version over that its parent has too.
        found = {row[:3]: Layout(row[0], row[1], row[2], row[3], row[4], False) for row in rows}
        last = {(one.type_kind, one.type_name): one for one in found.values()}
        known = set(self.db.execute("SELECT type_kind, type_name FROM schema_registry"))
        return sorted(one._replace(is_current=last[one[:2]] is one and one[:2] in known) for one in found.values())

    def schemas(self) -> Mapping[tuple[Kind, str], SchemaVersion]:
        self.refresh()
        if self._schemas is None:
            self._schemas = {name: next(one for one in control.schema_versions(self.db, *name)
                                        if one.schema_version_id == layout.schema_version_id)
                             for name, layout in self.current_layouts().items()}
            self._dropped = control.dropped_types(self.db)
        return self._schemas

    def schema_versions(self, kind: Kind, name: str) -> Sequence[SchemaVersion]:
        seen = {one.schema_version_id for one in self.catalog() if one[:2] == (kind, name)}
        return [one for one in control.schema_versions(self.db, kind, name) if one.schema_version_id in seen]

    def commit_ids(self) -> Collection[int]:
        return {id for (id,) in self.db.execute("SELECT id FROM commits")}

    def every_version(self, kind: Kind, name: str) -> Sequence[SchemaVersion]:
        return control.schema_versions(self.db, kind, name)

    def check(self) -> Iterator[Damage]:
        from ontolake.ontology.repository.sqlite.branch_checks import check_branches

        yield from super().check()
        yield from check_branches(self)

    def erasures(self) -> list[ErasureRecord]:
        rows: Any = self.db.execute("SELECT erased_at, author, reason, type_kind, type_name, rows, salt, key_hash "
                                    "FROM erasures ORDER BY rowid")
        return [ErasureRecord(*row) for row in rows]

    def note_erasures(self, records: Sequence[ErasureRecord]) -> None:
        self.check_writable()
        with write_transaction(self.db, self.uri):
            note(self.db, records)

    def gc(self, *, dry_run: bool = True) -> Garbage:
        from ontolake.ontology.repository.sqlite.branch_garbage import collect

        return collect(self, dry_run=dry_run)

    def new_version(self, info: TypeInfo, reason: str, commit_id: int) -> int:
        """The type may be known on other branches: one schema has one version, however many branches have it."""
        known = control.schema_versions(self.db, info.kind, info.name)
        version = next((one.schema_version_id for one in known if one.schema_hash == info.schema_hash), None)
        if version is None:
            version = 1 + max((one.schema_version_id for one in known), default=0)
            control.put_schema(self.db, schema_of(info.cls), version, reason, self.runtime_id)
        self.activate(info, version, commit_id)
        return version

    def activate(self, info: TypeInfo, version: int, commit_id: int) -> Layout:
        name: Any = self.db.execute(
            "SELECT table_name FROM type_layout_catalog WHERE type_kind = ? AND type_name = ? AND "
            "schema_version_id = ? LIMIT 1", (info.kind, info.name, version)).get  # fmt: skip
        if name is None:
            name = table_name(self.db, info.kind, info.name, version)
            create_table(self.db, name, info, branched=True)
            deletions.note_none(self.db, name)
        self.db.execute("UPDATE type_layout_catalog SET is_current = 0 WHERE type_kind = ? AND type_name = ? "
                        "AND branch_id = ?", (info.kind, info.name, self.branch_id))
        self.db.execute(
            """INSERT INTO type_layout_catalog (type_kind, type_name, schema_version_id, table_name,
            activation_commit_id, is_current, branch_id) VALUES (?, ?, ?, ?, ?, 1, ?)""",
            (info.kind, info.name, version, name, commit_id, self.branch_id))
        self.forget()
        return Layout(info.kind, info.name, version, name, commit_id, True)

    # reading
    def run(self, plan: Plan, values: Values) -> Iterator[Row]:
        if values.as_of is not None and not self._is_before:
            if values.as_of <= self._unbranched() < MANY:
                return self._before_branches().run(plan, values)
            there = self.holding(values.as_of)
            if there is not self:
                return there.run(plan, values)
        return super().run(plan, values)

    def run_arrow(self, plan: Plan, values: Values) -> pa.Table:
        found = self._scanned(plan, values)
        return super().run_arrow(plan, values) if found is None else found

    def _scanned(self, plan: Plan, values: Values) -> pa.Table | None:
        """The answer to a full scan of a big table, if it can be given from columns."""
        whole = Plan(plan.root, relations=plan.relations, history=plan.history, as_of=plan.as_of,
                     deletions=plan.deletions)
        if self._scans is None or plan != whole or self._transaction is not None:
            return None
        with self.reading():
            there = self if values.as_of is None else self.holding(values.as_of)
            if there is not self:
                return there.run_arrow(plan, values)
            info = type_info(plan.root)
            self.head()  # what follows is of the moment at which reading has begun
            self.refresh()
            layout = self.layout_of(info)
            if layout is None:
                return None
            reader = ColumnReader(self.db, layout.table_name, self.source(info), info, self.config.sizes.batch_rows)
            until = Moment(self.lineage).until if values.as_of is None else values.as_of
            return self._scans.scan(reader, layout.table_name, info.all_columns,
                                    Moment(self.lineage, until, plan.history, plan.deletions))

    def drop_columns(self) -> None:
        """Remove what is kept beside the store, after rows were removed from it."""
        if self._scans is not None:
            self._scans.drop()

    def latest(self, info: TypeInfo | StoredType, alias: str, as_of: str | None) -> str:
        found = self.layout_of(info)
        if found is None:
            return f"{as_of} IS NULL" if as_of else "0"  # nothing; but a bound must be mentioned
        return not_superseded_on(alias, self.rows_seen, successors(found.table_name), as_of,
                                 deletions=self._has_deletions(info))

    def scan(
        self, info: TypeInfo | StoredType, alias: str, as_of: str | None, *, filtered: bool = False
    ) -> tuple[str, str]:  # fmt: skip
        found = self.layout_of(info)
        if found is None:
            return super().scan(info, alias, as_of, filtered=filtered)
        return scan_on(alias, f"{self.source(info)} AS {alias}", self.rows_seen, successors(found.table_name), as_of,
                       deletions=self._has_deletions(info), filtered=filtered)

    def latest_of(self, info: TypeInfo, alias: str, key: str, as_of: str | None) -> str:
        return newest_of(alias, self.source(info), [("entity_key", key)], as_of, self.rows_seen,
                         deletions=self._has_deletions(info))

    def visible(self, info: TypeInfo, alias: str) -> str | None:
        return self.rows_seen.sees_row(alias) if self.rows_seen.segments else None

    def deleted(self, info: TypeInfo | StoredType, alias: str) -> str | None:
        return f"{alias}.{DELETED}" if self._has_deletions(info) else None

    # writing
    def newest(self, info: TypeInfo | StoredType, keys: Sequence[str]) -> str:
        return newest_row(self.source(info), list(zip(key_columns(info), keys, strict=True)), self.rows_seen)

    def over(self, table: str) -> tuple[str, str]:
        return (elsewhere(table), f", {self.branch_id}") if self.branch_id else super().over(table)

    def stamps(self) -> Mapping[str, str]:
        return {BRANCH: str(self.branch_id)} if self.branch_id else {}

    def delete_keys(
        self, info: TypeInfo | StoredType, version: int, commit_id: int, keys: Collection[Row]
    ) -> int:  # fmt: skip
        return deletions.delete_keys(self, info, version, commit_id, keys)

    def keys_besides(self, info: TypeInfo, keys: Collection[Row]) -> list[Row]:
        return deletions.keys_besides(self, info, keys)

    def check_unique(self, info: TypeInfo, commit_id: int) -> None:
        check_unique(self, info, commit_id)

    def relations_of(self, info: TypeInfo, keys: Collection[Row]) -> list[LiveRelation]:
        return deletions.relations_of(self, info, keys)


def commit_of(row: Any) -> Commit[int]:
    """A commit from a row of `commits`: id, time, metadata, both parents."""
    id, created_at, text, parent, second = row
    metadata = control.metadata_of(text)
    author, message = metadata.get(AUTHOR), metadata.get(MESSAGE)
    return Commit(id, tuple(one for one in (parent, second) if one is not None), parse_time(created_at), author,
                  metadata, message if isinstance(message, str) else None)


if TYPE_CHECKING:

    def is_branched(repository: SqliteRepositoryV3) -> BranchedRepository:
        """Checked by mypy: the class has all that the protocol asks for."""
        return repository
