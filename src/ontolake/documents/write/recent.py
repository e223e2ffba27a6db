"""Documents that were written a moment ago, so that the next patch need not read them again.

The log only grows, so a remembered document is the current one for as long as no commit has touched its entity;
commits of other processes are noticed by their seq.
"""

from __future__ import annotations

import apsw

from ontolake.documents.database import row, rows
from ontolake.documents.read.replay import EntityState

ERASE = "erase"
"""The command of a commit that erased documents, of which no revision tells."""

_TOUCHED = "SELECT branch, id FROM revision WHERE commit_seq > ?"
_ERASED = f"""\
SELECT EXISTS (SELECT 1 FROM "commit" WHERE seq > ? AND branch = ''
  AND instr(substr(original, 1, 64), '"command":"{ERASE}"'))"""
_MOST_COMMITS_TO_FOLLOW = 1000
MOST_BYTES = 32 * 2**20
"""Bytes of documents that are kept in memory."""


class Recent:
    """The newest state of some entities, by branch and id. Used under the lock of the writer.

    When more than `MOST_BYTES` have been taken in, it starts again from nothing: keeping account of every entity
    would cost more than reading a few again.
    """

    def __init__(self) -> None:
        self._states: dict[str, dict[str, EntityState]] = {}
        self._bytes = 0
        self._seq = 0

    def follow(self, connection: apsw.Connection, last: int) -> None:
        """Forget what commits up to `last` have changed that went past us."""
        if last == self._seq:
            return
        if 0 < last - self._seq <= _MOST_COMMITS_TO_FOLLOW and not row(connection, _ERASED, (self._seq,))[0]:
            for branch, id in rows(connection, _TOUCHED, (self._seq,)):
                self.of(branch).pop(id, None)
        else:
            self.clear()
        self._seq = last

    def of(self, branch: str) -> dict[str, EntityState]:
        """What is known of the entities of a branch; all others have to be read."""
        known = self._states.get(branch)
        if known is None:
            known = self._states[branch] = {}
        return known

    def keep(self, branch: str, seq: int, states: dict[str, EntityState]) -> None:
        """Remember what the commit `seq`, which is ours, has made of some entities."""
        self._bytes += sum([found.size for found in states.values()])
        if self._bytes > MOST_BYTES:
            self.clear()
        self.of(branch).update(states)
        self._seq = seq

    def clear(self) -> None:
        self._states.clear()
        self._bytes = self._seq = 0
