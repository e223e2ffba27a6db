"""What both SQLite engines share: one connection, transactions under the write lock, commits, schemas, reading.

An engine adds where rows of a type are (`source`), how they get there (`_write`), and what it keeps of its layout.
"""

from __future__ import annotations

import contextlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import apsw

from ontolake import urls
from ontolake.history import Commit, Damage, Garbage
from ontolake.model.schema import schema_of
from ontolake.model.stored import StoredType
from ontolake.model.types import Kind, TypeInfo, type_info
from ontolake.ontology.config import Config
from ontolake.ontology.errors import HeadMismatchError, LayoutLacksError, StorageBackendError, UnknownCommitError
from ontolake.ontology.query.compiler.failures import query_failure
from ontolake.ontology.query.compiler.functions import install
from ontolake.ontology.query.compiler.latest import newest_of
from ontolake.ontology.query.compiler.statements import Statement, columns_of, compile_plan, key_columns
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.arrow import arrow_table
from ontolake.ontology.repository.protocol import Lease, LiveRelation, Row, RowChange, SchemaVersion
from ontolake.ontology.repository.single_line import SingleLine
from ontolake.ontology.repository.sqlite import checks as sqlite_checks
from ontolake.ontology.repository.sqlite import control
from ontolake.ontology.repository.sqlite.events import SqliteEventStore
from ontolake.ontology.repository.sqlite.failures import ours
from ontolake.ontology.repository.sqlite.lock import WriteLock
from ontolake.ontology.repository.sqlite.transaction import InsertOne, OneByOne, SqliteTransaction, find_latest
from ontolake.ontology.repository.versions import version_for

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.ontology.repository.jobs import CommitLog, FileJobs, ParquetView
    from ontolake.ontology.repository.ranges import KeyRange
    from ontolake.parallel import Shape, Split, View


class Closed:
    """What stands in place of a connection that was closed: it says so to whoever uses it."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def __getattr__(self, name: str) -> Any:
        raise StorageBackendError(f"{self._uri!r} was closed", hint="open a new session")


class SqliteRepository(SingleLine, ABC):
    """A typed store in a SQLite database, whichever engine version it has."""

    backend = "sqlite"
    takes_columns = False
    seen_head = 0
    engine_version: str

    def __init__(self, db: apsw.Connection, uri: str, config: Config) -> None:
        self.db = db
        self.uri = uri
        self.config = config
        self.runtime_id = uuid.uuid4().hex
        self.start_afresh()
        self.lock = WriteLock(db, uri, config, self.seam_branch)
        install(db)
        # Otherwise SQLite plans a statement anew whenever other values are bound to it.
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        db.set_busy_timeout(int(config.lock_timeout * 1000))
        db.execute("PRAGMA temp_store = MEMORY")

    def start_afresh(self) -> None:
        """Remember nothing of the store, as when it was just opened."""
        self._statements: dict[Plan, Statement] = {}
        self._one_by_one: dict[TypeInfo, OneByOne] = {}
        self._schemas: dict[tuple[Kind, str], SchemaVersion] | None = None
        self._dropped: set[tuple[Kind, str]] = set()
        self._shape: object = None
        self._seen: object = None
        self.last_commit: int | None = None
        """The newest commit, if it was ours and nobody has written since."""
        self.staged: set[str] = set()
        self._transaction: SqliteTransaction | None = None

    @property
    def seam_branch(self) -> str:
        """The branch of the pages below the store, if it is on pages."""
        return self.config.branch

    # the engine's part
    @classmethod
    @abstractmethod
    def create_layout(cls, db: apsw.Connection) -> None:
        """Make the engine's own tables in a new store, inside the caller's transaction."""

    @abstractmethod
    def source(self, info: TypeInfo | StoredType) -> str:
        """SQL of something with the key columns, `commit_id`, `rowid` and the fields of a type as columns."""

    @abstractmethod
    def prepare(self, info: TypeInfo, version: int, commit_id: int) -> None:
        """See to it that rows of a version can be written, inside a transaction."""

    @abstractmethod
    def switch(self, info: TypeInfo, version: int, commit_id: int) -> None:
        """Make a version the current one, inside a transaction. Its schema is registered."""

    @abstractmethod
    def key(self, alias: str, column: str) -> str:
        """SQL of a key column in the form in which it is indexed."""

    @abstractmethod
    def key_column(self, column: str) -> str:
        """The name of that form of a key column."""

    @abstractmethod
    def latest(self, info: TypeInfo | StoredType, alias: str, as_of: str | None) -> str:
        """A condition on a row of `source`: it is the latest of its key, up to a bound."""

    def scan(
        self, info: TypeInfo | StoredType, alias: str, as_of: str | None, *, filtered: bool = False
    ) -> tuple[str, str]:  # fmt: skip
        """What a statement that looks at all rows of a type reads from, and the same condition.

        `filtered` says that it asks more of a row, which few rows may pass.
        """
        return f"{self.source(info)} AS {alias}", self.latest(info, alias, as_of)

    def latest_of(self, info: TypeInfo, alias: str, key: str, as_of: str | None) -> str:
        """The same for an entity whose key is given as SQL."""
        return newest_of(alias, self.source(info), [(self.key_column("entity_key"), key)], as_of)

    def visible(self, info: TypeInfo, alias: str) -> str | None:
        """A condition on a row of `source`: it is part of the history that is read. None if all rows are."""
        return None

    def deleted(self, info: TypeInfo | StoredType, alias: str) -> str | None:
        """Whether a row of `source` is a deletion, as SQL; None if none is."""
        return None

    @abstractmethod
    def newest(self, info: TypeInfo | StoredType, keys: Sequence[str]) -> str:
        """SQL for the place of the latest row of a key, which is given as SQL."""

    @abstractmethod
    def insert_one(self, info: TypeInfo, version: int) -> InsertOne:
        """What writes one row: it takes the commit, the row, and where the latest row of its key is."""

    @abstractmethod
    def write_staged(self, info: TypeInfo, version: int, commit_id: int, stage: str) -> int:
        """Write the rows of `stage`, and return how many."""

    @abstractmethod
    def activation(self, info: TypeInfo) -> int: ...

    @abstractmethod
    def activations(self, kind: Kind, name: str) -> Mapping[int, int]: ...

    @abstractmethod
    def forget_layout(self) -> None:
        """Let go of what is remembered of the layout: it may have changed."""

    @abstractmethod
    def drop_layout(self, kind: Kind, name: str) -> None:
        """Make the rows of a type unreachable, inside a transaction."""

    def storage_info(self) -> dict[str, Any]:
        location = urls.parse(self.uri)
        local = location.place in (urls.Place.SQLITE, urls.Place.PAGE_FILE)
        return {"backend": self.backend, "engine_version": self.engine_version,
                "db_path": location.path if local else self.uri}

    # what others may have changed
    def state(self) -> object:
        # The pragma, not the file control of the same name: only the pragma looks at the file.
        return self.db.execute("PRAGMA data_version").get

    def refresh(self) -> None:
        """Look again at schemas and layout if another connection has committed a change of them."""
        if self._transaction is None:  # else nobody but us can have
            self.state()
            self._look()

    def _look(self) -> bool:
        """Whether schemas and layout are what they were, as of what was read last. Else forget what we knew."""
        # This number costs nothing to ask for, and changes with every commit, but only reading brings it up to date.
        seen = self.db.data_version()
        if seen == self._seen:
            return True
        shape = self.shape_now()
        same = shape == self._shape
        if not same:
            self.forget()
        self._shape, self._seen, self.last_commit = shape, self.db.data_version(), None
        return same

    def shape_now(self) -> object:
        """Something that differs once a schema, a layout or the set of types has changed."""
        return control.shape(self.db)

    def forget(self) -> None:
        self._schemas = None
        self.staged.clear()
        self._statements.clear()
        self._one_by_one.clear()
        self.forget_layout()

    # schemas
    def schemas(self) -> Mapping[tuple[Kind, str], SchemaVersion]:
        self.refresh()
        if self._schemas is None:
            self._schemas = control.current_schemas(self.db)
            self._dropped = control.dropped_types(self.db)
        return self._schemas

    def schema_versions(self, kind: Kind, name: str) -> Sequence[SchemaVersion]:
        return control.schema_versions(self.db, kind, name)

    def dropped(self) -> Collection[tuple[Kind, str]]:
        self.schemas()
        return self._dropped

    def current_version(self, info: TypeInfo | StoredType) -> int | None:
        """The current version of a type if it is that of the code; None for a type that is not known (any more).

        Raises `SchemaOutdatedError` if the store has another schema.
        """
        return version_for(info, self.schemas().get((info.kind, info.name)))

    def drop_type(self, kind: Kind, name: str, *, at: int | None = None) -> None:
        with self.transaction(self.runtime_id):
            if at is not None and self.head() != at:
                raise HeadMismatchError(f"commit {self.head()} came after commit {at}", hint="look again")
            if not control.is_registered(self.db, kind, name):  # on whichever branch
                raise StorageBackendError(f"there is no {kind} type {name} in {self.uri!r}",
                                          hint="storage_info() and onto schema history list the types")
            control.unregister(self.db, kind, name)
            self.drop_layout(kind, name)
            self.db.execute("COMMIT")
            self.forget()

    # writing
    @contextlib.contextmanager
    def transaction(self, owner: str) -> Iterator[SqliteTransaction]:
        with ours(self.uri):
            self._begin(owner)
            try:
                self._look()
                current = self._transaction = SqliteTransaction(self)
                yield current
            finally:
                self._transaction = None
                if not self.db.get_autocommit():
                    self.db.execute("ROLLBACK")
                    self.forget()

    def _begin(self, owner: str) -> None:
        """Begin a write transaction while nobody else holds the write lock."""
        self.check_writable()
        self.db.get_autocommit()  # raises once closed
        self.lock.begin(owner)

    def check_writable(self) -> None:
        """Raise `StorageBackendError` if this store was opened for reading only."""
        if self.config.readonly:
            raise StorageBackendError(f"{self.uri!r} is open for reading only", hint="open it without readonly")

    def acquire_lease(self, owner: str) -> Lease:
        self.check_writable()
        return self.lock.acquire(owner)

    def renew_lease(self, owner: str) -> Lease:
        return self.lock.renew(owner)

    def release_lease(self, owner: str) -> None:
        self.lock.release(owner)

    @cached_property
    def events(self) -> SqliteEventStore:
        """The queue of events."""
        return SqliteEventStore(self)

    # reading
    def one_by_one(self, info: TypeInfo, version: int) -> OneByOne:
        """How single rows of a type are found and written."""
        found = self._one_by_one.get(info)
        if found is None:
            found = self._one_by_one[info] = OneByOne(find_latest(self, info), self.insert_one(info, version))
        return found

    def committed(self, commit_id: int | None) -> None:
        """Our own commit changed no schema that we do not know of, so there is nothing to look at again."""
        self._seen, self.last_commit = self.db.data_version(), commit_id

    def head(self) -> int:
        return control.head(self.db)

    def highest(self) -> int:
        return control.head(self.db)

    def new_version(self, info: TypeInfo, reason: str, commit_id: int) -> int:
        """Make a type known that is not, inside a transaction. Returns its schema version."""
        control.put_schema(self.db, schema_of(info.cls), 1, reason, self.runtime_id)
        return 1

    def insert_commit(
        self, commit_id: int, metadata: Mapping[str, Any], created_at: datetime | None = None,
        merged: int | None = None,
    ) -> None:  # fmt: skip
        """Write a commit, inside a transaction. `merged` is the second parent of a merge."""
        control.insert_commit(self.db, commit_id, metadata, created_at)

    def delete_keys(self, info: TypeInfo | StoredType, version: int, commit_id: int, keys: Collection[Row]) -> int:
        """End these keys as far as they are there, inside a transaction. Returns how many were."""
        raise LayoutLacksError("deletions", self.uri, self.engine_version)

    def keys_besides(self, info: TypeInfo, keys: Collection[Row]) -> list[Row]:
        """The keys that are there and are not among these."""
        raise LayoutLacksError("deletions", self.uri, self.engine_version)

    def relations_of(self, info: TypeInfo, keys: Collection[Row]) -> list[LiveRelation]:
        """The relations of all types that lead to one of these entities."""
        raise LayoutLacksError("deletions", self.uri, self.engine_version)

    def check_unique(self, info: TypeInfo, commit_id: int) -> None:
        """Raise `UniqueFieldError` if a commit gave a row a value of another."""
        raise LayoutLacksError("unique fields", self.uri, self.engine_version)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        if not self.db.get_autocommit():
            yield
            return
        self.db.execute("BEGIN")
        try:
            yield
        finally:
            if not self.db.get_autocommit():
                self.db.execute("COMMIT")

    def run(self, plan: Plan, values: Values) -> Iterator[Row]:
        while True:
            statement = self._statements.get(plan)
            if statement is None:
                self.refresh()
                statement = self._statements[plan] = compile_plan(plan, self)
            parameters = statement.parameters(values)
            try:
                found: Iterator[Row] = self.db.execute(statement.sql, parameters)
                if statement.marked:
                    found = iter([row[:-1] for row in found if not row[-1]])
                if plan.output != "rows":
                    found = iter([*found])
            except (apsw.SQLError, apsw.TooBigError, UnicodeEncodeError) as error:
                raise query_failure(error) from error
            # Reading has begun: was anything committed since the statement was made?
            if self._transaction is not None or self._look():
                return found
            del found

    def run_arrow(self, plan: Plan, values: Values) -> pa.Table:
        return arrow_table(type_info(plan.root).all_columns, self.run(plan, values), self.config.sizes.batch_rows,
                           deletions=plan.deletions)

    def read_stored(self, stored: StoredType) -> Iterator[Row]:
        return self.db.execute(self._stored_sql(stored, columns_of(stored, "t")) + " ORDER BY t.rowid")

    def count_stored(self, stored: StoredType) -> int:
        return int(self.db.execute(self._stored_sql(stored, "count(*)")).get or 0)

    def arrow_stored(self, stored: StoredType) -> pa.Table:
        table = arrow_table(stored.all_columns, self.read_stored(stored), self.config.sizes.batch_rows)
        return table.drop_columns([table.column_names[-1]])

    def _stored_sql(self, stored: StoredType, columns: str) -> str:
        self.refresh()
        source, latest = self.scan(stored, "t", None)
        return f"SELECT {columns} FROM {source} WHERE {latest}"

    def commits(self, *, since: int = 0, until: int | None = None, limit: int | None = None) -> Iterator[Commit[int]]:
        return control.commits(self.db, since, until, limit)

    def commit(self, id: int) -> Commit[int]:
        for found in self.commits(since=id - 1, until=id):
            return found
        raise UnknownCommitError(id)

    def commit_changes(self, commit_id: int, info: TypeInfo) -> Iterator[RowChange]:
        self.refresh()
        source = self.source(info)
        same, prior = (" AND ".join(f"{self.key(alias, key)} = {self.key('new', key)}" for key in key_columns(info))
                       for alias in ("old", "prior"))
        visible = self.visible(info, "prior")
        previous = (f"(SELECT max(prior.commit_id) FROM {source} AS prior WHERE {prior} AND "
                    f"prior.commit_id < new.commit_id{f' AND {visible}' if visible else ''})")
        deleted, was_deleted = (self.deleted(info, alias) or "0" for alias in ("new", "old"))
        rows = self.db.execute(
            f"SELECT {columns_of(info, 'new')}, {columns_of(info, 'old')}, {deleted}, {was_deleted} "
            f"FROM {source} AS new LEFT JOIN {source} AS old ON {same} AND old.commit_id = {previous} "
            "WHERE new.commit_id = ? ORDER BY new.rowid", (commit_id,),
        ).fetchall()  # fmt: skip
        width = len(info.all_columns) + 1
        places = [info.all_columns.index(column) for column in info.keys]
        for row in rows:
            after, before = row[:width], row[width : 2 * width]
            key = after[places[0]] if info.kind == "entity" else tuple(after[place] for place in places)
            yield RowChange(key, None if before[-1] is None or row[-1] else before, None if row[-2] else after)

    # checking
    # parallel readers and writers
    def splits(self, info: TypeInfo, whole: KeyRange, parts: int | None) -> Sequence[Split]:
        from ontolake.ontology.repository.sqlite.splits import key_splits

        return key_splits(self, info, whole, parts)

    def shape(self, info: TypeInfo) -> Shape | None:
        return None

    def unshaped(self, info: TypeInfo, table: pa.Table) -> pa.Table:
        return table

    def parquet(self, info: TypeInfo, view: View, columns: Collection[str], longest: int) -> ParquetView | None:
        return None

    @property
    def jobs(self) -> FileJobs | None:
        return None

    def commit_log(self) -> CommitLog:
        from ontolake.ontology.repository.sqlite.commit_log import SqliteCommits

        return SqliteCommits(self)

    # checking and looking after
    def gc(self, *, dry_run: bool = True) -> Garbage:
        return Garbage(0, 0)

    def check(self) -> Iterator[Damage]:
        return sqlite_checks.check(self)

    def commit_ids(self) -> Collection[int]:
        return {commit.id for commit in self.commits()}

    def every_version(self, kind: Kind, name: str) -> Sequence[SchemaVersion]:
        return self.schema_versions(kind, name)

    def stored_history(self, version: SchemaVersion) -> Iterator[Row]:
        return sqlite_checks.stored_history(self, version)

    def close(self) -> None:
        if not isinstance(self.db, Closed):
            self.lock.close()
            self.db.close()
            self.db = cast(apsw.Connection, Closed(self.uri))

    # one row at a time
    def begin_transaction(self) -> None:
        """Begin a commit that is made of single inserts; end it with `commit_transaction` or `rollback_transaction`."""
        self._begin(self.runtime_id)
        self._look()
        self._transaction = SqliteTransaction(self)

    def create_commit(self, metadata: Mapping[str, Any] | None = None) -> int:
        """The id of the commit in the making."""
        transaction = self._transaction
        if transaction is None:
            raise StorageBackendError("no transaction has begun", hint="call begin_transaction() first")
        self.insert_commit(transaction.commit_id, metadata or {})
        return transaction.commit_id

    def commit_transaction(self) -> None:
        self._transaction = None
        self.db.execute("COMMIT")
        self.last_commit = None

    def rollback_transaction(self) -> None:
        self._transaction = None
        if not self.db.get_autocommit():
            self.db.execute("ROLLBACK")
        self.forget()
