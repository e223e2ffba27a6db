"""Differences between branches, and three-way merges against their nearest common ancestor.

Both cost what changed, not what is stored: only entities that were touched on one side alone are looked at. A merge
is an ordinary commit that has read the entities it writes, so one that was planned on an older state is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import apsw

from ontolake.documents import ancestors, codec, commits, reading, threeway
from ontolake.documents.codec import Document
from ontolake.documents.commits import Commit
from ontolake.documents.database import Database, View, row, rows
from ontolake.documents.errors import BranchError, MergeConflictError, ProtocolError
from ontolake.documents.names import check_branch_text
from ontolake.documents.operations import Delete, Operation, Patch, Read, Reads, Set
from ontolake.documents.requests import prepare
from ontolake.documents.writing import Writer

Point = tuple[str, int | None]
"""A branch, and a seq or None for its head."""


class Modified(NamedTuple):
    """A document that is there on both sides, but not the same."""

    before: Document
    after: Document


class Diff(NamedTuple):
    """What makes one side out of the other, by id."""

    added: dict[str, Document]
    removed: dict[str, Document]
    modified: dict[str, Modified]


class MergeConflict(NamedTuple):
    """An entity that both sides changed, at `paths` that meet ("" for the whole document)."""

    id: str
    base: Document | None
    source: Document | None
    target: Document | None
    target_seq: int
    paths: tuple[str, ...]


Resolve = Callable[[MergeConflict], Document | None]
"""Decides a conflict: gives the document to store, or None to delete it."""


def prefer_source(conflict: MergeConflict) -> Document | None:
    """Decide for what the merge brings."""
    return conflict.source


def prefer_target(conflict: MergeConflict) -> Document | None:
    """Decide for what is there."""
    return conflict.target


class MergePlan(NamedTuple):
    """What a merge would do. `base` is the nearest common ancestor: a branch and a seq; `seq` what was looked at."""

    source: str
    into: str
    base: tuple[str, int]
    seq: int
    taken: dict[str, Document | None]
    """Changed by the source alone."""
    combined: dict[str, Patch]
    """Changed by both, in separate places."""
    conflicts: tuple[MergeConflict, ...]


class MergeResult(NamedTuple):
    """What a merge did: the ids that were taken, combined and resolved. `commit` is None if nothing was to be done."""

    commit: Commit | None
    taken: tuple[str, ...] = ()
    combined: tuple[str, ...] = ()
    resolved: tuple[str, ...] = ()


_TOUCHED = "SELECT DISTINCT id FROM revision WHERE branch = ? AND seq > ? AND seq <= ?"
_REPEATED = 'SELECT seq, branch, resolution FROM "commit" WHERE session_id = ? AND local_seq = ?'


class Merger:
    """Compares and merges branches of one space."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer

    def diff(self, after: Point, before: Point) -> Diff:
        """What makes the state `after` out of the state `before`."""
        diff = Diff({}, {}, {})
        with self._database.read as connection:
            new, old = self._view(*after), self._view(*before)
            ids = _touched(connection, new, old) | _touched(connection, old, new)
            for id, (now, then) in reading.find_in_chunks(connection, (new, old), sorted(ids)):
                if then.document is None and now.document is not None:
                    diff.added[id] = now.document
                elif now.document is None and then.document is not None:
                    diff.removed[id] = then.document
                elif now.document is None or then.document is None:
                    continue
                elif not codec.same(now.document, then.document):
                    diff.modified[id] = Modified(then.document, now.document)
        return diff

    def _view(self, branch: str, seq: int | None) -> View:
        check_branch_text(branch)
        return self._database.view(branch, self._database.moment(seq, f"branch {branch!r}"))

    def plan(self, source: str, into: str) -> MergePlan:
        """What a merge would do now."""
        if source == into:
            raise BranchError(source, "cannot be merged into itself")
        taken: dict[str, Document | None] = {}
        combined: dict[str, Patch] = {}
        conflicts: list[MergeConflict] = []
        with self._database.read as connection:
            theirs, ours = self._view(source, None), self._view(into, None)
            base = ancestors.nearest_common(self._database, connection, theirs[0], ours[0])
            origin = self._database.view(*base)
            ids = sorted(_touched(connection, theirs, origin))
            for id, (then, new, now) in reading.find_in_chunks(connection, (origin, theirs, ours), ids):
                outcome = threeway.merge(then.document, new.document, now.document)
                if outcome.kind == "take":
                    taken[id] = new.document
                elif outcome.kind == "combine":
                    combined[id] = Patch(id, outcome.patches)
                elif outcome.kind == "conflict":
                    conflicts.append(
                        MergeConflict(id, then.document, new.document, now.document, now.changed, outcome.paths)
                    )
        return MergePlan(source, into, base, ours[0][1], taken, combined, tuple(conflicts))

    def merge(self, source: str, into: str, resolve: Resolve | None, request: tuple[str, int]) -> MergeResult:
        """Plan and commit; see `Branches.merge`."""
        repeated = self._repeated(source, into, *request)
        if repeated is not None:
            return MergeResult(repeated)
        plan = self.plan(source, into)
        if plan.conflicts and resolve is None:
            raise MergeConflictError(plan.conflicts, plan.base[1])
        operations: list[Operation] = [_state(id, document) for id, document in plan.taken.items()]
        operations += plan.combined.values()
        if resolve is not None:
            operations += [_state(conflict.id, resolve(conflict)) for conflict in plan.conflicts]
        if not operations:
            return MergeResult(None)
        reads = Reads([Read(operation.id, "", plan.seq) for operation in operations])
        commit = self._writer.transact(prepare(*request, operations, reads, into), merged=(source, plan.seq))
        resolved = tuple(conflict.id for conflict in plan.conflicts)
        return MergeResult(commit, tuple(plan.taken), tuple(plan.combined), resolved)

    def _repeated(self, source: str, into: str, session_id: str, local_seq: int) -> Commit | None:
        """The commit of this merge, if it was made before. Raises `ProtocolError` if something else was."""
        with self._database.read as connection:
            found = row(connection, _REPEATED, (session_id, local_seq))
            if found is None:
                return None
            seq, branch, decided = found
            merged = codec.decode(decided).get("merged", {})
            if branch != into or merged.get("branch") != source:
                raise ProtocolError(f"local_seq {local_seq} was used by this session for another request, commit {seq}",
                                    hint="use a new local_seq for every new request")
            return commits.stored(self._database, connection, seq)


def _touched(connection: apsw.Connection, view: View, since: View) -> set[str]:
    """The entities that have revisions in one view and not in the other."""
    limits = dict(since)
    return {
        id
        for branch, limit in view
        for (id,) in rows(connection, _TOUCHED, (branch, limits.get(branch, 0), limit))
    }


def _state(id: str, document: Document | None) -> Operation:
    return Delete(id) if document is None else Set(id, document)
