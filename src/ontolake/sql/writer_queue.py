"""Turns: which thread of this process may write to a place next.

Threads wait here in order, so that only one of them asks SQLite for the lock of writers. Whoever has the turn may pass
it on to a thread that can go on in the same SQLite transaction; the last of them commits for all.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from ontolake import urls
from ontolake.sql import cancellation
from ontolake.sql.errors import SqlError

if TYPE_CHECKING:
    from ontolake.sql.sessions import SessionPool
    from ontolake.sql.transactions import SqlSession

_LOOK = 0.05
"""How many seconds a thread waits before it looks whether its statement was canceled."""
MOST = 64
"""How many turns a batch takes at most."""


class BatchCounts:
    """How many batches this process has committed, and the transactions in them. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.batches = 0
        self.transactions = 0

    def add(self, transactions: int) -> None:
        with self._lock:
            self.batches += 1
            self.transactions += transactions


BATCHES = BatchCounts()
"""Those of all databases of this process."""


class CommitBatch:
    """Transactions of several threads, written on one session one after the other, that are committed together."""

    def __init__(self, session: SqlSession, *, is_lent: bool) -> None:
        self.session = session
        self.is_lent = is_lent
        """Whether the session stays that of the thread that began the batch."""
        self.count = 0
        """How many transactions are written."""
        self.turns = 0
        """How many threads have had their turn."""
        self.is_full = False
        """Whether no more transactions may join."""
        self.done = threading.Event()
        self.error: BaseException | None = None

    def finish(self, error: BaseException | None) -> None:
        """Tell all threads how it went."""
        self.error = error
        if error is None and self.count:
            BATCHES.add(self.count)
        self.done.set()

    def wait(self) -> None:
        """Wait for the commit. Raises what it has raised: then nothing of the batch is there."""
        self.done.wait()
        if self.error is not None:
            raise self.error


class _Ticket:
    """A thread that waits for its turn."""

    __slots__ = ("granted", "group")

    def __init__(self, group: SessionPool | None) -> None:
        self.group = group
        self.granted = threading.Event()


class WriterQueue:
    """The threads that want to write to one place."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[_Ticket] = deque()
        self._taken = False

    def enter(self, group: SessionPool | None = None) -> None:
        """Wait for the turn. Threads of one `group` can be passed it.

        Raises `SqlError`: 55P03 if that takes longer than lock_timeout, 57014 if the statement is canceled.
        """
        with self._mutex:
            if not self._taken:
                self._taken = True
                return
            ticket = _Ticket(group)
            self._waiting.append(ticket)
        limit = cancellation.lock_timeout()
        until = None if limit is None else time.monotonic() + limit
        try:
            while not ticket.granted.wait(_LOOK if until is None else max(0.0, min(_LOOK, until - time.monotonic()))):
                cancellation.check()
                if until is not None and time.monotonic() >= until:
                    raise SqlError("another thread is writing, and did not end within lock_timeout", sqlstate="55P03",
                                   hint="try again, or raise lock_timeout")
        except BaseException as error:
            if self._is_out(ticket):
                raise
            if not isinstance(error, SqlError):  # else the turn has come at the last moment
                if group is None:
                    self.leave()
                else:
                    group.give_up_turn()
                raise

    def _is_out(self, ticket: _Ticket) -> bool:
        """Leave the queue. Returns False if the turn has come meanwhile."""
        with self._mutex:
            if ticket.granted.is_set():
                return False
            self._waiting.remove(ticket)
            return True

    def pass_on(self, group: SessionPool) -> bool:
        """Give the turn to the next thread if it is of this group. Returns whether it was."""
        with self._mutex:
            if not self._waiting or self._waiting[0].group is not group:
                return False
            self._waiting.popleft().granted.set()
            return True

    def leave(self) -> None:
        """End the turn: the next thread has it."""
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().granted.set()
            else:
                self._taken = False


_queues: dict[tuple[object, ...], WriterQueue] = {}
_guard = threading.Lock()


def queue_of(url: str, branch: str) -> WriterQueue:
    """The queue of a place, which all that write there share. On our pages each branch has a writer of its own."""
    place = urls.parse(url)
    if place.path == ":memory:":
        return WriterQueue()
    local = place.place in (urls.Place.SQLITE, urls.Place.PAGE_FILE, urls.Place.DIRECTORY)
    path = os.path.realpath(place.path) if local else place.path
    key = (place.scheme, place.bucket, path, "" if place.place is urls.Place.SQLITE else branch)
    with _guard:
        return _queues.setdefault(key, WriterQueue())


def _start_anew() -> None:
    """In a forked process: the turns are those of threads of its parent."""
    global _guard
    _guard = threading.Lock()
    _queues.clear()


os.register_at_fork(after_in_child=_start_anew)
