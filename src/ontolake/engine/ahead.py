"""Which pages SQLite will ask for next, so that a scan does not cost a round trip per page.

An inner page of a tree names the pages below it in key order, which is the order of a scan wherever they lie in the
file. What no tree has named yet is expected to be followed by its neighbours, as the pages of a long value are.
"""

from __future__ import annotations

import struct

_FIRST, _MOST = 8, 256
"""Pages fetched at once: at first, and when a scan has gone on for long."""
_INNER = (2, 5)
"""The first byte of an inner page, of an index and of a table."""
_STREAMS, _PLACES = 64, 50_000
"""What is remembered at most: ends of runs, and places of pages in trees."""
_HEAD = struct.Struct(">BHHHBI")


class Family:
    """The pages below one inner page, in key order; those from `low` to `high` were foreseen last."""

    __slots__ = ("high", "leaves", "low", "pages", "parent", "window")

    def __init__(self, parent: int, pages: list[int]) -> None:
        self.parent = parent
        self.pages = pages
        self.leaves = True
        self.window = 0
        self.low = self.high = 0

    def first(self, step: int) -> int:
        """Where a scan enters that goes forwards or backwards."""
        return 0 if step > 0 else len(self.pages) - 1

    def take(self, i: int, step: int, window: int, most: int) -> list[int]:
        """Foresee at most so many pages from the i-th on; what comes after them will be the scan going on."""
        self.window = window
        if step > 0:
            self.low, self.high = i, min(i + most, len(self.pages))
            return self.pages[i : self.high]
        self.low, self.high = max(i + 1 - most, 0), i + 1
        return self.pages[self.low : self.high][::-1]

    def ended(self, step: int) -> bool:
        """Whether all pages of the family in this direction were foreseen."""
        return self.high == len(self.pages) if step > 0 else self.low == 0

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
        if number in self._places:
            self._places[number][0].leaves = False
        if len(self._places) + len(pages) > _PLACES:
            self._make_room()
        family = self._families[number] = Family(number, pages)
        step, window = self._heirs.pop(number, (1, 0))
        family.take(family.first(step), step, window, 0)
        self._places.update((page, (family, i)) for i, page in enumerate(pages))

    def _make_room(self) -> None:
        """Forget families that were learnt of long ago, but not those that lead a scan from one to the next."""
        for number, family in list(self._families.items()):
            if len(self._places) <= _PLACES // 2:
                return
            if family.leaves:
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
        return self._scan(family, i, step or 1, min(2 * family.window, self._most(family)) if step else _FIRST)

    def _most(self, family: Family) -> int:
        """Of inner pages not so many are fetched at once that what they name could not be kept in mind."""
        if family.leaves:
            return _MOST
        return max(_FIRST, min(_MOST, _PLACES // 4 * len(self._families) // len(self._places)))

    def _scan(self, family: Family, i: int, step: int, window: int) -> list[int]:
        """The pages of a scan from the i-th of a family on, and on over the families next to it that are known."""
        pages: list[int] = []
        while True:
            pages += family.take(i, step, window, window - len(pages))
            parent, place = self._places.get(family.parent, (None, 0))
            if not family.ended(step) or parent is None or not 0 <= place + step < len(parent.pages):
                return pages
            following = parent.pages[place + step]
            if following not in self._families:
                self._heirs[following] = step, window
                return pages
            family = self._families[following]
            i = family.first(step)

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
