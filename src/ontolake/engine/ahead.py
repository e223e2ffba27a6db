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
    """The pages below one inner page, in key order; those from `low` to `high` were foreseen last."""

    __slots__ = ("high", "low", "pages", "parent", "window")

    def __init__(self, parent: int, pages: list[int]) -> None:
        self.parent = parent
        self.pages = pages
        self.window = 0
        self.low = self.high = 0

    def enter(self, i: int, step: int, window: int) -> None:
        """A scan comes to the i-th page, going forwards or backwards."""
        self.window = window
        self.low = self.high = i if step > 0 else i + 1

    def direction(self, i: int) -> int:
        """1 if a scan goes on forwards at the i-th page, -1 if backwards, 0 if there is none."""
        if self.window and self.high <= i <= self.high + self.window:
            return 1
        return -1 if self.low - self.window <= i < self.low else 0


class ReadAhead:
    """Learns from the pages of one version of a database, and guesses."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[Family, int]] = {}
        self._families: dict[int, Family] = {}
        self._heirs: dict[int, tuple[int, int]] = {}
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
        family = self._families[number] = Family(number, pages)
        step, window = self._heirs.pop(number, (1, 0))
        family.enter(0 if step > 0 else len(pages) - 1, step, window)
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
        step = family.direction(i)
        window = min(2 * family.window, _MOST) if step else _FIRST
        return list(islice(self._from(family, i, step or 1, window), window))

    def _from(self, family: Family, i: int, step: int, window: int) -> Iterator[int]:
        """The pages of a scan from the i-th of a family on, and on over the families next to it that are known."""
        while True:
            family.enter(i, step, window)
            for page in family.pages[i:] if step > 0 else family.pages[i::-1]:
                if step > 0:
                    family.high += 1
                else:
                    family.low -= 1
                yield page
            parent, place = self._places.get(family.parent, (None, 0))
            if parent is None or not 0 <= place + step < len(parent.pages):
                return
            following = parent.pages[place + step]
            if following not in self._families:
                self._heirs[following] = step, window
                return
            family = self._families[following]
            i = 0 if step > 0 else len(family.pages) - 1

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
