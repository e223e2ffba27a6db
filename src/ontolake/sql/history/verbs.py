"""What every versioned store offers, on SQL tables: the past, branches, tags, merges, and ways back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from ontolake.errors import Invalid
from ontolake.history import (
    Change,
    Commit,
    Garbage,
    MergeResult,
    Point,
    Ref,
    Resolution,
    RowVersion,
    Snapshot,
    Strategy,
    UnknownCommitError,
    check_snapshots,
    operations,
)
from ontolake.history.contract import as_snapshot
from ontolake.history.errors import ProtectedBranchError
from ontolake.history.names import MAIN
from ontolake.history.operations import MergeRequest
from ontolake.history.refs import on_branch, parsed
from ontolake.sql.errors import TransactionError
from ontolake.sql.history import commits, differences, erasures
from ontolake.sql.history.branches import SqlBranches
from ontolake.sql.history.file_branches import FileBranches
from ontolake.sql.history.lines import TAG, BranchKeeper, BranchLines, Node
from ontolake.sql.history.merges import SqlMergeable
from ontolake.sql.history.page_branches import PageBranches
from ontolake.sql.history.references import References
from ontolake.sql.history.row_history import RowHistory
from ontolake.sql.history.snapshots import SqlSnapshot
from ontolake.sql.history.table_names import full_name, full_resolutions, full_strategy
from ontolake.sql.history.tags import SqlTags
from ontolake.sql.sessions import Sessions
from ontolake.sql.transactions import SqlSession


class VersionedTables:
    """The history of a database that is open on a branch: a `history.VersionControlled`.

    Where no branch is named, the one that the database was opened on is meant.
    """

    def __init__(self, url: str, branch: str, sessions: Sessions) -> None:
        self.url = url
        self.branch = branch
        self._sessions = sessions
        self._bases: dict[int, int] = {}
        self._keeper: BranchKeeper = PageBranches(url)
        if sessions.first.is_native:
            self._keeper = FileBranches(url, lambda: self._session, lambda: self._first(True))
        self.tags = SqlTags(self._keeper, self._first, self._resolved, self._check_writable)
        self.branches = SqlBranches(self._keeper, self._is_tagged, self._protect, self._check_writable,
                                    self._resolved)

    @property
    def _session(self) -> SqlSession:
        """The session that this thread uses."""
        return self._sessions.current

    def is_current(self) -> bool:
        """Whether the branch that it was opened on still has its name."""
        line = self._session.line
        return self.branch == MAIN or any(ref.id == line and ref.name == self.branch for ref in self._keeper.refs())

    # reading

    def commits(
        self, *, since: int | str | Ref | None = None, until: int | str | Ref | None = None, branch: str | None = None
    ) -> Iterator[Commit[int]]:  # fmt: skip
        """The commits in `(since, until]`, newest first. Raises `NotFound` for what is no longer kept."""
        with self._on(branch) as session:
            yield from commits.newest_first(session, self._version_on(session, since), self._version_on(session, until))

    def changes(
        self, since: int | str | Ref, until: int | str | Ref | None = None, *, branch: str | None = None
    ) -> Iterator[Change[int]]:  # fmt: skip
        """What the commits in `(since, until]` did to tables and rows, oldest first, each at most once a commit."""
        with self._on(branch) as session:
            start, end = self._version_on(session, since), self._version_on(session, until)
            assert start is not None
            for version in commits.versions(session, start, end):
                yield from commits.changes(session, version)

    def _version_on(self, session: SqlSession, ref: int | str | Ref | None) -> int | None:
        """The version of a reference on the branch of a session. Raises `UnknownCommitError` if it has it not."""
        if not isinstance(ref, str | Ref):
            return ref
        with self._references() as references:
            node = references.resolve(ref).commit
            if not references.lines.has(session.line, node):
                raise UnknownCommitError(str(ref), session.branch, reason="it is on another branch")
        return node[1]

    def snapshot(self, commit: int | str | Ref | None = None, *, branch: str | None = None) -> SqlSnapshot:
        """All tables as they were at a commit, or are now; text is a reference. Raises `NotFound`, `Invalid`."""
        if isinstance(commit, str | Ref):
            return self.at(on_branch(commit, branch))
        with self._on(branch) as session, session.reading():
            found = session.state()[0] if commit is None else session.check_version(commit)
        return SqlSnapshot(self._on, self.url, branch or self.branch, found)

    def at(self, ref: Ref | str) -> SqlSnapshot:
        """`snapshot` for what a user wrote: a branch, a tag, a commit, a time, some commits before.

        Raises `Invalid`, `UnknownBranchError`, `UnknownCommitError`.
        """
        ref = Ref.parse(ref) if isinstance(ref, str) else ref
        with self._references() as references:
            point = references.resolve(ref)
            reader = references.lines.reader(point.commit)
            is_tag = ref.commit is None and ref.branch is not None and references.lines.find(ref.branch) is None
            where = f"{TAG}{ref.branch}" if is_tag and not ref.back and self._session.line != reader.line \
                else reader.branch
        return SqlSnapshot(self._on, self.url, point.branch, point.commit[1], where)

    def diff(
        self, before: Snapshot[int] | int | str | Ref, after: Snapshot[int] | int | str | Ref
    ) -> Iterator[Change[int]]:  # fmt: skip
        """What turns one snapshot into another, by table and key. Reads what was written in between, if that is kept.

        References and commits stand for their snapshots. Raises `NotFound` for a version that is no longer kept.
        """
        first, last = (as_snapshot(self, each) for each in (before, after))
        if isinstance(first, SqlSnapshot) and isinstance(last, SqlSnapshot) and first.url == last.url == self.url:
            base = min(first.commit, last.commit)
            if first.where != last.where:
                with self._lines() as lines:
                    base = lines.common(first.where, first.commit, last.where, last.commit)
            return differences.differences(self._on, base, first, last)
        check_snapshots(first, last)
        return differences.compared(first, last)

    def history(self, table: str, key: Any, *, ref: str | None = None) -> Iterator[RowVersion[int]]:
        """All states of a row that a reference has in its history, newest first. Raises `NotFound`, `Invalid`."""
        with self._references() as references:
            point = references.resolve(self.branch if ref is None else ref)
            yield from RowHistory(references.lines, point.commit, table, key).states()

    def blame(self, table: str, key: Any, *, ref: str | None = None) -> dict[str, Commit[int]]:
        """For each column of a row the commit that wrote its value. Raises `NotFound`, `Invalid`."""
        with self._references() as references:
            point = references.resolve(self.branch if ref is None else ref)
            return RowHistory(references.lines, point.commit, table, key).blame()

    # merging

    def merge(
        self, source: str, into: str | None = None, *, strategy: Strategy = None,
        resolutions: Iterable[Resolution] = (), dry_run: bool = False, message: str | None = None,
        author: str | None = None,
    ) -> MergeResult[int]:  # fmt: skip
        """Bring the changes of a branch, tag or commit into a branch, by row and column. See `history.contract`.

        All rules are checked on the result; definitions merge where they do not collide.
        """
        target = self.branch if into is None else into
        named = _ref(source, target)
        request = self._request((target, named), strategy, resolutions, dry_run, message, author)
        return self._run(target, lambda opened: operations.merge(opened, named, target, request))

    def revert(
        self, commit: str | int, *, branch: str | None = None, strategy: Strategy = None,
        resolutions: Iterable[Resolution] = (), dry_run: bool = False, message: str | None = None,
        author: str | None = None,
    ) -> MergeResult[int]:  # fmt: skip
        """Undo what one commit did, as a new commit. See `history.contract`."""
        target = self._unprotected(branch, dry_run)
        request = self._request((target, _ref(commit, target)), strategy, resolutions, dry_run, message, author)
        return self._run(target, lambda opened: operations.revert(opened, _ref(commit, target), target, request))

    def cherry_pick(
        self, commit: str | int, *, branch: str | None = None, strategy: Strategy = None,
        resolutions: Iterable[Resolution] = (), dry_run: bool = False, message: str | None = None,
        author: str | None = None,
    ) -> MergeResult[int]:  # fmt: skip
        """Do on a branch what one commit did elsewhere, as a new commit. See `history.contract`."""
        target = self._unprotected(branch, dry_run)
        request = self._request((target, _ref(commit, target)), strategy, resolutions, dry_run, message, author)
        return self._run(target, lambda opened: operations.cherry_pick(opened, _ref(commit, target), target, request))

    def restore(
        self, to: str | int, tables: Iterable[str] | None = None, *, branch: str | None = None, dry_run: bool = False,
        message: str | None = None, author: str | None = None,
    ) -> MergeResult[int]:  # fmt: skip
        """Bring an earlier state back, of all tables or some, as a new commit. See `history.contract`."""
        target = self._unprotected(branch, dry_run)
        request = MergeRequest.of(None, (), dry_run, message, author)
        some = None if tables is None else self._full_names(tables, (target, _ref(to, target)))
        return self._run(target, lambda opened: operations.restore(opened, _ref(to, target), target, some, request))

    def erase(
        self, table: str, key: Any, reason: str, *, dry_run: bool = True, author: str | None = None
    ) -> Garbage:  # fmt: skip
        """Remove a row from every commit, branch and tag, with its index entries, from what commits say of
        themselves, and from the bytes that are stored. Returns how much was found. Cannot be undone.

        All other rows stay readable at every version. Over the seam no branch or tag can begin at an earlier version
        afterwards. Every branch and tag is written anew, so it takes the time and the room of that. Raises `NotFound`
        for a table or row that was never there, `Invalid` without a reason or if that names the row, `Contended` if
        bytes could not be removed because others read: erase the row again then.
        """
        self._session.check_open()
        if not dry_run:
            self._check_writable()
        if self._session.transaction is not None:
            raise TransactionError("this cannot be done within a transaction", sqlstate="25001", hint="COMMIT it first")
        with self._lines() as lines:
            return erasures.erase(lines, self._writer, table, key, reason=reason, dry_run=dry_run, author=author)

    def _request(
        self, refs: tuple[str, str], strategy: Strategy, resolutions: Iterable[Resolution], dry_run: bool,
        message: str | None, author: str | None,
    ) -> MergeRequest:  # fmt: skip
        """What a caller wants of a merge, with tables under their full names. Raises `Invalid`, `NotFound`."""
        request = MergeRequest.of(strategy, resolutions, dry_run, message, author)
        if not request.resolutions and not isinstance(strategy, Mapping):
            return request
        known = self._tables(refs)
        return MergeRequest.of(full_strategy(strategy, known), full_resolutions(request.resolutions, known), dry_run,
                               message, author)

    def _full_names(self, tables: Iterable[str], refs: tuple[str, str]) -> list[str]:
        if isinstance(tables, str) or not isinstance(tables, Iterable):
            raise Invalid(f"tables must be several names, not {tables!r}", hint="write [name]")
        known = self._tables(refs)
        return [full_name(table, known) for table in tables]

    def _tables(self, refs: tuple[str, str]) -> set[str]:
        """The full names of all tables at some references."""
        return {table for ref in refs for table in self.at(ref).tables()}

    def _run(
        self, target: str, operation: Callable[[Callable[[], SqlMergeable]], MergeResult[Node]]
    ) -> MergeResult[int]:  # fmt: skip
        """Run an operation over nodes, and tell its result by versions."""
        if self._session.transaction is not None:
            raise TransactionError("this cannot be done within a transaction", sqlstate="25001", hint="COMMIT it first")
        held: list[BranchLines] = []

        def opened() -> SqlMergeable:
            held.append(self._lines())
            return SqlMergeable(References(held[-1], self.branch, self.tags.stored), target, self._writer)

        try:
            found = operation(opened)
        finally:
            for lines in held:
                lines.close()
        commit: Commit[int] | None = None
        if found.commit is not None:
            id, parents, *_ = made = found.commit
            commit = Commit(id[1], tuple(parent[1] for parent in parents), made.time, made.author, made.metadata,
                            made.message)  # fmt: skip
        return MergeResult(found.status, found.source, found.into, commit, found.tables, found.conflicts,
                           None if found.base is None else found.base[1])

    def _unprotected(self, branch: str | None, dry_run: bool) -> str:
        """The branch that is meant. Raises `ProtectedBranchError` unless it is a dry run, `UnknownBranchError`."""
        name = self.branch if branch is None else branch
        with self._references() as references:
            session = references.lines.on(references.line(name))
            with session.reading():
                if not dry_run and session.is_protected():
                    raise ProtectedBranchError(name)
        return name

    # sessions

    @contextmanager
    def _on(self, branch: str | None) -> Iterator[SqlSession]:
        """A session on a branch, also an internal one: this one, or a read-only one of its own."""
        if branch is None or branch == self.branch:
            yield self._session
            return
        other = SqlSession(self.url, branch=branch, readonly=True, takeover=False, synchronous="FULL")
        try:
            yield other
        finally:
            other.close()

    @contextmanager
    def _writer(self, branch: str) -> Iterator[SqlSession]:
        """A session on a branch that can be written to."""
        self._check_writable()
        if branch == self.branch:
            yield self._session
            return
        other = SqlSession(self.url, branch=branch, readonly=False, takeover=False, synchronous="FULL")
        try:
            yield other
        finally:
            other.close()

    def _check_writable(self) -> None:
        """Raise `TransactionError` on a handle that only reads, `Invalid` on one that is closed."""
        self._session.check_open()
        if self._session.readonly:
            raise TransactionError(f"{self.url} was opened to be read only", sqlstate="25006",
                                   hint="open it without readonly=True")

    def _lines(self) -> BranchLines:
        self._session.check_open()
        return BranchLines(self._session, self._on, self._keeper, self._bases)

    @contextmanager
    def _references(self) -> Iterator[References]:
        with self._lines() as lines:
            yield References(lines, self.branch, self.tags.stored)

    @contextmanager
    def _resolved(self, ref: str | int | Ref | None) -> Iterator[tuple[BranchLines, Point[Node]]]:
        with self._references() as references:
            yield references.lines, references.resolve(self.branch if ref is None else ref, self.branch)

    @contextmanager
    def _first(self, write: bool) -> Iterator[SqlSession]:
        """A session on the first branch, where tags are kept."""
        with self._writer(MAIN) if write else self._on(MAIN) as session:
            yield session

    def _is_tagged(self, name: str) -> bool:
        return any(each.name == name for each in self.tags.list())

    def _protect(self, branch: str, protected: bool | None) -> bool:
        if protected is not None:
            with self._writer(branch) as session:
                session.protect(protected)
            return protected
        with self._on(branch) as session, session.reading():
            return session.is_protected()


def _ref(commit: str | int | Ref, branch: str) -> str:
    """A reference as text; a number is a commit of the branch."""
    if type(commit) is int:
        return f"{branch}@{commit}"
    found = parsed(cast("str | Ref", commit))
    return str(found if found.branch else found._replace(branch=branch)) if isinstance(commit, Ref) else str(commit)
