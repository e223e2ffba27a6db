"""The DB-API 2.0 module behaves as PEP 249 says."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ontolake.sql import dbapi


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"{tmp_path}/t.db"
    with dbapi.connect(url) as connection:
        connection.cursor().execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, day DATE)")
        rows = [(1, "a", date(2026, 1, 1)), (2, None, None), (3, "c", date(2026, 1, 3))]
        assert connection.cursor().executemany("INSERT INTO t VALUES (?, ?, ?)", rows).rowcount == 3
    connection.close()
    return url


def test_globals() -> None:
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 2, "qmark")
    assert dbapi.TimeFromTicks(0).minute == dbapi.TimestampFromTicks(0).minute
    assert issubclass(dbapi.IntegrityError, dbapi.DatabaseError)
    assert issubclass(dbapi.DatabaseError, dbapi.Error)


def test_fetching(url: str) -> None:
    connection = dbapi.connect(url)
    cursor = connection.cursor()
    cursor.execute("SELECT id, name, day FROM t WHERE id >= ? ORDER BY id", (1,))
    assert cursor.description is not None
    assert [column[0] for column in cursor.description] == ["id", "name", "day"]
    assert cursor.description[0][1] == dbapi.NUMBER
    assert cursor.description[1][1] == dbapi.STRING
    assert cursor.description[2][1] == dbapi.DATETIME
    assert cursor.description[0][1] != dbapi.STRING
    assert cursor.rowcount == 3
    assert cursor.fetchone() == (1, "a", date(2026, 1, 1))
    assert cursor.fetchmany() == [(2, None, None)]
    assert cursor.fetchmany(5) == [(3, "c", date(2026, 1, 3))]
    assert (cursor.fetchone(), cursor.fetchall()) == (None, [])
    assert [row[0] for row in cursor.execute("SELECT id FROM t ORDER BY id DESC")] == [3, 2, 1]
    assert cursor.execute("SELECT count(*) AS n FROM t").fetch_arrow_table().to_pydict() == {"n": [3]}
    connection.close()


def test_transactions(url: str) -> None:
    connection, other = dbapi.connect(url), dbapi.connect(url, readonly=True)
    connection.cursor().execute("DELETE FROM t")
    assert other.cursor().execute("SELECT count(*) FROM t").fetchone() == (3,)
    connection.rollback()
    connection.cursor().execute("DELETE FROM t WHERE id = 1")
    connection.commit()
    assert other.cursor().execute("SELECT count(*) FROM t").fetchone() == (3,)  # one transaction sees one state
    other.rollback()
    assert other.cursor().execute("SELECT count(*) FROM t").fetchone() == (2,)
    other.commit()
    connection.cursor().execute("DELETE FROM t")
    connection.close()
    assert other.cursor().execute("SELECT count(*) FROM t").fetchone() == (2,)
    other.commit()
    automatic = dbapi.connect(url, autocommit=True)
    automatic.cursor().execute("DELETE FROM t")
    assert other.cursor().execute("SELECT count(*) FROM t").fetchone() == (0,)
    automatic.close()
    other.close()


def test_errors(url: str) -> None:
    connection = dbapi.connect(url)
    cursor = connection.cursor()
    cases: list[tuple[str, type[dbapi.Error], str]] = [
        ("SELEC", dbapi.ProgrammingError, "42601"), ("SELECT * FROM x", dbapi.ProgrammingError, "42P01"),
        ("INSERT INTO t VALUES (1, 'a', NULL)", dbapi.IntegrityError, "23505"),
        ("INSERT INTO t VALUES ('x', 'a', NULL)", dbapi.DataError, "22P02"),
        ("GRANT ALL ON t TO x", dbapi.NotSupportedError, "0A000"), ("SELECT 1/0", dbapi.DataError, "22012"),
        ("SELECT ?", dbapi.ProgrammingError, "07001"), ("RELEASE x", dbapi.ProgrammingError, "3B001"),
        ("COPY t FROM 'nowhere'", dbapi.OperationalError, "58P01"),
        ("SELECT 1; SELECT 2 SELECT", dbapi.ProgrammingError, "42601"), (" -- ;", dbapi.ProgrammingError, "42601"),
    ]  # fmt: skip
    for sql, kind, state in cases:
        with pytest.raises(kind) as raised:
            cursor.execute(sql)
        assert raised.value.sqlstate == state
        connection.rollback()
    with pytest.raises(dbapi.ProgrammingError):
        cursor.fetchall()
    connection.close()
    with pytest.raises(dbapi.InterfaceError):
        connection.cursor()
    with pytest.raises(dbapi.OperationalError):
        dbapi.connect(f"{url}.missing.db", readonly=True)


def test_values_go_in_and_come_out() -> None:
    values: list[tuple[str, Any, Any]] = [
        ("UUID", UUID(int=7), dbapi.STRING), ("INTERVAL", timedelta(days=1, seconds=2), dbapi.DATETIME),
        ("JSONB", {"a": [1, None]}, None), ("INTEGER[]", [1, 2, None], None),
        ("NUMERIC", Decimal("1.50"), dbapi.NUMBER),
        ("NUMERIC(5, 2)", Decimal("1.25"), dbapi.NUMBER), ("TIME", time(1, 2, 3), dbapi.DATETIME),
        ("TIMESTAMP", datetime(2026, 1, 2, 3, 4, 5, 6), dbapi.DATETIME), ("DATE", date(2026, 1, 2), dbapi.DATETIME),
        ("TIMESTAMPTZ", datetime(2026, 1, 2, tzinfo=UTC), dbapi.DATETIME), ("BYTEA", b"\0x", dbapi.BINARY),
        ("BOOLEAN", True, dbapi.NUMBER), ("REAL", 0.5, dbapi.NUMBER), ("CHAR(3)", "abc", dbapi.STRING),
    ]  # fmt: skip
    connection = dbapi.connect(":memory:")
    cursor = connection.cursor()
    columns = ", ".join(f"c{n} {name}" for n, (name, _, _) in enumerate(values))
    cursor.execute(f"CREATE TABLE v (id INTEGER PRIMARY KEY, {columns})")
    marks = ", ".join("?" * len(values))
    cursor.execute(f"INSERT INTO v VALUES (1, {marks})", tuple(value for _, value, _ in values))
    for n, (name, value, group) in enumerate(values):
        assert cursor.execute(f"SELECT c{n} FROM v WHERE c{n} = ?", (value,)).fetchall() == [(value,)], name
        assert cursor.description is not None
        assert group is None or cursor.description[0][1] == group, name
    cursor.execute("SELECT c5 FROM v")
    assert cursor.description is not None
    assert cursor.description[0][4:6] == (5, 2)
    connection.close()


def test_many_rows(url: str) -> None:
    connection = dbapi.connect(url)
    cursor = connection.cursor()
    cursor.executemany("INSERT INTO t (id) VALUES (?)", ((id,) for id in range(10, 60)))
    assert (cursor.rowcount, cursor.description) == (50, None)
    with pytest.raises(dbapi.ProgrammingError):
        cursor.fetchone()
    cursor.arraysize = 20
    cursor.execute("SELECT id FROM t WHERE id >= 10 ORDER BY id")
    assert [len(cursor.fetchmany()) for _ in range(4)] == [20, 20, 10, 0]
    connection.rollback()
    assert cursor.execute("SELECT count(*) FROM t").fetchone() == (3,)
    with pytest.raises(dbapi.IntegrityError):
        cursor.executemany("INSERT INTO t (id) VALUES (?)", [(7,), (7,)])
    with pytest.raises(dbapi.InternalError) as raised:
        cursor.execute("SELECT 1")
    assert raised.value.sqlstate == "25P02"
    connection.rollback()
    cursor.execute("SELECT DATE '0044-03-15 BC' AS d")
    with pytest.raises(dbapi.DataError):
        cursor.fetchone()
    connection.close()


def test_connections_to_one_place_are_independent(place: str) -> None:
    """Two in one thread, each with its own transaction, on every kind of place."""
    one, two = dbapi.connect(place), dbapi.connect(place)
    one.cursor().execute("CREATE TABLE t (id INT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 0), (2, 0)")
    with pytest.raises(dbapi.ProgrammingError):
        two.cursor().execute("SELECT * FROM t")
    two.rollback()
    one.commit()
    one.cursor().execute("UPDATE t SET n = 1 WHERE id = 1")
    two.cursor().execute("UPDATE t SET n = 2 WHERE id = 2")
    two.commit()
    one.close()  # which rolls back
    assert two.cursor().execute("SELECT n FROM t ORDER BY id").fetchall() == [(0,), (2,)]
    two.close()
    three = dbapi.connect(place)
    assert three.cursor().execute("SELECT count(*) FROM t").fetchone() == (2,)
    three.close()


def test_a_transaction_goes_from_thread_to_thread(url: str) -> None:
    connection = dbapi.connect(url)
    connection.cursor().execute("DELETE FROM t WHERE id = 1")

    def elsewhere(work: Callable[[], object]) -> object:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(work).result()

    assert elsewhere(lambda: connection.cursor().execute("SELECT count(*) FROM t").fetchone()) == (2,)
    elsewhere(connection.commit)
    assert connection.cursor().execute("SELECT count(*) FROM t").fetchone() == (2,)
    connection.close()
    memory = dbapi.connect(":memory:")
    memory.cursor().execute("CREATE TEMP TABLE t (id INT)")
    assert elsewhere(lambda: memory.cursor().execute("SELECT count(*) FROM t").fetchone()) == (0,)
    elsewhere(memory.close)


def test_threads_share_a_connection(url: str) -> None:
    connection = dbapi.connect(url)

    def insert(start: int) -> None:
        for id in range(start, start + 20):
            connection.cursor().execute("INSERT INTO t (id) VALUES (?)", (id,))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(insert, (100, 200, 300, 400)))
    connection.commit()
    assert connection.cursor().execute("SELECT count(*) FROM t WHERE id >= 100").fetchone() == (80,)
    connection.close()


def test_no_other_error_comes_through(url: str) -> None:
    connection = dbapi.connect(url)
    cursor = connection.cursor()
    wrong: list[tuple[Any, Any]] = [
        (None, ()), (b"SELECT 1", ()), ([], ()), ("SELECT ?", 7), ("SELECT ?", "x"), ("SELECT ?", None),
        ("SELECT ?", {1}),
        ("SELECT ?", (object(),)), ("SELECT ?", ()), ("SELECT :a", {"b": 1}), ("SELECT ?", {"a": 1}),
        ("SELECT 1; SELECT ?", (1,)), ("SELECT ?::date", ("x" * 100,)), ("SELECT ?::int", (10**400,)),
        ("SELECT ?", ([[1], [2, 3]],)), ("SELECT ?", ("\ud800",)), ("SELECT ?::jsonb", ("{",)),
        ("SELECT " + "(" * 3000 + "1" + ")" * 3000, ()), ("CALL onto_checkout('nowhere')", ()), ("USE nowhere", ()),
        ("COPY t TO '/nowhere/at/all.csv'", ()), ("SELECT * FROM generate_series(1, 10, 0)", ()),
    ]  # fmt: skip
    for sql, parameters in wrong:
        with pytest.raises(dbapi.Error):
            cursor.execute(sql, parameters)
        connection.rollback()
    for many in (7, [7], [None], [("x",)]):
        with pytest.raises(dbapi.Error):
            cursor.executemany("INSERT INTO t (id) VALUES (?)", many)  # type: ignore[arg-type]
        connection.rollback()
    with pytest.raises(dbapi.ProgrammingError, match="several statements"):
        cursor.executemany("SELECT 1; SELECT 2", [])
    assert cursor.execute("SELECT count(*) FROM t").fetchone() == (3,)
    connection.close()
    for call in (connection.close, connection.commit, connection.rollback, connection.cursor, connection.catalogs,
                 cursor.fetchone, cursor.fetchall, cursor.nextset, lambda: cursor.execute("SELECT 1")):  # fmt: skip
        with pytest.raises(dbapi.InterfaceError):
            call()
    for place in (7, "", "nowhere", "x://y", f"{url}/t.db"):
        with pytest.raises(dbapi.Error):
            dbapi.connect(place)  # type: ignore[arg-type]
    with pytest.raises(dbapi.InterfaceError, match="cash"):
        dbapi.connect(url, cash=1)


def test_a_failed_statement_fails_the_transaction(url: str) -> None:
    connection = dbapi.connect(url)
    for sql in ("SELEC", "SELECT 1/0"):
        connection.cursor().execute("DELETE FROM t")
        with pytest.raises(dbapi.Error):
            connection.cursor().execute(sql)
        with pytest.raises(dbapi.InternalError):
            connection.cursor().execute("SELECT 1")
        connection.commit()  # which rolls back, as in PostgreSQL
        assert connection.cursor().execute("SELECT count(*) FROM t").fetchone() == (3,)
        connection.rollback()
    connection.close()
