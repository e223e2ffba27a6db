"""Checkpoints of native files: their write-ahead log is copied into them beside the commits, not within one.

SQLite by itself makes the commit that fills the log wait until all of it has been copied and synced. Here a thread does
that, over a connection of its own, while commits go on. What makes a commit durable is as before: it is in the log.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from typing import Any

import apsw

PAGES = 1000
"""Pages in the log from which on it is copied: SQLite's default."""
MOST_PAGES = 8 * PAGES
"""Pages in the log from which on commits copy it themselves: else one that is always written to would never end. Not
one that has filled it alone, since the thread has not had its chance yet."""


class _Log:
    """The log of a database, as its checkpoints leave it. The thread that makes one must not know the connection."""

    def __init__(self) -> None:
        self.due = PAGES
        """Pages from which on it is to be copied. Where a reader holds that up, not with every commit."""
        self.pages = 0
        """Pages that it had after the last commit."""

    def copy(self, path: str) -> None:
        """Copy what is in it now, as far as nobody reads what that would replace."""
        with suppress(apsw.Error):
            connection = apsw.Connection(path, apsw.SQLITE_OPEN_READWRITE)
            try:
                connection.execute("PRAGMA schema_version").fetchall()  # else it does not know yet that there is a log
                pages, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                self.due = PAGES if copied == pages else pages + PAGES // 4
            finally:
                connection.close()


class NativeConnection(apsw.Connection):
    """A connection to a native file. Closing it waits for the checkpoint that its commits have started."""

    def __init__(self, path: str, flags: int) -> None:
        super().__init__(path, flags)
        self._thread: threading.Thread | None = None
        self._log = _Log()
        if flags & apsw.SQLITE_OPEN_READWRITE:
            self.set_wal_hook(_committed)
            _open.add(self)

    def close(self, force: bool = False) -> None:
        self.wait_for_checkpoint()
        super().close(force)

    def is_due(self, pages: int) -> bool:
        """Whether a log that has so many pages now is to be copied."""
        return pages >= self._log.due

    def is_overfull(self, pages: int) -> bool:
        """Whether a log that has so many pages now has been waiting to be copied, and is too long. Once a commit."""
        before, self._log.pages = self._log.pages, pages
        return pages >= MOST_PAGES and PAGES <= before < pages

    def start_checkpoint(self, name: str) -> None:
        """Copy the log of a database into its file, in a thread, unless one is at it."""
        if self._thread is None or not self._thread.is_alive():
            path = self.db_filename(name)
            thread = threading.Thread(target=self._log.copy, args=(path,), name="ontolake-checkpoint")
            thread.start()
            self._thread = thread

    def wait_for_checkpoint(self) -> None:
        """Return when no checkpoint is running that commits of this connection have started."""
        thread = self._thread
        if thread is not None:
            thread.join()
            self._thread = None


def truncate_log(connection: apsw.Connection) -> bool:
    """Copy all of the log of a native file into it and empty it. Returns False if others read or write on."""
    if isinstance(connection, NativeConnection):
        connection.wait_for_checkpoint()
    try:
        state: Any = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except apsw.BusyError:
        return False
    return not state[0]


def _committed(connection: apsw.Connection, name: str, pages: int) -> int:
    """A commit is in the log, which has `pages` pages now. What fails here is left to the next one: it has succeeded.

    Not a method: the hook would keep its connection alive.
    """
    assert isinstance(connection, NativeConnection)
    if connection.is_overfull(pages):
        connection.wait_for_checkpoint()
        with suppress(apsw.Error):
            connection.wal_checkpoint(name, apsw.SQLITE_CHECKPOINT_PASSIVE)
    elif connection.is_due(pages):
        with suppress(RuntimeError):  # the interpreter is ending, and closing the file does it
            connection.start_checkpoint(name)
    return apsw.SQLITE_OK


_open: weakref.WeakSet[NativeConnection] = weakref.WeakSet()


def _settle() -> None:
    """Before a fork: SQLite's locks must not be held by a thread that the child does not have."""
    for connection in list(_open):
        connection.wait_for_checkpoint()


os.register_at_fork(before=_settle)
