"""Group commit: appends that arrive while a durable write is under way share the next one.

The first thread to arrive leads: it writes for everyone who is waiting, then hands the lead to one who came
meanwhile. A lone writer never waits. Nobody is told of success before the shared write is durable.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ontolake.errors import DurabilityUnconfirmed


class Waiting:
    """Something to be committed, and how it went: `lsn` or `error` is set when its turn is over."""

    __slots__ = ("_turn", "error", "leads", "lsn")

    def __init__(self) -> None:
        self.lsn = 0
        self.error: Exception | None = None
        self.leads = False
        self._turn = threading.Lock()
        self._turn.acquire()

    def wait(self) -> None:
        self._turn.acquire()

    def wake(self) -> None:
        self._turn.release()


W = TypeVar("W", bound=Waiting)


class GroupCommit(Generic[W]):
    """Runs `write(group)` for groups of waiting commits, one group at a time."""

    def __init__(self, write: Callable[[Sequence[W]], None], window_ms: float) -> None:
        self._write = write
        self._window = window_ms / 1000
        self._lock = threading.Lock()
        self._queue: list[W] = []
        self._leading = False
        self._last_size = 1

    def commit(self, item: W) -> int:
        """Have `item` written; return its LSN or raise its error."""
        with self._lock:
            self._queue.append(item)
            lead = not self._leading
            self._leading = True
        if not lead:
            item.wait()
            lead = item.leads
        if lead:
            self._lead()
        if item.error is not None:
            raise item.error
        return item.lsn

    def _lead(self) -> None:
        group: list[W] = []
        failure: BaseException | None = None
        try:
            self._gather()
            with self._lock:
                group, self._queue = self._queue, []
            self._write(group)
        except BaseException as error:
            failure = error
            raise
        finally:
            self._last_size = len(group)
            for item in group:
                if failure is not None and item.error is None and not item.lsn:
                    item.error = _shared(failure)
            with self._lock:
                successor = self._queue[0] if self._queue else None
                self._leading = successor is not None
            if successor is not None:
                successor.leads = True
                successor.wake()
            for item in group:
                if not item.leads:
                    item.wake()

    def _gather(self) -> None:
        """Wait, at most for the window, while fewer are here than came last time: they are on their way."""
        if self._last_size <= 1 or self._window <= 0:
            return
        until = time.perf_counter() + self._window
        while len(self._queue) < self._last_size and time.perf_counter() < until:
            time.sleep(0.0001)


def _shared(failure: BaseException) -> Exception:
    if isinstance(failure, Exception):
        return failure
    return DurabilityUnconfirmed(f"the write was interrupted: {failure!r}")
