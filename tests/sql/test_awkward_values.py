"""Values at the edge of their types give what PostgreSQL gives, whichever way a query finds them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ontolake.sql import Database, DataError, open_database


@pytest.fixture
def db() -> Iterator[Database]:
    with open_database(":memory:") as found:
        yield found


def rows(db: Database, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in db.execute(sql, parameters).fetchall()]


def test_values_that_share_a_key_find_a_row_once(db: Database) -> None:
    db.execute("CREATE TABLE t (k INTERVAL PRIMARY KEY, n INT); INSERT INTO t VALUES ('1 month', 1), ('1 day', 2)")
    assert rows(db, "SELECT n FROM t WHERE k IN ('1 month', '30 days', '720 hours')") == [(1,)]
    db.execute("CREATE TABLE u (a INT, k JSONB, n INT, PRIMARY KEY (a, k)); INSERT INTO u VALUES (1, '1.0', 1)")
    db.execute("CREATE INDEX ON u (k)")
    assert rows(db, "SELECT n FROM u WHERE a IN (1, 2) AND k IN ('1', '1.00')") == [(1,)]
    assert rows(db, "SELECT n FROM u WHERE k IN ('1', '1.00')") == [(1,)]


@pytest.mark.parametrize("value", ["1e35", "1234567890123456789012345678901.5", "'nan'::float8"])
def test_a_number_that_no_key_can_be_is_compared_as_it_is(db: Database, value: str) -> None:
    db.execute("CREATE TABLE t (k INT PRIMARY KEY); INSERT INTO t VALUES (1)")
    assert rows(db, f"SELECT k FROM t WHERE k = {value}") == []
    assert rows(db, f"SELECT k FROM t WHERE k < {value}") == [(1,)]


def test_a_number_is_not_rounded_to_the_digits_of_a_key(db: Database) -> None:
    db.execute("CREATE TABLE t (k NUMERIC(38, 2) PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (1234567890123456789012345678.02)")
    assert rows(db, "SELECT k FROM t WHERE k = 1234567890123456789012345678.015") == []
    assert rows(db, "SELECT k FROM t WHERE k = 1234567890123456789012345678.020") != []


def test_parameters_that_are_no_integers(db: Database) -> None:
    db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY); INSERT INTO t VALUES (1)")
    for value in (Decimal("Infinity"), Decimal("NaN")):
        assert rows(db, "SELECT k FROM t WHERE k = ?", value) == []
        assert rows(db, "SELECT k FROM t WHERE k < ?", value) == [(1,)]
    assert rows(db, "SELECT k FROM t WHERE k = ?", Decimal("1E+40")) == []
    assert rows(db, "SELECT k FROM t WHERE k < ?", Decimal("1E+40")) == [(1,)]


def test_a_moment_that_utc_cannot_show_is_refused(db: Database) -> None:
    db.execute("CREATE TABLE t (k TIMESTAMPTZ PRIMARY KEY)")
    before = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))
    with pytest.raises(DataError, match="0001") as error:
        db.execute("INSERT INTO t VALUES (?)", (before,))
    assert error.value.sqlstate == "22008"
    assert rows(db, "SELECT k FROM t WHERE k = ?", before) == []


def test_half_a_surrogate_pair_is_refused(db: Database) -> None:
    with pytest.raises(DataError) as error:
        db.execute("SELECT ?::bytea", ("\ud800",))
    assert error.value.sqlstate == "22P02"


def test_arrays_are_compared_on_both_sides(db: Database) -> None:
    db.execute("CREATE TABLE t (k INT[] PRIMARY KEY, n INT)")
    db.execute("INSERT INTO t VALUES ('{}', 1), ('{1}', 2), ('{1,2}', 3), ('{3}', 4)")
    assert rows(db, "SELECT n FROM t WHERE k BETWEEN '{}' AND '{1,2}' ORDER BY n") == [(1,), (2,), (3,)]
    assert rows(db, "SELECT n FROM t WHERE k || 1 > '{1,1}' AND k || 1 < '{3}' ORDER BY n") == [(3,)]
    assert rows(db, "SELECT k > NULL, k >= '{1}' FROM t ORDER BY n") == [
        (None, False), (None, True), (None, True), (None, True)]  # fmt: skip


def test_moments_outside_the_years_of_python(db: Database) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, d DATE, s TIMESTAMP, z TIMESTAMPTZ)")
    db.execute("""INSERT INTO t VALUES (1, '0044-03-15 BC', '0044-03-15 10:00 BC', '0044-03-15 10:00:00.5+00 BC'),
                  (2, '5874897-12-31', 'infinity', '-infinity'),
                  (3, '2024-02-29', '2024-02-29', '2024-02-29 12:00+05')""")
    assert rows(db, "SELECT d::text, s::text, z::text FROM t ORDER BY id") == [
        ("0044-03-15 BC", "0044-03-15 10:00:00 BC", "0044-03-15 10:00:00.5+00 BC"),
        ("5874897-12-31", "infinity", "-infinity"),
        ("2024-02-29", "2024-02-29 00:00:00", "2024-02-29 07:00:00+00")]  # fmt: skip
    assert rows(db, "SELECT id FROM t WHERE d = '5874897-12-31'") == [(2,)]
    assert rows(db, "SELECT id FROM t WHERE s <= '0044-03-15 10:00 BC'") == [(1,)]
    assert rows(db, "SELECT id FROM t WHERE z < '0044-03-15 10:00:01+00 BC' ORDER BY id") == [(1,), (2,)]


def test_jsonb_is_compared_by_value(db: Database) -> None:
    texts = ["null", '"a"', "1", "1.0", "10", "-5", "true", "false", "[]", "{}", "[1]", "[1, 2]",
             '{"a": 1}', '{"b": 0}']  # fmt: skip
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, j JSONB)")
    for id, text in enumerate(texts):
        db.execute("INSERT INTO t VALUES (?, ?)", (id, text))
    order = [row[0] for row in rows(db, "SELECT j::text AS x FROM t ORDER BY j, id")]
    assert order == ["[]", "null", '"a"', "-5", "1", "1.0", "10", "false", "true", "[1]", "[1, 2]", "{}", '{"a": 1}',
                     '{"b": 0}']  # fmt: skip
    assert rows(db, "SELECT id FROM t WHERE j = '1.00' ORDER BY id") == [(2,), (3,)]
    assert rows(db, "SELECT id FROM t WHERE j < '1' ORDER BY id") == [(0,), (1,), (5,), (8,)]
    assert rows(db, "SELECT a.id, b.id FROM t a JOIN t b ON a.j = b.j AND a.id < b.id") == [(2, 3)]
    assert rows(db, "SELECT id, j IS DISTINCT FROM '1', j IN ('1', 'null') FROM t WHERE id IN (0, 3) ORDER BY 1") == [
        (0, True, True), (3, False, True)]  # fmt: skip
    assert rows(db, "SELECT '{\"a\":1}'::jsonb = '{\"a\":1.0}'::jsonb") == [(True,)]


def test_a_typed_literal_is_converted_as_a_whole(db: Database) -> None:
    found = rows(db, "SELECT date '2024-01-02'::text, numeric '5.5'::int, timestamp '2024-01-02 03:04'::date::text, "
                     "bool 'yes'::text, date '2024-01-02'::timestamp + interval '1 day' = '2024-01-03'")  # fmt: skip
    assert found == [("2024-01-02", 6, "2024-01-02", "true", True)]
    db.execute("CREATE TABLE t (date DATE, text TEXT); INSERT INTO t VALUES ('2024-01-02', 'x')")
    assert rows(db, "SELECT text, date::text, t.date = date '2024-01-02' FROM t ORDER BY date, text") == [
        ("x", "2024-01-02", True)]  # fmt: skip


def test_words_of_statements_may_be_written_small(db: Database) -> None:
    db.execute("create table p (id int primary key); create table c (id int primary key references p)")
    db.execute("insert into p values (1); insert into c values (1); truncate p cascade")
    assert rows(db, "select count(*) from c") == [(0,)]


def test_numbers_of_sequences_have_the_names_of_functions(db: Database) -> None:
    db.execute("CREATE SEQUENCE s")
    assert db.execute("SELECT nextval('s'), currval('s') + 1, setval('s', 7)::text AS x").columns == [
        "nextval", "?column?", "x"]  # fmt: skip


def test_arrow_types_that_are_rarely_seen_are_loaded(db: Database) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT, s TEXT)")
    loaded: list[tuple[int, str]] = []
    for values in (
        pa.array([1.5], pa.float16()), pa.array([Decimal("1.5")], pa.decimal32(5, 1)),
        pa.array([Decimal("2.5")], pa.decimal64(5, 1)),
    ):  # fmt: skip
        db.bulk_load("t", pa.table({"id": [len(loaded)], "n": values, "s": ["x"]}))
        loaded.append((2, "x") if len(loaded) < 2 else (3, "x"))
    for clock, text in (
        (pa.array([1], pa.time32("s")), "00:00:01"), (pa.array([1000], pa.time64("ns")), "00:00:00.000001"),
        (pa.array([1], pa.duration("ms")), "00:00:00.001"),
    ):  # fmt: skip
        db.bulk_load("t", pa.table({"id": [len(loaded)], "n": [0], "s": clock}))
        loaded.append((0, text))
    assert rows(db, "SELECT n, s FROM t ORDER BY id") == loaded


@pytest.mark.parametrize(("type", "values", "state"), [
    ("DATE", pa.array([2**63 - 1], pa.timestamp("s")), "22008"), ("DATE", pa.array([2**31 - 2], pa.date32()), "22008"),
    ("CHAR(5)", pa.array(["a\0b"]), "22021"),
])  # fmt: skip
def test_arrow_values_outside_a_type_are_refused(db: Database, type: str, values: pa.Array, state: str) -> None:
    db.execute(f"CREATE TABLE t (k {type} PRIMARY KEY)")
    with pytest.raises(DataError) as error:
        db.bulk_load("t", pa.table({"k": values}))
    assert error.value.sqlstate == state
    assert rows(db, "SELECT count(*) FROM t") == [(0,)]


def test_blanks_of_char_count_as_in_postgres(db: Database) -> None:
    db.execute("CREATE TABLE t (k CHAR(5) PRIMARY KEY); INSERT INTO t VALUES ('ab')")
    for condition, found in {
        "k = 'ab'": True, "k = 'ab   '": True, "k IN ('ab ', 'ab')": True, "k = 'ab'::text": True,
        "k = 'ab   '::text": False, "k IN ('ab '::text)": False, "k LIKE 'ab'": False, "k LIKE 'ab   '": True,
        "k LIKE 'ab%'": True, "k NOT LIKE '%b'": True, "k ILIKE 'AB   '": True,
    }.items():  # fmt: skip
        assert rows(db, f"SELECT 1 FROM t WHERE {condition}") == ([(1,)] if found else []), condition
