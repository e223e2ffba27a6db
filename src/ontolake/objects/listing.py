"""Listings in key order from servers that list in another one: pure rules, apart from any request.

S3 lists keys in the order of their bytes. SeaweedFS goes by directory: all of `a/…` comes before `a-b`, though
`-` sorts before `/`, and "start after `a-b`" leaves out `a/…`. The rules here hold for both.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from ontolake.objects.keys import problem
from ontolake.objects.store import ObjectInfo


def in_key_order(found: Iterable[ObjectInfo], base: str) -> Iterator[ObjectInfo]:
    """`found`, all below the directory `base` ("" or ending in a slash), in the order of their keys.

    A key is held back only while one that sorts before it may still come: keys in `base` itself pass at once,
    those in a directory below it wait until the listing has left that directory.
    """
    held: list[ObjectInfo] = []
    for info in found:
        while held and _settled(held[0].key, info.key, len(base)):
            yield heapq.heappop(held)
        heapq.heappush(held, info)
    while held:
        yield heapq.heappop(held)


def _settled(key: str, current: str, start: int) -> bool:
    """Whether a listing that has come to `current` will bring nothing any more that sorts before `key`."""
    slash = key.find("/", start)
    while slash >= 0:
        if current.startswith(key[:slash]) and current[slash : slash + 1] <= "/":
            return False
        slash = key.find("/", slash + 1)
    return True


def start_after(prefix: str, after: str | None, base: str) -> str | None:
    """Where a server may start, so that it leaves out nothing that starts with `prefix` and sorts after `after`.

    Both orders agree up to the first character that sorts before a slash. What follows is cut off, and the rest
    made a little smaller, since SeaweedFS takes "after `a`" to mean after all of `a/…` too.
    """
    start = max(prefix, after or "")
    if not start.startswith(base):
        return None
    cut = next((i for i in range(len(base), len(start)) if start[i] < "/"), len(start))
    while cut > len(base):
        smaller = ord(start[cut - 1]) - 1
        if smaller > ord("/") and not 0xD800 <= smaller <= 0xDFFF:
            below = f"{start[: cut - 1]}{chr(smaller)}~"
            return None if problem(below) else below
        cut -= 1
    return None
