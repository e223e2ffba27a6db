"""`connect`: a SQLite connection to whatever a URL names."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import apsw

from ontolake import urls
from ontolake.engine import database as databases
from ontolake.engine.pages import PageFile, PageVfs
from ontolake.errors import Invalid, NotFound, OntolakeError
from ontolake.storage import Lsn, PageId, Storage
from ontolake.storage.state import check_lsn

_BUSY_MS = 5000
_CACHE_KIB = 16 * 1024
_vfs: PageVfs | None = None
_vfs_lock = threading.Lock()


def connect(
    url: str, *, branch: str = "main", at: int | None = None, readonly: bool = False, takeover: bool = False,
    **knobs: Any,
) -> apsw.Connection:
    """A SQLite connection to the database at `url`, which is started where there is none (unless read-only).

    `path.db`, `sqlite:///path.db` and `:memory:` are native files. Every other URL is SQLite on our pages: `branch`
    names a copy-on-write branch, and `at` an LSN, at which the past is read. There a transaction is durable when it
    returns, a second writer gets `apsw.BusyError`, and a writer that was overtaken `Fenced`. The knobs are those of
    `ontolake.storage.open_storage`.

    Raises `Contended` if another process is writing and `takeover` is not set, `NotFound` for a missing database,
    branch or LSN, `Invalid` for what the URL cannot give.
    """
    location = urls.parse(url)
    if location.place is urls.Place.SQLITE:
        return _connect_native(location, branch, at, readonly, takeover, knobs)
    if at is not None:
        check_lsn(at, "at")
        readonly = True
    database = databases.acquire(location.base_url, knobs, create=not readonly)
    try:
        found = database.storage.resolve_branch(branch)
        moment = None if at is None else _commit_at(database.storage, branch, at)
        if takeover and not readonly:
            database.take_over()
        elif not readonly:
            database.refuse_if_held()
        file = PageFile(database, found.id, moment, readonly)
    except BaseException:
        databases.release(database)
        raise
    return _connect_pages(file, readonly)


def _connect_native(
    location: urls.Location, branch: str, at: int | None, readonly: bool, takeover: bool, knobs: dict[str, Any]
) -> apsw.Connection:
    if branch != "main" or at is not None or takeover or knobs:
        raise Invalid(f"{location.url!r} is a native SQLite file: it has no branches, no past and no fence",
                      hint="use file:///absolute/path.db for a database on our pages")
    flags = apsw.SQLITE_OPEN_READONLY if readonly else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    try:
        connection = apsw.Connection(location.path, flags)
        connection.set_busy_timeout(_BUSY_MS)
        connection.execute("PRAGMA schema_version").fetchall()
    except apsw.CantOpenError as error:
        what = "there is no file" if readonly else "cannot open"
        raise NotFound(f"{what} {location.path}", hint="check the path and its folder") from error
    except apsw.NotADBError as error:
        raise Invalid(f"{location.path} is not a SQLite file", hint="file:///… opens a page file") from error
    return connection


def _commit_at(storage: Storage, branch: str, at: int) -> Lsn:
    """The end of the last commit at or before `at`: the version of page 1 that was current then."""
    durable = storage.get_commit_lsn()
    if at > durable:
        raise NotFound(f"LSN {at} lies in the future: the newest commit is {durable}")
    if at < storage.pitr_floor():
        raise NotFound(f"LSN {at} is no longer kept: the oldest that can be read is {storage.pitr_floor()}")
    try:
        return storage.get_page(PageId(1), Lsn(at), branch=branch).lsn
    except NotFound:
        return Lsn(0)


def _connect_pages(file: PageFile, readonly: bool) -> apsw.Connection:
    vfs = _registered()
    name = vfs.prepare(file)
    flags = apsw.SQLITE_OPEN_READONLY if readonly else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    try:
        connection = apsw.Connection(name, flags, vfs=vfs.NAME)
    except BaseException:
        if vfs.forget(name) is not None:
            file.xClose()
        raise
    try:
        connection.set_busy_timeout(_BUSY_MS)
        for pragma in (f"page_size={file.xSectorSize()}", "journal_mode=MEMORY", "synchronous=FULL",
                       f"cache_size=-{_CACHE_KIB}"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
    except BaseException:
        with contextlib.suppress(apsw.Error, OntolakeError):
            connection.close(True)
        raise
    return connection


def _registered() -> PageVfs:
    global _vfs
    with _vfs_lock:
        if _vfs is None:
            _vfs = PageVfs()
        return _vfs
