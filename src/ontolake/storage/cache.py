"""A bounded cache in two generations.

Hits in the young generation cost one dictionary lookup and no bookkeeping. When it is full it becomes the old
one and what it replaces is forgotten; a hit in the old generation moves to the young one.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

V = TypeVar("V")


class Cache(Generic[V]):
    """At most about `limit` values. `lock` makes several steps one; `young` may be read without it."""

    __slots__ = ("_half", "_old", "lock", "young")

    def __init__(self, limit: int) -> None:
        self._half = (limit + 1) // 2
        self._old: dict[Hashable, V] = {}
        self.young: dict[Hashable, V] = {}
        self.lock = threading.RLock()

    def get(self, key: Hashable) -> V | None:
        found = self.young.get(key)
        if found is None and key in self._old:
            # Moving it must not replace what another thread has put there meanwhile.
            with self.lock:
                found = self.young.get(key) or self._old.get(key)
                if found is not None:
                    self.put(key, found)
        return found

    def put(self, key: Hashable, value: V) -> None:
        self.put_all(((key, value),))

    def put_all(self, items: Sequence[tuple[Hashable, V]]) -> None:
        """Put many at once; of more than there is room for, the last ones stay."""
        if self._half <= 0:
            return
        with self.lock:
            if len(self.young) + len(items) > self._half:
                # The dictionary that readers hold is cleared, not replaced: they may keep a reference to it.
                self._old = self.young.copy()
                self.young.clear()
                items = items[-self._half :]
            self.young.update(items)

    def clear(self) -> None:
        with self.lock:
            self.young.clear()
            self._old = {}

    def __len__(self) -> int:
        return len(self.young) + len(self._old)
