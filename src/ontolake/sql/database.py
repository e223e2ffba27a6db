"""A database of SQL tables: statements in, rows out, at any version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, NamedTuple, Unpack

import pyarrow as pa
from sqlglot import exp

from ontolake import urls
from ontolake.errors import Invalid
from ontolake.history import Damage, Garbage
from ontolake.history.names import MAIN
from ontolake.sql import connecting, descriptions, maintenance, row_changes, row_streams, version_names
from ontolake.sql.cancellation import RunningStatements, Timeouts, settings_of
from ontolake.sql.catalog.column_cache import default_room
from ontolake.sql.catalog.records import SqlCatalog, Table
from ontolake.sql.commands import explanation
from ontolake.sql.commands.session import KeptCommands, SessionCommands, ThreadKeptCommands
from ontolake.sql.copy import verbs as copying
from ontolake.sql.errors import SqlError, SqlSyntaxError, TransactionError, UnknownNameError
from ontolake.sql.history import procedures
from ontolake.sql.history.conflict_table import ConflictTable, is_target
from ontolake.sql.history.table_functions import HistoricalQuery, is_historical
from ontolake.sql.history.verbs import VersionedTables
from ontolake.sql.keyspace.ranges import KeyRanges
from ontolake.sql.mounts import MountedSchemas
from ontolake.sql.naming import StatementNames, table_node
from ontolake.sql.pg_catalog.plans import system_plan
from ontolake.sql.pg_catalog.system import SystemCatalog, SystemSession
from ontolake.sql.plan.queries import QueryPlan
from ontolake.sql.results import Result
from ontolake.sql.sessions import SessionPool, Sessions, ThreadHeldSession
from ontolake.sql.syntax.statements import (
    Parameters,
    ParsedStatement,
    bound,
    parse,
    parse_one,
)  # fmt: skip
from ontolake.sql.transactions import SqlSession, SqlTransaction
from ontolake.sql.write import bulk, index_builds, query_tables, sequences, view_definitions
from ontolake.sql.write.ddl import DEFAULT_SCHEMA, Definer
from ontolake.sql.write.sequences import Numbers, calls_in, has_calls

ON_ERROR = ("fail", "continue")
"""What an error does to the transaction that it happens in."""
_CHANGES = ("insert", "update", "delete", "truncate", "merge", "chain")
"""Statements that may be committed together with those of other threads."""
_ENDS = ("commit", "rollback", "rollback to")
_CONTROLS = (*_ENDS, "use", "begin", "begin read only", "savepoint", "release")

Version = int | str | datetime
"""A moment: the number of a commit, or a time, as text or `datetime`; a time without a zone is UTC."""


def open_database(
    url: str, *, branch: str = MAIN, database: str | None = None, schema: str = DEFAULT_SCHEMA, readonly: bool = False,
    takeover: bool = False, synchronous: str = "FULL", cache: int | None = None, on_error: str = "fail",
    **timeouts: Unpack[Timeouts],
) -> Database:  # fmt: skip
    """The SQL tables at `url`, which are started where there are none (unless read-only).

    `path.db` is a native SQLite file; `file:///path.db`, `s3://…` and `memory://…` keep their pages in the storage
    seam. All but `:memory:` have branches. `database` and `schema` are meant where a statement names none. A commit is
    durable when it returns; on a native file `synchronous="NORMAL"` lets a power failure (not a crash) take back the
    last ones.
    `cache` is how many bytes of decoded columns are kept in memory for queries that read the same tables again; by
    default a quarter of the machine's memory, and 0 keeps none. More is mapped from files.
    A statement that fails within a transaction fails the transaction, as in PostgreSQL; with `on_error="continue"` the
    transaction goes on without that statement. A statement that takes longer than `statement_timeout` seconds, or waits
    for others to write longer than `lock_timeout`, fails; SET changes both.

    Raises `Invalid` for a URL or a cache that cannot be, `NotFound` for a database or branch that is not there,
    `LayoutError` for a database that holds something else or is newer, `Contended` if another process is writing to it
    over the seam.
    """
    return Database(url, branch=branch, database=database, schema=schema, readonly=readonly, takeover=takeover,
                    synchronous=synchronous, cache=default_room() if cache is None else cache,
                    options=HandleOptions(on_error, settings_of(timeouts)))  # fmt: skip


class HandleOptions(NamedTuple):
    """How a handle behaves: what an error does to a transaction, and what settings are at first."""

    on_error: str
    settings: dict[str, str]


class Database(VersionedTables):
    """Open SQL tables. Threads may share them, each with a transaction of its own. Close it, or use it in a `with`
    block."""

    def __init__(
        self, url: str, *, branch: str, database: str | None, schema: str, readonly: bool, takeover: bool,
        synchronous: str, cache: int, options: HandleOptions,
    ) -> None:  # fmt: skip
        if not isinstance(cache, int) or cache < 0:
            raise Invalid(f"a cache has a size in bytes, 0 or more, not {cache!r}")
        self._options: dict[str, Any] = {"readonly": readonly, "takeover": False, "synchronous": synchronous,
                                         "cache": cache}  # fmt: skip
        if options.on_error not in ON_ERROR:
            raise Invalid(f"on_error cannot be {options.on_error!r}", hint=f"use {' or '.join(ON_ERROR)}")
        self._on_error = options.on_error
        self.defaults = options.settings
        """What settings are at first."""
        self.running = RunningStatements()
        super().__init__(url, branch, self._opened(url, branch, takeover=takeover))
        self.database = database
        self._path: tuple[str, ...] = (schema,)
        self.shown_name: str | None = None
        """What `current_database()` says, if not the name of the database."""
        self.mounted = MountedSchemas()
        """Schemas of tables that something else keeps, to be read beside those of this database."""
        self._kept: KeptCommands = ThreadKeptCommands()
        self.conflicts = ConflictTable(self)
        """What a `CALL onto_merge` on the branch left open: the table `onto_conflicts`."""
        if not readonly:
            index_builds.clean_up(self._session)

    def _opened(self, url: str, branch: str, *, takeover: bool = False) -> Sessions:
        """Sessions on a branch."""
        options = {**self._options, "takeover": takeover}
        first = SqlSession(url, branch=branch, **options)
        first.fails_on_error = self._on_error == ON_ERROR[0]
        alone = urls.parse(url).path == ":memory:"
        pool = SessionPool(first, None if alone else lambda: SqlSession(url, branch=branch, **self._options,
                                                                        like=first))  # fmt: skip
        return Sessions(pool, ThreadHeldSession())

    @property
    def ranges(self) -> KeyRanges:
        """Which database holds which part of the keyspace."""
        return KeyRanges(self._session)

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the database up; an open transaction is rolled back. Closing twice does no harm."""
        first = self._sessions.first
        if not first.closed:
            first.columns.save(first)
            self.commands.temporary.close()
        self._sessions.close()

    @property
    def session(self) -> SqlSession:
        """The session below, for what belongs to SQL tables themselves."""
        return self._session

    @property
    def sessions(self) -> Sessions:
        """All sessions, for connections."""
        return self._sessions

    def leave_thread(self) -> None:
        """Keep what commands set and prepare for whichever thread uses the database, not for each."""
        self._kept = KeptCommands()

    @property
    def schema(self) -> str:
        """The schema that is meant where a statement names none."""
        return self._path[0]

    def checkout(self, branch: str) -> None:
        """Go on with another branch. Raises `UnknownBranchError`, `TransactionError` within a transaction."""
        if self._session.transaction is not None:
            raise TransactionError("a branch cannot be left within a transaction", sqlstate="25001",
                                   hint="COMMIT it first")
        with self._references() as references:
            references.line(branch)
        if branch != self.branch:
            before, self._sessions = self._sessions, self._opened(self.url, branch)
            before.close()
            self.branch = branch

    # statements

    def execute(
        self, sql: str, params: Parameters = (), *, message: str | None = None, author: str | None = None
    ) -> Result:  # fmt: skip
        """Run a statement, or several with semicolons in between and no parameters. Returns the result of the last.
        `message` and `author` are kept with the commit.

        Outside a transaction each statement is one of its own. A statement that fails changes nothing. Raises
        `SqlError`, whose `sqlstate` says what is wrong.
        """
        try:
            statements = parse(sql)
            if not statements:
                raise SqlSyntaxError("there is no statement")
            if len(statements) > 1 and params:
                raise SqlSyntaxError("several statements cannot share parameters", hint="run one at a time")
        except SqlError:
            self._session.fail()
            raise
        if message is not None or author is not None:
            with self._session.noted(message, author):
                return self._execute_all(statements, params)
        return self._execute_all(statements, params)

    def _execute_all(self, statements: Sequence[ParsedStatement], params: Parameters) -> Result:
        for statement in statements[:-1]:
            self.run(statement, ())
        return self.run(statements[-1], params)

    def query(self, sql: str, params: Parameters = (), *, as_of: Version | None = None) -> pa.Table:
        """The rows of a query as an Arrow table, now or as they were at a version or time. Raises `SqlError`."""
        statement = parse_one(sql)
        if statement.kind not in ("select", "explain"):
            if as_of is not None:
                raise TransactionError("the past cannot be written to", sqlstate="25006")
            return self.run(statement, params).arrow()
        return self.run(statement, params, as_of).arrow()

    stream = row_streams.stream
    execute_many = row_changes.execute_many

    def explain(self, sql: str, params: Parameters = (), *, analyze: bool = False, as_of: Version | None = None) -> str:
        """How a query would be answered: by which keys, and what is left for DuckDB. Raises `SqlError`."""
        return "\n".join(self._explain(parse_one(sql), params, {"analyze": True} if analyze else {}, as_of))

    @contextmanager
    def transaction(self, *, message: str | None = None, author: str | None = None) -> Iterator[Database]:
        """A transaction: committed when the block ends, rolled back when it raises.

        `message` and `author` are kept with the commit.
        """
        with self._session.noted(message, author):
            self._begin()
        try:
            yield self
        except BaseException:
            if self._session.transaction is not None:
                self._end(commit=False)
            raise
        if self._session.transaction is not None:
            try:
                self._session.check_failed()
            except BaseException:
                self._end(commit=False)
                raise
            with self._session.noted(message, author):
                self._end(commit=True)

    @property
    def commands(self) -> SessionCommands:
        """What statements of this thread have set, prepared and declared."""
        if self._kept.commands is None:
            self._kept.commands = SessionCommands(self)
        return self._kept.commands

    def _begin(self, *, reads: bool = False) -> None:
        """Open a transaction of this thread."""
        default = self.commands.settings.get("default_transaction_read_only") == "on"
        self._sessions.begin(reads=reads or default)
        self.commands.began()

    def _end(self, *, commit: bool) -> bool:
        """End the transaction, and what lives as long as it. Returns whether it was committed: not if it had failed."""
        committed = False
        transaction = self._session.transaction
        kept = commit and not (transaction is not None and transaction.failed)
        try:
            if self.mounted and transaction is not None:
                self._end_elsewhere(kept, transaction.dirty)
            if commit:
                self._sessions.commit()
            else:
                self._sessions.rollback()
            committed = kept
        finally:
            if transaction is not None and self._session.transaction is None:
                self.commands.ended(committed=committed)
        return committed

    def _end_elsewhere(self, commit: bool, dirty: bool) -> None:
        """End what a transaction does in other stores. If that fails, it is rolled back here as well."""
        try:
            if commit:
                self.mounted.check_alone(is_dirty=dirty)
            self.mounted.end(commit=commit)
        except BaseException:
            self.mounted.end(commit=False)
            self._sessions.rollback()
            raise

    connect = connecting.connect

    def cancel(self, thread: int | None = None) -> int:
        """Cancel the statements that other threads are running here, or the one of a thread, by its ident. They raise
        `SqlError` (57014) and are undone. Returns how many there were, when they have ended."""
        return self.running.cancel(thread)

    @property
    def is_alone(self) -> bool:
        """Whether there is one session for all, as in `:memory:`."""
        return self._sessions.is_alone

    @property
    def in_transaction(self) -> bool:
        return self._session.transaction is not None

    def run(self, statement: ParsedStatement, params: Parameters, as_of: Version | None = None) -> Result:
        """Run one statement that was read already. Raises `SqlError`."""
        sessions = self._sessions
        if statement.prepared is not None and statement.kind == "select" and as_of is None and \
                sessions.held.session is None and not sessions.is_alone and self.commands.temporary.is_empty:
            statement.check_parameters(params)
            found = self._point(sessions.first, statement.prepared, params)
            if found is not None:
                return found
        if not self.running.is_running():
            settings = self.commands.settings
            with self.running.run(settings.seconds("statement_timeout"), settings.seconds("lock_timeout"), self):
                return self._in_turn(statement, params, as_of)
        return self._in_turn(statement, params, as_of)

    def _in_turn(self, statement: ParsedStatement, params: Parameters, as_of: Version | None) -> Result:
        if self.is_alone:
            with self._session.lock:  # else the transaction that is open may be that of another thread
                return self._executed(statement, params, as_of)
        return self._executed(statement, params, as_of)

    def _executed(self, statement: ParsedStatement, params: Parameters, as_of: Version | None) -> Result:
        kind, transaction = statement.kind, self._session.transaction
        if transaction is None:
            if kind in _CONTROLS:
                return self._control(statement)
            with self._sessions.turn() if kind in _CHANGES and not _is_conflicts(statement) else \
                    self._sessions.leased():  # fmt: skip
                try:
                    return self._dispatched(statement, params, as_of)
                finally:
                    self.mounted.end(commit=False)  # the next statement sees what is newest
        if kind not in _ENDS:
            self._session.check_failed()
        try:
            return self._control(statement) if kind in _CONTROLS else self._dispatched(statement, params, as_of)
        except BaseException:
            if kind not in ("begin", "begin read only"):  # which changes nothing where PostgreSQL merely warns
                self._session.fail()
            raise

    def _dispatched(self, statement: ParsedStatement, params: Parameters, as_of: Version | None) -> Result:
        statement.check_parameters(params)
        kind, temporary = statement.kind, self.commands.temporary
        if temporary.takes(statement):
            return temporary.run(statement, params, past=as_of is not None)
        if kind == "select":
            return self._select(statement, params, as_of)
        if kind == "explain":
            assert statement.inner is not None
            lines = self._explain(statement.inner, params, statement.options, as_of)
            return Result("EXPLAIN", len(lines), table=pa.table({"QUERY PLAN": pa.array(lines, pa.string())}))
        if kind == "update" and isinstance(statement.tree, exp.Update) and is_target(statement.tree):
            return self.conflicts.update(statement.tree, params)
        if kind in _CHANGES:
            return row_changes.change(self, statement, params)
        if kind in ("create", "drop", "alter"):
            return self._define(statement, params)
        if kind == "define":
            return self._define_more(statement)
        if kind == "call":
            assert statement.tree is not None
            return procedures.call(self, statement.names[0], statement.tree, params)
        if kind == "copy":
            return copying.run(self, statement, params)
        if self.commands.knows(kind):
            return self.commands.run(statement, params)
        return self._control(statement)

    def _select(self, statement: ParsedStatement, params: Parameters, as_of: Version | None) -> Result:
        if as_of is None and statement.prepared is not None:
            found = self._point(self._session, statement.prepared, params)
            if found is not None:
                return found
        if has_calls(statement.sql) and statement.tree is not None and calls_in(statement.tree):
            return self._select_numbers(statement, params)
        with self._session.reading():
            at = None if as_of is None else self.version_of(as_of)
            if statement.prepared is None and statement.tree is not None and is_historical(statement.tree):
                catalog = self._session.catalog(at)
                names = self.names_of(statement, catalog, at)
                return HistoricalQuery(self, names, self.version_of).run(names.expanded(statement.tree), params)
            return self.plan_of(statement, at).run(self._session, params, keep=True)

    def _select_numbers(self, statement: ParsedStatement, params: Parameters) -> Result:
        """The rows of a query that takes numbers of sequences: it writes where those stand."""
        assert statement.tree is not None
        with self._session.writing(statement.sql) as transaction:
            names = self.names_of(statement, self._session.fresh_catalog(transaction), None)
            return self._answer(statement, bound(names.expanded(statement.tree), params), names, transaction)

    def _answer(
        self, statement: ParsedStatement, tree: exp.Expr, names: StatementNames, transaction: SqlTransaction
    ) -> Result:
        """The rows of a query without parameters that may read history or take numbers of sequences."""
        if is_historical(tree):
            return HistoricalQuery(self, names, self.version_of).run(tree, ())
        if calls_in(tree):
            numbers = Numbers(self._session, transaction, self.database, self.schema)
            return sequences.query(tree, numbers, lambda tree: QueryPlan(statement, tree, names).run(self._session, ()))
        return QueryPlan(statement, tree, names).run(self._session, ())

    def _point(self, session: SqlSession, prepared: tuple[Any, QueryPlan], params: Parameters) -> Result | None:
        """The answer of a query for one key, in one statement; None if the query or the catalog is another."""
        (catalog, database, path), plan = prepared
        if database != self.database or path != self._path or (key := plan.point(params)) is None:
            return None
        found = session.get(key, catalog)
        return None if found is None else plan.found(found[0])

    def plan_of(self, statement: ParsedStatement, at: int | None) -> QueryPlan:
        catalog = self._session.catalog(at)
        where = (catalog, self.database, self._path)
        if at is None and statement.prepared is not None and statement.prepared[0] == where:
            plan: QueryPlan = statement.prepared[1]
            return plan
        assert statement.tree is not None
        names = self.names_of(statement, catalog, at)
        if statement.is_system:
            return self._system_plan(statement, names, catalog)
        plan = QueryPlan(statement, names.expanded(statement.tree), names)
        if not plan.is_foreign and all(source.at is None for source in plan.sources):
            statement.prepared = (where, plan)
        return plan

    def _system_plan(self, statement: ParsedStatement, names: StatementNames, catalog: SqlCatalog) -> QueryPlan:
        """The plan of a query that names system tables, or asks functions about the catalog."""
        commands, database = self.commands, self.database or catalog.default_database()
        session = SystemSession(commands.settings, commands.follow_path, self._session.state()[0],
                                self.mounted.tables(), self.shown_name)
        return system_plan(statement, names, SystemCatalog(catalog, database, self._path, session))

    def follow(self, path: Sequence[str]) -> None:
        """Look up names without a schema in these schemas, in this order; what is created goes to the first."""
        self._path = tuple(path) or (DEFAULT_SCHEMA,)

    def names_of(self, statement: ParsedStatement, catalog: SqlCatalog, at: int | None) -> StatementNames:
        """What the names of a statement mean."""
        return StatementNames(statement, catalog, at, self.database, self._path, self._session.catalog, self.version_of,
                              self.mounted)

    version_of = version_names.version_of
    _explain = explanation.explained

    def _define(self, statement: ParsedStatement, params: Parameters) -> Result:
        tree = statement.tree
        if isinstance(tree, exp.Create) and str(tree.kind).upper() == "INDEX":
            index_builds.create(self._session, statement, self.database, self.schema)
            return Result("CREATE INDEX", 0)
        with self._session.writing(statement.sql) as transaction:
            definer = Definer(self._session, transaction, statement, self.database, self.schema)
            names = self.names_of(statement, definer.catalog, None)
            if query_tables.is_query_table(tree):
                query = query_tables.source(tree, params, self.commands.called)
                return query_tables.create(definer, tree, names.expanded(query), names, lambda tree: self._answer(
                    statement, tree, names, transaction))
            if isinstance(tree, exp.Create) and str(tree.kind).upper() == "VIEW":
                view_definitions.create(definer, tree, names.qualified, names.described)
            else:
                getattr(definer, statement.kind)(tree)
        assert tree is not None
        return Result(f"{statement.kind.upper()} {str(tree.args.get('kind') or '').upper()}".strip(), 0)

    def _define_more(self, statement: ParsedStatement) -> Result:
        """Run a definition that the parser does not read."""
        defining = statement.defining
        assert defining is not None
        if defining.kind == "set constraints" and self._session.transaction is None:
            return Result("SET CONSTRAINTS", 0)
        with self._session.writing(statement.sql) as transaction:
            Definer(self._session, transaction, statement, self.database, self.schema).define(defining)
        return Result(defining.kind.upper(), 0)

    def _control(self, statement: ParsedStatement) -> Result:
        session, name = self._session, statement.names[0] if statement.names else ""
        if statement.kind == "use":
            with session.reading():
                session.catalog().schema(name, statement.names[1] if len(statement.names) > 1 else DEFAULT_SCHEMA)
            self.database = name
            self.commands.settings.set("search_path", statement.names[1:] or [DEFAULT_SCHEMA])
            self.follow(statement.names[1:] or [DEFAULT_SCHEMA])
        elif statement.kind in ("begin", "begin read only"):
            self._begin(reads=statement.kind != "begin")
        elif statement.kind == "commit":
            return Result("COMMIT" if self._end(commit=True) else "ROLLBACK", 0)
        elif statement.kind == "rollback":
            self._end(commit=False)
        else:
            marks = {"savepoint": session.savepoint, "rollback to": session.rollback_to, "release": session.release}
            marks[statement.kind](name)
            self.commands.temporary.mark(statement.kind, name)
            self.mounted.mark(statement.kind, name)
        return Result("BEGIN" if statement.kind == "begin read only" else statement.kind.upper(), 0)

    # loading

    def bulk_load(
        self, table: str, data: pa.Table | pa.RecordBatch | Iterable[pa.RecordBatch], *, message: str | None = None,
        author: str | None = None,
    ) -> int:  # fmt: skip
        """Insert Arrow rows into a table as one commit, in key order. Returns how many.

        Columns go by name; those that are not given get their defaults. Raises what INSERT raises; then nothing was
        loaded.
        """
        with (self._session.noted(message, author), self._sessions.leased(),
              self._session.writing(f"-- bulk load into {table}") as transaction):
            found = self.find_table(table, self._session.fresh_catalog(transaction))
            return bulk.load(self._session, transaction, found, data)

    copy_from = copying.copy_from
    copy_to = copying.copy_to
    describe = descriptions.describe

    def find_table(self, table: str, catalog: SqlCatalog) -> Table:
        """The table of a catalog that a name, as SQL writes it, means here.

        Raises `UnknownNameError`, and `SqlSyntaxError` if it is not the name of a table.
        """
        statement, node = table_node(table)
        try:
            return self.names_of(statement, catalog, None).table(node, catalog)
        except UnknownNameError as error:
            error.position = None  # the user has written no statement
            raise

    # what there is

    def catalog(self, as_of: Version | None = None) -> SqlCatalog:
        """All tables with their columns and indexes, now or as they were."""
        with self._session.reading():
            return self._session.catalog(None if as_of is None else self.version_of(as_of))

    def temporary_catalog(self) -> SqlCatalog | None:
        """The temporary tables of the session, if it has made any."""
        return self.commands.temporary.catalog()

    def version(self) -> int:
        """The number of the newest commit; 0 in a new database."""
        with self._session.reading():
            return self._session.state()[0]

    # maintenance

    def verify(self) -> Iterator[Damage]:
        """Read everything and yield all that does not fit together: rows, and index entries that do not match them."""
        return maintenance.verify(self._session)

    def retain(self, version: int) -> None:
        """Give up what came before a version: it cannot be read any more, and `gc` removes it. Never goes back."""
        self.tags.check_kept(version)
        maintenance.retain(self._session, version)

    def gc(self, *, dry_run: bool = True) -> Garbage:
        """Remove, or count, the versions that nothing that is retained needs."""
        found = maintenance.gc(self._session, dry_run=dry_run)
        if not dry_run:
            with self._lines() as lines:
                self.branches.purge(lines.merged())
        return found


def _is_conflicts(statement: ParsedStatement) -> bool:
    """Whether a statement changes the table of conflicts, which makes no commit."""
    return isinstance(statement.tree, exp.Update) and is_target(statement.tree)
