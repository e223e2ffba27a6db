"""Views give what PostgreSQL's give, are answered by the keys of their tables, and have a history."""

from __future__ import annotations

from typing import Any

import pytest
from scripts import compare

from ontolake.sql import Database, SqlError, open_database

# ruff: noqa: E501 - one statement a line
TABLES = """
CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT, n BIGINT)
CREATE TABLE u (id BIGINT PRIMARY KEY, b TEXT, m BIGINT)
INSERT INTO t VALUES (1, 'one', 10), (2, 'two', 20), (3, 'three', NULL), (4, 'four', 40)
INSERT INTO u VALUES (1, 'x', 1), (3, 'y', 3), (5, 'z', 5)
"""
VIEWS = """
CREATE VIEW v AS SELECT id, a FROM t WHERE n IS NOT NULL
SELECT * FROM v ORDER BY id
SELECT a FROM v WHERE id = 2
SELECT x.a, u.b FROM v AS x JOIN u ON u.id = x.id WHERE x.id < 3 ORDER BY 1
SELECT y.p FROM v AS y (p) WHERE p > 1 ORDER BY 1
CREATE VIEW w (k, label) AS SELECT t.id, u.b FROM t LEFT JOIN u USING (id)
SELECT label, k FROM w ORDER BY k
SELECT count(*) FROM w WHERE label = 'x'
SELECT t.id, w.label FROM t LEFT JOIN w ON w.k = t.id WHERE w.label = 'y' ORDER BY 1
CREATE VIEW g AS SELECT n > 10 AS big, count(*) AS c, max(id) AS m FROM t GROUP BY 1
SELECT * FROM g WHERE c > 1
SELECT c FROM g WHERE big = true
CREATE VIEW vv AS SELECT upper(a) AS loud, id FROM v
SELECT * FROM vv WHERE id IN (1, 4) ORDER BY id
CREATE VIEW star AS SELECT * FROM t
ALTER TABLE t ADD COLUMN late TEXT
SELECT * FROM star WHERE id = 1
CREATE VIEW v AS SELECT 1
CREATE OR REPLACE VIEW v AS SELECT id, a, n FROM t
SELECT * FROM v ORDER BY id
CREATE OR REPLACE VIEW v AS SELECT id FROM t
CREATE OR REPLACE VIEW v AS SELECT a, id, n FROM t
CREATE OR REPLACE VIEW v AS SELECT id, id AS a, n FROM t
CREATE OR REPLACE VIEW t AS SELECT 1 AS a
CREATE VIEW d AS SELECT id, id FROM t
CREATE VIEW e (a, b, c) AS SELECT 1, 2
CREATE VIEW x AS SELECT nope FROM t
CREATE VIEW x AS SELECT * FROM nope
CREATE TABLE v (a BIGINT PRIMARY KEY)
CREATE VIEW t_pkey AS SELECT 1 AS a
DROP TABLE t
DROP VIEW v
ALTER TABLE t DROP COLUMN n
DROP VIEW t
DROP TABLE v
DROP VIEW nope
DROP VIEW IF EXISTS nope, nothing
ALTER VIEW w RENAME TO renamed
SELECT label FROM renamed WHERE k = 1
SELECT * FROM w
ALTER VIEW renamed RENAME COLUMN label TO tag
SELECT tag FROM renamed WHERE k = 1
ALTER VIEW nope RENAME TO x
ALTER VIEW IF EXISTS nope RENAME TO x
ALTER VIEW v RENAME TO t
ALTER TABLE u RENAME TO uu
SELECT tag FROM renamed WHERE k = 3
INSERT INTO uu SELECT id + 100, a FROM v WHERE id = 2
UPDATE uu SET b = v.a FROM v WHERE v.id = uu.id
DELETE FROM uu WHERE id IN (SELECT id + 100 FROM v)
WITH v AS (SELECT 7 AS shadow) SELECT * FROM v
WITH gone AS (DELETE FROM uu WHERE id = 5 RETURNING id) SELECT count(*) FROM v, gone
MERGE INTO uu USING v ON uu.id = v.id WHEN MATCHED THEN UPDATE SET m = v.id * 2
SELECT * FROM uu ORDER BY id
CREATE VIEW many AS SELECT id FROM t UNION ALL SELECT id FROM uu
SELECT count(*) FROM many WHERE id = 1
CREATE VIEW few AS SELECT id FROM t ORDER BY id DESC LIMIT 2
SELECT id FROM few WHERE id < 4
CREATE VIEW ranked AS SELECT id, row_number() OVER (ORDER BY id) AS r FROM t
SELECT r FROM ranked WHERE id = 3
SELECT r FROM (SELECT id, row_number() OVER (ORDER BY id) AS r FROM v) AS q WHERE id = 3
CREATE SCHEMA s
CREATE VIEW s.inside AS SELECT id FROM t
SELECT id FROM s.inside WHERE id = 1
DROP SCHEMA s
DROP SCHEMA s CASCADE
DROP TABLE t CASCADE
SELECT * FROM v
SELECT * FROM vv
SELECT * FROM many
"""


@pytest.mark.slow
def test_views_give_what_postgres_gives(postgres: Any, db: Database) -> None:
    compare(postgres, db, TABLES + VIEWS)
    assert list(db.verify()) == []


def test_keys_and_indexes_answer_conditions_on_views(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT, a TEXT); CREATE INDEX by_n ON t (n)")
    db.execute("INSERT INTO t SELECT x, x * 10, 'a' FROM generate_series(1, 200) AS g (x)")
    db.execute("CREATE VIEW v AS SELECT * FROM t; CREATE VIEW w (key, twice, number) AS SELECT id, n * 2, n FROM v")
    assert "point get" in db.explain("SELECT * FROM v WHERE id = 3")
    assert "point get" in db.explain("SELECT twice FROM w WHERE key = ?", (3,))
    assert "index range" in db.explain("SELECT key FROM w WHERE number BETWEEN 10 AND 30")
    assert "full scan" in db.explain("SELECT key FROM w WHERE twice = 20")
    assert db.execute("SELECT key FROM w WHERE number BETWEEN 10 AND 30 AND twice > 20 ORDER BY 1").fetchall() == [(2,), (3,)]


def test_a_view_of_one_table_is_changed_like_the_table(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT); CREATE VIEW v AS SELECT * FROM t WHERE n > 0")
    db.execute("INSERT INTO v VALUES (?, ?)", (1, 5))
    db.execute("INSERT INTO v VALUES (?, ?)", (2, -5))
    assert db.execute("UPDATE v SET n = n + ? RETURNING *", (1,)).fetchall() == [(1, 6)]
    assert db.execute("DELETE FROM v").count == 1
    assert db.execute("SELECT * FROM t").fetchall() == [(2, -5)]


def test_a_view_that_cannot_be_changed_says_so(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY); CREATE VIEW v AS SELECT DISTINCT id FROM t")
    for sql in ("INSERT INTO v VALUES (1)", "UPDATE v SET id = 2", "DELETE FROM v"):
        with pytest.raises(SqlError, match='view "v"') as raised:
            db.execute(sql)
        assert raised.value.sqlstate == "55000"
    with pytest.raises(SqlError, match="view v cannot be changed") as raised:
        db.execute("TRUNCATE v")
    assert raised.value.sqlstate == "0A000"


def test_columns_that_views_read_keep_name_and_type(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT, b TEXT); CREATE VIEW v AS SELECT a FROM t")
    for sql in ("ALTER TABLE t RENAME COLUMN a TO x", "ALTER TABLE t ALTER COLUMN a TYPE BIGINT USING 1"):
        with pytest.raises(SqlError, match="view v reads it") as raised:
            db.execute(sql)
        assert raised.value.sqlstate == "0A000"
    db.execute("ALTER TABLE t RENAME COLUMN b TO x; ALTER TABLE t DROP COLUMN x")


def test_the_past_has_the_views_of_its_time(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, 'old')")
    db.execute("CREATE VIEW v AS SELECT id, a FROM t")
    before = db.version()
    db.execute("UPDATE t SET a = 'new'; CREATE OR REPLACE VIEW v AS SELECT id, a || '!' AS a FROM t")
    assert db.execute("SELECT a FROM v").fetchall() == [("new!",)]
    assert db.query("SELECT a FROM v", as_of=before).to_pydict() == {"a": ["old"]}
    assert db.execute(f"SELECT a FROM v FOR SYSTEM_TIME AS OF {before}").fetchall() == [("old",)]
    db.execute("DROP VIEW v")
    assert db.execute(f"SELECT a FROM v FOR SYSTEM_TIME AS OF {before} WHERE id = 1").fetchall() == [("old",)]
    changed = [change for change in db.changes(since=before) if change.kind == "schema"]
    assert [(change.before is None, change.after is None) for change in changed] == [(False, False), (False, True)]


def test_branches_and_merges_carry_views(branched_place: str) -> None:
    with open_database(branched_place) as main:
        main.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, 'one')")
        main.execute("CREATE VIEW kept AS SELECT id FROM t; CREATE VIEW gone AS SELECT id FROM t")
        main.branches.create("try")
        with open_database(branched_place, branch="try") as branch:
            branch.execute("CREATE VIEW v AS SELECT a FROM t; DROP VIEW gone")
            branch.execute("CREATE OR REPLACE VIEW kept AS SELECT id, a FROM t")
            assert branch.execute("SELECT * FROM v").fetchall() == [("one",)]
        with pytest.raises(SqlError, match="no table"):
            main.execute("SELECT * FROM v")
        main.execute("INSERT INTO t VALUES (2, 'two'); DELETE FROM t WHERE id = 2")
        assert main.merge("try").status == "merged"
        assert main.execute("SELECT * FROM v").fetchall() == [("one",)]
        assert main.execute("SELECT * FROM kept").fetchall() == [(1, "one")]
        with pytest.raises(SqlError, match="no table"):
            main.execute("SELECT * FROM gone")
        assert list(main.verify()) == []
