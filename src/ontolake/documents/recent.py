"""Documents that were written a moment ago, so that the next patch need not read them again.

The log only grows, so a remembered document is the current one for as long as no commit has touched its entity;
commits of other processes are noticed by their seq.
"""

from __future__ import annotations

import apsw

from ontolake.documents.database import rows
from ontolake.documents.reading import Found

_TOUCHED = "SELECT branch, id FROM revision WHERE commit_seq > ?"
_MOST_COMMITS_TO_FOLLOW = 1000


class Recent:
    """The newest state of some entities, each under its branch and id. Used under the lock of the writer."""

    def __init__(self, most_bytes: int = 32 * 2**20, most: int = 10_000) -> None:
        self._most_bytes = most_bytes
        self._most = most
        self._states: dict[tuple[str, str], tuple[Found, int]] = {}
        self._bytes = 0
        self._seq = 0

    def follow(self, connection: apsw.Connection, last: int) -> None:
        """Forget what commits up to `last` have changed that went past us."""
        if last == self._seq:
            return
        if 0 < last - self._seq <= _MOST_COMMITS_TO_FOLLOW:
            for branch, id in rows(connection, _TOUCHED, (self._seq,)):
                self._forget((branch, id))
        else:
            self.clear()
        self._seq = last

    def get(self, branch: str, id: str) -> tuple[Found, int] | None:
        """The state of an entity and its size in bytes, as far as that is known; None if it has to be read."""
        return self._states.get((branch, id))

    def keep(self, branch: str, seq: int, states: dict[str, tuple[Found, int]]) -> None:
        """Remember what the commit `seq`, which is ours, has made of some entities."""
        for id, (found, size) in states.items():
            self._forget((branch, id))
            self._states[branch, id] = (found, size)
            self._bytes += size
        self._seq = seq
        while self._states and (self._bytes > self._most_bytes or len(self._states) > self._most):
            self._forget(next(iter(self._states)))

    def clear(self) -> None:
        self._states.clear()
        self._bytes = self._seq = 0

    def _forget(self, entity: tuple[str, str]) -> None:
        known = self._states.pop(entity, None)
        if known is not None:
            self._bytes -= known[1]
