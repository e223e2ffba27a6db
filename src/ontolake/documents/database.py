"""The connection of an open space: transactions, the lines of history of its branches, and who waits for commits.

Every branch writes to a line of its own. The line has the name of the branch, unless a deleted branch had that name
before: then a number follows it. Tables and everything below the API know lines alone.

Threads may share it, they take turns. A `with` block is one transaction: it commits when the block ends, and nothing
of it stays when the block raises.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import apsw

from ontolake import urls
from ontolake.documents.errors import FutureSeqError, ProtocolError, UnknownBranchError
from ontolake.documents.names import is_seq, name_of
from ontolake.documents.schema import LAYOUT
from ontolake.engine.failures import translate
from ontolake.errors import Invalid, OntolakeError
from ontolake.history.names import MAIN

View = tuple[tuple[str, int], ...]
"""What a line sees at a moment: itself and its ancestors, nearest first, each up to a seq of its own."""

_LAST = 'SELECT max(seq) FROM "commit"'
# Where names were used again, the branch that lives is meant, else the newest one.
_LINE = "SELECT name FROM branch WHERE name >= ?1 AND name < ?1 || ' ' ORDER BY created_seq DESC LIMIT 1"
_RENAMED_LINE = """\
SELECT b.name FROM branch b
WHERE b.name >= ?1 AND b.name < ?1 || ' ' AND b.name NOT IN (SELECT line FROM branch_name)
  OR b.name IN (SELECT line FROM branch_name WHERE name = ?1)
ORDER BY b.status = 'deleted', b.created_seq DESC LIMIT 1"""
_NAME = "SELECT name FROM branch_name WHERE line = ?"
_HAS_TABLE = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
_LINEAGE = "SELECT parent_branch, fork_seq FROM branch WHERE name = ?"


_open: weakref.WeakSet[SpaceDatabase] = weakref.WeakSet()


def _start_anew() -> None:
    """In a forked process: what is open here belongs to the parent."""
    for database in list(_open):
        database.orphan()


os.register_at_fork(after_in_child=_start_anew)


def rows(connection: apsw.Connection, sql: str, bindings: Sequence[Any] = ()) -> list[Any]:
    """All rows of a statement. Their types are those of the columns, which is more than SQLite's driver knows."""
    return connection.execute(sql, bindings).fetchall()


def row(connection: apsw.Connection, sql: str, bindings: Sequence[Any] = ()) -> Any:
    """The first row of a statement, or None."""
    return connection.execute(sql, bindings).fetchone()


class SpaceDatabase:
    """One open space, below its API."""

    def __init__(self, url: str, *, readonly: bool, takeover: bool, synchronous: str) -> None:
        self.url = url
        location = urls.parse(url)
        self.native = location.place is urls.Place.SQLITE
        self.place = os.path.abspath(location.path) if self.native and location.path != ":memory:" else url
        """What tells it from other spaces, however the URL is written."""
        try:
            self.connection = LAYOUT.open(url, readonly=readonly, takeover=takeover, synchronous=synchronous)
        except apsw.Error as error:
            _raise_ours(error, url)
            raise
        self.lock = threading.RLock()
        self.announced = 0
        """Counts the commits of this process, and the closing of the space."""
        self._announcement = threading.Condition()
        self.closed = False
        self.writing = False
        """Whether the transaction that is open writes."""
        self._why_closed = "is closed"
        self.read = _Transaction(self, "BEGIN")
        self.write = _Transaction(self, "BEGIN IMMEDIATE")
        self.joined = _Joined(self)
        self._tables: set[str] = set()
        self._seen: dict[str, bool] = {}
        self._lineage: dict[str, tuple[str | None, int]] = {}
        _open.add(self)

    def orphan(self) -> None:
        """This is a forked process's copy. Connections do not survive that: SQLite would damage what it shares."""
        self.lock = threading.RLock()
        self._announcement = threading.Condition()
        if not self.closed:
            self.closed, self._why_closed = True, "was opened by another process, before a fork"

    def check_open(self) -> None:
        """Raise `Invalid` if the space is closed."""
        if self.closed:
            raise Invalid(f"the space {self.url} {self._why_closed}", hint="open it again")

    def close(self) -> None:
        with self.lock:
            if not self.closed:
                self.closed = True
                self.connection.close(True)
        self.announce()

    def announce(self) -> None:
        """Wake whoever waits for a commit."""
        with self._announcement:
            self.announced += 1
            self._announcement.notify_all()

    def wait(self, announced: int, seconds: float) -> None:
        """Wait for an announcement after the first `announced`, but not for longer than `seconds`."""
        with self._announcement:
            if self.announced == announced:
                self._announcement.wait(seconds)

    def last_seq(self) -> int:
        """The seq of the newest commit, on whichever branch; 0 when there is none. Inside a transaction."""
        return row(self.connection, _LAST)[0] or 0

    def begun(self, writing: bool) -> None:
        """A transaction has begun: what was seen in the last one may have changed."""
        self.writing = writing
        self._seen.clear()

    def has_table(self, name: str) -> bool:
        """Whether a table that is made when it is first needed is there. Inside a transaction."""
        if name in self._tables:
            return True
        if self.writing:  # it may be made right now, and be taken back
            return row(self.connection, _HAS_TABLE, (name,)) is not None
        there = self._seen.get(name)
        if there is None:
            there = self._seen[name] = row(self.connection, _HAS_TABLE, (name,)) is not None
            if there:
                self._tables.add(name)
        return there

    def line(self, branch: str) -> str:
        """The line of the newest branch of this name. Inside a transaction. Raises `UnknownBranchError`.

        `main` is the first branch, unless an old space has another one of this name.
        """
        if not branch:
            return branch
        found = row(self.connection, _RENAMED_LINE if self.has_table("branch_name") else _LINE, (branch,))
        if found is not None:
            return str(found[0])
        if branch == MAIN:
            return ""
        raise UnknownBranchError(branch)

    def name(self, line: str) -> str:
        """The name of the branch that a line is, or was. Inside a transaction."""
        if line and self.has_table("branch_name"):
            found = row(self.connection, _NAME, (line,))
            if found is not None:
                return str(found[0])
        return name_of(line)

    def title(self, line: str) -> str:
        """`name` for messages: the first branch is called `main` there, unless another one is. Inside a transaction."""
        return self.name(line) or (MAIN if self.line(MAIN) == line else "")

    def lineage(self, line: str) -> tuple[str | None, int]:
        """The parent of a line and the seq where it left it. Never changes, so it is asked for once."""
        known = self._lineage.get(line)
        if known is None:
            found = row(self.connection, _LINEAGE, (line,))
            if found is None:
                raise UnknownBranchError(line)
            known = self._lineage[line] = (found[0], found[1] or 0)
        return known

    def view(self, line: str, seq: int) -> View:
        """What a line sees at `seq`. Raises `UnknownBranchError`."""
        levels: list[tuple[str, int]] = []
        name: str | None = line
        while name is not None:
            levels.append((name, seq))
            name, fork = self.lineage(name)
            seq = min(seq, fork)
        return tuple(levels)

    def moment(self, seq: int | None, what: str) -> int:
        """The seq, or the newest one for None. Raises `FutureSeqError`, and `ProtocolError` if it is not a seq."""
        last = self.last_seq()
        if seq is None:
            return last
        if not is_seq(seq):
            raise ProtocolError(f"{what}: a seq is an integer, 0 or more, not {seq!r}")
        if seq > last:
            raise FutureSeqError(what, seq, last)
        return seq


class _Transaction:
    """`with database.read` or `with database.write`. Not a generator, which would cost as much as a statement."""

    def __init__(self, database: SpaceDatabase, begin: str) -> None:
        self._database = database
        self._begin = begin
        self._writes = begin != "BEGIN"

    def __enter__(self) -> apsw.Connection:
        database = self._database
        database.lock.acquire()
        try:
            database.check_open()
            database.connection.execute(self._begin)
        except BaseException as error:
            database.lock.release()
            _raise_ours(error, database.url)
            raise
        database.begun(self._writes)
        return database.connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        database = self._database
        try:
            if error is None:
                database.connection.execute("COMMIT")
        except BaseException as failed:
            error = failed
            raise
        finally:
            try:
                if database.connection.in_transaction:
                    database.connection.execute("ROLLBACK")
            finally:
                database.lock.release()
            if error is not None:
                _raise_ours(error, database.url)


class _Joined:
    """`with database.joined`: the transaction that this thread is in, else one of its own that reads."""

    def __init__(self, database: SpaceDatabase) -> None:
        self._database = database
        self._own: list[bool] = []

    def __enter__(self) -> apsw.Connection:
        database = self._database
        database.lock.acquire()
        try:
            own = database.closed or not database.connection.in_transaction
            if own:
                database.read.__enter__()
        except BaseException:
            database.lock.release()
            raise
        self._own.append(own)
        return database.connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._own.pop():
                self._database.read.__exit__(kind, error, trace)
        finally:
            self._database.lock.release()


def _raise_ours(error: BaseException, url: str) -> None:
    """Raise our error for one of SQLite's; return if it is none, or is ours already."""
    if not isinstance(error, apsw.Error) or isinstance(error, OntolakeError):
        return
    if isinstance(error, apsw.TooBigError):
        raise Invalid(f"{url}: that is more than one commit can hold",
                      hint="make several transactions of it") from error
    raise translate(error, url) from error
