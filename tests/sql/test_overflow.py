"""Integers that become too large are an error, wherever they are worked out; everything else is as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from ontolake.sql import Database, SqlError, open_database
from ontolake.sql.plan import execution
from ontolake.sql.syntax.statements import parse_expression

MOST = 2**63 - 1


@pytest.fixture(scope="module")
def filled() -> Iterator[Database]:
    with open_database(":memory:") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, i INTEGER, d DECIMAL(10, 2), x DOUBLE PRECISION)")
        db.execute("INSERT INTO t VALUES (1, ?, 3, 1.5, 2.5), (2, 1, 4, 2.5, 1.5), (3, ?, NULL, NULL, NULL)",
                   (MOST, -MOST - 1))
        yield db


WRONG = [
    "SELECT a + 1 FROM t", "SELECT a - id FROM t", "SELECT a * 2 FROM t", "SELECT -a FROM t", "SELECT 1 + a + a FROM t",
    "SELECT sum(a + 1) FROM t",
    f"SELECT {MOST} + 1", "SELECT CAST(100000 AS INTEGER) * CAST(100000 AS INTEGER)", "SELECT q + 1 FROM (SELECT a AS q FROM t) s",  # noqa: E501
    "WITH c AS (SELECT a AS q FROM t) SELECT c.q * 3 FROM c",
    "SELECT t.a + u.a FROM t JOIN t u ON t.id = u.id", "SELECT CASE WHEN id = 1 THEN a ELSE 0 END + 1 FROM t",
    "SELECT (SELECT max(a) FROM t) + 1", "SELECT coalesce(a, 0) + 1 FROM t", "SELECT a + 1 FROM t WHERE id = 1",
    "SELECT count(*) FROM t GROUP BY a + 1", "SELECT id FROM t ORDER BY a + 1",
    "SELECT abs(a) FROM t",
    "SELECT a / -1 FROM t", "SELECT CAST(1e30 AS BIGINT)",
    "UPDATE t SET a = a + 1", "INSERT INTO t (id, a) VALUES (9, 9223372036854775807 + 1)",
    "INSERT INTO t (id, a) SELECT id + 10, a * 2 FROM t", "UPDATE t SET i = i WHERE id = 1 RETURNING a + i",
    "INSERT INTO t (id, a) VALUES (1, 5) ON CONFLICT (id) DO UPDATE SET a = t.a + excluded.a",
    "SELECT q + 1 FROM (SELECT a AS q FROM t UNION ALL SELECT id FROM t) s",
    "SELECT q + 1 FROM (SELECT id AS q FROM t UNION SELECT a FROM t) s",
    "SELECT q * 2 FROM ((SELECT a AS q FROM t) EXCEPT (SELECT 5)) s",
    "SELECT q + 1 FROM (SELECT NULL AS q UNION ALL SELECT a FROM t) s",
    "WITH c(q) AS (SELECT 1 UNION ALL SELECT a FROM t) SELECT q + q FROM c",
    "SELECT a + 1 FROM (SELECT * FROM t) s", "SELECT s.a + 1 FROM (SELECT u.* FROM t u) s",
    "SELECT a + 1 FROM t JOIN (SELECT id AS k FROM t) u ON id = k", "SELECT a + k FROM t, (SELECT 1 AS k) u",
    f"SELECT v + 1 FROM (VALUES ({MOST}), (1)) AS w(v)", f"SELECT column1 + 1 FROM (VALUES ({MOST})) AS w",
    "SELECT q - 1 FROM (SELECT i, -1 - a FROM t) s(j, q)",
    "WITH RECURSIVE r AS (SELECT 9223372036854775800 AS n UNION ALL SELECT n + 1 FROM r WHERE n > 0) SELECT n FROM r",
    f"SELECT g * {MOST} FROM generate_series(1, 3) AS g", f"SELECT length('abc') * {MOST}",
    f"SELECT row_number() OVER (ORDER BY id) * {MOST} FROM t", "SELECT lag(a) OVER (ORDER BY id) + 1 FROM t",
    "SELECT nullif(a, 3) + 1 FROM t", f"SELECT (1 | 2) + {MOST}", f"SELECT unnest(ARRAY[{MOST}]) + 1",
]  # fmt: skip


@pytest.mark.parametrize("sql", WRONG)
def test_what_becomes_too_large_is_refused(filled: Database, sql: str) -> None:
    version = filled.version()
    with pytest.raises(SqlError) as raised:
        filled.execute(sql)
    assert raised.value.sqlstate == "22003", raised.value
    assert filled.version() == version


RIGHT: list[tuple[str, list[Any]]] = [
    ("SELECT a + 1 FROM t WHERE id = 2", [2]), ("SELECT a - 1 FROM t WHERE id = 1", [MOST - 1]),
    ("SELECT sum(a) FROM t", [0]), ("SELECT -9223372036854775808", [-MOST - 1]), ("SELECT count(*) + 1 FROM t", [4]),
    ("SELECT sum(a) FROM t WHERE id <> 1", [-MOST]), ("SELECT i * i + id FROM t ORDER BY id", [10, 18, None]),
    ("SELECT x * 2 FROM t WHERE id = 1", [5.0]), ("SELECT a * 0.5 > 1 FROM t WHERE id = 1", [True]),
    ("SELECT -(a - 1) FROM t WHERE id = 1", [1 - MOST]), ("SELECT avg(a) FROM t WHERE id = 2", [1.0]),
    ("SELECT d + 1 > 2 FROM t WHERE id = 1", [True]), ("SELECT max(a) - 1 FROM t", [MOST - 1]),
    ("SELECT sum(a) FROM t WHERE id < 3", [MOST + 1]), ("SELECT sum(a) FILTER (WHERE id < 3) FROM t", [MOST + 1]),
    ("SELECT sum(a) OVER (ORDER BY id) FROM t", [MOST, MOST + 1, 0]),
    ("SELECT row_number() OVER (ORDER BY id) + 1 FROM t", [2, 3, 4]), ("SELECT length('abc') - 4", [-1]),
    ("SELECT q + 1 FROM (SELECT x AS q FROM t UNION ALL SELECT id FROM t WHERE id = 2) s WHERE q < 2.2 ORDER BY 1",
     [2.5, 3.0]),
    ("SELECT q || 'x' FROM (SELECT 'y' AS q UNION ALL SELECT 'z') s ORDER BY 1", ["yx", "zx"]),
    ("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n * 2 FROM r WHERE n < 9) SELECT sum(n) FROM r", [31]),
    ("SELECT generate_series * 2 FROM generate_series(1, 3)", [2, 4, 6]),
    ("SELECT (SELECT q - 1 FROM (SELECT max(a) AS q FROM t UNION ALL SELECT 1) s WHERE q > 1)", [MOST - 1]),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "expected"), RIGHT)
def test_what_fits_is_exact(filled: Database, sql: str, expected: list[Any]) -> None:
    assert [row[0] for row in filled.execute(sql)] == expected


NUMBERS = st.sampled_from([0, 1, -1, 2, 3, 7, 2**31, -(2**31), 2**32, 2**62, -(2**62), MOST, -MOST, -MOST - 1])


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(["a", "b", "c"]) | st.integers(0, 5).map(str))
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    return draw(st.sampled_from([f"({left} + {right})", f"({left} - {right})", f"({left} * {right})", f"(- {left})"]))


@given(expressions(), NUMBERS, NUMBERS, NUMBERS)
def test_arithmetic_is_that_of_whole_numbers_or_refused(text: str, a: int, b: int, c: int) -> None:
    tree = exp.select(exp.alias_(parse_expression(text), "v")).from_("t0")
    fits = True

    def value(node: exp.Expr) -> int:
        nonlocal fits
        if isinstance(node, exp.Paren):
            return value(node.this)
        if isinstance(node, exp.Literal):
            return int(node.this)
        if isinstance(node, exp.Column):
            return {"a": a, "b": b, "c": c}[node.name]
        if isinstance(node, exp.Neg):
            found = -value(node.this)
        else:
            left, right = value(node.this), value(node.expression)
            found = {"add": left + right, "sub": left - right, "mul": left * right}[node.key]
        fits = fits and -MOST - 1 <= found <= MOST
        return found

    expected = value(parse_expression(text))
    rows = {"t0": pa.table({"a": pa.array([a]), "b": pa.array([b]), "c": pa.array([c])})}
    if fits:
        assert execution.run(tree, rows).column(0).to_pylist() == [expected]
    else:
        with pytest.raises(SqlError) as raised:
            execution.run(tree, rows)
        assert raised.value.sqlstate == "22003"
