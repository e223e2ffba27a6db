"""Keys by the million: whether each is there once, and which of them are among others.

Integers are compared in numpy, by marking where they lie close together and by sorting where they do not; everything
else by Arrow's hashes. Nothing here looks at keys one by one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_values import numbers as numpy_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SPREAD = 16
"""Integers are marked in a table as long as this has at most so many places for each of them."""
_LIMIT = 2**62
_MIX = -7046029254386353131
"""Multiplied with this, numbers that are close together differ in their high bits."""
_HIGH = int(sys.byteorder == "little")
_BLOCK = 32_768
"""Rows that are worked on at once: what that takes stays in the caches of a processor."""


def _chunks(column: Any) -> list[Any]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def numbers_of(column: Any) -> NDArray[Any] | None:
    """The values of a column of signed integers without gaps, as one array; None for any other."""
    if not pa.types.is_signed_integer(column.type) or column.null_count:
        return None
    found = [numpy_of(chunk) for chunk in _chunks(column)]
    if len(found) == 1:
        return found[0]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _blocks(size: int) -> Iterator[slice]:
    return (slice(start, min(start + _BLOCK, size)) for start in range(0, size, _BLOCK))


def _range(values: NDArray[Any]) -> tuple[int, int]:
    return (int(values.min()), int(values.max())) if len(values) else (0, -1)


class KeySet:
    """Values to look others up in: made once, asked as often as needed."""

    def __init__(self, values: Any) -> None:
        """`values` is a column, or several of one type in a list."""
        columns = values if isinstance(values, list) else [values]
        self._values: Any = None
        numbers = [numbers_of(column) for column in columns]
        if all(found is not None for found in numbers):
            filled = [found for found in numbers if found is not None and len(found)]
            ranges = [_range(found) for found in filled]
            low, high = min((a for a, _ in ranges), default=0), max((b for _, b in ranges), default=-1)
            if high - low < _SPREAD * sum(map(len, filled)) + 1024:
                self._low = low
                self._marks = np.zeros(max(high - low, 0) + 1, dtype=bool)
                for found in filled:
                    self._marks[found - low if low else found] = True
                self._gaps = not self._marks.all()
                return
        chunks = [chunk for column in columns for chunk in _chunks(column)]
        self._values = pc.unique(pa.chunked_array(chunks, columns[0].type))

    def has(self, column: Any) -> NDArray[Any]:
        """For each value whether it is among these."""
        if self._values is None:
            given = numbers_of(column)
            if given is not None:
                return self._marked(given)
            self._values = pa.array(np.flatnonzero(self._marks) + self._low, column.type)
        return np.asarray(pc.is_in(column, self._values))

    def has_all(self, column: Any) -> bool:
        """Whether each value is among these."""
        given = numbers_of(column) if self._values is None and not self._gaps else None
        if given is None:
            return bool(self.has(column).all())
        return all(self._low <= low and high < self._low + len(self._marks)
                   for low, high in (_range(given[rows]) for rows in _blocks(len(given))))

    def _marked(self, given: NDArray[Any]) -> NDArray[Any]:
        found = np.empty(len(given), dtype=bool)
        for rows in _blocks(len(given)):
            places = np.subtract(given[rows], self._low, dtype=np.int64)
            inside = np.less(places.view(np.uint64), len(self._marks), out=found[rows])  # negative ones lie far beyond
            if self._gaps:
                inside &= self._marks[places if inside.all() else np.where(inside, places, 0)]
        return found


def _coded(column: Any) -> tuple[NDArray[Any], int]:
    """One integer from 0 on for each value, equal where values are, and how many there can be."""
    numbers = numbers_of(column)
    if numbers is not None:
        low, high = _range(numbers)
        if high - low < _LIMIT:
            return (numbers.astype(np.int64, copy=False) - low if low else numbers), high - low + 1
        distinct, numbers = np.unique(numbers, return_inverse=True)
        return numbers, len(distinct)
    encoded = column.dictionary_encode(null_encoding="encode")
    parts = [numpy_of(chunk.indices) for chunk in _chunks(encoded)]
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
    found = [numbers_of(column) for column in columns]
    if len(columns) > 1:
        parts = [_coded(column)[0] if part is None else part for column, part in zip(columns, found, strict=True)]
        return _ascend(parts) or _differ(parts)
    [numbers] = found
    if numbers is None:
        return bool(pc.count_distinct(columns[0], mode="all").as_py() == len(columns[0]))
    if _ascend([numbers]):
        return True
    low, high = _range(numbers)
    if high - low < _SPREAD * len(numbers):
        marks = np.zeros(high - low + 1, dtype=bool)
        marks[numbers - low if low else numbers] = True
        return int(np.count_nonzero(marks)) == len(numbers)
    return _differ([numbers])


def _ascend(parts: Sequence[NDArray[Any]]) -> bool:
    """Whether each row comes after the one before it, by its first part that differs. Ends at one that does not."""
    for rows in _blocks(len(parts[0]) - 1):
        nexts = slice(rows.start + 1, rows.stop + 1)
        after = parts[-1][nexts] > parts[-1][rows]
        for part in reversed(parts[:-1]):
            after &= part[nexts] == part[rows]
            after |= part[nexts] > part[rows]
        if not after.all():
            return False
    return True


def _differ(parts: Sequence[NDArray[Any]]) -> bool:
    """Whether no two rows are equal in all parts.

    Sorting 32 bits made from each row takes half the time of sorting whole numbers; only rows that share them are
    compared.
    """
    size = len(parts[0])
    made = np.empty(size, dtype=np.uint32)
    for rows in _blocks(size):
        mixed = np.multiply(parts[0][rows], _MIX, dtype=np.int64)
        for part in parts[1:]:
            mixed += part[rows]
            mixed *= _MIX
        made[rows] = mixed.view(np.uint32)[_HIGH::2]
    ranked = np.sort(made)
    shared = ranked[1:][ranked[1:] == ranked[:-1]]
    if not len(shared):
        return True
    marks = np.zeros(2**20, dtype=bool)
    marks[shared >> 12] = True
    some = np.concatenate([np.flatnonzero(marks[(made[rows] >> 12).astype(np.intp)]) + rows.start
                           for rows in _blocks(size)])
    few = [part[some] for part in parts]
    order = np.lexsort(few)
    return not bool(np.logical_and.reduce([part[order][1:] == part[order][:-1] for part in few]).any())


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
