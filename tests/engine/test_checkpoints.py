"""Checkpoints of native files: beside commits, in bounded logs, and never at the cost of a commit."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import weakref
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from ontolake import engine
from ontolake.engine import checkpoints
from ontolake.engine.checkpoints import NativeConnection, truncate_log
from ontolake.engine.connection import write_ahead

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


def opened(path: Path) -> NativeConnection:
    connection = engine.connect(str(path))
    assert isinstance(connection, NativeConnection)
    write_ahead(connection)
    connection.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, x BLOB)")
    return connection


def fill(connection: apsw.Connection, pages: int) -> None:
    """Commit about so many new pages."""
    with connection:
        connection.executemany("INSERT INTO t (x) VALUES (zeroblob(?))", [(PAGE - 100,)] * pages)


def written_here() -> int:
    """The bytes that this thread has written, ever."""
    lines = Path("/proc/thread-self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


def rows_without_log(path: Path) -> int:
    """How many rows a file has by itself, as a copy without its log shows."""
    copy = path.with_name("copy.db")
    copy.write_bytes(path.read_bytes())
    with closing(apsw.Connection(str(copy))) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        has = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 't'").fetchone()
        return int(str(connection.execute("SELECT count(*) FROM t").get)) if has else 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the bytes of a thread are counted by Linux")
def test_a_commit_that_fills_the_log_writes_to_the_log_alone(path: Path) -> None:
    pages = checkpoints.PAGES + 200
    with closing(opened(path)) as connection:
        before = written_here()
        fill(connection, pages)
        assert pages * PAGE < written_here() - before < 1.2 * pages * PAGE
        connection.wait_for_checkpoint()
        assert rows_without_log(path) == pages


def test_the_log_is_used_again_once_it_has_been_copied(path: Path) -> None:
    log = Path(f"{path}-wal")
    with closing(opened(path)) as connection:
        for _ in range(3):
            fill(connection, checkpoints.PAGES)
            connection.wait_for_checkpoint()
        assert log.stat().st_size < 1.5 * checkpoints.PAGES * PAGE


def test_commits_wait_for_the_copy_of_a_log_that_is_always_written_to(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no thread gets to it, here because none is started, the commit that finds too long a log copies it."""
    monkeypatch.setattr(checkpoints, "PAGES", 10)
    monkeypatch.setattr(checkpoints, "MOST_PAGES", 80)
    monkeypatch.setattr(NativeConnection, "start_checkpoint", lambda connection, name: None)
    log = Path(f"{path}-wal")
    with closing(opened(path)) as connection:
        for _ in range(40):
            fill(connection, 15)
            assert log.stat().st_size < (80 + 40) * PAGE


def test_a_reader_that_holds_the_log_up_does_not_start_a_thread_with_every_commit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PAGES", 40)
    monkeypatch.setattr(checkpoints, "MOST_PAGES", 10_000)
    started: list[str] = []
    start = NativeConnection.start_checkpoint

    def counted(connection: NativeConnection, name: str) -> None:
        started.append(name)
        start(connection, name)

    monkeypatch.setattr(NativeConnection, "start_checkpoint", counted)
    with closing(opened(path)) as connection, closing(apsw.Connection(str(path))) as reader:
        fill(connection, 30)
        reader.execute("BEGIN; SELECT * FROM t").fetchall()
        for _ in range(100):
            connection.execute("UPDATE t SET x = randomblob(3000) WHERE id = 1")
            connection.wait_for_checkpoint()
        assert 2 < len(started) < 40
        reader.execute("COMMIT")
        for _ in range(3):  # copied as a whole, then begun anew: it is due as before
            before = len(started)
            fill(connection, 45)
            connection.wait_for_checkpoint()
            assert len(started) == before + 1


def test_a_commit_succeeds_where_no_checkpoint_can(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "PAGES", 10)
    monkeypatch.setattr(checkpoints, "MOST_PAGES", 40)
    with closing(opened(path)) as connection, closing(apsw.Connection(str(path))) as reader:
        reader.execute("BEGIN; SELECT * FROM t").fetchall()
        for _ in range(8):
            fill(connection, 15)
        assert connection.execute("SELECT count(*) FROM t").get == 120
        assert reader.execute("SELECT count(*) FROM t").get == 0
        assert not truncate_log_at_once(connection)
        reader.execute("COMMIT")
        assert truncate_log(connection)
        assert rows_without_log(path) == 120


def truncate_log_at_once(connection: apsw.Connection) -> bool:
    connection.set_busy_timeout(1)
    try:
        return truncate_log(connection)
    finally:
        connection.set_busy_timeout(5000)


def test_closing_leaves_no_log_and_no_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "PAGES", 10)
    connection = opened(path)
    fill(connection, 500)
    connection.close()
    assert os.listdir(path.parent) == [path.name]
    assert rows_without_log(path) == 500


def test_a_connection_that_nobody_has_any_more_is_gone(path: Path) -> None:
    connection = opened(path)
    gone = weakref.ref(connection)
    del connection
    gc.collect()
    assert gone() is None


CHILD = """
import sys
from ontolake import engine
from ontolake.engine import checkpoints
from ontolake.engine.connection import write_ahead
checkpoints.PAGES, checkpoints.MOST_PAGES = 10, 60
connection = engine.connect(sys.argv[1])
write_ahead(connection)
connection.execute("PRAGMA synchronous = FULL; CREATE TABLE t (id INTEGER PRIMARY KEY, x BLOB)")
for number in range(100_000):
    with connection:
        connection.executemany("INSERT INTO t (x) VALUES (zeroblob(?))", [(4000,)] * 12)
        connection.execute("UPDATE t SET x = zeroblob(3999) WHERE id = abs(random()) % ?", (12 * number + 1,))
    print(number + 1, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("acknowledged", [3, 40])
def test_a_process_that_is_killed_beside_its_checkpoints_loses_no_commit(path: Path, acknowledged: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    last = 0
    for line in child.stdout:
        last = int(line)
        if last == acknowledged:
            child.send_signal(signal.SIGKILL)
    child.wait()
    assert last >= acknowledged
    with closing(apsw.Connection(str(path))) as connection:
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        rows = int(str(connection.execute("SELECT count(*) FROM t").get))
    assert rows % 12 == 0
    assert rows >= 12 * last


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_waits_for_checkpoints(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "PAGES", 10)
    with closing(opened(path)) as connection:
        fill(connection, 2000)
        process = os.fork()
        if not process:
            os._exit(0 if rows_without_log(path) == 2000 else 1)
        assert os.waitpid(process, 0)[1] == 0
