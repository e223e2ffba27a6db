"""Columns that are kept decoded give what the keyspace has, whatever was written, removed or moved since."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from marking import slow_after

from ontolake.sql import Database, open_database
from ontolake.sql.catalog import column_cache, column_files
from ontolake.sql.errors import NotNullError, UniqueError
from ontolake.sql.keyspace import keys, versions
from ontolake.sql.write import bulk

Row = tuple[Any, ...]
Model = dict[int, Row]
READ = "SELECT id + 0 AS i, a + 0 AS j, b || '' AS k FROM t"
"""Not answered by keys alone, so that columns are read."""


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_cache, "CHUNK", 8)
    monkeypatch.setattr(versions, "BATCH", 16)
    monkeypatch.setattr(bulk, "_KEPT", 1)


class Program:
    """A database and a dict that get the same random changes; all versions are remembered."""

    def __init__(self, url: str, rng: random.Random) -> None:
        self.url, self.rng = url, rng
        self.room = rng.choice([200, 3000, 10**6])
        self.db, self.other = self.opened(), self.opened()
        self.db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b TEXT)")
        self.model: Model = {}
        self.past: dict[int, Model] = {}
        self.load()
        self.note()

    def opened(self, branch: str = "main") -> Database:
        return open_database(self.url, cache=self.room, branch=branch)

    def close(self) -> None:
        self.db.close()
        self.other.close()

    def note(self) -> None:
        self.past[self.db.version()] = dict(self.model)

    def check(self) -> None:
        self.note()
        for db in (self.db, self.other):
            assert sorted(db.execute(READ).fetchall()) == sorted(self.model.values())
            assert db.execute("SELECT count(*), sum(a) FROM t").fetchall() == [
                (len(self.model), sum(row[1] for row in self.model.values()) if self.model else None)]
        for version in self.rng.sample(sorted(self.past), min(2, len(self.past))):
            found = self.rng.choice([self.db, self.other]).query(READ, as_of=version)
            assert sorted(tuple(row.values()) for row in found.to_pylist()) == sorted(self.past[version].values())

    # changes

    def load(self) -> None:
        count = self.rng.randrange(1, 60 if self.model else 200)
        new = [id for id in self.rng.sample(range(400), count) if id not in self.model]
        rows = [(id, self.rng.randrange(100), f"b{id}") for id in new]
        self.db.bulk_load("t", pa.table([list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []],
                                        schema=pa.schema({"id": pa.int64(), "a": pa.int64(), "b": pa.string()})))
        self.model |= {row[0]: row for row in rows}

    def write_one(self) -> None:
        db = self.rng.choice([self.db, self.other])
        id = self.rng.randrange(400)
        row = (id, self.rng.randrange(100), f"c{self.rng.randrange(9)}")
        db.execute("INSERT INTO t VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET a = excluded.a, b = excluded.b", row)
        self.model[id] = row

    def update(self) -> None:
        low = self.rng.randrange(400)
        self.db.execute("UPDATE t SET a = a + 1 WHERE id >= ? AND id < ?", (low, low + 20))
        self.model = {id: (row[0], row[1] + (low <= id < low + 20), row[2]) for id, row in self.model.items()}

    def delete(self) -> None:
        low, width = self.rng.randrange(400), self.rng.choice([1, 5, 300])
        self.db.execute("DELETE FROM t WHERE id >= ? AND id < ?", (low, low + width))
        self.model = {id: row for id, row in self.model.items() if not low <= id < low + width}

    def roll_back(self) -> None:
        self.db.execute("BEGIN; UPDATE t SET a = a + 1000; DELETE FROM t WHERE id % 3 = 0")
        expected = [(id, row[1] + 1000, row[2]) for id, row in self.model.items() if id % 3]
        assert sorted(self.db.execute(READ).fetchall()) == sorted(expected)
        self.db.execute("ROLLBACK")

    def alter(self) -> None:
        self.db.execute(f"ALTER TABLE t ADD COLUMN z BIGINT DEFAULT {self.rng.randrange(50)}")
        total = self.db.execute("SELECT sum(z), count(z) FROM t").fetchall()
        self.db.execute("UPDATE t SET z = 1")
        assert self.db.execute("SELECT sum(z) FROM t").fetchone() == ((len(self.model) or None),), total
        self.db.execute("ALTER TABLE t DROP COLUMN z")

    def recreate(self) -> None:
        self.db.execute("DROP TABLE t; CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b TEXT)")
        self.model = {}
        self.past = {}  # columns of another table
        self.load()

    def erase(self) -> None:
        if self.model:
            id = self.rng.choice(list(self.model))
            self.other.close()  # an erasure waits for all readers of a native file
            self.db.erase("t", id, reason="asked for", dry_run=False)
            self.other = self.opened(self.db.branch)
            for state in (self.model, *self.past.values()):
                state.pop(id, None)

    def collect(self) -> None:
        floor = self.rng.choice(sorted(self.past))
        self.db.retain(floor)
        self.db.gc(dry_run=False)
        self.past = {version: state for version, state in self.past.items() if version >= floor}

    def move(self) -> None:
        table = self.db.catalog().by_full_name["main.public.t"]
        start = table.prefix + keys.element(2, self.rng.randrange(400))
        if self.db.branch == "main" and start not in [held.start for held in self.db.ranges.list()]:
            self.db.ranges.split(start)
            self.db.ranges.move(start, f"part{self.rng.randrange(2)}.db")

    def branch(self) -> None:
        name = f"b{len(self.past)}x{self.rng.randrange(10**6)}"
        self.db.branches.create(name, parent=self.db.branch)
        self.checkout(name)

    def checkout(self, name: str) -> None:
        self.db.checkout(name)
        self.other.checkout(name)

    def reopen(self) -> None:
        branch = self.db.branch
        self.close()
        self.db, self.other = self.opened(branch), self.opened(branch)


@pytest.mark.parametrize("seed", slow_after(1, range(7)))
def test_what_is_kept_is_what_is_there(native_place: str, tiny: None, seed: int) -> None:
    rng = random.Random(seed)
    program = Program(native_place, rng)
    common: list[Callable[[], None]] = [program.write_one, program.write_one, program.update, program.delete,
                                        program.load]
    rare = [program.roll_back, program.alter, program.collect, program.reopen, program.branch, program.reopen,
            program.recreate, program.move if seed % 3 == 0 else program.erase]
    if seed % 3 == 0:
        rare.remove(program.branch)  # a branch and ranges that move have tests of their own
    try:
        for _ in range(25):
            rng.choice(common if rng.random() < 0.75 else rare)()
            program.check()
    finally:
        program.close()


@pytest.mark.parametrize("where", ["past", "branch"])
def test_columns_that_are_read_at_different_times_fit_together(native_place: str, where: str) -> None:
    """A write moves rows of older states to another place, and with it the order in which they are found."""
    with open_database(native_place) as main:
        main.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b TEXT)")
        main.execute("INSERT INTO t SELECT n, n, 'b' || n FROM generate_series(1, 20) AS n")
        version = main.version()
        main.branches.create("try")
        main.execute("INSERT INTO t VALUES (99, 99, 'b99')")
        with open_database(native_place, branch="try" if where == "branch" else "main") as db:
            at = version if where == "past" else None
            db.query("SELECT a + 0 AS a FROM t", as_of=at)
            main.execute("UPDATE t SET b = 'new' WHERE id IN (3, 7)")
            found = db.query("SELECT a + 0 AS a, b || '' AS b FROM t", as_of=at).to_pylist()
    assert sorted((row["a"], row["b"]) for row in found) == [(n, f"b{n}") for n in range(1, 21)]


def decoded(db: Database, action: Callable[[], object]) -> int:
    """How many rows an action decodes, times columns."""
    before = db.session.columns.decoded
    action()
    return db.session.columns.decoded - before


def filled(db: Database, count: int = 4000) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b TEXT)")
    db.bulk_load("t", pa.table({"id": range(count), "a": range(count), "b": [f"b{n}" for n in range(count)]}))


def test_a_write_drops_one_chunk(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_cache, "CHUNK", 100)
    monkeypatch.setattr(versions, "BATCH", 100)
    filled(db)
    read = lambda: db.execute("SELECT sum(a), count(b || '') FROM t").fetchall()  # noqa: E731
    assert decoded(db, read) == 8000
    assert decoded(db, read) == 0
    db.execute("UPDATE t SET a = 0 WHERE id = 777")
    assert decoded(db, read) == 200
    assert read() == [(sum(range(4000)) - 777, 4000)]
    db.execute("CREATE TABLE u (id BIGINT PRIMARY KEY)")
    db.execute("INSERT INTO u VALUES (1)")
    assert decoded(db, read) == 0, "another table has changed"
    assert decoded(db, lambda: db.execute("SELECT sum(id), sum(a) FROM t")) == 4000, "one column is new"


def test_a_table_larger_than_the_room_is_decoded_once(tmp_path: Path, open_here: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_cache, "CHUNK", 100)
        patch.setattr(versions, "BATCH", 100)
        db = open_here(str(tmp_path / "t.db"), cache=20_000)
        filled(db)
        read = lambda: db.execute("SELECT sum(a), max(b || ''), sum(id) FROM t").fetchall()  # noqa: E731
        expected = [(sum(range(4000)), "b999", sum(range(4000)))]
        assert read() == expected
        for _ in range(3):
            assert decoded(db, read) == 0
            assert read() == expected
        cache = db.session.columns
        assert cache.size <= 20_000 < cache.on_disk
        assert list((tmp_path / "t.db-columns").iterdir()) == [], "the files have no names"


def test_columns_of_a_big_table_outlive_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_cache, "CHUNK", 100)
    monkeypatch.setattr(versions, "BATCH", 100)
    url = str(tmp_path / "t.db")
    sql = "SELECT sum(a), max(b || '') FROM t"
    with open_database(url) as db:
        filled(db)
        expected = db.execute(sql).fetchall()
    with open_database(url) as db:
        assert decoded(db, lambda: db.execute(sql)) == 0
        assert db.execute(sql).fetchall() == expected
        db.execute("UPDATE t SET a = -1 WHERE id = 50")
    with open_database(url) as db:
        assert decoded(db, lambda: db.execute(sql)) == 200
        assert db.execute(sql).fetchall() == [(expected[0][0] - 51, expected[0][1])]
        assert decoded(db, lambda: db.execute("SELECT sum(id) FROM t")) == 4000
    with open_database(url, readonly=True) as db:
        assert decoded(db, lambda: db.execute("SELECT sum(id), sum(a), max(b || '') FROM t")) == 0


def test_a_file_of_another_history_or_a_damaged_one_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_cache, "CHUNK", 100)
    sql = "SELECT sum(a) FROM t"
    for name in ("one", "two"):
        with open_database(str(tmp_path / f"{name}.db")) as db:
            filled(db, 1000 if name == "one" else 2000)
            db.execute(sql)
    first, second = (tmp_path / f"{name}.db-columns" for name in ("one", "two"))
    (file,) = first.glob("*.columns")
    whole = file.read_bytes()
    (second / file.name).write_bytes(whole)
    with open_database(str(tmp_path / "two.db"), readonly=True) as db:
        assert db.execute(sql).fetchall() == [(sum(range(2000)),)]
    for place in (0, 100, 5000, len(whole) // 2, len(whole) - 40, len(whole) - 3):
        file.write_bytes(whole[:place] + bytes((whole[place] ^ 0xFF,)) + whole[place + 1 :])
        with open_database(str(tmp_path / "one.db"), readonly=True) as db:
            assert db.execute(sql).fetchall() == [(sum(range(1000)),)]
    for length in (0, 10, len(whole) - 1):
        file.write_bytes(whole[:length])
        with open_database(str(tmp_path / "one.db"), readonly=True) as db:
            assert db.execute(sql).fetchall() == [(sum(range(1000)),)]


def test_an_erasure_removes_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_cache, "CHUNK", 100)
    url, folder = str(tmp_path / "t.db"), tmp_path / "t.db-columns"
    with open_database(url) as db:
        filled(db, 1000)
        db.execute("UPDATE t SET b = 'secret' WHERE id = 7")
        db.execute("SELECT max(b || '') FROM t")
    assert any(b"secret" in path.read_bytes() for path in folder.iterdir())
    with open_database(url, readonly=True) as stale:
        stale.execute("SELECT max(b || '') FROM t")
        columns = stale.session.columns
        stale.session.readonly = False
        with open_database(url) as db:
            db.erase("t", 7, reason="asked for", dry_run=False)
        assert all(b"secret" not in path.read_bytes() for path in folder.iterdir())
        columns.is_new = True
        columns.save(stale.session)  # what it holds is older than the erasure
        assert list(folder.glob("*.columns")) == []
        assert stale.execute("SELECT count(b || '') FROM t").fetchall() == [(999,)]
    assert all(b"secret" not in path.read_bytes() for path in folder.iterdir())


def test_a_crash_while_columns_are_saved_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ontolake import faults

    monkeypatch.setattr(column_cache, "CHUNK", 100)
    url, folder = str(tmp_path / "t.db"), tmp_path / "t.db-columns"

    class Died(BaseException):
        pass

    def die(step: str) -> None:
        if step == "sql: columns written, not yet in place":
            raise Died

    db = open_database(url)
    filled(db, 1000)
    db.execute("SELECT sum(a) FROM t")
    with faults.arm(die), pytest.raises(Died):
        db.close()
    assert list(folder.glob("*.columns")) == []
    with open_database(url) as again:
        assert again.execute("SELECT sum(a) FROM t").fetchall() == [(sum(range(1000)),)]
    assert len(list(folder.glob("*.columns"))) == 1
    assert column_files.SavedColumns.beside(url) is not None
    db.session.close()


LOADED = {
    "b": ("BOOLEAN", lambda n: n % 3 == 0), "i": ("INTEGER", lambda n: -n), "l": ("BIGINT", lambda n: n << 40),
    "t": ("TEXT", lambda n: f"t {n} ä"), "v": ("VARCHAR(9)", str), "c": ("CHAR(9)", str),
    "d": ("DATE", lambda n: date(1970, 1, 1) + timedelta(n)), "m": ("DECIMAL(12, 2)", lambda n: Decimal(n) / 4),
    "f": ("DOUBLE PRECISION", lambda n: n / 7), "r": ("REAL", lambda n: n / 8),
    "z": ("TIMESTAMP", lambda n: datetime(2020, 1, 1) + timedelta(hours=n)), "n": ("NUMERIC", lambda n: Decimal(n) / 8),
    "u": ("UUID", lambda n: str(UUID(int=n))), "a": ("BIGINT[]", lambda n: [n, None]),
}  # fmt: skip


def test_columns_of_a_first_load_are_those_that_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_cache, "CHUNK", 100)
    url = str(tmp_path / "t.db")
    places = random.Random(3).sample(range(1000), 1000)
    data = {name: [None if n % 11 == 5 else make(n) for n in places] for name, (_, make) in LOADED.items()}
    given = pa.table({"id": places, **data})
    sql = f"SELECT id + 0 AS i0, {', '.join(LOADED)} FROM t"
    with open_database(url) as db:
        monkeypatch.setattr(bulk, "_KEPT", 1000)
        db.execute(f"CREATE TABLE t (id BIGINT PRIMARY KEY, {', '.join(f'{n} {t}' for n, (t, _) in LOADED.items())})")
        db.bulk_load("t", given)
        assert decoded(db, lambda: db.query("SELECT sum(i), count(t || v), max(m), max(f), max(z), max(d) FROM t")) == 0
        found = db.query(sql)
        with open_database(url, cache=0) as other:
            assert found.sort_by("i0").equals(other.query(sql).sort_by("i0"))
    with open_database(url) as db:
        assert decoded(db, lambda: db.query("SELECT sum(i), count(t || v), max(m), max(f), max(z), max(d) FROM t")) == 0
        assert db.query(sql).sort_by("i0").equals(found.sort_by("i0"))


def test_columns_of_a_load_are_not_those_of_its_caller(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_KEPT", 1000)
    numbers = np.arange(1000)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
    db.bulk_load("t", pa.table({"id": numbers, "a": numbers}))
    numbers[:] = 7
    assert db.execute("SELECT sum(a), max(id + 0) FROM t").fetchall() == [(499500, 999)]
    assert db.session.columns.decoded == 0


def test_only_what_a_table_has_is_kept_of_loads(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_KEPT", 100)
    rows = lambda first: pa.table({"id": range(first, first + 100), "a": [1] * 100})  # noqa: E731
    read = lambda: db.execute("SELECT sum(a), sum(id + 0) FROM t").fetchall()  # noqa: E731
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
    db.bulk_load("t", rows(0))
    with pytest.raises(UniqueError):
        db.bulk_load("t", rows(50))
    assert read() == [(100, 4950)]
    db.bulk_load("t", rows(100))
    assert read() == [(200, 19900)]
    db.execute("DELETE FROM t")
    with db.transaction():
        db.bulk_load("t", rows(0))
        db.execute("UPDATE t SET a = 2")
    assert read() == [(200, 4950)]
    db.execute("DELETE FROM t")
    with pytest.raises(NotNullError):
        db.bulk_load("t", pa.table({"id": [*range(99), None], "a": [1] * 100}))
    assert read() == [(None, None)]


def test_a_row_that_was_loaded_and_erased_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "_KEPT", 1000)
    with open_database(str(tmp_path / "t.db")) as db:
        filled(db, 1000)
        with open_database(str(tmp_path / "t.db")) as other:
            other.erase("t", 7, reason="asked for", dry_run=False)
        assert db.execute("SELECT count(b || '') FROM t").fetchall() == [(999,)]
