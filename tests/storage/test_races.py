"""Readers beside writers in one process: each answer is the one for its LSN, whatever is cached or compacted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from marking import slow_after

from ontolake.storage import LocalFileStorage, Lsn, NotFound, ObjectStorage, Page, PageId, StorageError, WalRecord

PAGE = 512
PAGES = 4


def write(n: int) -> WalRecord:
    return WalRecord(n.to_bytes(8, "big") * (PAGE // 8), PageId(n % PAGES))


@pytest.mark.parametrize("handles", [1, 3])
@pytest.mark.parametrize("cache_bytes", slow_after(1, [3 * PAGE, 0, 2**20]))
@pytest.mark.parametrize("kind", slow_after(1, ["memory", "file"]))
def test_readers_beside_a_writer_never_see_another_moment(
    kind: str, cache_bytes: int, handles: int, tmp_path: Path
) -> None:
    knobs = {"page_size": PAGE, "cache_bytes": cache_bytes, "index_every": 5, "fence_lease_ms": 600_000,
             "gc_grace_ms": 0}

    def opened() -> LocalFileStorage | ObjectStorage:
        if kind == "file":
            return LocalFileStorage(tmp_path / "a.db", **knobs)
        return ObjectStorage(f"memory://races-{cache_bytes}-{handles}", **knobs)

    writer = opened()
    # With one handle the cache is shared by all; with three, what one does moves things under the others.
    storage, tidier = (writer, writer) if handles == 1 else (opened(), opened())
    token = writer.acquire_fence("w")
    for n in range(1, PAGES + 1):
        writer.append_wal(token, [write(n)])
    done, wrong = threading.Event(), list[str]()

    def check(page: Page | StorageError, lsn: int) -> None:
        if isinstance(page, NotFound):  # rightly so, when this thread stood still while the others went on
            assert lsn < storage.pitr_floor(), page
            return
        assert isinstance(page, Page), page
        newest = lsn - (lsn - page.id) % PAGES
        if page.lsn != newest or page.bytes != write(newest).bytes:
            wrong.append(f"page {page.id} at {lsn}: version {page.lsn}, not {newest}")

    def get(n: int, lsn: Lsn) -> Page | StorageError:
        try:
            return storage.get_page(PageId(n), lsn)
        except NotFound as refused:
            return refused

    def latest() -> None:
        lsn = storage.durable_lsn()
        for n in range(PAGES):
            check(get(n, lsn), lsn)

    def batch() -> None:
        lsn = storage.durable_lsn()
        for page in storage.get_pages([PageId(n) for n in range(PAGES)], lsn):
            check(page, lsn)

    def past() -> None:
        lsn = max(storage.pitr_floor(), storage.durable_lsn() - 17, PAGES)
        check(get(lsn % PAGES, Lsn(lsn)), lsn)

    def tidy() -> None:
        tidier.set_retention_floor(Lsn(max(tidier.pitr_floor(), tidier.durable_lsn() - 100)))
        tidier.compact()

    def again_and_again(action: Callable[[], None]) -> None:
        try:
            while not done.is_set():
                action()
        except BaseException as error:
            wrong.append(repr(error))

    actions = (latest, latest, batch, past, tidy)
    threads = [threading.Thread(target=again_and_again, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for n in range(PAGES + 1, 200):
        writer.append_wal(token, [write(n)])
    done.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for handle in {id(handle): handle for handle in (writer, storage, tidier)}.values():
        handle.close()
    assert wrong == []
