"""Expressions give what they give in PostgreSQL, or its error, where what runs them has other habits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ontolake.sql import Database, SqlError, open_database


@pytest.fixture(scope="module")
def filled() -> Iterator[Database]:
    with open_database(":memory:") as db:
        db.execute("""
            CREATE TABLE t (id BIGINT PRIMARY KEY, x DOUBLE PRECISION, s TEXT, d DATE, n DECIMAL(10, 2), at TIMESTAMP,
                            z TIMESTAMPTZ, b BOOLEAN);
            INSERT INTO t VALUES
                (1, 2.5, 'one', '2026-01-31', 2.50, '2026-01-31 10:00', '2026-01-31 10:00+00', true),
                (2, 0.5, NULL, NULL, NULL, NULL, NULL, NULL)""")
        yield db


WRONG = [
    ("SELECT ln(0)", "2201E"), ("SELECT ln(-1.5)", "2201E"), ("SELECT ln(x - 2.5) FROM t", "2201E"),
    ("SELECT log(0)", "2201E"), ("SELECT log10(id - 1) FROM t", "2201E"), ("SELECT log(2, x - 0.5) FROM t", "2201E"),
    ("SELECT power(0, -1)", "2201F"), ("SELECT power(-8, 0.5)", "2201F"), ("SELECT exp(1000)", "22003"),
    ("SELECT power(10.0, 400000)", "22003"), ("SELECT acos(x) FROM t", "22003"),
    ("SELECT x / 0 FROM t", "22012"), ("SELECT x / (id - 1) FROM t", "22012"), ("SELECT x % 0.0 FROM t", "42883"),
    ("SELECT id / (x - 0.5) FROM t", "22012"), ("UPDATE t SET x = x / (x - 0.5)", "22012"),
    ("SELECT id FROM t UNION SELECT s FROM t", "42804"), ("SELECT id FROM t UNION ALL SELECT s FROM t", "42804"),
    ("SELECT id FROM t INTERSECT SELECT s FROM t", "42804"), ("SELECT d FROM t EXCEPT SELECT b FROM t", "42804"),
    ("SELECT * FROM (SELECT id, s FROM t) a UNION SELECT s, id FROM t", "42804"),
    ("SELECT 1 UNION (SELECT NULL UNION SELECT s FROM t)", "42804"),
    ("WITH c AS (SELECT s FROM t) SELECT id FROM t UNION SELECT * FROM c", "42804"),
    ("SELECT 1 UNION SELECT 'a'", "22P02"), ("SELECT CASE WHEN b THEN 1 ELSE 'x' END FROM t", "22P02"),
    ("SELECT CASE WHEN b THEN id ELSE s END FROM t", "42804"), ("SELECT coalesce(id, s) FROM t", "42804"),
    ("SELECT at AT TIME ZONE 'Nowhere' FROM t", "22023"), ("SELECT s COLLATE \"de_DE\" FROM t", "0A000"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "sqlstate"), WRONG)
def test_what_has_no_value_is_refused(filled: Database, sql: str, sqlstate: str) -> None:
    with pytest.raises(SqlError) as raised:
        filled.execute(sql)
    assert raised.value.sqlstate == sqlstate, raised.value
    assert "PyErr" not in raised.value.message
    assert "{" not in raised.value.message


MORNING = datetime(2026, 1, 31, 10, tzinfo=UTC)

RIGHT: list[tuple[str, list[Any]]] = [
    ("SELECT ln(1), log(100), log(2, 8), power(2, 10), exp(0), acos(1)", [0.0, 2.0, Decimal(3), 1024.0, 1.0, 0.0]),
    ("SELECT CASE WHEN x > 1 THEN ln(x - 0.5) END, x / NULL, NULL / x FROM t WHERE id = 2", [None, None, None]),
    ("SELECT ln(NULL), power(NULL, 2), x / id, n / 2 > 1 FROM t WHERE id = 1", [None, None, 2.5, True]),
    ("SELECT avg(x)::int, avg(n)::int, avg(DISTINCT x)::int, (avg(x) + 1)::int FROM t WHERE id = 1", [2, 3, 2, 4]),
    ("SELECT round(x), round(n), round(-x), round(n, 1) FROM t WHERE id = 1",
     [2.0, Decimal("3"), -2.0, Decimal("2.5")]),
    ("SELECT count(*) FROM t WHERE x = 2.5 GROUP BY round(x) ORDER BY round(x)", [1]),
    ("SELECT sum(q) FROM (SELECT id AS q FROM t UNION SELECT '7' UNION SELECT NULL) s", [Decimal(10)]),
    ("SELECT max(q) FROM (SELECT id AS q FROM t UNION ALL SELECT x FROM t) s", [2.5]),
    ("SELECT max(q) FROM (SELECT d AS q FROM t UNION ALL SELECT at FROM t) s", [datetime(2026, 1, 31, 10)]),
    ("SELECT coalesce(d, '2026-02-01'), coalesce(s, 'none'), coalesce(d - d, 0) FROM t WHERE id = 2",
     [date(2026, 2, 1), "none", 0]),
    ("SELECT d + interval '1 hour', d - interval '1 day', d + 1, d + interval '1 hour' > d FROM t WHERE id = 1",
     [datetime(2026, 1, 31, 1), datetime(2026, 1, 30), date(2026, 2, 1), True]),
    ("SELECT at - d, z - z FROM t WHERE id = 1", [timedelta(hours=10), timedelta(0)]),
    ("SELECT z AT TIME ZONE 'Europe/Berlin', at AT TIME ZONE 'Europe/Berlin' FROM t WHERE id = 1",
     [datetime(2026, 1, 31, 11), MORNING - timedelta(hours=1)]),
    ("SELECT '2026-01-31 12:00+02'::timestamptz, at::timestamptz, z::text FROM t WHERE id = 1",
     [MORNING, MORNING, "2026-01-31 10:00:00+00"]),
    ("SELECT (timestamptz '2026-01-31 10:00:00.123456789+00')::text, NULL::timestamptz::text",
     ["2026-01-31 10:00:00.123457+00", None]),
    ("SELECT 12345678901234567890, -9223372036854775808", [Decimal(12345678901234567890), -(2**63)]),
    ("SELECT '\\xDEAD'::bytea, 'q'::bytea", [b"\xde\xad", b"q"]),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "values"), RIGHT)
def test_values_are_those_of_postgresql(filled: Database, sql: str, values: list[Any]) -> None:
    row = filled.execute(sql).fetchone()
    assert row is not None
    assert list(row) == values
    assert [type(value) for value in row] == [type(value) for value in values]


def test_a_series_among_what_is_shown_makes_rows(filled: Database) -> None:
    assert filled.execute("SELECT id, generate_series(1, id) AS g FROM t").fetchall() == [(1, 1), (2, 1), (2, 2)]


def test_a_default_is_worked_out_for_each_row() -> None:
    with open_database(":memory:") as db:
        db.execute("CREATE TABLE t (id TEXT PRIMARY KEY DEFAULT gen_random_uuid(), n BIGINT, r DOUBLE PRECISION "
                   "DEFAULT random(), at TIMESTAMPTZ DEFAULT now(), s TEXT DEFAULT 'new')")
        assert db.execute("INSERT INTO t (n) VALUES (1), (2)").count == 2
        assert db.execute("INSERT INTO t (n) SELECT n + 2 FROM t").count == 2
        assert db.bulk_load("t", pa.table({"n": [5, 6]})) == 2
        counts = db.execute("SELECT count(DISTINCT id), count(DISTINCT r), count(at), min(s), count(s) FROM t")
        assert counts.fetchall() == [(6, 6, 6, "new", 6)]
        db.execute("UPDATE t SET r = DEFAULT")
        assert db.execute("SELECT count(DISTINCT r) FROM t").fetchall() == [(6,)]
        assert db.execute("INSERT INTO t (n) SELECT n FROM t WHERE false").count == 0


@pytest.mark.parametrize(("sql", "hint"), [
    ("SHOW TABLES", "\\d"), ("INSERT INTO information_schema.tables VALUES (1)", "\\d"),
    ("COPY t FROM STDIN", "Database.copy_from"), ("LISTEN x", "Database.changes"),
    ("GRANT SELECT ON t TO x", "users of the server"),
])  # fmt: skip
def test_what_people_bring_along_is_refused_with_what_does_it_here(filled: Database, sql: str, hint: str) -> None:
    with pytest.raises(SqlError) as raised:
        filled.execute(sql)
    assert hint in (raised.value.hint or "")


def test_several_indexes_tables_or_schemas_are_dropped_together_or_not_at_all() -> None:
    with open_database(":memory:") as db:
        db.execute("CREATE TABLE a (id BIGINT PRIMARY KEY, n BIGINT); CREATE TABLE b (id BIGINT PRIMARY KEY)")
        db.execute("CREATE INDEX i ON a (n); CREATE INDEX j ON a (n, id); CREATE SCHEMA x; CREATE SCHEMA y")
        with pytest.raises(SqlError, match=r"no index main\.public\.nope"):
            db.execute("DROP INDEX i, nope")
        with pytest.raises(SqlError, match=r"no table main\.public\.nope"):
            db.execute("DROP TABLE a, nope")
        assert [index.name for index in db.catalog().by_full_name["main.public.a"].indexes] == ["i", "j"]
        db.execute('DROP INDEX i, "j"; DROP INDEX IF EXISTS i, j; DROP SCHEMA x, y')
        assert not db.catalog().by_full_name["main.public.a"].indexes
        db.execute("DROP TABLE a, b CASCADE")
        assert not db.catalog().by_full_name
