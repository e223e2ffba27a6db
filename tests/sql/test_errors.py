"""Bad input gets an error with its SQLSTATE, its place and a hint, and changes nothing."""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from ontolake.errors import AlreadyExists, Invalid, NotFound, OntolakeError
from ontolake.sql import Database, LayoutError, SqlError, open_database

SETUP = """
CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(5) NOT NULL, n SMALLINT CHECK (n < 100), d DECIMAL(4, 1),
                flag BOOLEAN, at TIMESTAMP, UNIQUE (n));
CREATE TABLE other (id BIGINT PRIMARY KEY, x TEXT);
CREATE INDEX by_name ON t (name);
INSERT INTO t (id, name, n) VALUES (1, 'one', 1), (2, 'two', 2);
INSERT INTO other VALUES (1, 'x');
"""

CASES: list[tuple[str, str]] = [
    ("SELEC 1", "42601"), ("SELECT 'open", "42601"), ("SELECT FROM WHERE", "42601"), ("SELECT (1", "42601"),
    ("", "42601"),
    ("INSERT INTO t VALUES (1, 'a', 1, 1, true, NULL, 9)", "42601"), ("INSERT INTO t (id, name) VALUES (1)", "42601"),
    ("DO $$ x $$", "0A000"), ("GRANT SELECT ON t TO x", "0A000"), ("CREATE MATERIALIZED VIEW v AS SELECT 1", "0A000"),
    ("CREATE TABLE x (id XML PRIMARY KEY)", "0A000"), ("CREATE INDEX i ON t (random())", "42P17"),
    ("CREATE INDEX i ON t (id) WHERE id", "42804"), ("ALTER TABLE t ALTER COLUMN n TYPE XML", "0A000"),
    ("CREATE TABLE x (id BIGINT PRIMARY KEY REFERENCES nowhere)", "42P01"),
    ("CREATE UNLOGGED TABLE x AS SELECT 1", "0A000"),
    ("SELECT * FROM missing", "42P01"), ("SELECT * FROM main.public.tt", "42P01"), ("DELETE FROM missing", "42P01"),
    ("SELECT u.id FROM t", "42P01"), ("DROP TABLE missing", "42P01"), ("SELECT * FROM nope.public.t", "3D000"),
    ("SELECT * FROM nope.t", "3F000"), ("DROP INDEX missing", "42704"),
    ("CREATE TABLE nope.x (id BIGINT PRIMARY KEY)", "3F000"),
    ("SELECT nam FROM t", "42703"), ("UPDATE t SET nam = 1", "42703"), ("INSERT INTO t (nam) VALUES (1)", "42703"),
    ("SELECT id FROM t ORDER BY nam", "42703"), ("CREATE INDEX i ON t (nam)", "42703"),
    ("DELETE FROM t WHERE nam = 1", "42703"),
    ("ALTER TABLE t DROP COLUMN nam", "42703"), ("CREATE TABLE x (id BIGINT, PRIMARY KEY (nam))", "42703"),
    ("INSERT INTO t (id, name) VALUES (3, 'a') RETURNING nam", "42703"),
    ("INSERT INTO t (id, name) VALUES (3, 'a') ON CONFLICT (id) DO UPDATE SET name = excluded.nam", "42703"),
    ("SELECT id FROM t JOIN other ON t.id = other.id", "42702"), ("SELECT nofunction(1)", "42883"),
    ("INSERT INTO t (id, name) VALUES (DATE '2020-01-01', 'a')", "42804"),
    ("CREATE TABLE x (a BIGINT UNIQUE NULLS NOT DISTINCT)", "0A000"),
    ("INSERT INTO t (id, name) VALUES (true, 'a')", "42804"),
    ("UPDATE t SET n = name || 'x'", "42804"), ("INSERT INTO other SELECT name, id FROM t", "42804"),
    ("INSERT INTO t (id, name, flag) VALUES (3, 'a', 7)", "42804"),
    ("ALTER TABLE t ALTER COLUMN name TYPE BIGINT", "42804"), ("SELECT sum(name) FROM t", "42883"),
    ("ALTER TABLE t ALTER COLUMN name TYPE BIGINT USING name::bigint", "22P02"),
    ("ALTER TABLE t ALTER COLUMN name TYPE VARCHAR(2)", "22001"),
    ("ALTER TABLE t ALTER COLUMN nam TYPE TEXT", "42703"), ("ALTER TABLE t DROP CONSTRAINT nope", "42704"),
    ("ALTER TABLE t ADD CONSTRAINT t_check CHECK (id > 0)", "42710"),
    ("ALTER TABLE t ADD UNIQUE (flag, name, nam)", "42703"), ("ALTER TABLE t ADD CHECK (n < 2)", "23514"),
    ("SELECT id + 9223372036854775807 FROM t", "22003"), ("SELECT sum(id * 9223372036854775800) FROM t", "22003"),
    ("INSERT INTO t (id, name) VALUES (3, 'a' || chr(0) || repeat('b', 9))", "54000"),
    ("SELECT id FROM t LIMIT -1", "2201W"), ("SELECT count(*) FROM t LIMIT -1", "2201W"),
    ("SELECT count(*) FROM t LIMIT 1 OFFSET -1", "2201X"), ("SELECT id FROM t ORDER BY id LIMIT 1 OFFSET -1", "2201X"),
    ("INSERT INTO t (id, name, at) VALUES (3, 'a', '2026-13-01')", "22008"),
    ("INSERT INTO t (id, name, at) VALUES (3, 'a', '299999-01-01 00:00:00')", "22008"),
    ("CREATE TABLE x (id VARCHAR(0) PRIMARY KEY)", "22023"), ("INSERT INTO t (id, id) VALUES (1, 2)", "42701"),
    ("UPDATE t SET n = 1, n = 2", "42601"), ("SELECT * FROM t WHERE id = (SELECT id FROM t)", "21000"),
    ("BEGIN; BEGIN", "25001"), ("ROLLBACK; ROLLBACK", "25P01"),
    ("INSERT INTO t (id, name) VALUES (9223372036854775808, 'a')", "22003"),
    ("INSERT INTO t (id, name, n) VALUES (3, 'a', 40000)", "22003"), ("UPDATE t SET n = n + 40000", "22003"),
    ("INSERT INTO t (id, name, d) VALUES (3, 'a', 1000)", "22003"), ("UPDATE t SET d = id * 5000", "22003"),
    ("INSERT INTO t (id, name) VALUES (3, 'too long')", "22001"), ("UPDATE t SET name = name || 'longer'", "22001"),
    ("INSERT INTO t (id, name) VALUES ('abc', 'a')", "22P02"), ("SELECT CAST('x' AS BIGINT)", "22P02"),
    ("INSERT INTO t (id, name, at) VALUES (3, 'a', 'last week')", "22007"), ("SELECT 1 / 0", "22012"),
    ("UPDATE t SET n = 1 / (id - id)", "22012"),
    ("INSERT INTO t (id, name) VALUES (1, 'a')", "23505"), ("INSERT INTO t (id, name, n) VALUES (3, 'a', 1)", "23505"),
    ("INSERT INTO t (id, name) VALUES (5, 'a'), (5, 'b')", "23505"), ("UPDATE t SET id = 2 WHERE id = 1", "23505"),
    ("UPDATE t SET n = 7", "23505"),
    ("CREATE UNIQUE INDEX i ON t (d, flag); CREATE UNIQUE INDEX j ON t (id, id)", "42701"),
    ("INSERT INTO t (id) VALUES (3)", "23502"), ("UPDATE t SET name = NULL", "23502"),
    ("INSERT INTO t (name) VALUES ('a')", "23502"), ("ALTER TABLE t ADD COLUMN x TEXT NOT NULL", "23502"),
    ("ALTER TABLE t ALTER COLUMN flag SET NOT NULL", "23502"),
    ("INSERT INTO t (id, name, n) VALUES (3, 'a', 100)", "23514"),
    ("UPDATE t SET n = 100 WHERE id = 1", "23514"),
    ("CREATE TABLE t (id BIGINT PRIMARY KEY)", "42P07"), ("CREATE INDEX by_name ON t (n)", "42P07"),
    ("CREATE DATABASE main", "42P04"), ("CREATE SCHEMA main.public", "42P06"),
    ("ALTER TABLE t ADD COLUMN n BIGINT", "42701"),
    ("ALTER TABLE t RENAME TO other", "42P07"), ("ALTER TABLE t RENAME COLUMN n TO d", "42701"),
    ("CREATE TABLE x (a BIGINT, a TEXT)", "42701"),
    ("CREATE TABLE x (a BIGINT GENERATED ALWAYS AS (b) STORED)", "42703"),
    ("CREATE TABLE x (a DECIMAL(1001) PRIMARY KEY)", "22023"), ("ALTER TABLE t DROP COLUMN id", "2BP01"),
    ("DROP SCHEMA main.public", "2BP01"), ("DROP DATABASE main", "2BP01"),
    ("INSERT INTO t (id, name) VALUES (1, 'a'), (1, 'b') ON CONFLICT (id) DO UPDATE SET n = 5", "21000"),
    ("INSERT INTO t (id, name) VALUES (1, 'a') ON CONFLICT (name) DO NOTHING", "42P10"),
    ("SELECT name, count(*) FROM t", "42803"), ("SELECT * FROM t FOR SYSTEM_TIME AS OF 999", "22023"),
    ("SELECT id FROM t ORDER BY 2", "42P10"), ("SELECT sum(sum(id)) FROM t", "42803"),
    ("SELECT id FROM t WHERE sum(id) > 1", "42803"), ("SELECT id FROM t WHERE rank() OVER () = 1", "42P20"),
    ("SELECT id, n FROM t UNION SELECT id FROM other", "42601"), ("SELECT name LIKE 'a!_' ESCAPE '!!' FROM t", "22025"),
    ("SELECT DATE '2026-02-30'", "22008"), ("SELECT 'the day before'::timestamp", "22007"),
    ("CREATE TEMP VIEW x AS SELECT 1", "0A000"), ("EXPLAIN (FORMAT XML) SELECT 1", "0A000"),
    ("CREATE TABLE x (id BIGINT PRIMARY KEY) PARTITION BY RANGE (id)", "0A000"), ("COMMIT AND CHAIN", "0A000"),
    ("SELECT * FROM (WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d) x", "0A000"),
    ("UPDATE t SET (n, d) = (1, 2, 3)", "42601"),
    ("UPDATE t SET n = 3 FROM other o WHERE o.id = t.id RETURNING p.x", "42P01"),
    ("ALTER TABLE t RENAME nam TO x", "42703"), ("ALTER TABLE t RENAME n TO d", "42701"),
    ("SELECT id FROM t TABLESAMPLE SYSTEM (10)", "0A000"), ("SELECT id SIMILAR TO 'o.*' FROM t", "42883"),
    ("SELECT DISTINCT id FROM t ORDER BY id FETCH FIRST 1 ROW WITH TIES", "0A000"),
    ("SELECT to_char(name, 'DD Mon') FROM t", "42883"),
    ("SELECT to_char(true, '99')", "42883"), ("SELECT id, (SELECT o.id, t.n FROM other o) FROM t", "42601"),
    ("SELECT sqrt(-1)", "2201F"), ("SELECT @ -5", "42601"),
    ("COMMIT", "25P01"), ("ROLLBACK", "25P01"), ("SAVEPOINT a", "25P01"), ("SELECT ?", "07001"), ("SELECT :x", "07001"),
    ("CREATE TABLE " + "x" * 64 + " (id BIGINT PRIMARY KEY)", "42622"),
]  # fmt: skip


@pytest.fixture(scope="module")
def filled() -> Any:
    with open_database(":memory:") as db:
        db.execute(SETUP)
        yield db


def everything(db: Database) -> list[Any]:
    return db._session.connection.execute("SELECT * FROM kv ORDER BY key, version").fetchall()


@pytest.mark.parametrize(("sql", "state"), CASES, ids=[f"{state} {sql[:40]}" for sql, state in CASES])
def test_every_error_has_its_sqlstate_and_changes_nothing(filled: Database, sql: str, state: str) -> None:
    before = everything(filled)
    with pytest.raises(SqlError) as raised:
        filled.execute(sql)
    assert raised.value.sqlstate == state, raised.value
    assert isinstance(raised.value, OntolakeError)
    assert raised.value.message
    assert "<class" not in raised.value.message
    assert "\n" not in raised.value.message
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again), again.sqlstate) == (type(raised.value), str(raised.value), state)
    with suppress(SqlError):
        filled.execute("ROLLBACK")  # what it has begun itself, or else the next test would be in it
    if ";" not in sql:
        assert everything(filled) == before


def error(db: Database, sql: str, *values: Any) -> SqlError:
    with pytest.raises(SqlError) as raised:
        db.execute(sql, values)
    return raised.value


def test_errors_tell_where(filled: Database) -> None:
    assert error(filled, "SELECT id FROM tt").position == 16
    assert error(filled, "SELECT 1;\n SELECT id, nam FROM t").position == 23
    assert error(filled, "SELECT ?, ?, nam FROM t", 1, 2).position == 14
    assert error(filled, "SELECT 1 FRM t WHERE").position == 14
    assert error(filled, "SELECT 'a").position == 8
    assert error(filled, "EXPLAIN SELECT nam FROM t").position == 16


def test_errors_tell_what_was_probably_meant(filled: Database) -> None:
    assert error(filled, "SELECT nmae FROM t").hint == "did you mean name?"
    assert error(filled, "SELECT * FROM othr").hint == "did you mean other?"
    assert error(filled, "SELECT * FROM main.pubic.t").hint == "did you mean public?"
    assert "did you mean" in (error(filled, "SELECT nmae FROM t JOIN other ON t.id = other.id").hint or "")


def test_errors_are_also_what_a_caller_would_catch(filled: Database) -> None:
    assert isinstance(error(filled, "SELECT * FROM missing"), NotFound | LookupError)
    assert isinstance(error(filled, "CREATE TABLE t (id BIGINT PRIMARY KEY)"), AlreadyExists)
    assert isinstance(error(filled, "INSERT INTO t (id, name) VALUES (true, 'a')"), TypeError)


def test_wrong_parameters_are_refused(filled: Database) -> None:
    for values in ((), (1, 2), "1", {"x": 1}):
        with pytest.raises(SqlError, match=r"param|value"):
            filled.execute("SELECT id FROM t WHERE id = ?", values)  # type: ignore[arg-type]
    assert error(filled, "SELECT ?", object()).sqlstate == "42804"


def test_wrong_arrow_data_is_refused(filled: Database) -> None:
    before = everything(filled)
    for data in (pa.table({"id": [7]}), pa.table({"id": ["x"], "name": ["a"]}), pa.table({"id": [7], "nam": ["a"]}),
                 pa.table({"id": [7], "name": ["too long"]}), [1, 2]):  # fmt: skip
        with pytest.raises(SqlError):
            filled.bulk_load("t", data)
    assert everything(filled) == before


def test_a_foreign_database_is_refused_and_left_alone(tmp_path: Any) -> None:
    import apsw

    path = str(tmp_path / "foreign.db")
    apsw.Connection(path).execute("CREATE TABLE x (a)")
    with pytest.raises(LayoutError):
        open_database(path)
    newer = str(tmp_path / "newer.db")
    open_database(newer).close()
    apsw.Connection(newer).pragma("user_version", 99)
    with pytest.raises(LayoutError, match="99"):
        open_database(newer)
    with pytest.raises(NotFound):
        open_database(str(tmp_path / "missing.db"), readonly=True)
    with pytest.raises(Invalid):
        open_database(str(tmp_path / "x.db"), synchronous="OFF")


def test_reading_only_refuses_to_write(tmp_path: Any) -> None:
    path = str(tmp_path / "t.db")
    with open_database(path) as db:
        db.execute(SETUP)
    with open_database(path, readonly=True) as db:
        assert db.execute("SELECT count(*) FROM t").fetchall() == [(2,)]
        assert error(db, "DELETE FROM t").sqlstate == "25006"
        with pytest.raises(SqlError, match="past"):
            db.query("DELETE FROM t", as_of=1)
