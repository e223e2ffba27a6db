"""Group commit: appends that arrive while a durable write is under way share the next one.

The first thread to arrive leads: it writes for everyone who is waiting, then hands the lead to one who came
meanwhile. A lone writer never waits. Nobody is told of success before the shared write is durable.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from ontolake.errors import DurabilityUnconfirmed

_LOOK_AGAIN = 1.0


class Waiting:
    """Something to be committed, and how it went: `lsn` or `error` is set when its turn is over."""

    # Most of these never change, so they are not set for each one that comes.
    lsn: int = 0
    error: Exception | None = None
    gone: bool = False
    """Whether nobody waits for it any more."""
    behind: Waiting | None = None
    """The one to be told next, once this one has been told."""
    turn: threading.Lock | None = None
    """What a thread waits for, if one does."""

    def will_wait(self) -> None:
        """Somebody else leads: get ready to be told."""
        self.turn = threading.Lock()
        self.turn.acquire()

    def wait(self) -> bool:
        """Wait until this is finished, or is to lead the next group. False if nobody has said so for a while."""
        return self.turn is None or self.turn.acquire(timeout=_LOOK_AGAIN)

    def promote(self) -> None:
        """Tell this one to lead the group that has gathered."""
        self.finish()

    def finish(self) -> None:
        """Tell whoever waits that the turn is over."""
        if self.turn is not None:
            self.turn.release()

    def pass_on(self) -> None:
        """Tell the one behind, if there is one."""
        behind, self.behind = self.behind, None
        if behind is not None:
            behind.finish()

    def result(self) -> int:
        """The LSN, or the error raised."""
        if self.error is not None:
            raise self.error
        return self.lsn


W = TypeVar("W", bound=Waiting)


class GroupCommit(Generic[W]):
    """Runs `write(group)` for groups of waiting commits, one group at a time."""

    def __init__(self, write: Callable[[Sequence[W]], None], window_ms: float) -> None:
        self._write = write
        self._window = window_ms / 1000
        self._lock = threading.Lock()
        self._queue: list[W] = []
        self._leader: W | None = None
        self._last_size = 1
        self._expected = 0
        self._all_here = threading.Event()

    def commit(self, item: W) -> int:
        """Have `item` written; return its LSN or raise its error."""
        try:
            if not self.enqueue(item):
                while not (item.wait() or item.lsn or item.error or self._leader is item):
                    pass
                item.pass_on()
            if self._leader is item:
                self.lead(item)
        except BaseException:
            self._abandon(item)
            raise
        return item.result()

    def enqueue(self, item: W) -> bool:
        """Put `item` into the next group; True if the caller has to `lead` it."""
        with self._lock:
            self._queue.append(item)
            lead = self._leader is None
            if lead:
                self._leader = item
            else:
                item.will_wait()
            if self._expected and len(self._queue) >= self._expected:
                self._expected = 0
                self._all_here.set()
        return lead

    def lead(self, leader: W) -> None:
        """Write the group that has gathered, and pass the lead on if another has gathered meanwhile."""
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
            if failure is not None:
                for item in group:
                    if item.error is None and not item.lsn:
                        item.error = _shared(failure)
            self._abandon(leader)
            self._tell(group)

    def _tell(self, group: Sequence[W]) -> None:
        """Tell everyone in the group. Each thread tells the next: woken all at once they would fight to run."""
        with self._lock:
            threads = [item for item in group if item.turn is not None and not item.gone]
            for item, behind in pairwise(threads):
                item.behind = behind
        for item in threads[:1]:
            item.finish()
        for item in group:
            if item.turn is None:
                item.finish()

    def _abandon(self, item: W) -> None:
        """`item` waits no longer, and leads no longer: if it does lead, the next one in the queue will."""
        with self._lock:
            item.gone = True
            if item in self._queue:
                self._queue.remove(item)
            if self._leader is item:
                self._leader = self._queue[0] if self._queue else None
                if self._leader is not None:
                    self._leader.promote()
        item.pass_on()

    def _gather(self) -> None:
        """Wait, at most for the window, while fewer are here than came last time: they are on their way."""
        with self._lock:
            if self._window <= 0 or len(self._queue) >= self._last_size:
                return
            self._all_here.clear()
            self._expected = self._last_size
        self._all_here.wait(self._window)
        self._expected = 0


def _shared(failure: BaseException) -> Exception:
    if isinstance(failure, Exception):
        return failure
    return DurabilityUnconfirmed(f"the write was interrupted: {failure!r}")
