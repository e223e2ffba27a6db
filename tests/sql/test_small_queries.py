"""Queries of a few rows that are answered in Python have the answers of the executor, with the same types and names."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from ontolake.sql import Database, SqlError, open_database
from ontolake.sql.plan import execution, queries, small_queries
from ontolake.sql.syntax.statements import parse
from ontolake.sql.write import dml, returning, small_changes

ROUNDS = 150
INTEGERS = [None, 0, 1, -1, 7, 2**31, 2**62, -(2**63), 2**63 - 1]
TEXTS = [None, "", "a", "A", "ab", "Zz9", "ß", "ÄÖ", "x'y", "a\x00b"[:1]]


@pytest.fixture(scope="module")
def filled() -> Iterator[Database]:
    rng = random.Random(5)
    with open_database(":memory:") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b BIGINT, s TEXT, u TEXT, k BOOLEAN, i INTEGER, "
                   "v VARCHAR(5), d DATE, n DECIMAL(9, 2), x DOUBLE PRECISION, z TIMESTAMP, h SMALLINT)")  # fmt: skip
        db.execute("CREATE TABLE p (pid BIGINT PRIMARY KEY, w TEXT, q BIGINT)")
        for id in range(60):
            db.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (
                id, rng.choice(INTEGERS), rng.choice(INTEGERS), rng.choice(TEXTS), rng.choice(TEXTS),
                rng.choice([None, True, False]), rng.choice([None, 3, 2**31 - 1]), rng.choice([None, "v", "vv "]),
                rng.choice([None, "2020-01-02", "2021-05-06"]), rng.choice([None, "1.50", "-3.25"]),
                rng.choice([None, 0.5, -7.25, 1e300]),
                rng.choice([None, "2020-01-02 03:04:05", "1999-12-31"]),
                rng.choice([None, 2, -9, 32767])))  # fmt: skip
        for id in (0, 1, 7, 20):
            db.execute("INSERT INTO p VALUES (?, ?, ?)", (id, rng.choice(TEXTS), rng.choice(INTEGERS)))
        yield db


TYPED: dict[str, tuple[list[str], list[Any]]] = {
    "d": (["DATE '2020-01-02'", "'2021-05-06'", "NULL", "TIMESTAMP '2020-01-02 01:00:00'"],
          [date(2020, 1, 2), "2021-05-06", None, datetime(2020, 1, 2, 5)]),
    "n": (["1.5", "-3.25", "1", "'1.50'", "NULL", "1.555", "0.1e1"], [Decimal("1.50"), 1, "-3.25", None, 1.5]),
    "x": (["0.5", "1", "'-7.25'", "NULL", "1e300", "-7.25"], [0.5, 1, Decimal("-7.25"), None, float("nan")]),
    "z": (["TIMESTAMP '2020-01-02 03:04:05'", "'1999-12-31'", "NULL", "DATE '1999-12-31'"],
          [datetime(2020, 1, 2, 3, 4, 5), "1999-12-31", None, date(1999, 12, 31)]),
    "a": (["1", "-1", "7", "2147483648", "NULL"], [0, 2**62, None, True]),
    "k": (["TRUE", "FALSE", "NULL"], [True, None]),
    "s": (["'a'", "'ß'", "NULL", "''"], ["ab", None, 3]),
}  # fmt: skip
"""Literals and parameters that columns are compared with."""


class Generator:
    """Random queries by key."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.params: list[Any] = []

    def value(self, values: list[Any]) -> str:
        found = self.rng.choice(values)
        if self.rng.random() < 0.3:
            self.params.append(found)
            return "?"
        return "NULL" if found is None else str(found) if not isinstance(found, str) else "'" + found.replace(
            "'", "''") + "'"  # fmt: skip

    def integer(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.4:
            found = self.rng.choice(["a", "b", "t.a", "id", "i", "h", "i", ""])
            return found or self.value([0, 1, -3, 2**40])
        return f"({self.integer(depth - 1)} {self.rng.choice('+-*')} {self.integer(depth - 1)})"

    def text(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.4:
            return self.rng.choice(["s", "u", "t.s", "v", "s", ""]) or self.value([each for each in TEXTS if each])
        if self.rng.random() < 0.4:
            return f"{self.rng.choice(['upper', 'lower'])}({self.text(depth - 1)})"
        return f"({self.text(depth - 1)} || {self.text(depth - 1)})"

    def truth(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.5:
            make: Callable[[int], str] = self.rng.choice([self.integer, self.text])
            form = self.rng.choice(["compare", "compare", "k", "null", "u IS NOT NULL", "typed", "typed", "like"])
            if form == "like":
                return f"{self.rng.choice(['s', 'u', 'v'])} LIKE {self.value(['a%', '%', '_b', 'A', '%9', 'Ä_', '_'])}"
            if form == "typed":
                return self.typed()
            if form == "compare":
                return f"{make(1)} {self.rng.choice(['=', '<>', '<', '<=', '>', '>='])} {make(1)}"
            return f"{make(1)} IS NULL" if form == "null" else form
        if self.rng.random() < 0.3:
            return f"NOT ({self.truth(depth - 1)})"
        return f"({self.truth(depth - 1)} {self.rng.choice(['AND', 'OR'])} {self.truth(depth - 1)})"

    def typed(self) -> str:
        """A comparison with a value of another type than integers and text."""
        name = self.rng.choice(sorted(TYPED))
        values = [self.typed_value(*TYPED[name]) for _ in range(3)]
        return self.rng.choice([f"{name} {self.rng.choice(['=', '<>', '<', '<=', '>', '>='])} {values[0]}",
                                f"{name} {self.rng.choice(['IN', 'NOT IN'])} ({', '.join(values)})",
                                f"{name} BETWEEN {values[0]} AND {values[1]}", f"{values[0]} < {name}"])  # fmt: skip

    def typed_value(self, literals: list[str], given: list[Any]) -> str:
        if self.rng.random() < 0.4:
            self.params.append(self.rng.choice(given))
            return "?"
        return self.rng.choice(literals)

    def query(self) -> str:
        outputs = [self.rng.choice([self.integer, self.text, self.truth])(2) for _ in range(3)] + [
            self.rng.choice(["t.*", "d", "n", "x", "k", "s AS z", "v"])]  # fmt: skip
        outputs = list(dict.fromkeys(outputs))
        aliased = self.rng.random() < 0.5 or outputs[-1] == "t.*"  # names that come twice are another matter
        named = [f"{each} AS c{n}" if aliased and each != "t.*" and " AS " not in each else each
                 for n, each in enumerate(outputs)]  # fmt: skip
        joins = self.rng.choice(["", "", " JOIN p ON p.pid = t.a", " JOIN p ON t.b = p.pid AND w IS NOT NULL", ", p"])
        by = self.rng.choice(["id = ?", "t.id IN (3, 5, 8, 700)", "id = 11", "id > 40", "id <> 3", "i = 3"])
        select = f"SELECT {', '.join(named)} FROM t{joins} WHERE "
        if by == "id = ?":
            self.params.append(self.rng.randrange(70))
        more = f" AND {self.truth(2)}" if self.rng.random() < 0.7 else ""
        more += " AND pid = a" if joins == ", p" else ""
        return select + by + more


@contextmanager
def executor_only() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_queries.SmallQuery, "run", lambda *given: None)
        patch.setattr(small_changes.ConflictChange, "rows", lambda *given: None)
        patch.setattr(dml, "row_insert", lambda *given, **named: None)
        patch.setattr(returning, "plain_columns", lambda *given: None)
        yield


def answer(db: Database, sql: str, params: list[Any]) -> Any:
    try:
        found = db.execute(sql, params)
        types = [(name, str(type)) for name, type in found.description]
        return sorted(found.fetchall(), key=repr), types
    except SqlError as error:
        return error.sqlstate


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_the_executor_has_the_same_answers(filled: Database, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    small = 0
    run = small_queries.SmallQuery.run

    def counted(self: Any, *given: Any) -> Any:
        nonlocal small
        found = run(self, *given)
        small += found is not None
        return found

    for number in range(ROUNDS):
        generator = Generator(seed * 1000 + number)
        sql = generator.query()
        with monkeypatch.context() as patch:
            patch.setattr(small_queries.SmallQuery, "run", counted)
            found = answer(filled, sql, generator.params)
        with executor_only():
            expected = answer(filled, sql, generator.params)
        too_large = expected == "22003"  # in a row that a join leaves out, perhaps: which comes first is left open
        assert found == expected or too_large, (sql, generator.params)
    assert small >= 15, "many are answered in Python"


CHANGES = [
    "UPDATE t SET a = a + 1 WHERE id = 3",
    "UPDATE t SET a = b, s = upper(s) || '!' WHERE id IN (3, 4) AND (a IS NULL OR a < 5)",
    "UPDATE t SET k = NOT k, b = b - ? WHERE id = 4",
    "UPDATE t SET v = v || 'x' WHERE id = 5",
    "UPDATE t SET i = i + 1 WHERE id = 5",
    "UPDATE t SET a = a + 9223372036854775807 WHERE id = 6",
    "UPDATE t SET id = id + 1000 WHERE id = 7",
    "UPDATE t SET i = i + 3000000000 WHERE id = 5",
    "UPDATE t SET i = h * 2, a = i - h WHERE id IN (5, 6)",
    "UPDATE t SET h = h + h WHERE id IN (5, 6, 7, 8)",
    "UPDATE t SET h = h + 1 WHERE id IN (5, 6)",
    "UPDATE t SET i = i - 1, s = ?, n = 2.5, d = DATE '2020-02-03', a = DEFAULT WHERE id IN (5, 6)",
    "UPDATE t SET s = 'long', i = i + 1, v = 'too long for it' WHERE id = 5",
    "UPDATE t SET i = i + 1, z = '2020-01-01', id = 1005 WHERE id = 5",
    "UPDATE t SET a = a * 2, s = 'x' WHERE id > 20",
    "UPDATE t SET i = i - 1 WHERE id IN (5, 6) RETURNING i, id AS key, *",
    "UPDATE t SET i = i - 1 WHERE id = 5 RETURNING i + 1",
    "DELETE FROM t WHERE id IN (5, 6) RETURNING s, t.id",
    "INSERT INTO t (id, s, d) VALUES (900, DEFAULT, '2020-02-03') RETURNING id, d, n",
    "INSERT INTO t (id, a, s) VALUES (8, 5, 'new') ON CONFLICT (id) DO UPDATE SET a = t.a + excluded.a, s = excluded.s",
    "INSERT INTO t (id, a) VALUES (9, 5) ON CONFLICT (id) DO UPDATE SET a = excluded.a WHERE t.k",
    "INSERT INTO t (id, n) VALUES (10, 2.5) ON CONFLICT (id) DO UPDATE SET n = excluded.n, x = t.x",
    "INSERT INTO t (id, i) VALUES (11, 4) ON CONFLICT (id) DO UPDATE SET i = excluded.i, d = excluded.d",
]


@pytest.mark.parametrize("sql", CHANGES)
def test_a_change_of_a_few_rows_is_the_same(filled: Database, sql: str) -> None:
    params: list[Any] = ["given" if "s = ?" in sql else 4] if "?" in sql else []

    def changed() -> Any:
        filled.execute("BEGIN")
        try:
            found = filled.execute(sql, params)
            types = [(name, str(type)) for name, type in found.description]
            return found.status, types, found.fetchall(), sorted(filled.execute("SELECT * FROM t").fetchall(), key=repr)
        except SqlError as error:
            return error.sqlstate
        finally:
            filled.execute("ROLLBACK")

    first, again = changed(), changed()  # the second time it is prepared
    parse.cache_clear()
    with executor_only():
        expected = changed()
    parse.cache_clear()
    assert first == again == expected


def test_a_small_query_asks_no_executor(filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(*given: Any) -> Any:
        raise AssertionError("the executor was asked")

    monkeypatch.setattr(execution, "run", unwanted)
    assert filled.execute("SELECT id + 1, pid FROM t JOIN p ON p.pid = t.id WHERE t.id = 7").fetchall() == [(8, 7)]
    assert filled.execute("SELECT count(*) FROM t WHERE id < 10").fetchall() == [(10,)]
    filled.execute("BEGIN; UPDATE t SET b = id + 1 WHERE id = 7")
    assert filled.execute("SELECT b FROM t WHERE id = 7").fetchall() == [(8,)]
    filled.execute("ROLLBACK")
    found = filled.execute("SELECT id FROM t WHERE (n > 1 OR s LIKE 'a%') AND id IN (1, 2, 3) OR d < '2019-01-01'")
    assert {id for (id,) in found} <= {1, 2, 3}
    with pytest.raises(AssertionError):
        filled.execute("SELECT sum(id) FROM t")


def test_a_row_is_inserted_and_changed_without_an_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_database(":memory:") as db:
        db.execute("CREATE TABLE t (id INTEGER GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, a SMALLINT, "
                   "w TIMESTAMPTZ DEFAULT now(), s TEXT DEFAULT 'new'); CREATE TABLE log (id INTEGER, w TIMESTAMP)")
        monkeypatch.setattr(execution, "run", lambda *given, **named: pytest.fail("the executor was asked"))
        before = datetime.now(UTC)
        inserted = db.execute("INSERT INTO t (a) VALUES ($1) RETURNING id, w, s", (5,)).fetchall()
        after = datetime.now(UTC)
        ((id, when, text),) = inserted
        assert (id, text) == (1, "new")
        assert before - timedelta(microseconds=1) <= when <= after
        assert db.execute("UPDATE t SET a = a + a, s = $1 WHERE id = $2 RETURNING *", ("old", 1)).fetchall() == [
            (1, 10, when, "old")]  # fmt: skip
        with db.transaction():
            db.execute("INSERT INTO log VALUES ($1, CURRENT_TIMESTAMP)", (1,))
            db.execute("INSERT INTO log VALUES ($1, now())", (2,))
        (first,), (second,) = db.execute("SELECT w FROM log").fetchall()
        assert first == second, "the time of a transaction is when it began"


def test_a_default_that_does_not_fit_is_refused_as_ever() -> None:
    with open_database(":memory:") as db:
        db.execute("CREATE TABLE t (a SMALLINT GENERATED BY DEFAULT AS IDENTITY (START WITH 32767) PRIMARY KEY, "
                   "b DATE DEFAULT now())")
        assert db.execute("INSERT INTO t DEFAULT VALUES RETURNING a, b = current_date").fetchall() == [(32767, True)]
        with pytest.raises(SqlError) as caught:
            db.execute("INSERT INTO t DEFAULT VALUES")
        assert caught.value.sqlstate in ("22003", "2200H")


COUNTS = ["", "WHERE id = 3", "WHERE id IN (3, 4, 4, 99)", "WHERE id > 10 AND id <= 40", "WHERE g = 3",
          "WHERE g IS NULL", "WHERE g = 3 AND id < 30", "WHERE g > 1 AND g < 4", "WHERE id = NULL", "WHERE g <> 3",
          "WHERE id < NULL", "WHERE id BETWEEN 5 AND 7"]  # fmt: skip


@pytest.mark.parametrize("where", COUNTS)
def test_rows_are_counted_by_their_keys_at_any_version(
    native_place: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_database(native_place) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT); CREATE INDEX by_g ON t (g)")
        states: dict[int, list[tuple[int, int | None]]] = {}
        rng = random.Random(3)
        for number in range(12):
            db.execute("INSERT INTO t VALUES (?, ?), (?, ?), (?, NULL)",
                       [number * 5, rng.randrange(5), number * 5 + 1, 3, number * 5 + 2])
            db.execute("DELETE FROM t WHERE id % 7 = ?", (rng.randrange(7),))
            states[db.version()] = db.execute("SELECT * FROM t").fetchall()
        sql = f"SELECT count(*) AS many FROM t {where}"
        listed = f"SELECT id FROM t {where}"
        assert db.query(sql).to_pydict() == {"many": [db.query(listed).num_rows]}
        for version in states:
            assert db.query(sql, as_of=version).to_pydict() == {"many": [db.query(listed, as_of=version).num_rows]}
        db.branches.create("b", at=min(states))
        with open_database(native_place, branch="b") as branch:
            branch.execute("INSERT INTO t VALUES (500, 3); DELETE FROM t WHERE id = 1")
            assert branch.query(sql).to_pydict() == {"many": [branch.query(listed).num_rows]}
    assert queries.row_count is small_queries.row_count


def test_a_filter_that_no_key_answers_asks_no_executor_for_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_database(":memory:") as db:
        db.execute("CREATE TABLE t (a BIGINT, b TEXT, c BIGINT)")  # with a hidden key
        db.execute("CREATE INDEX by_c ON t (c)")
        for n in range(20):
            db.execute("INSERT INTO t VALUES (?, ?, ?)", (n, f"b{n}", n % 3))
        version = db.version()
        with monkeypatch.context() as patch:
            patch.setattr(execution, "run", lambda *given, **named: pytest.fail("the executor was asked"))
            assert db.execute("SELECT * FROM t WHERE a = ?", (7,)).fetchall() == [(7, "b7", 1)]
            assert db.execute("SELECT a FROM t WHERE c = 2 AND b LIKE '%1_'").fetchall() == [(11,), (14,), (17,)]
            assert db.execute("UPDATE t SET b = 'x' WHERE a = 3").count == 1
            assert db.execute("SELECT b FROM t WHERE a = 3").fetchall() == [("x",)]
            assert db.query("SELECT b FROM t WHERE a = 3", as_of=version).to_pylist() == [{"b": "b3"}]
        assert db.execute("SELECT a FROM t WHERE a = '7'").fetchall() == [(7,)]
        with pytest.raises(SqlError) as caught:
            db.execute("SELECT a FROM t WHERE b = ?", (True,))
        assert caught.value.sqlstate == "42883"


def test_what_a_statement_was_compiled_to_is_kept_for_the_same_values_alone() -> None:
    with open_database(":memory:") as db:
        sql = "SELECT ?::text || 'x' AS a, sum(n) + ? AS b FROM generate_series(1, 3) AS s (n)"
        for text, more in (("1", 1), ("1", 1.5), ("1", Decimal("1.50")), ("2", 1), ("1", 1)):
            assert str(db.execute(sql, (text, more)).fetchall()) == str([(f"{text}x", 6 + more)])
        compiled, runs = execution.compiled, []

        def counted(*given: Any) -> Any:
            runs.append(given)
            return compiled(*given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(execution, "compiled", counted)
            db.execute(sql, ("1", 1))
            assert runs == []
            first = db.execute("SELECT 'now'::timestamp").fetchall()
            assert db.execute("SELECT 'now'::timestamp").fetchall() > first
            db.execute(sql, ("1", 2))
            assert len(runs) == 3
