"""Sessions: a connection, and the transaction that is open on it.

A statement on its own writes to the keyspace directly, within one SQLite transaction. A transaction that BEGIN opens is
private: it reads one state and writes to a level of its own (`keyspace.overlay`); when it commits, `validation` tells
whether what it has read still holds, and its writes move into the keyspace at a new version. A session belongs to one
thread at a time; `sessions` gives them out.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import apsw

from ontolake import faults
from ontolake.history import ProtectedBranchError
from ontolake.history.operations import check_texts
from ontolake.sql import validation
from ontolake.sql.catalog.column_cache import ColumnCache
from ontolake.sql.catalog.column_files import SavedColumns
from ontolake.sql.catalog.records import SqlCatalog
from ontolake.sql.connections import WRITE, SessionConnections
from ontolake.sql.errors import TransactionError, UnknownNameError
from ontolake.sql.keyspace import levels, overlay
from ontolake.sql.keyspace.commit_log import packed
from ontolake.sql.keyspace.layout import extend, upgrade
from ontolake.sql.keyspace.ranges import RangeKeyspace, Routed
from ontolake.sql.transaction_state import SqlTransaction
from ontolake.sql.write.pending import SequenceMemory, TransactionMark
from ontolake.sql.writer_queue import CommitBatch, WriterQueue, queue_of

if TYPE_CHECKING:
    from ontolake.sql.sessions import SessionPool

__all__ = ["SqlSession", "SqlTransaction"]

_POINT = "SELECT s.ddl, l.value, (SELECT count(*) FROM range) FROM state s LEFT JOIN latest l ON l.key = ?"
_CATALOGS = 32
_LINE_BITS = 40
_NO_COLUMNS = ColumnCache(0)
_notes = threading.local()
"""The message and author of what a thread is writing."""


@contextmanager
def written_by(author: str | None) -> Iterator[None]:
    """What is written in the block is by this author, unless another is noted."""
    message, noted = before = getattr(_notes, "note", (None, None))
    _notes.note = (message, author if noted is None else noted)
    try:
        yield
    finally:
        _notes.note = before


class SqlSession(SessionConnections):
    """One connection and the transaction that is open on it."""

    def __init__(
        self, url: str, *, branch: str, readonly: bool, takeover: bool, synchronous: str, cache: int = 0,
        like: SqlSession | None = None,
    ) -> None:  # fmt: skip
        """With `like`, what that session keeps for later is shared with it."""
        super().__init__(url, branch=branch, readonly=readonly, takeover=takeover, synchronous=synchronous)
        self.keyspace = self._plain
        """What statements read and write: the keyspace, or with a private transaction's own writes above it."""
        self._columns: ColumnCache = ColumnCache(cache, SavedColumns.beside(url)) if like is None else like._columns
        self._catalogs: dict[tuple[int, int | None], SqlCatalog] = {} if like is None else like._catalogs
        self.queue: WriterQueue = queue_of(url, branch)
        """Where threads of this process wait for their turn to write."""
        self.fails_on_error: bool = like is None or like.fails_on_error
        """Whether a statement that fails fails the transaction around it."""
        self.group: SessionPool | None = None
        """The sessions that this one is among."""
        self.batch: CommitBatch | None = None
        """Statements of several threads, written here one after the other, that are committed together."""
        self.has_turn: bool = False
        """Whether the thread that has the lock writes for the batch."""
        self.sequences: SequenceMemory = SequenceMemory() if like is None else like.sequences
        self.transaction: SqlTransaction | None = None
        """The one that a BEGIN has opened."""
        self._marks: list[tuple[str, TransactionMark]] = []
        self._has_room = False
        """Whether the connection has tables for the writes of a private transaction."""

    @contextmanager
    def noted(self, message: str | None, author: str | None) -> Iterator[None]:
        """What is written in the block has this message and author. Raises `Invalid` for what is not text."""
        check_texts(message=message, author=author)
        before = getattr(_notes, "note", (None, None))
        _notes.note = (message, author)
        try:
            yield
        finally:
            _notes.note = before

    def close(self) -> None:
        with self.lock:
            self._await_batch()
            super().close()
            self.transaction, self.keyspace = None, self._plain

    @property
    def columns(self) -> ColumnCache:
        """The columns that are kept for queries. None are for those whose reads or writes are to be committed."""
        is_shared = self.transaction is None or self.transaction.is_readonly
        return self._columns if is_shared and not self.has_turn else _NO_COLUMNS

    # statements

    @contextmanager
    def reading(self) -> Iterator[SqlTransaction | None]:
        """One state of the keyspace for as long as the block takes."""
        with self.lock, self._ours:
            self.check_open()
            self._await_batch()
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
            self._await_batch()
            if self.transaction is not None:
                self.check_failed()
                if self.transaction.is_readonly:
                    raise TransactionError("this transaction only reads", sqlstate="25006",
                                           hint="begin one without READ ONLY")
                yield from self._nested(self.transaction, statement, noted)
                return
            if self.has_turn:
                assert self.batch is not None
                yield from self._in_batch(self.batch, statement, noted)
                return
            self.queue.enter(None)
            try:
                transaction = self._begin(WRITE)
                try:
                    faults.reach("sql: transaction begun")
                    yield transaction
                    self._settle(transaction, 0)
                    self._describe(transaction, statement, noted)
                    self._commit(transaction)
                except BaseException:
                    self._roll_back()
                    raise
            finally:
                self.queue.leave()
            for table, keys, columns in transaction.loaded.values():
                self._columns.adopt(table, transaction.version, keys, columns)

    def _await_batch(self) -> None:
        """Let a batch of other threads end: what it has written is not committed yet. Holding the lock, once."""
        while (batch := self.batch) is not None and not self.has_turn:
            self.lock.release()
            try:
                batch.done.wait()
            finally:
                self.lock.acquire()

    def _in_batch(
        self, batch: CommitBatch, statement: str, metadata: Mapping[str, Any]
    ) -> Iterator[SqlTransaction]:
        """One more transaction of a batch, with a version of its own. `publish` commits all of them."""
        is_first = not batch.count
        if is_first:
            transaction = self._begin(WRITE)
        else:
            self._each("SAVEPOINT turn")
            version, ddl, _ = self.state()
            transaction = SqlTransaction(version + 1, ddl)
        try:
            faults.reach("sql: transaction begun")
            yield transaction
            self._settle(transaction, 0)
            self._describe(transaction, statement, metadata)
            if transaction.dirty:
                self._seal(transaction)
        except BaseException:
            if is_first:
                self._roll_back()
            else:
                self._each("ROLLBACK TO turn; RELEASE turn")
            raise
        if not is_first:
            self._each("RELEASE turn")
        elif not transaction.dirty:
            self._roll_back()
        batch.count += transaction.dirty
        batch.is_full = batch.is_full or transaction.ddl  # nobody else may see a catalog that is not committed yet

    def publish(self) -> None:
        """Commit the batch. Raises what that raises; then nothing of it is there."""
        with self._ours:
            try:
                self._publish()
            except BaseException:
                self._roll_back()
                raise

    def _nested(
        self, transaction: SqlTransaction, statement: str, metadata: Mapping[str, Any]
    ) -> Iterator[SqlTransaction]:
        mark = TransactionMark(transaction)
        if transaction.is_private:
            self._write_above(transaction)
        self._each("SAVEPOINT statement")
        try:
            yield transaction
            self._settle(transaction, mark.references)
        except BaseException:
            self._each("ROLLBACK TO statement; RELEASE statement")
            mark.restore(transaction)
            self.fail()
            raise
        self._each("RELEASE statement")
        self._describe(transaction, statement, metadata)

    def _describe(self, transaction: SqlTransaction, statement: str, metadata: Mapping[str, Any]) -> None:
        if statement:
            transaction.statements.append(statement)
        transaction.metadata.update(metadata)
        message, author = getattr(_notes, "note", (None, None))
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

    def _commit(self, transaction: SqlTransaction) -> None:
        if not transaction.dirty:
            self._each("ROLLBACK")
            return
        self._seal(transaction)
        self._publish()

    def _seal(self, transaction: SqlTransaction) -> None:
        """Write the record of a commit, and what is left to do before it."""
        version = transaction.version
        self._settle(transaction, 0, all=True)
        if transaction.sequences:
            from ontolake.sql.write import sequences

            sequences.keep(self, transaction)
        if transaction.merged is None and not transaction.is_exempt and self.is_protected():
            raise ProtectedBranchError(self.branch)
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

    def begin(self, *, reads: bool = False, private: bool = False) -> None:
        """Open a transaction, with `reads` one that only reads. Raises `TransactionError` if one is open.

        Unless it is private, it has the session to itself until it ends, and the database once it has written.
        """
        self.lock.acquire()
        try:
            self.check_open()
            self._await_batch()
            if self.transaction is not None:
                raise TransactionError("there is a transaction in progress", sqlstate="25001", hint="COMMIT it first")
            with self._ours:
                if private and not self._has_room:
                    overlay.prepare(self.connection)
                    self._has_room = True
                exclusive = self.parts and not (self.readonly or reads or private)
                self.transaction = self._begin(WRITE if exclusive else "BEGIN")
            self.transaction.is_readonly, self.transaction.is_private = reads, private
            if private and not reads:
                self.keyspace.reads = self.transaction.reads
        except BaseException:
            self.lock.release()
            raise
        if private:
            self.lock.release()

    def _write_above(self, transaction: SqlTransaction) -> None:
        """Let a private transaction read its own writes, from the first one on."""
        if self.keyspace is not self._plain:
            return
        for connection in (self.connection, *(part.connection for part in self.parts.values())):
            overlay.clear(connection)
        snapshot = transaction.snapshot
        parts = {url: RangeKeyspace(part.connection, overlay.above(part.levels, snapshot, part.limit))
                 for url, part in self.parts.items()}  # fmt: skip
        self.keyspace = Routed(self.connection, overlay.above(self.levels, snapshot))
        self.keyspace.route(self._routing, parts)
        self.keyspace.reads, self._plain.reads = self._plain.reads, None

    def _end(self) -> SqlTransaction:
        """Forget which transaction is open. What it has done to the databases is left to the caller."""
        transaction = self._open()
        self.transaction, self._marks = None, []
        self.keyspace, self._plain.reads = self._plain, None
        return transaction

    def read_only(self) -> None:
        """Let the open transaction only read from now on. Raises `TransactionError`."""
        self._open().is_readonly = True

    def commit(self) -> int | None:
        """End the transaction and keep what it did. Returns its version, or None if it wrote nothing, or has failed
        and was rolled back. Raises `SerializationError` if others have changed what it went by."""
        if self._open().failed:
            self.rollback()
            return None
        if self._open().is_private:
            return self._commit_private()
        transaction = self._end()
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

    def _commit_private(self) -> int | None:
        transaction, catalog = self._open(), None
        with self.lock, self._ours:
            try:
                if transaction.dirty:
                    self._settle(transaction, 0, all=True)
                    transaction.references.clear()
                    catalog = self.fresh_catalog(transaction)
                    self._each("COMMIT")  # of the writes to its own level; the snapshot ends with it
            finally:
                self._end()
                self._roll_back()
        if catalog is None:
            return None
        self._describe(transaction, "", {})
        faults.reach("sql: snapshot ended")
        assert self.group is not None
        with self.group.turn(self) as writer, writer.writing("") as commit:
            commit.take_over(transaction)
            validation.check(writer, transaction, catalog)
            for connection in (self.connection, *(part.connection for part in self.parts.values())):
                overlay.move(connection, writer.keyspace, commit.version)
            faults.reach("sql: writes moved")
        return commit.version

    def forget_writes(self) -> None:
        """Remove what private transactions have left behind on the connections. Outside a transaction."""
        if self._has_room:
            for connection in (self.connection, *(part.connection for part in self.parts.values())):
                overlay.clear(connection)

    def rollback(self) -> None:
        """End the transaction and forget what it did."""
        is_private = self._end().is_private
        try:
            self._roll_back()
        finally:
            if not is_private:
                self.lock.release()

    def fail(self) -> None:
        """A statement has failed: let the transaction that is open do nothing but end, unless errors are to pass."""
        if self.transaction is not None and self.fails_on_error:
            self.transaction.failed = True

    def check_failed(self) -> None:
        """Raise `TransactionError` if the transaction that is open has failed."""
        if self.transaction is not None and self.transaction.failed:
            raise TransactionError("the transaction has failed, and does nothing any more until it ends",
                                   sqlstate="25P02", hint="ROLLBACK it, or ROLLBACK TO a savepoint")

    def savepoint(self, name: str) -> None:
        transaction = self._open()
        self._marks.append((name, TransactionMark(transaction)))
        self._each(f"SAVEPOINT mark{len(self._marks)}")

    def rollback_to(self, name: str) -> None:
        transaction, number = self._open(), self._mark(name)
        self._each(f"ROLLBACK TO mark{number}")
        self._marks[number - 1][1].restore(transaction)
        transaction.failed = False
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

    def get(self, key: bytes, catalog: SqlCatalog) -> tuple[bytes | None] | None:
        """The newest value of a key, if there is one; None if the catalog is not this one any more, or others use the
        session."""
        if not self.lock.acquire(blocking=False):
            return None
        try:
            transaction = self.transaction
            if self.closed or self.parts or self.batch is not None or (transaction is not None and transaction.ddl):
                return None
            if transaction is not None and transaction.is_private:
                known = catalog is self._catalogs.get((transaction.began_with, None))
                return (self.keyspace.get(key),) if known else None
            try:
                row: Any = self._point(key) if self.keyspace.is_branch else \
                    self.connection.execute(_POINT, (key,)).fetchone()
            except apsw.Error:
                return None  # the long way tells what is wrong
            if row is None:
                return None
            known = row[2] == 1 and row[0] == catalog.version and catalog is self._catalogs.get((row[0], None))
            return (row[1],) if known else None
        finally:
            self.lock.release()

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
            for oldest in list(self._catalogs)[: len(self._catalogs) - _CATALOGS + 1]:
                self._catalogs.pop(oldest, None)
            found = self._catalogs.setdefault(where, SqlCatalog.read(self.keyspace, ddl if at is None else at, at))
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
        if self.transaction is not None and self.transaction.is_private:
            assert self.group is not None
            return self.group.next_id(counter)
        found: Any = self.connection.execute(
            "UPDATE counter SET next = next + 1 WHERE name = ? RETURNING next - 1", (counter,)).fetchall()
        return int(found[0][0]) + (self.line << _LINE_BITS)  # no two branches give one id to different things
