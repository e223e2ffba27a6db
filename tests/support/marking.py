"""What quick tests have less of: of a row of parameters they take the first ones, of random examples a quarter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_after(count: int, values: Iterable[Any]) -> list[Any]:
    """These values for `parametrize`, all but the first `count` marked as slow."""
    every = list(values)
    rest = [value if isinstance(value, tuple) else (value,) for value in every[count:]]
    return every[:count] + [pytest.param(*values, marks=pytest.mark.slow) for values in rest]


def examples(count: int) -> int:
    """How many examples to try where 100, the usual number, are too many or too few: fewer under the quick profile."""
    from hypothesis import settings  # not for processes that tests start

    return count * settings().max_examples // 100
