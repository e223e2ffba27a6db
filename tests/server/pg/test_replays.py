"""Transactions that lose a race: run again where the client cannot tell the difference, refused where it can."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pg_serving import PgServed, pg_serving
from psycopg.errors import SerializationFailure

from ontolake.sql import open_database

Pair = tuple[psycopg.Connection[Any], psycopg.Connection[Any]]


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PgServed]:
    url = str(tmp_path_factory.mktemp("wire") / "bank.db")
    with open_database(url) as database:
        database.execute("CREATE TABLE account (id INT PRIMARY KEY, amount INT NOT NULL)")
        database.execute("CREATE TABLE entry (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
                         "account INT, at TIMESTAMP)")
    with pg_serving({"bank": url}) as found:
        yield found


@pytest.fixture
def pair(wire: PgServed) -> Iterator[Pair]:
    with wire.connect("bank", autocommit=False) as one, wire.connect("bank", autocommit=False) as other:
        one.execute("DELETE FROM account")
        one.execute("DELETE FROM entry")
        one.execute("INSERT INTO account VALUES (1, 100), (2, 100)")
        one.commit()
        yield one, other


def amounts(connection: psycopg.Connection[Any]) -> list[int]:
    found = [row[0] for row in connection.execute("SELECT amount FROM account ORDER BY id")]
    connection.rollback()
    return found


@pytest.mark.parametrize("prepare", [False, True])
def test_two_that_add_to_one_row_both_succeed(pair: Pair, prepare: bool) -> None:
    one, other = pair
    for connection, by in ((one, 10), (other, 5)):
        connection.execute("UPDATE account SET amount = amount + %s WHERE id = 1", (by,), prepare=prepare)
        connection.execute("INSERT INTO entry (account, at) VALUES (1, CURRENT_TIMESTAMP)", prepare=prepare)
    one.commit()
    other.commit()
    assert amounts(one) == [115, 100]
    assert one.execute("SELECT count(*) FROM entry").fetchall() == [(2,)]


@pytest.mark.parametrize("binary", [False, True])
def test_one_that_has_read_what_changed_is_refused(pair: Pair, binary: bool) -> None:
    one, other = pair
    for connection in pair:
        connection.cursor(binary=binary).execute("SELECT amount FROM account WHERE id = 1").fetchall()
        connection.execute("UPDATE account SET amount = 1 WHERE id = 2")
    one.execute("UPDATE account SET amount = 101 WHERE id = 1")
    one.commit()
    with pytest.raises(SerializationFailure):
        other.commit()
    assert amounts(other) == [101, 1]


def test_one_that_was_given_a_row_that_is_another_now_is_refused(pair: Pair) -> None:
    one, other = pair
    for connection in pair:
        found = connection.execute("UPDATE account SET amount = amount + 1 WHERE id = 1 RETURNING amount").fetchall()
        assert found == [(101,)]
    one.commit()
    with pytest.raises(SerializationFailure):
        other.commit()
    assert amounts(one) == [101, 100]


def test_one_that_would_change_another_number_of_rows_is_refused(pair: Pair) -> None:
    one, other = pair
    assert other.execute("DELETE FROM account WHERE amount < 200").rowcount == 2
    one.execute("UPDATE account SET amount = 300 WHERE id = 1")
    one.commit()
    with pytest.raises(SerializationFailure):
        other.commit()
    assert amounts(one) == [300, 100]


def test_one_that_would_fail_now_is_refused(pair: Pair) -> None:
    one, other = pair
    for connection in pair:
        connection.execute("INSERT INTO account VALUES (3, 0)")
    one.commit()
    with pytest.raises((SerializationFailure, psycopg.errors.UniqueViolation)):
        other.commit()
    assert amounts(one) == [100, 100, 0]


def test_write_skew_is_refused(pair: Pair) -> None:
    for place, connection in enumerate(pair, 1):
        assert connection.execute("SELECT sum(amount) FROM account").fetchall() == [(200,)]
        connection.execute("UPDATE account SET amount = amount - 150 WHERE id = %s", (place,))
    pair[0].commit()
    with pytest.raises(SerializationFailure):
        pair[1].commit()
    assert amounts(pair[0]) == [-50, 100]


def test_one_with_a_savepoint_is_refused(pair: Pair) -> None:
    one, other = pair
    for connection in pair:
        connection.execute("UPDATE account SET amount = amount + 1 WHERE id = 1")
        connection.execute("SAVEPOINT a")
    one.commit()
    with pytest.raises(SerializationFailure):
        other.commit()


def test_many_clients_add_to_one_row_and_nothing_is_lost(wire: PgServed, pair: Pair) -> None:
    def add() -> None:
        with wire.connect("bank", autocommit=False) as connection:
            for _ in range(10):
                connection.execute("UPDATE account SET amount = amount + 1 WHERE id = 1")
                connection.execute("INSERT INTO entry (account) VALUES (1)")
                connection.commit()

    threads = [threading.Thread(target=add) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert amounts(pair[0]) == [160, 100]
    assert pair[0].execute("SELECT count(*) FROM entry").fetchall() == [(60,)]
