"""Arrow columns as numpy arrays, and Python values as Arrow scalars of a known type.

pyarrow imports pandas where it is installed, which takes longer than a commit, for `to_numpy` and to find out the type
of a Python value that a function of `pyarrow.compute` is called with. These do not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def numbers(values: pa.Array | pa.ChunkedArray) -> np.ndarray[Any, Any]:
    """A column of numbers or truths without missing values. Numbers in one chunk are not copied, and read-only."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if array.null_count:
        raise ValueError("a column with missing values has no numpy form")
    if array.type == pa.bool_():
        return np.from_dlpack(array.cast(pa.uint8())).astype(np.bool_)
    return np.from_dlpack(array)


def int_scalar(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.int64())


def text_scalar(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.string())
