"""Changes of many rows at once leave the past as it was, however many versions the rows have."""

from __future__ import annotations

import random
import sqlite3

import pyarrow as pa
import pytest

from ontolake.sql import open_database
from ontolake.sql.errors import ForeignKeyError, UniqueError
from ontolake.sql.keyspace import mass_writes, nodes, versions
from ontolake.sql.write import bulk, foreign_keys

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


@pytest.mark.parametrize("piece", [7, 4096])
def test_a_load_in_pieces_is_one_commit_with_every_row(
    native_place: str, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    """Rows are encoded in pieces while others are written; a key that is there already undoes all of them."""
    monkeypatch.setattr(bulk, "_PIECE", piece)
    texts = [None if n % 5 == 0 else "ü" * (n % 13) for n in range(100)]
    lists = [None if n % 3 == 0 else [n, None] for n in range(100)]
    data = pa.table({"id": [n * 37 % 101 for n in range(100)], "t": texts, "l": lists})
    with open_database(native_place) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, t TEXT, l BIGINT[])")
        before = db.version()
        assert db.bulk_load("t", data) == 100
        assert db.version() == before + 1
        rows = sorted(zip(*data.to_pydict().values(), strict=True))
        assert db.execute("SELECT * FROM t ORDER BY id").fetchall() == rows
        with pytest.raises(UniqueError, match="= \\(50\\)"):
            db.bulk_load("t", pa.table({"id": [*range(200, 280), 50]}))
        assert db.execute("SELECT count(*) FROM t").fetchone() == (100,)
        assert list(db.verify()) == []


FAMILIES = {
    "one column": ("a BIGINT PRIMARY KEY", "x BIGINT REFERENCES p", lambda n: {"x": n % 50}, {"x": 50}),
    "two columns": ("a BIGINT, b TEXT, PRIMARY KEY (b, a)", "x BIGINT, y TEXT, FOREIGN KEY (x, y) REFERENCES p (a, b)",
                    lambda n: {"x": n % 50, "y": f"b{n % 50}"}, {"x": 3, "y": "b4"}),
    "of another integer": ("a BIGINT PRIMARY KEY", "x SMALLINT REFERENCES p", lambda n: {"x": n % 50}, {"x": 50}),
    "deferred": ("a BIGINT PRIMARY KEY", "x BIGINT REFERENCES p DEFERRABLE INITIALLY DEFERRED",
                 lambda n: {"x": n % 50}, {"x": 50}),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_load_checks_references_by_the_column(
    family: str, monkeypatch: pytest.MonkeyPatch, native_place: str
) -> None:
    parent, child, good, bad = FAMILIES[family]
    with open_database(native_place) as db:
        db.execute(f"CREATE TABLE p ({parent}); CREATE TABLE c (id BIGINT PRIMARY KEY, {child})")
        db.bulk_load("p", pa.Table.from_pylist([{"a": n, "b": f"b{n}"} for n in range(50)]).select(
            ["a", "b"] if "b TEXT" in parent else ["a"]))  # fmt: skip
        rows = [{"id": n, **good(n)} for n in range(300)]
        rows[7]["x"] = None
        broken = [*rows[:-1], {"id": 999, **bad}]
        with pytest.raises(ForeignKeyError, match="is not in"):
            db.bulk_load("c", pa.Table.from_pylist(broken))
        assert db.execute("SELECT count(*) FROM c").fetchone() == (0,)
        db.execute("BEGIN")
        assert db.bulk_load("c", pa.Table.from_pylist(rows)) == 300
        db.execute("ROLLBACK")
        monkeypatch.setattr(foreign_keys, "values_of", lambda *given: pytest.fail("rows were looked at one by one"))
        assert db.bulk_load("c", pa.Table.from_pylist(rows)) == 300
        assert list(db.verify()) == []
