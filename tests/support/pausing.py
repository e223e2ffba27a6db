"""Pausing other processes in tests, as a laptop does that is closed, but never while they keep others waiting."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waiting import wait_for


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """A block in which a process stands still, all its threads, and none amid a write that locks a file."""
    try:
        wait_for(lambda: _stopped_between_writes(pid))
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _stopped_between_writes(pid: int) -> bool:
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: all(_state(task) == "T" for task in Path(f"/proc/{pid}/task").iterdir()))
    if not _locks_a_file(pid):
        return True
    os.kill(pid, signal.SIGCONT)
    return False


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def _locks_a_file(pid: int) -> bool:
    """Whether the process has locked a file, or a part of one, for itself alone."""
    return any(lock[3:5] == ["WRITE", str(pid)] for lock in _locks())


def waits_for_a_lock(pid: int) -> bool:
    """Whether the process stands still because another has locked a file."""
    return any(lock[1] == "->" and lock[5] == str(pid) for lock in _locks())


def _locks() -> list[list[str]]:
    return [line.split() for line in Path("/proc/locks").read_text().splitlines()]
