"""Sorting more keys than memory should hold: sorted runs, on disk once they are large, merged slice by slice."""

from __future__ import annotations

import tempfile
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.keyspace import vectors
from ontolake.sql.keyspace.vectors import Strings

RUN = 64 * 1024 * 1024
"""Bytes of keys and values that are sorted at once."""
MEMORY = 256 * 1024 * 1024
"""Bytes of sorted runs that stay in memory; later runs go to a temporary folder."""
_PADDED = 96
"""Keys up to this length are sorted as numbers."""

Order = npt.NDArray[np.int64]


def order(keys: Strings) -> Order | None:
    """The places of keys once they are sorted; None if they are sorted already. No key may be the prefix of another."""
    column = vectors.as_arrow(keys)
    if len(keys) < 2 or pc.all(pc.less_equal(column[:-1], column[1:])).as_py():
        return None
    widths = np.diff(keys.offsets)
    if int(widths.max()) > _PADDED:
        found: Order = pc.array_sort_indices(column).to_numpy().astype(np.int64)
        return found
    block = _padded(keys, widths)
    varying = block[:, (block != block[0]).any(axis=0)]
    words = np.zeros((len(keys), -(-varying.shape[1] // 8) * 8), np.uint8)
    words[:, : varying.shape[1]] = varying
    numbers = words.view(">u8").astype(np.uint64)
    if numbers.shape[1] == 1:
        return np.argsort(numbers[:, 0], kind="stable")
    return np.lexsort([numbers[:, n] for n in range(numbers.shape[1])][::-1]).astype(np.int64)


def _padded(keys: Strings, widths: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Keys as rows of one width, with zeros behind the shorter ones."""
    begin, end, width = int(keys.offsets[0]), int(keys.offsets[-1]), int(widths.max())
    if int(widths.min()) == width:
        return keys.data[begin:end].reshape(len(keys), width)
    block = np.zeros((len(keys), width), np.uint8)
    block[np.arange(width) < widths[:, None]] = keys.data[begin:end]
    return block


def taken(strings: Strings, places: Order) -> Strings:
    """The strings at these places."""
    return vectors.from_arrow(vectors.as_arrow(strings).take(pa.array(places)))


class Entries:
    """Keys and, unless all values are the same mark, their values."""

    def __init__(self, keys: Strings, values: Strings | None) -> None:
        self.keys, self.values = keys, values

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def size(self) -> int:
        """Their bytes."""
        parts = [self.keys] if self.values is None else [self.keys, self.values]
        return sum(int(part.offsets[-1] - part.offsets[0]) + 8 * len(part) for part in parts)

    def sorted(self) -> Entries:
        """The same in the order of the keys."""
        places = order(self.keys)
        return self if places is None else self.taken(places)

    def taken(self, places: Order) -> Entries:
        return Entries(taken(self.keys, places), None if self.values is None else taken(self.values, places))

    def without(self, stale: set[bytes]) -> Entries:
        """The same without some keys."""
        if not stale:
            return self
        column = vectors.as_arrow(self.keys)
        dropped = pc.is_in(column, value_set=pa.array(sorted(stale), pa.large_binary()))
        kept = ~dropped.to_numpy(zero_copy_only=False)
        return self if kept.all() else self.taken(np.flatnonzero(kept))

    def slice(self, begin: int, end: int) -> Entries:
        return Entries(self.keys.slice(begin, end), None if self.values is None else self.values.slice(begin, end))

    @staticmethod
    def joined(parts: list[Entries]) -> Entries:
        if len(parts) == 1:
            return parts[0]
        columns = [pa.concat_arrays([vectors.as_arrow(part.keys) for part in parts])]
        if parts[0].values is not None:
            columns.append(pa.concat_arrays([vectors.as_arrow(part.values) for part in parts
                                             if part.values is not None]))
        found = [vectors.from_arrow(column) for column in columns]
        return Entries(found[0], found[1] if len(found) > 1 else None)


class SortedRuns:
    """Collects entries in any order and gives them back sorted. Use it in a `with` block: it may have files."""

    def __init__(self) -> None:
        self._loose: list[Entries] = []
        self._loose_size = 0
        self._runs: list[Entries] = []
        self._size = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.spilled = 0
        """How many runs are on disk."""

    def __enter__(self) -> SortedRuns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loose, self._runs = [], []
        if self._folder is not None:
            self._folder.cleanup()

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._runs)

    def add(self, entries: Entries) -> None:
        """Take more entries."""
        if not len(entries):
            return
        self._loose.append(entries)
        self._loose_size += entries.size
        if self._loose_size >= RUN:
            self._close_run()

    def _close_run(self) -> None:
        run = Entries.joined(self._loose).sorted()
        self._loose, self._loose_size = [], 0
        self._size += run.size
        self._runs.append(run if self._size <= MEMORY else self._spill(run))

    def _spill(self, run: Entries) -> Entries:
        """The same run, mapped from a file."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="ontolake-index-", ignore_cleanup_errors=True)
        path = Path(self._folder.name, f"{len(self._runs)}.arrow")
        columns = [vectors.as_arrow(part) for part in (run.keys, run.values) if part is not None]
        batch = pa.RecordBatch.from_arrays(columns, names=["key", "value"][: len(columns)])
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        self.spilled += 1
        mapped = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
        found = [vectors.from_arrow(column) for column in mapped.columns]
        return Entries(found[0], found[1] if len(found) > 1 else None)

    def slices(self, size: int) -> Iterator[Entries]:
        """All entries by key, about `size` at a time."""
        if self._loose:
            self._close_run()
        runs = self._runs
        if len(runs) < 2:
            for begin in range(0, len(runs[0]) if runs else 0, size):
                yield runs[0].slice(begin, min(begin + size, len(runs[0])))
            return
        columns: list[Any] = [_Keys(run.keys) for run in runs]
        step = max(1, size // len(runs))
        edges = sorted(column[place] for column in columns for place in range(step, len(column), step))
        begins = [0] * len(runs)
        for edge in [*edges[len(runs) - 1 :: len(runs)], None]:
            ends = [len(column) if edge is None else bisect_left(column, edge, begin)
                    for column, begin in zip(columns, begins, strict=True)]
            parts = [run.slice(begin, end) for run, begin, end in zip(runs, begins, ends, strict=True) if begin < end]
            begins = ends
            if parts:
                yield Entries.joined(parts).sorted()


class _Keys:
    """Keys as a sequence, for a binary search."""

    def __init__(self, keys: Strings) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, place: int) -> bytes:
        return self._keys.at(place)
