"""Memory that a server does not need while it rests: what was freed goes back to the system."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import sys
import time

REST = 10.0
"""Seconds without a request after which memory is given back."""


def give_back() -> None:
    """Collect garbage, and give back what allocators keep for later."""
    gc.collect()
    if (pyarrow := sys.modules.get("pyarrow")) is not None:
        pyarrow.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # a C library that cannot
        ctypes.CDLL(None).malloc_trim(0)


class RestWatch:
    """Gives memory back once after a while without requests. For the event loop."""

    def __init__(self, rest: float = REST) -> None:
        self._rest = rest
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def worked(self) -> None:
        """A request has ended."""
        self._last = time.monotonic()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._rest, self._look)

    def _look(self) -> None:
        left = self._last + self._rest - time.monotonic()
        loop = asyncio.get_running_loop()
        if left > 0:
            self._timer = loop.call_later(left, self._look)
        else:
            self._timer = None
            loop.run_in_executor(None, give_back)
