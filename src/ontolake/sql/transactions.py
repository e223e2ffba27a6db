"""Transactions: one SQLite transaction each, which writes all its keys at one version.

Threads may share a session; they take turns, and a transaction has the session to itself until it ends. A statement
that fails changes nothing; a transaction around it goes on.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import apsw
import numpy as np

from ontolake import faults, urls
from ontolake.engine.failures import translate
from ontolake.errors import Corruption, Invalid, LayoutError, NotFound, OntolakeError
from ontolake.history import ProtectedBranchError, UnknownBranchError
from ontolake.history.operations import check_texts
from ontolake.sql.catalog.column_cache import ColumnCache
from ontolake.sql.catalog.column_files import SavedColumns
from ontolake.sql.catalog.records import SqlCatalog, Table
from ontolake.sql.errors import SerializationError, SqlError, TransactionError, UnknownNameError
from ontolake.sql.keyspace import homes, levels, ranges
from ontolake.sql.keyspace.commit_log import BranchLog
from ontolake.sql.keyspace.layout import LAYOUT, MAPPED, extend, upgrade
from ontolake.sql.keyspace.pages import open_pages
from ontolake.sql.keyspace.ranges import RangeKeyspace, Routed, RoutedRange
from ontolake.sql.keyspace.vectors import Strings
from ontolake.sql.write.pending import Position, Reference, SequenceMemory, TransactionMark

if TYPE_CHECKING:
    from ontolake.sql.write.rows import Rows

_POINT = "SELECT s.ddl, l.value, (SELECT count(*) FROM range) FROM state s LEFT JOIN latest l ON l.key = ?"
_CATALOGS = 32
_WRITE = "BEGIN IMMEDIATE"
_LINE_BITS = 40


class SqlTransaction:
    """What a transaction has written so far."""

    def __init__(self, version: int, began_with: int) -> None:
        self.version = version
        self.began_with = began_with
        """The version of the catalog before it."""
        self.touched: list[Sequence[bytes] | Strings] = []
        """The keys of rows and catalog records."""
        self.statements: list[str] = []
        self.metadata: dict[str, Any] = {}
        """What its commit says of itself."""
        self.message: str | None = None
        self.author: str | None = None
        self.merged: tuple[int, int] | None = None
        """The second parent of a merge: its line and version."""
        self.is_exempt = False
        """Whether it may change a protected branch."""
        self.reads = False
        """Whether it may only read."""
        self.ddl = False
        self.is_extended = False
        """Whether it has written what older versions cannot read."""
        self.dirty = False
        """Whether it has written anything."""
        self.catalog: SqlCatalog | None = None
        self.sequences: dict[int, Position] = {}
        """Where the sequences stand that it has used."""
        self.references: list[Reference] = []
        """What it has done to rows that foreign keys are about."""
        self.deferred: dict[str, bool] = {}
        """What SET CONSTRAINTS has said, by name; '' stands for all."""

    def touch(self, keys: Sequence[bytes] | Strings) -> None:
        self.dirty = True
        if len(keys):
            self.touched.append(keys)

    def refer(self, table: Table, old: Rows | None, new: Rows | None) -> None:
        """Note rows that were written, if foreign keys are about them."""
        if (table.foreign_keys and new is not None) or (table.referenced_by and old is not None):
            self.references.append(Reference(old, new))


class SqlSession:
    """One connection and the transaction that is open on it."""

    def __init__(
        self, url: str, *, branch: str, readonly: bool, takeover: bool, synchronous: str, cache: int = 0
    ) -> None:
        self.url, self.branch, self.readonly = url, branch, readonly
        self.is_native = urls.parse(url).place is urls.Place.SQLITE
        """Whether branches are levels of one file, not branches of the storage."""
        self.columns = ColumnCache(cache, SavedColumns.beside(url))
        self._ours = ours(url)
        self._takeover, self._synchronous = takeover, synchronous
        with self._ours:
            self.connection = self.connect(url)
        try:
            self.line = self._find_line()
            """The id of the branch, which outlives its name."""
            self.levels = levels.levels(self.connection, self.line) if self.is_native else levels.MAIN_LEVELS
        except BaseException:
            self.connection.close(True)
            raise
        own = self.levels[0].line
        self._state = f"SELECT ddl, floor, {levels.newest(own)}"
        self._begun = f"SELECT ddl, (SELECT count(*) FROM range), {levels.newest(own)}"
        self.keyspace = Routed(self.connection, self.levels)
        self.log = BranchLog(self.connection, self.levels)
        self.parts: dict[str, RangeKeyspace] = {}
        """The databases that hold ranges of their own, by URL."""
        self.lock = threading.RLock()
        self.closed = False
        self.transaction: SqlTransaction | None = None
        """The one that a BEGIN has opened."""
        self._marks: list[tuple[str, TransactionMark]] = []
        self._routing: list[RoutedRange] = []
        self._catalogs: dict[tuple[int, int | None], SqlCatalog] = {}
        self._note: tuple[str | None, str | None] = (None, None)
        """The message and author of what is being written."""
        self._is_current = False
        """Whether the database is known to have the newest layout."""
        self.sequences = SequenceMemory()
        try:
            self.reroute()
        except BaseException:
            self.close()
            raise

    def connect(self, url: str, *, create: bool = True) -> apsw.Connection:
        """A connection to this database, or to one that holds a range, on the branch of that name."""
        branch = "main" if self.is_native else self.branch
        found = LAYOUT.open(url, branch=branch, readonly=self.readonly, takeover=self._takeover,
                            synchronous=self._synchronous, create=create)  # fmt: skip
        found.pragma("mmap_size", MAPPED)
        return found

    def _find_line(self) -> int:
        if self.branch == "main":
            return 0
        if self.is_native:
            found = levels.find(self.connection, self.branch)
            if found is None:
                raise UnknownBranchError(self.branch)
            return found.id
        with open_pages(self.url) as storage:
            return int(storage.resolve_branch(self.branch).id)

    @contextmanager
    def noted(self, message: str | None, author: str | None) -> Iterator[None]:
        """What is written in the block has this message and author. Raises `Invalid` for what is not text."""
        check_texts(message=message, author=author)
        with self.lock:
            before, self._note = self._note, (message, author)
            try:
                yield
            finally:
                self._note = before

    def reroute(self) -> None:
        """Go by the routing table as it is now."""
        with self.lock:
            found = ranges.read(self.connection)
            wanted = {each.url for each in found if each.url != ranges.MAIN}
            for url in [url for url in self.parts if url not in wanted]:
                self.parts.pop(url).connection.close(True)
            for url in sorted(wanted - self.parts.keys()):
                self.parts[url] = RangeKeyspace(
                    self._connect_home(next(each for each in found if each.url == url)), self.levels)
            self.keyspace.route(found, self.parts)
            self._routing = found

    def _connect_home(self, held: RoutedRange) -> apsw.Connection:
        """A connection to the database that a range was moved to. Raises `NotFound` if that is not there."""
        try:
            connection = self.connect(homes.resolved(self.url, held.url), create=False)
        except (NotFound, LayoutError) as error:
            raise homes.missing(self.url, held.start, held.url, error) from error
        if not ranges.is_home(connection):
            connection.close(True)
            raise homes.missing(self.url, held.start, held.url, NotFound("another database is there"))
        return connection

    def _begin(self, sql: str) -> SqlTransaction:
        """Begin on all databases, with the ranges as they are now."""
        self.connection.execute(sql)
        try:
            found: Any = self.connection.execute(self._begun).fetchone()
            if found is None:
                raise UnknownBranchError(self.branch, hint="it was deleted; its commits are given up")
            ddl, count, published = found
            if sql == _WRITE:
                self._check_alive()
            if count == len(self._routing) == 1:  # the first range is always here
                return SqlTransaction(published + 1, ddl)
            if ranges.read(self.connection) != self._routing:
                self.reroute()
            for part in self.parts.values():
                part.connection.execute(sql)
                newest = part.begin(write=sql == _WRITE)
                part.limit = published if newest > published else None
                if part.limit is not None and sql == _WRITE:
                    ranges.undo(part.connection, published, part.line)
                    part.limit = None
                part.changes_before = part.connection.total_changes()
        except BaseException:
            self._roll_back()
            raise
        return SqlTransaction(published + 1, ddl)

    def _check_alive(self) -> None:
        """Raise `UnknownBranchError` if the branch was deleted since it was opened."""
        if self.keyspace.is_branch and (found := levels.by_id(self.connection, self.line)) is not None \
                and found.name.startswith(levels.DELETED):  # fmt: skip
            raise UnknownBranchError(self.branch, hint="it was deleted since it was opened")

    def _each(self, sql: str) -> None:
        """Run a statement on all databases, the main one last."""
        for part in self.parts.values():
            if part.connection.in_transaction:
                part.connection.execute(sql)
        if self.connection.in_transaction:
            self.connection.execute(sql)

    def close(self) -> None:
        with self.lock:
            if not self.closed:
                self.closed = True
                self._each("ROLLBACK")
                self.transaction = None
                for part in self.parts.values():
                    part.connection.close(True)
                self.connection.close(True)

    def check_open(self) -> None:
        """Raise `Invalid` if the session was closed."""
        if self.closed:
            raise Invalid(f"the database {self.url} is closed", hint="open it again")

    # statements

    @contextmanager
    def reading(self) -> Iterator[SqlTransaction | None]:
        """One state of the keyspace for as long as the block takes."""
        with self.lock, self._ours:
            self.check_open()
            if self.transaction is not None or self.connection.in_transaction:
                yield self.transaction
                return
            self._begin("BEGIN")
            try:
                yield None
            finally:
                self._each("ROLLBACK")

    @contextmanager
    def writing(self, statement: str, metadata: Mapping[str, Any] | None = None) -> Iterator[SqlTransaction]:
        """A statement that writes: a transaction of its own, or a part of the open one. It is done whole or not.

        `metadata` is kept with the commit; what JSON has no form for is kept as text.
        """
        noted = json.loads(json.dumps(dict(metadata), default=str)) if metadata else {}
        with self.lock, self._ours:
            self.check_open()
            if self.readonly:
                raise TransactionError(f"{self.url} was opened to be read only", sqlstate="25006",
                                       hint="open it without readonly=True")
            if self.transaction is not None:
                if self.transaction.reads:
                    raise TransactionError("this transaction only reads", sqlstate="25006",
                                           hint="begin one without READ ONLY")
                yield from self._nested(self.transaction, statement, noted)
                return
            transaction = self._begin(_WRITE)
            try:
                faults.reach("sql: transaction begun")
                yield transaction
                self._settle(transaction, 0)
                self._describe(transaction, statement, noted)
                self._commit(transaction)
            except BaseException:
                self._roll_back()
                raise

    def _nested(
        self, transaction: SqlTransaction, statement: str, metadata: Mapping[str, Any]
    ) -> Iterator[SqlTransaction]:
        mark = TransactionMark(transaction)
        self._each("SAVEPOINT statement")
        try:
            yield transaction
            self._settle(transaction, mark.references)
        except BaseException:
            self._each("ROLLBACK TO statement; RELEASE statement")
            mark.restore(transaction)
            raise
        self._each("RELEASE statement")
        self._describe(transaction, statement, metadata)

    def _describe(self, transaction: SqlTransaction, statement: str, metadata: Mapping[str, Any]) -> None:
        if statement:
            transaction.statements.append(statement)
        transaction.metadata.update(metadata)
        message, author = self._note
        transaction.message = transaction.message if message is None else message
        transaction.author = transaction.author if author is None else author

    def _settle(self, transaction: SqlTransaction, since: int, *, all: bool = False) -> None:
        """Do what foreign keys ask for after a statement, or with `all` before the transaction commits."""
        if len(transaction.references) > (0 if all else since):
            from ontolake.sql.write import foreign_keys

            foreign_keys.settle(self, transaction, 0 if all else since, all=all)

    def keep(self) -> None:
        """Commit what was done below the tables, without a version of its own. Inside `writing`, outside a BEGIN."""
        if self.transaction is not None:
            raise TransactionError("this cannot be done within a transaction", sqlstate="25001", hint="COMMIT it first")
        for part in self.parts.values():
            if part.connection.in_transaction:
                part.connection.execute("COMMIT")
        self.connection.execute("COMMIT")

    def _roll_back(self) -> None:
        for keyspace in (self.keyspace, *self.parts.values()):
            keyspace.open_nodes = {}
        self._each("ROLLBACK")

    def _commit(self, transaction: SqlTransaction) -> None:
        if not transaction.dirty:
            self._each("ROLLBACK")
            return
        self._settle(transaction, 0, all=True)
        if transaction.sequences:
            from ontolake.sql.write import sequences

            sequences.keep(self, transaction)
        version = transaction.version
        if transaction.merged is None and not transaction.is_exempt and self.is_protected():
            raise ProtectedBranchError(self.branch)
        for part in self.parts.values():
            if part.connection.total_changes() == part.changes_before:
                part.connection.execute("ROLLBACK")
                continue
            part.close_nodes()
            levels.set_state(part.connection, part.line, "version", version)
            part.connection.execute("COMMIT")
            faults.reach("sql: range committed")
        self.keyspace.close_nodes()
        if not self._is_current:
            upgrade(self.connection)
        if transaction.is_extended:
            extend(self.connection)
        metadata = json.dumps(transaction.metadata) if transaction.metadata else None
        self.log.append((
            version, time.time_ns() // 1000, ";\n".join(transaction.statements)[:10_000], transaction.author,
            transaction.message, metadata, *(transaction.merged or (None, None)), packed(transaction.touched)),
            is_merge=transaction.merged is not None)  # fmt: skip
        if transaction.ddl:
            levels.set_state(self.connection, self.levels[0].line, "ddl", version)
        faults.reach("sql: commit written")
        self.connection.execute("COMMIT")
        self._is_current = True
        faults.reach("sql: committed")

    def is_protected(self) -> bool:
        """Whether the branch changes by merges alone. Inside a transaction."""
        found = self.connection.execute("SELECT 1 FROM counter WHERE name = ?", (self._protection,)).fetchone()
        return found is not None

    def protect(self, protected: bool) -> None:
        """Let the branch change by merges alone, or end that."""
        with self.writing("-- protect"):
            if protected:
                self.connection.execute("INSERT OR IGNORE INTO counter (name, next) VALUES (?, 1)", (self._protection,))
            else:
                self.connection.execute("DELETE FROM counter WHERE name = ?", (self._protection,))
            faults.reach("sql: protection changed")
            self.keep()

    @property
    def _protection(self) -> str:
        """Where protection is kept. Branches of this one have the same entry, and another line."""
        return f"protected {self.line}"

    # BEGIN, COMMIT, SAVEPOINT

    def begin(self, *, reads: bool = False) -> None:
        """Open a transaction, with `reads` one that only reads. Raises `TransactionError` if one is open."""
        self.lock.acquire()
        try:
            self.check_open()
            if self.transaction is not None:
                raise TransactionError("there is a transaction in progress", sqlstate="25001", hint="COMMIT it first")
            with self._ours:
                self.transaction = self._begin(_WRITE if self.parts and not self.readonly and not reads else "BEGIN")
                self.transaction.reads = reads
        except BaseException:
            self.lock.release()
            raise

    def read_only(self) -> None:
        """Let the open transaction only read from now on. Raises `TransactionError`."""
        self._open().reads = True

    def commit(self) -> int | None:
        """End the transaction and keep what it did. Returns its version, or None if it wrote nothing."""
        transaction = self._open()
        self.transaction, self._marks = None, []
        self._describe(transaction, "", {})
        try:
            with self._ours:
                try:
                    self._commit(transaction)
                except BaseException:
                    self._roll_back()
                    raise
        finally:
            self.lock.release()
        return transaction.version if transaction.dirty else None

    def rollback(self) -> None:
        """End the transaction and forget what it did."""
        self._open()
        self.transaction, self._marks = None, []
        try:
            self._roll_back()
        finally:
            self.lock.release()

    def savepoint(self, name: str) -> None:
        transaction = self._open()
        self._marks.append((name, TransactionMark(transaction)))
        self._each(f"SAVEPOINT mark{len(self._marks)}")

    def rollback_to(self, name: str) -> None:
        transaction, number = self._open(), self._mark(name)
        self._each(f"ROLLBACK TO mark{number}")
        self._marks[number - 1][1].restore(transaction)
        del self._marks[number:]

    def release(self, name: str) -> None:
        self._open()
        number = self._mark(name)
        self._each(f"RELEASE mark{number}")
        del self._marks[number - 1 :]

    def _open(self) -> SqlTransaction:
        if self.transaction is None:
            raise TransactionError("there is no transaction in progress", sqlstate="25P01", hint="BEGIN one first")
        return self.transaction

    def _mark(self, name: str) -> int:
        for number in range(len(self._marks), 0, -1):
            if self._marks[number - 1][0] == name:
                return number
        raise TransactionError(f"there is no savepoint {name}", sqlstate="3B001")

    # what there is

    def state(self) -> tuple[int, int, int]:
        """The version of the newest commit, that of the newest that changed the catalog, and the floor."""
        found: Any = self.connection.execute(self._state).fetchone()
        if found is None:
            raise UnknownBranchError(self.branch, hint="it was deleted; its commits are given up")
        ddl, floor, version = found
        return version, ddl, floor

    def get(self, key: bytes, catalog: SqlCatalog) -> tuple[bytes | None] | None:
        """The newest value of a key, if there is one; None if the catalog is not this one any more."""
        with self.lock:
            if self.closed or self.parts or (self.transaction is not None and self.transaction.ddl):
                return None
            try:
                row: Any = self._point(key) if self.keyspace.is_branch else \
                    self.connection.execute(_POINT, (key,)).fetchone()
            except apsw.Error:
                return None  # the long way tells what is wrong
            if row is None:
                return None
            known = row[2] == 1 and row[0] == catalog.version and catalog is self._catalogs.get((row[0], None))
            return (row[1],) if known else None

    def _point(self, key: bytes) -> tuple[int, bytes | None, int] | None:
        """What `get` needs to know on a branch, in one state of the file."""
        begins = not self.connection.in_transaction
        if begins:
            self.connection.execute("BEGIN")
        try:
            found: Any = self.connection.execute(self._begun).fetchone()
            return None if found is None else (found[0], self.keyspace.get(key), found[1])
        finally:
            if begins:
                self.connection.execute("ROLLBACK")

    def catalog(self, at: int | None = None) -> SqlCatalog:
        """The catalog as the open transaction sees it, or as it was at a version. Inside a transaction."""
        if at is None and self.transaction is not None and self.transaction.ddl:
            return self.fresh_catalog(self.transaction)
        _, ddl, _ = self.state()
        return self._catalog(ddl, None if at is not None and at >= ddl else at)

    def _catalog(self, ddl: int, at: int | None) -> SqlCatalog:
        where = (ddl, at)
        found = self._catalogs.get(where)
        if found is None:
            if len(self._catalogs) >= _CATALOGS:
                self._catalogs.pop(next(iter(self._catalogs)))
            found = self._catalogs[where] = SqlCatalog.read(self.keyspace, ddl if at is None else at, at)
        return found

    def fresh_catalog(self, transaction: SqlTransaction) -> SqlCatalog:
        """The catalog with what a transaction has done to it."""
        if not transaction.ddl:
            return self._catalog(transaction.began_with, None)
        if transaction.catalog is None:
            transaction.catalog = SqlCatalog.read(self.keyspace, transaction.version)
        return transaction.catalog

    def check_version(self, at: int) -> int:
        """A version that can be read. Raises `UnknownNameError` for one that is to come or is no longer kept."""
        version, _, floor = self.state()
        if self.transaction is not None and self.transaction.dirty:
            version += 1
        if type(at) is not int or not floor <= at <= version:
            raise UnknownNameError(f"there is no version {at!r}", sqlstate="22023",
                                   hint=f"versions from {floor} to {version} can be read")
        return at

    def version_at(self, microseconds: int) -> int:
        """The version that was the newest at a time."""
        return self.log.version_at(microseconds)

    def next_id(self, counter: str) -> int:
        """A number that no other object of this kind ever had or will have. Inside a transaction that writes."""
        found: Any = self.connection.execute(
            "UPDATE counter SET next = next + 1 WHERE name = ? RETURNING next - 1", (counter,)).fetchall()
        return int(found[0][0]) + (self.line << _LINE_BITS)  # no two branches give one id to different things


def packed(touched: Sequence[Sequence[bytes] | Strings]) -> bytes:
    """Keys as one blob: how many, their lengths, and all of them one behind the other."""
    if len(touched) == 1 and isinstance(touched[0], list) and len(touched[0]) == 1:  # most commits are of one row
        key: bytes = touched[0][0]
        return struct.pack(">II", 1, len(key)) + key
    groups = [keys if isinstance(keys, Strings) else Strings.of(keys) for keys in touched]
    lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(group.offsets) for group in groups)]).astype(">u4")
    return struct.pack(">I", len(lengths)) + lengths.tobytes() + b"".join(group.data.tobytes() for group in groups)


def unpacked(blob: bytes) -> list[bytes]:
    """The keys that a commit wrote, each once, in order. Raises `Corruption`."""
    count = int.from_bytes(blob[:4], "big")
    body = 4 + 4 * count
    lengths = np.frombuffer(blob, ">u4", count, 4) if len(blob) >= body else None
    if lengths is None or int(lengths.sum()) != len(blob) - body:
        raise Corruption("the keys of a commit cannot be read")
    ends = np.cumsum(lengths).tolist()
    return sorted({blob[body + end - size : body + end] for end, size in zip(ends, lengths.tolist(), strict=True)})


class ours:
    """Raises our errors for those of SQLite, inside a `with` block."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, apsw.Error) or isinstance(error, OntolakeError):
            return
        url = self._url
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            raise SerializationError(f"somebody else is writing to {url}, or has written since this transaction began",
                                     hint="roll back and try again") from error
        if isinstance(error, apsw.ReadOnlyError):
            raise TransactionError(f"{url} cannot be written to: {error}", sqlstate="25006") from error
        if isinstance(error, apsw.TooBigError):
            raise SqlError(f"a value is too long to be stored: {error}", sqlstate="54000") from error
        raise translate(error, url) from error
