"""Statements that change rows give what PostgreSQL's give: rows, counts, SQLSTATE, and the tables afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from scripts import compare

from ontolake.sql import Database

pytestmark = pytest.mark.slow
# ruff: noqa: E501 - one statement a line
TABLES = """
CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT DEFAULT 'new', n BIGINT, CHECK (n < 1000))
CREATE TABLE u (id BIGINT PRIMARY KEY, b TEXT, m BIGINT UNIQUE)
INSERT INTO t VALUES (1, 'one', 10), (2, 'two', 20), (3, 'three', NULL), (4, 'four', 40)
INSERT INTO u VALUES (1, 'x', 1), (3, 'y', 3), (5, 'z', 5)
"""
END = """
SELECT * FROM t ORDER BY id
SELECT * FROM u ORDER BY id
"""

RETURNING = """
INSERT INTO t VALUES (5, 'five', 50) RETURNING *, n + 1 AS more, upper(a), t.id
INSERT INTO t (id) VALUES (6), (7) RETURNING a, id * 2
INSERT INTO t AS x (id) VALUES (8) RETURNING x.*, x.id AS again
INSERT INTO t (id) VALUES (9) RETURNING (SELECT max(m) FROM u), (SELECT b FROM u WHERE u.id = t.id - 8)
INSERT INTO t (id) VALUES (10) RETURNING nothing
INSERT INTO t (id) VALUES (10) RETURNING u.b
INSERT INTO t DEFAULT VALUES
UPDATE t SET n = 5 FROM u WHERE t.id = u.id RETURNING t.id, u.b, m, a || b AS both
UPDATE t SET n = m + 1 FROM u WHERE t.id = u.id RETURNING *
UPDATE t AS x SET n = 1 FROM u AS y WHERE x.id = y.id RETURNING y.*, x.id
UPDATE t SET n = q.k FROM (SELECT id, count(*) AS k FROM u GROUP BY id) AS q WHERE q.id = t.id RETURNING q.*, t.n
UPDATE t SET n = 0 FROM u, u AS w WHERE t.id = u.id AND w.id = u.id RETURNING u.id, w.b
UPDATE t SET n = 7 WHERE id = 2 RETURNING n, a
UPDATE t SET n = 7 WHERE id = 200 RETURNING n, a
DELETE FROM t USING u WHERE t.id = u.id AND u.m > 3 RETURNING t.*, u.m
DELETE FROM t WHERE id IN (6, 7) RETURNING id, n IS NULL
DELETE FROM t RETURNING id + 'x'
DELETE FROM t USING u AS v WHERE v.id = t.id RETURNING *
"""

ASSIGNING = """
UPDATE t SET (a, n) = ('both', 99) WHERE id = 1
UPDATE t SET (a, n) = ROW('row', 98) WHERE id = 2
UPDATE t SET (a, n) = (SELECT b, m FROM u WHERE u.id = t.id)
UPDATE t SET (n) = (SELECT 3) WHERE id = 1
UPDATE t SET (a, n) = (SELECT b, m FROM u) WHERE id = 1
UPDATE t SET (a, n) = (SELECT b FROM u WHERE u.id = 1) WHERE id = 1
UPDATE t SET (a, n) = (SELECT b, m FROM u WHERE u.id = 5 UNION ALL SELECT 'w', 1 WHERE false) WHERE id = 2
UPDATE t SET a = DEFAULT, n = DEFAULT WHERE id = 3
UPDATE t SET (a, n) = (DEFAULT, 12) WHERE id = 4
UPDATE t SET n = 1, n = 2
UPDATE t SET n = (SELECT max(m) FROM u WHERE u.id >= t.id)
UPDATE t SET n = 2000 WHERE id = 1
UPDATE t SET id = id + 10
INSERT INTO t (id, n) VALUES (1, DEFAULT), (2, 5)
INSERT INTO t (SELECT 21, 'q', 1)
INSERT INTO t WITH x AS (SELECT 22 AS id) SELECT id, 'with' FROM x
WITH x AS (SELECT 23 AS id) INSERT INTO t (id) SELECT id FROM x
WITH x AS (SELECT 23 AS id) UPDATE t SET a = 'cte' FROM x WHERE t.id = x.id
WITH x AS (SELECT 23 AS id) DELETE FROM t WHERE id IN (SELECT id FROM x)
DELETE FROM t USING u WHERE t.n = u.m
TRUNCATE u
"""

CONFLICTS = """
INSERT INTO t VALUES (1, 'again', 1) ON CONFLICT DO NOTHING
INSERT INTO t VALUES (1, 'again', 1), (6, 'six', 6) ON CONFLICT (id) DO NOTHING RETURNING *
INSERT INTO t VALUES (1, 'again', 1) ON CONFLICT (id) DO UPDATE SET a = excluded.a || t.a RETURNING *
INSERT INTO t AS x VALUES (1, 'more', 1) ON CONFLICT (id) DO UPDATE SET a = x.a || excluded.a, n = DEFAULT RETURNING x.a
INSERT INTO t VALUES (1, 'w', 5), (2, 'w', 5) ON CONFLICT (id) DO UPDATE SET n = excluded.n WHERE t.id > 1 RETURNING id
INSERT INTO t VALUES (1, 'w', 5) ON CONFLICT ON CONSTRAINT t_pkey DO UPDATE SET n = 77
INSERT INTO t VALUES (1, 'w', 5) ON CONFLICT ON CONSTRAINT nope DO NOTHING
INSERT INTO t VALUES (1, 'w', 5) ON CONFLICT (id) DO UPDATE SET (a, n) = (excluded.a, excluded.n + 1)
INSERT INTO t VALUES (1, 'w', 5) ON CONFLICT (id) DO UPDATE SET (a, n) = (SELECT b, m FROM u WHERE u.id = excluded.id)
INSERT INTO t VALUES (1, 'w', 5) ON CONFLICT (id) DO UPDATE SET n = (SELECT max(m) FROM u)
INSERT INTO t VALUES (1, 'w', 5) ON CONFLICT (id) DO UPDATE SET n = n + 1
INSERT INTO t VALUES (1, 'a', 1), (1, 'b', 2) ON CONFLICT (id) DO UPDATE SET n = 3
INSERT INTO t VALUES (1, 'a', 1) ON CONFLICT (a) DO NOTHING
INSERT INTO t VALUES (1, 'a', 1) ON CONFLICT DO UPDATE SET n = 1
INSERT INTO u VALUES (9, 'nine', 1) ON CONFLICT (m) DO UPDATE SET b = excluded.b RETURNING *
INSERT INTO u VALUES (9, 'nine', 1) ON CONFLICT (id) DO NOTHING
INSERT INTO u VALUES (9, 'nine', 1) ON CONFLICT DO NOTHING
INSERT INTO u VALUES (9, 'nine', 1) ON CONFLICT ON CONSTRAINT u_m_key DO UPDATE SET m = 100
INSERT INTO u SELECT id, a, n FROM t ON CONFLICT (id) DO UPDATE SET b = excluded.b
INSERT INTO t VALUES (1, 'w', 5) ON CONFLICT (id) DO UPDATE SET n = 4000
"""

MERGES = """
MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET n = u.m WHEN NOT MATCHED THEN INSERT VALUES (u.id, u.b, u.m)
MERGE INTO t AS x USING (VALUES (1, 'v'), (70, 'w')) AS s (id, v) ON x.id = s.id WHEN MATCHED AND s.v = 'v' THEN DELETE WHEN NOT MATCHED THEN INSERT (id, a) VALUES (s.id, s.v)
MERGE INTO t USING u ON t.id = u.id WHEN MATCHED AND t.id > 3 THEN DELETE WHEN MATCHED AND t.id = 3 THEN UPDATE SET a = 'three!', n = DEFAULT WHEN MATCHED THEN DO NOTHING
MERGE INTO t USING u ON t.id = u.id WHEN NOT MATCHED AND u.id > 100 THEN INSERT DEFAULT VALUES WHEN NOT MATCHED THEN DO NOTHING
MERGE INTO t USING u ON t.id <> u.id WHEN MATCHED THEN UPDATE SET n = 1
MERGE INTO t USING u ON t.id <> u.id WHEN MATCHED THEN DO NOTHING
MERGE INTO t USING (SELECT 90 AS id UNION ALL SELECT 90) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)
MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET (a, n) = (u.b, 3) WHEN NOT MATCHED THEN INSERT (n, id) VALUES (DEFAULT, u.id)
MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET id = 2
MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET n = 5000
MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET nope = 1
MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN DELETE WHEN MATCHED THEN DO NOTHING
MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET n = 1 WHEN MATCHED AND u.m / 0 = 1 THEN DELETE
MERGE INTO t USING t ON t.id = t.id WHEN MATCHED THEN DELETE
MERGE INTO nope USING u ON true WHEN MATCHED THEN DELETE
MERGE INTO t USING nope ON true WHEN MATCHED THEN DELETE
WITH s AS (SELECT id + 1 AS id FROM u) MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET a = 'cte' WHEN NOT MATCHED THEN INSERT VALUES (s.id)
"""

CHAINS = """
WITH x AS (INSERT INTO t VALUES (6, 'six', 60) RETURNING id, n) SELECT * FROM x
WITH x AS (INSERT INTO t VALUES (7, 'seven', 70) RETURNING id) SELECT count(*) FROM t
WITH x AS (DELETE FROM t WHERE id > 5 RETURNING *) INSERT INTO u SELECT id, a, n FROM x RETURNING id
WITH x AS (UPDATE t SET n = n + 1 RETURNING id, n) SELECT t.id, t.n AS old, x.n AS new FROM t JOIN x ON x.id = t.id ORDER BY 1
WITH x AS (INSERT INTO t (id) VALUES (8) RETURNING id), y AS (INSERT INTO u (id, b) SELECT id, 'from x' FROM x RETURNING *) SELECT x.id, y.b FROM x, y
WITH a AS (SELECT 9 AS id), x AS (INSERT INTO t (id) SELECT id FROM a RETURNING id AS k) SELECT k + 1 AS next FROM x, a
WITH x (k, v) AS (DELETE FROM t WHERE id = 9 RETURNING id, a) SELECT v, k FROM x
WITH x AS (DELETE FROM t WHERE id = 8) DELETE FROM u WHERE id = 8
WITH x AS (DELETE FROM t WHERE id = 1) SELECT * FROM x
WITH x AS (UPDATE t SET n = 1 WHERE id = 1 RETURNING id) UPDATE u SET b = 'also' FROM x WHERE u.id = x.id RETURNING u.*
WITH x AS (INSERT INTO t VALUES (1, 'taken', 1) RETURNING *) SELECT * FROM x
WITH x AS (DELETE FROM t WHERE id = 2 RETURNING *) INSERT INTO t SELECT id, a || '!', n FROM x
WITH x AS (INSERT INTO t (id) VALUES (30) RETURNING id), y AS (SELECT id FROM x) SELECT * FROM y UNION ALL SELECT 0 ORDER BY 1
SELECT * FROM (WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x) AS q
WITH x AS (DELETE FROM t WHERE id = 30 RETURNING *) SELECT nope FROM x
WITH x AS (INSERT INTO u VALUES (1, 'c', 9) ON CONFLICT (id) DO UPDATE SET b = excluded.b RETURNING *) SELECT b FROM x
"""


@pytest.mark.parametrize("script", [RETURNING, ASSIGNING, CONFLICTS, MERGES, CHAINS],
                         ids=["returning", "assigning", "conflicts", "merges", "chains"])  # fmt: skip
def test_changes_give_what_postgres_gives(script: str, postgres: Any, db: Database) -> None:
    compare(postgres, db, TABLES)
    for sql in filter(None, map(str.strip, script.splitlines())):
        before = db.version()
        compare(postgres, db, sql)
        compare(postgres, db, END)
        assert db.version() <= before + 1, sql
    assert list(db.verify()) == []


def test_a_chain_is_one_commit_and_fails_as_a_whole(db: Database) -> None:
    for sql in filter(None, TABLES.splitlines()):
        db.execute(sql)
    before = db.version()
    db.execute("WITH x AS (DELETE FROM t WHERE id = 1 RETURNING *) INSERT INTO u SELECT id + 100, a, n FROM x")
    assert db.version() == before + 1
    with pytest.raises(Exception, match="already"):
        db.execute("WITH x AS (DELETE FROM t RETURNING *) INSERT INTO u VALUES (5)")
    assert db.execute("SELECT count(*) FROM t").fetchone() == (3,)


def test_a_row_that_two_parts_change_is_changed_by_the_first(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT); CREATE INDEX by_n ON t (n); INSERT INTO t VALUES (1, 1)")
    db.execute("WITH x AS (UPDATE t SET n = 2) UPDATE t SET n = 3")
    assert db.execute("SELECT n FROM t").fetchall() == [(2,)]
    assert list(db.verify()) == []
