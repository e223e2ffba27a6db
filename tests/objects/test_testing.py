"""The test doubles and servers that ship with the library do what they say."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from waiting import wait_for

from ontolake.errors import AlreadyExists, NotFound, Transient
from ontolake.objects import ObjectStore, Range
from ontolake.objects.memory import MemoryStore
from ontolake.objects.testing import CountingStore, Fault, FaultyStore, MinistackServer, SlowStore


@pytest.fixture
def inner() -> MemoryStore:
    return MemoryStore(os.urandom(8).hex())


def test_doubles_are_stores(inner: MemoryStore) -> None:
    for double in (SlowStore(inner, 0), CountingStore(inner), FaultyStore(inner)):
        assert isinstance(double, ObjectStore)
        tag = double.put("a", b"123")
        tag = double.put_if_match("a", b"1234", tag)
        assert double.get("a") == (b"1234", tag)
        assert double.get_range("a", 1, 2) == b"23"
        assert double.get_ranges([Range("a", 0, 1)]) == [b"1"]
        assert [info.key for info in double.list("", after="0")] == ["a"]
        double.delete(["a"])
        double.put_if_absent("a", b"")
        double.delete(["a"])
        double.close()


def test_slow_takes_its_time(inner: MemoryStore) -> None:
    slow = SlowStore(inner, 0.02)
    taken = []
    for _ in range(3):
        begun = time.monotonic()
        slow.put("a", b"1")
        slow.get_ranges([Range("a", 0, 1)] * 50)
        taken.append(time.monotonic() - begun)
    assert 0.04 <= min(taken) < 0.5


def test_counting_counts_operations_and_bytes(inner: MemoryStore) -> None:
    counting = CountingStore(inner)
    counting.put("a", b"12345")
    counting.get("a")
    counting.get_range("a", 0, 2)
    counting.get_ranges([Range("a", 0, 2), Range("none", 0, 1), Range("a", 3, 1)])
    with pytest.raises(NotFound):
        counting.get("none")
    assert dict(counting.operations) == {"put": 1, "get": 2, "get_range": 1, "get_ranges": 1}
    assert (counting.total, counting.writes, counting.sent["put"]) == (5, 1, 5)
    assert (counting.received["get"], counting.received["get_ranges"]) == (5, 3)
    counting.reset()
    assert counting.total == 0


def test_fail_does_not_do_it_and_lose_does(inner: MemoryStore) -> None:
    faulty = FaultyStore(inner, [Fault(1, "fail"), Fault(2, "lose"), Fault(0, "fail", count="reads", error=NotFound)])
    faulty.put("a", b"1")
    with pytest.raises(Transient, match="failed"):
        faulty.put("b", b"1")
    with pytest.raises(Transient, match="lost"):
        faulty.put("c", b"1")
    with pytest.raises(NotFound):
        faulty.get("a")
    assert [info.key for info in faulty.list()] == ["a", "c"]
    assert faulty.seen == [("put", "a"), ("put", "b"), ("put", "c"), ("get", "a"), ("list", "")]


def test_faults_count_what_they_are_told_to(inner: MemoryStore) -> None:
    seen: list[str] = []
    faulty = FaultyStore(inner, [
        Fault(1, "before", action=lambda: seen.append("second of all"), count="all"),
        Fault(0, "after", action=lambda: seen.append("created"), verbs={"put_if_absent"}, prefix="wal/"),
    ])
    faulty.put_if_absent("root", b"")
    faulty.get("root")
    faulty.put("wal/1", b"")
    faulty.put_if_absent("wal/2", b"")
    assert seen == ["second of all", "created"]


def test_an_action_after_sees_what_was_done_and_not_what_was_refused(inner: MemoryStore) -> None:
    seen: list[bytes] = []
    faulty = FaultyStore(inner, Fault(0, "after", action=lambda: seen.append(inner.get("a").data), times=2))
    faulty.put_if_absent("a", b"1")
    with pytest.raises(AlreadyExists):
        faulty.put_if_absent("a", b"2")
    assert seen == [b"1"]


@pytest.mark.slow
def test_a_server_ends_with_its_block_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with MinistackServer() as server:
        process = psutil.Process(server.pid)
        assert any(tmp_path.iterdir())
    assert not process.is_running()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_server_whose_port_is_taken_before_it_starts_gets_another() -> None:
    server = MinistackServer()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", server._port("s3")))
        with server:
            assert server._port("s3") != taken.getsockname()[1]
            assert server.pid is not None


@pytest.mark.slow
def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import os, sys; from ontolake.objects.testing import MinistackServer\n"
        "server = MinistackServer().__enter__(); print(server.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env)
    assert done.returncode == -9
    wait_for(lambda: is_gone(int(done.stdout)))


def is_gone(pid: int) -> bool:
    """Whether a process has ended, though perhaps nobody has asked yet how."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
