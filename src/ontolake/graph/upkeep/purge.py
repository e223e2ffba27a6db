"""Removing for good what was dropped: the last step of an operation, or of its recovery."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import takewhile

from ontolake import faults
from ontolake.graph.commit.lineage import first_parents
from ontolake.graph.commit.records import MAIN, CommitRecord, GraphState
from ontolake.graph.commit.sidecars import Sidecar
from ontolake.graph.commit.tags import TagStore
from ontolake.graph.errors import PublishContendedError
from ontolake.graph.parts import GraphParts
from ontolake.graph.tables.types import GraphType
from ontolake.graph.upkeep.maintenance import remove_versions


def purge(parts: GraphParts, sidecar: Sidecar) -> None:
    """Leave nothing of what the tables that a sidecar names had before its commit; what others show stays.

    May be repeated. Raises `PublishContendedError` while somebody makes a table of that name anew.
    """
    types = {kind.key: kind for kind in parts.manifest.state(sidecar.branch).history.values()}
    # In this order: whoever made a table anew before its files were listed is found at it, or has published it.
    files = {key: sorted(info.key for info in parts.place.store.list(f"{types[key].location}/"))
             for key in sidecar.purged}  # fmt: skip
    made = set(_moved_by_others(parts, sidecar))
    shown = {key for record in _shown(parts) for key in record.pins}
    for key in sidecar.purged:
        if key in shown:
            continue
        if key in made:
            raise PublishContendedError(f"{types[key].table} was dropped, and somebody else makes it anew just now",
                                        hint="what it had is removed when the graph is opened again")
        _remove_table(parts, types[key], files[key])
    left = [types[key].table for key in sidecar.purged if key in shown]
    if left:
        remove_versions(parts, partial(_since, parts, sidecar), False, left)


def _since(parts: GraphParts, sidecar: Sidecar, state: GraphState) -> Iterable[CommitRecord]:
    """What a branch has shown since the operation; nothing of others."""
    if state.branch != sidecar.branch:
        return []
    own = parts.manifest.commit(sidecar.operation, state.branch)
    line = first_parents(parts.manifest.commits(state.branch), state.head.id)
    return takewhile(lambda record: record.seq >= own.seq, line)


def _moved_by_others(parts: GraphParts, own: Sidecar) -> Iterator[str]:
    """The tables that other operations move, or have left behind on their way."""
    for file, data in parts.sidecars.list():
        if file != own.key:
            with suppress(ValueError):  # it will be set aside
                yield from (move.key for move in Sidecar.from_bytes(data).tables)


def _shown(parts: GraphParts) -> Iterator[CommitRecord]:
    """What branches and tags show."""
    tagged = TagStore(parts).commits()
    for branch in (MAIN, *parts.manifest.branches()):
        yield parts.manifest.state(branch).head
        yield from (record for id, record in parts.manifest.commits(branch).items() if id in tagged)


def _remove_table(parts: GraphParts, kind: GraphType, files: list[str]) -> None:
    """Remove these files of a table. Its last version goes at the end: until then a new one gets the next number."""
    last = [file for file in files if file.startswith(f"{kind.location}/_versions/")][:1]  # numbered downwards
    faults.reach("graph: before removing a table")
    parts.place.store.delete([file for file in files if file not in last])
    faults.reach("graph: table removed but for its end")
    parts.place.store.delete(last)
    faults.reach("graph: table removed")
