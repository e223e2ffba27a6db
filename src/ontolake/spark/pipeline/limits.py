"""How many rows of a run may be bad or missing: a share of them up to 1.0, or a number."""

from __future__ import annotations

from typing import Any

from ontolake.spark.errors import PipelineError

Limit = float | int


def checked_limit(name: str, limit: Any) -> Limit:
    """A limit as it is. Raises `PipelineError` if it is none."""
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit >= 0:
        raise PipelineError(f"{name} is a share or a number of rows, not {limit!r}")
    return limit


def exceeds(count: int, limit: Limit, rows: int) -> bool:
    """Whether so many of all rows are more than a limit."""
    return count > (limit * rows if _is_share(limit) else limit)


def in_words(limit: Limit) -> str:
    return f"{limit:.0%}" if _is_share(limit) and limit * 100 == int(limit * 100) else (
        f"{limit:.4g}".rstrip("0") if _is_share(limit) else f"{limit:,}")


def _is_share(limit: Limit) -> bool:
    return isinstance(limit, float) and limit <= 1
