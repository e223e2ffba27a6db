"""Rows of keys and values in one buffer, from which one SQLite statement cuts them, without a Python object per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.keyspace.vectors import Strings, as_arrow, from_arrow

_START_BITS, _KEY_BITS, _VALUE_BITS = 24, 16, 23
_START = f"(wanted.value >> {_KEY_BITS + _VALUE_BITS}) + 1"
_WIDTH = f"(wanted.value >> {_VALUE_BITS} & {(1 << _KEY_BITS) - 1})"
KEY = f"substr(?1, {_START}, {_WIDTH})"
VALUE = f"substr(?1, {_START} + {_WIDTH}, wanted.value & {(1 << _VALUE_BITS) - 1})"
"""Keys and values of rows that stand one behind the other, by a number that tells where and how long: see `packed`."""
_NOTHING = pa.scalar(b"", pa.large_binary())


def pieces(wanted: Strings, values: Strings | None, batch: int) -> Iterator[tuple[int, int]]:
    """Where each statement of a long insert begins and ends: at most `batch` rows, no more bytes than can be packed."""
    sizes = np.diff(wanted.offsets) + (0 if values is None else np.diff(values.offsets))
    ends = np.cumsum(sizes)
    first = 0
    while first < len(wanted):
        before = int(ends[first - 1]) if first else 0
        end = int(np.searchsorted(ends, before + (1 << _START_BITS), "left"))
        end = max(first + 1, min(end, first + batch, len(wanted)))
        yield first, end
        first = end


def packed(wanted: Strings, values: Strings | None) -> tuple[bytes, npt.NDArray[np.int64]] | None:
    """Keys and values in one buffer, and a number for each row: where it begins, and both lengths.

    None if a row is too long for that.
    """
    widths = np.diff(wanted.offsets)
    lengths = np.zeros(len(wanted), np.int64) if values is None else np.diff(values.offsets)
    if int(lengths.max()) >= 1 << _VALUE_BITS or int(widths.max()) >= 1 << _KEY_BITS:
        return None
    parts = [as_arrow(wanted)] if values is None else [as_arrow(wanted), as_arrow(values)]
    rows = from_arrow(parts[0] if values is None else pc.binary_join_element_wise(*parts, _NOTHING))
    begin, end = int(rows.offsets[0]), int(rows.offsets[-1])
    starts = rows.offsets[:-1] - begin
    return rows.data[begin:end].tobytes(), starts << (_KEY_BITS + _VALUE_BITS) | widths << _VALUE_BITS | lengths


def padded(chunk: Sequence[bytes]) -> tuple[str, list[bytes | None]]:
    """Placeholders for some keys, and what they are bound to."""
    marks = _marks(len(chunk))
    return marks, [*chunk, *([None] * (marks.count("?") - len(chunk)))]


def _marks(count: int) -> str:
    """Placeholders for so many values or a few more, so that few different statements are made."""
    size = 1
    while size < count:
        size *= 2
    return ", ".join("?" * size)
