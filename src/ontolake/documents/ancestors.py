"""What two lines of history have in common: where they parted, or the latest state that both have taken in since."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import apsw

from ontolake.documents import codec
from ontolake.documents.database import Database, rows

_PAGE_SIZE = 200
_COMMITS = f"""\
SELECT seq, iif(instr(resolution, '"merged"'), resolution, NULL) FROM "commit"
WHERE branch = ? AND seq <= ?
ORDER BY seq DESC LIMIT {_PAGE_SIZE}"""


class _Part(NamedTuple):
    """Commits of a branch up to a seq that one of the two sides holds. Of two parts the newer one sorts first."""

    back: int
    side: int
    branch: str
    entered: bool
    """Whether this is where the side comes upon the branch, and not where looking through it goes on."""


def nearest_common(
    database: Database, connection: apsw.Connection, theirs: tuple[str, int], ours: tuple[str, int]
) -> tuple[str, int]:
    """The latest state, a branch and a seq, that two states have both grown out of, through any number of merges.

    Both sides are followed back together, newest first, and no further than to that state: what came before it is
    not looked at.
    """
    held: tuple[set[str], set[str]] = (set(), set())
    waiting: list[_Part] = []
    for side, (branch, seq) in enumerate((theirs, ours)):
        heappush(waiting, _Part(-seq, side, branch, True))
    while True:
        back, side, branch, entered = heappop(waiting)
        seq = -back
        if entered:
            if branch in held[side]:
                continue
            if branch in held[1 - side]:
                return branch, seq
            held[side].add(branch)
            parent, fork = database.lineage(branch)
            if parent is not None:
                heappush(waiting, _Part(-min(seq, fork), side, parent, True))
        page = rows(connection, _COMMITS, (branch, seq))
        for _, decided in page:
            if decided is not None:
                merged = codec.decode(decided)["merged"]
                heappush(waiting, _Part(-merged["seq"], side, merged["branch"], True))
        if len(page) == _PAGE_SIZE:
            heappush(waiting, _Part(-(page[-1][0] - 1), side, branch, False))
