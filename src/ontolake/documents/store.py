"""How `ontolake.stores` opens spaces of documents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ontolake.documents.places import space_name
from ontolake.documents.space import Space

if TYPE_CHECKING:
    from ontolake.documents.parallel import DocumentsParallel


def open(url: str, *, write: bool, branch: str | None) -> Space:
    """The space whose database is at `url`, with all its branches."""
    return Space(url, space_name(url), readonly=not write, takeover=False, synchronous="NORMAL")


def open_parallel(url: str, *, write: bool, branch: str | None, types: Iterable[Any]) -> DocumentsParallel:
    """The same for parallel readers and writers, at a branch. Documents have no types."""
    from ontolake.documents.parallel import DocumentsParallel

    return DocumentsParallel(url, branch=branch, write=write)
