"""How `ontolake.stores` opens typed stores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ontolake.ontology.config import Config
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.queue.layout import QUEUE
from ontolake.ontology.typed_store import TypedStore

if TYPE_CHECKING:
    from ontolake.ontology.parallel.tables import TypedParallel

SWAPPED = (QUEUE, layout.HEAD)
"""The objects of a store that others replace while it is read, in the order in which a copy takes them."""
WRITTEN_ONCE = layout.FRESH
"""Objects below these never change."""
UNCOPIED = (layout.LOCK,)


def open(url: str, *, write: bool, branch: str | None) -> TypedStore:
    """The typed store at `url`, with classes made from its stored schemas. A branch is one of the pages below it."""
    return TypedStore(url, config=Config(create=False, readonly=not write, branch="main" if branch is None else branch))


def open_parallel(url: str, *, write: bool, branch: str | None, types: Iterable[Any]) -> TypedParallel:
    """The same for parallel readers and writers. With `types` a writer starts a store where there is none."""
    from ontolake.ontology.parallel.tables import TypedParallel

    return TypedParallel(url, branch=branch, write=write, types=types)
