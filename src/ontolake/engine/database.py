"""One database as a process sees it: where readers read, and the one place to write from.

All connections of a process to one place share it, and its fence covers all branches. While this process holds
the fence nobody else commits, so what it has seen and written itself is all there is.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import apsw

from ontolake.engine.lease import WriterLease
from ontolake.errors import Contended, DurabilityUnconfirmed, Fenced, Transient
from ontolake.storage import BranchId, FenceToken, Lsn, Storage, WalRecord

_WAITS = (0.05, 0.1, 0.2, 0.4, None)
"""Seconds before an append whose outcome is unclear is asked for again; None gives up."""
_MOMENT = 0.01
"""Seconds for which a writer believes that nobody has taken over, where looking costs more than most queries."""


class PageWriter(Protocol):
    """A connection that may write. `losses` is what `PageDatabase.losses` was when it was opened."""

    losses: int


class _Writing(NamedTuple):
    writer: PageWriter
    token: FenceToken


class PageDatabase:
    """A page store that connections of this process share. Methods are safe to call from threads."""

    def __init__(self, url: str, storage: Storage, renew_every: float) -> None:
        self.url = url
        self.storage = storage
        self.remote = bool(getattr(storage, "remote", True))
        self._lease = WriterLease(url, storage, renew_every)
        self._lock = threading.RLock()
        self._writing: dict[BranchId, _Writing] = {}
        # True while the fence is held; forgotten when an outcome is unclear.
        self._newest: Lsn | None = None
        self._trusted_until = 0.0
        self._heads: dict[BranchId, Lsn] = {}
        self._era = 0
        self._appending = 0
        self._far_or_busy = self.remote

    # where readers read
    def snapshot(self) -> Lsn:
        """The newest commit.

        While this process holds the fence, the log is asked again only after a moment if it is near, and not at all
        if it is far away or busy with our own commit. So whoever was taken over may read what was newest before, for
        a moment or until its lease is renewed next.
        """
        if self._lease.token is None:
            return self.storage.get_commit_lsn()
        newest = self._newest
        if newest is not None and (self._far_or_busy or time.monotonic() < self._trusted_until):
            return newest
        with self._lock:
            era = self._era
        asked = time.monotonic()
        lsn = self.storage.get_commit_lsn()
        with self._lock:
            if era == self._era and self._lease.token is not None:
                self._newest, self._trusted_until = max(lsn, self._newest or lsn), asked + _MOMENT
        return lsn

    # the one place to write from
    @property
    def losses(self) -> int:
        """How often another writer has taken this database over. Connections from before that cannot write any more."""
        return self._lease.losses

    def _check_place(self, writer: PageWriter) -> None:
        """Raise `Fenced` if another writer has taken over since `writer` was opened."""
        if writer.losses < self._lease.losses:
            raise Fenced(*self._lease.epochs, f"another writer has taken over {self.url}",
                         hint="close this and open it again: what was opened before the takeover cannot write any more")

    def take_over(self) -> None:
        """Become the writer, whoever is writing now."""
        with self._lock:
            if self._lease.token is None or self._lease.holder_elsewhere() is not None:
                self._take()

    def refuse_if_held(self) -> None:
        """Raise `Contended` if another process may write to this database."""
        holder = self._lease.holder_elsewhere()
        self._lease.look()  # so that whoever is opened now is not taken for one from before a takeover
        if holder is not None:
            raise Contended(
                f"{self.url} is being written to by {holder.owner!r} until "
                f"{time.strftime('%H:%M:%S', time.localtime(holder.lease_until))} or longer",
                hint="close it there, open it read-only, or take it over with takeover=True")

    def begin_write(self, writer: PageWriter, branch: BranchId, snapshot: Lsn) -> None:
        """Let `writer` write, unless somebody else does or its snapshot is no longer the newest.

        Raises `Fenced` if another writer has taken over since `writer` was opened, else `apsw.BusyError`.
        """
        with self._lock:
            self._check_place(writer)
            current = self._writing.get(branch)
            if current is not None and current.writer is not writer:
                raise apsw.BusyError("another connection of this process is writing to this branch")
            token = self._lease.token
            if token is None:
                holder = self._lease.holder_elsewhere()
                if holder is not None:
                    self._lease.look()
                    self._check_place(writer)
                    raise apsw.BusyError(f"{holder.owner!r} is writing to {self.url}")
                try:
                    token = self._take()
                except Contended as error:
                    raise apsw.BusyError(str(error)) from error
                self._check_place(writer)
            if self._head(branch) > snapshot:
                self._newest = None
                self._lease.look()
                self._check_place(writer)
                raise apsw.BusyError("the database has changed since this transaction began to read")
            self._writing[branch] = _Writing(writer, token)

    def end_write(self, writer: PageWriter, branch: BranchId) -> None:
        """`writer` has committed or given up."""
        with self._lock:
            current = self._writing.get(branch)
            if current is not None and current.writer is writer:
                del self._writing[branch]

    def _take(self) -> FenceToken:
        self._forget()
        token = self._lease.take()
        self._newest = self.storage.get_commit_lsn()
        return token

    def _head(self, branch: BranchId) -> Lsn:
        """The last commit on a branch, given that this process holds the fence."""
        head = self._heads.get(branch)
        if head is None:
            head = self._heads[branch] = self.storage.resolve_branch(branch).head_lsn
        return head

    def _forget(self) -> None:
        """Trust nothing but the log: the fence changed hands, or it is unclear what was written."""
        with self._lock:
            self._era += 1
            self._newest = None
            self._heads.clear()

    def commit(self, records: Sequence[WalRecord], branch: BranchId, snapshot: Lsn) -> Lsn:
        """Make a transaction that read at `snapshot` durable, and return its LSN.

        An unclear outcome is settled by asking again under the same request id. A lease that lapsed is taken anew
        if nobody has taken over meanwhile. Raises `Fenced` if somebody has: now, and for this writer always.
        """
        writer, token = self._writing[branch]
        request_id = uuid.uuid4().hex if self.remote else None
        unclear: Transient | DurabilityUnconfirmed | None = None
        for wait in _WAITS:
            try:
                return self._append(token, records, branch, request_id)
            except Fenced as fenced:
                if unclear is not None:
                    self._lease.lost(token, fenced)
                    raise unclear from fenced
                token = self._regain(fenced, token, writer, branch, snapshot)
            except (Transient, DurabilityUnconfirmed) as error:
                if request_id is None or wait is None:
                    raise
                unclear = error
                time.sleep(wait)
        raise Contended(f"the fence of {self.url} changes hands faster than this transaction can be written")

    def _append(
        self, token: FenceToken, records: Sequence[WalRecord], branch: BranchId, request_id: str | None
    ) -> Lsn:
        began = time.monotonic()
        with self._lock:
            self._appending += 1
            self._far_or_busy = True
        try:
            lsn = self.storage.append_wal(token, records, branch=branch, request_id=request_id)
        except OSError as error:
            self._forget()
            raise DurabilityUnconfirmed(f"{self.url}: {error}") from error
        except BaseException:
            self._forget()
            raise
        finally:
            with self._lock:
                self._appending -= 1
                self._far_or_busy = self.remote or self._appending > 0
        with self._lock:
            self._heads[branch] = lsn
            if self._newest is not None:
                self._newest, self._trusted_until = max(lsn, self._newest), began + _MOMENT
        return lsn

    def _regain(
        self, fenced: Fenced, token: FenceToken, writer: PageWriter, branch: BranchId, snapshot: Lsn
    ) -> FenceToken:
        """A token to go on with, if the old one only lapsed and what a transaction read still is the newest."""
        with self._lock:
            self._lease.lost(token, fenced)
            self._check_place(writer)
            held = self._lease.token
            if held is None:
                if self._lease.holder_elsewhere() is not None:
                    self._lease.look()
                    self._check_place(writer)
                    raise fenced
                try:
                    held = self._take()
                except Contended:
                    raise fenced from None
                self._check_place(writer)
            if self._head(branch) > snapshot:
                raise fenced
            return held

    # the end
    def orphan(self) -> None:
        """This is a forked process's copy. Its storage refuses everything, so nothing must be answered from memory."""
        self._lock = threading.RLock()
        self._newest = None

    def stop_writing(self) -> None:
        """No connection that may write is left: let others write at once."""
        self._lease.give_up()

    def close(self) -> None:
        """Give the fence up and close the storage."""
        self._lease.give_up()
        self.storage.close()
