"""Branches in a native file: records of lines, whose versions of keys are levels of one keyspace."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ontolake import faults
from ontolake.errors import NotFound
from ontolake.history import BranchExistsError, UnknownBranchError
from ontolake.sql.errors import UnsupportedError
from ontolake.sql.history.lines import LineRef
from ontolake.sql.keyspace import levels
from ontolake.sql.transactions import SqlSession


class FileBranches:
    """The lines of a native file, internal ones too: a `BranchKeeper`."""

    def __init__(
        self, url: str, session: Callable[[], SqlSession], writer: Callable[[], AbstractContextManager[SqlSession]]
    ) -> None:  # fmt: skip
        """`session` gives one that reads the file, `writer` one that writes to it, outside a transaction."""
        self.url = url
        self._session = session
        self._writer = writer

    def check(self) -> None:
        """Raise `UnsupportedError` in memory, where every connection has a database of its own."""
        if self.url.endswith(":memory:"):
            raise UnsupportedError("a database in :memory: has no branches: it ends with its connection",
                                   hint="use a file, or memory://name")

    def refs(self) -> list[LineRef]:
        """All lines, the first one first."""
        session = self._session()
        with session.reading():
            return [LineRef(*line[:4]) for line in levels.lines(session.connection)]

    def head(self, ref: LineRef) -> int:
        """The newest version of a line."""
        session = self._session()
        with session.reading():
            found: Any = session.connection.execute(f"SELECT {levels.newest(ref.id)}").get
        if found is None:
            raise UnknownBranchError(ref.name)
        return int(found)

    def base(self, ref: LineRef, parent: LineRef) -> int:
        """The version at which a line left its parent."""
        assert ref.base is not None
        return ref.base

    def is_used(self, ref: LineRef) -> bool:
        """Whether a line has commits of its own, or others have history from it."""
        return self.head(ref) != ref.base or any(other.parent == ref.id for other in self.refs())

    def create(self, name: str, at: int | None, parent: str) -> int:
        """A line that leaves its parent at a version: one record. Returns the version."""
        with self._writer() as session, session.writing("-- branch"):
            connection = session.connection
            left = levels.find(connection, parent)
            if left is None:
                raise UnknownBranchError(parent)
            if levels.find(connection, name) is not None:
                raise BranchExistsError.of(name)
            row: Any = connection.execute(f"SELECT floor, {levels.newest(left.id)}").fetchone()
            floor, newest = row
            version = newest if at is None else at
            if not isinstance(version, int) or not 0 <= version <= newest:
                raise NotFound(f"{parent} has no version {version}", hint=f"its newest is {newest}")
            if version < floor:
                raise NotFound(f"version {version} of {parent} is no longer kept", hint=f"its oldest is {floor}")
            for part in session.parts.values():
                levels.make_room(part.connection)
            levels.add(connection, name, left.id, version)
            faults.reach("sql: branch written")
            session.keep()
        faults.reach("sql: branch kept")
        return version

    def delete(self, ref: LineRef) -> None:
        """Remove a line with all that it has written."""
        with self._writer() as session, session.writing("-- branch"):
            for connection in (*(part.connection for part in session.parts.values()), session.connection):
                levels.remove(connection, ref.id)
            faults.reach("sql: branch removed")
            session.keep()

    def rename(self, ref: LineRef, new: str) -> None:
        """Give a line another name."""
        with self._writer() as session, session.writing("-- branch"):
            if levels.find(session.connection, new) is not None:
                raise BranchExistsError.of(new)
            session.connection.execute("UPDATE line SET name = ? WHERE id = ?", (new, ref.id))
            faults.reach("sql: branch renamed")
            session.keep()
