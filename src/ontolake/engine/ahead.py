"""Which pages SQLite will ask for next, so that a scan does not cost a round trip per page.

An inner page of a tree names the pages below it in key order, which is the order of a scan wherever they lie in the
file. What no tree has named yet is expected to be followed by its neighbours, as the pages of a long value are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice

_FIRST, _MOST = 8, 256
"""Pages fetched at once: at first, and when a scan has gone on for long."""
_INNER = (2, 5)
"""The first byte of an inner page, of an index and of a table."""
_STREAMS, _PLACES = 64, 50_000
"""What is remembered at most: ends of runs, and places of pages in trees."""
_HEAD = struct.Struct(">BHHHBI")


class Family:
    """The pages below one inner page, in key order, and how far a scan over them has been foreseen."""

    __slots__ = ("end", "pages", "parent", "window")

    def __init__(self, parent: int, pages: list[int], window: int) -> None:
        self.parent = parent
        self.pages = pages
        self.window = window
        self.end = 0


class ReadAhead:
    """Learns from the pages of one version of a database, and guesses."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[Family, int]] = {}
        self._families: dict[int, Family] = {}
        self._heirs: dict[int, int] = {}
        self._runs: dict[int, int] = {}

    def learn(self, number: int, image: bytes, last: int) -> None:
        """Take in a page that was fetched. `last` is the last page of the database."""
        if image[0] not in _INNER or number == 1:
            return
        pages = children(image, last)
        if not pages:
            return
        if len(self._places) + len(pages) > _PLACES:
            self._make_room()
        family = self._families[number] = Family(number, pages, self._heirs.pop(number, 0))
        self._places.update((page, (family, i)) for i, page in enumerate(pages))

    def _make_room(self) -> None:
        """Forget families that were learnt of long ago, but not those that lead a scan from one to the next."""
        for number, family in list(self._families.items()):
            if len(self._places) <= _PLACES // 2:
                return
            if not any(page in self._families for page in family.pages):
                del self._families[number]
                for page in family.pages:
                    self._places.pop(page, None)

    def forget(self) -> None:
        """The database has changed."""
        self._places.clear()
        self._families.clear()
        self._heirs.clear()
        self._runs.clear()

    def guess(self, number: int, last: int) -> list[int]:
        """`number`, which is wanted now, and the pages that are worth fetching with it."""
        place = self._places.get(number)
        if place is None:
            return self._neighbours(number, last)
        family, i = place
        scanning = family.window and family.end <= i <= family.end + family.window
        family.window = min(2 * family.window, _MOST) if scanning else _FIRST
        return list(islice(self._from(family, i, family.window), family.window))

    def _from(self, family: Family, i: int, window: int) -> Iterator[int]:
        """The pages of a scan from the i-th of a family on, and on over the families next to it that are known."""
        while True:
            for page in family.pages[i:]:
                i += 1
                family.end = i
                yield page
            parent = self._places.get(family.parent)
            if parent is None or parent[1] + 1 >= len(parent[0].pages):
                return
            following = parent[0].pages[parent[1] + 1]
            if following not in self._families:
                self._heirs[following] = window
                return
            family, i = self._families[following], 0
            family.window = window

    def _neighbours(self, number: int, last: int) -> list[int]:
        window = min(2 * self._runs.pop(number, _FIRST // 2), _MOST)
        end = max(number, min(number + window - 1, last))
        if len(self._runs) >= _STREAMS:
            self._runs.clear()
        self._runs[end + 1] = window
        return list(range(number, end + 1))


def children(image: bytes, last: int) -> list[int]:
    """The pages that an inner page names, in key order; none if it cannot be an inner page after all."""
    kind, _, count, content, _, rightmost = _HEAD.unpack_from(image)
    start, size = 12 + 2 * count, len(image)
    if kind not in _INNER or not count or start > (content or 65536) or start > size:
        return []
    pointers = struct.unpack_from(f">{count}H", image, 12)
    if min(pointers) < start or max(pointers) > size - 4:
        return []
    pages = [int.from_bytes(image[at : at + 4], "big") for at in pointers]
    pages.append(rightmost)
    return pages if min(pages) > 1 and max(pages) <= last and len(set(pages)) == len(pages) else []
