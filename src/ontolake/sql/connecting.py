"""Ways to a database that belongs to no thread: connections, and the private one that temporary tables are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ontolake.sql.database import Database, Version
    from ontolake.sql.sql_connection import SqlConnection


def connect(self: Database, *, author: str | None = None, as_of: Version | None = None) -> SqlConnection:
    """A connection with a transaction, settings, prepared statements, cursors and temporary tables of its own, which
    any thread may use, one at a time. What it commits is by `author`, unless a call names another. With `as_of` its
    queries read the tables as they were at a version or time.

    It runs statements as the database does. Close it before the database. Raises `UnsupportedError` for `:memory:`,
    which has one session for all.
    """
    from ontolake.sql.sql_connection import SqlConnection

    return SqlConnection(self, author, as_of)


def open_private(*, fails_on_error: bool) -> Database:
    """A database in memory for one owner, which may go from thread to thread."""
    from ontolake.sql.database import ON_ERROR

    return open_own(":memory:", {"cache": 0, "on_error": ON_ERROR[0 if fails_on_error else 1]})


def open_own(url: str, options: Mapping[str, Any]) -> Database:
    """A database that one owner has alone, and may use from any thread, one at a time. The options are those of
    `open_database`."""
    from ontolake.sql.database import open_database

    found = open_database(url, **options)
    found.session.lock = NoLock()
    found.leave_thread()
    return found


class NoLock:
    """The lock of a session that nobody else has."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return True

    def release(self) -> None: ...

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None: ...
