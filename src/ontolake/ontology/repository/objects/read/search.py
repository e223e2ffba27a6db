"""Keys searched in the files of a type by the order of the rows, at a cost that follows the keys, not the rows.

Files never change, so the last keys that were searched in a big file are kept with their rows: a merge looks the same
keys up at several commits, most of whose files are the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_values import numbers, one_array
from ontolake.ontology.arrow.physical import Type, place
from ontolake.ontology.repository.objects.files import Files
from ontolake.ontology.repository.objects.layout import DataFile

_REMEMBERED = 10_000
"""Keys of one search that are kept at most."""
_INDEXED = 1_000
"""Up to this number of rows the places of all keys of a file are kept, which is faster to ask than Arrow."""


class _Searched(NamedTuple):
    """The rows of a file that a search found, and where each of its keys is among them; -1 if it is not there."""

    rows: pa.Table | None
    places: dict[Any, int]


class KeySearch:
    """Searches files of types whose keys are `is_searchable`."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def rows(self, info: Type, file: DataFile, wanted: list[Any]) -> tuple[pa.Table | None, list[Any]]:
        """The rows of a run that have one of these leading keys, which are in order, and the keys that it does not
        have."""
        if not wanted:
            return None, wanted
        if file.row_count <= min(_INDEXED, self._files.sizes.small_rows):
            return self._looked_up(info, file, wanted)
        if file.row_count <= self._files.sizes.small_rows:
            found, at = self._search(info, file, wanted)
            return found, _lacking(wanted, at) if found is not None else wanted
        known: _Searched | None = self._files.kept((file.path, "searched"))
        places = [] if known is None else [known.places.get(key) for key in wanted]
        if known is None or None in places:
            found, at = self._search(info, file, wanted)
            if len(wanted) <= _REMEMBERED:
                done = _Searched(found, dict(zip(wanted, at.tolist(), strict=True)))
                self._files.keep((file.path, "searched"), done,
                                 120 * len(wanted) + (0 if found is None else found.nbytes))
        else:
            found, at = known.rows, np.array(places, np.int64)
            if found is not None and len(wanted) < len(known.places):
                found = found.take(pa.array(at[at >= 0]))
        return found, _lacking(wanted, at) if found is not None else wanted

    def _looked_up(self, info: Type, file: DataFile, wanted: list[Any]) -> tuple[pa.Table | None, list[Any]]:
        """`rows` of a file of few rows."""
        table = self._files.table(file)
        places: dict[Any, int] | None = self._files.kept((file.path, "places"))
        if places is None:
            keys = table.column(place(info.keys[0])).to_pylist()
            places = {keys[at]: at for at in range(len(keys) - 1, -1, -1)}  # of one key the first
            self._files.keep((file.path, "places"), places, 120 * len(keys))
        found = [at for key in wanted if (at := places.get(key)) is not None]
        if not found:
            return None, wanted
        return table.take(pa.array(found)), [key for key in wanted if key not in places]

    def _search(
        self, info: Type, file: DataFile, wanted: list[Any]
    ) -> tuple[pa.Table | None, np.ndarray[Any, Any]]:  # fmt: skip
        """The rows that a file has of these keys, and where each key is among them; -1 if it is not there."""
        found: list[pa.Table] = []
        seen = np.zeros(len(wanted), dtype=bool)
        texts = pa.array(wanted, leading_type(info))
        for table, start, end in self._pieces(info, file, wanted):
            keys, part = one_array(table.column(place(info.keys[0]))), texts[start:end]
            at = np.minimum(numbers(pc.search_sorted(keys, part)).astype(np.int64), len(keys) - 1)
            there = numbers(pc.equal(keys.take(pa.array(at)), part))
            if there.any():
                found.append(table.take(pa.array(at[there])))
                seen[start:end] |= there
        rows = None if not found else found[0] if len(found) == 1 else pa.concat_tables(found)
        return rows, np.where(seen, np.cumsum(seen) - 1, -1)

    def _pieces(self, info: Type, file: DataFile, wanted: list[Any]) -> Iterator[tuple[pa.Table, int, int]]:
        """The parts of a run that can have one of these keys, in order, and which of the keys each can have."""
        files, most = self._files, self._files.sizes.kept_groups
        everything = 0, len(wanted)
        if file.row_count <= files.sizes.small_rows:
            yield files.table(file), *everything
            return
        ranges = files.ranges(info, file)
        bounds = {number: (bisect_left(wanted, low), bisect_right(wanted, high))
                  for number, (low, high) in enumerate(zip(ranges.low, ranges.high, strict=True))}
        groups = [number for number, (start, end) in bounds.items() if start < end]
        if not groups and ranges.low:
            return
        if not ranges.low or len(groups) > max(1, len(bounds) // 2):
            kept = len(bounds) <= most and bool(ranges.low)
            yield files.whole(file) if kept else files.table(file), *everything
        elif len(groups) > most:
            yield files.groups(file, groups), *everything
        else:
            for number in groups:
                yield files.group(file, number), *bounds[number]


def is_searchable(info: Type) -> bool:
    """Whether keys of a type can be searched by their order alone: one column, of numbers or text."""
    return len(info.keys) == 1 and not info.keys[0].type.encodes_arrow() and hasattr(pc, "search_sorted")


def place_of(info: Type, rows: pa.Table, key: Any) -> int:
    """Where rows, which are in the order of keys, have a leading key; -1 if they do not. `is_searchable` must hold."""
    column = rows.column(place(info.keys[0]))
    keys = column.chunk(0) if column.num_chunks == 1 else column  # a chunk is faster to look into
    low, high = 0, len(keys)
    while low < high:
        middle = (low + high) // 2
        if keys[middle].as_py() < key:
            low = middle + 1
        else:
            high = middle
    return low if low < len(keys) and keys[low].as_py() == key else -1


def leading_type(info: Type) -> pa.DataType:
    """The Arrow type of encoded first keys."""
    return pa.int64() if info.keys[0].sqlite_type == "INTEGER" else pa.string()


def _lacking(wanted: list[Any], at: np.ndarray[Any, Any]) -> list[Any]:
    """The keys that have no place."""
    return [wanted[number] for number in np.flatnonzero(at < 0).tolist()]
