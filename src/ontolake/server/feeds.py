"""Following a branch: one watcher a store and branch looks for new commits, reads what they did once, and wakes all
followers. It keeps the newest commits, encoded; who falls behind them reads the store, a page at a time. No follower
has a thread, and what waits for a slow one is its position alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ontolake.errors import NotFound
from ontolake.history import Change, Ref, UnknownBranchError, wire
from ontolake.server.problems import RefusedError
from ontolake.server.values import plain

if TYPE_CHECKING:
    from ontolake.server.handles import ServedStore

Run = Callable[..., Awaitable[Any]]

LOOK = 0.1
"""Seconds between two looks at the head of a branch."""
_KEPT = 10_000
"""So many changes of the newest commits are kept for all followers."""
_DIGITS = 19
"""No commit has a number of so many digits."""
_log = logging.getLogger(__name__)


class UnkeptPositionError(RefusedError):
    """A position is not kept any more. `start` is where to start again, after reading the state there."""

    def __init__(self, since: str, branch: str, start: Any) -> None:
        super().__init__(410, f"what came after {since!r} on branch {branch!r} is not kept any more",
                         hint=f"read the rows at {branch}@{start}, then follow since={start}")
        self.start = start


class CommitEvent:
    """What one commit did, encoded once for each form and table that is asked for."""

    def __init__(self, commit: Any, changes: Sequence[Change[Any]]) -> None:
        self.commit = commit
        self.changes = changes
        self._encoded: dict[tuple[str | None, bool], bytes] = {}

    def message(self, table: str | None, tagged: bool) -> bytes:
        """The commit as a message of an event stream; empty if it did nothing to the table."""
        found = self._encoded.get((table, tagged))
        if found is None:
            chosen = [one for one in self.changes if table is None or one.table == table]
            found = event(self.commit, chosen, tagged, whole=True) if chosen else b""
            self._encoded[table, tagged] = found
        return found


def event(commit: Any, changes: Sequence[Change[Any]], tagged: bool, *, whole: bool) -> bytes:
    """Changes as a message of an event stream. Its id is the position behind a commit that is told as a whole."""
    value = {"position": str(commit) if whole else None, "changes": list(changes)}
    data = msgspec.json.encode(wire.encode(value) if tagged else plain(value))
    return (f"id: {commit}\n".encode() if whole else b"") + b"event: changes\ndata: " + data + b"\n\n"


class FeedSpan(NamedTuple):
    """A page of changes: `told` says how many of those up to `until` are told then; None if they are all."""

    changes: list[Change[Any]]
    told: int | None


def head_of(served: ServedStore, branch: str) -> Any:
    """The newest commit of a branch. Raises `UnknownBranchError`."""
    with served.reading() as store:
        return store.at(Ref(branch)).commit


def position_of(served: ServedStore, since: str, branch: str) -> Any:
    """The commit of a position. Raises `UnkeptPositionError`, `UnknownBranchError`."""
    with served.reading() as store:
        head = store.at(Ref(branch)).commit
        try:
            is_number = served.model.numbered and since.isascii() and since.isdigit() and len(since) < _DIGITS
            commit = int(since) if is_number else since
            if isinstance(commit, str):
                commit = store.at(commit).commit
            next(iter(store.changes(commit, branch=branch)), None)
        except UnknownBranchError:
            raise
        except NotFound as error:
            raise UnkeptPositionError(since, branch, head) from error
        return commit


def read_span(
    served: ServedStore, branch: str, since: Any, until: Any, table: str | None, told: int, limit: int
) -> FeedSpan:  # fmt: skip
    """A page of what the commits in `(since, until]` did to a table or all."""
    with served.reading() as store:
        try:
            chosen = (one for one in store.changes(since, until, branch=branch) if table is None or one.table == table)
            found = list(itertools.islice(chosen, told, told + limit + 1))
        except UnknownBranchError:
            raise
        except NotFound as error:
            raise UnkeptPositionError(str(since), branch, store.at(Ref(branch)).commit) from error
    return FeedSpan(found[:limit], told + limit if len(found) > limit else None)


class BranchWatch:
    """The newest commits of one branch, for all that follow it. The event loop alone changes it."""

    def __init__(self, served: ServedStore, branch: str, run: Run) -> None:
        self._served = served
        self._branch = branch
        self._run = run
        self.head: Any = None
        self.events: deque[CommitEvent] = deque()
        self.first = 0
        """The number of the first event that is kept."""
        self._size = 0
        self._followers = 0
        self._task: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()

    @property
    def next(self) -> int:
        """The number that the next event gets."""
        return self.first + len(self.events)

    async def join(self) -> None:
        """Begin to follow. Raises `UnknownBranchError`."""
        self._followers += 1
        try:
            if self._task is None:
                head = await self._run(head_of, self._served, self._branch)
                if self._task is None:
                    self.first, self.head = self.next, head
                    self.events.clear()
                    self._size = 0
                    self._task = asyncio.get_running_loop().create_task(self._watch())
        except BaseException:
            self._followers -= 1
            raise

    def leave(self) -> None:
        """End following. The last one ends the watcher."""
        self._followers -= 1
        if not self._followers and self._task is not None:
            self._task.cancel()
            self._task = None

    async def wait(self, number: int, seconds: float) -> bool:
        """Wait until there is an event of a number. False if there is none in time."""
        while self.next <= number:
            moved = self._moved
            begun = asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(moved.wait(), seconds)
            except TimeoutError:
                return False
            seconds -= asyncio.get_running_loop().time() - begun
        return True

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            try:
                head = await self._run(head_of, self._served, self._branch)
                if head == self.head:
                    continue
                span = await self._run(read_span, self._served, self._branch, self.head, head, None, 0, _KEPT)
            except Exception:
                _log.debug("branch %r of %r cannot be watched now", self._branch, self._served.name, exc_info=True)
                continue
            self._add(head, span)

    def _add(self, head: Any, span: FeedSpan) -> None:
        found = [CommitEvent(commit, list(some))
                 for commit, some in itertools.groupby(span.changes, lambda one: one.commit)]  # fmt: skip
        if span.told is not None:  # more than is kept: who follows reads the store
            self.first, self._size = self.next + 1, 0
            self.events.clear()
        else:
            if not found or str(found[-1].commit) != str(head):
                found.append(CommitEvent(head, ()))
            self.events.extend(found)
            self._size += sum(len(one.changes) for one in found)
            while self._size > _KEPT and len(self.events) > 1:
                self._size -= len(self.events.popleft().changes)
                self.first += 1
        self.head = head
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


class BranchWatches:
    """The watchers of a server."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._watches: dict[tuple[str, str], BranchWatch] = {}

    @contextlib.asynccontextmanager
    async def following(self, served: ServedStore, branch: str) -> Any:
        """The watcher of a branch, for a block."""
        watch = self._watches.get((served.name, branch))
        if watch is None:
            watch = self._watches[served.name, branch] = BranchWatch(served, branch, self._run)
        await watch.join()
        try:
            yield watch
        finally:
            watch.leave()
