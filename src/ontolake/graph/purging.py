"""Removing for good what was dropped: the last step of an operation, or of its recovery."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from ontolake import faults
from ontolake.graph.errors import PublishContendedError
from ontolake.graph.lineage import first_parents
from ontolake.graph.maintenance import remove_versions
from ontolake.graph.manifest import MAIN, CommitRecord, State
from ontolake.graph.sidecars import Sidecar
from ontolake.graph.types import GraphType

if TYPE_CHECKING:
    from ontolake.graph.graph import Graph


def purge(graph: Graph, sidecar: Sidecar) -> None:
    """Leave nothing of what the tables that a sidecar names had before its commit; what others show stays.

    May be repeated. Raises `PublishContendedError` while somebody makes a table of that name anew.
    """
    states = [graph._manifest.state(branch) for branch in (MAIN, *graph._manifest.branches())]
    types = {kind.key: kind for state in states for kind in state.history.values()}
    shown = {key for record in _shown(graph, states) for key in record.pins}
    for key in sidecar.purged:
        if key not in shown:
            _remove_table(graph, types[key], sidecar)
    left = [types[key].table for key in sidecar.purged if key in shown]
    if left:
        def since(state: State) -> Iterable[CommitRecord]:
            if state.branch != sidecar.branch:
                return []
            line = first_parents(graph._manifest.commits(state.branch), state.head.id)
            own = graph._manifest.commit(sidecar.operation, state.branch)
            return takewhile(lambda record: record.seq >= own.seq, line)

        remove_versions(graph, since, False, left)


def _shown(graph: Graph, states: Iterable[State]) -> Iterator[CommitRecord]:
    """What branches and tags show."""
    tagged = set(graph.tags.list().values())
    for state in states:
        yield state.head
        yield from (record for id, record in graph._manifest.commits(state.branch).items() if id in tagged)


def _remove_table(graph: Graph, kind: GraphType, sidecar: Sidecar) -> None:
    store = graph._place.store
    found = sorted(info.key for info in store.list(f"{kind.location}/"))
    # Whoever makes the table anew says so before, and finds its last version or none of it: that one goes at the end.
    for file, data in graph._sidecars.list():
        if file != sidecar.key and f'"{kind.key}"'.encode() in data:
            raise PublishContendedError(f"{kind.table} was dropped, and somebody else makes it anew just now",
                                        hint="what it had is removed when the graph is opened again")
    versions = [key for key in found if key.startswith(f"{kind.location}/_versions/")]
    last = versions[:1]  # they are numbered downwards
    faults.reach("graph: before removing a table")
    store.delete([key for key in found if key not in last])
    faults.reach("graph: table removed but for its end")
    store.delete(last)
    faults.reach("graph: table removed")
