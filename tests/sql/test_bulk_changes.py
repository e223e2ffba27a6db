"""Changes of many rows at once leave the past as it was, however many versions the rows have."""

from __future__ import annotations

import random
import sqlite3

import pyarrow as pa
import pytest

from ontolake.sql import open_database
from ontolake.sql.errors import UniqueError
from ontolake.sql.keyspace import mass_writes, nodes, versions

COUNT = 900


@pytest.mark.parametrize("seed", [0, 3, 64])
def test_every_version_of_rows_that_are_changed_together_stays(
    native_place: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(versions, "_MANY", 100)
    monkeypatch.setattr(mass_writes, "_BATCH", 256)
    monkeypatch.setattr(versions, "BATCH", 256)
    rng = random.Random(seed)
    with open_database(native_place) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b TEXT); CREATE INDEX by_a ON t (a)")
        db.bulk_load("t", pa.table({"id": range(COUNT), "a": [0] * COUNT, "b": ["x" * (n % 40) for n in range(COUNT)]}))
        model = {n: (0, "x" * (n % 40)) for n in range(COUNT)}
        past = {db.version(): dict(model)}
        for number in range(12):
            low, high = sorted(rng.sample(range(COUNT), 2))
            if number % 4 == 3:
                db.execute("DELETE FROM t WHERE id >= ? AND id < ?", (low, high))
                model = {id: row for id, row in model.items() if not low <= id < high}
            else:
                db.execute("UPDATE t SET a = a + ? WHERE id >= ? AND id < ?", (number + 1, low, high))
                model = {id: (row[0] + (number + 1) * (low <= id < high), row[1]) for id, row in model.items()}
            past[db.version()] = dict(model)
        for version, state in past.items():
            found = db.query("SELECT * FROM t", as_of=version).to_pylist()
            assert {row["id"]: (row["a"], row["b"]) for row in found} == state
        assert list(db.verify()) == []


def test_rows_of_many_versions_are_changed_together(native_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_MANY", 50)
    with open_database(native_place) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b TEXT UNIQUE, c TEXT); CREATE INDEX by_a ON t (a)"
                   " INCLUDE (c)")
        db.bulk_load("t", pa.table({"id": range(80), "a": [0] * 80, "b": [f"b{n}" for n in range(80)]}))
        for n in range(80):
            db.execute("UPDATE t SET a = ? WHERE id = ?", (n, n))
        before = db.version()
        db.execute("UPDATE t SET a = a + 1, c = 'x' || id")
        db.execute("UPDATE t SET c = NULL WHERE id % 7 <> 3")
        changed = db.version()
        db.execute("DELETE FROM t WHERE id >= 5")
        assert db.query("SELECT sum(a), count(c) FROM t", as_of=before).to_pylist() == [{"sum": 3160, "count": 0}]
        assert db.query("SELECT sum(a), count(c) FROM t", as_of=changed).to_pylist() == [{"sum": 3240, "count": 11}]
        assert db.query("SELECT id, a FROM t ORDER BY id").to_pylist() == [{"id": n, "a": n + 1} for n in range(5)]
        with pytest.raises(UniqueError):
            db.execute("INSERT INTO t SELECT id + 100, a, b, c FROM t")
        db.execute("INSERT INTO t SELECT n, n, 'b' || n, NULL FROM generate_series(5, 79) AS s (n)")
        assert db.query("SELECT count(*) FROM t WHERE a = 40").to_pylist() == [{"count": 1}]
        assert list(db.verify()) == []


def test_a_change_of_many_rows_may_swap_keys_and_unique_values(native_place: str) -> None:
    with open_database(native_place) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, u BIGINT UNIQUE)")
        db.bulk_load("t", pa.table({"id": range(COUNT), "u": range(COUNT)}))
        db.execute("UPDATE t SET u = ? - u", (COUNT - 1,))
        db.execute("UPDATE t SET id = ? - id", (COUNT - 1,))
        assert db.query("SELECT count(*) FROM t WHERE id = u").to_pylist() == [{"count": COUNT}]
        with pytest.raises(UniqueError):
            db.execute("UPDATE t SET u = u / 2")
        with pytest.raises(UniqueError):
            db.execute("UPDATE t SET id = id / 2")
        assert db.query("SELECT count(*) FROM t WHERE id = u").to_pylist() == [{"count": COUNT}]
        assert list(db.verify()) == []


def test_the_node_of_a_version_is_the_same_in_sql() -> None:
    connection = sqlite3.connect(":memory:")
    for until in range(2, 130):
        sql = f"SELECT {nodes.expression('?1', until)}"
        found = [connection.execute(sql, (version,)).fetchone()[0] for version in range(1, until)]
        assert found == [nodes.node(version, until) for version in range(1, until)]
