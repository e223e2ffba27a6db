"""One writer at a time: the second waits or is told, one that was overtaken is told, and nothing is damaged."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import apsw
import pytest
from pausing import paused

from ontolake import engine
from ontolake.errors import Contended, Fenced, StorageError
from ontolake.storage import Storage, open_storage
from ontolake.storage.conformance.base import wait_until
from ontolake.suites.peers import ProcessPeer

Connect = Callable[..., apsw.Connection]
Start = Callable[..., ProcessPeer]


class Peers:
    """Tasks for other processes are functions of this module."""


def obey(link: Connection, peers: type, url: str, options: dict[str, Any]) -> None:
    """Run what the test sends and answer with the rows, or with the error's name and its fields."""
    connection = engine.connect(url, **options)
    connection.set_busy_timeout(0)
    link.send(os.getpid())
    while (statement := link.recv()) is not None:
        try:
            link.send(connection.execute(statement).fetchall())
        except Fenced as error:
            link.send(("Fenced", error.held, error.current))
        except (apsw.Error, StorageError) as error:
            link.send((type(error).__name__, str(error)))
    connection.close()
    link.send("closed")


def ask(peer: ProcessPeer, statement: str) -> Any:
    peer.tell(statement)
    return peer.hear()


def let_go(peer: ProcessPeer) -> None:
    peer.tell(None)
    assert peer.hear() == "closed"
    peer.end()


def rows(connection: apsw.Connection) -> list[Any]:
    return [x for (x,) in connection.execute("SELECT x FROM t ORDER BY rowid")]


@pytest.fixture
def table(shared_place: str, connect: Connect) -> str:
    """A place with an empty table, which nobody has open."""
    connection = connect(shared_place)
    connection.execute("CREATE TABLE t(x)")
    connection.close()
    return shared_place


# in one process
def test_a_second_writer_is_busy_until_the_first_is_done(place: str, connect: Connect) -> None:
    first, second = connect(place), connect(place)
    first.execute("CREATE TABLE t(x)")
    first.execute("BEGIN IMMEDIATE")
    for statement in ("BEGIN IMMEDIATE", "INSERT INTO t VALUES (2)", "VACUUM"):
        with pytest.raises(apsw.BusyError):
            second.execute(statement)
    assert rows(second) == []
    first.execute("INSERT INTO t VALUES (1); COMMIT")
    second.execute("INSERT INTO t VALUES (2)")
    assert rows(first) == rows(second) == [1, 2]


def test_a_writer_that_waits_gets_its_turn(place: str, connect: Connect) -> None:
    first, second = connect(place), connect(place)
    second.set_busy_timeout(60_000)
    first.execute("CREATE TABLE t(x)")
    first.execute("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)")
    waiting = threading.Thread(target=second.execute, args=("INSERT INTO t VALUES (2)",))
    waiting.start()
    first.execute("COMMIT")
    waiting.join(60)
    assert rows(first) == [1, 2]


def test_a_writer_that_waits_lets_the_other_threads_run(place: str, connect: Connect) -> None:
    first, second = connect(place), connect(place)
    first.execute("CREATE TABLE t(x); BEGIN IMMEDIATE")
    second.set_busy_timeout(60_000)

    def work() -> float:
        """Seconds for something that gives the interpreter away now and then, and has to get it back."""
        begun = time.monotonic()
        for _ in range(20):
            threading.Event().wait(0.001)
        return time.monotonic() - begun

    def quickest() -> float:
        """The best of some: the machine may be busy now and then, but whoever waits waits all the time."""
        return min(work() for _ in range(8))

    alone = quickest()
    waiting = threading.Thread(target=second.execute, args=("INSERT INTO t VALUES (2)",))
    waiting.start()
    beside = quickest()
    first.execute("COMMIT")
    waiting.join(60)
    assert beside < 5 * alone + 0.2, "whoever waits sleeps with the interpreter in hand"


def test_a_reader_whose_snapshot_is_old_cannot_begin_to_write(place: str, connect: Connect) -> None:
    first, second = connect(place), connect(place)
    first.execute("CREATE TABLE t(x)")
    second.execute("BEGIN")
    assert rows(second) == []
    first.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(apsw.BusyError):
        second.execute("INSERT INTO t VALUES (2)")
    assert rows(second) == [], "it can still read what it read before"
    second.execute("ROLLBACK; INSERT INTO t VALUES (2)")
    assert rows(first) == [1, 2]


def test_branches_are_written_side_by_side(place: str, connect: Connect) -> None:
    main = connect(place)
    main.execute("CREATE TABLE t(x)")
    with open_storage(place, create=False) as storage:
        storage.create_branch("side", storage.get_commit_lsn())
    side = connect(place, branch="side")
    main.execute("BEGIN IMMEDIATE; INSERT INTO t VALUES ('main')")
    side.execute("INSERT INTO t VALUES ('side')")
    main.execute("COMMIT; INSERT INTO t VALUES ('more')")
    assert (rows(main), rows(side)) == (["main", "more"], ["side"])


def test_a_writer_that_is_closed_within_its_transaction_lets_others_write(place: str, connect: Connect) -> None:
    first, second = connect(place), connect(place)
    first.execute("CREATE TABLE t(x); BEGIN IMMEDIATE; INSERT INTO t VALUES (1)")
    first.close(True)
    second.execute("INSERT INTO t VALUES (2)")
    assert rows(second) == [2]


# in two processes
@pytest.mark.slow
def test_a_database_that_another_process_writes_to_is_contended(table: str, connect: Connect, start: Start) -> None:
    peer = start(obey, table, {})
    peer.hear()
    assert ask(peer, "INSERT INTO t VALUES (1)") == []
    with pytest.raises(Contended, match=r"being written to by .* until") as refused:
        connect(table)
    assert table in refused.value.message
    assert "takeover=True" in str(refused.value.hint)
    assert rows(connect(table, readonly=True)) == [1]
    let_go(peer)
    connect(table).execute("INSERT INTO t VALUES (2)")


@pytest.mark.slow
def test_a_second_writer_that_was_there_before_is_busy(table: str, connect: Connect, start: Start) -> None:
    connection, peer = connect(table), start(obey, table, {})
    peer.hear()
    assert ask(peer, "INSERT INTO t VALUES (1)") == []
    with pytest.raises(apsw.BusyError):
        connection.execute("INSERT INTO t VALUES (2)")
    assert rows(connection) == [1]
    let_go(peer)
    connection.execute("INSERT INTO t VALUES (2)")
    assert rows(connection) == [1, 2]


def test_who_only_opened_it_is_in_nobodys_way(table: str, connect: Connect, start: Start) -> None:
    peers = [start(obey, table, {}), start(obey, table, {"readonly": True})]
    for peer in peers:
        peer.hear()
        assert ask(peer, "SELECT * FROM t") == []
    connect(table).execute("INSERT INTO t VALUES (1)")
    assert [ask(peer, "SELECT * FROM t") for peer in peers] == [[(1,)], [(1,)]]


def test_a_takeover_fences_the_old_writer_and_damages_nothing(table: str, connect: Connect, start: Start) -> None:
    peer = start(obey, table, {})
    peer.hear()
    assert ask(peer, "INSERT INTO t VALUES ('old')") == []
    assert ask(peer, "BEGIN IMMEDIATE") == ask(peer, "INSERT INTO t VALUES ('late')") == []
    connection = connect(table, takeover=True)
    connection.execute("INSERT INTO t VALUES ('new')")
    kind, held, current = ask(peer, "COMMIT")
    assert kind == "Fenced"
    assert current > held
    assert rows(connection) == ["old", "new"]
    assert ask(peer, "SELECT x FROM t") == [("old",), ("new",)], "it goes on with what is stored"
    assert ask(peer, "INSERT INTO t VALUES ('again')") == ("Fenced", held, current)
    connection.close()
    for _ in range(2):
        assert ask(peer, "INSERT INTO t VALUES ('again')") == ("Fenced", held, current), "though the other has let go"
    assert ask(peer, "SELECT x FROM t") == [("old",), ("new",)]
    assert ask(peer, "PRAGMA integrity_check") == [("ok",)]
    let_go(peer)
    assert rows(connect(table)) == ["old", "new"]


def test_a_takeover_by_somebody_who_has_not_written_yet_fences_too(table: str, connect: Connect, start: Start) -> None:
    peer = start(obey, table, {})
    peer.hear()
    assert ask(peer, "BEGIN IMMEDIATE") == ask(peer, "INSERT INTO t VALUES ('late')") == []
    connection = connect(table, takeover=True)
    assert ask(peer, "COMMIT")[0] == "Fenced", "it must not take the fence back from one who holds it"
    connection.execute("INSERT INTO t VALUES ('new')")
    assert ask(peer, "SELECT x FROM t") == [("new",)]


def test_a_writer_between_transactions_learns_of_a_takeover_by_its_next(
    table: str, connect: Connect, start: Start
) -> None:
    peer = start(obey, table, {})
    peer.hear()
    assert ask(peer, "INSERT INTO t VALUES (1)") == []
    connection = connect(table, takeover=True)
    connection.execute("INSERT INTO t VALUES (2)")
    assert ask(peer, "INSERT INTO t VALUES (3)")[0] == "Fenced"
    assert ask(peer, "SELECT x FROM t") == [(1,), (2,)]
    assert rows(connection) == [1, 2]
    assert ask(peer, "PRAGMA integrity_check") == [("ok",)]


def test_who_was_overtaken_on_another_branch_sees_that_when_it_comes_there(
    table: str, connect: Connect, start: Start
) -> None:
    with open_storage(table, create=False) as storage:
        storage.create_branch("side", storage.get_commit_lsn())
    main = connect(table)
    main.execute("INSERT INTO t VALUES ('main')")
    peer = start(obey, table, {"branch": "side", "takeover": True})
    peer.hear()
    assert ask(peer, "INSERT INTO t VALUES ('side')") == []
    side = connect(table, branch="side", readonly=True)
    with pytest.raises(Fenced):
        main.execute("INSERT INTO t VALUES ('late')")
    assert rows(side) == ["side"]
    let_go(peer)
    with pytest.raises(Fenced):
        main.execute("INSERT INTO t VALUES ('late')")
    side = connect(table, branch="side")
    side.execute("INSERT INTO t VALUES ('then')")
    assert rows(side) == ["side", "then"]


def test_taking_over_again_and_again_loses_nothing(table: str, connect: Connect, start: Start) -> None:
    peer = start(obey, table, {})
    peer.hear()
    written = []
    for i in range(5):
        connection = connect(table, takeover=True)
        connection.execute("INSERT INTO t VALUES (?)", (i,))
        written.append(i)
        if i:
            assert ask(peer, f"INSERT INTO t VALUES ({100 + i})")[0] == "Fenced"
        connection.close()
        let_go(peer)
        peer = start(obey, table, {})
        peer.hear()
        assert ask(peer, f"INSERT INTO t VALUES ({200 + i})") == []
        written.append(200 + i)
    assert rows(connect(table, readonly=True)) == written
    let_go(peer)


def test_a_writer_that_was_killed_is_in_the_way_no_longer_than_its_lease(
    table: str, connect: Connect, start: Start
) -> None:
    peer = start(obey, table, {"fence_lease_ms": 300})
    peer.hear()
    assert ask(peer, "INSERT INTO t VALUES (1)") == []
    peer.kill()
    peer.end()

    def opened() -> bool:
        try:
            connect(table).execute("INSERT INTO t VALUES (2)")
        except (Contended, apsw.BusyError):
            return False
        return True

    wait_until(opened, "the lease of a process that was killed to lapse")
    assert rows(connect(table, readonly=True)) == [1, 2]


def test_closing_the_last_connection_that_may_write_lets_others_write(
    table: str, connect: Connect, start: Start
) -> None:
    writer, reader = connect(table), connect(table, readonly=True)
    writer.execute("INSERT INTO t VALUES (1)")
    writer.close()
    assert rows(reader) == [1]
    peer = start(obey, table, {})
    peer.hear()
    assert ask(peer, "INSERT INTO t VALUES (2)") == []
    assert rows(reader) == [1, 2]
    let_go(peer)


# leases
def fence_until(storage: Storage) -> float:
    fence = storage.current_fence()
    return 0.0 if fence is None else fence.lease_until


def until_lapsed(storage: Storage) -> None:
    wait_until(lambda: time.time() > fence_until(storage), "the lease to lapse")


def test_the_lease_is_renewed_while_a_writer_is_open(place: str, connect: Connect) -> None:
    connection = connect(place, fence_lease_ms=10_000, fence_renew_ms=50)
    connection.execute("CREATE TABLE t(x)")
    with open_storage(place, create=False) as storage:
        fence = storage.current_fence()
        assert fence is not None
        wait_until(lambda: fence_until(storage) > fence.lease_until + 0.2, "the lease to be renewed a few times")
        renewed = storage.current_fence()
        assert renewed is not None
        assert (renewed.epoch, renewed.owner) == (fence.epoch, fence.owner)
        connection.execute("INSERT INTO t VALUES (1)")
        connection.close()
        assert storage.current_fence() is None, "closing lets others write at once"


def test_a_paused_writer_carries_on_if_nobody_took_over(table: str, start: Start) -> None:
    peer = start(obey, table, {"fence_lease_ms": 200})
    pid = peer.hear()
    assert ask(peer, "BEGIN IMMEDIATE") == ask(peer, "INSERT INTO t VALUES (1)") == []
    with open_storage(table, create=False) as storage:
        with paused(pid):
            until_lapsed(storage)
        assert ask(peer, "COMMIT") == [], "the lease had lapsed within the transaction"
        with paused(pid):
            until_lapsed(storage)
    assert ask(peer, "INSERT INTO t VALUES (2)") == [], "and between two"
    assert ask(peer, "SELECT x FROM t") == [(1,), (2,)]
    let_go(peer)


@pytest.mark.parametrize("still_there", [True, False])
def test_a_paused_writer_is_fenced_if_another_has_written(
    still_there: bool, table: str, connect: Connect, start: Start
) -> None:
    peer = start(obey, table, {"fence_lease_ms": 200})
    pid = peer.hear()
    assert ask(peer, "BEGIN IMMEDIATE") == ask(peer, "INSERT INTO t VALUES ('late')") == []
    with open_storage(table, create=False) as storage, paused(pid):
        until_lapsed(storage)
        connection = connect(table)
        connection.execute("INSERT INTO t VALUES ('new')")
        if not still_there:
            connection.close()
    assert ask(peer, "COMMIT")[0] == "Fenced"
    assert ask(peer, "SELECT x FROM t") == [("new",)]
    assert ask(peer, "PRAGMA integrity_check") == [("ok",)]
    assert ask(peer, "INSERT INTO t VALUES ('again')")[0] == "Fenced"
    let_go(peer)


@pytest.mark.parametrize("begun", [True, False])
def test_a_writer_that_was_overtaken_stays_fenced_and_can_be_opened_again(
    begun: bool, place: str, connect: Connect
) -> None:
    connection, beside = connect(place), connect(place)
    connection.execute("CREATE TABLE t(x)")
    if begun:
        connection.execute("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)")
    with open_storage(place, create=False) as storage:
        storage.release_fence(storage.acquire_fence("passer-by"))
    for statement in ("COMMIT" if begun else "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)", "BEGIN IMMEDIATE"):
        with pytest.raises(Fenced, match="has taken over") as refused:
            connection.execute(statement)
        assert "open it again" in str(refused.value.hint)
        assert not connection.in_transaction
    with pytest.raises(Fenced):
        beside.execute("INSERT INTO t VALUES (3)")
    again = connect(place)
    again.execute("INSERT INTO t VALUES (4)")
    for old in (connection, beside):
        with pytest.raises(Fenced):
            old.execute("INSERT INTO t VALUES (5)")
        assert rows(old) == [4]
    connection.close()
    beside.close()
    again.execute("INSERT INTO t VALUES (6)")
    assert rows(again) == [4, 6]


def test_whoever_opens_it_again_after_a_takeover_that_nobody_noticed_can_write(place: str, connect: Connect) -> None:
    old = connect(place)
    old.execute("CREATE TABLE t(x)")
    with open_storage(place, create=False) as storage:
        storage.release_fence(storage.acquire_fence("passer-by"))
    for options in ({}, {"takeover": True}):
        again = connect(place, **options)
        again.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(Fenced):
            old.execute("INSERT INTO t VALUES (2)")
    assert rows(old) == [1, 1]


def test_taking_over_from_oneself_changes_nothing(place: str, connect: Connect) -> None:
    first = connect(place)
    first.execute("CREATE TABLE t(x); BEGIN IMMEDIATE; INSERT INTO t VALUES (1)")
    second = connect(place, takeover=True)
    with pytest.raises(apsw.BusyError):
        second.execute("INSERT INTO t VALUES (2)")
    first.execute("COMMIT")
    second.execute("INSERT INTO t VALUES (2)")
    assert rows(first) == [1, 2]
