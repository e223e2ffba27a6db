"""The storage seam against the bare calls underneath it: os.pread, write and fdatasync, single object reads."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path

from report import Report, Taken, in_turns, repeated, seconds

from ontolake.objects import open_store
from ontolake.objects.testing import CountingStore, SlowStore
from ontolake.storage import FenceToken, LocalFileStorage, Lsn, ObjectStorage, PageId, Storage, WalRecord, open_storage
from ontolake.storage.aio import AsyncStorage

PAGE = 4096
IMAGES = [os.urandom(PAGE) for _ in range(64)]


def record(page: int) -> WalRecord:
    return WalRecord(IMAGES[page % 64], PageId(page))


def appends(report: Report, folder: Path) -> None:
    """Durable one-page appends by many writers, against one writer with write and fdatasync.

    Many writers in one process are coroutines. Threads are shown beside them: the interpreter runs one at a time, and
    handing over from one to the next costs more than an append.
    """
    count = 300 if report.small else 1500
    bare = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)

    def write_and_sync() -> None:
        for i in range(count):
            os.write(bare, IMAGES[i % 64])
            os.fdatasync(bare)

    storage = LocalFileStorage(folder / "appends.db", fence_lease_ms=3_600_000)
    token = storage.acquire_fence("benchmark")

    batches = [[record(random.randrange(1000))] for _ in range(4096)]

    def by_threads(writers: int, each: int) -> None:
        def run() -> None:
            for i in range(each):
                storage.append_wal(token, batches[i])

        threads = [threading.Thread(target=run) for _ in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async def by_coroutines(writers: int, each: int) -> None:
        wrapped = AsyncStorage(storage)

        async def run() -> None:
            for i in range(each):
                await wrapped.append_wal(token, batches[i])

        await asyncio.gather(*(run() for _ in range(writers)))

    for writers, target in ((1, 0.7), (4, None), (16, None), (64, 10.0)):
        each = max(count // writers, 50 if report.small else 250)
        kinds = [("threads", lambda w=writers, e=each: by_threads(w, e))]
        if writers > 1:
            kinds.append(("coroutines", lambda w=writers, e=each: asyncio.run(by_coroutines(w, e))))
        bare_time, *times = in_turns(write_and_sync, *(action for _, action in kinds), rounds=3 if report.small else 5)
        for (kind, _), taken in zip(kinds, times, strict=True):
            ratio = (writers * each / taken) / (count / bare_time)
            name = f"durable appends, {writers} writers ({kind}) / write+fdatasync by one"
            detail = f"{writers * each / taken:,.0f}/s against {count / bare_time:,.0f}/s"
            if target is not None and (writers == 1 or kind == "coroutines"):
                report.at_least(name, ratio, target, detail)
            else:
                report.note(f"{ratio:9.2f}  {name}  [{detail}]")
    storage.close()
    os.close(bare)


def single_reads(report: Report, folder: Path) -> None:
    """get_page from the file against pread, and from the cache against a dictionary and a copy."""
    pages, reads = 1000, 5000 if report.small else 20000
    path = folder / "reads.db"
    lsn = fill(LocalFileStorage(path, fence_lease_ms=3_600_000), pages, batches=pages)
    bare = os.open(folder / "plain", os.O_RDWR | os.O_CREAT)
    os.write(bare, b"".join(IMAGES[i % 64] for i in range(pages)))
    ids = [PageId(random.randrange(pages)) for _ in range(reads)]

    def preads() -> None:
        for page in ids:
            os.pread(bare, PAGE, page * PAGE)

    uncached = LocalFileStorage(path, cache_bytes=0)
    cached = LocalFileStorage(path)

    def get_from(storage: Storage) -> None:
        for page in ids:
            storage.get_page(page, lsn)

    copies = {(0, i): bytearray(IMAGES[i % 64]) for i in range(pages)}

    def look_up_and_copy() -> None:
        for page in ids:
            bytes(copies[0, page])

    get_from(cached)
    bare_time, file_time = in_turns(preads, lambda: get_from(uncached))
    report.at_most("get_page from the local file / os.pread", file_time / bare_time, 5,
                   f"{file_time / reads * 1e6:.2f} µs against {bare_time / reads * 1e6:.2f} µs")
    dict_time, cache_time = in_turns(look_up_and_copy, lambda: get_from(cached))
    report.at_most("get_page from the cache / dictionary lookup and copy", cache_time / dict_time, 2,
                   f"{cache_time / reads * 1e6:.2f} µs against {dict_time / reads * 1e6:.2f} µs")
    uncached.close()
    cached.close()
    os.close(bare)


def batched_reads(report: Report, folder: Path) -> None:
    """64 cold pages from an object store that takes 20 ms to answer."""
    url = f"file://{folder}/objects"
    lsn = fill(ObjectStorage(url, fence_lease_ms=3_600_000), 64, batches=64)
    ids = [PageId(i) for i in range(64)]

    def cold() -> ObjectStorage:
        storage = ObjectStorage(SlowStore(open_store(url), 0.020), cache_bytes=0)
        storage.get_page(ids[0], lsn)
        return storage

    with cold() as storage:
        single = seconds(lambda: [storage.get_page(page, lsn) for page in ids])
        batch = min(seconds(lambda: storage.get_pages(ids, lsn)) for _ in range(3))
    report.at_least("64 single cold reads / one get_pages, 20 ms latency", single / batch, 10,
                    f"{single * 1e3:.0f} ms against {batch * 1e3:.0f} ms")


def length_of_log(report: Report, folder: Path) -> None:
    """Opening and reading with a short and with a long history behind the same pages."""
    short, long = (200, 2_000) if report.small else (1_000, 100_000)
    pages, opens, reads = 100, 15, 2000
    for name in ("local file", "objects in memory"):
        places: list[str | Path] = []
        for batches in (short, long):
            place = folder / f"log{batches}.db" if name == "local file" else f"memory://bench/log{batches}"
            storage = make(place, fence_lease_ms=3_600_000, group_commit_window_ms=0)
            fill(storage, pages, batches=batches)
            leave_tail(place, pages)
            places.append(place)

        def open_and_close(place: str | Path) -> None:
            make(place).close()

        times = in_turns(*(lambda p=place: open_and_close(p) for place in places), rounds=opens)
        report.at_most(f"open with {long:,} batches / with {short:,} ({name})", times[1] / times[0], 1.5,
                       f"{times[1] * 1e3:.2f} ms against {times[0] * 1e3:.2f} ms")
        storages = [make(place, cache_bytes=0) for place in places]
        ids = [PageId(random.randrange(pages)) for _ in range(reads)]

        def read_all(storage: Storage, ids: list[PageId]) -> None:
            lsn = storage.durable_lsn()
            for page in ids:
                storage.get_page(page, lsn)

        times = in_turns(*(lambda s=storage, i=ids: read_all(s, i) for storage in storages), rounds=7)
        report.at_most(f"get_page with {long:,} batches / with {short:,} ({name})", times[1] / times[0], 1.5,
                       f"{times[1] / reads * 1e6:.2f} µs against {times[0] / reads * 1e6:.2f} µs")
        for storage in storages:
            storage.close()


def branching(report: Report, folder: Path) -> None:
    """A branch of a big store copies nothing."""
    megabytes = 64 if report.small else 1024
    path = folder / "big.db"
    storage = LocalFileStorage(path, fence_lease_ms=3_600_000)
    token = storage.acquire_fence("benchmark")
    batch = 2048
    for start in range(0, megabytes * 256, batch):
        lsn = storage.append_wal(token, [record(page) for page in range(start, start + batch)])
    storage.close()  # so that what is done in the background is done
    storage = LocalFileStorage(path, fence_lease_ms=3_600_000)
    before = path.stat().st_blocks
    names = iter(range(1000))
    taken = statistics.median(
        seconds(lambda: storage.create_branch(f"b{next(names)}", lsn)) for _ in range(20))
    grown = (path.stat().st_blocks - before) * 512 - (1 << 20)
    report.at_most(f"create_branch on {megabytes} MB, milliseconds", taken * 1e3, 10)
    report.at_most("bytes written per branch, in pages", max(grown, 0) / 20 / PAGE, 1)
    storage.close()
    counting = CountingStore(open_store("memory://bench/branching"))
    objects = ObjectStorage(counting)
    token = objects.acquire_fence("benchmark")
    lsn = objects.append_wal(token, [record(page) for page in range(1000)])
    counting.reset()
    objects.create_branch("b", lsn)
    report.at_most("objects written by create_branch on object storage", counting.writes, 1)
    objects.close()


def make(place: str | Path, **knobs: object) -> LocalFileStorage | ObjectStorage:
    return ObjectStorage(place, **knobs) if isinstance(place, str) else LocalFileStorage(place, **knobs)


def fill(storage: LocalFileStorage | ObjectStorage, pages: int, *, batches: int) -> Lsn:
    """One-page batches round and round, by many coroutines, since one after another would take long."""
    token = storage.acquire_fence("benchmark")

    async def run() -> None:
        wrapped = AsyncStorage(storage)
        numbers = iter(range(batches))

        async def write(token: FenceToken) -> None:
            for i in numbers:
                await wrapped.append_wal(token, [record(i % pages)])

        await asyncio.gather(*(write(token) for _ in range(1 if isinstance(storage, ObjectStorage) else 8)))
        await wrapped.close()

    asyncio.run(run())
    return Lsn(batches)


def leave_tail(place: str | Path, pages: int) -> None:
    """Behind what is indexed come 32 batches that are not, however long the log: how many would be chance."""
    with make(place, maintenance="off", fence_lease_ms=3_600_000) as storage:
        storage.compact()
        token = storage.acquire_fence("benchmark")
        for i in range(32):
            storage.append_wal(token, [record(i % pages)])


def as_users_do(report: Report, folder: Path) -> None:
    """A first load, then many small commits, then reads of now and of the past, and branches. Nothing is set."""
    commits = 500 if report.small else 4_000
    users(report, folder, "page file", f"file://{folder}/users.db", commits)
    users(report, folder, "directory", f"file://{folder}/users", commits // 4)


def users(report: Report, folder: Path, name: str, url: str, commits: int) -> None:
    pages, reads, tries = (2_000, 1_000, 20) if report.small else (20_000, 5_000, 60)
    bare = os.open(folder / "plain", os.O_RDWR | os.O_CREAT)
    with open_storage(url) as storage:
        token, renewed, batch = storage.acquire_fence("benchmark"), time.monotonic(), 500
        for start in range(0, pages, batch):
            loaded = storage.append_wal(token, [record(page) for page in range(start, start + batch)])

        def append(number: int, branch: str = "main") -> None:
            nonlocal token, renewed
            if time.monotonic() - renewed > 3:  # as writers do that live longer than a lease
                token, renewed = storage.renew_fence(token), time.monotonic()
            storage.append_wal(token, [record(number * 7919 % pages)], branch=branch)

        def write_and_sync(number: int) -> None:
            os.write(bare, IMAGES[number % 64])
            os.fdatasync(bare)

        ours, theirs = repeated(commits, append, write_and_sync)
        report.compare(f"{name}: one-page commits / write and fdatasync", ours, theirs, 2 if name == "page file" else 5)
        report.steady(f"{name}: one-page commits", ours)
        ids, now = [PageId(random.randrange(pages)) for _ in range(reads)], storage.durable_lsn()
        latest, past, preads = repeated(
            reads, lambda n: storage.get_page(ids[n], now), lambda n: storage.get_page(ids[n], loaded),
            lambda n: os.pread(bare, PAGE, n % commits * PAGE))
        report.compare(f"{name}: read of a page / os.pread", latest, preads, 5)
        report.compare(f"{name}: read of a page {commits:,} commits ago / now", past, latest, 2)
        created, first = Taken(), Taken()
        for number in range(tries):
            branch = f"try-{number}"
            created.add(lambda branch=branch: storage.create_branch(branch, storage.durable_lsn()))
            first.add(lambda branch=branch, number=number: append(number, branch))
        report.steady(f"{name}: a new branch", created)
        report.compare(f"{name}: the first commit on a new branch / one on main", first, ours, 3)
    opened = repeated(10, lambda n: open_storage(url).close())[0]
    report.note(f"{name}: opening it again takes {opened.median * 1000:.1f} ms")
    os.close(bare)


def main() -> None:
    report = Report("storage")
    folder = Path(tempfile.mkdtemp(prefix="ontolake-bench-"))
    try:
        if report.as_users_do:
            as_users_do(report, folder)
        for part in (appends, single_reads, batched_reads, length_of_log, branching) if report.tuned else ():
            part(report, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.finish()


if __name__ == "__main__":
    main()
