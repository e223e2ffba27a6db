"""SQLite on our pages against SQLite on a native file with the same durability, and a scan over a slow network."""

from __future__ import annotations

import contextlib
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import apsw
from report import Report, Taken, in_turns, repeated, seconds

from ontolake import engine
from ontolake.objects import open_store
from ontolake.objects.testing import CountingStore, SlowStore
from ontolake.storage import ObjectStorage, PageId, open_storage, register_backend

LATENCY = 0.02
CACHE = "PRAGMA cache_size=-16384"
ROW = "name of somebody, and a few words about them " * 2


def native(path: Path) -> apsw.Connection:
    """The yardstick: write-ahead log, synced at every commit, with a cache as big as ours."""
    connection = apsw.Connection(str(path))
    for pragma in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", CACHE):
        connection.execute(pragma).fetchall()
    return connection


def compared(folder: Path) -> tuple[apsw.Connection, apsw.Connection]:
    return native(folder / "native.db"), engine.connect(f"file://{folder}/pages.db")


def bulk_insert(report: Report, folder: Path) -> None:
    """Many rows a transaction, into a table with an index."""
    rows, rounds = (20_000, 5) if report.small else (50_000, 9)
    pair = compared(folder)
    for connection in pair:
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, number, x); CREATE INDEX by_number ON t(number)")

    def insert(connection: apsw.Connection) -> None:
        with connection:
            values = ((i * 7919 % rows, ROW) for i in range(rows))
            connection.executemany("INSERT INTO t(number, x) VALUES (?, ?)", values)

    theirs, ours = in_turns(*(lambda c=connection: insert(c) for connection in pair), rounds=rounds)
    report.at_most("bulk insert / native", ours / theirs, 1.5,
                   f"{rows / ours:,.0f} rows/s against {rows / theirs:,.0f}")
    for connection in pair:
        connection.close()


def selects(report: Report, folder: Path) -> None:
    """One row by its primary key, each in a transaction of its own, by who may write and by who only reads."""
    reads, rounds = (5_000, 5) if report.small else (20_000, 9)
    rows = 100_000 if report.small else 200_000
    pair = compared(folder)
    for connection in pair:
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
        with connection:
            connection.executemany("INSERT INTO t VALUES (?, ?)", ((i, ROW) for i in range(rows)))
    pair[0].execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    chance = random.Random(1)

    def select(connection: apsw.Connection, ids: list[int]) -> None:
        for i in ids:
            connection.execute("SELECT x FROM t WHERE id = ?", (i,)).fetchall()

    def compare(ours: apsw.Connection, most: int) -> tuple[float, str]:
        ids = [chance.randrange(most) for _ in range(reads)]
        theirs_took, ours_took = in_turns(lambda: select(pair[0], ids), lambda: select(ours, ids), rounds=rounds)
        detail = f"{ours_took / reads * 1e6:.1f} µs against {theirs_took / reads * 1e6:.1f} µs"
        return ours_took / theirs_took, detail

    for name, most in (("few pages", 2_000), ("all pages", rows)):
        ratio, detail = compare(pair[1], most)
        report.at_most(f"selects by primary key, {name} / native", ratio, 2, detail)
    pair[1].close()
    reader = engine.connect(f"file://{folder}/pages.db", readonly=True)
    ratio, detail = compare(reader, 2_000)
    report.note(f"{ratio:9.2f}  by a process that only reads, and so has to look for news each time  [{detail}]")
    reader.close()
    pair[0].close()


def one_row_commits(report: Report, folder: Path) -> None:
    """A transaction a row, synced to disk. In short turns, since the speed of a disk that others use comes and goes."""
    commits, rounds = (30, 15) if report.small else (50, 41)
    pair = compared(folder)
    for connection in pair:
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")

    def insert(connection: apsw.Connection) -> None:
        for _ in range(commits):
            connection.execute("INSERT INTO t(x) VALUES (?)", (ROW,))

    theirs, ours = in_turns(*(lambda c=connection: insert(c) for connection in pair), rounds=rounds)
    report.at_least("one-row commits a second / native", theirs / ours, 0.5,
                    f"{commits / ours:,.0f}/s against {commits / theirs:,.0f}/s")
    for connection in pair:
        connection.close()


def far_scan(report: Report, folder: Path) -> None:
    """A table of 100 MB on an object store that takes 20 ms to answer, read by somebody who has nothing of it yet."""
    megabytes = 10 if report.small else 100
    url = f"file://{folder}/far"
    rows = megabytes * 1024 * 1024 // 480
    chance = random.Random(2)
    for order, name in ((list(range(rows)), "in order"), (chance.sample(range(rows), rows), "in any order")):
        shutil.rmtree(folder / "far", ignore_errors=True)
        connection = engine.connect(url, gc_grace_ms=0)
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
        for start in range(0, rows, 20_000):
            with connection:
                values = ((i, ROW * 5) for i in order[start : start + 20_000])
                connection.executemany("INSERT INTO t VALUES (?, ?)", values)
        connection.close()
        pages = scan(report, url, name)
    report.note(f"{pages:,} pages")


def scan(report: Report, url: str, name: str) -> int:
    counting: list[CountingStore] = []

    def slow(_: str, *, page_size: int, **knobs: Any) -> ObjectStorage:
        counting.append(CountingStore(SlowStore(open_store(url), LATENCY)))
        return ObjectStorage(counting[-1], page_size=page_size, **knobs)

    register_backend("slow", slow)
    times, counts = [], []
    for _ in range(1 if report.small else 3):
        begun = time.perf_counter()
        connection = engine.connect("slow://scan", readonly=True)
        connection.execute("SELECT count(*), sum(length(x)) FROM t").fetchall()
        times.append(time.perf_counter() - begun)
        counts.append(counting[-1].total)
        pages = int(connection.execute("PRAGMA page_count").get)
        connection.close()
    with slow("", page_size=4096, cache_bytes=0) as storage:
        lsn, chance = storage.get_commit_lsn(), random.Random(3)
        one = statistics.median(
            seconds(lambda: storage.get_page(PageId(chance.randint(2, pages)), lsn)) for _ in range(20))
    taken = statistics.median(times)
    detail = f"{taken:.1f} s with {statistics.median(counts):.0f} requests, against {one * pages:,.0f} s"
    report.at_least(f"a read per page / cold scan of {pages * 4096 // 2**20} MB, filled {name}", one * pages / taken,
                    20, detail)
    return pages


def as_users_do(report: Report, folder: Path) -> None:
    """A first load, then many small commits, then reads of now and of the past, and branches. Nothing is set.

    The native file is as durable: SQLite's own defaults, with a write-ahead log that is synced at every commit.
    """
    rows, commits, reads, tries = (20_000, 500, 1_000, 10) if report.small else (200_000, 3_000, 5_000, 30)
    url = f"file://{folder}/pages.db"
    theirs_db = apsw.Connection(str(folder / "native.db"))
    theirs_db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").fetchall()
    with contextlib.closing(engine.connect(url)) as ours_db, contextlib.closing(theirs_db):
        def load(connection: apsw.Connection) -> None:
            connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x)")
            with connection:
                connection.executemany("INSERT INTO t VALUES (?, ?)", ((i, ROW) for i in range(rows)))

        ours, theirs = seconds(lambda: load(ours_db)), seconds(lambda: load(theirs_db))
        report.at_most(f"load of {rows:,} rows / native", ours / theirs, 2, f"{ours:.2f} s against {theirs:.2f} s")
        with open_storage(url) as storage:
            loaded = storage.get_commit_lsn()
        chance = random.Random(5)
        ids = [chance.randrange(rows) for _ in range(max(commits, reads))]

        def update(connection: apsw.Connection, id: int) -> None:
            connection.execute("UPDATE t SET x = x || '.' WHERE id = ?", (id,))

        one_row, native_row = repeated(commits, lambda n: update(ours_db, ids[n]), lambda n: update(theirs_db, ids[n]))
        report.compare("one-row commits / native", one_row, native_row, 2)
        report.steady("one-row commits", one_row)

        def read(connection: apsw.Connection, n: int) -> None:
            connection.execute("SELECT x FROM t WHERE id = ?", (ids[n],)).fetchall()

        with contextlib.closing(engine.connect(url, at=loaded)) as past:
            now, native_now, then = repeated(
                reads, lambda n: read(ours_db, n), lambda n: read(theirs_db, n), lambda n: read(past, n))
        report.compare("select by key / native", now, native_now, 2)
        report.compare(f"select by key, as of {commits:,} commits ago / now", then, now, 2)
        created, first = Taken(), Taken()
        for number in range(tries):
            name = f"try-{number}"
            with open_storage(url) as storage:
                created.add(lambda name=name, storage=storage: storage.create_branch(name, storage.get_commit_lsn()))
            with contextlib.closing(engine.connect(url, branch=name)) as branch:
                first.add(lambda branch=branch, number=number: update(branch, ids[number]))
            update(ours_db, ids[number])
        report.steady("a new branch", created)
        report.steady("the first commit on a new branch", first)
        report.compare("the first commit on a new branch / one-row commits", first, one_row, 5)


def main() -> None:
    report = Report("engine")
    tuned = (bulk_insert, selects, one_row_commits, far_scan) if report.tuned else ()
    for benchmark in (*((as_users_do,) if report.as_users_do else ()), *tuned):
        folder = Path(tempfile.mkdtemp(prefix="ontolake-bench-"))
        try:
            benchmark(report, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    report.finish()


if __name__ == "__main__":
    main()
