"""Several things at once: waits for the disk overlap, and so does the work of Lance on different tables.

While a test has armed fault points everything is done one after the other, so that the points come in one order.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from ontolake import faults

Result = TypeVar("Result")

_pools: dict[str, ThreadPoolExecutor] = {}
_WIDTH = {"sync": 12, "write": max(2, (os.cpu_count() or 1) // 2), "work": 4}
"""Syncs only wait. While Lance begins and ends the files of one write, it encodes the rows of another. Neither waits
for anybody else; work may wait for both, never for other work."""

os.register_at_fork(after_in_child=_pools.clear)


def _pool(name: str) -> ThreadPoolExecutor:
    found = _pools.get(name)
    if found is None:
        found = _pools.setdefault(name, ThreadPoolExecutor(_WIDTH[name], thread_name_prefix=f"ontolake-graph-{name}"))
    return found


def begin(action: Callable[[], Result], pool: str = "work") -> Future[Result]:
    """Start one piece of work and go on; at once and here while fault points are armed."""
    if not faults.armed():
        return _pool(pool).submit(action)
    done: Future[Result] = Future()
    try:
        done.set_result(action())
    except BaseException as error:
        done.set_exception(error)
    return done


def together(actions: Sequence[Callable[[], Result]]) -> tuple[list[Result], list[BaseException]]:
    """Do all of it, and return results (in their order) and what was raised, when all have come to an end."""
    if len(actions) > 1 and not faults.armed():
        others = [_pool("work").submit(action) for action in actions[1:]]
        futures: list[Future[Result]] = [Future(), *others]
        try:
            futures[0].set_result(actions[0]())
        except BaseException as error:
            futures[0].set_exception(error)
        wait(others)
        failed = [future.exception() for future in futures]
        return ([future.result() for future in futures if future.exception() is None],
                [problem for problem in failed if problem is not None])
    found: list[Result] = []
    for action in actions:
        try:
            found.append(action())
        except BaseException as error:
            return found, [error]
    return found, []


def in_order(writes: Sequence[Callable[[], Result]]) -> Iterator[Result]:
    """Write some of it at once, and return results in their order. None is at work any more when the last one, or what
    was raised, is told."""
    if len(writes) == 1:
        yield writes[0]()
        return
    futures = [begin(write, "write") for write in writes]
    try:
        for future in futures:
            yield future.result()
    finally:
        for future in futures:
            future.cancel()
        wait(futures)


def sync(path: str) -> bool:
    """Sync a file or directory; False if it is not there. Raises `OSError` if the disk cannot."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


def begin_sync(path: str) -> Future[bool]:
    """Start to sync a file and go on."""
    return begin(partial(sync, path), "sync")


def sync_all(paths: Iterable[str]) -> None:
    """Sync files and directories, each once; those that are not there are passed over."""
    distinct = list(dict.fromkeys(paths))
    if len(distinct) < 2 or faults.armed():
        for path in distinct:
            sync(path)
        return
    pool = _pool("sync")
    futures = [pool.submit(sync, path) for path in distinct[1:]]
    try:
        sync(distinct[0])
    finally:
        wait(futures)
    for future in futures:
        future.result()


class Turns:
    """Who may move the tables of a branch: any number of writers at once, or one who is alone."""

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._writers: Counter[str] = Counter()
        self._alone: dict[str, int] = {}

    @contextmanager
    def writing(self, branch: str) -> Iterator[None]:
        with self._free:
            self._free.wait_for(lambda: self._alone.get(branch, threading.get_ident()) == threading.get_ident())
            self._writers[branch] += 1
        try:
            yield
        finally:
            with self._free:
                self._writers[branch] -= 1
                self._free.notify_all()

    @contextmanager
    def alone(self, branch: str, seconds: float) -> Iterator[bool]:
        """Whether there was a moment in which nobody wrote; writers that come after it wait until the block ends."""
        with self._free:
            mine = self._free.wait_for(lambda: branch not in self._alone and not self._writers[branch], seconds)
            if mine:
                self._alone[branch] = threading.get_ident()
        try:
            yield mine
        finally:
            if mine:
                with self._free:
                    del self._alone[branch]
                    self._free.notify_all()
