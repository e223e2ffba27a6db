"""A bounded cache of pages, kept in two generations.

Hits in the young generation cost one dictionary lookup and no bookkeeping. When it is full it becomes the old
one and what it replaces is forgotten; a hit in the old generation moves to the young one.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Cache(Generic[V]):
    """At most about `limit` values. Not locked: callers that write from threads hold their own lock."""

    __slots__ = ("_half", "old", "young")

    def __init__(self, limit: int) -> None:
        self._half = (limit + 1) // 2
        self.young: dict[Hashable, V] = {}
        self.old: dict[Hashable, V] = {}

    def get(self, key: Hashable) -> V | None:
        found = self.young.get(key)
        if found is None:
            found = self.old.get(key)
            if found is not None:
                self.put(key, found)
        return found

    def put(self, key: Hashable, value: V) -> None:
        if self._half <= 0:
            return
        if len(self.young) >= self._half:
            # The dictionary that readers hold is cleared, not replaced: they may keep a reference to it.
            self.old = dict(self.young)
            self.young.clear()
        self.young[key] = value

    def forget(self, key: Hashable) -> None:
        self.young.pop(key, None)
        self.old.pop(key, None)

    def clear(self) -> None:
        self.young.clear()
        self.old = {}

    def __len__(self) -> int:
        return len(self.young) + len(self.old)
