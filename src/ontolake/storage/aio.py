"""The seam as coroutines, for servers and other asyncio programs.

Appends of many coroutines join the group commit directly, without a thread each: one thread writes for all.
Every other method runs in a thread of asyncio's pool, so that the event loop never waits for a disk or a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from ontolake.errors import StorageError
from ontolake.storage import schemes
from ontolake.storage.backend import LogStorage, PendingAppend
from ontolake.storage.frame import LogCommit
from ontolake.storage.protocol import Storage
from ontolake.storage.types import (
    DEFAULT_PAGE_SIZE,
    MAIN,
    BranchId,
    BranchRef,
    FenceToken,
    Lsn,
    Page,
    PageId,
    WalRecord,
    WriterId,
)

_SCAN_BATCH = 256


class _AsyncAppend(PendingAppend):
    """An append that a coroutine awaits."""

    def __init__(
        self, token: FenceToken, branch: BranchId | str, commit: LogCommit, writer: _Writer,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        # Not by super().__init__: there is one of these for every append.
        self.token = token
        self.branch = branch
        self.commit = commit
        self.writer = writer
        self.loop = loop
        self.answer: asyncio.Future[int] = loop.create_future()

    def will_wait(self) -> None:
        """Nothing to prepare: the answer comes by itself."""

    def promote(self) -> None:
        self.writer.lead(self)

    def finish(self) -> None:
        self.writer.finished(self)


class _Writer:
    """The thread that leads groups for coroutines, and brings the answers back, one call a group and loop."""

    def __init__(self, storage: LogStorage, pending: set[_AsyncAppend]) -> None:
        self._storage = storage
        self._pending = pending
        self._to_lead: SimpleQueue[_AsyncAppend | None] = SimpleQueue()
        self._done: deque[_AsyncAppend] = deque()
        self._leading = False
        self._thread = threading.Thread(target=self._run, name="ontolake-writer", daemon=True)
        self._thread.start()

    def append(self, item: _AsyncAppend) -> None:
        if self._storage.group.enqueue(item):
            self.lead(item)

    def lead(self, item: _AsyncAppend) -> None:
        self._to_lead.put(item)

    def _run(self) -> None:
        while (item := self._to_lead.get()) is not None:
            # An error is in the items of the group by then; this thread must live on for those to come.
            self._leading = True
            with contextlib.suppress(Exception):
                self._storage.group.lead(item)
            self._leading = False
            self._deliver()
            with contextlib.suppress(Exception):
                self._storage.after_append()

    def finished(self, item: _AsyncAppend) -> None:
        self._done.append(item)
        if not self._leading:
            # A thread that appends beside the coroutines led this group.
            self._deliver()

    def _deliver(self) -> None:
        done: list[_AsyncAppend] = []
        with contextlib.suppress(IndexError):  # not while there are some: another thread may take them as well
            while True:
                done.append(self._done.popleft())
        for loop in {item.loop for item in done}:
            items = [item for item in done if item.loop is loop]
            with contextlib.suppress(RuntimeError):  # the loop was closed, so nobody waits any more
                loop.call_soon_threadsafe(_answer, items, self._pending)

    def close(self) -> None:
        self._to_lead.put(None)
        self._thread.join()


def _answer(items: Sequence[_AsyncAppend], pending: set[_AsyncAppend]) -> None:
    pending.difference_update(items)
    for item in items:
        if item.answer.done():
            continue
        if item.error is not None:
            item.answer.set_exception(item.error)
        else:
            item.answer.set_result(item.lsn)


class AsyncStorage:
    """A `Storage` whose methods are coroutines. They promise and raise what the plain ones do."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.trait_version = storage.trait_version
        self.page_size = storage.page_size
        self._writer: _Writer | None = None
        self._pending: set[_AsyncAppend] = set()

    async def get_page(self, page_id: PageId, lsn: Lsn, *, branch: BranchId | str = MAIN) -> Page:
        return await asyncio.to_thread(self.storage.get_page, page_id, lsn, branch=branch)

    async def get_pages(
        self, ids: Sequence[PageId], lsn: Lsn, *, branch: BranchId | str = MAIN
    ) -> list[Page | StorageError]:
        return await asyncio.to_thread(self.storage.get_pages, ids, lsn, branch=branch)

    async def scan_wal(self, after: Lsn, *, branch: BranchId | str = MAIN) -> AsyncIterator[tuple[Lsn, WalRecord]]:
        records = await asyncio.to_thread(self.storage.scan_wal, after, branch=branch)

        def some() -> list[tuple[Lsn, WalRecord]]:
            return [item for _, item in zip(range(_SCAN_BATCH), records, strict=False)]

        while batch := await asyncio.to_thread(some):
            for item in batch:
                yield item

    async def append_wal(
        self,
        token: FenceToken,
        records: Sequence[WalRecord],
        *,
        branch: BranchId | str = MAIN,
        request_id: str | None = None,
    ) -> Lsn:
        """As `Storage.append_wal`. If the awaiting task is cancelled the records may be appended all the same."""
        if not isinstance(self.storage, LogStorage):
            return await asyncio.to_thread(
                self.storage.append_wal, token, records, branch=branch, request_id=request_id)
        commit = self.storage.prepared(records, request_id)
        if self._writer is None:
            self._writer = _Writer(self.storage, self._pending)
        item = _AsyncAppend(token, branch, commit, self._writer, asyncio.get_running_loop())
        self._pending.add(item)
        self._writer.append(item)
        return Lsn(await item.answer)

    async def flush(self) -> None:
        await asyncio.to_thread(self.storage.flush)

    async def durable_lsn(self) -> Lsn:
        return await asyncio.to_thread(self.storage.durable_lsn)

    async def get_commit_lsn(self) -> Lsn:
        return await asyncio.to_thread(self.storage.get_commit_lsn)

    async def acquire_fence(self, owner: WriterId) -> FenceToken:
        return await asyncio.to_thread(self.storage.acquire_fence, owner)

    async def renew_fence(self, token: FenceToken) -> FenceToken:
        return await asyncio.to_thread(self.storage.renew_fence, token)

    async def release_fence(self, token: FenceToken) -> None:
        await asyncio.to_thread(self.storage.release_fence, token)

    async def current_fence(self) -> FenceToken | None:
        return await asyncio.to_thread(self.storage.current_fence)

    async def create_branch(self, name: str, base_lsn: Lsn, *, parent: BranchId | str = MAIN) -> BranchId:
        return await asyncio.to_thread(self.storage.create_branch, name, base_lsn, parent=parent)

    async def resolve_branch(self, branch: BranchId | str) -> BranchRef:
        return await asyncio.to_thread(self.storage.resolve_branch, branch)

    async def list_branches(self) -> list[BranchRef]:
        return await asyncio.to_thread(self.storage.list_branches)

    async def delete_branch(self, branch: BranchId | str) -> None:
        await asyncio.to_thread(self.storage.delete_branch, branch)

    async def rename_branch(self, branch: BranchId | str, name: str) -> None:
        await asyncio.to_thread(self.storage.rename_branch, branch, name)

    async def rebase_branch(self, branch: BranchId | str, base_lsn: Lsn) -> None:
        await asyncio.to_thread(self.storage.rebase_branch, branch, base_lsn)

    async def set_retention_floor(self, lsn: Lsn) -> None:
        await asyncio.to_thread(self.storage.set_retention_floor, lsn)

    async def pitr_floor(self) -> Lsn:
        return await asyncio.to_thread(self.storage.pitr_floor)

    async def close(self) -> None:
        """Wait for the appends that are under way, then close the storage."""
        here = asyncio.get_running_loop()
        while answers := [item.answer for item in self._pending if item.loop is here and not item.answer.done()]:
            await asyncio.wait(answers)
        if self._writer is not None:
            await asyncio.to_thread(self._writer.close)
            self._writer = None
        await asyncio.to_thread(self.storage.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def open_storage(url: str, *, page_size: int = DEFAULT_PAGE_SIZE, **knobs: Any) -> AsyncStorage:
    """As `ontolake.storage.open_storage`, without making the event loop wait."""
    return AsyncStorage(await asyncio.to_thread(schemes.open_storage, url, page_size=page_size, **knobs))
