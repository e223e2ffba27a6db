"""Conflicts of a merge, and who decides them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ontolake.documents.codec import Document


class MergeConflict(NamedTuple):
    """An entity that both sides changed, at `paths` that meet ("" for the whole document).

    Where histories are criss-crossed, `base` leaves out what the several bases do not agree on.
    """

    id: str
    base: Document | None
    source: Document | None
    target: Document | None
    target_seq: int
    paths: tuple[str, ...]


Resolve = Callable[[MergeConflict], Document | None]
"""Decides a conflict: gives the document to store, or None to delete it."""


def prefer_source(conflict: MergeConflict) -> Document | None:
    """Decide for what the merge brings."""
    return conflict.source


def prefer_target(conflict: MergeConflict) -> Document | None:
    """Decide for what is there."""
    return conflict.target
