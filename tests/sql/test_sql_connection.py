"""Connections of a database: what each has of its own, on whichever thread it is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ontolake.errors import Invalid
from ontolake.sql import (
    Database,
    SerializationError,
    SqlConnection,
    SqlError,
    TransactionError,
    UnknownNameError,
    UnsupportedError,
    open_database,
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(str(tmp_path / "shop.db")) as found:
        found.execute("CREATE TABLE item (id INT PRIMARY KEY, price INT)")
        found.execute("INSERT INTO item VALUES (1, 10), (2, 20)")
        yield found


@pytest.fixture
def connection(database: Database) -> Iterator[SqlConnection]:
    with database.connect(author="ann") as found:
        assert isinstance(found, SqlConnection)
        yield found


def elsewhere(run: Callable[[], Any]) -> Any:
    """What a function returns on a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


def rows(connection: Database, sql: str) -> list[tuple[Any, ...]]:
    return connection.execute(sql).fetchall()


def test_a_transaction_goes_from_thread_to_thread(database: Database, connection: SqlConnection) -> None:
    connection.execute("BEGIN")
    elsewhere(lambda: connection.execute("UPDATE item SET price = 11 WHERE id = 1"))
    assert rows(connection, "SELECT price FROM item ORDER BY id") == [(11,), (20,)]
    assert rows(database, "SELECT price FROM item ORDER BY id") == [(10,), (20,)]
    elsewhere(lambda: connection.execute("COMMIT"))
    assert not connection.in_transaction
    assert rows(database, "SELECT price FROM item ORDER BY id") == [(11,), (20,)]


def test_connections_of_one_thread_have_transactions_of_their_own(database: Database) -> None:
    with database.connect() as first, database.connect() as second:
        for each in (first, second):
            each.execute("BEGIN")
            each.execute("SELECT sum(price) FROM item")
            each.execute("INSERT INTO item SELECT 3, sum(price) FROM item")
        first.execute("COMMIT")
        with pytest.raises(SerializationError):
            second.execute("COMMIT")
    assert rows(database, "SELECT price FROM item ORDER BY id") == [(10,), (20,), (30,)]


def test_what_connections_commit_has_their_author(database: Database, connection: SqlConnection) -> None:
    connection.execute("INSERT INTO item VALUES (3, 30)")
    connection.execute("BEGIN")
    connection.execute("INSERT INTO item VALUES (4, 40)")
    connection.execute("INSERT INTO item VALUES (5, 50)")
    connection.execute("COMMIT")
    connection.execute("INSERT INTO item VALUES (6, 60)", author="bob", message="six")
    database.execute("INSERT INTO item VALUES (7, 70)")
    assert [(each.author, each.message) for each in database.commits(since=2)] == [
        (None, None), ("bob", "six"), ("ann", None), ("ann", None)]  # fmt: skip


def test_settings_statements_cursors_and_temporary_tables_are_of_one_connection(database: Database) -> None:
    database.execute("CREATE SCHEMA other")
    with database.connect() as first, database.connect() as second:
        first.execute("SET search_path = other; SET application_name = 'one'")
        first.execute("PREPARE p AS SELECT 1")
        first.execute("CREATE TEMP TABLE t (a INT)")
        first.execute("DECLARE c CURSOR WITH HOLD FOR SELECT 1")
        assert rows(second, "SHOW search_path") == [("public",)]
        assert rows(second, "SHOW application_name") == [("",)]
        assert rows(second, "SELECT count(*) FROM item") == [(2,)]
        with pytest.raises(UnknownNameError):
            first.execute("SELECT count(*) FROM item")
        for sql in ("EXECUTE p", "SELECT * FROM t", "FETCH c"):
            first.execute(sql)
            with pytest.raises(UnknownNameError):
                second.execute(sql)


def test_temporary_tables_are_in_the_transaction_on_any_thread(connection: SqlConnection) -> None:
    elsewhere(lambda: connection.execute("CREATE TEMP TABLE t (a INT)"))
    elsewhere(lambda: connection.execute("BEGIN"))
    connection.execute("INSERT INTO t VALUES (1)")
    elsewhere(lambda: connection.execute("ROLLBACK"))
    assert elsewhere(lambda: rows(connection, "SELECT * FROM t")) == []
    connection.execute("BEGIN")
    elsewhere(lambda: connection.execute("INSERT INTO t VALUES (2)"))
    elsewhere(lambda: connection.execute("COMMIT"))
    assert rows(connection, "SELECT * FROM t") == [(2,)]


def test_an_error_fails_the_transaction_until_it_ends(connection: SqlConnection) -> None:
    connection.execute("BEGIN")
    connection.execute("INSERT INTO item VALUES (3, 30)")
    with pytest.raises(SqlError):
        elsewhere(lambda: connection.execute("SELECT 1 / 0"))
    with pytest.raises(TransactionError) as refused:
        connection.execute("SELECT 1")
    assert refused.value.sqlstate == "25P02"
    assert connection.execute("COMMIT").status == "ROLLBACK"
    assert rows(connection, "SELECT count(*) FROM item") == [(2,)]


def test_closing_rolls_back_and_leaves_the_database_open(database: Database) -> None:
    connection = database.connect()
    connection.execute("BEGIN")
    connection.execute("DELETE FROM item")
    connection.close()
    connection.close()
    with pytest.raises(Invalid):
        connection.execute("SELECT 1")
    assert rows(database, "SELECT count(*) FROM item") == [(2,)]
    with database.connect() as other:
        other.execute("BEGIN")
        other.execute("DELETE FROM item WHERE id = 1")
        other.execute("COMMIT")
    assert rows(database, "SELECT count(*) FROM item") == [(1,)]


def test_a_connection_goes_to_another_branch_alone(database: Database, connection: SqlConnection) -> None:
    database.branches.create("try")
    connection.checkout("try")
    connection.execute("DELETE FROM item")
    assert rows(connection, "SELECT count(*) FROM item") == [(0,)]
    assert rows(database, "SELECT count(*) FROM item") == [(2,)]


def test_canceling_ends_the_statement_of_one_connection(database: Database, connection: SqlConnection) -> None:
    raised: list[SqlError] = []

    def run() -> None:
        with pytest.raises(SqlError) as caught:
            connection.execute("SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b")
        raised.append(caught.value)

    thread = threading.Thread(target=run)
    thread.start()
    with database.connect() as other:
        while not connection.interrupt():
            assert not other.interrupt()
        assert other.cancel() == 0
        connection.cancel()
    thread.join()
    assert raised[0].sqlstate == "57014"
    assert rows(connection, "SELECT 1") == [(1,)]


def test_a_database_in_memory_has_no_connections() -> None:
    with open_database(":memory:") as database, pytest.raises(UnsupportedError):
        database.connect()
