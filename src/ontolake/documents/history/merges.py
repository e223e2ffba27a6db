"""Merge, revert, cherry-pick and restore of documents, by the shared operations of `ontolake.history`.

All cost what changed, not what is stored. A step is planned from commits, which never change, and published only if the
head of the target is still the one that was planned for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import apsw

from ontolake.documents import commits
from ontolake.documents.commits import Commit, MergedLine
from ontolake.documents.database import SpaceDatabase, row, rows
from ontolake.documents.errors import ConflictError, MergeConflictError, ProtocolError, own_errors
from ontolake.documents.history import ancestors
from ontolake.documents.history.ancestors import START, Between
from ontolake.documents.history.references import SpaceRefs
from ontolake.documents.history.resolutions import Resolve
from ontolake.documents.names import check_branch_text, name_of
from ontolake.documents.operations import Patch, Read, Reads, Set
from ontolake.documents.read import replay
from ontolake.documents.read.feed import TABLE
from ontolake.documents.read.states import SeenDocuments
from ontolake.documents.values.codec import Document
from ontolake.documents.write.requests import Step, of_steps, step
from ontolake.documents.write.transactions import SpaceWriter, check_active
from ontolake.history import Conflict, Counts, Decisions, MergeResult, MergeStatus, Point, operations
from ontolake.history import errors as shared
from ontolake.history.bases import base_values
from ontolake.history.dag import best_common_ancestors
from ontolake.history.errors import RevertError
from ontolake.history.names import MAIN
from ontolake.history.operations import CommitNote, MergePlan, MergeRequest, Moved, Sides
from ontolake.history.pointers import format as pointer
from ontolake.history.pointers import parse, value_at
from ontolake.history.threeway import Outcome
from ontolake.history.trees import MergedTree, differing, merge_trees, same_json, undisputed, virtual_tree

Changes = dict[str, Step]
"""What a step writes, by id."""

_STATUS = "SELECT status FROM branch WHERE name = ?"
_SINCE = "SELECT id, seq FROM revision WHERE branch = ? AND seq > ? AND seq < ? ORDER BY seq"
_REPEATED = 'SELECT seq, branch, resolution FROM "commit" WHERE session_id = ? AND local_seq = ?'


class MergeDoor(NamedTuple):
    """What only `branches.merge` takes: a request that can be repeated, and a function that decides conflicts."""

    request: tuple[str, int]
    resolve: Resolve | None = None


class _Document(NamedTuple):
    """One document in a step."""

    id: str
    base: Any
    ours: Document | None
    theirs: Document | None
    text: str | None
    """`theirs` as it is stored, if it is stored as a whole."""
    untouched: bool
    """Whether the target has it as the base has it."""


class MergeModel:
    """A space at one moment, as the shared operations ask it: a `history.operations.Mergeable`."""

    def __init__(self, database: SpaceDatabase, writer: SpaceWriter, door: MergeDoor) -> None:
        self._database = database
        self._writer = writer
        self._door = door
        self._planning = ExitStack()
        self._planning.enter_context(database.read)  # until the plan is there: one state of the space, read at once
        self.dag = ancestors.Commits(database)
        self.refs = SpaceRefs(database, self.dag)
        self._between: dict[tuple[int, int], Between] = {}
        self._looked_at: set[str] = set()
        self.refused = (START, START)
        """Of conflicts the newest base, and the commit that last changed the first document on the target."""

    def close(self) -> None:
        """End the transaction in which the space is read."""
        self._planning.close()

    def resolve(self, ref: str | int) -> Point[int]:
        branch, commit = self.refs.resolve(ref)
        with self._database.joined:
            return Point(self._database.title(self._database.line(branch)), commit)

    def head(self, branch: str) -> int:
        with self._database.joined as connection:
            line = self._database.line(branch)
            check_active(line, row(connection, _STATUS, (line,))[0], by_merge=True)
            return self.dag.head(line, self.refs.seq)

    def between(self, commit: int, base: int) -> Between:
        found = self._between.get((commit, base))
        if found is None:
            found = self._between[commit, base] = self.dag.between(commit, base)
        return found

    def is_news(self, theirs: int, ours: int) -> bool:
        """Nothing but the making and deleting of branches, or a merge of what the target has, is no news."""
        bases = best_common_ancestors(self.dag, [ours], [theirs])
        parts = [self.between(theirs, base) for base in bases if bases != [theirs]]
        if any(part.has_writes or (part.has_merges and bases != [ours]) for part in parts):
            return True
        # Merges that wrote nothing are news if they left out what the target has.
        return any(part.has_merges and self._differ(theirs, ours, sorted(part.ids)) for part in parts)

    def _differ(self, theirs: int, ours: int, ids: Sequence[str]) -> bool:
        """Whether one of some documents is not the same at two commits."""
        for start in range(0, len(ids), replay.CHUNK):
            chunk = ids[start : start + replay.CHUNK]
            with self._database.joined as connection:
                sides = [SeenDocuments(connection, self.dag.view(one), chunk) for one in (theirs, ours)]
            if any(not sides[0].stored_alike(sides[1], id)
                   and not same_json(sides[0].document(id), sides[1].document(id)) for id in chunk):
                return True
        return False

    def plan(self, sides: Sides[int], decisions: Decisions) -> MergePlan[Changes]:
        if sides.is_merge:
            ids = {id for base in sides.bases for id in self.between(sides.theirs, base).ids}
        else:
            ids = self.dag.differing(sides.theirs, sides.bases[0])
        self._looked_at = ids
        changes: Changes = {}
        conflicts: list[Conflict] = []
        counts = [0, 0, 0]
        states: Iterable[_Document] = self._states(sides, sorted(ids))
        if self._door.resolve is not None:
            states = list(states)
            self.close()  # whoever decides may read and write
        for found in states:
            merged = _merge(found, decisions)
            if merged.conflicts and self._door.resolve is not None:
                merged = MergedTree(self._door.resolve(_whole(found, merged)), Outcome.CLASH)
            conflicts += merged.conflicts
            if merged.outcome is Outcome.KEEP or (merged.outcome is Outcome.CLASH
                                                  and same_json(merged.tree, found.ours)):
                continue
            changes[found.id] = _step(found, merged)
            counts[0 if found.ours is None else 2 if merged.tree is None else 1] += 1
        if conflicts:
            with self._database.joined as connection:
                now = replay.find(connection, self.dag.view(sides.ours), str(conflicts[0].key))
            self.refused = (sides.bases[-1], now.changed)
        return MergePlan(changes, {TABLE: Counts(*counts)} if changes else {}, conflicts)

    def _states(self, sides: Sides[int], ids: Sequence[str]) -> Iterator[_Document]:
        """Documents as the base, the target and the source have them, but for those that are stored alike."""
        for start in range(0, len(ids), replay.CHUNK):
            chunk = ids[start : start + replay.CHUNK]
            with self._database.joined as connection:
                ours = SeenDocuments(connection, self.dag.view(sides.ours), chunk)
                theirs = SeenDocuments(connection, self.dag.view(sides.theirs), chunk)
                different = [id for id in chunk if not ours.stored_alike(theirs, id)]
                base = self._base(sides, different, ours)
            for id in different:
                mine = ours.document(id)
                yield _Document(id, base.get(id, mine), mine, theirs.document(id), theirs.text(id), id not in base)

    def _base(self, sides: Sides[int], ids: Sequence[str], ours: SeenDocuments) -> dict[str, Any]:
        """The documents of the base, but for those that the target has not touched since."""
        if len(sides.bases) == 1:
            view = self.dag.view(sides.bases[0])
            line, limit = view[0]
            if dict(self.dag.view(sides.ours)).get(line, START) >= limit:
                # The target sees all that the base saw: what it shows of that is what the base shows.
                limits = dict(view)
                ids = [id for id in ids
                       if (newest := ours.newest(id)) is not None and newest.seq > limits.get(newest.line, -1)]
        return base_values(self.dag, sides.bases, ids, read=self._read, same=same_json, merge=virtual_tree, absent=None)

    def _read(self, commit: int, ids: Sequence[str]) -> dict[str, Any]:
        with self._database.joined as connection:
            states = SeenDocuments(connection, self.dag.view(commit), ids)
        return {id: states.document(id) for id in ids}

    def publish(self, sides: Sides[int], plan: MergePlan[Changes], note: CommitNote) -> Commit:
        with self._database.joined:
            line = self._database.line(sides.into)
            branch = self._database.name(line)
            merged = (MergedLine(self.dag.line(sides.theirs), sides.theirs, tuple(sides.bases)) if sides.is_merge
                      else None)
        self.close()

        def check(connection: apsw.Connection) -> None:
            now = self._database.last_seq()
            if (self._database.line(sides.into) == line
                    and commits.parent(self._database, connection, line, now) == sides.ours):
                return
            if self._door.resolve is None or self._database.line(sides.into) != line:
                raise Moved
            # Somebody decided: that stands unless it was about documents that have changed since.
            for id, changed in rows(connection, _SINCE, (line, sides.ours, now)):
                if id in self._looked_at:
                    raise ConflictError(id, self.refs.seq, changed)

        # What is taken as it is comes first. All are reads as well: what was looked at must not have changed.
        written = sorted(plan.changes.values(), key=lambda step: step.op == "patch")
        reads = Reads([Read(step.id, "", self.refs.seq) for step in written])
        request = of_steps(*self._door.request, written, reads, branch)
        said = commits.remarks(note.message, note.author, sides.metadata)
        if said == commits.NO_REMARKS:
            said = commits.NO_REMARKS
        try:
            return self._writer.transact(request, merged=merged, said=said, beside=check)
        except ConflictError:
            if self._door.resolve is not None:
                raise
            raise Moved from None


def _whole(found: _Document, merged: MergedTree) -> Conflict:
    """The conflicts of a document as one about all of it."""
    fields = ", ".join(one.field for one in merged.conflicts if one.field)
    return Conflict(TABLE, found.id, merged.conflicts[0].kind, None, undisputed(found.base), found.ours, found.theirs,
                    f"both sides changed {fields}" if fields else merged.conflicts[0].detail)


def _merge(found: _Document, decisions: Decisions) -> MergedTree:
    if not found.untouched:
        return merge_trees(TABLE, found.id, found.base, found.ours, found.theirs, decisions)
    if same_json(found.theirs, found.ours):
        return MergedTree(found.ours, Outcome.KEEP)
    return MergedTree(found.theirs, Outcome.TAKE)


def _step(found: _Document, merged: MergedTree) -> Step:
    """What turns the document of the target into the merged one: patches where it combines both sides."""
    if merged.tree is None:
        return Step("delete", found.id, None, None)
    if merged.outcome is Outcome.TAKE and found.text is not None:
        return Step("set", found.id, found.text, merged.tree)
    if found.ours is None or merged.outcome is Outcome.TAKE:
        return step(Set(found.id, merged.tree))
    return step(Patch(found.id, [_patch(path, found.ours, merged.tree)
                                 for path in differing(found.ours, merged.tree)]))  # fmt: skip


def _patch(path: str, before: Document, after: Document) -> dict[str, Any]:
    *parents, last = parse(path)
    holder = pointer(parents)
    if last not in (value_at(after, holder) if holder else after):
        return {"op": "remove", "path": path}
    known = last in (value_at(before, holder) if holder else before)
    return {"op": "replace" if known else "add", "path": path, "value": value_at(after, path)}


class Merger:
    """Brings changes from one state of a space to another."""

    def __init__(
        self, database: SpaceDatabase, writer: SpaceWriter, next_request: Callable[[], tuple[str, int]]
    ) -> None:
        self._database = database
        self._writer = writer
        self._next_request = next_request

    def _run(
        self, operation: Callable[[Callable[[], MergeModel]], MergeResult[int]], door: MergeDoor | None = None
    ) -> MergeResult[int]:
        """Run a shared operation, and raise the errors of documents for its own."""
        chosen = MergeDoor(self._next_request()) if door is None else door
        models: list[MergeModel] = []

        def opened() -> MergeModel:
            models.append(MergeModel(self._database, self._writer, chosen))
            return models[-1]

        try:
            with own_errors():
                return operation(opened)
        except shared.MergeConflictError as error:
            raise MergeConflictError(error.source, error.into, error.conflicts, *models[-1].refused) from None
        finally:
            for model in models:
                model.close()

    def _name(self, branch: str, *, by_merge: bool = False) -> str:
        """The name of a branch that can be written to: for the first one, which has two, the one that people read."""
        check_branch_text(branch)
        with self._database.joined as connection:
            line = self._database.line(branch)
            check_active(line, row(connection, _STATUS, (line,))[0], by_merge=by_merge)
            return self._database.title(line)

    def merge(self, source: str, into: str, request: MergeRequest, door: MergeDoor | None = None) -> MergeResult[int]:
        """Bring the commits of a reference into a branch."""
        check_branch_text(source)
        into = self._name(into, by_merge=True)
        if door is not None and (repeated := self._repeated(source, into, *door.request)) is not None:
            return MergeResult(MergeStatus.MERGED, source, into, repeated)
        return self._run(lambda opened: operations.merge(opened, source, into, request), door)

    def revert(self, commit: str | int, branch: str, request: MergeRequest) -> MergeResult[int]:
        """Undo one commit on a branch."""
        name = self._name(branch, by_merge=request.dry_run)
        self._check_not_first(commit, "reverted")
        return self._run(lambda opened: operations.revert(opened, commit, name, request))

    def cherry_pick(self, commit: str | int, branch: str, request: MergeRequest) -> MergeResult[int]:
        """Do on a branch what one commit did elsewhere."""
        name = self._name(branch, by_merge=request.dry_run)
        self._check_not_first(commit, "picked")
        return self._run(lambda opened: operations.cherry_pick(opened, commit, name, request))

    def restore(self, to: str | int, branch: str, request: MergeRequest) -> MergeResult[int]:
        """Bring an earlier state back on a branch."""
        name = self._name(branch, by_merge=request.dry_run)
        return self._run(lambda opened: operations.restore(opened, to, name, None, request))

    def _check_not_first(self, commit: str | int, what: str) -> None:
        """Raise `RevertError` for the first commit, before which the core knows the empty space."""
        refs = SpaceRefs(self._database)
        seq = refs.resolve(commit).commit
        if seq == START or refs.commits.parents(seq)[0] == START:
            raise RevertError(seq, f"is the first one, and cannot be {what}", hint="there is no state before it")

    def _repeated(self, source: str, into: str, session_id: str, local_seq: int) -> Commit | None:
        """The commit of this merge, if it was made before. Raises `ProtocolError` if something else was."""
        with self._database.read as connection:
            found = row(connection, _REPEATED, (session_id, local_seq))
            if found is None:
                return None
            seq, branch, decided = found
            merged = commits.merged_in(decided)
            name = self._database.name
            if ((self._database.line(into) != branch and into != name_of(branch)) or merged is None
                    or (source or MAIN) not in (name(merged.branch) or MAIN, name_of(merged.branch) or MAIN)):
                raise ProtocolError(f"local_seq {local_seq} was used by this session for another request, commit {seq}",
                                    hint="use a new local_seq for every new request")
            return commits.stored(self._database, connection, seq)
