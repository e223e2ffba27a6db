"""Which small fragments are worth merging, so that there are few and a row is seldom rewritten."""

from __future__ import annotations

from collections.abc import Iterable

FRAGMENT_ROWS = 262_144
"""Rows in a file at most. Changing some of them costs Lance a look at all ids of the fragment that they are in, and
every file costs the time to begin and end it."""
FEW = 4
"""Fragments of a table that are not worth rewriting."""


def rows_to_merge(sizes: Iterable[int]) -> int | None:
    """The size of fragments to merge those below it into; None if there are few.

    A fragment much bigger than all smaller ones together is left alone, so that a row is rewritten each time that the
    table has doubled, and not each time that anything is written.
    """
    total, count, found = 0, 0, None
    for size in sorted(size for size in sizes if size < FRAGMENT_ROWS):
        if count >= FEW and size >= 2 * total:
            break
        total += size
        count += 1
        found = total + 1
    return min(found, FRAGMENT_ROWS) if count > FEW and found is not None else None
