"""The connections of a session: to its database, and to those that hold ranges of it. They begin and end together."""

from __future__ import annotations

import threading
from typing import Any, Protocol

import apsw

from ontolake import faults, urls
from ontolake.errors import Invalid, LayoutError, NotFound
from ontolake.history import UnknownBranchError
from ontolake.sql.failures import ours
from ontolake.sql.keyspace import homes, levels, overlay, ranges
from ontolake.sql.keyspace.commit_log import BranchLog
from ontolake.sql.keyspace.layout import LAYOUT, MAPPED
from ontolake.sql.keyspace.pages import open_pages
from ontolake.sql.keyspace.ranges import RangeKeyspace, Routed, RoutedRange
from ontolake.sql.transaction_state import SqlTransaction

WRITE = "BEGIN IMMEDIATE"


class SessionLock(Protocol):
    """What lets one thread use a session, as often as it asks."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...

    def __enter__(self) -> bool: ...

    def __exit__(self, *raised: Any) -> None: ...


class SessionConnections:
    """The main database on a branch, and the databases of ranges that were moved."""

    def __init__(self, url: str, *, branch: str, readonly: bool, takeover: bool, synchronous: str) -> None:
        self.url, self.branch, self.readonly = url, branch, readonly
        self.is_native = urls.parse(url).place is urls.Place.SQLITE
        """Whether branches are levels of one file, not branches of the storage."""
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
        self._plain = Routed(self.connection, self.levels)
        """The keyspace as it is stored."""
        self.log = BranchLog(self.connection, self.levels)
        self.parts: dict[str, RangeKeyspace] = {}
        """The databases that hold ranges of their own, by URL."""
        self._routing: list[RoutedRange] = []
        self.lock: SessionLock = threading.RLock()
        self.closed = False
        self._is_current = False
        """Whether the database is known to have the newest layout."""
        try:
            self.reroute()
        except BaseException:
            SessionConnections.close(self)
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

    def reroute(self) -> None:
        """Go by the routing table as it is now."""
        with self.lock:
            found = ranges.read(self.connection)
            wanted = {each.url for each in found if each.url != ranges.MAIN}
            for url in [url for url in self.parts if url not in wanted]:
                self.parts.pop(url).connection.close(True)
            for url in sorted(wanted - self.parts.keys()):
                home = self._connect_home(next(each for each in found if each.url == url))
                overlay.prepare(home)
                self.parts[url] = RangeKeyspace(home, self.levels)
            self._plain.route(found, self.parts)
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
            if sql == WRITE:
                self._check_alive()
            if count == len(self._routing) == 1:  # the first range is always here
                return SqlTransaction(published + 1, ddl)
            if ranges.read(self.connection) != self._routing:
                self.reroute()
            for part in self.parts.values():
                part.connection.execute(sql)
                newest = part.begin(write=sql == WRITE)
                part.limit = published if newest > published else None
                if part.limit is not None and sql == WRITE:
                    ranges.undo(part.connection, published, part.line)
                    part.limit = None
                part.changes_before = part.connection.total_changes()
        except BaseException:
            self._roll_back()
            raise
        return SqlTransaction(published + 1, ddl)

    def _check_alive(self) -> None:
        """Raise `UnknownBranchError` if the branch was deleted since it was opened."""
        if self._plain.is_branch and (found := levels.by_id(self.connection, self.line)) is not None \
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
        """Close all connections; what is not committed is rolled back."""
        with self.lock:
            if not self.closed:
                self.closed = True
                self._roll_back()
                for part in self.parts.values():
                    part.connection.close(True)
                self.connection.close(True)

    def check_open(self) -> None:
        """Raise `Invalid` if the session was closed."""
        if self.closed:
            raise Invalid(f"the database {self.url} is closed", hint="open it again")

    def _roll_back(self) -> None:
        for keyspace in (self._plain, *self.parts.values()):
            keyspace.open_nodes = {}
        self._each("ROLLBACK")

    def _publish(self) -> None:
        """Commit on all databases, the main one last: what it does not publish will be undone."""
        version = self.state()[0] if self.parts else 0
        for part in self.parts.values():
            if part.connection.total_changes() == part.changes_before:
                part.connection.execute("ROLLBACK")
                continue
            part.close_nodes()
            levels.set_state(part.connection, part.line, "version", version)
            part.connection.execute("COMMIT")
            faults.reach("sql: range committed")
        self._plain.close_nodes()
        faults.reach("sql: batch written")
        self.connection.execute("COMMIT")
        self._is_current = True
        faults.reach("sql: committed")

    def state(self) -> tuple[int, int, int]:
        """The version of the newest commit, that of the newest that changed the catalog, and the floor."""
        found: Any = self.connection.execute(self._state).fetchone()
        if found is None:
            raise UnknownBranchError(self.branch, hint="it was deleted; its commits are given up")
        ddl, floor, version = found
        return version, ddl, floor
