"""Whether keys are among those of a fragment: made once from its key columns, exact, asked for many keys at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ontolake.arrow_keys import numbers_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MIX = -7046029254386353131
_SPREAD = 16
"""Integers are marked in a table as long as this has at most so many places for each of them."""


class KeyLookup:
    """Keys to look for, as columns of the types that the stored ones have. None of them is null."""

    def __init__(self, columns: Sequence[Any]) -> None:
        self.columns = columns

    @cached_property
    def hashes(self) -> NDArray[Any]:
        return _hashes(self.columns)

    @cached_property
    def values(self) -> list[Any]:
        """One value for each key, a tuple for those of several columns."""
        return values_of(self.columns)


def values_of(columns: Sequence[Any]) -> list[Any]:
    found = [column.to_pylist() for column in columns]
    return found[0] if len(found) == 1 else list(zip(*found, strict=True))


def _hashes(columns: Sequence[Any]) -> NDArray[Any]:
    """One integer per key, equal where keys are. A single integer is its own."""
    combined: NDArray[Any] | None = None
    for column in columns:
        numbers = numbers_of(column)
        if numbers is None:
            numbers = np.fromiter(map(hash, column.to_pylist()), np.int64, len(column))
        part = numbers.astype(np.int64, copy=False)
        combined = part if combined is None else combined * _MIX + part
    assert combined is not None
    return combined


class KeyBlock:
    """The keys of some rows."""

    def __init__(self, columns: Sequence[Any]) -> None:
        self.rows = len(columns[0])
        self._marks: NDArray[Any] | None = None
        numbers = [numbers_of(column) for column in columns]
        self._exact = len(columns) == 1 and numbers[0] is not None
        hashes = _hashes(columns)
        if self._exact and self.rows:
            self._low, high = int(hashes.min()), int(hashes.max())
            if high - self._low < _SPREAD * self.rows:
                self._marks = np.zeros(high - self._low + 1, dtype=bool)
                self._marks[hashes - self._low] = True
                return
        if self._exact:
            self._hashes = np.sort(hashes)
            return
        order = np.argsort(hashes)
        self._hashes, self._order = hashes[order], order.astype(np.int32)
        self._columns = [column if found is None else found for column, found in zip(columns, numbers, strict=True)]

    def has(self, wanted: KeyLookup) -> NDArray[Any]:
        """For each key whether it is among these."""
        if self._marks is not None:
            places = wanted.hashes - self._low
            inside = (wanted.hashes >= self._low) & (places >= 0) & (places < len(self._marks))
            inside[inside] = self._marks[places[inside]]
            return inside
        first = np.searchsorted(self._hashes, wanted.hashes, "left")
        last = np.searchsorted(self._hashes, wanted.hashes, "right")
        found = last > first
        if not self._exact:
            for number in np.flatnonzero(found):
                places = self._order[first[number] : last[number]]
                found[number] = any(self._at(int(place)) == wanted.values[number] for place in places)
        return found

    def _at(self, place: int) -> Any:
        found = [column[place].item() if isinstance(column, np.ndarray) else column[place].as_py()
                 for column in self._columns]  # fmt: skip
        return found[0] if len(found) == 1 else tuple(found)
