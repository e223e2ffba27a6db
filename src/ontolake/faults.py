"""Fault points: the named steps of every write, where a test can stop, kill or pause the process.

A backend calls `reach("what is about to happen")` before and after each step that changes what is
stored. Nothing happens unless a test has armed a hook, so the cost in normal use is one comparison.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Hook = Callable[[str], None]

_hook: Hook | None = None


def reach(step: str) -> None:
    """Tell an armed test that `step` has been reached. The test may raise, pause or kill here."""
    if _hook is not None:
        _hook(step)


def armed() -> bool:
    """Whether a hook is listening: writers then split big writes, so that a tear can be tested."""
    return _hook is not None


@contextmanager
def arm(hook: Hook) -> Iterator[None]:
    """Call `hook(step)` at every fault point inside the block, from whichever thread reaches it."""
    global _hook
    previous, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = previous


class At:
    """A hook that acts at the n-th fault point (from 0) and records the names of all it has seen."""

    def __init__(self, n: int, action: Callable[[], None]) -> None:
        self.n = n
        self.action = action
        self.seen: list[str] = []

    def __call__(self, step: str) -> None:
        self.seen.append(step)
        if len(self.seen) == self.n + 1:
            self.action()


def kill() -> None:
    """End this process the hard way: no handlers, no flushing."""
    os.kill(os.getpid(), 9)
