"""Differences between branches, and three-way merges against their best common ancestors in the commit DAG.

Both cost what changed, not what is stored. A merge is a commit with two parents, also if it brings nothing: the next
one starts from there. It is refused if somebody has changed the entities that it looked at since it was planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import apsw

from ontolake.documents import ancestors, codec, commits, replay, threeway
from ontolake.documents.codec import Document
from ontolake.documents.commits import Commit, MergedLine
from ontolake.documents.database import SpaceDatabase, View, row, rows
from ontolake.documents.errors import BranchError, ConflictError, MergeConflictError, ProtocolError
from ontolake.documents.names import check_branch_text, name_of
from ontolake.documents.operations import Delete, Operation, Patch, Read, Reads, Set
from ontolake.documents.replay import EntityState
from ontolake.documents.requests import prepare
from ontolake.documents.resolutions import MergeConflict, Resolve
from ontolake.documents.transactions import SpaceWriter
from ontolake.history.bases import base_values
from ontolake.history.dag import best_common_ancestors

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


class MergePlan(NamedTuple):
    """What a merge would do. `seq` is the newest commit that was looked at.

    `bases` are the best common ancestors, oldest first, each a branch and a seq; where there are several, the merge is
    done against what merging them gives. `base` is the last of them.
    """

    source: str
    into: str
    base: tuple[str, int]
    seq: int
    taken: dict[str, Document | None]
    """Changed by the source alone."""
    combined: dict[str, Patch]
    """Changed by both, in separate places."""
    conflicts: tuple[MergeConflict, ...]
    bases: tuple[tuple[str, int], ...] = ()
    is_news: bool = True
    """Whether the source has commits that the target has not: then a merge makes a commit, whatever it brings."""


class _Planned(NamedTuple):
    """A plan, the lines of source and target, the commits to merge against, and all entities that were looked at."""

    plan: MergePlan
    lines: tuple[str, str]
    bases: Sequence[int]
    ids: set[str]


class MergeResult(NamedTuple):
    """What a merge did: the ids that were taken, combined and resolved.

    `commit` is None if the target has all commits of the source already.
    """

    commit: Commit | None
    taken: tuple[str, ...] = ()
    combined: tuple[str, ...] = ()
    resolved: tuple[str, ...] = ()


_SINCE = "SELECT id, seq FROM revision WHERE branch = ? AND seq > ? AND seq < ? ORDER BY seq"
_REPEATED = 'SELECT seq, branch, resolution FROM "commit" WHERE session_id = ? AND local_seq = ?'


class Merger:
    """Compares and merges branches of one space."""

    def __init__(self, database: SpaceDatabase, writer: SpaceWriter) -> None:
        self._database = database
        self._writer = writer

    def diff(self, after: Point, before: Point) -> Diff:
        """What makes the state `after` out of the state `before`."""
        with self._database.read:
            new, old = self._view(*after), self._view(*before)
        return self.diff_views(new, old)

    def diff_views(self, new: View, old: View) -> Diff:
        """What makes what one view shows out of what another shows."""
        diff = Diff({}, {}, {})
        with self._database.read as connection:
            ids = ancestors.touched(connection, new, old) | ancestors.touched(connection, old, new)
            for id, (now, then) in replay.find_in_chunks(connection, (new, old), sorted(ids)):
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
        line = self._database.line(branch)
        return self._database.view(line, self._database.moment(seq, f"branch {branch!r}"))

    def plan(self, source: str, into: str) -> MergePlan:
        """What a merge would do now."""
        return self._plan(source, into).plan

    def _plan(self, source: str, into: str) -> _Planned:
        if source == into:
            raise BranchError(source, "cannot be merged into itself")
        taken: dict[str, Document | None] = {}
        combined: dict[str, Patch] = {}
        conflicts: list[MergeConflict] = []
        with self._database.read as connection:
            theirs, ours = self._view(source, None), self._view(into, None)
            lines, seq = (theirs[0][0], ours[0][0]), ours[0][1]
            dag = ancestors.Commits(self._database, connection)
            their_head, our_head = (dag.head(line, seq) for line in lines)
            bases = best_common_ancestors(dag, [our_head], [their_head])
            between = [dag.between(their_head, base) for base in bases if bases != [their_head]]
            ids = {id for part in between for id in part.ids}
            # Nothing but the making and deleting of branches, or a merge of what the target has, is no news.
            is_news = any(part.has_writes or (part.has_merges and bases != [our_head]) for part in between)
            for id, origin, new, now in self._states(connection, dag, bases, (theirs, ours), sorted(ids)):
                outcome = threeway.merge(origin, new.document, now.document)
                if outcome.kind == "take":
                    taken[id] = new.document
                elif outcome.kind == "combine":
                    combined[id] = Patch(id, outcome.patches)
                elif outcome.kind == "conflict":
                    conflicts.append(MergeConflict(
                        id, threeway.undisputed(origin), new.document, now.document, now.changed, outcome.paths
                    ))  # fmt: skip
            points = tuple((name_of(dag.line(base)), base) for base in bases)
        plan = MergePlan(source, into, points[-1], seq, taken, combined, tuple(conflicts), points, is_news)
        return _Planned(plan, lines, bases, ids)

    def _states(
        self, connection: apsw.Connection, dag: ancestors.Commits, bases: Sequence[int], heads: tuple[View, View],
        ids: Sequence[str],
    ) -> Iterator[tuple[str, threeway.Base, EntityState, EntityState]]:  # fmt: skip
        """Entities as the base, the source and the target have them."""

        def read(commit: int, wanted: Sequence[str]) -> dict[str, threeway.Base]:
            return {id: found.document for id, found in replay.find_many(connection, dag.view(commit), wanted).items()}

        for start in range(0, len(ids), replay.CHUNK):
            chunk = ids[start : start + replay.CHUNK]
            origin = base_values(dag, bases, chunk, read=read, same=codec.same, merge=threeway.virtual, absent=None)
            theirs, ours = (replay.find_many(connection, view, chunk) for view in heads)
            yield from ((id, origin[id], theirs[id], ours[id]) for id in chunk)

    def merge(self, source: str, into: str, resolve: Resolve | None, request: tuple[str, int]) -> MergeResult:
        """Plan and commit; see `Branches.merge`."""
        repeated = self._repeated(source, into, *request)
        if repeated is not None:
            return MergeResult(repeated)
        plan, (their_line, our_line), bases, ids = self._plan(source, into)
        if plan.conflicts and resolve is None:
            raise MergeConflictError(plan.conflicts, plan.base[1])
        operations: list[Operation] = [_state(id, document) for id, document in plan.taken.items()]
        operations += plan.combined.values()
        if resolve is not None:
            operations += [_state(conflict.id, resolve(conflict)) for conflict in plan.conflicts]
        if not plan.is_news:
            return MergeResult(None)
        reads = Reads([Read(operation.id, "", plan.seq) for operation in operations])
        commit = self._writer.transact(
            prepare(*request, operations, reads, into), merged=MergedLine(their_line, plan.seq, tuple(bases)),
            beside=lambda connection: self._check_unchanged(connection, our_line, plan.seq, ids))  # fmt: skip
        resolved = tuple(conflict.id for conflict in plan.conflicts)
        return MergeResult(commit, tuple(plan.taken), tuple(plan.combined), resolved)

    def _check_unchanged(self, connection: apsw.Connection, line: str, seen: int, ids: set[str]) -> None:
        """Raise if, until the commit that is being made, something has happened to what was looked at.

        `ConflictError` if an entity was changed, `BranchError` if the branch was deleted and another has its name.
        """
        now = self._database.last_seq()
        if self._database.line(name_of(line)) != line:
            raise BranchError(name_of(line), "was deleted and made anew meanwhile", hint="merge again")
        for id, changed in rows(connection, _SINCE, (line, seen, now)):
            if id in ids:
                raise ConflictError(id, seen, changed)

    def _repeated(self, source: str, into: str, session_id: str, local_seq: int) -> Commit | None:
        """The commit of this merge, if it was made before. Raises `ProtocolError` if something else was."""
        with self._database.read as connection:
            found = row(connection, _REPEATED, (session_id, local_seq))
            if found is None:
                return None
            seq, branch, decided = found
            merged = commits.merged_in(decided)
            if name_of(branch) != into or merged is None or name_of(merged.branch) != source:
                raise ProtocolError(f"local_seq {local_seq} was used by this session for another request, commit {seq}",
                                    hint="use a new local_seq for every new request")
            return commits.stored(self._database, connection, seq)


def _state(id: str, document: Document | None) -> Operation:
    return Delete(id) if document is None else Set(id, document)
