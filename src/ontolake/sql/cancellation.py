"""Statements that can be ended before they are done: by another thread, or because their time is up.

A statement is told by a mark that scans and writes look at between batches, and by the interrupt of the executor. It
then raises 57014, and is undone as after any error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict

from ontolake.errors import Invalid
from ontolake.sql.errors import SqlError
from ontolake.sql.executor import connections

CANCELED, TIMED_OUT = "canceling statement due to user request", "canceling statement due to statement timeout"
_EVERY = 0.02
"""Seconds after which a statement that has not ended is told again: it may have begun a query meanwhile."""


class Timeouts(TypedDict, total=False):
    """How many seconds a statement may take, and how many of them it may wait for others to write; 0 for any number."""

    statement_timeout: float
    lock_timeout: float


def settings_of(timeouts: Timeouts) -> dict[str, str]:
    """Time-outs as settings of PostgreSQL. Raises `Invalid` for one that cannot be."""
    for name, value in timeouts.items():
        if name not in Timeouts.__annotations__:
            raise Invalid(f"a database has no option {name}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 31:
            raise Invalid(f"{name} must be a number of seconds, 0 or more, not {value!r}")
    given: dict[str, float] = {**timeouts}  # type: ignore[dict-item]
    return {name: f"{round(value * 1000)}ms" if value else "0" for name, value in given.items()}


class RunningStatement:
    """A statement that a thread is running."""

    def __init__(self, lock_timeout: float | None, owner: object) -> None:
        self.thread = threading.get_ident()
        self.lock_timeout = lock_timeout
        self.owner = owner
        """The database or connection that runs it."""
        self.reason: str | None = None
        """Why it has to end."""
        self.is_ended = False

    def cancel(self, reason: str) -> None:
        """Make the statement end, and wait until it has."""
        while self.tell(reason):
            time.sleep(_EVERY)

    def tell(self, reason: str) -> bool:
        """Tell the statement to end. Returns whether it goes on; then tell it again in a moment."""
        self.reason = self.reason or reason
        if not self.is_ended:
            connections.interrupt(self.thread)
        return not self.is_ended

    def check(self) -> None:
        """Raise `SqlError` (57014) if the statement has to end."""
        if self.reason is not None:
            raise SqlError(self.reason, sqlstate="57014", hint="run it again, or give it more time")


class _Running(threading.local):
    statement: RunningStatement | None = None


_running = _Running()


def check() -> None:
    """Raise `SqlError` (57014) if the statement that this thread is running has to end."""
    if _running.statement is not None:
        _running.statement.check()


def lock_timeout() -> float | None:
    """How many seconds the statement of this thread may wait for its turn to write; None for as long as it takes."""
    return None if _running.statement is None else _running.statement.lock_timeout


class RunningStatements:
    """The statements that the threads of a database are running."""

    def __init__(self) -> None:
        self._all: dict[int, RunningStatement] = {}

    @contextmanager
    def run(self, timeout: float | None, lock_timeout: float | None, owner: object = None) -> Iterator[None]:
        """Run a statement of `owner` that can be canceled, and is if it takes longer than `timeout` seconds."""
        statement = RunningStatement(lock_timeout, owner)
        timer = None if timeout is None else threading.Timer(timeout, statement.cancel, (TIMED_OUT,))
        self._all[statement.thread] = _running.statement = statement
        try:
            if timer is not None:
                timer.daemon = True
                timer.start()
            yield
        except Exception as error:
            # DuckDB may be interrupted where nothing turns that into an error of ours.
            if getattr(error, "sqlstate", "57014") == "57014":
                statement.check()
            raise
        finally:
            statement.is_ended = True
            _running.statement = None
            del self._all[statement.thread]
            if timer is not None:
                timer.cancel()

    def is_running(self) -> bool:
        """Whether this thread runs one already."""
        return _running.statement is not None

    def of(self, owner: object) -> list[RunningStatement]:
        """What is running for a database or connection."""
        return [each for each in list(self._all.values()) if each.owner is owner]

    def cancel(self, thread: int | None) -> int:
        """Cancel what other threads are running, or one of them. Returns how many statements that were."""
        mine = threading.get_ident()
        found = [each for each in list(self._all.values()) if each.thread != mine and thread in (None, each.thread)]
        for each in found:
            each.reason = each.reason or CANCELED
        for each in found:
            each.cancel(CANCELED)
        return len(found)
