"""The DB-API 2.0 module behaves as PEP 249 says."""

from __future__ import annotations

from datetime import date
from pathlib import Path

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
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 1, "qmark")
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
    assert other.cursor().execute("SELECT count(*) FROM t").fetchone() == (2,)
    connection.cursor().execute("DELETE FROM t")
    connection.close()
    assert other.cursor().execute("SELECT count(*) FROM t").fetchone() == (2,)
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
        ("GRANT ALL ON t TO x", dbapi.NotSupportedError, "0A000"),
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
