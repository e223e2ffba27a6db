"""INSERT may give fewer values than a table has columns, as in PostgreSQL, and no way of writing leaves half a row.

Earlier versions stored such rows without their last columns. `golden/short-rows.db.gz` is a database that one of them
wrote; its rows can be read, and `verify` names the statement that completes them.
"""

from __future__ import annotations

import gzip
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marking import examples

from ontolake.errors import Corruption, Invalid
from ontolake.sql import Database, SqlError, open_database
from ontolake.sql.keyspace.rows import decode_payload, encode_row, split_row
from ontolake.sql.types import Kind
from ontolake.sql.write.rows import Rows

GOLDEN = Path(__file__).parent / "golden/short-rows.db.gz"
DEFINED = "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL DEFAULT 7, b TEXT, c INT DEFAULT 3 CHECK (c > 0))"


@pytest.mark.parametrize(("sql", "expected"), [
    ("INSERT INTO t VALUES (1)", [(1, 7, None, 3)]),
    ("INSERT INTO t VALUES (1, 2), (2, 3)", [(1, 2, None, 3), (2, 3, None, 3)]),
    ("INSERT INTO t VALUES (1, DEFAULT, DEFAULT)", [(1, 7, None, 3)]),
    ("INSERT INTO t VALUES (1, 1 + 1), (2, abs(-3))", [(1, 2, None, 3), (2, 3, None, 3)]),
    ("INSERT INTO t SELECT 1", [(1, 7, None, 3)]), ("INSERT INTO t SELECT 1, 2, 'x'", [(1, 2, "x", 3)]),
    ("INSERT INTO t (b, id) VALUES ('x', 1)", [(1, 7, "x", 3)]),
    ("INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET a = 9", [(1, 7, None, 3)]),
    ("INSERT INTO t VALUES (1, 2, 'x', 4); INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET a = excluded.a",
     [(1, 7, "x", 4)]),
    ("INSERT INTO t VALUES (1, 2, 'x', 4); INSERT INTO t VALUES (1, 5) ON CONFLICT DO NOTHING", [(1, 2, "x", 4)]),
    ("INSERT INTO t VALUES " + ", ".join(f"({n})" for n in range(100)), [(n, 7, None, 3) for n in range(100)]),
])  # fmt: skip
def test_columns_without_a_value_take_their_defaults(db: Database, sql: str, expected: list[tuple[Any, ...]]) -> None:
    db.execute(DEFINED)
    db.execute(sql)
    assert db.execute("SELECT * FROM t ORDER BY id").fetchall() == expected
    assert list(db.verify()) == []


def test_parameters_may_be_fewer_than_columns(db: Database) -> None:
    db.execute(DEFINED)
    for n in range(3):
        db.execute("INSERT INTO t VALUES (?, ?)", (n, n))
    assert db.execute("SELECT * FROM t ORDER BY id").fetchall() == [(n, n, None, 3) for n in range(3)]
    db.bulk_load("t", pa.table({"id": range(100, 200)}))
    assert db.execute("SELECT count(*) FROM t WHERE a = 7 AND b IS NULL AND c = 3").fetchall() == [(100,)]


@pytest.mark.parametrize(("sql", "sqlstate"), [
    ("INSERT INTO n VALUES (1)", "23502"), ("INSERT INTO n VALUES (1), (2)", "23502"),
    ("INSERT INTO n SELECT 1", "23502"), ("INSERT INTO n VALUES (1, DEFAULT)", "23502"),
    ("INSERT INTO n (id) VALUES (1) ON CONFLICT DO NOTHING", "23502"),
    ("INSERT INTO n VALUES (1, 2), (3)", "42601"), ("INSERT INTO n VALUES (1), (2, 3)", "42601"),
    ("INSERT INTO n VALUES (1, 2, 3)", "42601"), ("INSERT INTO n SELECT 1, 2, 3", "42601"),
    ("INSERT INTO n (id, b) VALUES (1)", "42601"), ("INSERT INTO n (id) VALUES (1, 2)", "42601"),
    ("INSERT INTO n (id, b) SELECT 1", "42601"),
    ("INSERT INTO n DEFAULT VALUES", "23502"), ("UPDATE n SET b = DEFAULT", "23502"),
    ("INSERT INTO n VALUES (0) ON CONFLICT (id) DO UPDATE SET b = NULL", "23502"),
    ("INSERT INTO n VALUES (0, 1) ON CONFLICT (id) DO UPDATE SET b = NULL", "23502"),
    ("INSERT INTO n VALUES (1, -1)", "23514"), ("INSERT INTO n VALUES (NULL, -1)", "23502"),
])  # fmt: skip
def test_what_postgres_refuses_is_refused_and_changes_nothing(db: Database, sql: str, sqlstate: str) -> None:
    db.execute("CREATE TABLE n (id INT PRIMARY KEY, b INT NOT NULL CHECK (b >= 0)); INSERT INTO n VALUES (0, 0)")
    with pytest.raises(SqlError) as raised:
        db.execute(sql)
    assert raised.value.sqlstate == sqlstate
    assert db.execute("SELECT * FROM n").fetchall() == [(0, 0)]


_COLUMNS = [("a", "INT", 5), ("b", "TEXT", "given"), ("c", "DOUBLE PRECISION", 1.5), ("d", "BOOLEAN", True)]


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(
    defaults=st.lists(st.booleans(), min_size=4, max_size=4), required=st.lists(st.booleans(), min_size=4, max_size=4),
    inserts=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.sampled_from(["values", "select", "bound"])),
                     min_size=1, max_size=6),
)  # fmt: skip
def test_rows_of_any_length_read_as_a_plain_model_has_them(
    defaults: list[bool], required: list[bool], inserts: list[tuple[int, int, str]]
) -> None:
    """`inserts` are numbers of rows, numbers of values beside the key, and ways to write them."""
    parts = [f"{name} {type}{' NOT NULL' if needed else ''}{f' DEFAULT {value!r}' if default else ''}"
             for (name, type, value), default, needed in zip(_COLUMNS, defaults, required, strict=True)]  # fmt: skip
    expected: dict[int, tuple[Any, ...]] = {}
    with open_database(":memory:") as db:
        db.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(parts)})")
        for rows, width, way in inserts:
            first = len(expected)
            numbers = range(first, first + (1 if way == "bound" else rows))
            missing = list(zip(_COLUMNS, defaults, required, strict=True))[width:]
            absent = tuple(value if default else None for (_, _, value), default, _ in missing)
            given = tuple(value for _, _, value in _COLUMNS[:width])
            texts = [", ".join([str(n), *map(repr, given)]) for n in numbers]
            sql = {"values": "VALUES " + ", ".join(f"({text})" for text in texts),
                   "select": f"SELECT * FROM (VALUES {', '.join(f'({text})' for text in texts)}) AS given",
                   "bound": "VALUES (" + ", ".join("?" * (1 + width)) + ")"}[way]  # fmt: skip
            bound = (first, *given) if way == "bound" else ()
            if any(needed and not default for _, default, needed in missing):
                with pytest.raises(SqlError) as raised:
                    db.execute(f"INSERT INTO t {sql}", bound)
                assert raised.value.sqlstate == "23502"
                continue
            db.execute(f"INSERT INTO t {sql}", bound)
            expected |= dict.fromkeys(numbers, (*given, *absent))
        assert db.execute("SELECT * FROM t ORDER BY id").fetchall() == [(n, *row) for n, row in expected.items()]
        for n, row in expected.items():
            assert db.execute("SELECT * FROM t WHERE id = ?", (n,)).fetchall() == [(n, *row)]
        assert list(db.verify()) == []


def test_no_row_of_another_width_is_encoded(db: Database) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, b INT NOT NULL)")
    table = db.catalog().by_full_name["main.public.t"]
    for row in ((1,), (1, 2, 3)):
        with pytest.raises(Invalid, match="2 values"):
            Rows(table, tuples=[row])
        with pytest.raises(Invalid, match="2 columns"):
            encode_row([Kind.INT64, Kind.INT64], row)
    with pytest.raises(SqlError, match="must not be NULL"):
        Rows(table, tuples=[(1, None)]).values()


@pytest.fixture
def written_short(tmp_path: Path) -> Path:
    path = tmp_path / "short.db"
    path.write_bytes(gzip.decompress(GOLDEN.read_bytes()))
    return path


X = [(1, None), (2, 20), (3, None), (4, None)]
Y = [(1, "one", None, None, None, 7), (2, "two", Decimal("2.25"), None, None, 7), (3, None, None, None, None, 7),
     (4, "four", None, "full", date(2026, 1, 1), 7), (5, "five", Decimal("5.00"), "text", None, 7),
     (6, "six", None, None, None, None)]  # fmt: skip


def test_rows_that_were_stored_short_can_be_read(written_short: Path) -> None:
    with open_database(str(written_short), readonly=True) as db:
        assert db.execute("SELECT * FROM x ORDER BY id").fetchall() == X
        assert db.execute("SELECT * FROM y ORDER BY id").fetchall() == Y
        assert [db.execute("SELECT * FROM x WHERE id = ?", (row[0],)).fetchall() for row in X] == [[row] for row in X]
        assert db.execute("SELECT id, later FROM y WHERE s = 'six'").fetchall() == [(6, None)]
        assert db.execute("SELECT count(*), count(a), count(b) FROM many").fetchall() == [(50, 25, 1)]
        assert [change.after for change in db.changes(1, 2)] == [{"id": 1, "b": None}]


def test_verify_names_the_statement_that_completes_them(written_short: Path) -> None:
    with open_database(str(written_short)) as db:
        told = [f"{each.where}: {each.what}" for each in db.verify()]
        assert "main.public.x: rows were stored without b, which read as NULL: give them values with " \
               "UPDATE main.public.x SET b = … for (id) = (1); (id) = (3); (id) = (4)" in told  # fmt: skip
        assert any("without n, t, d, " in line and "(id) = (1); (id) = (3)" in line for line in told)
        assert any("SET t = DEFAULT, d = DEFAULT for (id) = (2)" in line for line in told)
        assert any("(id) = (19); and 28 more" in line for line in told)
        with pytest.raises(SqlError, match="must not be NULL"):
            db.execute("UPDATE x SET b = DEFAULT WHERE id = 1")
        db.execute("UPDATE x SET b = 0 WHERE id IN (1, 3, 4)")
        db.execute("UPDATE y SET n = DEFAULT, t = DEFAULT, d = DEFAULT WHERE id IN (1, 3)")
        db.execute("UPDATE y SET t = DEFAULT, d = DEFAULT WHERE id = 2; UPDATE y SET d = DEFAULT WHERE id = 5")
        db.execute("DELETE FROM y WHERE id = 6; UPDATE many SET b = DEFAULT WHERE b IS NULL")
        assert list(db.verify()) == []
        assert db.execute("SELECT n, t FROM y WHERE id < 4 ORDER BY id").fetchall() == [
            (Decimal("1.50"), "new"), (Decimal("2.25"), "new"), (Decimal("1.50"), "new")]  # fmt: skip


def test_a_row_that_is_cut_elsewhere_is_damaged() -> None:
    whole = encode_row([Kind.INT64, Kind.UTF8, Kind.BOOLEAN], [1, "text", True])
    ends = {19: 1, 31: 2, len(whole): None}
    for cut in range(len(whole) + 1):
        if cut in ends:
            assert split_row(whole[:cut]).short == ends[cut]
        elif cut != 7:
            with pytest.raises(Corruption):
                split_row(whole[:cut])
    for kind, raw in ((Kind.INT64, b"1"), (Kind.UTF8, b"\0\0\0\5abc"), (Kind.UTF8, b"\0\0\0\1\xff")):
        with pytest.raises(Corruption):
            decode_payload(kind, raw)
