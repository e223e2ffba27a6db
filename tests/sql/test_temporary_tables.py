"""Temporary tables are those of a session, as in PostgreSQL, and leave no commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from scripts import compare

from ontolake.sql import Database, SerializationError, SqlError, open_database
from ontolake.sql.commands import temporary

# ruff: noqa: E501 - one statement a line
TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, a TEXT, n NUMERIC(10, 2))
INSERT INTO t VALUES (1, 'one', 1.25), (2, 'two', NULL), (3, 'three', 7)
CREATE VIEW v AS SELECT id, a FROM t
"""
STATEMENTS = """
CREATE TEMP TABLE x (id INT PRIMARY KEY, b TEXT NOT NULL DEFAULT 'none', c INT CHECK (c > 0))
CREATE TEMP TABLE x (id INT)
CREATE TEMPORARY TABLE IF NOT EXISTS x (other INT)
INSERT INTO x VALUES (1, 'p', 5), (3, 'q', NULL)
INSERT INTO x (id) VALUES (4) RETURNING *
INSERT INTO x VALUES (1, 'again', 1)
INSERT INTO x VALUES (9, 'r', 0)
INSERT INTO x VALUES (9, NULL, 1)
INSERT INTO x VALUES (1, 'again', 1) ON CONFLICT (id) DO UPDATE SET b = excluded.b || x.b
SELECT * FROM x ORDER BY id
SELECT * FROM pg_temp.x ORDER BY id
SELECT x.id, x.b, t.a FROM x JOIN t ON t.id = x.id ORDER BY 1
SELECT * FROM t LEFT JOIN x USING (id) ORDER BY id
SELECT count(*) FROM v WHERE id IN (SELECT id FROM x)
SELECT y.id FROM x AS y WHERE EXISTS (SELECT 1 FROM t WHERE t.id = y.id AND t.n > 1) ORDER BY 1
WITH q AS (SELECT b, count(*) AS n FROM x GROUP BY b) SELECT * FROM q ORDER BY b
INSERT INTO x SELECT id + 10, a, id FROM t WHERE id > 1
INSERT INTO x SELECT id + 100, a FROM public.v
UPDATE x SET b = t.a FROM t WHERE t.id = x.id RETURNING x.id, x.b, t.n
UPDATE t SET a = x.b || '!' FROM x WHERE x.id = t.id + 100
UPDATE x SET c = (SELECT max(id) FROM t) WHERE id = 4
DELETE FROM x USING t WHERE x.id = t.id + 10
DELETE FROM t WHERE id IN (SELECT id FROM x WHERE c = 3)
INSERT INTO t (id, a) SELECT id + 1000, b FROM x WHERE id < 100
MERGE INTO x USING t ON x.id = t.id WHEN MATCHED THEN UPDATE SET b = t.a WHEN NOT MATCHED THEN INSERT (id, b) VALUES (t.id, 'new')
MERGE INTO t USING x ON x.id = t.id WHEN MATCHED THEN UPDATE SET a = x.b
SELECT * FROM x ORDER BY id
SELECT * FROM t ORDER BY id
ALTER TABLE x ADD COLUMN d INT DEFAULT 7
CREATE INDEX by_b ON x (b)
SELECT id, d FROM x WHERE b = 'new' ORDER BY id
PREPARE p AS SELECT id FROM x WHERE id > $1 ORDER BY id
EXECUTE p(100)
CREATE TEMP TABLE y AS EXECUTE p(100)
SELECT * FROM y ORDER BY id
CREATE TEMP TABLE z (k, l) AS SELECT id, a FROM t WITH NO DATA
SELECT * FROM z
SELECT id, a INTO TEMP w FROM t WHERE id < 3
SELECT * FROM w ORDER BY id
SELECT w.id, x.id INTO TEMP w2 FROM w, x
CREATE TABLE kept AS SELECT w.*, x.b FROM w JOIN x USING (id)
SELECT * FROM kept ORDER BY id
CREATE TEMP TABLE public.q (a INT)
CREATE TABLE pg_temp.q (a INT)
INSERT INTO q VALUES (1)
TABLE q
DROP TABLE q
TABLE q
CREATE TEMP TABLE t AS SELECT id * 2 AS id FROM t WHERE id < 4
SELECT * FROM t ORDER BY id
SELECT count(*) FROM public.t
SELECT count(*) FROM v
INSERT INTO t VALUES (77)
DELETE FROM public.t WHERE id = 1
SELECT count(*) FROM t
TRUNCATE t
SELECT count(*) FROM t
DROP TABLE t
SELECT * FROM t ORDER BY id
CREATE TEMP TABLE s (id SERIAL, v TEXT)
INSERT INTO s (v) VALUES ('a'), ('b')
SELECT * FROM s ORDER BY id
BEGIN
INSERT INTO s (v) VALUES ('c')
INSERT INTO t VALUES (500, 'new')
SAVEPOINT one
DELETE FROM s
CREATE TEMP TABLE inside (a INT)
INSERT INTO inside VALUES (1)
ROLLBACK TO one
SELECT v FROM s ORDER BY v
SELECT * FROM inside
ROLLBACK TO one
CREATE TEMP TABLE inside (a INT)
INSERT INTO inside VALUES (2)
RELEASE one
TABLE inside
ROLLBACK
TABLE inside
SELECT v FROM s ORDER BY v
SELECT count(*) FROM t WHERE id = 500
BEGIN
CREATE TEMP TABLE going (a INT) ON COMMIT DROP
CREATE TEMP TABLE empty ON COMMIT DELETE ROWS AS SELECT 1 AS a
CREATE LOCAL TEMP TABLE staying (a INT) ON COMMIT PRESERVE ROWS
INSERT INTO going VALUES (1), (2)
INSERT INTO staying SELECT a FROM going
TABLE empty
COMMIT
TABLE going
TABLE empty
TABLE staying
INSERT INTO empty VALUES (5)
TABLE empty
CREATE TEMP TABLE going (a INT) ON COMMIT DROP
TABLE going
CREATE TABLE never (a INT) ON COMMIT DROP
BEGIN
INSERT INTO staying VALUES (1 / 0)
INSERT INTO staying VALUES (3)
COMMIT
TABLE staying
BEGIN READ ONLY
INSERT INTO staying VALUES (9)
SELECT * FROM staying ORDER BY a
CREATE TEMP TABLE refused (a INT)
ROLLBACK
TABLE staying
DROP TABLE x, y
DROP TABLE IF EXISTS x
DISCARD TEMP
TABLE staying
TABLE s
"""


@pytest.mark.slow
def test_statements_say_what_postgres_says(postgres: Any, native_place: str) -> None:
    with open_database(native_place) as db:
        compare(postgres, db, TABLES)
        compare(postgres, db, STATEMENTS)
        assert list(db.verify()) == []
    postgres.execute("DISCARD ALL")


@pytest.fixture
def shop(native_place: str) -> Iterator[Database]:
    with open_database(native_place) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, 'one'), (2, 'two')")
        yield db


def state(db: Database, sql: str) -> str | None:
    with pytest.raises(SqlError) as failed:
        db.execute(sql)
    return failed.value.sqlstate


def test_they_make_no_commit_and_go_with_the_handle(shop: Database) -> None:
    before = shop.version()
    shop.execute("CREATE TEMP TABLE x AS SELECT * FROM t")
    shop.execute("INSERT INTO x VALUES (3, ?)", ("three",))
    assert shop.execute("SELECT a FROM x WHERE id > ? ORDER BY id", (1,)).fetchall() == [("two",), ("three",)]
    assert shop.execute("CREATE TEMP TABLE y AS SELECT a FROM x WHERE id = ?", (3,)).status == "SELECT 1"
    assert shop.version() == before
    assert list(shop.catalog().by_full_name) == ["main.public.t"]
    with open_database(shop.url) as other:
        assert state(other, "SELECT * FROM x") == "42P01"


def test_a_prepared_point_get_does_not_see_through_them(shop: Database) -> None:
    query = "SELECT a FROM t WHERE id = ?"
    assert [shop.execute(query, (1,)).fetchall() for _ in range(3)] == [[("one",)]] * 3
    shop.execute("CREATE TEMP TABLE t (id BIGINT PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, 'hidden')")
    assert [shop.execute(query, (1,)).fetchall() for _ in range(3)] == [[("hidden",)]] * 3
    shop.execute("INSERT INTO t VALUES (?, ?)", (2, "also"))
    assert shop.execute("SELECT a FROM public.t WHERE id = ?", (2,)).fetchall() == [("two",)]
    shop.execute("DROP TABLE t")
    assert shop.execute(query, (1,)).fetchall() == [("one",)]


def test_other_threads_do_not_see_them(shop: Database) -> None:
    shop.execute("CREATE TEMP TABLE x AS SELECT 1 AS a")
    states: list[str | None] = []
    thread = threading.Thread(target=lambda: states.append(state(shop, "SELECT * FROM x")))
    thread.start()
    thread.join()
    assert states == ["42P01"]


def test_a_commit_that_fails_takes_their_changes_back(shop: Database) -> None:
    shop.execute("CREATE TEMP TABLE x (a INT)")
    shop.execute("BEGIN")
    shop.execute("INSERT INTO x SELECT id FROM t; UPDATE t SET a = 'mine' WHERE id = 1")
    with open_database(shop.url) as other:
        other.execute("UPDATE t SET a = 'theirs' WHERE id = 1")
    with pytest.raises(SerializationError):
        shop.execute("COMMIT")
    assert shop.execute("SELECT * FROM x").fetchall() == []


def test_a_rollback_brings_back_what_a_commit_does_to_them(shop: Database) -> None:
    shop.execute("CREATE TEMP TABLE x (a INT) ON COMMIT DELETE ROWS")
    shop.execute("BEGIN; SAVEPOINT one; DROP TABLE x; CREATE TEMP TABLE x (a INT); ROLLBACK TO one; INSERT INTO x VALUES (1)")
    shop.execute("COMMIT")
    assert shop.execute("SELECT * FROM x").fetchall() == []
    shop.execute("BEGIN; DROP TABLE x; CREATE TEMP TABLE x (a INT); ROLLBACK; INSERT INTO x VALUES (1)")
    assert shop.execute("SELECT * FROM x").fetchall() == []


def test_old_versions_are_given_up_and_the_last_rows_stay(shop: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "VERSIONS", 7)
    shop.execute("CREATE TEMP TABLE x (id INT PRIMARY KEY, n INT); INSERT INTO x VALUES (1, 0), (2, 0)")
    for n in range(20):
        shop.execute("UPDATE x SET n = n + ? WHERE id = 1", (n,))
    assert shop.execute("SELECT n FROM x ORDER BY id").fetchall() == [(190,), (0,)]


def test_the_past_of_other_tables_can_be_read(shop: Database) -> None:
    version = shop.version()
    shop.execute("DELETE FROM t; CREATE TEMP TABLE x (id BIGINT)")
    assert shop.execute(f"INSERT INTO x SELECT id FROM t FOR SYSTEM_TIME AS OF {version}").count == 2
    found = shop.execute(f"SELECT a FROM x JOIN t FOR SYSTEM_TIME AS OF {version} AS o USING (id) ORDER BY id")
    assert found.fetchall() == [("one",), ("two",)]


def test_what_is_refused_says_what_to_use(shop: Database) -> None:
    shop.execute("CREATE TYPE mood AS ENUM ('ok'); CREATE TEMP TABLE x (id INT); CREATE TABLE u (id INT PRIMARY KEY)")
    for sql in ("CREATE VIEW v AS SELECT * FROM x", "EXPLAIN SELECT * FROM x", "DROP TABLE x, u", "COMMENT ON TABLE x IS 'a'",
                "WITH x AS (SELECT * FROM x) SELECT * FROM x", "CREATE TEMP TABLE y (LIKE u)", "CREATE TEMP TABLE y (a INT REFERENCES x)", "CREATE TEMP TABLE y (m mood)",
                "CREATE TEMP TABLE y AS SELECT 'ok'::mood AS m", "WITH d AS (DELETE FROM x RETURNING id) SELECT * FROM d",
                "SELECT * FROM x, onto_log()", "INSERT INTO x SELECT commit_id FROM onto_log()", "CREATE TEMP VIEW v AS SELECT 1"):  # fmt: skip
        with pytest.raises(SqlError) as refused:
            shop.execute(sql)
        assert (refused.value.sqlstate, bool(refused.value.hint)) == ("0A000", True), sql
    with pytest.raises(SqlError, match="history"):
        shop.query("SELECT * FROM x", as_of=1)
