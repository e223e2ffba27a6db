"""What is wrong with rejected rows: a text for each row, and how many rows have each reason.

In frames a problem keeps the value that it is about between marks, and several problems of a row apart, so that rows
with different values are counted under one reason. What users see has no marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column as Expression
from pyspark.sql import functions as F

if TYPE_CHECKING:
    import pyarrow as pa

_OPEN, _CLOSE, _NEXT = "\x02", "\x03", "\x1e"
_LONGEST = 80
"""Characters of a value that are shown."""


def about(value: Expression, what: str) -> Expression:
    """What is wrong with a value, given as text: the value and a verb phrase such as `is less than 0`."""
    plain = F.translate(F.substring(value, 1, _LONGEST), f"{_OPEN}{_CLOSE}{_NEXT}", "")
    return F.concat(F.lit(f"{_OPEN}'"), plain, F.lit(f"' {_CLOSE}{what}"))


def joined(problems: Sequence[Expression]) -> Expression:
    """All problems of a row as one text; null, without making a text, if there are none."""
    wrong = F.lit(False)
    for one in problems:
        wrong = wrong | one.isNotNull()
    return F.when(wrong, F.concat_ws(_NEXT, *problems))


def shown(problems: pa.ChunkedArray) -> pa.ChunkedArray:
    """Problems as users see them."""
    import pyarrow.compute as pc

    text = pc.replace_substring(problems, _NEXT, "; ")
    return pc.replace_substring_regex(text, f"[{_OPEN}{_CLOSE}]", "")


def counted(problems: pa.ChunkedArray) -> dict[str, int]:
    """How many rows have each reason, the most frequent first. A row with two problems counts under both."""
    import pyarrow.compute as pc

    bare = pc.replace_substring_regex(problems, f"{_OPEN}[^{_CLOSE}]*{_CLOSE}", "")
    counts = pc.value_counts(pc.list_flatten(pc.split_pattern(bare, _NEXT))).to_pylist()
    return {one["values"]: one["counts"] for one in sorted(counts, key=lambda one: (-one["counts"], one["values"]))}
