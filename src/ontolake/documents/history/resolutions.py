"""Who decides the conflicts of `branches.merge`: a function from a conflict to the document to store."""

from __future__ import annotations

from collections.abc import Callable

from ontolake.documents.values.codec import Document
from ontolake.history import Conflict

Resolve = Callable[[Conflict], Document | None]
"""Decides a conflict: gives the document to store, or None to delete it.

The conflict is about a whole document: `base`, `ours` and `theirs` are documents, and `detail` names the fields.
"""


def prefer_source(conflict: Conflict) -> Document | None:
    """Decide for what the merge brings."""
    document: Document | None = conflict.theirs
    return document


def prefer_target(conflict: Conflict) -> Document | None:
    """Decide for what is there."""
    document: Document | None = conflict.ours
    return document
