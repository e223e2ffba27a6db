"""Removing for good what was dropped: the last step of an operation, or of its recovery."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from ontolake import faults
from ontolake.graph.commit.lineage import first_parents
from ontolake.graph.commit.manifest import MAIN, CommitRecord, State
from ontolake.graph.commit.sidecars import Sidecar
from ontolake.graph.errors import PublishContendedError
from ontolake.graph.tables.types import GraphType
from ontolake.graph.upkeep.maintenance import remove_versions

if TYPE_CHECKING:
    from ontolake.graph.graph import Graph


def purge(graph: Graph, sidecar: Sidecar) -> None:
    """Leave nothing of what the tables that a sidecar names had before its commit; what others show stays.

    May be repeated. Raises `PublishContendedError` while somebody makes a table of that name anew.
    """
    types = {kind.key: kind for kind in graph._manifest.state(sidecar.branch).history.values()}
    # In this order: whoever made a table anew before its files were listed is found at it, or has published it.
    files = {key: sorted(info.key for info in graph._place.store.list(f"{types[key].location}/"))
             for key in sidecar.purged}  # fmt: skip
    made = set(_moved_by_others(graph, sidecar))
    shown = {key for record in _shown(graph) for key in record.pins}
    for key in sidecar.purged:
        if key in shown:
            continue
        if key in made:
            raise PublishContendedError(f"{types[key].table} was dropped, and somebody else makes it anew just now",
                                        hint="what it had is removed when the graph is opened again")
        _remove_table(graph, types[key], files[key])
    left = [types[key].table for key in sidecar.purged if key in shown]
    if left:
        remove_versions(graph, partial(_since, graph, sidecar), False, left)


def _since(graph: Graph, sidecar: Sidecar, state: State) -> Iterable[CommitRecord]:
    """What a branch has shown since the operation; nothing of others."""
    if state.branch != sidecar.branch:
        return []
    own = graph._manifest.commit(sidecar.operation, state.branch)
    line = first_parents(graph._manifest.commits(state.branch), state.head.id)
    return takewhile(lambda record: record.seq >= own.seq, line)


def _moved_by_others(graph: Graph, own: Sidecar) -> Iterator[str]:
    """The tables that other operations move, or have left behind on their way."""
    for file, data in graph._sidecars.list():
        if file != own.key:
            with suppress(ValueError):  # it will be set aside
                yield from (move.key for move in Sidecar.from_bytes(data).tables)


def _shown(graph: Graph) -> Iterator[CommitRecord]:
    """What branches and tags show."""
    tagged = set(graph.tags.list().values())
    for branch in (MAIN, *graph._manifest.branches()):
        yield graph._manifest.state(branch).head
        yield from (record for id, record in graph._manifest.commits(branch).items() if id in tagged)


def _remove_table(graph: Graph, kind: GraphType, files: list[str]) -> None:
    """Remove these files of a table. Its last version goes at the end: until then a new one gets the next number."""
    last = [file for file in files if file.startswith(f"{kind.location}/_versions/")][:1]  # numbered downwards
    faults.reach("graph: before removing a table")
    graph._place.store.delete([file for file in files if file not in last])
    faults.reach("graph: table removed but for its end")
    graph._place.store.delete(last)
    faults.reach("graph: table removed")
