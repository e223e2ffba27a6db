"""A statement for many sets of parameters does what it does for one after the other, in one commit, or nothing."""

from __future__ import annotations

import random
import time
from typing import Any

import pyarrow as pa
import pytest

from ontolake.sql import Database, SqlError, dbapi, open_database
from ontolake.sql.errors import CheckError, ForeignKeyError, UniqueError
from ontolake.sql.write import many_changes

TABLES = ("CREATE TABLE p (k BIGINT PRIMARY KEY); INSERT INTO p SELECT generate_series FROM generate_series(0, 9);"
          "CREATE TABLE t (id BIGINT PRIMARY KEY, a INTEGER CHECK (a < 1000), s VARCHAR(6) UNIQUE, "
          "w TIMESTAMPTZ DEFAULT '2020-01-01', k BIGINT REFERENCES p, g INTEGER GENERATED ALWAYS AS (a + 1) STORED);"
          "CREATE INDEX by_a ON t (a)")  # fmt: skip
STATEMENTS: list[tuple[str, Any]] = [
    ("INSERT INTO t (id, a, s) VALUES (?, ?, ?)", lambda rng, n: (500 + n, rng.choice([None, n]), f"n{n}")),
    ("INSERT INTO t (s, id, k) VALUES (?, ?, ?)", lambda rng, n: (None, 700 + n, rng.randrange(10))),
    ("INSERT INTO t (id, a) VALUES (?, ? + 1)", lambda rng, n: (900 + n, n)),
    ("INSERT INTO t (id, a) VALUES (?, 4) ON CONFLICT (id) DO UPDATE SET a = excluded.a",
     lambda rng, n: (rng.randrange(400),)),
    ("UPDATE t SET a = ?, s = ? WHERE id = ?", lambda rng, n: (n, f"u{n}", n * 3)),
    ("UPDATE t SET a = ?, w = '2021-02-03', k = NULL WHERE id = ?", lambda rng, n: (n, rng.randrange(400))),
    ("UPDATE t SET a = a + ? WHERE id = ?", lambda rng, n: (1, rng.randrange(300))),
    ("UPDATE t SET id = ? WHERE id = ?", lambda rng, n: (n + 5000, n)),
    ("UPDATE t SET k = ? WHERE a = ?", lambda rng, n: (n % 10, n)),
    ("DELETE FROM t WHERE id = ?", lambda rng, n: (n * 2,)),
    ("DELETE FROM t WHERE id = :id AND a > :least", lambda rng, n: {"id": n + 5000, "least": 20}),
]  # fmt: skip


def fill(db: Database) -> None:
    db.execute(TABLES)
    db.bulk_load("t", pa.table({"id": range(200), "a": pa.array([n % 50 for n in range(200)], pa.int32()),
                                "s": [f"s{n}" for n in range(200)], "k": [n % 10 for n in range(200)]}))


@pytest.mark.slow
@pytest.mark.parametrize("within", [False, True], ids=["alone", "in a transaction"])
def test_many_sets_do_what_one_after_the_other_does(within: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("many")
    with open_database(f"{folder}/one.db") as one, open_database(f"{folder}/many.db") as many:
        for db in (one, many):
            fill(db)
        for number, (sql, given) in enumerate(STATEMENTS):
            rng = random.Random(number)
            sets = [given(rng, n) for n in range(60)]
            version = many.version()
            if within:
                one.execute("BEGIN"), many.execute("BEGIN")
            count = sum(one.execute(sql, each).count for each in sets)
            assert many.execute_many(sql, sets) == count > 0, sql
            if within:
                one.execute("COMMIT"), many.execute("COMMIT")
            assert many.version() == version + 1, "one commit"
            rows = [db.execute("SELECT * FROM t ORDER BY id").fetchall() for db in (one, many)]
            assert rows[0] == rows[1], sql
        assert list(many.verify()) == []


@pytest.mark.parametrize(("sql", "sets", "error"), [
    ("INSERT INTO t (id, s) VALUES (?, ?)", [(900 + n, f"x{n % 70}") for n in range(100)], UniqueError),
    ("INSERT INTO t (id) VALUES (?)", [(900 + n % 99,) for n in range(100)], UniqueError),
    ("INSERT INTO t (id, k) VALUES (?, ?)", [(900 + n, n // 9) for n in range(100)], ForeignKeyError),
    ("UPDATE t SET a = ? WHERE id = ?", [(n * 10, n) for n in range(199)], CheckError),
    ("UPDATE t SET s = ? WHERE id = ?", [("same", n) for n in range(199)], UniqueError),
    ("UPDATE t SET s = ? WHERE id = ?", [("too long", 1), ("x", 2)], SqlError),
    ("DELETE FROM t WHERE id = ?", [(1,), (2,), (3, 4)], SqlError),
])  # fmt: skip
def test_a_set_that_fails_undoes_all(sql: str, sets: list[Any], error: type[SqlError], native_place: str) -> None:
    with open_database(native_place) as db:
        fill(db)
        version, before = db.version(), db.execute("SELECT * FROM t ORDER BY id").fetchall()
        with pytest.raises(error):
            db.execute_many(sql, sets)
        assert (db.version(), db.execute("SELECT * FROM t ORDER BY id").fetchall()) == (version, before)


def test_executemany_writes_the_rows_together(native_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together = []
    change = many_changes.change
    monkeypatch.setattr(many_changes, "change", lambda *given: together.append(len(given[-1])) or change(*given))  # type: ignore[func-returns-value]
    with dbapi.connect(native_place) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
        cursor.executemany("INSERT INTO t VALUES (?, ?)", ((n, str(n)) for n in range(300)))
        assert (cursor.rowcount, together) == (300, [299])
        cursor.executemany("UPDATE t SET s = ? WHERE id = ?", [])
        assert cursor.rowcount == 0
        cursor.executemany("DELETE FROM t WHERE id = ?", [(n,) for n in range(100)])
        assert cursor.rowcount == 100
        cursor.execute("SELECT count(*) FROM t")
        assert cursor.fetchall() == [(200,)]
    connection.close()


def test_many_sets_cost_a_tenth_of_one_after_the_other(native_place: str) -> None:
    with open_database(native_place) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, s TEXT)")
        sql = "INSERT INTO t VALUES (?, ?)"
        begun = time.process_time()
        with db.transaction():
            for n in range(400):
                db.execute(sql, (-n - 1, "x"))
        singly = (time.process_time() - begun) / 400
        sets = [(n, "x") for n in range(10_000)]
        begun = time.process_time()
        db.execute_many(sql, sets)
        assert (time.process_time() - begun) / len(sets) < singly / 5, "half of what is promised, for a busy machine"
