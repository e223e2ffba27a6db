"""Snapshots of a graph by what callers name: a branch, a commit, a tag, a time, or some commits before one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial

from ontolake.graph.commit.lineage import first_parents
from ontolake.graph.commit.records import MAIN, CommitRecord, GraphState
from ontolake.graph.commit.retention import require, still_there, types_of
from ontolake.graph.commit.tags import TagStore
from ontolake.graph.commit.ulid import is_ulid
from ontolake.graph.errors import UnknownBranchError, UnknownCommitError, graph_errors
from ontolake.graph.parts import GraphParts
from ontolake.graph.read.snapshot import Snapshot
from ontolake.history import Point, Ref
from ontolake.history.names import is_name
from ontolake.history.refs import parsed, resolve

_KEPT = 16
"""Snapshots that an open graph keeps."""


class GraphRefs:
    """The branches, tags and commits of a graph, as `history.refs.resolve` asks for them."""

    first = MAIN

    def __init__(self, parts: GraphParts) -> None:
        self._parts = parts

    def head(self, branch: str) -> str | None:
        try:
            return self._parts.state(branch).head.id
        except UnknownBranchError:
            return None

    def tagged(self, name: str) -> Point[str] | None:
        tag = TagStore(self._parts).get(name) if is_name(name) else None
        return None if tag is None else self.find(tag.commit, None)

    def find(self, text: str, branch: str | None) -> Point[str]:
        state, record = find_commit(self._parts, text if is_ulid(text) else _tagged(self._parts, text, branch), branch)
        return Point(self._parts.names.name(state.branch), record.id)

    def before(self, time: datetime, branch: str) -> str:
        state = self._parts.state(branch)
        for record in first_parents(self._parts.manifest.commits(state.branch), state.head.id):
            if datetime.fromisoformat(record.created_at) <= time:
                return record.id
        raise UnknownCommitError(time.isoformat(), branch, reason="the graph is younger")

    def parent(self, point: Point[str]) -> str | None:
        return find_commit(self._parts, point.commit, point.branch)[1].parent


def resolve_ref(parts: GraphParts, ref: Ref | str) -> Point[str]:
    """The commit that a reference names; text may be the id of a commit alone.

    Raises `Invalid`, `UnknownBranchError`, `UnknownCommitError`.
    """
    refs = GraphRefs(parts)
    found = parsed(ref)
    if found.commit is None and found.branch is not None and is_ulid(found.branch) and refs.head(found.branch) is None:
        found = found._replace(branch=None, commit=found.branch)
    with graph_errors():
        return resolve(found, refs)


def find_commit(parts: GraphParts, commit: str, branch: str | None) -> tuple[GraphState, CommitRecord]:
    """A commit of a branch or, without one, of whichever knows it, with what that branch shows.

    Raises `UnknownCommitError`, `UnknownBranchError`.
    """
    for state in [parts.state(branch)] if branch is not None else _states(parts):
        record = state.head if commit == state.head.id else parts.manifest.find(state.dataset, commit)
        if record is not None:
            return state, record
    raise UnknownCommitError(commit, branch)


def _tagged(parts: GraphParts, name: str, branch: str | None) -> str:
    """The commit of a tag where the id of a commit may stand. Raises `UnknownCommitError`."""
    tag = TagStore(parts).get(name) if is_name(name) else None
    if tag is None:
        raise UnknownCommitError(name, branch)
    return tag.commit


def _states(parts: GraphParts) -> Iterator[GraphState]:
    """What every branch shows, main first."""
    yield parts.state(MAIN)
    for line in parts.manifest.branches():
        try:
            yield parts.line_state(line)
        except UnknownBranchError:
            continue  # deleted while we looked


def find_snapshot(parts: GraphParts, commit: str | None = None, branch: str | None = None) -> Snapshot:
    """See `Graph.snapshot`."""
    name = branch or MAIN
    state = parts.state(name)
    if commit is None or commit == state.head.id:
        record = state.head
    elif (seen := parts.snapshots.get(commit)) is not None and seen.branch == name:
        require(parts, seen.record, state, whole=False)
        return seen
    else:
        wanted = commit if is_ulid(commit) else _tagged(parts, commit, name)
        known = parts.manifest.find(state.dataset, wanted)
        if known is not None:
            record = known
        elif branch is None:
            state, record = find_commit(parts, wanted, None)
            name = parts.names.name(state.branch)
        else:
            raise UnknownCommitError(commit, name)
        require(parts, record, state, whole=False)
    kept = parts.snapshots.get(record.id)
    if kept is None or kept.branch != name or kept.pins != record.pins:
        kept = snapshot_of(parts, record, state)
        if len(parts.snapshots) >= _KEPT:
            parts.snapshots.pop(next(iter(parts.snapshots)))
        parts.snapshots[record.id] = kept
    return kept


def snapshot_of(parts: GraphParts, record: CommitRecord, state: GraphState) -> Snapshot:
    """The graph at a commit that a branch knows."""
    name = parts.names.name(state.branch)
    return Snapshot(parts.tables, name, record, types_of(parts, record, state),
                    partial(still_there, parts, (name, record)))
