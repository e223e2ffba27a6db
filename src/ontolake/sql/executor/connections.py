"""Connections to DuckDB: one database in memory for the process, connections to it that are kept and used again.

Every query runs on a connection of its own, so that queries of several threads do not wait for each other, and
`interrupt` ends that of another thread.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

from ontolake.extras import needs

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY = "ONTOLAKE_SQL_MEMORY"
"""The environment variable that limits the memory of queries, such as `2GB`; what exceeds it goes to a file."""
KEPT = 8
"""Connections that are kept when they are not in use."""
_SETTINGS = {
    "TimeZone": "UTC", "autoinstall_known_extensions": False, "autoload_known_extensions": False,
    "enable_external_access": False, "python_enable_replacements": False, "integer_division": True,
    "default_null_order": "nulls_last_on_asc_first_on_desc", "enable_progress_bar": False,
    "disabled_optimizers": "aggregate_function_rewriter",  # which loses that sum(a + 1) may be too large
}  # fmt: skip


_generations = count()


class _Pool:
    """The database, its idle connections, and which thread runs what."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.idle: list[DuckDBPyConnection] = []
        self.running: dict[int, list[DuckDBPyConnection]] = {}
        self.root: DuckDBPyConnection | None = None
        self.functions: set[str] = set()
        self.generation = next(_generations)

    def open(self) -> DuckDBPyConnection:
        """The first connection, which makes the database."""
        if self.root is None:
            with needs("sql", "a query of SQL tables"):
                import duckdb

            config: dict[str, Any] = {"temp_directory": os.path.join(tempfile.gettempdir(), f"ontolake-{os.getpid()}")}
            if os.environ.get(MEMORY):
                config["memory_limit"] = os.environ[MEMORY]
            self.root = duckdb.connect(":memory:", config=config)
            for name, value in _SETTINGS.items():
                shown = f"'{value}'" if isinstance(value, str) else str(value).lower()
                self.root.execute(f"SET {name} = {shown}")
        return self.root

    def close(self) -> None:
        for connection in (*self.idle, *([self.root] if self.root is not None else ())):
            connection.close()
        self.__init__()  # type: ignore[misc]


_pool = _Pool()
atexit.register(lambda: _pool.close())
os.register_at_fork(after_in_child=lambda: _forget())


def _forget() -> None:
    """A forked process cannot use its parent's threads, so it begins with a database of its own."""
    global _pool
    _forked.append(_pool)  # closing it would wait for threads that are not there
    _pool = _Pool()


_forked: list[_Pool] = []


@contextmanager
def connection() -> Iterator[DuckDBPyConnection]:
    """A connection for one query of this thread."""
    pool, thread = _pool, threading.get_ident()
    with pool.lock:
        found = pool.idle.pop() if pool.idle else pool.open().cursor()
        pool.running.setdefault(thread, []).append(found)
    try:
        yield found
    finally:
        with pool.lock:
            pool.running[thread].remove(found)
            if not pool.running[thread]:
                del pool.running[thread]
            keep = len(pool.idle) < KEPT
            if keep:
                pool.idle.append(found)
        if not keep:
            found.close()


def define(name: str, make: Callable[[Any], Any]) -> None:
    """Make a function or macro known to all connections, once."""
    pool = _pool
    if name in pool.functions:
        return
    with pool.lock:
        if name not in pool.functions:
            make(pool.open())
            pool.functions.add(name)


def generation() -> int:
    """A number that changes when the database is made anew, with which functions have to be defined again."""
    return _pool.generation


def interrupt(thread: int) -> bool:
    """End the queries that another thread runs; they raise `57014`. Returns whether there were any."""
    with _pool.lock:
        found = list(_pool.running.get(thread, ()))
        for each in found:
            each.interrupt()
    return bool(found)


@lru_cache(maxsize=1)
def version() -> str:
    """DuckDB's version."""
    import duckdb

    return str(duckdb.__version__)
