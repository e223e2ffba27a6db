"""The seam as coroutines: the same answers and errors, and appends that share durable writes."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from ontolake.errors import Fenced, Invalid, NotFound
from ontolake.storage import MAIN, Lsn, PageId, WalRecord, aio

PAGE = 512


def write(n: int, page: int = 0) -> WalRecord:
    return WalRecord(n.to_bytes(8, "big") * (PAGE // 8), PageId(page))


@pytest.fixture(params=["file", "objects"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"file://{tmp_path}/a.db" if request.param == "file" else f"file://{tmp_path}/dir"


def test_every_method_is_there_and_answers(url: str) -> None:
    async def story() -> None:
        async with await aio.open_storage(url, page_size=PAGE) as storage:
            token = await storage.acquire_fence("w")
            assert await storage.append_wal(token, [write(1), write(2, 1)]) == 2
            assert (await storage.get_page(PageId(1), Lsn(2))).lsn == 2
            assert len(await storage.get_pages([PageId(0), PageId(9)], Lsn(2))) == 2
            branch = await storage.create_branch("b", Lsn(2))
            assert await storage.append_wal(token, [write(3)], branch=branch, request_id="x") == 3
            assert await storage.append_wal(token, [write(3)], branch=branch, request_id="x") == 3
            assert [lsn async for lsn, _ in storage.scan_wal(Lsn(0), branch="b")] == [1, 2, 3]
            assert (await storage.resolve_branch("b")).head_lsn == 3
            assert [ref.name for ref in await storage.list_branches()] == ["main", "b"]
            await storage.delete_branch("b")
            await storage.set_retention_floor(Lsn(2))
            assert await storage.pitr_floor() == 2
            assert await storage.durable_lsn() == await storage.get_commit_lsn() == 3
            token = await storage.renew_fence(token)
            assert await storage.current_fence() == token
            await storage.flush()
            await storage.release_fence(token)
            with pytest.raises(Fenced):
                await storage.append_wal(token, [write(4)])
            with pytest.raises(NotFound):
                await storage.get_page(PageId(77), Lsn(3), branch=MAIN)
            with pytest.raises(Invalid):
                await storage.append_wal(token, [])

    asyncio.run(story())


def test_many_coroutines_get_dense_lsns_and_share_writes(url: str) -> None:
    async def story() -> None:
        async with await aio.open_storage(url, page_size=PAGE, maintenance="off") as storage:
            token = await storage.acquire_fence("w")

            async def writer(n: int) -> list[int]:
                return [await storage.append_wal(token, [write(n, n)]) for _ in range(10)]

            lsns = sorted(lsn for some in await asyncio.gather(*map(writer, range(32))) for lsn in some)
            assert lsns == list(range(1, 321))
            state = storage.storage.log.state  # type: ignore[attr-defined]
            assert state.ordinal < 160, "fewer frames than appends: writes were shared"

    asyncio.run(story())


def test_threads_and_coroutines_can_append_side_by_side(url: str) -> None:
    async def story() -> None:
        async with await aio.open_storage(url, page_size=PAGE) as storage:
            token = await storage.acquire_fence("w")

            def by_thread() -> list[int]:
                return [storage.storage.append_wal(token, [write(n)]) for n in range(40)]

            async def by_coroutine() -> list[int]:
                return [await storage.append_wal(token, [write(n)]) for n in range(40)]

            some = await asyncio.gather(
                *(asyncio.to_thread(by_thread) for _ in range(3)), *(by_coroutine() for _ in range(3)))
            assert sorted(lsn for lsns in some for lsn in lsns) == list(range(1, 241))

    asyncio.run(story())


def test_a_cancelled_append_leaves_the_storage_usable(url: str) -> None:
    async def story() -> None:
        async with await aio.open_storage(url, page_size=PAGE) as storage:
            token = await storage.acquire_fence("w")
            task = asyncio.create_task(storage.append_wal(token, [write(1)]))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            lsn = await storage.append_wal(token, [write(2)])
            assert lsn in (1, 2)
            assert await storage.durable_lsn() == lsn

    asyncio.run(story())


class TakenMeanwhile(deque[Any]):
    """Whoever looks whether something is in it finds that somebody else has taken it then."""

    def __len__(self) -> int:
        found = super().__len__()
        self.clear()
        return found


def test_answers_that_another_thread_brings_are_no_trouble(url: str) -> None:
    """Both a thread that led a group and the writer's own bring what there is."""
    async def story() -> None:
        async with await aio.open_storage(url, page_size=PAGE) as storage:
            token = await storage.acquire_fence("w")
            await storage.append_wal(token, [write(1)])
            assert storage._writer is not None
            storage._writer._done = TakenMeanwhile()
            assert await asyncio.wait_for(storage.append_wal(token, [write(2)]), 60) == 2

    asyncio.run(story())
