"""The write lock of a file: between threads, between handles in one process, and between processes.

It is held for one write at a time and goes with the process that held it. Waiting for it has an end.
"""

from __future__ import annotations

import fcntl
import threading
import time
from types import TracebackType

from ontolake.errors import Transient


class FileLock:
    """An exclusive advisory lock on an open file. Not reentrant."""

    def __init__(self, fd: int, name: str, timeout: float) -> None:
        self._fd = fd
        self._name = name
        self._timeout = timeout
        self._threads = threading.Lock()

    def try_acquire(self) -> bool:
        """Take the lock if it is free now."""
        if not self._threads.acquire(blocking=False):
            return False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._threads.release()
            return False
        except BaseException:
            self._threads.release()
            raise
        return True

    def acquire(self) -> None:
        """Take the lock, waiting for whoever has it. Raises `Transient` when that takes too long."""
        if not self._threads.acquire(timeout=self._timeout):
            raise self._too_long()
        try:
            self._acquire_file()
        except BaseException:
            self._threads.release()
            raise

    def _acquire_file(self) -> None:
        until, pause = time.monotonic() + self._timeout, 0.0002
        while True:
            try:
                return fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise self._too_long() from None
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def _too_long(self) -> Transient:
        return Transient(f"another process has been writing to {self._name} for more than {self._timeout:g} s",
                         hint="try again; if it hangs, end that process")

    def release(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._threads.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
