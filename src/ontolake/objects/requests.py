"""How many requests this process has sent to object stores, by operation."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping


class RequestCounts:
    """Counts requests. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, operation: str) -> None:
        with self._lock:
            self._counts[operation] += 1

    def totals(self) -> Mapping[str, int]:
        """The number of requests by operation: `get`, `put`, `list`, `delete`."""
        with self._lock:
            return dict(self._counts)


REQUESTS = RequestCounts()
"""Those of all stores of this process."""
