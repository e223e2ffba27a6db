"""Snapshots of a graph by what callers name: a branch, a commit of it, a tag."""

from __future__ import annotations

from functools import partial

from ontolake.graph.commit.records import MAIN, CommitRecord, GraphState
from ontolake.graph.commit.retention import require, still_there, types_of
from ontolake.graph.commit.tags import Tags
from ontolake.graph.commit.ulid import is_ulid
from ontolake.graph.errors import UnknownCommitError
from ontolake.graph.parts import GraphParts
from ontolake.graph.read.snapshot import Snapshot

_KEPT = 16
"""Snapshots that an open graph keeps."""


def find_snapshot(parts: GraphParts, commit: str | None = None, branch: str = MAIN) -> Snapshot:
    """See `Graph.snapshot`."""
    state = parts.state(branch)
    if commit is None or commit == state.head.id:
        record = state.head
    elif (seen := parts.snapshots.get(commit)) is not None and seen.branch == branch:
        require(parts, seen.record, state, whole=False)
        return seen
    else:
        tagged = None if is_ulid(commit) else Tags(parts).get(commit)
        found = parts.manifest.find(state.dataset, tagged or commit)
        if found is None:
            raise UnknownCommitError(commit, branch)
        record = found
        require(parts, record, state, whole=False)
    kept = parts.snapshots.get(record.id)
    if kept is None or kept.branch != branch or kept.pins != record.pins:
        kept = snapshot_of(parts, record, state)
        if len(parts.snapshots) >= _KEPT:
            parts.snapshots.pop(next(iter(parts.snapshots)))
        parts.snapshots[record.id] = kept
    return kept


def snapshot_of(parts: GraphParts, record: CommitRecord, state: GraphState) -> Snapshot:
    """The graph at a commit that a branch knows."""
    return Snapshot(parts.tables, state.branch, record, types_of(parts, record, state),
                    partial(still_there, parts, (state.branch, record)))
