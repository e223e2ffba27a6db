"""Group commit: requests that wait together for one store and branch become one commit, each with its own answer.

While one commit is under way, what comes meanwhile gathers; the next commit takes all of it. A write that cannot be
done fails alone: the others are committed without it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake.history.metadata import REQUESTS
from ontolake.server.writes import committer_of
from ontolake.server.writes.requests import RowWrite, WriteFailure, WriteNote
from ontolake.server.writes.retries import AnsweredRequests, RequestKey

if TYPE_CHECKING:
    from ontolake.server.handles import ServedStore

Run = Callable[..., Awaitable[Any]]

MOST = 256
"""How many requests one commit takes."""
_MOST_BYTES = 8 << 20
"""A commit takes no more requests once their bodies are so big together."""
_RETRIES = 16
"""So many bad writes are left out of a group one by one; with more, every write is committed alone."""


class WriteOutcome(NamedTuple):
    """What a request was answered with: the commit, None if nothing differed, and whether it is an answer of before."""

    commit: Any
    replayed: bool = False


@dataclass
class PendingWrite:
    """A request that waits for its commit."""

    write: RowWrite
    author: str
    message: str | None
    expected: str | None
    key: RequestKey | None
    done: asyncio.Future[WriteOutcome] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    outcome: WriteOutcome | BaseException | None = None

    @property
    def group(self) -> tuple[str, str | None]:
        """Requests are committed together if these are the same."""
        return self.author, self.message


class WriteQueue:
    """The writes that wait for one branch of a store."""

    def __init__(self, served: ServedStore, branch: str, run: Run) -> None:
        self._served = served
        self._run_blocking = run
        self._branch = branch
        self._waiting: deque[PendingWrite] = deque()
        self._task: asyncio.Task[None] | None = None
        self._answered = AnsweredRequests(branch)
        self._commit = committer_of(served.model)
        self.sizes: deque[int] = deque(maxlen=1000)
        """How many requests the last commits took."""

    async def put(self, pending: PendingWrite) -> WriteOutcome:
        """Wait for the commit of a write. Raises why it cannot be done."""
        self._waiting.append(pending)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        return await pending.done

    async def _run(self) -> None:
        try:
            while self._waiting:
                group = self._gather()
                try:
                    await self._run_blocking(self._commit_group, group)
                except BaseException as error:
                    for one in group:
                        one.outcome = one.outcome or error
                    if not isinstance(error, Exception):
                        raise
                finally:
                    for one in group:
                        _answer(one)
        finally:
            self._task = None

    def _gather(self) -> list[PendingWrite]:
        """The next requests that can share a commit. One that names a head is committed alone."""
        group = [self._waiting.popleft()]
        size = len(group[0].write.body)
        if group[0].expected is not None:
            return group
        left: deque[PendingWrite] = deque()
        keys = {group[0].key}
        while self._waiting and len(group) < MOST and size < _MOST_BYTES:
            one = self._waiting.popleft()
            if one.expected is not None:
                left.append(one)
                break
            if one.group != group[0].group or (one.key is not None and one.key in keys):
                left.append(one)
                continue
            group.append(one)
            keys.add(one.key)
            size += len(one.write.body)
        left.extend(self._waiting)
        self._waiting = left
        return group

    # in a thread

    def _commit_group(self, group: list[PendingWrite]) -> None:
        with self._served.writing(self._branch) as store:
            rest = self._without_answered(store, group)
            for _ in range(_RETRIES):
                if not rest:
                    return
                try:
                    self._commit_together(store, rest)
                    return
                except WriteFailure as failure:
                    rest[failure.place].outcome = failure.error
                    rest = [one for one in rest if one.outcome is None]
                except Exception as error:
                    if len(rest) == 1:
                        rest[0].outcome = error
                        return
                    break
            for one in rest:
                try:
                    self._commit_together(store, [one])
                except WriteFailure as failure:
                    one.outcome = failure.error
                except Exception as error:
                    one.outcome = error

    def _without_answered(self, store: Any, group: Sequence[PendingWrite]) -> list[PendingWrite]:
        """The requests that were not answered before."""
        if any(one.key is not None for one in group):
            self._answered.learn(store)
        rest = []
        for one in group:
            try:
                found = None if one.key is None else self._answered.find(one.key)
            except Exception as error:
                one.outcome = error
                continue
            if found is None:
                rest.append(one)
            else:
                one.outcome = WriteOutcome(found[0], replayed=True)
        return rest

    def _commit_together(self, store: Any, group: Sequence[PendingWrite]) -> None:
        first = group[0]
        keys = {one.key.key: one.key.payload for one in group if one.key is not None}
        note = WriteNote(first.author, first.message, {REQUESTS: keys} if keys else {}, first.expected)
        commit = self._commit(store, self._branch, [one.write for one in group], note)
        self.sizes.append(len(group))
        for one in group:
            one.outcome = WriteOutcome(commit)
            if one.key is not None:
                self._answered.note(one.key, commit)


def _answer(pending: PendingWrite) -> None:
    if pending.done.done():  # whoever waited has gone
        return
    if isinstance(pending.outcome, WriteOutcome):
        pending.done.set_result(pending.outcome)
    else:
        pending.done.set_exception(pending.outcome or RuntimeError("a write was left without an answer"))


class WriteQueues:
    """The queues of a server, one for each branch that is written to."""

    def __init__(self, run: Run) -> None:
        """`run` runs a function that may block in a thread."""
        self._run = run
        self._queues: dict[tuple[str, str], WriteQueue] = {}

    def of(self, served: ServedStore, branch: str) -> WriteQueue:
        found = self._queues.get((served.name, branch))
        if found is None:
            found = self._queues[served.name, branch] = WriteQueue(served, branch, self._run)
        return found
