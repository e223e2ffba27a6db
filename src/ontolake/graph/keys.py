"""Keys by the million: whether each is there once, and which of them are among others.

Integers are compared in numpy, by marking where they lie close together and by sorting where they do not; everything
else by Arrow's hashes. Nothing here looks at keys one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SPREAD = 16
"""Integers are marked in a table as long as this has at most so many places for each of them."""
_LIMIT = 2**62


def _chunks(column: Any) -> list[Any]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _numbers(column: Any) -> NDArray[Any] | None:
    """The values of a column of signed integers without gaps, as one array; None for any other."""
    if not pa.types.is_signed_integer(column.type) or column.null_count:
        return None
    found = [chunk.to_numpy(zero_copy_only=False) for chunk in _chunks(column)]
    if len(found) == 1:
        return found[0]  # type: ignore[no-any-return]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _range(values: NDArray[Any]) -> tuple[int, int]:
    return (int(values.min()), int(values.max())) if len(values) else (0, -1)


class KeySet:
    """Values to look others up in: made once, asked as often as needed."""

    def __init__(self, values: Any) -> None:
        """`values` is a column, or several of one type in a list."""
        columns = values if isinstance(values, list) else [values]
        self._values: Any = None
        numbers = [_numbers(column) for column in columns]
        if all(found is not None for found in numbers):
            filled = [found for found in numbers if found is not None and len(found)]
            ranges = [_range(found) for found in filled]
            low, high = min((a for a, _ in ranges), default=0), max((b for _, b in ranges), default=-1)
            if high - low < _SPREAD * sum(map(len, filled)) + 1024:
                self._low, self._high = low, high
                self._marks = np.zeros(high - low + 1, dtype=bool)
                for found in filled:
                    self._marks[found - low if low else found] = True
                return
        chunks = [chunk for column in columns for chunk in _chunks(column)]
        self._values = pc.unique(pa.chunked_array(chunks, columns[0].type))

    def has(self, column: Any) -> NDArray[Any]:
        """For each value whether it is among these."""
        if self._values is None:
            given = _numbers(column)
            if given is not None:
                return self._marked(given)
            self._values = pa.array(np.flatnonzero(self._marks) + self._low, column.type)
        return np.asarray(pc.is_in(column, self._values))

    def _marked(self, given: NDArray[Any]) -> NDArray[Any]:
        low, high = _range(given)
        if len(given) == 0 or len(self._marks) == 0 or low > self._high or high < self._low:
            return np.zeros(len(given), dtype=bool)
        places = given - self._low if self._low else given
        if low >= self._low and high <= self._high:
            return self._marks.take(places)
        inside = (given >= self._low) & (given <= self._high)
        return inside & self._marks.take(np.where(inside, places, 0))


def _coded(column: Any) -> tuple[NDArray[Any], int]:
    """One integer from 0 on for each value, equal where values are, and how many there can be."""
    numbers = _numbers(column)
    if numbers is not None:
        low, high = _range(numbers)
        if high - low < _LIMIT:
            return (numbers.astype(np.int64, copy=False) - low if low else numbers), high - low + 1
        distinct, numbers = np.unique(numbers, return_inverse=True)
        return numbers, len(distinct)
    encoded = column.dictionary_encode(null_encoding="encode")
    parts = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in _chunks(encoded)]
    size = max((len(chunk.dictionary) for chunk in _chunks(encoded)), default=0)
    return (np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)).astype(np.int64), size


def codes(*columns: Any) -> NDArray[Any]:
    """One integer per row, equal where all columns are equal."""
    combined, size = _coded(columns[0])
    for column in columns[1:]:
        part, here = _coded(column)
        if size * here > _LIMIT:
            (first, combined), (second, part) = (np.unique(one, return_inverse=True) for one in (combined, part))
            size, here = len(first), len(second)
        combined = np.multiply(combined, here, dtype=np.int64)
        combined += part
        size *= here
    return combined


def are_distinct(*columns: Any) -> bool:
    """Whether no row is there twice."""
    if len(columns[0]) < 2:
        return True
    if len(columns) == 1 and _numbers(columns[0]) is None:
        return bool(pc.count_distinct(columns[0], mode="all").as_py() == len(columns[0]))
    found = codes(*columns)
    if (found[1:] > found[:-1]).all():
        return True
    low, high = _range(found)
    if high - low < _SPREAD * len(found):
        marks = np.zeros(high - low + 1, dtype=bool)
        marks[found - low if low else found] = True
        return int(np.count_nonzero(marks)) == len(found)
    if high < 2**32:
        found = found.astype(np.uint32)
    elif len(columns) == 1:
        found = found.copy()  # it may be the caller's own
    found.sort()
    return not bool((found[1:] == found[:-1]).any())


def repeated(*columns: Any) -> list[tuple[int, int]]:
    """The rows that are there more than once: where each is first, and where it is again."""
    found = codes(*columns)
    order = np.argsort(found, kind="stable")
    ranked = found[order]
    same = ranked[1:] == ranked[:-1]
    begins = np.flatnonzero(same & ~np.concatenate(([False], same[:-1])))
    return sorted(zip(order[begins].tolist(), order[begins + 1].tolist(), strict=True))


def contains(keys: pa.Table, table: pa.Table, names: Sequence[str]) -> pa.Array:
    """For each row of `table`, whether its key is in `keys`."""
    if len(names) == 1:
        return pa.array(KeySet(keys.column(names[0])).has(table.column(names[0])))
    both = codes(*(pa.chunked_array([*keys.column(name).chunks, *table.column(name).chunks], keys.column(name).type)
                   for name in names))
    return pa.array(np.isin(both[keys.num_rows :], both[: keys.num_rows]))
