"""What is left of the past: whether the rows of a commit are still there, and where the manifest has a commit as head.

`cleanup` removes versions of tables that no kept commit shows. The commits themselves stay in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ontolake.graph.commit.records import MAIN, CommitRecord, GraphState
from ontolake.graph.errors import BranchError, DamagedGraphError, RemovedCommitError, UnknownBranchError
from ontolake.graph.parts import GraphParts
from ontolake.graph.tables.types import GraphType


def require(parts: GraphParts, record: CommitRecord, state: GraphState, *, whole: bool = True) -> None:
    """Raise `RemovedCommitError` if a commit that a branch knows cannot be read any more.

    Unless the `whole` commit is needed, it is enough that some of it is left: a table that was dropped for good takes
    nothing from others. What the head of the branch shows is never removed.
    """
    if record.id == state.head.id:
        return
    types = types_of(parts, record, state)
    others = [pin for key, pin in record.pins.items() if state.pins.get(key) != pin]
    left = [pin for pin in others
            if parts.place.has_version(types[pin.schema].location, pin.branch, pin.version)]  # fmt: skip
    if others and (len(left) < len(others) if whole else not left):
        raise RemovedCommitError(record.id, state.branch)


def types_of(parts: GraphParts, record: CommitRecord, state: GraphState) -> Mapping[str, GraphType]:
    """Types by hash, with all those of a commit that the branch knows.

    Merges of older releases did not bring the types that only commits in the midst of the source had; these are on the
    branch where the commit was made. Raises `BranchError` if that one is gone.
    """
    hashes = {pin.schema for pin in record.pins.values()}
    if hashes <= state.history.keys():
        return state.history
    if record.branch in (MAIN, *parts.manifest.branches()):
        history = {**parts.manifest.state(record.branch).history, **state.history}
        if hashes <= history.keys():
            return history
    raise _gone(record)


def _gone(record: CommitRecord) -> BranchError:
    return BranchError(record.branch, f"is gone, on which commit {record.id} was made",
                       hint="name a commit of a branch that is there, such as the merge that brought it")


@contextmanager
def still_there(parts: GraphParts, *shown: tuple[str, CommitRecord]) -> Iterator[None]:
    """Tell what cannot be read because it was removed meanwhile from what is damaged. Takes branches with commits."""
    try:
        yield
    except DamagedGraphError as error:
        parts.tables.renew()  # an erasure may have written versions anew that were read before
        parts.snapshots.clear()
        for branch, record in shown:
            try:
                require(parts, record, parts.state(branch))
            except RemovedCommitError as removed:
                raise removed from error
            except UnknownBranchError:
                continue
        raise


def head_version(parts: GraphParts, state: GraphState, commit: str) -> tuple[str, int] | None:
    """The branch and the version of the manifest at which a commit was the head; None if the branch does not know it.

    Commits of before a branch was made are on the one that it was made from, and those that a merge brought on another.
    Raises `BranchError` if that one is gone.
    """
    manifest, branch = parts.manifest, state.branch
    version = manifest.version_of(state, commit)
    if version is None:
        return None
    listed = manifest.branches()
    while branch != MAIN and version <= listed[branch]["parent_version"]:
        branch = listed[branch]["parent_branch"] or MAIN
    if manifest.head_at(branch, manifest.dataset(branch, version)).id == commit:
        return branch, version
    record = manifest.commit(commit, state.branch)
    if record.branch in (MAIN, *listed) and record.branch != state.branch:
        origin = parts.line_state(record.branch)
        found = head_version(parts, origin, commit)
        if found is not None:
            return found
    raise _gone(record)
