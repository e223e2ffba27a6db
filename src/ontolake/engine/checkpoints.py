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
"""Pages in the log from which on commits wait for the copy: else a log that is always written to would never end."""


class NativeConnection(apsw.Connection):
    """A connection to a native file. Closing it waits for the checkpoint that its commits have started."""

    def __init__(self, path: str, flags: int) -> None:
        super().__init__(path, flags)
        self._thread: threading.Thread | None = None
        if flags & apsw.SQLITE_OPEN_READWRITE:
            self.set_wal_hook(_committed)
            _open.add(self)

    def close(self, force: bool = False) -> None:
        self.wait_for_checkpoint()
        super().close(force)

    def start_checkpoint(self, name: str) -> None:
        """Copy the log of a database into its file, in a thread, unless one is at it."""
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=_checkpoint, args=(self.db_filename(name),), name="ontolake-checkpoint")
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
    if pages >= MOST_PAGES:
        connection.wait_for_checkpoint()
        with suppress(apsw.Error):
            connection.wal_checkpoint(name, apsw.SQLITE_CHECKPOINT_PASSIVE)
    elif pages >= PAGES:
        with suppress(RuntimeError):  # the interpreter is ending, and closing the file does it
            connection.start_checkpoint(name)
    return apsw.SQLITE_OK


def _checkpoint(path: str) -> None:
    """Copy what is in the log now, as far as nobody reads what it would replace."""
    with suppress(apsw.Error):
        connection = apsw.Connection(path, apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.execute("PRAGMA schema_version").fetchall()  # else it does not know yet that there is a log
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        finally:
            connection.close()


_open: weakref.WeakSet[NativeConnection] = weakref.WeakSet()


def _settle() -> None:
    """Before a fork: SQLite's locks must not be held by a thread that the child does not have."""
    for connection in list(_open):
        connection.wait_for_checkpoint()


os.register_at_fork(before=_settle)
