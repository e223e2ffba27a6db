"""The write path: one transaction that is accepted as a whole, under the next seq, or leaves no trace.

In this order: a repeated request gets its first answer; then the branch, the preconditions and the reads are checked;
then the rows are written. Snapshots are added here, but never removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import apsw

from ontolake.documents import commits
from ontolake.documents.commits import NO_REMARKS, Commit, MergedLine, Remarks
from ontolake.documents.database import SpaceDatabase, row
from ontolake.documents.errors import (
    ConflictError,
    DocumentError,
    FutureSeqError,
    InvalidOperationError,
    PatchError,
    PreconditionFailedError,
    ProtocolError,
    UnknownBranchError,
)
from ontolake.documents.names import name_of
from ontolake.documents.operations import Absent, Exists, HeadIs, PendingRead, Precondition, Read
from ontolake.documents.read import replay
from ontolake.documents.read.replay import EntityState
from ontolake.documents.values import codec, edits, patches
from ontolake.documents.write import conflicts
from ontolake.documents.write.recent import Recent
from ontolake.documents.write.requests import Request, Step
from ontolake.faults import reach
from ontolake.history import pointers
from ontolake.history.errors import ProtectedBranchError
from ontolake.history.names import MAIN

# One statement of lookups. A join, or RETURNING later on, would make SQLite build a table for the answer.
_START = """\
SELECT (SELECT max(seq) FROM "commit"), (SELECT seq FROM "commit" WHERE session_id = ?1 AND local_seq = ?2),
  (SELECT status FROM branch WHERE name = ?3), (SELECT head_seq FROM branch WHERE name = ?3),
  strftime('%Y-%m-%d %H:%M:%f', 'now')"""

_ACCEPTED = 'SELECT seq FROM "commit" WHERE session_id = ? AND local_seq = ?'
_ORIGINAL = 'SELECT branch, original FROM "commit" WHERE seq = ?'

_REVISION = """\
INSERT INTO revision (branch, id, seq, op_index, op, data, commit_seq)
VALUES (?, ?, ?, ?, ?, ?, ?)"""

_HEAD = """\
INSERT INTO head (branch, id, seq, op_index)
VALUES (?, ?, ?, ?)
ON CONFLICT (branch, id) DO UPDATE SET seq = excluded.seq, op_index = excluded.op_index"""

_BRANCH_HEAD = "UPDATE branch SET head_seq = ? WHERE name = ?"

SNAPSHOT = """\
INSERT INTO snapshot (branch, id, seq, value)
VALUES (?, ?, ?, ?)
ON CONFLICT (branch, id, seq) DO NOTHING"""

ACTIVE, PROTECTED, DELETED = "active", "protected", "deleted"
"""What the status of a branch can be. Versions that do not know `protected` refuse to write there."""


class _Accepted(NamedTuple):
    """A commit, and unless it is an old one what it has written: states by id, rows of snapshots."""

    commit: Commit
    line: str
    states: dict[str, EntityState]
    snapshots: list[tuple[str, str, int, str]]


class SpaceWriter:
    """Takes transactions, one at a time. `snapshot_every` is the most patches that may follow on a full document."""

    def __init__(self, database: SpaceDatabase, snapshot_every: Callable[[], int]) -> None:
        self._database = database
        self._snapshot_every = snapshot_every
        self._recent = Recent()
        self.on_snapshots: Callable[[list[tuple[str, str]]], None] = lambda entities: None
        """Told of the entities that got a snapshot, by branch and id."""

    def transact(
        self, request: Request, *, merged: MergedLine | None = None, said: Remarks = NO_REMARKS,
        beside: Callable[[apsw.Connection], None] | None = None,
    ) -> Commit:  # fmt: skip
        """Accept a request, or raise and change nothing.

        `merged` is what it takes in, if it is a merge; `said` is what is noted about it; `beside` checks or writes
        something else in the same transaction.
        """
        database = self._database
        with database.lock:
            try:
                with database.write as connection:
                    reach("documents: transaction begun")
                    accepted = self._accept(connection, request, merged, said)
                    if beside is not None:
                        beside(connection)
                    reach("documents: rows written")
            except DocumentError:
                raise
            except BaseException:
                self._recent.clear()  # whether the rows are there is not known
                raise
            reach("documents: committed")
            if accepted.states:
                self._recent.keep(accepted.line, accepted.commit.seq, accepted.states)
        if accepted.snapshots:
            self.on_snapshots([(branch, id) for branch, id, _, _ in accepted.snapshots])
        database.announce()
        return accepted.commit

    def _accept(
        self, connection: apsw.Connection, request: Request, merged: MergedLine | None, said: Remarks
    ) -> _Accepted:
        request = self._on_line(request)
        session_id, local_seq, branch = request.session_id, request.local_seq, request.branch
        newest, repeated, status, head, now = row(connection, _START, (session_id, local_seq, branch))
        last: int = newest or 0
        if repeated is not None:
            check_repeated(connection, repeated, branch, request.original)
            return _Accepted(commits.stored(self._database, connection, repeated), branch, {}, [])
        if not request.steps and merged is None:
            raise InvalidOperationError("a transaction needs at least one operation")
        check_active(branch, status, by_merge=merged is not None)
        self._recent.follow(connection, last)
        if request.preconditions:
            self._check_preconditions(connection, request, head)
        resolved = self._check_reads(connection, request, last, head)

        seq = last + 1
        states = self._fold(connection, request, seq)
        snapshots = self._snapshots(branch, seq, request.steps, states)
        decided = commits.resolution(seq, resolved, merged, said)
        connection.execute(commits.INSERT, (seq, branch, session_id, local_seq, request.original, decided, now))
        reach("documents: commit row written")
        steps = request.steps
        connection.executemany(
            _REVISION, [(branch, step.id, seq, index, step.op, step.data, seq) for index, step in enumerate(steps)]
        )
        reach("documents: revisions written")
        last_index = {step.id: index for index, step in enumerate(steps)}
        connection.executemany(_HEAD, [(branch, id, seq, index) for id, index in last_index.items()])
        reach("documents: heads written")
        connection.execute(_BRANCH_HEAD, (seq, branch))
        if snapshots:
            connection.executemany(SNAPSHOT, snapshots)
            reach("documents: snapshots written")
        parent = head or commits.parent(self._database, connection, branch, seq)
        made = commits.CommitRow(seq, branch, session_id, local_seq, now, resolved, merged, said)
        commit = commits.build(self._database, connection, parent, made)
        return _Accepted(commit, branch, states, snapshots)

    def forget(self) -> None:
        """Forget all documents that were written a moment ago."""
        with self._database.lock:
            self._recent.clear()

    def _on_line(self, request: Request) -> Request:
        """The request with the line of its branch in place of the name."""
        with suppress(UnknownBranchError):  # which is said later: a request that was made before is answered first
            return request._replace(branch=self._database.line(request.branch)) if request.branch else request
        return request

    def _current(self, connection: apsw.Connection, branch: str, ids: Sequence[str]) -> dict[str, EntityState]:
        """Entities as they are now, those that are not known read together."""
        recent = self._recent.of(branch)
        known = {id: recent[id] for id in ids if id in recent}
        unknown = [id for id in ids if id not in known]
        if unknown:
            view = self._database.view(branch, replay.NOW)
            if len(unknown) == 1:
                known[unknown[0]] = replay.find(connection, view, unknown[0], current=True)
            else:
                known |= replay.find_many(connection, view, unknown)
        return known

    def _fold(self, connection: apsw.Connection, request: Request, seq: int) -> dict[str, EntityState]:
        """What the operations make of the entities that they touch. Raises `PatchError`."""
        patched = [step.id for step in request.steps if step.op == "patch"]
        current = self._current(connection, request.branch, patched)
        states: dict[str, EntityState] = {}
        for index, step in enumerate(request.steps):
            if step.op != "patch":
                states[step.id] = EntityState(step.value, seq, 0, len(step.data or ""))
                continue
            found = states.get(step.id) or current[step.id]
            try:
                document = patches.apply(found.document, step.value)
            except PatchError as error:
                raise PatchError(error.reason, patch=error.patch, path=error.path, operation=index) from None
            states[step.id] = EntityState(document, seq, found.replayed + 1, found.size + len(step.data or ""))
        return states

    def _snapshots(
        self, branch: str, seq: int, steps: Sequence[Step], states: dict[str, EntityState]
    ) -> list[tuple[str, str, int, str]]:
        """Rows for the entities that have gathered enough patches; their states count from there."""
        every = self._snapshot_every()
        rows: list[tuple[str, str, int, str]] = []
        for id, found in states.items():
            if found.replayed < every or found.document is None or not every:
                continue
            text = codec.encode(found.document)
            if len(text) > codec.MAX_BYTES:
                index = max(index for index, step in enumerate(steps) if step.id == id)
                raise InvalidOperationError(codec.too_long(len(text)), operation=index)
            rows.append((branch, id, seq, text))
            states[id] = EntityState(found.document, seq, 0, len(text))
        return rows

    def _check_preconditions(self, connection: apsw.Connection, request: Request, head: int) -> None:
        for index, condition in enumerate(request.preconditions):
            problem = self._unmet(connection, request.branch, condition, head)
            if problem:
                raise PreconditionFailedError(index, condition, problem)

    def _unmet(self, connection: apsw.Connection, branch: str, condition: Precondition, head: int) -> str | None:
        if isinstance(condition, HeadIs):
            return None if head == condition.seq else f"the branch is at seq {head}"
        document = self._current(connection, branch, [condition.id])[condition.id].document
        if isinstance(condition, Absent):
            return None if document is None else "the entity is there"
        if document is None:
            return "the entity is not there"
        if isinstance(condition, Exists):
            return None
        try:
            value = edits.look_up(document, pointers.parse(condition.path))
        except KeyError:
            return "there is nothing at this path"
        return None if codec.same(value, condition.value) else "the value is another one"

    def _check_reads(
        self, connection: apsw.Connection, request: Request, last: int, head: int
    ) -> Sequence[tuple[int, int]]:
        """Raise unless all that was read still stands. Returns what the pending reads were resolved to.

        `head` is the newest commit of the branch: who has read all up to there need not look for what came later.
        """
        for number, read in enumerate(request.reads.confirmed):
            if read.seq > last:
                raise FutureSeqError(f"confirmed read {number}", read.seq, last)
            if read.branch is None and read.seq >= head:
                continue
            branch = request.branch if read.branch is None else self._database.line(read.branch)
            self._check_read(connection, branch, read, read.seq, last, frozenset())
        resolved: dict[int, int] = {}
        for number, pending in enumerate(request.reads.pending):
            if pending.basis_seq > last:
                raise FutureSeqError(f"the basis of pending read {number}", pending.basis_seq, last)
            for local_seq in pending.local_seqs:
                resolved[local_seq] = self._accepted(connection, request, pending, local_seq)
            own = frozenset(resolved[local_seq] for local_seq in pending.local_seqs)
            self._check_read(connection, request.branch, pending, pending.basis_seq, last, own)
        return sorted(resolved.items())

    def _check_read(
        self, connection: apsw.Connection, branch: str, read: Read | PendingRead, since: int, last: int,
        own: frozenset[int],
    ) -> None:  # fmt: skip
        """Raise `ConflictError` if a commit in `(since, last]` that is not one of `own` has changed what was read."""
        if since == last:
            return
        database = self._database
        view = database.view(branch, last)

        def before() -> codec.Document | None:
            return replay.find(connection, database.view(branch, since), read.id).document

        revisions = (each for each in conflicts.later(connection, view, read.id, since) if each.seq not in own)
        shallow = isinstance(read, Read) and read.shallow
        found = conflicts.first_conflict(revisions, pointers.parse(read.path), shallow=shallow, before=before)
        if found is not None:
            raise ConflictError(read.id, since, found)

    def _accepted(
        self, connection: apsw.Connection, request: Request, read: PendingRead, local_seq: int
    ) -> int:
        """The seq of an earlier commit of the same session."""
        if local_seq >= request.local_seq:
            raise ProtocolError(f"a pending read names local_seq {local_seq}, which is not before {request.local_seq}")
        found = row(connection, _ACCEPTED, (request.session_id, local_seq))
        if found is None:
            raise ConflictError(read.id, read.basis_seq, None,
                                f"it was read through local_seq {local_seq}, which was never accepted")
        return int(found[0])


# Shared with the life cycle of branches, whose commands are commits too.


def check_repeated(connection: apsw.Connection, seq: int, branch: str, original: str) -> None:
    """Raise `ProtocolError` unless the commit `seq` was made by this very request."""
    stored_branch, stored = row(connection, _ORIGINAL, (seq,))
    if name_of(stored_branch) == name_of(branch) and (
        stored == original or codec.same(codec.decode(stored), codec.decode(original))
    ):
        return
    raise ProtocolError(f"this local_seq was used by this session for another request, which is commit {seq}",
                        hint="use a new local_seq for every new request")


def check_active(branch: str, status: str | None, *, by_merge: bool = False) -> None:
    """Raise unless a branch of this status can be written to: `UnknownBranchError`, `ProtectedBranchError`."""
    if status is None:
        raise UnknownBranchError(name_of(branch))
    if status == DELETED:
        raise UnknownBranchError(name_of(branch), "was deleted and can only be read",
                                 hint="create a new branch from it")
    if status == PROTECTED and not by_merge:
        raise ProtectedBranchError(name_of(branch) or MAIN)
