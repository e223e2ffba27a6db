"""Arrow columns as numpy arrays, and Python values as Arrow scalars of a known type.

pyarrow imports pandas where it is installed, which takes longer than a commit, for `to_numpy` and to find out the type
of a Python value that a function of `pyarrow.compute` is called with. These do not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

_ASCII = 128
"""The number of letters of ASCII, and the first byte that none of them has."""


def one_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array, copied only if it has several chunks."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()


def numbers(values: pa.Array | pa.ChunkedArray) -> np.ndarray[Any, Any]:
    """A column of numbers or truths without missing values. Numbers in one chunk are not copied, and read-only."""
    array = one_array(values)
    if array.null_count:
        raise ValueError("a column with missing values has no numpy form")
    if array.type == pa.bool_():
        return np.from_dlpack(array.cast(pa.uint8())).astype(np.bool_)
    return np.from_dlpack(array)


def is_ascii(values: pa.Array | pa.ChunkedArray) -> bool:
    """Whether text, also where a value is missing, is of ASCII alone and lies where its offsets say.

    That is much faster to find out than whether each value is UTF-8. False where it cannot be told.
    """
    for array in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
        width = {pa.string(): np.int32, pa.large_string(): np.int64}.get(array.type)
        if width is None:
            return False
        _, places, data = array.buffers()
        if not len(array) or places is None or data is None:
            return False
        offsets = np.frombuffer(places, width)[array.offset : array.offset + len(array) + 1]
        if offsets[0] < 0 or offsets[-1] > data.size or bool((offsets[1:] < offsets[:-1]).any()):
            return False
        letters = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
        if len(letters) and letters.max() >= _ASCII:
            return False
    return True


def int_scalar(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.int64())


def text_scalar(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.string())
