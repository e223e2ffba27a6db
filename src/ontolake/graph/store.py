"""How `ontolake.stores` opens graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ontolake.graph.graph import Graph

if TYPE_CHECKING:
    from ontolake.graph.parallel import GraphParallel


def open(url: str, *, write: bool, branch: str | None) -> Graph:
    """The graph at `url`, with all its branches."""
    return Graph.open(url, read_only=not write)


def open_parallel(url: str, *, write: bool, branch: str | None, types: Iterable[Any]) -> GraphParallel:
    """The same for parallel readers and writers, at a branch. The graph has its types with it."""
    from ontolake.graph.parallel import GraphParallel

    return GraphParallel(url, branch=branch, write=write)
