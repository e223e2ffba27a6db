"""Queries are answered by the fewest keys, and what is left is right."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from marking import slow_after
from sql_work import work

from ontolake.sql import Database, open_database
from ontolake.sql.keyspace import versions

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
    assert "DuckDB" in "\n".join(lines)


@pytest.mark.slow
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


LIMITED = [
    ("SELECT * FROM t ORDER BY id LIMIT 5", "answered by keys alone"),
    ("SELECT id, x FROM t WHERE id > 100 ORDER BY id LIMIT 5 OFFSET 2", "answered by keys alone"),
    ("SELECT id * 2 AS d, name FROM t ORDER BY id LIMIT 5", "in the order of keys, no more rows than the LIMIT"),
    ("SELECT * FROM t ORDER BY id DESC LIMIT 5", "from the last key, no more rows than the LIMIT"),
    ("SELECT id + 1 AS d FROM t WHERE id < 9000 ORDER BY id DESC LIMIT 3 OFFSET 4", "from the last key"),
    ("SELECT a, b FROM pair ORDER BY a, b LIMIT 4", "answered by keys alone"),
    ("SELECT a, b FROM pair WHERE a = 'a3' ORDER BY a DESC, b DESC LIMIT 4", "from the last key"),
    ("SELECT id, upper(name) AS u FROM t LIMIT 3", "no more rows than the LIMIT"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "told"), LIMITED)
def test_a_limit_in_the_order_of_keys_reads_no_more_than_it_gives(filled: Database, sql: str, told: str) -> None:
    assert told in filled.explain(sql)
    filled.query(sql)  # so that the plan and the catalog are known
    whole = sql.partition(" LIMIT ")[0].replace(" ORDER BY", " AND id >= 0 ORDER BY" if "WHERE" in sql else " ORDER BY")
    table = "pair" if "pair" in sql else "t"
    most = work(filled, lambda: filled.query(f"SELECT * FROM {table}"))
    assert work(filled, lambda: filled.query(sql)) <= max(5, most // 50)
    if "ORDER BY" in sql:
        limit, _, offset = sql.partition(" LIMIT ")[2].partition(" OFFSET ")
        sorted_whole = filled.query(whole.replace(" AND id >= 0", "")).slice(int(offset or 0), int(limit))
        assert filled.query(sql).to_pylist() == sorted_whole.to_pylist()


def test_a_limit_that_keys_cannot_answer_stops_when_it_is_met(
    filled: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "BATCH", 500)
    most = work(filled, lambda: filled.query("SELECT * FROM t"))
    for sql, told, expected in (
        ("SELECT id FROM t WHERE x > 10 LIMIT 3", "until the LIMIT is met", [31, 32, 33]),
        ("SELECT id FROM t WHERE id % 100 = 7 ORDER BY id LIMIT 2 OFFSET 1",
         "in the order of keys, until the LIMIT is met", [107, 207]),
        ("SELECT id FROM t WHERE upper(name) = 'N003' AND id >= 600 ORDER BY id LIMIT 2", "until", [1003, 1503]),
    ):  # fmt: skip
        assert told in filled.explain(sql)
        assert filled.query(sql).to_pydict() == {"id": expected}
        assert work(filled, lambda sql=sql: filled.query(sql)) < most // 5  # type: ignore[misc]
    sql = "SELECT id FROM t WHERE x < 0 ORDER BY id LIMIT 2"
    assert filled.query(sql).to_pydict() == {"id": []}


def test_a_limit_of_the_past_is_that_of_its_time(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    db.bulk_load("t", pa.table({"id": range(0, 200, 2), "v": range(100)}))
    version = db.version()
    db.execute("DELETE FROM t WHERE id IN (0, 198); UPDATE t SET v = -1 WHERE id IN (2, 100)")
    db.execute("INSERT INTO t VALUES (1, 1)")
    for order, expected in (("id", [0, 2, 4]), ("id DESC", [198, 196, 194])):
        for where in ("", "WHERE v >= 0 ", "WHERE id >= 0 "):
            sql = f"SELECT id FROM t {where}ORDER BY {order} LIMIT 3"
            assert db.query(sql, as_of=version).to_pydict() == {"id": expected}
    assert db.query("SELECT id FROM t ORDER BY id LIMIT 3").to_pydict() == {"id": [1, 2, 4]}
    assert db.query("SELECT id FROM t", as_of=version).num_rows == 100


ENDS = [
    ("ORDER BY id LIMIT 3", [0, 1, 2]), ("ORDER BY id DESC LIMIT 2 OFFSET 1", [9998, 9997]),
    ("WHERE id >= 5000 ORDER BY id LIMIT 2", [5000, 5001]), ("WHERE id < 5000 ORDER BY id DESC LIMIT 1", [4999]),
    ("WHERE v % 7 = 3 ORDER BY id LIMIT 2", [3, 10]), ("WHERE v % 7 = 3 ORDER BY id DESC LIMIT 2", [9999, 9992]),
    ("WHERE id IN (5, 3, 7) ORDER BY id DESC LIMIT 2", [7, 5]), ("WHERE id < 2 ORDER BY id LIMIT 10", [0, 1]),
    ("WHERE id > 100000 ORDER BY id LIMIT 1", []), ("ORDER BY id DESC LIMIT 0", []),
]  # fmt: skip


@pytest.fixture(scope="module")
def changed() -> Any:
    """Ten thousand rows at version 2; by now most are others, some are gone and some are new."""
    with open_database(":memory:") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        db.bulk_load("t", pa.table({"id": range(10_000), "v": range(10_000)}))
        for sql in ("UPDATE t SET v = -v WHERE id % 3 > 0", "DELETE FROM t WHERE id % 5 = 0",
                    "INSERT INTO t SELECT id + 20000, v FROM t WHERE id < 3000", "UPDATE t SET v = 0"):
            db.execute(sql)
        yield db


@pytest.mark.parametrize(("rest", "expected"), slow_after(4, ENDS))
def test_the_first_and_last_rows_of_the_past_are_found_without_the_others(
    changed: Database, monkeypatch: pytest.MonkeyPatch, rest: str, expected: list[int]
) -> None:
    monkeypatch.setattr(versions, "BATCH", 500)
    whole = work(changed, lambda: changed.query("SELECT * FROM t", as_of=2))
    assert changed.query(f"SELECT id FROM t {rest}", as_of=2).to_pydict() == {"id": expected}
    assert work(changed, lambda: changed.query(f"SELECT id FROM t {rest}", as_of=2)) < whole // 8


@pytest.mark.slow
def test_rows_of_any_version_come_in_order(changed: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "BATCH", 64)
    for at in (2, 3, 4, 5, 6, None):
        rows = sorted(changed.query("SELECT id, v FROM t", as_of=at).to_pylist(), key=lambda row: row["id"])
        for where, wanted in (("", rows), ("WHERE v < -100 ", [row for row in rows if row["v"] < -100])):
            sql = f"SELECT id, v FROM t {where}ORDER BY id"
            assert changed.query(f"{sql} LIMIT 300 OFFSET 7", as_of=at).to_pylist() == wanted[7:307]
            assert changed.query(f"{sql} DESC LIMIT 300", as_of=at).to_pylist() == wanted[::-1][:300]


def test_a_join_by_primary_key_looks_up_what_it_needs(filled: Database) -> None:
    sql = "SELECT t.id, t.name FROM pair p JOIN t ON t.id = p.b WHERE p.a = 'a1' AND p.b < 3 ORDER BY 1"
    assert "multi-get on main.public.t, if the join asks for few keys" in filled.explain(sql)
    assert filled.query(sql).to_pydict() == {"id": [0, 1, 2], "name": ["n000", "n001", "n002"]}
    most = work(filled, lambda: filled.query("SELECT * FROM t"))
    assert work(filled, lambda: filled.query(sql)) < most // 20
    outer = "SELECT t.id, p.b FROM t LEFT JOIN pair p ON t.id = p.b AND p.a = 'a1' WHERE t.id < 120 OR t.id > 19995"
    assert filled.query(outer).num_rows == 124


@pytest.mark.slow
def test_a_large_join_by_primary_key_is_that_of_all_rows(db: Database) -> None:
    db.execute("CREATE TABLE o (id BIGINT PRIMARY KEY, c BIGINT, v BIGINT)")
    db.execute("CREATE TABLE c (id BIGINT PRIMARY KEY, w BIGINT)")
    count = 60_000
    refs = [None if n % 11 == 0 else n * 7919 % 200_000 - 50_000 for n in range(count)]
    db.bulk_load("o", pa.table({"id": range(count), "c": pa.array(refs, pa.int64()), "v": range(count)}))
    db.bulk_load("c", pa.table({"id": range(-1000, 79_000), "w": range(80_000)}))
    known = {n: n + 1000 for n in range(-1000, 79_000)}
    expected = [(ref, n) for n, ref in enumerate(refs) if ref in known]
    total = sum(n - known[ref] for ref, n in expected)
    for sql in ("SELECT count(*), sum(o.v - c.w) FROM o JOIN c ON o.c = c.id",
                "SELECT count(*), sum(o.v - c.w) FROM o, c WHERE c.id = o.c"):
        assert db.execute(sql).fetchall() == [(len(expected), total)]
    assert db.execute("SELECT count(*), count(c.id) FROM o LEFT JOIN c ON o.c = c.id").fetchall() == [
        (count, len(expected))]  # fmt: skip
    assert db.execute("SELECT count(*) FROM o x JOIN o y ON y.id = x.c").fetchall() == [
        (sum(ref is not None and 0 <= ref < count for ref in refs),)]  # fmt: skip


def test_limits(filled: Database) -> None:
    assert filled.query("SELECT id FROM t LIMIT 3").num_rows == 3
    assert filled.query("SELECT id FROM t WHERE id > ? LIMIT ?", (5, 0)).num_rows == 0
    assert filled.query("SELECT id FROM t ORDER BY id DESC LIMIT 2 OFFSET 1").to_pydict() == {"id": [19998, 19997]}
