"""`IN (SELECT …)` among NULLs, below AND, OR and NOT: true, false and unknown, as a plain model has them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from ontolake.sql import Database

Truth = bool | None
ROWS = {1: 1, 2: 2, 3: None, 4: 4}
"""The table t: its key, and its value a."""
SETS: dict[str, list[int | None]] = {
    "SELECT a FROM u": [1, None, 7], "SELECT u.a FROM u WHERE u.id <> 2": [1, 7], "SELECT a FROM z": [],
    "SELECT s.a FROM u AS s WHERE s.a IS NULL": [None], "SELECT a FROM u UNION SELECT 2": [1, None, 7, 2],
    "SELECT count(*) FROM z": [0],
}  # fmt: skip


def member(value: int | None, found: list[int | None]) -> Truth:
    if not found:
        return False
    if value is not None and value in found:
        return True
    return None if value is None or None in found else False


def negated(one: Truth) -> Truth:
    return None if one is None else not one


def either(one: Truth, other: Truth) -> Truth:
    return True if one or other else None if one is None or other is None else False


def both(one: Truth, other: Truth) -> Truth:
    return negated(either(negated(one), negated(other)))


SHAPES: dict[str, Callable[[Truth, int], Truth]] = {
    "{}": lambda x, id: x, "{} OR id = 4": lambda x, id: either(x, id == 4), "NOT ({})": lambda x, id: negated(x),
    "NOT ({} OR id = 1)": lambda x, id: negated(either(x, id == 1)),
    "({} OR id = 2) AND id > 0": lambda x, id: either(x, id == 2),
    "NOT ({} AND id > 1)": lambda x, id: negated(both(x, id > 1)), "{} AND id < 4": lambda x, id: both(x, id < 4),
    "NOT (NOT ({}) OR id = 2)": lambda x, id: negated(either(negated(x), id == 2)),
}  # fmt: skip


@pytest.fixture
def tables(db: Database) -> Database:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT); CREATE TABLE u (id BIGINT PRIMARY KEY, a BIGINT); "
               "CREATE TABLE z (id BIGINT PRIMARY KEY, a BIGINT)")  # fmt: skip
    db.execute("INSERT INTO t VALUES (1, 1), (2, 2), (3, NULL), (4, 4); INSERT INTO u VALUES (1, 1), (2, NULL), (3, 7)")
    return db


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_membership_has_three_truth_values(tables: Database, shape: str) -> None:
    for (query, found), word in product(SETS.items(), ("IN", "NOT IN")):
        where = shape.format(f"a {word} ({query})")
        truths = {id: member(a, found) for id, a in ROWS.items()}
        truths = truths if word == "IN" else {id: negated(truth) for id, truth in truths.items()}
        wanted = [(id,) for id, truth in truths.items() if SHAPES[shape](truth, id) is True]
        assert tables.execute(f"SELECT id FROM t WHERE {where} ORDER BY id").fetchall() == wanted, where


def test_changes_find_the_same_rows(tables: Database) -> None:
    tables.execute("UPDATE t SET a = 100 WHERE a NOT IN (SELECT a FROM u) OR id = 4")
    assert tables.execute("SELECT id FROM t WHERE a = 100").fetchall() == [(4,)]
    tables.execute("DELETE FROM t WHERE NOT (a IN (SELECT a FROM u) OR id = 4)")
    assert tables.execute("SELECT count(*) FROM t").fetchall() == [(4,)]
