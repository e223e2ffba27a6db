"""Turning many small reads into few larger ones: a pure rule, the same for every store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ontolake.errors import Invalid, StorageError
from ontolake.objects.keys import check, check_range
from ontolake.objects.store import Range

GAP = 64 * 1024
"""Ranges this close are cheaper to read with the bytes between them than with another request."""

LIMIT = 8 * 1024 * 1024
"""A merged read is no longer than this, unless one range alone is; bounds memory and keeps reads parallel."""


class Fetch(NamedTuple):
    """One read, and the numbers of the ranges that it answers."""

    key: str
    start: int
    length: int
    answers: tuple[int, ...]


def coalesce(ranges: Sequence[Range], *, gap: int = GAP, limit: int = LIMIT) -> list[Fetch]:
    """Reads that together cover `ranges`; each range is within exactly one read.

    Ranges of one key at most `gap` bytes apart share a read of at most `limit` bytes.
    """
    fetches: list[Fetch] = []
    order = sorted(range(len(ranges)), key=lambda i: (ranges[i].key, ranges[i].start, ranges[i].length))
    for i in order:
        key, start, length = ranges[i]
        if fetches:
            last = fetches[-1]
            end = max(last.start + last.length, start + length)
            near = last.key == key and start <= last.start + last.length + gap
            if near and (end - last.start <= limit or end == last.start + last.length):
                fetches[-1] = Fetch(key, last.start, end - last.start, (*last.answers, i))
                continue
        fetches.append(Fetch(key, start, length, (i,)))
    return fetches


def read_ranges(
    ranges: Sequence[Range],
    run: Callable[[Sequence[Fetch]], Iterable[bytes | StorageError]],
    *,
    gap: int = GAP,
    limit: int = LIMIT,
) -> list[bytes | StorageError]:
    """What a store's `get_ranges` returns, where `run` gives the outcome of each read, in their order."""
    results: list[bytes | StorageError] = [b""] * len(ranges)
    good: list[int] = []
    for i, (key, start, length) in enumerate(ranges):
        try:
            check(key)
            check_range(start, length)
            good.append(i)
        except Invalid as error:
            results[i] = error
    fetches = coalesce([ranges[i] for i in good], gap=gap, limit=limit)
    for fetch, outcome in zip(fetches, run(fetches), strict=True):
        for answer in fetch.answers:
            i = good[answer]
            offset = ranges[i].start - fetch.start
            results[i] = outcome if isinstance(outcome, StorageError) else outcome[offset : offset + ranges[i].length]
    return results
