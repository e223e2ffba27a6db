"""Indexes are filled in the order of their keys, with little memory, while rows are written; each row is in it once."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marking import slow_after

from ontolake import faults
from ontolake.sql import Database, SerializationError, UniqueError, open_database
from ontolake.sql.keyspace import packing
from ontolake.sql.keyspace.vectors import Strings
from ontolake.sql.write import index_builds, sorted_runs
from ontolake.sql.write.sorted_runs import Entries, SortedRuns

KEYS = st.lists(st.binary(max_size=12).map(lambda raw: raw.replace(b"\x00", b"\x01") + b"\x00"), unique=True)
"""No key is the prefix of another, as in an index."""


@given(KEYS, st.integers(1, 7), st.integers(1, 9), st.booleans())
def test_runs_on_disk_come_back_sorted(keys: list[bytes], batch: int, size: int, valued: bool) -> None:
    with pytest.MonkeyPatch.context() as patch, SortedRuns() as runs:
        patch.setattr(sorted_runs, "RUN", 40)
        patch.setattr(sorted_runs, "MEMORY", 80)
        for first in range(0, len(keys), batch):
            some = keys[first : first + batch]
            runs.add(Entries(Strings.of(some), Strings.of([key[::-1] for key in some]) if valued else None))
        found = list(runs.slices(size))
        assert [key for each in found for key in each.keys.to_list()] == sorted(keys)
        assert all(len(each) <= 3 * max(size, len(runs)) for each in found)
        if valued:
            values = [value for each in found if each.values is not None for value in each.values.to_list()]
            assert values == [key[::-1] for key in sorted(keys)]
        assert runs.spilled or len(keys) < 20


@given(KEYS, st.data())
def test_entries_without_some(keys: list[bytes], data: st.DataObject) -> None:
    gone = set(data.draw(st.lists(st.sampled_from(keys)))) if keys else set()
    found = Entries(Strings.of(keys), Strings.of(keys)).without(gone)
    assert found.keys.to_list() == [key for key in keys if key not in gone]
    assert found.values is not None
    assert found.values.to_list() == found.keys.to_list()


def test_long_rows_are_written_as_they_are(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that cannot be packed, or not together, come back whole."""
    monkeypatch.setattr(packing, "_START_BITS", 10)
    long = 1 << packing._VALUE_BITS
    texts = ["x" * 10, "y" * long, "", "z" * 700, "w" * 900, *(str(n) * 40 for n in range(60))]
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT)")
    db.bulk_load("t", pa.table({"id": range(len(texts)), "a": texts}))
    assert [row[1] for row in db.execute("SELECT * FROM t ORDER BY id").fetchall()] == texts
    assert list(db.verify()) == []


def changes(rng: random.Random, db: Database, model: dict[int, int | None]) -> None:
    """A few commits, on a database and on a dict."""
    for _ in range(rng.randrange(4)):
        id, value = rng.randrange(420), rng.choice([None, rng.randrange(10**6)])
        if id not in model:
            db.execute("INSERT INTO t VALUES (?, ?, ?)", (id, value, str(id)))
            model[id] = value
        elif rng.random() < 0.4:
            db.execute("DELETE FROM t WHERE id = ?", (id,))
            del model[id]
        elif rng.random() < 0.3:
            db.execute("UPDATE t SET b = b || 'x' WHERE id = ?", (id,))
        else:
            db.execute("UPDATE t SET a = ? WHERE id = ?", (value, id))
            model[id] = value


@pytest.mark.parametrize("seed", slow_after(8, range(24)))
def test_rows_that_are_written_meanwhile_are_in_the_index_once(
    native_place: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(index_builds, "PAGE", 40)
    monkeypatch.setattr(index_builds, "BATCH", 64)
    monkeypatch.setattr(sorted_runs, "RUN", 3000)
    monkeypatch.setattr(sorted_runs, "MEMORY", 6000)
    rng = random.Random(seed)
    with open_database(native_place) as db, open_database(native_place) as other:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b TEXT)")
        model: dict[int, int | None] = {n: rng.choice([None, rng.randrange(10**6)]) for n in range(300)}
        db.bulk_load("t", pa.table({"id": list(model), "a": pa.array(list(model.values()), pa.int64()),
                                    "b": [str(n) for n in model]}))  # fmt: skip
        changes(rng, db, model)

        def hook(step: str) -> None:
            if step in ("sql: index declared", "sql: index page filled"):
                with faults.arm(lambda step: None):
                    changes(rng, rng.choice([db, other]), model)

        with faults.arm(hook):
            db.execute(f"CREATE {rng.choice(['', 'UNIQUE'])} INDEX by_a ON t (a {rng.choice(['', 'DESC'])}) "
                       f"{rng.choice(['', 'INCLUDE (b)'])}")  # fmt: skip
        changes(rng, db, model)
        assert list(db.verify()) == []
        assert sorted(db.execute("SELECT id, a FROM t WHERE a >= 0").fetchall()) == sorted(
            (id, a) for id, a in model.items() if a is not None)
        assert "index-only range" in db.explain("SELECT id, a FROM t WHERE a = 7")


@pytest.mark.parametrize("steps", ["sql: index declared", "sql: index page filled"])
def test_a_duplicate_that_is_written_meanwhile_ends_a_unique_build(
    db: Database, monkeypatch: pytest.MonkeyPatch, steps: str
) -> None:
    monkeypatch.setattr(index_builds, "PAGE", 40)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
    db.bulk_load("t", pa.table({"id": range(200), "a": range(200)}))
    once = iter([steps])

    def hook(step: str) -> None:
        if step == steps and next(once, None):
            db.execute("INSERT INTO t VALUES (-1, 199)")  # the entry of row 199 is written last

    with faults.arm(hook), pytest.raises(UniqueError, match=r"\(a\) = \(199\)"):
        db.execute("CREATE UNIQUE INDEX by_a ON t (a)")
    assert db.catalog().by_full_name["main.public.t"].indexes == []
    assert list(db.verify()) == []


def test_equal_values_on_two_pages_break_a_unique_index(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_builds, "PAGE", 50)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT, b BIGINT)")
    db.bulk_load("t", pa.table({"id": range(200), "a": [f"{n if n != 50 else 49:03}" for n in range(200)],
                                "b": pa.array([None] * 200, pa.int64())}))  # fmt: skip
    with pytest.raises(UniqueError, match=r"\(a\) = \(049\)"):
        db.execute("CREATE UNIQUE INDEX by_a ON t (a)")
    db.execute("CREATE UNIQUE INDEX by_both ON t (a, b)")  # NULLs are distinct
    assert list(db.verify()) == []


def test_a_row_that_is_erased_during_a_build_is_in_no_index(
    native_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_builds, "PAGE", 40)
    with open_database(native_place) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT)")
        db.bulk_load("t", pa.table({"id": range(200), "a": [f"secret-{n}" for n in range(200)]}))
        once = iter([1])

        def hook(step: str) -> None:
            if step == "sql: index page filled" and next(once, None):
                db.erase("t", 199, reason="asked for", dry_run=False)

        with faults.arm(hook), pytest.raises(SerializationError):
            db.execute("CREATE INDEX by_a ON t (a)")
        assert db.catalog().by_full_name["main.public.t"].indexes == []
        db.execute("CREATE INDEX by_a ON t (a)")
        assert db.query("SELECT id FROM t WHERE a = 'secret-199'").num_rows == 0
        assert list(db.verify()) == []
    assert all(b"secret-199" not in path.read_bytes() for path in Path(native_place).parent.iterdir() if path.is_file())


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    put = index_builds._put
    monkeypatch.setattr(index_builds, "_put", lambda *given: (sizes.append(len(given[-1])), put(*given))[-1])
    return sizes


@pytest.mark.slow
def test_a_build_writes_every_entry_once_in_few_transactions(db: Database, counted: list[int]) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
    db.bulk_load("t", pa.table({"id": range(250_000), "a": [n * 7919 % 250_000 for n in range(250_000)]}))
    before = db.version()
    db.execute("CREATE INDEX by_a ON t (a)")
    assert sum(counted) == 250_000
    assert db.version() - before <= 2 + 3
    assert db.execute("SELECT id FROM t WHERE a = 7919").fetchall() == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize("change", [
    "", "UPDATE t SET a = a + 1, s = NULL WHERE id % 3000 = 5", "DELETE FROM t WHERE id < 50"])  # fmt: skip
def test_an_index_is_built_of_kept_columns_where_there_are_such(
    native_place: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_builds, "PAGE", 3_000)
    values = [None if n % 7 == 0 else n * 31 % 97 for n in range(10_000)]
    data = pa.table({"id": range(10_000), "a": pa.array(values, pa.int64()), "s": [f"s{n}" for n in range(10_000)]})
    with open_database(native_place) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, s TEXT)")
        db.bulk_load("t", data)
        if change:
            db.execute(change)
        scanned = []
        entries = index_builds._Snapshot._entries

        def noted(self: index_builds._Snapshot, values: Strings) -> Entries:
            scanned.append(len(values))
            return entries(self, values)

        monkeypatch.setattr(index_builds._Snapshot, "_entries", noted)
        db.execute("CREATE INDEX by_a ON t (a DESC) INCLUDE (s)")
        assert bool(scanned) is bool(change), "rows are read only if the columns that are kept are not those of now"
        assert list(db.verify()) == []
        expected = db.execute("SELECT id, s FROM t WHERE a + 0 = 31 ORDER BY id").fetchall()
        assert db.execute("SELECT id, s FROM t WHERE a = 31 ORDER BY id").fetchall() == expected != []
