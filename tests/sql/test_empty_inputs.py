"""Joins, groups and subqueries whose inputs have no rows give what SQLite gives, by whichever way rows are found."""

from __future__ import annotations

from itertools import product

import apsw
import pyarrow as pa
import pytest

from ontolake.sql import Database, types
from ontolake.sql.keyspace import vectors

TABLES = """CREATE TABLE {} (id {type} PRIMARY KEY, a {type}, s TEXT);"""
CONDITIONS = ["t.id = u.id", "t.a = u.a", "t.id = u.a", "t.id < u.id", "t.s = u.s AND t.id = u.id"]
FILTERS = ["", "WHERE u.id = 5", "WHERE t.id = 5", "WHERE t.id = 1 AND u.id = 1", "WHERE u.a = 3", "WHERE u.s = 'q'",
           "WHERE t.id IN (7, 8)", "WHERE u.id BETWEEN 10 AND 20", "WHERE u.id IS NULL", "WHERE 1 = 0"]  # fmt: skip
OUTPUTS = ["t.id, u.id AS x", "count(*) AS n, max(u.a) AS m, sum(t.a) AS s", "t.s, count(u.id) AS n"]
KINDS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
SINGLE = [
    "SELECT t.id FROM t CROSS JOIN u", "SELECT t.id FROM t, u WHERE t.id = u.id",
    "SELECT id FROM t WHERE id IN (SELECT id FROM u)", "SELECT id FROM t WHERE id NOT IN (SELECT id FROM u)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id)",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.id = t.id)",
    "SELECT id, (SELECT max(a) FROM u) AS m FROM t", "SELECT id FROM t UNION SELECT id FROM u",
    "SELECT id FROM t INTERSECT SELECT id FROM u", "SELECT id FROM t EXCEPT SELECT id FROM u",
    "SELECT id FROM u ORDER BY a DESC LIMIT 3", "SELECT id FROM u ORDER BY id LIMIT 2 OFFSET 1",
    "SELECT min(id) AS a, max(id) AS b, count(*) AS n FROM u",
    "SELECT a, count(*) AS n FROM u GROUP BY a HAVING count(*) > 0",
    "SELECT id, row_number() OVER (ORDER BY id) AS n FROM u", "SELECT DISTINCT s FROM u",
    "WITH w AS (SELECT * FROM u WHERE id = 9) SELECT t.id FROM t JOIN w ON w.id = t.id",
    "SELECT t.id FROM t JOIN u ON t.id = u.id JOIN u AS v ON v.id = u.a WHERE v.id = 5",
]  # fmt: skip
QUERIES = [f"SELECT {output} FROM t {kind} u ON {condition} {where}{' GROUP BY t.s' * output.startswith('t.s')}"
           for kind, condition, where, output in product(KINDS, CONDITIONS, FILTERS, OUTPUTS)]  # fmt: skip


def filled(db: Database, left: int, right: int, *, indexed: bool) -> apsw.Connection:
    """Tables of so many rows here and in SQLite, which is returned."""
    oracle = apsw.Connection(":memory:")
    statements = [TABLES.format("t", type="BIGINT"), TABLES.format("u", type="BIGINT")]
    statements += ["CREATE INDEX u_a ON u (a)", "CREATE INDEX t_s ON t (s)"] if indexed else []
    for name, count in (("t", left), ("u", right)):
        if count:
            rows = ", ".join(f"({n}, {n % 3 if n % 4 else 'NULL'}, 's{n % 2}')" for n in range(1, count + 1))
            statements.append(f"INSERT INTO {name} VALUES {rows}")
    for sql in statements:
        oracle.execute(sql)
        db.execute(sql)
    return oracle


def check(db: Database, oracle: apsw.Connection, sql: str) -> None:
    expected = sorted(oracle.execute(sql).fetchall(), key=repr)
    assert sorted(db.execute(sql).fetchall(), key=repr) == expected, sql


@pytest.mark.slow
@pytest.mark.parametrize(("left", "right"), [(0, 3), (3, 0), (4, 3)])
def test_conditions_above_outer_joins_are_about_the_column_that_they_name(db: Database, left: int, right: int) -> None:
    """Both tables have columns of the same names, of one type or of another."""
    oracle = filled(db, left, right, indexed=False)
    for kind, on, where in product(KINDS[1:], ["t.a = u.a", "t.id = u.id AND t.a = u.a"], [
            "t.a = t.a", "u.a = u.a", "(t.a IS NOT NULL AND u.s = u.s) OR u.id < 0", "u.a IS NULL OR t.a > 1",
            "NOT (u.a >= 1) OR (t.s = u.s AND u.a > 0)", "t.a <> u.a OR t.a IS NULL"]):  # fmt: skip
        check(db, oracle, f"SELECT t.id, u.id AS x FROM t {kind} u ON {on} WHERE {where}")


def test_a_join_by_key_finds_nothing(db: Database) -> None:
    filled(db, 2, 0, indexed=False)
    assert db.execute("SELECT t.id FROM t JOIN u ON t.id = u.id WHERE u.id = 5").fetchall() == []


@pytest.mark.slow
@pytest.mark.parametrize(("left", "right"), [(0, 0), (2, 0), (0, 2), (60, 0), (60, 2)])
def test_subqueries_groups_and_orders_of_no_rows(db: Database, left: int, right: int) -> None:
    oracle = filled(db, left, right, indexed=True)
    for sql in SINGLE:
        check(db, oracle, sql)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "left", "right"), [(0, 0, 0), (1, 2, 0), (4, 0, 2), (7, 60, 0), (10, 60, 2)])
def test_joins_of_every_kind_with_empty_sides(db: Database, first: int, left: int, right: int) -> None:
    oracle = filled(db, left, right, indexed=left > 2)
    for sql in QUERIES[first::13]:  # others each time
        check(db, oracle, sql)


@pytest.mark.parametrize("type", [types.BIGINT, types.TEXT, types.BOOLEAN, types.DOUBLE, types.DATE, types.TIMESTAMP],
                         ids=str)  # fmt: skip
def test_no_rows_are_no_keys_and_no_values(type: types.Type) -> None:
    nothing = pa.array([], type.arrow)
    for desc in (False, True):
        assert vectors.encode_keys(b"p", [type], [nothing], [desc]).to_list() == []
    assert vectors.encode_rows([type, None], [nothing, None], 0).to_list() == []
    empty = vectors.Strings.of([])
    assert vectors.decode_rows(empty, [vectors.Wanted(0, type)])[0].to_pylist() == []
    assert vectors.decode_keys([type], empty, 1)[0][0].to_pylist() == []
