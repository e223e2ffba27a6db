"""CREATE TABLE … AS and SELECT … INTO make the tables that PostgreSQL makes: rows, types, counts and SQLSTATE."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from scripts import compare

from ontolake import faults
from ontolake.sql import Database, SqlError, open_database

# ruff: noqa: E501 - one statement a line
TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')
CREATE TABLE t (id INT PRIMARY KEY, n NUMERIC(10, 2), v VARCHAR(5), c CHAR(3), m mood, ms mood[], j JSONB, ts TIMESTAMP(3), f REAL, d DATE, b BIGINT, free NUMERIC)
INSERT INTO t VALUES (1, 1.25, 'ab', 'x', 'ok', '{sad,ok}', '{"a": 1}', '2020-01-01 10:00:00.1234', 1.5, '2020-02-29', 9223372036854775807, 1.50)
INSERT INTO t VALUES (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (3, -7, 'cde', 'yz', 'sad', '{}', '[]', '1999-12-31 23:59:59', -0.25, '1970-01-01', 0, 1000)
CREATE TABLE u (id INT PRIMARY KEY, w TEXT)
INSERT INTO u VALUES (1, 'one'), (3, 'three'), (5, 'five')
CREATE VIEW view AS SELECT id AS k, v AS short, n * 2 AS twice FROM t
"""
STATEMENTS = """
CREATE TABLE a AS SELECT * FROM t
SELECT id, n, v, c, m, ms[1], j, ts, f, d, b, free FROM a ORDER BY id
CREATE TABLE a AS SELECT 1
CREATE TABLE IF NOT EXISTS a AS SELECT 1 AS other
SELECT count(*) FROM a
CREATE TABLE IF NOT EXISTS a2 AS SELECT 1 AS other
TABLE a2
CREATE TABLE view AS SELECT 1
CREATE TABLE t_pkey AS SELECT 1
CREATE TABLE b (x, y) AS SELECT id, v, n FROM t WHERE id < 3
SELECT * FROM b ORDER BY x
CREATE TABLE c (x, y) AS SELECT 1
CREATE TABLE c AS SELECT id, id FROM t
CREATE TABLE c (x, x) AS SELECT 1, 2
CREATE TABLE c (x INT) AS SELECT 1
CREATE TABLE c AS SELECT nope FROM t
CREATE TABLE c AS SELECT * FROM nope
CREATE TABLE c AS SELECT * FROM c
CREATE TABLE c AS SELECT 10 / (id - 2) AS q FROM t
SELECT * FROM c
CREATE TABLE nowhere.c AS SELECT 1
CREATE TABLE c AS SELECT row(1, 2)
CREATE TABLE c AS VALUES (1, 'a', NULL), (2, 'b', 2.5)
SELECT * FROM c ORDER BY column1
CREATE TABLE d AS TABLE t WITH NO DATA
SELECT * FROM d
INSERT INTO d (id, n, v) VALUES (1, 1.239, 'long text')
INSERT INTO d (id, n, v) VALUES (1, 1.239, 'short')
INSERT INTO d (id) VALUES (1), (NULL)
SELECT id, n, v FROM d ORDER BY id, v
CREATE TABLE e AS (SELECT 1 AS a UNION ALL SELECT 2 ORDER BY 1) WITH DATA
SELECT a FROM e ORDER BY a
CREATE TABLE f AS WITH q AS (SELECT id, w FROM u) SELECT t.id, w, v FROM t LEFT JOIN q ON q.id = t.id
SELECT * FROM f ORDER BY id
CREATE TABLE g AS SELECT m, count(*), sum(n) AS total, avg(f) FROM t GROUP BY m
SELECT * FROM g ORDER BY total
CREATE TABLE h AS SELECT * FROM view
SELECT * FROM h ORDER BY k
UPDATE h SET twice = 0.125 WHERE k = 1
DELETE FROM h WHERE k = 2
SELECT * FROM h ORDER BY k
PREPARE p AS SELECT id, v FROM t WHERE id >= $1
CREATE TABLE i AS EXECUTE p(2)
SELECT * FROM i ORDER BY id
CREATE TABLE i2 (x) AS EXECUTE p(1) WITH NO DATA
SELECT * FROM i2
CREATE TABLE k AS EXECUTE p
CREATE TABLE k AS EXECUTE unknown(1)
PREPARE w AS DELETE FROM u
CREATE TABLE k AS EXECUTE w
SELECT id, w INTO k FROM u WHERE id > 1
SELECT * FROM k ORDER BY id
SELECT id INTO TABLE k FROM u
SELECT 1 AS a INTO l UNION SELECT 2
SELECT a FROM l ORDER BY a
SELECT 1 AS a UNION SELECT 2 AS a INTO m
SELECT * FROM (SELECT 1 AS a INTO m) AS x
INSERT INTO l SELECT 5 INTO m
CREATE TABLE m AS SELECT 1 AS a INTO n
WITH q AS (SELECT 7 AS a) SELECT * INTO m FROM q
TABLE m
CREATE SEQUENCE s
CREATE TABLE o AS SELECT nextval('s'), id FROM u WITH NO DATA
CREATE TABLE o2 AS SELECT nextval('s'), w FROM u
SELECT nextval FROM o2 ORDER BY 1
BEGIN
CREATE TABLE r AS SELECT id FROM u
INSERT INTO r VALUES (100)
CREATE TABLE r2 AS SELECT id + 1 AS id FROM r
SELECT id FROM r2 ORDER BY id
SAVEPOINT one
SELECT * INTO r3 FROM r2
ROLLBACK TO one
SELECT * FROM r3
ROLLBACK
SELECT * FROM r
BEGIN
CREATE TABLE r AS SELECT id FROM u
COMMIT
SELECT id FROM r ORDER BY id
BEGIN READ ONLY
CREATE TABLE r9 AS SELECT 1
ROLLBACK
DROP TABLE r
"""
TYPES = [
    "SELECT * FROM t",
    "SELECT id + 1 AS a, n + 1 AS b, v || 'x' AS c, ts + interval '1 day' AS d, f * 2 AS e, b - 1 AS g, free FROM t",
    "SELECT sum(id) AS a, sum(n) AS b, avg(n) AS c, count(*) AS d, max(d) AS e, min(m) AS g, sum(f) AS h FROM t",
    "SELECT 1 AS a, 1.5 AS b, 'x' AS c, NULL AS d, true AS e, now() AS g, DATE '2020-01-01' AS h, interval '1 day' AS i",
    "SELECT 1::SMALLINT AS a, n::NUMERIC(5, 1) AS b, v::VARCHAR(2) AS c, id::TEXT AS d, 'ok'::mood AS e, ts::TIMESTAMP(0) AS g FROM t",
    "SELECT ARRAY[1, 2] AS a, ARRAY['a'] AS b, ARRAY[n] AS c, ms, ms[1] AS e FROM t",
    "SELECT j, j -> 'a' AS b, j ->> 'a' AS c, '{}'::JSON AS d FROM t",
    "SELECT x.n, x.v, y.* FROM (SELECT n, v FROM t) AS x (n, v) CROSS JOIN (SELECT c, ts FROM t) AS y",
    "WITH q (a, b) AS (SELECT n, v FROM t) SELECT b, a FROM q",
    "SELECT n FROM t UNION ALL SELECT n FROM t", "SELECT n FROM t UNION ALL SELECT free FROM t",
    "SELECT * FROM view", "SELECT t.v, u.w FROM t LEFT JOIN u ON t.id = u.id",
    "VALUES (1, 'a', 2.5)", "SELECT '2020-01-01'::TIMESTAMPTZ AS a, TIME '10:00' AS b, '\\x00'::BYTEA AS c",
]  # fmt: skip
_SHOWN = "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = '{}'::regclass AND attnum > 0"


@pytest.mark.slow
def test_statements_say_what_postgres_says(postgres: Any) -> None:
    with open_database(":memory:") as db:
        compare(postgres, db, TABLES)
        compare(postgres, db, STATEMENTS)
        assert list(db.verify()) == []


@pytest.mark.slow
def test_columns_have_the_types_that_postgres_gives_them(postgres: Any) -> None:
    with open_database(":memory:") as db:
        compare(postgres, db, TABLES)
        for n, query in enumerate(TYPES):
            compare(postgres, db, f"CREATE TABLE a{n} AS {query}")
            columns = db.catalog().by_full_name[f"main.public.a{n}"].visible
            postgres.execute(f"CREATE TABLE ours{n} ({', '.join(f'{each.name} {each.type}' for each in columns)})")
            wanted = postgres.execute(_SHOWN.format(f"a{n}")).fetchall()
            assert postgres.execute(_SHOWN.format(f"ours{n}")).fetchall() == wanted, query
            assert all(column.nullable for column in columns)


@pytest.fixture
def shop(native_place: str) -> Any:
    with open_database(native_place) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n DECIMAL(10, 2))")
        db.bulk_load("t", pa.table({"id": range(3000), "n": pa.array([Decimal(n) / 4 for n in range(3000)])}))
        yield db


def test_a_table_and_its_rows_are_one_commit(shop: Database) -> None:
    before = shop.version()
    done = shop.execute("CREATE TABLE a AS SELECT id, n * 2 AS twice, n / 3 AS third FROM t", message="copy", author="eve")
    assert (done.status, done.count, shop.version()) == ("SELECT 3000", 3000, before + 1)
    (commit,) = shop.commits(since=before)
    assert (commit.message, commit.author) == ("copy", "eve")
    kinds = Counter(change.kind.value for change in shop.changes(before))
    assert kinds == {"schema": 1, "insert": 3000}
    assert shop.execute("SELECT sum(twice) FROM a").fetchall() == [(Decimal(3000 * 2999 // 4),)]
    assert shop.execute("SELECT twice, third FROM a WHERE id = 7").fetchall() == [
        (Decimal("3.50"), Decimal("0.58333333333333333333"))]  # fmt: skip
    with pytest.raises(SqlError, match="a"):
        shop.query("SELECT * FROM a", as_of=before)
    assert list(shop.verify()) == []


def test_a_statement_that_fails_leaves_no_table(shop: Database) -> None:
    before = shop.version()

    def hook(step: str) -> None:
        if step == "sql: rows written":
            raise OSError("the disk is full")

    with faults.arm(hook), pytest.raises(OSError, match="full"):
        shop.execute("CREATE TABLE a AS SELECT * FROM t")
    with pytest.raises(SqlError) as failed:
        shop.execute("SELECT 1 / (id - 2999) AS q INTO a FROM t")
    assert failed.value.sqlstate == "22012"
    assert shop.version() == before
    assert "main.public.a" not in shop.catalog().by_full_name
    assert shop.execute("SELECT * INTO a FROM t").count == 3000


def test_what_is_refused_says_what_to_use(shop: Database) -> None:
    for sql in ("CREATE UNLOGGED TABLE a AS SELECT 1", "SELECT 1 AS b INTO UNLOGGED a",
                "CREATE TABLE a AS WITH q AS (DELETE FROM t RETURNING id) SELECT * FROM q"):  # fmt: skip
        with pytest.raises(SqlError) as refused:
            shop.execute(sql)
        assert (refused.value.sqlstate, bool(refused.value.hint)) == ("0A000", True), sql
    assert shop.execute("SELECT count(*) FROM t").fetchall() == [(3000,)]


def test_parameters_and_history_can_be_asked_for(shop: Database) -> None:
    version = shop.version()
    shop.execute("DELETE FROM t WHERE id < 2000")
    assert shop.execute("CREATE TABLE a AS SELECT id FROM t WHERE id < ?", (2010,)).count == 10
    assert shop.execute(f"CREATE TABLE b AS SELECT n FROM t FOR SYSTEM_TIME AS OF {version}").count == 3000
    assert shop.execute("SELECT commit_id, author INTO c FROM onto_log()").count == version + 3
    assert str(shop.catalog().by_full_name["main.public.b"].by_name["n"].type) == "DECIMAL(10, 2)"


def test_a_table_of_a_branch_comes_with_a_merge(branched_place: str) -> None:
    with open_database(branched_place) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        db.branches.create("dev")
        with open_database(branched_place, branch="dev") as dev:
            dev.execute("CREATE TABLE copy AS SELECT * FROM t")
            dev.execute("INSERT INTO copy VALUES (3, 'z')")
        with pytest.raises(SqlError, match="copy"):
            db.execute("SELECT * FROM copy")
        db.merge("dev")
        assert db.execute("SELECT * FROM copy ORDER BY id").fetchall() == [(1, "x"), (2, "y"), (3, "z")]
        assert list(db.verify()) == []
