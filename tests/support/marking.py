"""Marking tests: of a long row of parameters, `make test-fast` takes the first ones, `make test` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_after(count: int, values: Iterable[Any]) -> list[Any]:
    """These values for `parametrize`, all but the first `count` marked as slow."""
    every = list(values)
    return every[:count] + [pytest.param(value, marks=pytest.mark.slow) for value in every[count:]]
