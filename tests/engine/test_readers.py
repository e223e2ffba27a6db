"""A reader sees one commit from the first statement of its transaction to the last, whatever a writer does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import apsw
import pytest

from ontolake import engine, faults
from ontolake.storage import open_storage
from ontolake.storage.conformance.base import until_clock
from ontolake.suites.peers import ProcessPeer

Connect = Callable[..., apsw.Connection]
Start = Callable[..., ProcessPeer]
ACCOUNTS, TOTAL = 20, 2000


class Peers:
    """Tasks for other processes are functions of this module."""


def look(link: Connection, peers: type, url: str, options: dict[str, Any]) -> None:
    """Run the statements that the test sends and answer with their rows or the name of their error."""
    connection = engine.connect(url, **options)
    connection.set_busy_timeout(0)
    link.send("ready")
    while (statement := link.recv()) is not None:
        try:
            link.send(connection.execute(statement).fetchall())
        except apsw.Error as error:
            link.send(type(error).__name__)
    connection.close()


def audit(link: Connection, peers: type, url: str) -> None:
    """Add everything up until told to stop, each time in a transaction, and answer with the sums that were found.

    Says so after the fifth time.
    """
    connection = engine.connect(url, readonly=True)
    link.send("ready")
    found: set[tuple[int, int]] = set()
    rounds = 0
    while not link.poll():
        rounds += 1
        if rounds == 5:
            link.send("at it")
        with connection:
            count, total = connection.execute("SELECT count(*), sum(balance) FROM account").get
            more = connection.execute("SELECT sum(balance) FROM account NOT INDEXED WHERE id > 0").get
            found |= {(count, total), (count, more)}
    connection.close()
    link.send(found)


def bank(connection: apsw.Connection) -> None:
    with connection:
        connection.execute("CREATE TABLE account(id INTEGER PRIMARY KEY, balance, padding)")
        connection.execute("CREATE INDEX by_balance ON account(balance)")
        for i in range(1, ACCOUNTS + 1):
            connection.execute("INSERT INTO account VALUES (?, ?, zeroblob(1500))", (i, TOTAL // ACCOUNTS))


def move(connection: apsw.Connection, i: int) -> None:
    with connection:
        connection.execute("UPDATE account SET balance = balance - ? WHERE id = ?", (i, 1 + i % ACCOUNTS))
        connection.execute("UPDATE account SET balance = balance + ? WHERE id = ?", (i, 1 + 7 * i % ACCOUNTS))


def test_a_reader_keeps_its_snapshot_while_others_commit(place: str, connect: Connect) -> None:
    writer, reader = connect(place), connect(place, readonly=True)
    writer.execute("CREATE TABLE t(x); INSERT INTO t VALUES (1)")
    reader.execute("BEGIN")
    assert reader.execute("SELECT x FROM t").fetchall() == [(1,)]
    writer.execute("INSERT INTO t VALUES (2); CREATE TABLE later(y); DELETE FROM t WHERE x = 1")
    assert reader.execute("SELECT x FROM t").fetchall() == [(1,)]
    assert reader.execute("SELECT count(*) FROM sqlite_schema").get == 1
    reader.execute("COMMIT")
    assert reader.execute("SELECT x FROM t").fetchall() == [(2,)]


def test_a_statement_that_is_half_read_goes_on_from_its_snapshot(place: str, connect: Connect) -> None:
    writer, reader = connect(place), connect(place, readonly=True)
    writer.execute("CREATE TABLE t(x)")
    with writer:
        writer.executemany("INSERT INTO t VALUES (?)", ((f"{i:01000}",) for i in range(200)))
    reader.execute("PRAGMA cache_size=2")
    rows = reader.execute("SELECT x FROM t")
    seen = [next(rows)]
    writer.execute("UPDATE t SET x = 'changed'; VACUUM")
    seen += rows
    assert [int(x) for (x,) in seen] == list(range(200))
    assert reader.execute("SELECT DISTINCT x FROM t").fetchall() == [("changed",)]


def test_readers_see_nothing_of_a_transaction_under_way(place: str, connect: Connect) -> None:
    writer, reader = connect(place), connect(place, readonly=True)
    writer.execute("CREATE TABLE t(x)")
    writer.execute("PRAGMA cache_size=5; BEGIN")
    with writer:
        writer.executemany("INSERT INTO t VALUES (?)", ((b"x" * 900,) for _ in range(300)))
    assert reader.execute("SELECT count(*) FROM t").get == 0
    writer.execute("COMMIT")
    assert reader.execute("SELECT count(*) FROM t").get == 300


def test_a_connection_sees_its_own_writes_at_once(place: str, connect: Connect) -> None:
    first, second = connect(place), connect(place)
    first.execute("CREATE TABLE t(x)")
    for i in range(5):
        (first if i % 2 else second).execute("INSERT INTO t VALUES (?)", (i,))
        for connection in (first, second):
            assert connection.execute("SELECT max(x), count(*) FROM t").get == (i, i + 1)


def test_a_snapshot_is_kept_across_processes(shared_place: str, connect: Connect, start: Start) -> None:
    writer = connect(shared_place)
    writer.execute("CREATE TABLE t(x); INSERT INTO t VALUES (1)")
    peer = start(look, shared_place, {"readonly": True})
    assert peer.hear() == "ready"

    def ask(statement: str) -> Any:
        peer.tell(statement)
        return peer.hear()

    ask("BEGIN")
    assert ask("SELECT x FROM t") == [(1,)]
    writer.execute("UPDATE t SET x = 2")
    assert ask("SELECT x FROM t") == [(1,)]
    ask("COMMIT")
    assert ask("SELECT x FROM t") == [(2,)], "a new transaction sees what was committed before it"
    assert ask("INSERT INTO t VALUES (3)") == "ReadOnlyError"
    peer.tell(None)
    peer.end()


def test_sums_add_up_in_other_processes_while_money_moves(shared_place: str, connect: Connect, start: Start) -> None:
    writer = connect(shared_place)
    bank(writer)
    peers = [start(audit, shared_place) for _ in range(2)]
    for peer in peers:
        assert peer.hear() == "ready"
    moved = 0
    while moved < 20 or not all(peer.link.poll() for peer in peers):
        move(writer, moved)
        moved += 1
    for peer in peers:
        assert peer.hear() == "at it"
        peer.tell("stop")
        assert peer.hear() == {(ACCOUNTS, TOTAL)}
        peer.end()
    assert writer.execute("PRAGMA integrity_check").get == "ok"


def test_threads_with_a_connection_each_read_and_write(place: str, connect: Connect) -> None:
    bank(connect(place))
    problems: list[object] = []
    done = threading.Event()

    def read() -> None:
        try:
            connection = engine.connect(place, readonly=True)
            while not done.wait(0.001):  # a breath, since a thread that spins keeps the others from running
                found = connection.execute("SELECT count(*), sum(balance) FROM account").get
                if found != (ACCOUNTS, TOTAL):
                    problems.append(found)
            connection.close()
        except BaseException as error:
            problems.append(error)

    def write(seed: int) -> None:
        try:
            connection = engine.connect(place)
            connection.set_busy_timeout(60_000)
            for i in range(15):
                connection.execute("BEGIN IMMEDIATE")
                move(connection, seed + i)
                connection.execute("COMMIT")
            connection.close()
        except BaseException as error:
            problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    writers = [threading.Thread(target=write, args=(100 * n,)) for n in range(3)]
    for thread in [*readers, *writers]:
        thread.start()
    for thread in writers:
        thread.join(120)
    done.set()
    for thread in readers:
        thread.join(120)
    assert problems == []
    assert connect(place).execute("PRAGMA integrity_check").get == "ok"


def test_one_connection_can_go_from_thread_to_thread(place: str, connect: Connect) -> None:
    connection = connect(place)
    connection.execute("CREATE TABLE t(x)")
    for i in range(3):
        thread = threading.Thread(target=connection.execute, args=("INSERT INTO t VALUES (?)", (i,)))
        thread.start()
        thread.join(60)
    assert connection.execute("SELECT count(*) FROM t").get == 3


def test_readers_do_not_wait_for_a_commit_of_their_own_process(shared_place: str, connect: Connect) -> None:
    writer, reader = connect(shared_place), connect(shared_place, readonly=True)
    writer.execute("CREATE TABLE t(x)")
    reached, go_on = threading.Event(), threading.Event()

    def pause(step: str) -> None:
        if threading.current_thread() is thread and not reached.is_set():
            reached.set()
            assert go_on.wait(200)

    thread = threading.Thread(target=writer.execute, args=("INSERT INTO t VALUES (1)",))
    with faults.arm(pause):
        thread.start()
        assert reached.wait(60)
        until_clock(time.time() + 0.05)  # until what the last commit told is no longer believed by itself
        answers: list[Any] = []
        reading = threading.Thread(target=lambda: answers.append(reader.execute("SELECT count(*) FROM t").get))
        reading.start()
        reading.join(120)
        waited = reading.is_alive()
        go_on.set()
        thread.join(60)
        reading.join(60)
    assert not waited
    assert answers == [0]
    assert reader.execute("SELECT count(*) FROM t").get == 1


@pytest.mark.parametrize("what", ["readonly", "at"])
def test_those_who_only_read_never_take_the_fence(what: str, place: str, connect: Connect) -> None:
    connection = connect(place)
    connection.execute("CREATE TABLE t(x); INSERT INTO t VALUES (1)")
    connection.close()
    with open_storage(place, create=False) as storage:
        token = storage.acquire_fence("somebody else")
        lsn = storage.get_commit_lsn()
        reader = connect(place, readonly=True) if what == "readonly" else connect(place, at=lsn)
        reader.execute("CREATE TEMP TABLE mine(x)")
        assert reader.execute("SELECT x FROM t").fetchall() == [(1,)]
        reader.execute("BEGIN IMMEDIATE; ROLLBACK")
        for statement in ("INSERT INTO t VALUES (2)", "CREATE TABLE u(x)", "VACUUM", "PRAGMA user_version=7"):
            with pytest.raises(apsw.ReadOnlyError):
                reader.execute(statement).fetchall()
        assert reader.readonly("main")
        assert storage.current_fence() == token
        storage.renew_fence(token)
        assert storage.get_commit_lsn() == lsn
