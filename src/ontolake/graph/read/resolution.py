"""Snapshots of a graph by what callers name: a branch, a commit, a tag, a time, or some commits before one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial

from ontolake.graph.commit.lineage import first_parents
from ontolake.graph.commit.records import MAIN, CommitRecord, GraphState
from ontolake.graph.commit.retention import require, still_there, types_of
from ontolake.graph.commit.tags import Tags
from ontolake.graph.commit.ulid import is_ulid
from ontolake.graph.errors import UnknownBranchError, UnknownCommitError, graph_errors
from ontolake.graph.parts import GraphParts
from ontolake.graph.read.snapshot import Snapshot
from ontolake.history import Point, Ref
from ontolake.history.refs import resolve

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
        commit = Tags(self._parts).get(name)
        return None if commit is None else self.find(commit, None)

    def find(self, text: str, branch: str | None) -> Point[str]:
        commit = text if is_ulid(text) else Tags(self._parts).get(text)
        if commit is None:
            raise UnknownCommitError(text, branch)
        state, record = find_commit(self._parts, commit, branch)
        return Point(state.branch, record.id)

    def before(self, time: datetime, branch: str) -> str:
        commits = self._parts.manifest.commits(self._parts.state(branch).branch)
        for record in first_parents(commits, self._parts.state(branch).head.id):
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
    found = Ref.parse(ref) if isinstance(ref, str) else ref
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


def _states(parts: GraphParts) -> Iterator[GraphState]:
    """What every branch shows, main first."""
    yield parts.state(MAIN)
    for name in parts.manifest.branches():
        try:
            yield parts.state(name)
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
        tagged = None if is_ulid(commit) else Tags(parts).get(commit)
        record_ = parts.manifest.find(state.dataset, tagged or commit)
        if record_ is not None:
            record = record_
        elif branch is None and (tagged or is_ulid(commit)):
            state, record = find_commit(parts, tagged or commit, None)
        else:
            raise UnknownCommitError(commit, name)
        require(parts, record, state, whole=False)
    kept = parts.snapshots.get(record.id)
    if kept is None or kept.branch != state.branch or kept.pins != record.pins:
        kept = snapshot_of(parts, record, state)
        if len(parts.snapshots) >= _KEPT:
            parts.snapshots.pop(next(iter(parts.snapshots)))
        parts.snapshots[record.id] = kept
    return kept


def snapshot_of(parts: GraphParts, record: CommitRecord, state: GraphState) -> Snapshot:
    """The graph at a commit that a branch knows."""
    return Snapshot(parts.tables, state.branch, record, types_of(parts, record, state),
                    partial(still_there, parts, (state.branch, record)))
