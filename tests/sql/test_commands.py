"""Commands of a session do what PostgreSQL's do, and make no commit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripts import compare

from ontolake.sql import Database, SqlError, SqlSyntaxError

pytestmark = pytest.mark.slow
TABLE = """
CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT, n INTEGER)
INSERT INTO t VALUES (1, 'one', 10), (2, 'two', 20), (3, 'three', NULL), (4, 'four', 40)
"""

PREPARED = """
PREPARE p AS SELECT a FROM t WHERE id = $1
EXECUTE p (2)
EXECUTE p(1 + 2)
EXECUTE p('4')
EXECUTE p
EXECUTE p(1, 2)
EXECUTE q(1)
PREPARE p AS SELECT 1
PREPARE "P" AS TABLE t
EXECUTE "P"
PREPARE i (bigint, text) AS INSERT INTO t VALUES ($1, $2) RETURNING id
EXECUTE i (7, 'seven')
EXECUTE i (7, 'again')
PREPARE u AS UPDATE t SET n = $2 WHERE id >= $1
EXECUTE u (3, 33)
EXECUTE u (100, 1)
PREPARE c AS CREATE TABLE x (a int)
EXECUTE p('x')
PREPARE d AS DELETE FROM t WHERE id = $1 RETURNING a
EXECUTE d(7)
DEALLOCATE p
EXECUTE p(1)
DEALLOCATE p
DEALLOCATE PREPARE u
DEALLOCATE ALL
EXECUTE d(1)
PREPARE v AS VALUES ($1::int, 2)
EXECUTE v(3)
DISCARD PLANS
DISCARD ALL
EXECUTE v(3)
SELECT * FROM t ORDER BY id
"""

CURSORS = """
DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id
BEGIN
DECLARE c SCROLL CURSOR FOR SELECT id, a FROM t ORDER BY id
FETCH c
FETCH NEXT FROM c
FETCH 0 FROM c
FETCH 5 IN c
FETCH c
FETCH PRIOR c
FETCH BACKWARD 2 FROM c
FETCH BACKWARD ALL c
FETCH PRIOR c
FETCH ALL c
FETCH FIRST FROM c
FETCH LAST c
FETCH ABSOLUTE 2 c
FETCH ABSOLUTE -1 c
FETCH ABSOLUTE -2 c
FETCH RELATIVE -1 c
FETCH RELATIVE 9 c
FETCH RELATIVE -1 c
FETCH RELATIVE 0 c
FETCH ABSOLUTE 0 c
FETCH FORWARD 2 c
FETCH -1 c
FETCH FORWARD ALL c
MOVE FIRST c
MOVE 2 c
FETCH c
MOVE ALL c
MOVE BACKWARD ALL c
FETCH FORWARD c
CLOSE c
COMMIT
FETCH c
BEGIN
DECLARE a CURSOR FOR SELECT 1
COMMIT
FETCH a
BEGIN
DECLARE h CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY id
FETCH 2 h
COMMIT
DELETE FROM t WHERE id > 2
FETCH 5 h
CLOSE h
CLOSE h
BEGIN
DECLARE r CURSOR WITH HOLD FOR SELECT 1
ROLLBACK
FETCH r
DECLARE w CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY id
DECLARE w CURSOR WITH HOLD FOR SELECT 1
CLOSE ALL
FETCH w
BEGIN
DECLARE f NO SCROLL CURSOR FOR SELECT id FROM t ORDER BY id
FETCH f
FETCH NEXT f
FETCH BACKWARD 1 f
ROLLBACK
BEGIN
DECLARE f NO SCROLL CURSOR FOR SELECT id FROM t ORDER BY id
FETCH f
FETCH FIRST f
ROLLBACK
"""

SETTINGS = """
SET search_path TO other, public
SHOW search_path
RESET search_path
CREATE SCHEMA other
CREATE TABLE other.t (id BIGINT PRIMARY KEY, x TEXT)
INSERT INTO other.t VALUES (9, 'other')
SELECT id FROM t ORDER BY id
SET search_path = other, public
SELECT * FROM t
CREATE TABLE here (id BIGINT PRIMARY KEY)
INSERT INTO here VALUES (1)
SET search_path TO public
SELECT * FROM here
SELECT * FROM other.here
SET search_path TO public, other
SELECT * FROM here
SELECT a FROM t WHERE id = 1
SET timezone = 'UTC'
SHOW timezone
SET TIME ZONE 'UTC'
SHOW TIME ZONE
SET application_name = 'test'
SHOW application_name
RESET application_name
SHOW application_name
SET nonsense = 1
SHOW nonsense
SET my.own = 'x'
SHOW my.own
SET statement_timeout = '90s'
SHOW statement_timeout
SET statement_timeout = 250
SHOW statement_timeout
SET statement_timeout TO '1min'
SHOW statement_timeout
SET statement_timeout TO DEFAULT
SHOW statement_timeout
SET statement_timeout = 'long'
SET server_version = '1'
BEGIN
SET LOCAL application_name = 'local'
SHOW application_name
COMMIT
SHOW application_name
BEGIN
SET application_name = 'undone'
ROLLBACK
SHOW application_name
BEGIN
SET application_name = 'kept'
COMMIT
SHOW application_name
SET standard_conforming_strings = on
SET client_encoding TO 'UTF8'
SHOW client_encoding
SET extra_float_digits = 3
RESET ALL
SHOW application_name
BEGIN
SET TRANSACTION READ ONLY
INSERT INTO t VALUES (99)
ROLLBACK
BEGIN
LOCK TABLE t IN SHARE MODE
COMMIT
LOCK TABLE t
LOCK nowhere
VACUUM t
ANALYZE
ANALYZE t (a)
VACUUM nowhere
DISCARD TEMP
BEGIN
VACUUM
ROLLBACK
SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY
BEGIN
DELETE FROM t
ROLLBACK
SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE
DELETE FROM t WHERE id = 1
"""


@pytest.mark.parametrize("script", [PREPARED, CURSORS, SETTINGS], ids=["prepared", "cursors", "settings"])
def test_commands_give_what_postgres_gives(script: str, postgres: Any, db: Database) -> None:
    compare(postgres, db, TABLE + script)


def test_commands_make_no_commit(db: Database) -> None:
    db.execute(TABLE.replace("\n", ";"))
    before = db.version()
    for sql in ("PREPARE p AS SELECT 1", "EXECUTE p", "SET application_name = 'x'", "SHOW ALL", "RESET ALL", "VACUUM",
                "DECLARE c CURSOR WITH HOLD FOR TABLE t", "FETCH ALL c", "DISCARD ALL"):  # fmt: skip
        db.execute(sql)
    assert db.version() == before


def test_what_a_setting_cannot_be_names_what_it_can(db: Database) -> None:
    with pytest.raises(SqlError, match="only UTC is supported") as raised:
        db.execute("SET timezone = 'Europe/Berlin'")
    assert raised.value.sqlstate == "22023"


def test_an_error_in_a_command_has_a_position(db: Database) -> None:
    with pytest.raises(SqlSyntaxError) as raised:
        db.execute("SELECT 1; FETCH ABSOLUTE c")
    assert raised.value.position == 26


def test_a_plan_as_json_has_the_shape_that_tools_read(db: Database) -> None:
    db.execute(TABLE.replace("\n", ";"))
    db.execute("CREATE INDEX by_n ON t (n)")
    (shown,), = db.execute("EXPLAIN (FORMAT JSON) SELECT a FROM t WHERE id = 1").fetchall()
    (plan,) = json.loads(shown)
    assert plan["Plan"]["Node Type"] == "Index Scan"
    assert (plan["Plan"]["Index Name"], plan["Plan"]["Relation Name"], plan["Plan"]["Keys"]) == ("t_pkey", "t", 1)
    (shown,), = db.execute("EXPLAIN (ANALYZE, FORMAT JSON) SELECT u.a, count(*) FROM t JOIN t u ON t.n = u.id "
                           "WHERE t.n = 10 GROUP BY 1").fetchall()  # fmt: skip
    (plan,) = json.loads(shown)
    assert plan["Plan"]["Actual Rows"] == 0
    assert plan["Execution Time"] > 0
    nodes = [(node["Alias"], node["Node Type"]) for node in plan["Plan"]["Plans"]]
    assert nodes == [("t", "Index Scan"), ("u", "Seq Scan")]
    db.execute("PREPARE p AS SELECT a FROM t WHERE id = $1")
    assert db.execute("EXPLAIN EXECUTE p (3)").fetchall()[0] == ("point get on main.public.t: 1 key",)


def test_upkeep_says_what_does_the_work(db: Database) -> None:
    assert "onto gc" in db.execute("VACUUM").notices[0]
    assert db.execute("CHECKPOINT").notices == ()
