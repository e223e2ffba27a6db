"""Transactions at the same time: what they see, which of them commit, and what errors and time-outs do to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ontolake.sql import Database, SerializationError, SqlError, TransactionError, UniqueError, open_database

PLACES = ("native", "pages", "objects", "branch", "moved")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"pages": f"file://{tmp_path}/pages.db", "objects": f"file://{tmp_path}/objects"}.get(
        request.param, f"{tmp_path}/native.db")


@pytest.fixture
def db(request: pytest.FixtureRequest, place: str) -> Iterator[Database]:
    """Accounts 1 to 4 with 100 each: in one file, as pages, on a branch, or with a range in another file."""
    kind = request.node.callspec.params["place"]
    with ExitStack() as stack:
        db = stack.enter_context(open_database(place))
        db.execute("CREATE TABLE account (id BIGINT PRIMARY KEY, owner TEXT UNIQUE, amount BIGINT NOT NULL)")
        db.execute("CREATE INDEX by_amount ON account (amount); CREATE TABLE other (id BIGINT PRIMARY KEY)")
        db.execute("INSERT INTO account VALUES (1, 'a', 100), (2, 'b', 100), (3, 'c', 100), (4, 'd', 100)")
        if kind == "branch":
            db.execute("DELETE FROM account WHERE id = 4; INSERT INTO account VALUES (4, 'd', 100)")
            db.branches.create("work")
            db.execute("UPDATE account SET amount = 0")  # which the branch does not see
            db = stack.enter_context(open_database(place, branch="work"))
        if kind == "moved":
            table = db.catalog().by_full_name["main.public.account"]
            db.ranges.split(table.prefix + b"\x01")
            db.ranges.move(table.prefix + b"\x01", place.replace("native", "range"))
        yield db


class Other:
    """Another thread that runs statements when it is told to, each to its end."""

    def __init__(self) -> None:
        self._todo: Callable[[], Any] | None = None
        self._wake, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while True:
            self._wake.acquire()
            if self._todo is None:
                return
            try:
                self._result, self._error = self._todo(), None
            except BaseException as error:
                self._error = error
            self._done.release()

    def __call__(self, todo: Callable[[], Any]) -> Any:
        self._todo = todo
        self._wake.release()
        self._done.acquire()
        if self._error is not None:
            raise self._error
        return self._result

    def end(self) -> None:
        self._todo = None
        self._wake.release()
        self._thread.join()


@pytest.fixture
def other() -> Iterator[Other]:
    thread = Other()
    yield thread
    thread.end()


def rows(db: Database, sql: str) -> list[Any]:
    return db.execute(sql).fetchall()


def check(db: Database) -> None:
    assert list(db.verify()) == []


def test_transactions_on_different_rows_both_commit(db: Database, other: Other) -> None:
    version = db.version()
    db.execute("BEGIN; UPDATE account SET amount = amount - 10 WHERE id = 1")
    other(lambda: db.execute("BEGIN; UPDATE account SET amount = amount + 10 WHERE id = 2; COMMIT"))
    assert rows(db, "SELECT amount FROM account WHERE id IN (1, 2) ORDER BY id") == [(90,), (100,)], "it sees one state"
    # The row of the other transaction was read, so this one has to fail; without that read it commits.
    with pytest.raises(SerializationError) as raised:
        db.execute("COMMIT")
    assert raised.value.sqlstate == "40001"
    assert raised.value.hint
    db.execute("BEGIN; UPDATE account SET amount = amount - 10 WHERE id = 1")
    other(lambda: db.execute("BEGIN; UPDATE account SET amount = amount + 10 WHERE id = 2; COMMIT"))
    db.execute("COMMIT")
    assert rows(db, "SELECT id, amount FROM account ORDER BY id") == [(1, 90), (2, 120), (3, 100), (4, 100)]
    assert db.version() == version + 3
    check(db)


def test_a_lost_update_is_prevented(db: Database, other: Other) -> None:
    amount = rows_of(db, 1)
    db.execute("BEGIN")
    read = rows_of(db, 1)
    other(lambda: db.execute("UPDATE account SET amount = amount + 5 WHERE id = 1"))
    db.execute("UPDATE account SET amount = ? WHERE id = 1", (read + 1,))
    with pytest.raises(SerializationError):
        db.execute("COMMIT")
    assert not db.in_transaction
    assert rows_of(db, 1) == amount + 5


def rows_of(db: Database, id: int) -> int:
    return int(rows(db, f"SELECT amount FROM account WHERE id = {id}")[0][0])


def test_write_skew_is_prevented(db: Database, other: Other) -> None:
    def withdraw(id: int) -> None:
        assert rows(db, "SELECT sum(amount) FROM account WHERE id IN (1, 2)") == [(200,)]
        db.execute("UPDATE account SET amount = amount - 150 WHERE id = ?", (id,))

    db.execute("BEGIN")
    withdraw(1)
    other(lambda: db.execute("BEGIN"))
    other(lambda: withdraw(2))
    db.execute("COMMIT")
    with pytest.raises(SerializationError):
        other(lambda: db.execute("COMMIT"))
    assert rows(db, "SELECT amount FROM account WHERE id IN (1, 2) ORDER BY id") == [(-50,), (100,)]


@pytest.mark.parametrize("query", [
    "SELECT count(*) FROM account", "SELECT id FROM account WHERE id > 2 ORDER BY id",
    "SELECT id FROM account WHERE amount = 100", "SELECT amount FROM account WHERE amount > 50",
    "SELECT id FROM account WHERE id = 9", "SELECT id FROM account ORDER BY id LIMIT 10",
    "SELECT id FROM account ORDER BY id DESC LIMIT 1", "SELECT * FROM account WHERE owner = 'z'",
    "SELECT a.id FROM account a JOIN account b ON a.id = b.id WHERE b.amount >= 0",
])  # fmt: skip
def test_a_phantom_is_prevented(db: Database, other: Other, query: str) -> None:
    before = sorted(rows(db, query))
    db.execute("BEGIN")
    assert sorted(rows(db, query)) == before
    other(lambda: db.execute("INSERT INTO account VALUES (9, 'z', 100)"))
    assert sorted(rows(db, query)) == before, "the snapshot stays"
    db.execute("INSERT INTO other VALUES (1)")
    with pytest.raises(SerializationError):
        db.execute("COMMIT")
    assert rows(db, "SELECT * FROM other") == []


@pytest.mark.parametrize("query", [
    "SELECT * FROM account WHERE id = 3", "SELECT * FROM account WHERE id < 4 ORDER BY id",
    "SELECT id FROM account WHERE amount = 77", "SELECT owner FROM account WHERE owner = 'b'",
    "SELECT id FROM account ORDER BY id LIMIT 2", "SELECT count(*) FROM other",
])  # fmt: skip
def test_what_was_not_read_conflicts_with_nothing(db: Database, other: Other, query: str) -> None:
    db.execute("BEGIN")
    rows(db, query)
    other(lambda: db.execute("INSERT INTO account VALUES (9, 'z', 100); UPDATE account SET amount = 3 WHERE id = 4"))
    db.execute("INSERT INTO other VALUES (1)")
    db.execute("COMMIT")
    assert rows(db, "SELECT * FROM other") == [(1,)]


def test_read_skew_is_prevented(db: Database, other: Other) -> None:
    db.execute("BEGIN READ ONLY")
    first = rows_of(db, 1)
    other(lambda: db.execute("BEGIN; UPDATE account SET amount = amount - 40 WHERE id = 1; "
                             "UPDATE account SET amount = amount + 40 WHERE id = 2; COMMIT"))
    assert first + rows_of(db, 2) == 200
    db.execute("COMMIT")
    assert rows_of(db, 1) + rows_of(db, 2) == 200


def test_a_unique_value_is_given_once(db: Database, other: Other) -> None:
    db.execute("BEGIN; INSERT INTO account VALUES (5, 'new', 1)")
    other(lambda: db.execute("INSERT INTO account VALUES (6, 'new', 1)"))
    with pytest.raises(SerializationError):
        db.execute("COMMIT")
    with pytest.raises(UniqueError):
        db.execute("INSERT INTO account VALUES (5, 'new', 1)")
    check(db)


def test_a_transaction_reads_what_it_has_written(db: Database, other: Other) -> None:
    before = rows(db, "SELECT * FROM account ORDER BY id")
    db.execute("BEGIN; DELETE FROM account WHERE id = 2; INSERT INTO account VALUES (7, 'g', 7); SAVEPOINT s")
    db.execute("UPDATE account SET amount = 5 WHERE id = 7; INSERT INTO account VALUES (2, 'b', 1)")
    db.execute("UPDATE account SET id = 8 WHERE id = 3")
    expected = [(1, "a", 100), (2, "b", 1), (4, "d", 100), (7, "g", 5), (8, "c", 100)]
    for sql in ("SELECT * FROM account ORDER BY id", "SELECT * FROM account ORDER BY id LIMIT 9",
                "SELECT * FROM account WHERE id BETWEEN 0 AND 9 ORDER BY id"):
        assert rows(db, sql) == expected
    assert rows(db, "SELECT * FROM account ORDER BY id DESC LIMIT 2") == expected[:-3:-1]
    assert rows(db, "SELECT id FROM account WHERE amount < 10 ORDER BY id") == [(2,), (7,)]
    assert rows(db, "SELECT id FROM account WHERE owner = 'c'") == [(8,)]
    assert rows(db, "SELECT count(*), sum(amount) FROM account") == [(5, 306)]
    assert other(lambda: rows(db, "SELECT * FROM account ORDER BY id")) == before
    db.execute("ROLLBACK TO s")
    assert rows(db, "SELECT * FROM account ORDER BY id") == [(1, "a", 100), (3, "c", 100), (4, "d", 100), (7, "g", 7)]
    db.execute("COMMIT")
    assert rows(db, "SELECT * FROM account ORDER BY id") == [(1, "a", 100), (3, "c", 100), (4, "d", 100), (7, "g", 7)]
    assert db.query("SELECT id FROM account ORDER BY id", as_of=db.version() - 1)["id"].to_pylist() == [1, 2, 3, 4]
    check(db)


def test_what_a_transaction_takes_back_makes_no_commit(db: Database) -> None:
    version = db.version()
    db.execute("BEGIN; SAVEPOINT s; INSERT INTO other VALUES (1); ROLLBACK TO s; COMMIT")
    db.execute("BEGIN; INSERT INTO other VALUES (1); ROLLBACK")
    assert db.version() == version


def test_definitions_conflict_with_changes_of_their_table(db: Database, other: Other) -> None:
    for change in ("CREATE INDEX i ON account (owner, amount)", "ALTER TABLE account ADD COLUMN x BIGINT",
                   "DROP TABLE account"):
        db.execute("BEGIN; INSERT INTO other VALUES (5); UPDATE account SET amount = 1 WHERE id = 1")
        other(lambda: db.execute("BEGIN; UPDATE account SET amount = amount + 1 WHERE id = 3; COMMIT"))
        db.execute("COMMIT; DELETE FROM other")
        db.execute(f"BEGIN; {change}")
        other(lambda: db.execute("UPDATE account SET amount = amount + 1 WHERE id = 3"))
        with pytest.raises(SerializationError):
            db.execute("COMMIT")
        db.execute("BEGIN; UPDATE account SET amount = 1 WHERE id = 1")
        other(lambda change=change: db.execute(change))  # type: ignore[misc]
        with pytest.raises(SerializationError):
            db.execute("COMMIT")
    assert "main.public.account" not in db.catalog().by_full_name
    check(db)


def test_definitions_of_other_tables_are_in_nobodys_way(db: Database, other: Other) -> None:
    db.execute("BEGIN; UPDATE account SET amount = 1 WHERE id = 1")
    other(lambda: db.execute("BEGIN; CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1); COMMIT"))
    other(lambda: db.execute("CREATE INDEX i ON other (id)"))
    db.execute("COMMIT")
    db.execute("BEGIN; CREATE TABLE u (id BIGINT PRIMARY KEY); INSERT INTO u VALUES (1)")
    other(lambda: db.execute("UPDATE account SET amount = 2 WHERE id = 2"))
    db.execute("COMMIT")
    assert rows(db, "SELECT * FROM t JOIN u ON t.id = u.id") == [(1, 1)]
    check(db)


def test_a_foreign_key_counts_as_a_read(db: Database, other: Other) -> None:
    db.execute("CREATE TABLE item (id BIGINT PRIMARY KEY, account BIGINT REFERENCES account (id))")
    db.execute("BEGIN; INSERT INTO item VALUES (1, 3)")
    other(lambda: db.execute("DELETE FROM account WHERE id = 3"))
    with pytest.raises(SerializationError):
        db.execute("COMMIT")
    db.execute("BEGIN; DELETE FROM account WHERE id = 4")
    other(lambda: db.execute("INSERT INTO item VALUES (2, 4)"))
    with pytest.raises(SerializationError):
        db.execute("COMMIT")
    check(db)


def test_handles_on_one_place_follow_the_same_rule(db: Database, place: str) -> None:
    with open_database(place, branch=db.branch) as second:
        db.execute("BEGIN; UPDATE account SET amount = 1 WHERE id = 1")
        second.execute("BEGIN; UPDATE account SET amount = 2 WHERE id = 2")
        db.execute("COMMIT")
        second.execute("COMMIT")
        db.execute("BEGIN; UPDATE account SET amount = 3 WHERE id = 1")
        second.execute("BEGIN; UPDATE account SET amount = 4 WHERE id = 1; COMMIT")
        with pytest.raises(SerializationError):
            db.execute("COMMIT")
        assert rows(second, "SELECT id, amount FROM account ORDER BY id LIMIT 2") == [(1, 4), (2, 2)]


# errors


def test_an_error_fails_the_transaction_until_it_ends(db: Database) -> None:
    for bad, state in (("INSERT INTO account VALUES (1, 'x', 0)", "23505"), ("SELECT * FROM nothing", "42P01"),
                       ("SELEC 1", "42601"), ("RELEASE nothing", "3B001")):
        db.execute("BEGIN; INSERT INTO other VALUES (1)")
        with pytest.raises(SqlError) as raised:
            db.execute(bad)
        assert raised.value.sqlstate == state
        for sql in ("SELECT 1", "INSERT INTO other VALUES (2)", "SAVEPOINT s", "SELECT * FROM account WHERE id = 1"):
            with pytest.raises(TransactionError) as failed:
                db.execute(sql)
            assert failed.value.sqlstate == "25P02", sql
        assert db.execute("COMMIT").status == "ROLLBACK"
        assert not db.in_transaction
        assert rows(db, "SELECT * FROM other") == []


def test_a_savepoint_brings_a_failed_transaction_back(db: Database) -> None:
    db.execute("BEGIN; INSERT INTO other VALUES (1); SAVEPOINT s; INSERT INTO other VALUES (2)")
    with pytest.raises(UniqueError):
        db.execute("INSERT INTO other VALUES (1)")
    assert db.execute("ROLLBACK TO s; INSERT INTO other VALUES (3); COMMIT").status == "COMMIT"
    assert rows(db, "SELECT * FROM other ORDER BY id") == [(1,), (3,)]


def test_a_block_that_hides_an_error_does_not_look_committed(db: Database) -> None:
    def hide() -> None:
        with db.transaction():
            db.execute("INSERT INTO other VALUES (1)")
            with pytest.raises(UniqueError):
                db.execute("INSERT INTO other VALUES (1)")

    with pytest.raises(TransactionError) as raised:
        hide()
    assert raised.value.sqlstate == "25P02"
    assert rows(db, "SELECT * FROM other") == []
    assert not db.in_transaction


def test_a_transaction_goes_on_after_errors_if_asked_to(tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/x.db", on_error="continue") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        with db.transaction():
            db.execute("INSERT INTO t VALUES (1)")
            with pytest.raises(UniqueError):
                db.execute("INSERT INTO t VALUES (2), (1)")
            db.execute("INSERT INTO t VALUES (3)")
        assert rows(db, "SELECT * FROM t ORDER BY id") == [(1,), (3,)]
    with pytest.raises(ValueError, match="on_error"):
        open_database(f"{tmp_path}/x.db", on_error="stop")


# time


@pytest.mark.slow
def test_a_statement_ends_when_its_time_is_up(tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/x.db") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t SELECT * FROM generate_series(1, 20000)")
    with open_database(f"{tmp_path}/x.db", statement_timeout=0.2) as db:
        assert rows(db, "SHOW statement_timeout") == [("200ms",)]
        slow = "SELECT count(*) FROM t a, t b, t c WHERE a.id + b.id + c.id = 7"
        with pytest.raises(SqlError) as raised:
            db.execute(slow)
        assert raised.value.sqlstate == "57014"
        assert "timeout" in str(raised.value)
        db.execute("SET statement_timeout = 0; INSERT INTO t VALUES (0); SET statement_timeout = '100ms'")
        db.execute("BEGIN; DELETE FROM t WHERE id = 0; SAVEPOINT s")
        with pytest.raises(SqlError) as raised:
            db.execute(f"INSERT INTO t {slow}")
        assert raised.value.sqlstate == "57014"
        db.execute("ROLLBACK TO s; COMMIT")
        assert rows(db, "SELECT count(*) FROM t") == [(20000,)]
    with pytest.raises(ValueError, match="statement_timeout"):
        open_database(f"{tmp_path}/x.db", statement_timeout=-1)


def test_another_thread_cancels_a_statement(tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/x.db") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t SELECT * FROM generate_series(1, 20000)")
        found: list[BaseException] = []

        def work() -> None:
            try:
                db.execute("SELECT count(*) FROM t a, t b, t c WHERE a.id + b.id + c.id = 7")
            except SqlError as error:
                found.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive() and not db.cancel(thread.ident):
            assert db.cancel(12345) == 0
        thread.join()
        assert [getattr(error, "sqlstate", None) for error in found] == ["57014"]
        assert db.cancel() == 0, "nobody else runs anything"


def test_waiting_for_others_to_write_has_an_end(tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/x.db", lock_timeout=0.1) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        begun, may_end = threading.Event(), threading.Event()

        def hold() -> None:
            with db.session.writing("-- hold"):
                begun.set()
                assert may_end.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        assert begun.wait(60)
        for sql in ("INSERT INTO t VALUES (1)", "BEGIN; INSERT INTO t VALUES (1); COMMIT",
                    "CREATE TABLE u (id BIGINT PRIMARY KEY)"):
            with pytest.raises(SqlError) as raised:
                db.execute(sql)
            assert raised.value.sqlstate == "55P03", sql
            assert not db.in_transaction
        assert rows(db, "SELECT * FROM t") == []
        may_end.set()
        thread.join()
        db.execute("INSERT INTO t VALUES (1)")
