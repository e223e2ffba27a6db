"""The index: which frame or layer holds each version, as sorted runs that are merged as they grow.

Every entry maps a key and an LSN to a place. Three things are looked up the same way, "the greatest LSN at
or below this one": versions of a page on a branch, the frame that holds an LSN, and a request id.
Looking up costs a few binary searches whatever the length of the log, and so does opening.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from ontolake.errors import Corruption

# Spaces: a branch's id holds its page versions; these two hold the rest.
FRAMES = 2**64 - 1
REQUESTS = 2**64 - 2

PART_ENTRIES = 65_536
MERGE_RATIO = 4

_MAGIC = b"OLI1"
_HEAD = struct.Struct("<4sIIIQ")
_COLUMNS = ("space", "key", "lsn", "segment", "offset", "sum")

Column = npt.NDArray[np.uint64]


Entry = tuple[int, int, int, int]
"""A version: its LSN, the segment and offset of its bytes, and their checksum."""


_lsn_of = itemgetter(0)


class Tail:
    """Entries that are not in a run yet, in memory."""

    __slots__ = ("bytes", "entries", "frames")

    def __init__(self) -> None:
        self.entries: defaultdict[tuple[int, int], list[Entry]] = defaultdict(list)
        """The versions of each key in a space, in the order of their LSNs."""
        self.frames = 0
        self.bytes = 0

    def add(self, space: int, key: int, lsn: int, segment: int, offset: int, checksum: int) -> None:
        """Add an entry; LSNs of one key must come in order."""
        self.entries[space, key].append((lsn, segment, offset, checksum))

    def find(self, space: int, key: int, lsn: int) -> Entry | None:
        versions = self.entries.get((space, key))
        if versions is None:
            return None
        last = versions[-1]
        if last[0] > lsn:
            at = bisect_right(versions, lsn, key=_lsn_of) - 1
            if at < 0:
                return None
            last = versions[at]
        return last

    def columns(self) -> IndexColumns:
        rows = [(space, key, *entry) for (space, key), found in self.entries.items() for entry in found]
        if not rows:
            return IndexColumns.empty()
        return IndexColumns(*np.array(rows, dtype=np.uint64).reshape(-1, 6).T.copy()).sorted()


class IndexColumns(NamedTuple):
    """Entries as arrays, one a column."""

    space: Column
    key: Column
    lsn: Column
    segment: Column
    offset: Column
    sum: Column

    @classmethod
    def empty(cls) -> IndexColumns:
        return cls(*(np.empty(0, dtype=np.uint64) for _ in _COLUMNS))

    @classmethod
    def joined(cls, pieces: Sequence[IndexColumns]) -> IndexColumns:
        """All entries of the pieces, sorted."""
        if not pieces:
            return cls.empty()
        return cls(*(np.concatenate(column) for column in zip(*pieces, strict=True))).sorted()

    def sorted(self) -> IndexColumns:
        return self.take(np.lexsort((self.lsn, self.key, self.space)))

    def take(self, which: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> IndexColumns:
        return IndexColumns(*(column[which] for column in self))

    def next_lsn(self) -> Column:
        """For each entry of a sorted set the LSN of the next version of the same key, 2⁶⁴-1 for the last one."""
        following = np.full(len(self.lsn), 2**64 - 1, dtype=np.uint64)
        if len(self.lsn) > 1:
            same = (self.space[1:] == self.space[:-1]) & (self.key[1:] == self.key[:-1])
            following[:-1][same] = self.lsn[1:][same]
        return following


class PartRef(msgspec.Struct, frozen=True):
    """Where a part of a run is stored, and the first entry in it."""

    segment: int
    length: int
    entries: int
    first: tuple[int, int, int]


class RunRef(msgspec.Struct, frozen=True):
    """A run: entries of one stretch of LSNs, split by key into parts. Newer runs hold greater LSNs."""

    entries: int
    parts: tuple[PartRef, ...]


class IndexRun:
    """A run, ready to be searched."""

    __slots__ = ("_firsts", "_last", "_only", "ref")

    def __init__(self, ref: RunRef) -> None:
        self.ref = ref
        self._firsts = [part.first for part in ref.parts]
        self._last = ref.parts[-1]
        self._only = len(ref.parts) == 1

    def part_for(self, space: int, key: int, lsn: int) -> PartRef | None:
        """The only part that can hold the entry at or before this one."""
        if self._only:
            return self._last
        wanted = (space, key, lsn)
        if wanted >= self._firsts[-1]:
            return self._last
        at = bisect_right(self._firsts, wanted) - 1
        return self.ref.parts[at] if at >= 0 else None


class RunPart:
    """A stored part, searched in place."""

    __slots__ = ("_key", "_lsn", "_offset", "_segment", "_spaces", "_start", "_sum", "size")

    def __init__(self, data: bytes, name: str) -> None:
        magic, count, groups, spaces, total = _HEAD.unpack_from(data) if len(data) >= _HEAD.size else (b"", 0, 0, 0, 0)
        body = memoryview(data)[_HEAD.size :]
        if magic != _MAGIC or len(body) != 8 * (4 * count + 2 * groups + 1 + 2 * spaces) or total != _part_sum(
                count, groups, spaces, body):
            raise Corruption(f"{name} does not match its checksum")
        words = body.cast("Q")
        at = 0

        def column(length: int) -> memoryview:
            nonlocal at
            at += length
            return words[at - length : at]

        self._lsn, self._segment, self._offset, self._sum = (column(count) for _ in range(4))
        self._key, self._start = column(groups), column(groups + 1)
        starts, names = column(spaces), column(spaces)
        ends = [*starts[1:], groups]
        self._spaces = {names[i]: (starts[i], ends[i]) for i in range(spaces)}
        self.size = len(data)

    def find(self, space: int, key: int, lsn: int) -> Entry | None:
        found = self._spaces.get(space)
        if found is None:
            return None
        low, high = found
        keys = self._key
        group = low + key - keys[low]  # where it is if no key is left out, as with most databases
        if not low <= group < high or keys[group] != key:
            group = bisect_left(keys, key, low, high)
            if group == high or keys[group] != key:
                return None
        first, at = self._start[group], self._start[group + 1] - 1
        version = self._lsn[at]
        if version > lsn:
            at = bisect_right(self._lsn, lsn, first, at) - 1
            if at < first:
                return None
            version = self._lsn[at]
        return version, self._segment[at], self._offset[at], self._sum[at]

    def columns(self) -> IndexColumns:
        lsn, segment, offset, checksum, key, start = (
            np.frombuffer(view, dtype=np.uint64)
            for view in (self._lsn, self._segment, self._offset, self._sum, self._key, self._start))
        sizes = np.diff(start).astype(np.intp)
        group_space = np.empty(len(key), dtype=np.uint64)
        for space, (low, high) in self._spaces.items():
            group_space[low:high] = space
        return IndexColumns(np.repeat(group_space, sizes), np.repeat(key, sizes), lsn, segment, offset, checksum)


def _part_sum(count: int, groups: int, spaces: int, body: memoryview | bytes) -> int:
    return xxh3_64_intdigest(body, seed=xxh3_64_intdigest(struct.pack("<III", count, groups, spaces)))


def encode_part(columns: IndexColumns) -> bytes:
    """Sorted entries as the bytes of a part."""
    count = len(columns.lsn)
    new_key = np.ones(count, dtype=np.bool_)
    new_key[1:] = (columns.key[1:] != columns.key[:-1]) | (columns.space[1:] != columns.space[:-1])
    starts = np.flatnonzero(new_key)
    group_key, group_space = columns.key[starts], columns.space[starts]
    new_space = np.ones(len(starts), dtype=np.bool_)
    new_space[1:] = group_space[1:] != group_space[:-1]
    space_starts = np.flatnonzero(new_space)
    body = b"".join(
        np.ascontiguousarray(column, dtype="<u8").tobytes()
        for column in (columns.lsn, columns.segment, columns.offset, columns.sum, group_key,
                       np.append(starts, count), space_starts, group_space[space_starts]))
    sizes = (count, len(starts), len(space_starts))
    return _HEAD.pack(_MAGIC, *sizes, _part_sum(*sizes, body)) + body


def split(columns: IndexColumns) -> Iterable[IndexColumns]:
    """Sorted entries in pieces of the size of a part."""
    for start in range(0, len(columns.lsn), PART_ENTRIES):
        yield IndexColumns(*(column[start : start + PART_ENTRIES] for column in columns))


def part_ref(columns: IndexColumns, segment: int, length: int) -> PartRef:
    first = (int(columns.space[0]), int(columns.key[0]), int(columns.lsn[0]))
    return PartRef(segment, length, len(columns.lsn), first)


def runs_to_merge(sizes: Sequence[int]) -> int:
    """How many of the newest runs, given the sizes oldest first, should become one.

    Afterwards each run is at least `MERGE_RATIO` times as big as the one after it, so that the number of runs
    grows with the logarithm of the log.
    """
    count, total = 1, sizes[-1] if sizes else 0
    while count < len(sizes) and sizes[-count - 1] < MERGE_RATIO * total:
        total += sizes[-count - 1]
        count += 1
    return count
