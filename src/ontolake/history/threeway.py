"""The three-way rule for one value: what becomes of it when one side's change is brought to the other."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """What a merge does to the target's value."""

    KEEP = "keep"
    """The source left it alone, or both sides have the same."""
    TAKE = "take"
    """Only the source changed it."""
    CLASH = "clash"
    """Both changed it, differently."""


class Disputed:
    """A value of a virtual base on which its parts do not agree. It equals nothing, itself included.

    A merge on such a base takes every value for a change, so it conflicts unless both sides agree. Make a new one for
    each dispute: Python takes one object for equal to itself inside lists and dictionaries.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False

    def __repr__(self) -> str:
        return "Disputed()"


def decide(base: Any, theirs: Any, ours: Any, same: Callable[[Any, Any], bool]) -> Outcome:
    """How the change from `base` to `theirs` is brought to `ours`."""
    if same(theirs, ours) or same(theirs, base):
        return Outcome.KEEP
    return Outcome.TAKE if same(ours, base) else Outcome.CLASH
