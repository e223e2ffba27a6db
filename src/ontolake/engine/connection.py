"""`connect`: a SQLite connection to whatever a URL names."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import apsw

from ontolake import urls
from ontolake.engine import vfs as vfses
from ontolake.engine.checkpoints import NativeConnection
from ontolake.engine.failures import PageConnection
from ontolake.engine.moments import check_begins_at_commit, commit_at
from ontolake.engine.pages import PageFile
from ontolake.engine.registry import shared
from ontolake.errors import Invalid, NotFound, OntolakeError, StorageError
from ontolake.folders import obstacle
from ontolake.foreign import described
from ontolake.storage.schemes import is_registered
from ontolake.storage.state import check_lsn

_BUSY_MS = 5000
_CACHE_KIB = 16 * 1024
_NATIVE_CACHE_KIB = 64_000
_MAPPED = 268_435_456
"""Bytes of a native file that are read without a call and a copy for each page."""
_READ = apsw.SQLITE_OPEN_READONLY
_WRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


def connect(
    url: str, *, branch: str = "main", at: int | None = None, readonly: bool = False, takeover: bool = False,
    create: bool = True, **knobs: Any,
) -> apsw.Connection:
    """A SQLite connection to the database at `url`, started where there is none if `create` and not read-only.

    `path.db`, `sqlite:///path.db` and `:memory:` are native files. Every other URL is SQLite on our pages: `branch`
    names a copy-on-write branch, and `at` an LSN, at which the past is read. There a transaction is durable when it
    returns, a second writer gets `apsw.BusyError`, and a writer that was overtaken `Fenced` until it is opened again.
    The knobs are those of `ontolake.storage.open_storage`; all connections of a process to one database share them.

    Raises `Contended` if another process is writing and `takeover` is not set, `NotFound` for a missing database,
    branch or LSN, `Invalid` for what the URL cannot give.
    """
    if not isinstance(branch, str):
        raise Invalid(f"a branch is named by text, not by {branch!r}")
    if at is not None:
        check_lsn(at, "at")
        readonly = True
    if readonly and takeover:
        raise Invalid("a connection that only reads takes nothing over", hint="leave takeover out, or readonly and at")
    if not is_registered(url) and (location := urls.parse(url)).place is urls.Place.SQLITE:
        if branch != "main" or at is not None or takeover or knobs:
            raise Invalid(f"{url!r} is a native SQLite file: it has no branches, no past, no fence and no options",
                          hint="use file:///absolute/path.db for a database on our pages")
        return _connect_native(location.path, readonly, create)
    place = shared(url)
    # A database that is not there has no branch but main.
    database = place.join(knobs, create=create and not readonly and branch == "main", writes=not readonly)
    try:
        storage = database.storage
        found = storage.resolve_branch(branch)
        check_begins_at_commit(storage, found)
        moment = None if at is None else commit_at(storage, found, at)
        if takeover:
            database.take_over()
        elif not readonly:
            database.refuse_if_held()
        file = PageFile(database, found.id, moment, lambda: place.leave(writes=not readonly))
    except BaseException:
        place.leave(writes=not readonly)
        raise
    return _connect_pages(url, file, readonly)


def _connect_native(path: str, readonly: bool, create: bool) -> NativeConnection:
    if not create and path != ":memory:" and not os.path.lexists(path):
        raise NotFound(f"there is no file {path}", hint="check the path and its folder")
    try:
        flags = _READ if readonly else _WRITE if create else apsw.SQLITE_OPEN_READWRITE
        connection = NativeConnection(path, flags)
        connection.set_busy_timeout(_BUSY_MS)
        connection.execute("PRAGMA schema_version").fetchall()
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError) as error:
        if isinstance(error, apsw.IOError) and not os.path.isdir(path):
            raise
        raise _unopened(path, readonly) from error
    except apsw.NotADBError as error:
        what, hint = described(path) or ("something else", "choose another path")
        raise Invalid(f"{path} is not a SQLite file, but {what}", hint=hint) from error
    return connection


def enlarge_cache(connection: apsw.Connection) -> None:
    """Let a connection to a native file read without a call for each page: by a mapping, and a cache of 64 MB.

    SQLite's own 2 MB hold the inner pages of a large table, or what one commit changes, but not both.
    """
    connection.pragma("cache_size", -_NATIVE_CACHE_KIB)
    connection.pragma("mmap_size", _MAPPED)


def write_ahead(connection: apsw.Connection) -> None:
    """Give a native file a write-ahead log. Raises `apsw.BusyError` when others do not let go of it in time.

    Where several connections switch at once, SQLite fails some of them at once instead of asking them to wait.
    """
    until = time.monotonic() + _BUSY_MS / 1000
    while True:
        try:
            connection.pragma("journal_mode", "WAL")
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(0.002)
        else:
            return


def _unopened(path: str, readonly: bool) -> StorageError:
    """Why a native file could not be opened, as far as one can see."""
    if os.path.isdir(path):
        return Invalid(f"{path} is a directory, not a file", hint="give the file")
    if not os.path.lexists(path):
        what = "there is no file" if readonly else "cannot open"
        found = None if readonly else obstacle(path)
        return found or NotFound(f"{what} {path}", hint="check the path and its folder")
    return Invalid(f"{path} is there, but cannot be opened", hint="check the rights to it and to its folder: a file "
                   "with a write-ahead log can be read only by those who may write beside it; or copy it elsewhere")


def _connect_pages(url: str, file: PageFile, readonly: bool) -> apsw.Connection:
    vfs = vfses.registered()
    name = vfs.prepare(file)
    connection: PageConnection | None = None
    try:
        connection = PageConnection(name, _READ if readonly else _WRITE, vfs=vfs.NAME)
        connection.set_busy_timeout(_BUSY_MS)
        for pragma in (f"page_size={file.xSectorSize()}", "journal_mode=MEMORY", "synchronous=FULL",
                       f"cache_size=-{_CACHE_KIB}", "schema_version"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
    except BaseException as error:
        if vfs.forget(name) is not None:
            file.xClose()
        if connection is not None:
            with contextlib.suppress(apsw.Error, OntolakeError):
                connection.close(True)
        if isinstance(error, apsw.NotADBError):
            raise Invalid(f"{url!r} holds pages that are not a SQLite database",
                          hint="choose another place, or read it with ontolake.storage") from error
        raise
    return connection
