"""One database as a process sees it: its storage, the one place to write from, and the lease that keeps it.

All connections of a process to one URL share it. The fence is taken when the first transaction writes, kept
alive in the background, and given up when the last connection closes.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

import apsw

from ontolake import urls
from ontolake.errors import Contended, DurabilityUnconfirmed, Fenced, StorageError, Transient
from ontolake.storage import BranchId, FenceToken, Lsn, Storage, WalRecord, open_storage

_log = logging.getLogger("ontolake.engine")
_RETRIES = 5
_open: dict[tuple[int, str], Database] = {}
_opening = threading.Lock()


class Database:
    """A page store that connections of this process share."""

    def __init__(self, url: str, storage: Storage, renew_every: float) -> None:
        self.url = url
        self.storage = storage
        self.remote = bool(getattr(storage, "remote", True))
        self.users = 0
        self._owner = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self._renew_every = renew_every
        self._lock = threading.RLock()
        self._token: FenceToken | None = None
        self._writer: object | None = None
        self._known = Lsn(0)
        self._stop = threading.Event()
        self._renewal: threading.Thread | None = None

    # where readers read
    def snapshot(self) -> Lsn:
        """The newest commit. A remote store is not asked while nobody else can have written to it."""
        with self._lock:
            if self.remote and self._token is not None and time.time() < self._token.lease_until:
                return self._known
        return self.storage.get_commit_lsn()

    # the one place to write from
    def take_over(self) -> None:
        """Become the writer, whoever is writing now."""
        with self._lock:
            self._acquire()

    def refuse_if_held(self) -> None:
        """Raise `Contended` if another process may write to this database."""
        holder = self._foreign_holder()
        if holder is not None:
            raise Contended(
                f"{self.url} is being written to by {holder.owner!r} until "
                f"{time.strftime('%H:%M:%S', time.localtime(holder.lease_until))} or longer",
                hint="close it there, open it read-only, or take it over with takeover=True")

    def _foreign_holder(self) -> FenceToken | None:
        current = self.storage.current_fence()
        if current is None or current.owner == self._owner or time.time() >= current.lease_until:
            return None
        return current

    def begin_write(self, writer: object, branch: BranchId, snapshot: Lsn) -> None:
        """Let `writer` write, unless somebody else does or its snapshot is no longer the newest."""
        with self._lock:
            if self._writer is not None and self._writer is not writer:
                raise apsw.BusyError("another connection of this process is writing")
            if self._token is None or time.time() >= self._token.lease_until:
                holder = self._foreign_holder()
                if holder is not None:
                    raise apsw.BusyError(f"{holder.owner!r} is writing to {self.url}")
                try:
                    self._acquire()
                except Contended as error:
                    raise apsw.BusyError(str(error)) from error
            if self.storage.resolve_branch(branch).head_lsn > snapshot:
                raise apsw.BusyError("the database has changed since this transaction began to read")
            self._writer = writer

    def end_write(self, writer: object) -> None:
        with self._lock:
            if self._writer is writer:
                self._writer = None

    def _acquire(self) -> None:
        self._token = self.storage.acquire_fence(self._owner)
        self._known = self.storage.get_commit_lsn()
        if self._renewal is None:
            self._renewal = threading.Thread(target=self._renew, name="ontolake-lease", daemon=True)
            self._renewal.start()

    def _renew(self) -> None:
        while not self._stop.wait(self._renew_every):
            with self._lock:
                token = self._token
            if token is None:
                continue
            try:
                renewed = self.storage.renew_fence(token)
            except Fenced:
                self._lost(token)
            except StorageError as error:
                _log.warning("the lease on %s could not be renewed: %s", self.url, error)
            else:
                with self._lock:
                    if self._token is not None and self._token.epoch == renewed.epoch:
                        self._token = renewed

    def _lost(self, token: FenceToken) -> None:
        with self._lock:
            if self._token is not None and self._token.epoch == token.epoch:
                self._token = None

    def commit(self, records: Sequence[WalRecord], branch: BranchId) -> Lsn:
        """Make a transaction durable. An unclear outcome is settled by asking again with the same request id."""
        token = self._token
        if token is None:
            raise Fenced(0, 0, "another writer took over")
        request_id = uuid.uuid4().hex if self.remote else None
        for attempt in range(_RETRIES):
            try:
                lsn = self.storage.append_wal(token, records, branch=branch, request_id=request_id)
            except Fenced:
                self._lost(token)
                raise
            except (Transient, DurabilityUnconfirmed):
                if request_id is None or attempt + 1 == _RETRIES:
                    raise
                time.sleep(0.05 * 2**attempt)
            else:
                self._known = lsn
                return lsn
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Give the lease up and close the storage."""
        self._stop.set()
        if self._renewal is not None:
            self._renewal.join()
        with self._lock:
            token, self._token = self._token, None
        if token is not None:
            with contextlib.suppress(StorageError):
                self.storage.release_fence(token)
        self.storage.close()


def acquire(url: str, knobs: dict[str, Any], *, create: bool) -> Database:
    """The database at `url`, opened, or shared with the connections that this process has. `release` gives it back."""
    location = urls.parse(url)
    local = location.place in (urls.Place.PAGE_FILE, urls.Place.DIRECTORY)
    with _opening:
        key = (os.getpid(), os.path.realpath(location.path) if local else url)
        database = _open.get(key)
        if database is None:
            storage = open_storage(url, create=create, **knobs)
            renew_ms = knobs.get("fence_renew_ms", min(3000.0, knobs.get("fence_lease_ms", 10_000.0) / 3))
            database = _open[key] = Database(url, storage, renew_ms / 1000)
        database.users += 1
        return database


def release(database: Database) -> None:
    """A connection is done with the database; the last one closes it."""
    with _opening:
        database.users -= 1
        if database.users:
            return
        for key in [key for key, known in _open.items() if known is database]:
            del _open[key]
    database.close()


def _at_exit() -> None:
    for (pid, _), database in list(_open.items()):
        if pid == os.getpid():
            with contextlib.suppress(Exception):
                database.close()


atexit.register(_at_exit)
