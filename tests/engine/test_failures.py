"""When a write or a read fails, the connection stays usable: at the old state, or at the new one, never between."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from marking import slow_after

from ontolake import faults
from ontolake.engine import database
from ontolake.errors import Corruption, DurabilityUnconfirmed, Fenced, NotFound, StorageError, Transient
from ontolake.objects import ObjectStore, cas, open_store
from ontolake.objects.testing import Fault, FaultyStore
from ontolake.storage import ObjectStorage, open_storage
from ontolake.storage.conformance.base import wait_until

Connect = Callable[..., apsw.Connection]
Behind = Callable[[Callable[[ObjectStore], ObjectStore]], str]
QUIET = {"fence_lease_ms": 36_000_000, "maintenance": "off", "cache_bytes": 0}
"""No renewal and no housekeeping, so that the steps of a commit are all there is, and reads that really read."""


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected faults are over at once, so there is nothing to wait for."""
    monkeypatch.setattr(cas, "FIRST_WAIT", 0.0001)
    monkeypatch.setattr(database, "_WAITS", (*[0.0001 for _ in database._WAITS[:-1]], None))


def prepare(connection: apsw.Connection) -> None:
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x); CREATE INDEX by_x ON t(x)")
    with connection:
        connection.executemany("INSERT INTO t(x) VALUES (?)", (("a" * 700,) for _ in range(40)))


def change(connection: apsw.Connection) -> None:
    """A transaction of many pages that shows wherever one looks."""
    with connection:
        connection.execute("UPDATE t SET x = 'b' || substr(x, 2)")
        connection.execute("INSERT INTO t(x) SELECT x FROM t WHERE id <= 10")


def state(connection: apsw.Connection) -> tuple[Any, ...]:
    found = connection.execute("SELECT substr(x, 1, 1), count(*) FROM t GROUP BY 1").fetchall()
    indexed = connection.execute("SELECT count(*) FROM t INDEXED BY by_x WHERE x < 'b'").get
    assert connection.execute("PRAGMA integrity_check").get == "ok"
    return found, indexed


OLD = ([("a", 40)], 40)
NEW = ([("b", 50)], 0)


def check_usable(connection: apsw.Connection, other: apsw.Connection, expected: set[str]) -> str:
    """Both connections are at one state, which is one of those expected, and can be written to."""
    assert not connection.in_transaction
    found = state(connection)
    assert found in (OLD, NEW)
    name = "old" if found == OLD else "new"
    assert name in expected
    assert state(other) == found
    # The other one goes first: what the failed one still believed would now look current to it.
    other.execute("INSERT INTO t(id, x) VALUES (100, 'other')")
    assert connection.execute("SELECT x FROM t WHERE id = 100").get == "other"
    connection.execute("DELETE FROM t WHERE id = 100")
    assert state(other) == state(connection) == found
    return name


def error_of(action: Callable[[], object]) -> BaseException | None:
    try:
        action()
    except BaseException as error:
        return error
    return None


class Interrupted(BaseException):
    """Like Ctrl-C at the worst moment."""


class Failing:
    """A hook that raises at the n-th fault point (from 0), or from there on."""

    def __init__(self, n: int, error: BaseException, *, stays: bool) -> None:
        self.n, self.error, self.stays, self.seen = n, error, stays, 0

    def __call__(self, step: str) -> None:
        self.seen += 1
        if self.seen == self.n + 1 or (self.stays and self.seen > self.n):
            raise self.error


@pytest.mark.parametrize("stays", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize(
    "error", slow_after(1, [Transient("injected"), OSError(5, "injected"), Interrupted("injected")]),
    ids=["Transient", "OSError", "interrupt"])  # fmt: skip
def test_an_error_at_any_step_of_a_commit(error: BaseException, stays: bool, place: str, connect: Connect) -> None:
    n, outcomes = 0, set()
    while True:
        url = place.removesuffix(".db") + f"-{n}" + (".db" if place.endswith(".db") else "")
        connection, other = connect(url, **QUIET), connect(url)
        prepare(connection)
        hook = Failing(n, error, stays=stays)
        with faults.arm(hook):
            raised = error_of(lambda connection=connection: change(connection))
        if raised is None:
            check_usable(connection, other, {"new"})
        else:
            assert isinstance(raised, (type(error), StorageError)), repr(raised)
            assert isinstance(raised, apsw.IOError), "SQLite must forget what it has cached"
            outcomes.add(check_usable(connection, other, {"old", "new"}))
        assert state(connect(url, readonly=True)) in (OLD, NEW)
        connection.close()
        other.close()
        if hook.seen <= n:
            break
        n += 1
    assert n >= 3
    again = not isinstance(error, Interrupted) and not stays and not place.endswith(".db")
    assert ("old" in outcomes) != again, "object stores are asked again, and a single failure goes unnoticed"


# object stores that fail
class Faulty(FaultyStore):
    """A store that begins to fail, and stops, when it is told to."""

    def plan(self, *faults: Fault) -> None:
        self._plan, self._counts = [*faults], [0 for _ in faults]
        self.seen.clear()


@pytest.fixture
def store(behind: Behind) -> Faulty:
    """The store of the fixture `pair`."""
    return Faulty(open_store(f"memory://{secrets.token_hex(6)}"))


@pytest.fixture
def pair(behind: Behind, store: Faulty, connect: Connect) -> tuple[apsw.Connection, apsw.Connection]:
    """Two connections to a prepared database on `store`."""
    url = behind(lambda _: store)
    connection, other = connect(url, **QUIET), connect(url)
    prepare(connection)
    return connection, other


Pair = tuple[apsw.Connection, apsw.Connection]


@pytest.mark.parametrize("kind", ["fail", "lose"])
def test_a_commit_survives_a_request_that_fails_or_whose_answer_is_lost(kind: Any, pair: Pair, store: Faulty) -> None:
    store.plan(Fault(0, kind))
    change(pair[0])
    frames = {key for verb, key in store.seen if verb == "put_if_absent"}
    assert len(frames) == 1, "whatever was asked again, the transaction is one frame"
    check_usable(*pair, {"new"})


def test_a_store_that_stays_away_fails_the_commit_and_nothing_else(pair: Pair, store: Faulty) -> None:
    store.plan(Fault(0, "fail", count="all", times=10_000))
    with pytest.raises((Transient, DurabilityUnconfirmed)):
        change(pair[0])
    with pytest.raises(Transient):
        pair[0].execute("SELECT count(*) FROM t").fetchall()
    store.plan()
    check_usable(*pair, {"old"})


@pytest.mark.parametrize("times", [*range(1, 30, 4), 10_000])
def test_a_commit_whose_answer_is_lost_is_there_whatever_the_caller_hears(
    times: int, pair: Pair, store: Faulty
) -> None:
    """The write is done, its answer is lost, and then nothing can be asked for a while."""
    store.plan(Fault(0, "lose"), Fault(0, "fail", count="reads", times=times), Fault(1, "fail", times=times))
    raised = error_of(lambda: change(pair[0]))
    assert raised is None or (isinstance(raised, (Transient, DurabilityUnconfirmed)) and times > 4)
    assert raised is not None or times < 10_000
    store.plan()
    assert state(pair[1]) == NEW, "this process does not go on believing in the old state"
    check_usable(*pair, {"new"})


def test_a_fence_that_is_lost_under_an_unclear_commit_leaves_the_old_state(pair: Pair, store: Faulty) -> None:
    def steal() -> None:
        ObjectStorage(store.inner, maintenance="off").acquire_fence("thief")

    store.plan(Fault(0, "before", action=steal), Fault(0, "fail", times=3))
    with pytest.raises((Transient, DurabilityUnconfirmed, Fenced)):
        change(pair[0])
    assert state(pair[0]) == state(pair[1]) == OLD
    for _ in range(2):
        with pytest.raises(Fenced):
            change(pair[0])


def test_a_read_that_fails_in_passing_fails_its_statement_only(pair: Pair, store: Faulty) -> None:
    with pair[0]:
        pair[0].executemany("INSERT INTO t(x) VALUES (?)", ((bytes(3000),) for _ in range(300)))
    store.plan(Fault(0, "fail", count="reads"))
    with pytest.raises(Transient, match="injected"):
        pair[1].execute("SELECT sum(length(x)) FROM t").fetchall()
    assert pair[1].execute("SELECT sum(length(x)) FROM t").get == 300 * 3000 + 40 * 700


# damage
def flip(path: Path, needle: bytes) -> int:
    """Change one byte of every place where `needle` is in a file; return how many there were."""
    data = bytearray(path.read_bytes())
    count, at = 0, data.find(needle)
    while at >= 0:
        data[at] ^= 0xFF
        count, at = count + 1, data.find(needle, at + 1)
    path.write_bytes(data)
    return count


@pytest.mark.parametrize("name", ["pages.db", "pages"])
def test_a_damaged_page_is_corruption_and_never_an_answer(name: str, tmp_path: Path, connect: Connect) -> None:
    url = f"file://{tmp_path}/{name}"
    connection = connect(url)
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    with connection:
        connection.executemany("INSERT INTO t(x) VALUES (?)", ((f"row {i} " + "." * 500,) for i in range(300)))
    with open_storage(url, create=False) as storage:
        storage.compact()  # type: ignore[attr-defined]
    connection.execute("CREATE TABLE later(x)")
    connection.close()
    with open_storage(url, create=False) as storage:
        storage.compact()  # type: ignore[attr-defined]
    files = [path for path in [tmp_path / name, *(tmp_path / name).rglob("*")] if path.is_file()]
    assert sum(flip(path, b"row 150 .") for path in files)
    reader = connect(url, readonly=True)
    assert reader.execute("SELECT substr(x, 1, 5) FROM t WHERE id = 1").get == "row 0"
    for statement in ("SELECT x FROM t WHERE id = 151", "SELECT sum(length(x)) FROM t", "SELECT count(x) FROM t"):
        with pytest.raises(Corruption, match="does not match its checksum") as refused:
            reader.execute(statement).fetchall()
        assert isinstance(refused.value, apsw.IOError)
    writer = connect(url)
    with pytest.raises(Corruption):
        writer.execute("UPDATE t SET x = 1")
    writer.execute("INSERT INTO later VALUES (1)")
    assert reader.execute("SELECT count(*) FROM later").get == 1, "what is whole stays readable"


def test_what_was_given_up_while_it_was_read_is_not_found(place: str, connect: Connect) -> None:
    """A page that is gone is not a page that was never written, which SQLite would take for zeros."""
    writer = connect(place, cache_bytes=0)
    writer.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    with writer:
        writer.executemany("INSERT INTO t(x) VALUES (?)", (("." * 3000,) for _ in range(3000)))
    reader = connect(place, readonly=True)
    reader.execute("PRAGMA cache_size=2; BEGIN")
    rows = reader.execute("SELECT length(x) FROM t")
    assert next(rows) == (3000,)
    writer.execute("UPDATE t SET x = 'short'")
    with open_storage(place, create=False, gc_grace_ms=0) as storage:
        storage.set_retention_floor(storage.get_commit_lsn())
        storage.compact()  # type: ignore[attr-defined]
    with pytest.raises(NotFound, match="no longer kept"):
        rows.fetchall()
    if reader.in_transaction:
        reader.execute("ROLLBACK")
    assert reader.execute("SELECT DISTINCT x FROM t").fetchall() == [("short",)]


def test_a_branch_that_is_deleted_while_it_is_open_is_not_found(place: str, connect: Connect) -> None:
    connection = connect(place)
    connection.execute("CREATE TABLE t(x)")
    with open_storage(place, create=False) as storage:
        storage.create_branch("side", storage.get_commit_lsn())
        side = connect(place, branch="side")
        side.execute("INSERT INTO t VALUES (1)")
        side.execute("BEGIN IMMEDIATE; INSERT INTO t VALUES (2)")
        storage.delete_branch("side")
    with pytest.raises(NotFound, match="branch"):
        side.execute("COMMIT")
    side.close()
    with pytest.raises(NotFound, match="'side'"):
        connect(place, branch="side")
    assert connection.execute("SELECT count(*) FROM t").get == 0
    connection.execute("INSERT INTO t VALUES (3)")


def test_a_branch_that_is_deleted_while_it_is_read_is_not_found(place: str, connect: Connect) -> None:
    writer = connect(place, cache_bytes=0)
    writer.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    with writer:
        writer.executemany("INSERT INTO t(x) VALUES (?)", ((bytes(3000),) for _ in range(3000)))
    with open_storage(place, create=False) as storage:
        storage.create_branch("side", storage.get_commit_lsn())
        reader = connect(place, branch="side", readonly=True)
        reader.execute("PRAGMA cache_size=2")
        rows = reader.execute("SELECT length(x) FROM t")
        assert next(rows) == (3000,)
        storage.delete_branch("side")
    writer.execute("CREATE TABLE u(x)")  # so that this process learns of it
    with pytest.raises(NotFound, match="branch"):
        rows.fetchall()


def test_a_lease_that_cannot_be_renewed_is_logged_and_survived(
    behind: Behind, store: Faulty, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ontolake.engine"):
        connection = connect(behind(lambda _: store), fence_lease_ms=60_000, fence_renew_ms=10)
        prepare(connection)
        store.plan(Fault(0, "fail", count="all", times=10_000))
        wait_until(lambda: "could not be renewed" in caplog.text, "a warning")
        store.plan()
    change(connection)
    assert state(connection) == NEW
