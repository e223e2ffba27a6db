"""The types that name commits and rows, below everything else of this package."""

from __future__ import annotations

from typing import Any, TypeVar

Id = TypeVar("Id", int, str, tuple[int, int])
"""What names a commit: a number that grows, or text. All commits of one store have ids of one type.

Where numbers grow on each line of history by itself, a commit is known inside by its line and its number."""

Id_co = TypeVar("Id_co", int, str, tuple[int, int], covariant=True)

Key = Any
"""What names a row within its table: a value, or a tuple of values where a key has several parts."""

Row = Any
"""What stands under a key: a mapping from fields to values for typed data and documents, bytes for a page."""
