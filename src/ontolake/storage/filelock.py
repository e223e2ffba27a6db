"""The write lock of a file, between handles and between processes; `threads` is the one between threads.

It is held for one write at a time and goes with the process that held it. Waiting for it has an end. Take
`threads` first: `with lock.threads, lock:`. An interrupt may strike between any two lines, and that order leaves at
worst the file locked for this handle, which the next write of it puts right.
"""

from __future__ import annotations

import fcntl
import threading
import time
from types import TracebackType

from ontolake.errors import Transient


class FileLock:
    """An exclusive advisory lock on an open file."""

    def __init__(self, fd: int, name: str, timeout: float) -> None:
        self._fd = fd
        self._name = name
        self._timeout = timeout
        self.threads = threading.Lock()

    def is_free(self) -> bool:
        """Take the lock if nobody has it. Whoever got True gives it back with `release`."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def __enter__(self) -> None:
        """Take the lock, waiting for whoever has it. Raises `Transient` when that takes too long."""
        until, pause = time.monotonic() + self._timeout, 0.0002
        while not self.is_free():
            if time.monotonic() >= until:
                raise Transient(f"another process has been writing to {self._name} for more than {self._timeout:g} s",
                                hint="try again; if it hangs, end that process")
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
