"""Typed data in a directory of objects, beside Delta Lake and Iceberg tables in directories of their own.

Run with the packages of the extra `bench`. Ours syncs every object before a commit is done; the other two do not.
What ours calls declaring rows compares them with the stored ones, so that nothing is written twice: the like of it
elsewhere is a merge. Appends, which compare nothing, are shown beside it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from report import Report, Taken, in_turns, repeated, seconds

from ontolake.model import Entity, Field
from ontolake.objects import open_store
from ontolake.objects.testing import CountingStore
from ontolake.ontology import Session, sum_

warnings.filterwarnings("ignore")


class Item(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    price: Field[float]
    amount: Field[int]
    active: Field[bool]
    note: Field[str | None] = Field(default=None)


SCHEMA = pa.schema([pa.field("id", pa.string(), False), pa.field("name", pa.string(), False),
                    pa.field("price", pa.float64(), False), pa.field("amount", pa.int64(), False),
                    pa.field("active", pa.bool_(), False), pa.field("note", pa.string(), True)])  # fmt: skip


def rows(count: int, start: int = 0, version: int = 0) -> pa.Table:
    """Rows of six columns, sorted by key."""
    ids = np.arange(start, start + count)
    return pa.table([
        pa.array([f"k{one:08d}" for one in ids]), pa.array([f"name {one % 1000} {version}" for one in ids]),
        pa.array(ids * 0.5 + version), pa.array(ids % 97), pa.array(ids % 2 == 0),
        pa.array([None if one % 3 else "note" for one in ids], pa.string()),
    ], schema=SCHEMA)  # fmt: skip


class Ours:
    name = "ontolake"

    def __init__(self, folder: Path) -> None:
        self._session = Session(folder.as_uri(), entity_types=[Item])

    def append(self, table: pa.Table) -> None:
        self._session.ensure_arrow(Item, table)
        assert self._session.commit() is not None

    upsert = append

    def lookup(self, key: str) -> Any:
        return self._session.query().entities(Item).where(Item.id == key).first()

    def scan(self) -> pa.Table:
        return self._session.query().entities(Item).to_arrow()

    def first(self) -> pa.Table:
        return self._session.query().entities(Item).as_of(1).to_arrow()


class Delta:
    name = "deltalake"

    def __init__(self, folder: Path) -> None:
        self._path = str(folder)

    def append(self, table: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self._path, table, mode="append")

    def upsert(self, table: pa.Table) -> None:
        from deltalake import DeltaTable

        merge = DeltaTable(self._path).merge(table, predicate="s.id = t.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def lookup(self, key: str) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._path).to_pyarrow_table(filters=[("id", "=", key)]).to_pylist()[0]

    def scan(self) -> pa.Table:
        from deltalake import DeltaTable

        return DeltaTable(self._path).to_pyarrow_table()

    def first(self) -> pa.Table:
        from deltalake import DeltaTable

        return DeltaTable(self._path, version=0).to_pyarrow_table()


class Iceberg:
    name = "pyiceberg"

    def __init__(self, folder: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        folder.mkdir()
        self._catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
        self._catalog.create_namespace("shop")
        self._table = self._catalog.create_table("shop.items", schema=SCHEMA)
        with self._table.update_schema() as update:
            update.set_identifier_fields("id")

    def append(self, table: pa.Table) -> None:
        self._table.append(table)

    def upsert(self, table: pa.Table) -> None:
        self._table.upsert(table)

    def lookup(self, key: str) -> Any:
        return self._table.scan(row_filter=f"id = '{key}'").to_arrow().to_pylist()[0]

    def scan(self) -> pa.Table:
        return self._table.scan().to_arrow()

    def first(self) -> pa.Table:
        return self._table.scan(snapshot_id=self._table.history()[0].snapshot_id).to_arrow()


def main() -> None:
    report = Report("typed data on objects")
    peers = all(find_spec(name) for name in ("deltalake", "pyiceberg"))
    if not peers:
        report.note("deltalake and pyiceberg are not installed: make setup EXTRAS=s3,sql,dev,bench")
    folder = Path(tempfile.mkdtemp(prefix="ontology-objects-"))
    try:
        if report.as_users_do:
            size, commits, lookups = (50_000, 40, 50) if report.small else (200_000, 200, 300)
            if peers:
                compare(report, folder / "users", size, commits, lookups, size // 10)
            small_commits(report, folder / "users", *((20_000, 200) if report.small else (100_000, 1_000)))
            many, rounds = (100_000, 3) if report.small else (1_000_000, 5)
            if peers:
                appends(report, folder / "users", many, rounds)
            upserts(report, folder / "users", many, rounds)
            engines(report, folder / "users", many, rounds)
            branches(report, folder / "users", many)
        if report.tuned and peers:  # the same with more rows; there is nothing to set
            size, commits, lookups = (50_000, 40, 50) if report.small else (1_000_000, 200, 1000)
            compare(report, folder / "tuned", size, commits, lookups, size // 10)
    finally:
        shutil.rmtree(folder)
    report.finish()


def small_commits(report: Report, folder: Path, size: int, commits: int) -> None:
    """A first load, then many commits of a few rows of which some are changed again and again, then reads."""
    folder.mkdir(exist_ok=True)
    with Session((folder / "small").as_uri(), entity_types=[Item]) as session:
        session.ensure_arrow(Item, rows(size))
        session.commit()

        def commit(number: int) -> None:
            ids = [f"k{(number * 37 + n) % 500:08d}" for n in range(10)]
            session.ensure(Item(id=id, name=f"{number}", price=1.0, amount=1, active=True) for id in ids)
            assert session.commit() is not None

        def bare(number: int) -> None:
            """The same rows as one Parquet file, synced; nothing is compared, and no commit is kept."""
            with (folder / f"bare{number}.parquet").open("wb") as file:
                pq.write_table(rows(10, number), file)
                file.flush()
                os.fsync(file.fileno())

        taken, theirs = repeated(commits, commit, bare)
        report.compare(f"commits of 10 rows in {size:,} / a synced Parquet file of 10 rows", taken, theirs, 6)
        report.steady(f"{commits:,} commits of 10 rows in {size:,}", taken)
        keys = [f"k{n * 7 % size:08d}" for n in range(200)]
        now = repeated(200, lambda n: session.query().entities(Item).where(Item.id == keys[n]).first())[0]
        report.note(f"a lookup after them takes {now.median * 1000:.2f} ms, a commit {taken.median * 1000:.1f} ms")
        scans = repeated(5, lambda n: session.query().entities(Item).to_arrow(),
                         lambda n: session.query().entities(Item).as_of(2).to_arrow(),
                         lambda n: session.query().entities(Item).as_of(commits // 2).to_arrow())
        report.compare(f"all rows as of {commits:,} commits ago / now", scans[1], scans[0], 2)
        report.compare(f"all rows as of {commits // 2:,} commits ago / now", scans[2], scans[0], 2)


def opened(place: Path, **more: Any) -> Session:
    return Session(place.as_uri(), entity_types=[Item], **more)


def loaded(place: Path, table: pa.Table, **more: Any) -> Session:
    session = opened(place, **more)
    session.ensure_arrow(Item, table)
    session.commit()
    return session


def changed(session: Session, table: pa.Table) -> None:
    session.ensure_arrow(Item, table)
    assert session.commit() is not None


def scattered(size: int, count: int, version: int, seed: int = 3) -> pa.Table:
    """Rows with keys from all over the type, sorted."""
    chosen = np.sort(np.random.default_rng(seed).choice(size, count, replace=False))
    return rows(size, 0, version).take(pa.array(chosen))


def worked(report: Report, name: str, ours: Taken, theirs: Taken, target: float) -> None:
    """How many times the processor time ours takes, by the least of each: what else runs here only adds to it."""
    mine, other = min(ours.work), min(theirs.work)
    wall = ours.median / theirs.median
    report.at_most(f"{name}, processor time", mine / other, target,
                   f"{mine * 1000:,.1f} ms against {other * 1000:,.1f} ms, by the clock {wall:.2f}")


def appends(report: Report, folder: Path, size: int, rounds: int) -> None:
    """All rows in one commit, each time into a new place."""
    table = rows(size)

    def ours(number: int) -> None:
        Ours(folder / f"ours{number}").append(table)

    def delta(number: int) -> None:
        Delta(folder / f"delta{number}").append(table)

    taken = repeated(rounds, ours, delta)
    worked(report, f"append of {size:,} rows in one commit / deltalake", *taken, 1.0)
    for number in range(rounds):
        shutil.rmtree(folder / f"ours{number}")
        shutil.rmtree(folder / f"delta{number}")


def upserts(report: Report, folder: Path, size: int, rounds: int) -> None:
    """Scans before and after a tenth of the rows has changed, and lookups by a session that has read nothing."""
    first = rows(size)
    parts = {"neighbouring": rows(size // 10, size // 20, 1), "scattered": scattered(size, size // 10, 1)}
    for name, part in parts.items():
        with loaded(folder / f"before-{name}", first) as before, loaded(folder / f"after-{name}", first) as after:
            changed(after, part)
            taken = repeated(rounds, *(lambda _, one=one: one.query().entities(Item).to_arrow()
                                       for one in (after, before)))
            worked(report, f"scan of {size:,} rows after an upsert of {size // 10:,} {name} ones / before", *taken, 1.5)
    keys = [f"k{one:08d}" for one in np.random.default_rng(7).integers(0, size, 1000)]
    taken = []
    for _ in range(rounds):
        with opened(folder / "before-scattered") as session:
            for number in range(2):
                begun = time.process_time()
                for key in keys:
                    assert session.query().entities(Item).where(Item.id == key).first().id == key
                taken.append((number, time.process_time() - begun))
    least = [min(found for number, found in taken if number == wanted) for wanted in (0, 1)]
    report.at_most(f"1,000 lookups by key in {size:,} rows, seconds of processor time", least[0], 0.3,
                   f"of a session that has read nothing; again {least[1]:.2f} s")


def engines(report: Report, folder: Path, size: int, rounds: int) -> None:
    """v3 against v2 on main, and v3 on a branch three deep against v3 on main."""
    first = rows(size)
    older, newer = (loaded(folder / f"engine-{version}", first, engine_version=version) for version in ("v2", "v3"))
    with loaded(folder / "deep", first) as session:
        for version, (name, on) in enumerate((("one", "main"), ("two", "one"), ("three", "two")), 1):
            session.branches.create(name, parent=on)
            with opened(folder / "deep", branch=name) as branch:
                changed(branch, rows(1000, 0, version))
            for one in (newer, older):
                changed(one, rows(1000, 0, version))
    with opened(folder / "deep", branch="three") as deep:
        stores = (newer, older, deep)
        keys = [f"k{one:08d}" for one in np.random.default_rng(7).integers(0, size, 500)]

        def lookups(session: Session) -> None:
            for key in keys:
                assert session.query().entities(Item).where(Item.id == key).first() is not None

        def in_turns_on(action: Any, times: int = rounds) -> list[Taken]:
            return repeated(times, *(lambda number, one=one: action(one, number) for one in stores))

        def query(session: Session) -> Any:
            return session.query().entities(Item)

        works = {
            "commits of 1,000 rows": in_turns_on(lambda one, n: changed(one, rows(1000, 5000 + n, 20 + n)), 4 * rounds),
            "commits of one row": in_turns_on(lambda one, n: changed(one, rows(1, n, 50 + n)), 20 * rounds),
            "500 lookups": in_turns_on(lambda one, n: lookups(one)),
            "scans": in_turns_on(lambda one, n: query(one).to_arrow()),
            "queries": in_turns_on(lambda one, n: query(one).where(Item.amount == 5).to_arrow()),
            "aggregates": in_turns_on(lambda one, n: query(one).group_by(Item.amount).agg(total=sum_(Item.price))),
            "as_of the first commit": in_turns_on(lambda one, n: query(one).as_of(1).to_arrow()),
        }
        for name, (new, old, branch) in works.items():
            for what, mine, other, target in (("v3 / v2", new, old, 1.05),
                                              ("on a branch three deep / main", branch, new, 1.3)):
                # What merges files now and then differs from call to call, and counts as a whole.
                summed = statistics.mean if name.startswith("commits") else min
                ours, theirs = summed(mine.work), summed(other.work)
                report.at_most(f"{name} in {size:,} rows, processor time, {what}", ours / theirs, target,
                               f"{ours * 1000:,.2f} ms against {theirs * 1000:,.2f} ms")
    older.close()
    newer.close()


def branches(report: Report, folder: Path, size: int) -> None:
    """What branches, merges, deletions and an erasure cost, by requests, processor time and files."""
    merges: dict[tuple[int, str], list[Taken]] = {}
    for many in (1000, 10_000, size):
        place = folder / f"branches-{many}"
        loaded(place, rows(many)).close()
        counting = CountingStore(open_store(place.as_uri()))
        with opened(place, config={"connect": {"store": counting}}) as session:
            counting.reset()
            session.branches.create("try")
            report.at_most(f"requests of branches.create in {many:,} rows", counting.total, 3)
        for how in ("neighbouring", "scattered") if many > 1000 else ():
            merges[many, how] = merged(place, many, how)
    for how in ("neighbouring", "scattered"):
        (direct, merge), (few, other) = merges[size, how], merges[10_000, how]
        worked(report, f"a merge of 1,000 {how} rows in {size:,} / committing them", merge, direct, 3)
        worked(report, f"a merge of 1,000 {how} rows in {size:,} / in 10,000", merge, other, 1.3)
        report.note(f"committing 1,000 {how} rows in {size:,} takes {min(direct.work) / min(few.work):.2f} times as in "
                    "10,000")

    some = min(10_000, size // 10)
    with opened(place) as session:
        def update(number: int) -> None:
            changed(session, rows(some, 2 * number * some, 70))

        def delete(number: int) -> None:
            session.delete(Item, [f"k{one:08d}" for one in range((2 * number + 1) * some, (2 * number + 2) * some)])
            assert session.commit() is not None

        times = repeated(3, update, delete)
        worked(report, f"deleting {some:,} rows in {size:,} / updating them", times[1], times[0], 1.3)
    before = {path: path.stat().st_ino for path in place.glob("**/*.parquet")}
    counting = CountingStore(open_store(place.as_uri()))
    with opened(place, config={"connect": {"store": counting}}) as session:
        session.erase(Item, f"k{size - 1:08d}", "asked for", dry_run=False)
    written = sum(before.get(path) != path.stat().st_ino for path in place.glob("**/*.parquet"))
    report.at_most(f"files that erasing a key of {size:,} rows, which one file has, writes anew", written, 1,
                   f"of {len(before)} files; {sum(counting.received.values()):,} bytes read")


def merged(place: Path, size: int, how: str, rounds: int = 3) -> list[Taken]:
    """Commits of 1,000 rows to main, and merges of as many from a branch of its own, in turns."""
    with opened(place) as session:
        def direct(number: int) -> None:
            changed(session, parts[number, 0])

        def merge(number: int) -> None:
            assert session.merge(f"{how}{number}", into="main").commit is not None

        parts = {}
        for number in range(rounds):
            for side in (0, 1):
                at = 2 * number + side
                parts[number, side] = rows(1000, 1000 * at, 30 + at) if how == "neighbouring" else \
                    scattered(size, 1000, 40 + at, seed=at)
            session.branches.create(f"{how}{number}")
        common = [set(one.column("id").to_pylist()) for one in parts.values()]
        for number in range(rounds):
            with opened(place, branch=f"{how}{number}") as branch:
                mine = 2 * number + 1
                others = set().union(*common[:mine], *common[mine + 1 :])
                keep = [key not in others for key in parts[number, 1].column("id").to_pylist()]
                changed(branch, parts[number, 1].filter(pa.array(keep)))
        return repeated(rounds, direct, merge)


def compare(report: Report, folder: Path, size: int, commits: int, lookups: int, upserted: int) -> None:
    stores: list[Any] = []
    loaded: dict[str, list[float]] = {}
    big = rows(size)
    folder.mkdir()
    for number in range(3):  # in turns, each time into a new place
        stores = [kind(folder / f"{kind.name}{number}") for kind in (Ours, Delta, Iceberg)]
        for store in stores:
            loaded.setdefault(store.name, []).append(seconds(lambda store=store: store.append(big)))
    ours, *others = stores
    ratio(report, f"append {size:,} rows in one commit: times faster than the faster",
          statistics.median(loaded[ours.name]), [statistics.median(loaded[one.name]) for one in others], 1.0)

    small = [rows(100, size + number * 100) for number in range(commits)]
    taken: dict[str, list[float]] = {}
    few = 10 if commits > 100 else 4
    for store in stores:  # not in turns: what the others leave to the system to write, our syncs would wait for
        for number, table in enumerate(small):
            compares = store is ours or number < few
            action, what = (store.upsert, "") if compares else (store.append, " append")
            taken.setdefault(store.name + what, []).append(seconds(lambda action=action, table=table: action(table)))
    mean = {name: statistics.mean(found) for name, found in taken.items()}
    ratio(report, f"{commits} commits of 100 rows, compared with what is there: times faster than a merge",
          mean[ours.name], [mean[one.name] for one in others], 5.0)
    ratio(report, f"{commits} commits of 100 rows: times faster than appends that compare nothing",
          mean[ours.name], [mean[f"{one.name} append"] for one in others], 5.0)
    found = taken[ours.name]
    report.at_most("the last 20 of these commits against the first 20",
                   statistics.median(found[-20:]) / statistics.median(found[:20]), 1.3)

    keys = [f"k{one:08d}" for one in np.random.default_rng(7).integers(0, size, lookups)]
    begun = time.perf_counter()
    for key in keys:
        assert ours.lookup(key).id == key
    each = [(time.perf_counter() - begun) / lookups]
    for store in others:
        sample = keys[: max(5, lookups // 50)]
        begun = time.perf_counter()
        for key in sample:
            assert store.lookup(key)["id"] == key
        each.append((time.perf_counter() - begun) / len(sample))
    ratio(report, f"{lookups:,} key lookups: times faster than the faster", each[0], each[1:], 20.0)

    times = in_turns(*(store.scan for store in stores))
    assert len({store.scan().num_rows for store in stores}) == 1
    ratio(report, "full latest scan to Arrow: times faster than the faster", times[0], times[1:], 1.0)
    changed = rows(upserted, size // 20, 1)
    times = [seconds(lambda: ours.upsert(changed)), seconds(lambda: others[0].upsert(changed))]
    part = rows(upserted // 50, size // 20, 1)  # it takes minutes for all of them, so for a part
    slow = seconds(lambda: others[1].upsert(part))
    report.note(f"pyiceberg took {slow:.1f} s to upsert {part.num_rows:,} rows")
    ratio(report, f"upsert of {upserted:,} rows: times faster than the faster", times[0], [times[1], slow], 3.0)
    times = in_turns(*(store.first for store in stores))
    assert {store.first().num_rows for store in stores} == {size}
    ratio(report, "time travel to the first commit: times faster than the faster", times[0], times[1:], 1.0)


def ratio(report: Report, name: str, ours: float, others: list[float], target: float) -> None:
    detail = ", ".join(f"{one * 1000:,.2f} ms" for one in (ours, *others))
    report.at_least(name, min(others) / ours, target, detail)


if __name__ == "__main__":
    main()
