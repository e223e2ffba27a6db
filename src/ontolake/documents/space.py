"""A space: the documents of one database, with all that they ever were."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, overload

from ontolake.documents import blobs, commits
from ontolake.documents.blobs import Blob
from ontolake.documents.commits import Commit
from ontolake.documents.database import SpaceDatabase, View
from ontolake.documents.history import authorship, differences
from ontolake.documents.history.branches import SpaceBranches
from ontolake.documents.history.merges import Merger
from ontolake.documents.history.references import FIRST, SpaceRefs
from ontolake.documents.history.tags import SpaceTags
from ontolake.documents.names import check_branch_text, check_id
from ontolake.documents.operations import DocumentState, Operation, Precondition, Reads, Revision, Set
from ontolake.documents.places import database_url
from ontolake.documents.read import feed, replay, watcher
from ontolake.documents.read.feed import TABLE
from ontolake.documents.read.moments import SpaceMoment
from ontolake.documents.upkeep import erasure, verification
from ontolake.documents.upkeep.snapshots import Snapshots
from ontolake.documents.values.codec import Document
from ontolake.documents.write.requests import NO_READS, prepare
from ontolake.documents.write.transactions import SpaceWriter
from ontolake.errors import Invalid
from ontolake.history import (
    Change,
    Damage,
    Garbage,
    MergeResult,
    Ref,
    Resolution,
    RowVersion,
    Snapshot,
    Strategy,
    UnrelatedError,
    check_snapshots,
)
from ontolake.history import Commit as HistoryCommit
from ontolake.history.contract import as_snapshot
from ontolake.history.errors import UnknownTableError
from ontolake.history.names import MAIN
from ontolake.history.operations import MergeRequest
from ontolake.history.refs import on_branch


def open_space(
    url: str, space: str, *, readonly: bool = False, takeover: bool = False, synchronous: str = "NORMAL"
) -> Space:
    """The space of this name under `url`, which is started where there is none (unless read-only).

    A directory (`path/`, `file:///dir`) holds one native file per space, `<space>.sqlite`; `sqlite+file:///dir`,
    `s3://…` and `memory://…` hold one database per space over the seam. There every commit is durable when it
    returns. On a native file `synchronous="FULL"` gives the same; with `NORMAL`, the default, a power failure (not a
    crash) may take the last commits back, in order and whole. `takeover` ends another writer's lease over the seam.

    Raises `Invalid` for a URL or name that cannot be, `NotFound` for a space that is not there, `LayoutError` for a
    database that is none or is newer, `Contended` if another process is writing to it over the seam.
    """
    return Space(database_url(url, space), space, readonly=readonly, takeover=takeover, synchronous=synchronous)


class Space:
    """An open space. Threads may share it; they take turns. Close it, or use it in a `with` block."""

    def __init__(self, url: str, name: str, *, readonly: bool, takeover: bool, synchronous: str) -> None:
        self.name = name
        self.url = url
        self.session_id = uuid.uuid4().hex
        """A session of its own for every open space, for callers that bring none."""
        self._local_seqs = itertools.count(1)
        self._local_seq_lock = threading.Lock()
        self._database = SpaceDatabase(url, readonly=readonly, takeover=takeover, synchronous=synchronous)
        self.snapshots = Snapshots(self._database)
        self._writer = SpaceWriter(self._database, lambda: self.snapshots.policy.every)
        self._writer.on_snapshots = self.snapshots.note
        self._merger = Merger(self._database, self._writer, self.next_request)
        self.branches = SpaceBranches(self._database, self._merger, self.next_request)
        self.tags = SpaceTags(self._database)

    def __enter__(self) -> Space:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the background task and all watching, and give the database up. Closing twice does no harm."""
        self.snapshots.stop()
        self._database.close()

    def next_request(self) -> tuple[str, int]:
        """A session_id and a local_seq that were never used: `space.transact(*space.next_request(), [...])`."""
        with self._local_seq_lock:
            return self.session_id, next(self._local_seqs)

    # writing

    def transact(
        self, session_id: str, local_seq: int, operations: Iterable[Operation], *, reads: Reads = NO_READS,
        branch: str = FIRST, preconditions: Iterable[Precondition] = (), message: str | None = None,
        author: str | None = None, metadata: Mapping[str, Any] | None = None,
    ) -> Commit:  # fmt: skip
        """Apply operations in order, as one commit with the next seq, or not at all.

        `message`, `author` and `metadata` are kept with the commit; without an author it is the session.

        A request that was made before, by its `session_id` and `local_seq`, is not applied again: it gets the first
        answer. Raises `InvalidOperationError` for a malformed operation, `PatchError` for a patch that does not fit,
        `ConflictError` if something that was read has changed, `PreconditionFailedError`, `BranchError`,
        `ProtectedBranchError`, `ProtocolError`, and `Contended` if another process keeps the database busy. Then
        nothing was written.
        """
        request = prepare(session_id, local_seq, operations, reads, branch, preconditions)
        if message is None and author is None and not metadata:
            return self._writer.transact(request)
        return self._writer.transact(request, said=commits.remarks(message, author, metadata))

    # reading

    def last_seq(self) -> int:
        """The seq of the newest commit, on whichever branch; 0 in a new space."""
        with self._database.read:
            return self._database.last_seq()

    def last_request(self, session_id: str) -> tuple[int, int] | None:
        """The newest local_seq of a session that was accepted, and the seq that it got; None if it has none."""
        with self._database.read as connection:
            return commits.last_request(connection, session_id)

    def read(self, id: str, *, branch: str = FIRST, seq: int | None = None) -> DocumentState:
        """An entity now, or as it was at `seq`. Its document is None if it is not there.

        Raises `UnknownBranchError`, and `FutureSeqError` for a seq beyond the last commit.
        """
        check_id(id)
        check_branch_text(branch)
        database = self._database
        with database.read as connection:
            moment = database.moment(seq, "the read")
            view = database.view(database.line(branch), moment)
            found = replay.find(connection, view, id, current=seq is None)
        return DocumentState(id, found.document, moment, found.changed, branch)

    def read_many(self, ids: Iterable[str], *, branch: str = FIRST, seq: int | None = None) -> dict[str, DocumentState]:
        """Entities, all at the same moment, in the order in which they were asked for. Raises what `read` does."""
        wanted = dict.fromkeys(check_id(id) for id in ids)
        check_branch_text(branch)
        database = self._database
        with database.read as connection:
            moment = database.moment(seq, "the read")
            found = replay.find_in_chunks(connection, [database.view(database.line(branch), moment)], wanted)
            return {id: DocumentState(id, state.document, moment, state.changed, branch) for id, (state,) in found}

    @overload
    def history(
        self, id: str, /, *, branch: str = FIRST, since: int = 0, until: int | None = None
    ) -> Iterator[Revision]: ...

    @overload
    def history(self, table: str, key: str, *, ref: str | None = None) -> Iterator[RowVersion[int]]: ...

    def history(
        self, table: str, key: str | None = None, *, ref: str | None = None, branch: str = FIRST, since: int = 0,
        until: int | None = None,
    ) -> Iterator[Revision] | Iterator[RowVersion[int]]:  # fmt: skip
        """`history(id)` gives the operations on an entity that `branch` sees in `(since, until]`, oldest first.

        `history("documents", id)` gives all states of a document that a reference has in its history, newest first:
        those of branches that were merged as well. Raises what `read` does, and `NotFound` for another table.
        """
        if key is not None:
            self._check_table(table)
            return authorship.versions(self._database, check_id(key), self._commit(ref))
        check_id(table)
        check_branch_text(branch)
        return feed.of_entity(self._database, table, *self._range(since, until, branch))

    def blame(self, table: str, key: str, *, ref: str | None = None) -> dict[str, HistoryCommit[int]]:
        """For each field of a document, as a JSON pointer, the commit that wrote its value.

        Fields are all values that are no objects; an array is one field. Raises `NotFound` if it is not there.
        """
        self._check_table(table)
        return authorship.blame_document(self._database, check_id(key), self._commit(ref))

    def _check_table(self, table: str) -> None:
        if table != TABLE:
            raise UnknownTableError(table, [TABLE])

    def _commit(self, ref: str | None) -> int:
        return SpaceRefs(self._database).resolve(FIRST if ref is None else ref).commit

    def changes(
        self, since: int | str | Ref, until: int | str | Ref | None = None, *, branch: str = FIRST
    ) -> Iterator[Change[int]]:
        """What the commits in `(since, until]` did, oldest first, an entity at most once a commit.

        Raises `UnknownBranchError`, and `FutureSeqError` for a seq beyond the last commit.
        """
        return feed.changes(self._database, *self._range(since, until, branch))

    def watch(
        self, ids: Collection[str] | None = None, *, prefix: str | None = None, since: int | None = None,
        branch: str = FIRST, idle_timeout: float | None = None,
    ) -> Iterator[Change[int]]:  # fmt: skip
        """Changes after `since` (now, unless given) as they are committed, by any process; then waits for more.

        Of some ids, of all that start with `prefix`, or of everything. Ends when the space is closed, or when nothing
        has come for `idle_timeout` seconds. Raises what `changes` does.
        """
        wanted = watcher.wanted_by(ids, prefix)
        check_branch_text(branch)
        with self._database.read:
            start = self._database.moment(since, "since")
            line = self._database.line(branch)
        return watcher.watch(self._database, line, start, wanted, idle_timeout)

    def wait(self, since: int, timeout: float | None = None) -> int | None:
        """The newest seq as soon as it is after `since`, whichever process commits; `since` if nothing came for
        `timeout` seconds, None if the space is closed."""
        return watcher.wait(self._database, since, timeout)

    def wake(self) -> None:
        """Let those who wait for commits look at once: another handle of this process has made one."""
        self._database.announce()

    def _range(
        self, since: int | str | Ref | None, until: int | str | Ref | None, branch: str
    ) -> tuple[str, int, int]:  # fmt: skip
        """The line of `branch`, and both ends of a range of seqs that it is asked for."""
        check_branch_text(branch)
        with self._database.read:
            line = self._database.line(branch)
            begin, end = (SpaceRefs(self._database).resolve(one).commit if isinstance(one, str | Ref) else one
                          for one in (0 if since is None else since, until))
            return line, self._database.moment(begin, "since"), self._database.moment(end, "until")

    # blobs

    def put_blob(
        self, data: bytes, *, content_type: str | None = None, metadata: Document | None = None, branch: str = FIRST
    ) -> str:
        """Store bytes under the hash of their content, which is returned. Bytes that are there already are not touched.

        `metadata` becomes the document of the entity `blobs.meta_id(hash)`, on `branch`, in the same transaction.
        Raises `InvalidOperationError` for a blob that is too big, and for `metadata` what `transact` raises.
        """
        blob = blobs.sealed(data, content_type)
        if metadata is None:
            with self._database.write as connection:
                blobs.insert(connection, blob)
        else:
            described = prepare(*self.next_request(), [Set(blobs.meta_id(blob.hash), metadata)], branch=branch)
            self._writer.transact(described, beside=lambda connection: blobs.insert(connection, blob))
        return blob.hash

    def get_blob(self, hash: str) -> Blob:
        """The blob of this hash. Raises `NotFound`, and `Corruption` if it is not what was stored."""
        return blobs.get(self._database, hash)

    # what every versioned store offers

    def commits(
        self, *, since: int | str | Ref | None = None, until: int | str | Ref | None = None, branch: str = FIRST
    ) -> Iterator[Commit]:
        """The commits that a branch sees in `(since, until]`, newest first. Raises what `changes` does."""
        return commits.newest_first(self._database, *self._range(since, until, branch))

    def snapshot(self, commit: int | str | Ref | None = None, *, branch: str | None = None) -> SpaceMoment:
        """The documents of a branch as they are now or, with `branch`, as they were when a commit was made anywhere.

        A commit without a branch is found on whichever branch it is; text is a reference. Raises what `read` and `at`
        do.
        """
        if isinstance(commit, str | Ref):
            return self.at(on_branch(commit, branch))
        database = self._database
        if branch is not None:
            check_branch_text(branch)
        with database.read:
            moment = database.moment(commit, "the snapshot")
            if branch is None and commit:
                line = SpaceRefs(database).commits.line(moment)
            else:
                line = database.line(FIRST if branch is None else branch)
            return SpaceMoment(database, line, moment, database.name(line))

    def at(self, ref: Ref | str) -> SpaceMoment:
        """The documents at a reference: a branch, a tag, a seq or a time.

        Raises `Invalid` if it cannot be a reference, `UnknownBranchError`, `UnknownCommitError`.
        """
        refs = SpaceRefs(self._database)
        branch, commit = refs.resolve(ref)
        return SpaceMoment(self._database, refs.commits.line(commit), commit, branch)

    def diff(
        self, before: Snapshot[int] | int | str | Ref, after: Snapshot[int] | int | str | Ref
    ) -> Iterator[Change[int]]:  # fmt: skip
        """What turns one snapshot, reference or commit into another, by id, an entity at most once.

        Raises `UnrelatedError` for a snapshot of another space.
        """
        old, new = (as_snapshot(self, one) for one in (before, after))
        check_snapshots(old, new)
        return differences.changes(self._database, self._shown(new), self._shown(old), new.commit)

    def _shown(self, snapshot: Snapshot[int]) -> View:
        if not isinstance(snapshot, SpaceMoment):
            snapshot = self.snapshot(snapshot.commit, branch=snapshot.branch)
        elif not snapshot.is_of(self._database):
            raise UnrelatedError(snapshot.url, self.url)
        with self._database.read:
            return self._database.view(snapshot.line, snapshot.commit)

    # one history

    def merge(
        self, source: str, into: str = MAIN, *, strategy: Strategy = None, resolutions: Iterable[Resolution] = (),
        dry_run: bool = False, message: str | None = None, author: str | None = None,
    ) -> MergeResult[int]:  # fmt: skip
        """Bring the changes of a branch, tag or commit into a branch, as one commit with two parents.

        Documents merge by field: see `ontolake.history.trees`. Raises `MergeConflictError` for conflicts that neither
        the strategy nor resolutions settle, `Invalid` for a resolution of something else, `UnknownBranchError`,
        `UnknownCommitError`, `BranchError` for a branch and itself.
        """
        return self._merger.merge(source, into, MergeRequest.of(strategy, resolutions, dry_run, message, author))

    def revert(
        self, commit: str | int, *, branch: str = MAIN, strategy: Strategy = None,
        resolutions: Iterable[Resolution] = (), dry_run: bool = False, message: str | None = None,
        author: str | None = None,
    ) -> MergeResult[int]:  # fmt: skip
        """Undo what one commit did, as a new commit; of a merge, what it brought to its first parent.

        Raises `RevertError` for the first commit and for one that the branch does not have, and what `merge` raises.
        """
        return self._merger.revert(commit, branch, MergeRequest.of(strategy, resolutions, dry_run, message, author))

    def cherry_pick(
        self, commit: str | int, *, branch: str = MAIN, strategy: Strategy = None,
        resolutions: Iterable[Resolution] = (), dry_run: bool = False, message: str | None = None,
        author: str | None = None,
    ) -> MergeResult[int]:  # fmt: skip
        """Do on a branch what one commit did elsewhere, as a new commit. Raises `RevertError` for the first commit."""
        return self._merger.cherry_pick(commit, branch,
                                        MergeRequest.of(strategy, resolutions, dry_run, message, author))

    def restore(
        self, to: str | int, tables: Iterable[str] | None = None, *, branch: str = MAIN, dry_run: bool = False,
        message: str | None = None, author: str | None = None,
    ) -> MergeResult[int]:  # fmt: skip
        """Bring an earlier state back as a new commit; nothing of history is lost. Documents are all in one table."""
        if tables is not None and (isinstance(tables, str) or not isinstance(tables, Iterable)):
            raise Invalid(f"tables must be several names, not {tables!r}", hint=f"write [{TABLE!r}], or leave it out")
        for table in tables or ():
            self._check_table(table)
        return self._merger.restore(to, branch, MergeRequest.of(None, (), dry_run, message, author))

    def erase(self, table: str, key: str, reason: str, *, dry_run: bool = True, author: str | None = None) -> Garbage:
        """Remove a document for good: every revision and snapshot on every branch, its part in the payloads of commits,
        and blobs that no other document names. A dry run counts what would go.

        The commit that it makes on the first branch has the reason as its message. The file is written anew, and over
        the seam the past of its pages is given up. Raises `NotFound` if no commit has the document, `Invalid` without a
        reason, `Contended` if others read meanwhile, so that old bytes stay until they close.
        """
        self._check_table(table)
        request = ("", 0) if dry_run else self.next_request()
        erased = erasure.erase(self._database, check_id(key), request, reason=reason, dry_run=dry_run, author=author)
        if not dry_run:
            self._writer.forget()
        return erased

    # upkeep

    def verify(self) -> Iterator[Damage]:
        """Read everything and yield all that does not fit together."""
        return verification.verify(self._database)

    def gc(self, *, dry_run: bool = True) -> Garbage:
        """Remove, or count, the snapshots that the policy does not keep. Revisions and blobs stay for ever."""
        done = self.snapshots.compact(dry_run=dry_run)
        return Garbage(done.removed, done.bytes)
