"""Indexes on expressions and on parts of tables: every way of writing keeps them right, and queries use them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ontolake.history import ConflictKind, MergeConflictError
from ontolake.sql import Database, UniqueError, open_database

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, name TEXT, a INT, b INT)"
INDEXES = ("CREATE UNIQUE INDEX by_name ON t (lower(name))", "CREATE INDEX part ON t (b) INCLUDE (name) WHERE a > 5",
           "CREATE INDEX both ON t ((a + b) DESC, id) WHERE name IS NOT NULL")  # fmt: skip
QUERIES = (
    ("SELECT id FROM t WHERE lower(name) = 'n7'", "by_name", lambda row: row["name"] and row["name"].lower() == "n7"),
    ("SELECT id FROM t WHERE a > 5 AND b = 3", "part", lambda row: row["a"] > 5 and row["b"] == 3),
    ("SELECT x.id FROM t x WHERE x.a + x.b = 11 AND x.name IS NOT NULL", "both",
     lambda row: row["a"] + row["b"] == 11 and row["name"] is not None),
)  # fmt: skip


def check(db: Database, rows: dict[int, dict[str, Any]]) -> None:
    assert db.query("SELECT * FROM t ORDER BY id").to_pylist() == [rows[id] for id in sorted(rows)]
    for sql, _, holds in QUERIES:
        expected = sorted(id for id, row in rows.items() if holds(row))
        assert sorted(id for (id,) in db.execute(sql).fetchall()) == expected, sql
    assert list(db.verify()) == []


@pytest.mark.parametrize("seed", range(2))
def test_random_writes_keep_indexes_right(db: Database, seed: int) -> None:
    random_ = random.Random(seed)
    rows: dict[int, dict[str, Any]] = {}
    db.execute(TABLE)
    made = random_.randrange(10)
    for step in range(24):
        if step == made:
            for statement in INDEXES:
                db.execute(statement)

        def row(id: int) -> dict[str, Any]:
            name = random_.choice([None, f"n{id}", f"N{id}"])
            return {"id": id, "name": name, "a": random_.randrange(10), "b": random_.randrange(10)}

        kind = random_.randrange(5)
        some = random_.sample(range(200), random_.choice([1, 3, 80]))
        if kind == 0:
            new = [row(id) for id in some if id not in rows]
            if new:
                db.bulk_load("t", pa.Table.from_pylist(new))
                rows.update({each["id"]: each for each in new})
        elif kind == 1:
            new = [row(id) for id in some[:5]]
            for each in new:
                db.execute("INSERT INTO t VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name, "
                           "a = excluded.a, b = excluded.b", tuple(each.values()))
            rows.update({each["id"]: each for each in new})
        elif kind == 2:
            db.execute(f"UPDATE t SET a = (a + 3) % 10, name = upper(name) WHERE b = {step % 10}")
            for each in rows.values():
                if each["b"] == step % 10:
                    each.update(a=(each["a"] + 3) % 10, name=each["name"] and each["name"].upper())
        elif kind == 3:
            db.execute(f"UPDATE t SET name = 'x' || id WHERE id IN ({', '.join(map(str, some))})")
            for id in some:
                if id in rows:
                    rows[id]["name"] = f"x{id}"
        else:
            db.execute(f"DELETE FROM t WHERE id < {step} AND a = {step % 10}")
            rows = {id: each for id, each in rows.items() if not (id < step and each["a"] == step % 10)}
        if step % 8 == 7:
            check(db, rows)
    check(db, rows)


def test_queries_use_them_where_their_conditions_say_so(db: Database) -> None:
    db.execute(TABLE)
    for statement in INDEXES:
        db.execute(statement)
    db.bulk_load("t", pa.table({"id": range(3000), "name": [f"N{n}" for n in range(3000)],
                                "a": [n % 10 for n in range(3000)], "b": [n % 97 for n in range(3000)]}))
    for sql, index, _ in QUERIES:
        assert f"using {index}" in db.explain(sql), sql
    for sql in ("SELECT id FROM t WHERE b = 3", "SELECT id FROM t WHERE a > 4 AND b = 3",
                "SELECT id FROM t WHERE upper(name) = 'N7'", "SELECT id FROM t WHERE a + b = 11",
                "SELECT id FROM t WHERE a > 5 OR b = 3"):
        assert "using" not in db.explain(sql), sql
    assert db.execute("SELECT id FROM t WHERE lower(name) = ?", ("n7",)).fetchall() == [(7,)]
    assert "using by_name" in db.explain("SELECT id FROM t WHERE lower(name) = ?", ("n7",))


def test_a_bulk_load_and_a_build_find_equal_values(db: Database) -> None:
    db.execute(TABLE)
    db.execute(INDEXES[0])
    names = [f"n{n}" for n in range(100)]
    with pytest.raises(UniqueError):
        db.bulk_load("t", pa.table({"id": range(100), "name": [*names[:99], "N5"]}))
    db.execute("DROP INDEX by_name")
    db.bulk_load("t", pa.table({"id": range(100), "name": [*names[:99], "N5"]}))
    with pytest.raises(UniqueError):
        db.execute(INDEXES[0])
    db.execute("CREATE UNIQUE INDEX by_name ON t (lower(name)) WHERE id < 99")
    assert list(db.verify()) == []


def test_the_past_a_restart_and_erasure_know_them(tmp_path: Path) -> None:
    place = f"{tmp_path}/t.db"
    with open_database(place) as db:
        db.execute(TABLE)
        for statement in INDEXES:
            db.execute(statement)
        db.execute("INSERT INTO t VALUES (1, 'One', 6, 5), (2, 'Two', 1, 1)")
        before = db.version()
        db.execute("UPDATE t SET name = 'Three' WHERE id = 1")
    with open_database(place) as db:
        sql = "SELECT id FROM t WHERE lower(name) = 'one'"
        assert db.query(sql, as_of=before).to_pylist() == [{"id": 1}]
        assert db.query(sql).num_rows == 0
        db.erase("t", 1, reason="asked for", dry_run=False)
        assert list(db.verify()) == []
    stored = Path(place).read_bytes().lower()
    assert b"three" not in stored


def test_merges_keep_them_and_see_equal_values(tmp_path: Path) -> None:
    place = f"{tmp_path}/t.db"
    with open_database(place) as db:
        db.execute(TABLE)
        db.execute("INSERT INTO t VALUES (1, 'One', 6, 5)")
        db.branches.create("try")
        with open_database(place, branch="try") as branch:
            for statement in INDEXES:
                branch.execute(statement)
            branch.execute("INSERT INTO t VALUES (2, 'Two', 7, 5)")
        db.execute("CREATE INDEX mine ON t (a)")
        db.execute("INSERT INTO t VALUES (3, 'TWO', 8, 5)")
        with pytest.raises(MergeConflictError) as raised:
            db.merge("try")
        assert {conflict.kind for conflict in raised.value.conflicts} == {ConflictKind.UNIQUE}
        db.execute("UPDATE t SET name = 'Three' WHERE id = 3")
        db.merge("try")
        assert db.execute("SELECT id FROM t WHERE a > 5 AND b = 5 ORDER BY id").fetchall() == [(1,), (2,), (3,)]
        with pytest.raises(UniqueError):
            db.execute("INSERT INTO t VALUES (4, 'tHREE', 0, 0)")
        assert list(db.verify()) == []
