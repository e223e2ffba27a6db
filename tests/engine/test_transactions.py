"""One transaction is one durable append; everything that SQLite can do within one works."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from ontolake import faults
from ontolake.objects import ObjectStore
from ontolake.objects.testing import CountingStore
from ontolake.storage import open_storage

Connect = Callable[..., apsw.Connection]
APPEND = "append: checked, not yet written"
ROWS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) "


def fill(connection: apsw.Connection, rows: int, size: int = 200, table: str = "t") -> None:
    connection.execute(ROWS.format(rows) + f"INSERT INTO {table} SELECT i, randomblob({size}) FROM n")


def whole(connection: apsw.Connection) -> bool:
    return bool(connection.execute("PRAGMA integrity_check").get == "ok")


# one transaction, one append
def test_a_transaction_is_one_append_however_much_it_writes(place: str, connect: Connect, steps: list[str]) -> None:
    connection = connect(place)
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    with open_storage(place, create=False) as storage:
        before = storage.get_commit_lsn()
        steps.clear()
        with connection:
            fill(connection, 500)
            connection.execute("CREATE INDEX by_x ON t(x)")
            connection.execute("DELETE FROM t WHERE id % 3 = 0")
        assert steps.count(APPEND) == 1
        records = list(storage.scan_wal(before))
        pages = [record.page_id for _, record in records]
        assert len(pages) == len(set(pages)) > 30, "a page that was written twice is appended once"
        assert pages[-1] == 1, "the header is last, so that its version tells where the commit ended"
        assert storage.get_commit_lsn() == before + len(pages)


def test_every_autocommit_statement_is_an_append_of_its_own(place: str, connect: Connect, steps: list[str]) -> None:
    connection = connect(place)
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    steps.clear()
    for i in range(4):
        connection.execute("INSERT INTO t(x) VALUES (?)", (i,))
    assert steps.count(APPEND) == 4


def test_what_changes_nothing_appends_nothing(place: str, connect: Connect, steps: list[str]) -> None:
    connection = connect(place)
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    steps.clear()
    connection.execute("BEGIN IMMEDIATE; COMMIT")
    connection.execute("BEGIN; SELECT * FROM t; COMMIT").fetchall()
    connection.execute("BEGIN; INSERT INTO t(x) VALUES (1); ROLLBACK")
    connection.execute("DELETE FROM t WHERE id = 77")
    connection.execute("PRAGMA integrity_check").fetchall()
    assert steps.count(APPEND) == 0


def test_a_one_row_commit_on_object_storage_is_one_request(
    behind: Callable[[Callable[[ObjectStore], ObjectStore]], str], connect: Connect
) -> None:
    counting: list[CountingStore] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        counting.append(CountingStore(store))
        return counting[-1]

    connection = connect(behind(wrap), fence_renew_ms=3_600_000, fence_lease_ms=36_000_000)
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    counting[-1].reset()
    for i in range(10):
        connection.execute("INSERT INTO t(x) VALUES (?)", (i,))
        assert connection.execute("SELECT count(*) FROM t").get == i + 1
    assert dict(counting[-1].operations) == {"put_if_absent": 10}


# durable before the answer
def test_commit_returns_only_after_the_append(shared_place: str, connect: Connect) -> None:
    connection = connect(shared_place)
    connection.execute("CREATE TABLE t(x)")
    reached, go_on, committed = threading.Event(), threading.Event(), threading.Event()

    def pause(step: str) -> None:
        if step == APPEND and threading.current_thread() is writer:
            reached.set()
            assert go_on.wait(60)

    def write() -> None:
        connection.execute("INSERT INTO t VALUES (1)")
        committed.set()

    writer = threading.Thread(target=write)
    with faults.arm(pause), open_storage(shared_place, create=False) as storage:
        before = storage.get_commit_lsn()
        writer.start()
        assert reached.wait(60)
        assert not committed.is_set()
        assert storage.get_commit_lsn() == before
        go_on.set()
        writer.join(60)
        assert committed.is_set()
        assert storage.get_commit_lsn() > before


def test_what_was_committed_is_there_after_opening_again(place: str, connect: Connect) -> None:
    connection = connect(place)
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    fill(connection, 300)
    content = connection.execute("SELECT * FROM t").fetchall()
    connection.close()
    again = connect(place)
    assert again.execute("SELECT * FROM t").fetchall() == content
    assert whole(again)


# everything that SQLite can do
def test_a_rollback_after_the_cache_has_spilled_leaves_nothing(place: str, connect: Connect) -> None:
    connection = connect(place)
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    fill(connection, 50)
    content = connection.execute("SELECT * FROM t").fetchall()
    connection.execute("PRAGMA cache_size=5")
    with open_storage(place, create=False) as storage:
        before = storage.get_commit_lsn()
        connection.execute("BEGIN")
        connection.execute("UPDATE t SET x = zeroblob(500)")
        connection.execute(ROWS.format(2000) + "INSERT INTO t SELECT i + 1000, randomblob(300) FROM n")
        connection.execute("ROLLBACK")
        assert storage.get_commit_lsn() == before
    assert connection.execute("SELECT * FROM t").fetchall() == content
    assert whole(connection)


def test_a_first_transaction_that_spilled_and_was_rolled_back_leaves_an_empty_database(
    place: str, connect: Connect
) -> None:
    connection = connect(place)
    connection.execute("PRAGMA cache_size=5; BEGIN; CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    fill(connection, 1000)
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
    assert connection.execute("PRAGMA page_count").get == 0
    connection.execute("CREATE TABLE other(x)")
    assert connect(place).execute("SELECT name FROM sqlite_schema").get == "other"
    assert whole(connection)


def test_savepoints_are_rolled_back_within_a_spilled_transaction(place: str, connect: Connect) -> None:
    connection = connect(place)
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    fill(connection, 50)
    connection.execute("PRAGMA cache_size=5")
    connection.execute("SAVEPOINT a; DELETE FROM t WHERE id > 40")
    connection.execute("SAVEPOINT b")
    connection.execute(ROWS.format(2000) + "INSERT INTO t SELECT i + 1000, randomblob(300) FROM n")
    connection.execute("ROLLBACK TO b; INSERT INTO t VALUES (41, 'kept'); RELEASE b; RELEASE a")
    assert connection.execute("SELECT count(*), max(id) FROM t").get == (41, 41)
    assert whole(connection)
    connection.close()
    assert connect(place).execute("SELECT count(*), max(id) FROM t").get == (41, 41)


@pytest.mark.parametrize("page_size", [512, 1024, 8192, 65536])
def test_pages_of_every_size(page_size: int, place: str, connect: Connect) -> None:
    connection = connect(place, page_size=page_size)
    assert connection.execute("PRAGMA page_size").get == page_size
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    fill(connection, 400, size=700)
    content = connection.execute("SELECT * FROM t").fetchall()
    assert whole(connection)
    connection.close()
    again = connect(place)
    assert again.execute("PRAGMA page_size").get == page_size, "found without being told"
    assert again.execute("SELECT * FROM t").fetchall() == content


def test_vacuum_makes_the_database_smaller(place: str, connect: Connect) -> None:
    connection = connect(place)
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    fill(connection, 2000)
    connection.execute("DELETE FROM t WHERE id > 100")
    content = connection.execute("SELECT * FROM t").fetchall()
    before = connection.execute("PRAGMA page_count").get
    connection.execute("PRAGMA cache_size=10")
    with open_storage(place, create=False) as storage:
        lsn = storage.get_commit_lsn()
        connection.execute("VACUUM")
        after = connection.execute("PRAGMA page_count").get
        assert after < before / 4
        assert max(record.page_id or 0 for _, record in storage.scan_wal(lsn)) <= after
    connection.close()
    again = connect(place)
    assert again.execute("PRAGMA page_count").get < before / 4
    assert again.execute("SELECT * FROM t").fetchall() == content
    assert whole(again)


def test_vacuum_bit_by_bit(place: str, connect: Connect) -> None:
    connection = connect(place)
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL; CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    fill(connection, 1000)
    connection.execute("DELETE FROM t WHERE id % 4 != 0")
    while connection.execute("PRAGMA freelist_count").get:
        before = connection.execute("PRAGMA page_count").get
        connection.execute("PRAGMA incremental_vacuum(7)").fetchall()
        assert connection.execute("PRAGMA page_count").get < before
        assert whole(connection)
    assert connection.execute("SELECT count(*) FROM t").get == 250


def test_a_database_that_was_emptied_and_vacuumed_grows_again(place: str, connect: Connect) -> None:
    connection = connect(place)
    for _ in range(3):
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
        fill(connection, 800)
        assert whole(connection)
        connection.execute("DROP TABLE t; VACUUM")
        assert connection.execute("PRAGMA page_count").get == 1


def test_blobs_are_read_and_written_in_place(place: str, connect: Connect) -> None:
    connection = connect(place)
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x); INSERT INTO t VALUES (1, zeroblob(100000))")
    with connection.blob_open("main", "t", "x", 1, True) as blob:
        blob.seek(50_000)
        blob.write(b"in the middle")
    connection.close()
    again = connect(place)
    with again.blob_open("main", "t", "x", 1, False) as blob:
        blob.seek(50_003)
        assert blob.read(10) == b"the middle"
    assert again.execute("SELECT length(x), instr(x, x'696e20746865') FROM t").get == (100_000, 50_001)
    assert whole(again)


def test_temporary_tables_and_sorts_that_spill_work(place: str, connect: Connect) -> None:
    connection = connect(place)
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    fill(connection, 3000)
    connection.execute("PRAGMA temp_store=FILE; PRAGMA cache_size=10; PRAGMA temp.cache_size=10")
    connection.execute("CREATE TEMP TABLE copy AS SELECT * FROM t ORDER BY x")
    found = connection.execute("SELECT x FROM copy ORDER BY x DESC").fetchall()
    assert found == sorted(connection.execute("SELECT x FROM t").fetchall(), reverse=True)


def test_a_native_file_can_be_attached(place: str, tmp_path: Path, connect: Connect) -> None:
    path = str(tmp_path / "native.db")
    native = connect(path)
    native.execute("PRAGMA journal_mode=WAL").fetchall()
    native.execute("CREATE TABLE n(x); INSERT INTO n VALUES (1), (2)")
    connection = connect(place)
    connection.execute("CREATE TABLE t(x)")
    connection.execute("ATTACH ? AS other", (path,))
    with connection:
        connection.execute("INSERT INTO t SELECT x FROM other.n; INSERT INTO other.n VALUES (3)")
    assert connection.execute("SELECT x FROM t").fetchall() == [(1,), (2,)]
    assert native.execute("SELECT count(*) FROM n").get == 3
    connection.execute("DETACH other")


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_native_database_can_be_copied_in_and_out(mode: str, place: str, tmp_path: Path, connect: Connect) -> None:
    native = connect(str(tmp_path / "native.db"))
    native.execute(f"PRAGMA journal_mode={mode}").fetchall()
    native.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    fill(native, 500)
    content = native.execute("SELECT * FROM t").fetchall()
    connection = connect(place)
    with connection.backup("main", native, "main") as backup:
        backup.step()
    assert connection.execute("SELECT * FROM t").fetchall() == content
    connection.execute("INSERT INTO t(x) VALUES (NULL)")
    connection.close()
    again = connect(place)
    assert whole(again)
    again.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    copy = connect(str(tmp_path / "copy.db"))
    assert copy.execute("SELECT * FROM t WHERE id <= 500").fetchall() == content
    assert whole(copy)


def test_a_copy_with_pages_of_another_size_works(place: str, tmp_path: Path, connect: Connect) -> None:
    for size in (1024, 16384):
        native = connect(str(tmp_path / f"{size}.db"))
        native.execute(f"PRAGMA page_size={size}; CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
        fill(native, 500)
        connection = connect(place)
        with connection.backup("main", native, "main") as backup:
            backup.step()
        connection.execute("UPDATE t SET x = 'y' WHERE id = 7; DELETE FROM t WHERE id > 300")
        connection.close()
        again = connect(place)
        assert whole(again)
        assert again.execute("SELECT count(*), sum(x = 'y') FROM t").get == (300, 1)
        again.close()


# what cannot be changed
def test_the_journal_the_locking_and_the_page_size_stay_as_they_are(place: str, connect: Connect) -> None:
    connection = connect(place)
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    for mode in ("WAL", "DELETE", "OFF", "persist"):
        assert connection.execute(f"PRAGMA journal_mode={mode}").get == "memory"
        assert connection.execute(f"PRAGMA main.journal_mode='{mode}'").get == "memory"
    assert connection.execute("PRAGMA journal_mode").get == "memory"
    assert connection.execute("PRAGMA locking_mode=EXCLUSIVE").get == "normal"
    connection.execute("PRAGMA page_size=8192; VACUUM").fetchall()
    assert connection.execute("PRAGMA page_size").get == 4096
    fill(connection, 100)
    assert connect(place).execute("SELECT count(*) FROM t").get == 100
    assert whole(connection)


def test_synchronous_off_is_as_durable_as_any(place: str, connect: Connect, steps: list[str]) -> None:
    connection = connect(place)
    connection.execute("PRAGMA synchronous=OFF; CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    steps.clear()
    fill(connection, 10)
    assert steps.count(APPEND) == 1
    connection.close()
    assert connect(place).execute("SELECT count(*) FROM t").get == 10
