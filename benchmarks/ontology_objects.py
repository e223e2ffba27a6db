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
from report import Report, in_turns, repeated, seconds

from ontolake.model import Entity, Field
from ontolake.ontology import Session

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
