"""Queries whose answers are a few texts, all asked by one job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ontolake.spark.pipeline.declaration import Expectation

_SHOWN = 3
"""So many answers to a question are shown."""


class TextQuery(NamedTuple):
    """A query that finds what violates an expectation, as the text `found`; or, where a number is expected, that."""

    name: str
    found: DataFrame
    expectation: Expectation | None = None


def answers(questions: Sequence[TextQuery]) -> list[list[str]]:
    """What each question finds, one more than is shown at most, by one job for all."""
    asked: DataFrame | None = None
    for number, question in enumerate(questions):
        one = question.found.limit(_SHOWN + 1).select(F.lit(number).alias("question"), "found")
        asked = one if asked is None else asked.unionAll(one)
    found: list[list[str]] = [[] for _ in questions]
    for row in asked.collect() if asked is not None else ():
        found[row.question].append(row.found)
    return found


def listed(found: Sequence[str], separator: str) -> str:
    """Answers as one text, which says if there are more than it shows."""
    return separator.join(sorted(found)[:_SHOWN]) + (" and more" if len(found) > _SHOWN else "")
