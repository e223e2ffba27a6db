"""Rows by their keys, again and again: where the rows of a version are, kept in memory once that has paid off.

The first lookups of a version go through Lance and its index. When there have been enough of them, the keys are read
once, and from then on a row is taken straight from its place; rows of a table that is small are kept themselves.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from lance import LanceDataset

MOST_ROWS = 4_000_000
_FIRST = 8
_PER_LOOKUP = {"integers": 200_000, "text": 2_000}
"""A version is looked into after the first lookups, and one more for each so many of its rows: text takes sorting."""
_KEPT = 3
KEPT_BYTES = 64 * 2**20
"""Rows are kept of tables that take no more than this in memory."""

Where = tuple[str, str | None, int]


class Places:
    """Where the rows of one version are, by the values of one column."""

    def __init__(self, dataset: LanceDataset, column: str, names: Sequence[str]) -> None:
        files = (file for fragment in dataset.get_fragments() for file in fragment.metadata.files)
        small = sum(file.file_size_bytes or KEPT_BYTES for file in files) <= KEPT_BYTES // 2
        table = dataset.to_table(columns=list(names) if small else [column], with_row_id=True)
        keys, self._ids = table.column(column), table.column("_rowid").to_numpy()
        self._dataset, self._names = dataset, list(names)
        self._rows = table.select(self._names).combine_chunks() if small and table.nbytes <= KEPT_BYTES else None
        self._low, self._dense, self._keys = 0, None, None
        if pa.types.is_integer(keys.type):
            values = keys.to_numpy()
            low, high = int(values.min()), int(values.max())
            if high - low < 4 * len(values) + 1024:
                self._low, self._dense = low, np.full(high - low + 1, -1, dtype=np.int64)
                self._dense[values - low] = np.arange(len(values))
                return
        order = pc.sort_indices(keys)
        self._keys, self._order = keys.take(order), order.to_numpy()

    def row(self, key: Any) -> pa.Table:
        """The row with a key; none if it is not there."""
        place = self._place(key)
        if self._rows is not None:
            return self._rows.slice(place or 0, int(place is not None))
        return self._dataset._take_rows([int(self._ids[place])] if place is not None else [], columns=self._names)

    def _place(self, key: Any) -> int | None:
        if key is None:
            return None
        if self._dense is not None:
            at = key - self._low
            place = int(self._dense[at]) if 0 <= at < len(self._dense) else -1
            return place if place >= 0 else None
        assert self._keys is not None
        low, high = 0, len(self._keys)
        while low < high:
            middle = (low + high) // 2
            if self._keys[middle].as_py() < key:
                low = middle + 1
            else:
                high = middle
        return int(self._order[low]) if low < len(self._keys) and self._keys[low].as_py() == key else None


class Finder:
    """Counts lookups, and keeps the places of rows for versions that are asked often."""

    def __init__(self) -> None:
        self._asked: OrderedDict[Where, int] = OrderedDict()
        self._places: OrderedDict[Where, Places] = OrderedDict()
        self._lock = threading.Lock()

    def places(
        self, where: Where, dataset: LanceDataset, key: pa.Field, names: Sequence[str], rows: int
    ) -> Places | None:  # fmt: skip
        """Where the rows of a version are; None as long as looking through the index is the better way."""
        kind = key.type
        with self._lock:
            found = self._places.get(where)
            if found is not None:
                self._places.move_to_end(where)
                return found
            if not 0 < rows <= MOST_ROWS or not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
                return None
            asked = self._asked[where] = self._asked.pop(where, 0) + 1
            while len(self._asked) > 64:
                self._asked.popitem(last=False)
            if asked <= _FIRST + rows // _PER_LOOKUP["integers" if pa.types.is_integer(kind) else "text"]:
                return None
        made = Places(dataset, key.name, names)
        with self._lock:
            self._places[where] = made
            while len(self._places) > _KEPT:
                self._places.popitem(last=False)
        return made

    def forget(self, branch: str) -> None:
        with self._lock:
            for kept in (self._asked, self._places):
                for where in [where for where in kept if where[1] == branch]:
                    del kept[where]
