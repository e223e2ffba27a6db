"""Queries are answered by the fewest keys, and what is left is right."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ontolake.sql import Database, open_database

COUNT = 20_000


@pytest.fixture(scope="module")
def filled() -> Any:
    with open_database(":memory:") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, name TEXT, x DOUBLE PRECISION, n DECIMAL(9, 2))")
        db.execute("CREATE INDEX by_g ON t (g); CREATE INDEX by_name ON t (name DESC, g) INCLUDE (x)")
        db.execute("CREATE TABLE pair (a TEXT, b BIGINT, v TEXT, PRIMARY KEY (a, b))")
        ids = range(COUNT)
        db.bulk_load("t", pa.table({
            "id": ids, "g": pa.array([None if n % 50 == 0 else n // 20 for n in ids]),
            "name": [f"n{n % 500:03}" for n in ids], "x": [n / 3 for n in ids],
            "n": pa.array(ids).cast(pa.decimal128(38, 2)),
        }))  # fmt: skip
        db.bulk_load("pair", pa.table({"a": [f"a{n // 100}" for n in range(1000)], "b": [n % 100 for n in range(1000)],
                                       "v": ["v"] * 1000}))  # fmt: skip
        yield db


PLANS: list[tuple[str, str, int]] = [
    ("SELECT * FROM t WHERE id = 5", "point get", 1),
    ("SELECT * FROM t WHERE id = 5 AND g = 99", "point get", 0),
    ("SELECT * FROM t WHERE 5 = id", "point get", 1),
    ("SELECT * FROM t WHERE id = '5'", "point get", 1),
    ("SELECT * FROM t WHERE id IN (1, 2, 2, -7)", "multi-get", 2),
    ("SELECT * FROM t WHERE id BETWEEN 10 AND 19", "primary key range", 10),
    ("SELECT * FROM t WHERE id > 19990 AND id <= 19995", "primary key range", 5),
    ("SELECT * FROM t WHERE id < 2.5", "full scan", 3),
    ("SELECT * FROM t WHERE g = 8", "index range", 20),
    ("SELECT id FROM t WHERE g = 8", "index-only range", 20),
    ("SELECT id, x FROM t WHERE name = 'n007'", "index-only range", 40),
    ("SELECT id FROM t WHERE name > 'n490'", "index-only range", 360),
    ("SELECT id FROM t WHERE name > 'n490' AND name <= 'n491'", "index-only range", 40),
    ("SELECT id FROM t WHERE name = 'n490' AND g > 500", "index-only range", 20),
    ("SELECT id, n FROM t WHERE g >= 995", "index range", 98),
    ("SELECT id, n FROM t WHERE g >= 0", "full scan", 19_600),
    ("SELECT id FROM t WHERE g IS NULL", "full scan", 400),
    ("SELECT id FROM t WHERE g = 8 OR id = 5", "full scan", 21),
    ("SELECT * FROM pair WHERE a = 'a3' AND b = 4", "point get", 1),
    ("SELECT * FROM pair WHERE a = 'a3' AND b IN (4, 5, 400)", "multi-get", 2),
    ("SELECT * FROM pair WHERE a = 'a3'", "primary key range", 100),
    ("SELECT * FROM pair WHERE a IN ('a3', 'a4') AND b >= 90", "primary key range", 20),
    ("SELECT * FROM pair WHERE b = 4", "full scan", 10),
    ("SELECT x.id FROM t x JOIN pair p ON p.b = x.id WHERE p.a = 'a1' AND x.id < 3", "primary key range", 3),
    ("SELECT id FROM t WHERE id = (SELECT max(id) FROM t WHERE id < 9)", "primary key range", 1),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "access", "count"), PLANS, ids=[sql[14:60] for sql, _, _ in PLANS])
def test_the_access_and_the_answer(filled: Database, sql: str, access: str, count: int) -> None:
    explained = filled.explain(sql)
    assert access in explained, explained
    assert filled.query(sql).num_rows == count


def test_a_left_join_keeps_rows_that_find_nothing(filled: Database) -> None:
    sql = ("SELECT p.b, t.id FROM pair p LEFT JOIN t ON t.id = p.b + 19990 AND t.id > 19995 "
           "WHERE p.a = 'a0' AND p.b < 12")
    found = filled.execute(sql).fetchall()
    assert len(found) == 12
    assert sorted(id for _, id in found if id is not None) == [19996, 19997, 19998, 19999]
    assert filled.query(sql + " AND t.id = 19997").num_rows == 1


def test_explain_analyze_tells_rows_and_time(filled: Database) -> None:
    lines = [row[0] for row in filled.execute("EXPLAIN ANALYZE SELECT count(*) FROM t WHERE g = ?", (7,)).fetchall()]
    assert lines[0] == "index-only range on main.public.t using by_g: 1 range"
    assert lines[-1].startswith("1 row in ")
    assert "DataFusion" in "\n".join(lines)


def test_plans_follow_the_catalog(filled: Database) -> None:
    sql = "SELECT id FROM t WHERE x = 1.0"
    assert "full scan" in filled.explain(sql)
    filled.execute("CREATE INDEX by_x ON t (x)")
    assert "index-only range" in filled.explain(sql)
    assert filled.query(sql).to_pydict() == {"id": [3]}
    filled.execute("DROP INDEX by_x")
    assert "full scan" in filled.explain(sql)


def test_a_statement_that_was_prepared_sees_new_columns(filled: Database) -> None:
    sql = "SELECT * FROM pair WHERE a = ? AND b = ?"
    assert filled.execute(sql, ("a1", 1)).fetchall() == [("a1", 1, "v")]
    filled.execute("ALTER TABLE pair ADD COLUMN w BIGINT DEFAULT 4")
    assert filled.execute(sql, ("a1", 1)).fetchall() == [("a1", 1, "v", 4)]
    filled.execute("ALTER TABLE pair DROP COLUMN w")
    assert filled.execute(sql, ("a1", 1)).fetchall() == [("a1", 1, "v")]


def test_limits(filled: Database) -> None:
    assert filled.query("SELECT id FROM t LIMIT 3").num_rows == 3
    assert filled.query("SELECT id FROM t WHERE id > ? LIMIT ?", (5, 0)).num_rows == 0
    assert filled.query("SELECT id FROM t ORDER BY id DESC LIMIT 2 OFFSET 1").to_pydict() == {"id": [19998, 19997]}
