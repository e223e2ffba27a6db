"""Processes come and go: at exit nothing hangs and no lease stays behind, and a fork takes nothing with it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from marking import slow_after

from ontolake.errors import Invalid
from ontolake.storage import open_storage

Connect = Callable[..., apsw.Connection]


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program), *arguments], capture_output=True, text=True,
                          timeout=200, check=False)


LEFT_OPEN = {
    "idle": "",
    "in a transaction": "connection.execute('BEGIN IMMEDIATE; INSERT INTO t VALUES (2)')",
    "reading": "rows = connection.execute('SELECT * FROM t'); next(rows)",
    "in a cycle": "cycle = [connection]; cycle.append(cycle); del connection, cycle",
    "in a thread": "import threading; threading.Thread(target=connection.execute, args=('SELECT 1',)).start()",
    "with another": "other = connect(url, readonly=True); other.execute('BEGIN; SELECT * FROM t').fetchall()",
    "overtaken": "from ontolake.storage import open_storage; storage = open_storage(url); "
                 "[storage.release_fence(storage.acquire_fence('other')) for _ in range(5)]",
    "followed": "from ontolake.storage import open_storage; storage = open_storage(url); "
                "[storage.create_branch(name, 2) for name in 'abc']",
    "raising": "raise SystemExit(0)",
}  # fmt: skip


@pytest.mark.slow
def test_a_process_that_closes_nothing_ends_cleanly_and_lets_others_write(shared_place: str, connect: Connect) -> None:
    local = shared_place.endswith(".db")
    for number, what in enumerate(LEFT_OPEN if local else ["in a transaction", "overtaken", "followed"]):
        url = f"{shared_place.removesuffix('.db')}-{number}{'.db' if local else ''}"
        ended = run(f"""
            import sys
            from ontolake.engine import connect
            url = sys.argv[1]
            connection = connect(url)
            connection.execute("CREATE TABLE t(x); INSERT INTO t VALUES (1)")
            {LEFT_OPEN[what]}
            """, url)
        assert (ended.returncode, ended.stderr) == (0, ""), what
        with open_storage(url, create=False) as storage:
            assert storage.current_fence() is None, what
        connection = connect(url)
        connection.execute("INSERT INTO t VALUES (3)")
        assert connection.execute("SELECT x FROM t").fetchall() == [(1,), (3,)], what


def test_connections_are_closed_in_any_order(place: str, connect: Connect) -> None:
    connections = [connect(place, readonly=i % 3 == 2) if i else connect(place) for i in range(9)]
    connections[0].execute("CREATE TABLE t(x)")
    cursor = connections[4].execute("SELECT * FROM t")
    for i in (0, 8, 3, 5, 1, 7, 2, 6):
        connections[i].close(True)
        connections[4].execute("INSERT INTO t VALUES (?)", (i,))
    connections[4].close(True)
    connections[4].close(True)
    with pytest.raises((apsw.ConnectionClosedError, apsw.CursorClosedError)):
        cursor.fetchall()
    assert connect(place).execute("SELECT count(*) FROM t").get == 8
    assert not [thread for thread in threading.enumerate() if thread.name == "ontolake-lease" and thread.is_alive()]


def test_a_connection_that_is_forgotten_is_closed(place: str) -> None:
    from ontolake.engine import connect

    connection = connect(place)
    connection.execute("CREATE TABLE t(x)")
    cycle: list[object] = [connection]
    cycle.append(cycle)
    del connection, cycle
    gc.collect()
    with open_storage(place, create=False) as storage:
        assert storage.current_fence() is None


@pytest.mark.parametrize("name", slow_after(1, ["pages.db", "pages"]))
def test_a_forked_process_is_refused_and_leaves_its_parent_alone(name: str, tmp_path: Path) -> None:
    ended = run("""
        import os, sys
        from ontolake.engine import connect
        from ontolake.errors import Contended, Invalid
        url = sys.argv[1]
        connection = connect(url)
        connection.execute("CREATE TABLE t(x)")
        connection.execute("BEGIN IMMEDIATE; INSERT INTO t VALUES ('parent')")
        pid = os.fork()
        if pid == 0:
            def refused(statement):
                try:
                    connection.execute(statement).fetchall()
                except Invalid as error:
                    assert "forked" in str(error), error
                    return True
            assert refused("COMMIT")
            assert refused("SELECT * FROM t")
            connection.close(True)
            try:
                connect(url)
            except Contended:
                print("child: contended")
            reader = connect(url, readonly=True)
            print("child:", reader.execute("SELECT count(*) FROM t").get)
            sys.exit(0)  # runs what is to be run at exit
        assert os.waitpid(pid, 0)[1] == 0
        connection.execute("COMMIT; INSERT INTO t VALUES ('still here')")
        print("parent:", connection.execute("SELECT count(*) FROM t").get)
        """, f"file://{tmp_path}/{name}")
    assert ended.stderr == ""
    assert ended.stdout.split("\n")[:3] == ["child: contended", "child: 0", "parent: 2"]


@pytest.mark.slow
def test_a_fork_while_another_thread_writes_does_not_hang(tmp_path: Path) -> None:
    ended = run("""
        import os, sys, threading
        from ontolake.engine import connect
        from ontolake.errors import Invalid
        url = sys.argv[1]
        connect(url).execute("CREATE TABLE t(x)")
        done = threading.Event()
        def write():
            connection = connect(url)
            while not done.is_set():
                connection.execute("INSERT INTO t VALUES (1)")
        writer = threading.Thread(target=write)
        writer.start()
        connection = connect(url, readonly=True)
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                connection.close(True)
                reader = connect(url, readonly=True)
                assert reader.execute("PRAGMA integrity_check").get == "ok"
                reader.close()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        done.set()
        writer.join()
        assert connect(url).execute("PRAGMA integrity_check").get == "ok"
        """, f"file://{tmp_path}/pages.db")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_connection_of_this_process_is_refused_in_its_child(tmp_path: Path, connect: Connect) -> None:
    connection = connect(f"file://{tmp_path}/pages.db")
    connection.execute("CREATE TABLE t(x)")
    pid = os.fork()
    if pid == 0:
        try:
            connection.execute("INSERT INTO t VALUES (1)")
        except Invalid:
            os._exit(17)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 17
    connection.execute("INSERT INTO t VALUES (2)")


@pytest.mark.slow
def test_ending_takes_no_longer_than_ending_does(tmp_path: Path) -> None:
    """Though a thread waits for its next turn, which is hours away."""
    program = ("import sys; from ontolake.engine import connect; "
               "connection = connect(sys.argv[1], fence_lease_ms=36_000_000, fence_renew_ms=10_000_000)")
    for end in ("", "; connection.execute('CREATE TABLE t(x)')"):
        assert run(program + end, f"file://{tmp_path}/pages.db").returncode == 0
