"""Many questions as one job: each job takes its time, however few rows it finds."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def together(frames: Iterable[DataFrame]) -> list[tuple[Any, ...]]:
    """The ids that are in each of some DataFrames, with the number of the DataFrame, in order."""
    from pyspark.sql import functions as F

    numbered = [frame.select(F.lit(number).alias("n"), "id") for number, frame in enumerate(frames)]
    return sorted(map(tuple, reduce(lambda one, other: one.union(other), numbered).collect()))
