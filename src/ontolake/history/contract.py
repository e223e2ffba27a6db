"""One vocabulary for data that keeps its history: commit, branch, change, snapshot, and who offers them.

Every kind of store means the same by these words, whatever it calls them inside: a commit is a `commit_id`, a
`seq`, a version or an LSN. What works on any store (`onto log`, `diff`, `export`, …) asks for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, runtime_checkable

from ontolake.errors import Invalid
from ontolake.history.ids import Id, Id_co, Key, Row
from ontolake.history.refs import Ref

if TYPE_CHECKING:
    from ontolake.history.conflicts import Resolution, Strategy
    from ontolake.history.results import MergeResult

class Commit(NamedTuple, Generic[Id]):
    """One atomic change of a store. What a layout does not keep is empty or None."""

    id: Id
    parents: tuple[Id, ...] = ()
    """The commits it was made on: none for the first one, two after a merge."""
    time: datetime | None = None
    """When it was made, with a time zone."""
    author: str | None = None
    metadata: Mapping[str, Any] = {}
    message: str | None = None


class Branch(NamedTuple, Generic[Id]):
    """A line of history. `base` is where it left its `parent`; a store's first branch has neither."""

    name: str
    head: Id
    base: Id | None = None
    parent: str | None = None
    protected: bool = False
    """Whether it changes by merges alone."""


class Tag(NamedTuple, Generic[Id]):
    """A name for a commit, which cleanup keeps. `branch` is where the commit was when it was tagged."""

    name: str
    commit: Id
    branch: str
    time: datetime | None = None
    message: str | None = None


class RowVersion(NamedTuple, Generic[Id]):
    """One state of a row: the commit that wrote it, and the row; None if the commit deleted it."""

    commit: Commit[Id]
    row: Row | None


class ChangeKind(StrEnum):
    """What became of a row."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


class Change(NamedTuple, Generic[Id]):
    """What one commit did to one row: `before` is None for an insert, `after` for a delete."""

    commit: Id
    table: str
    key: Key
    kind: ChangeKind
    before: Row | None
    after: Row | None

    @classmethod
    def of(cls, commit: Id, table: str, key: Key, before: Row | None, after: Row | None) -> Change[Id]:
        """The change from one state of a row to another. Raises `Invalid` if the row is in neither."""
        if before is None and after is None:
            raise Invalid(f"{table} {key!r} is neither before nor after commit {commit!r}: that is no change")
        kind = ChangeKind.INSERT if before is None else ChangeKind.DELETE if after is None else ChangeKind.UPDATE
        return Change(commit, table, key, kind, before, after)


def net(changes: Iterable[Change[Id]]) -> list[Change[Id]]:
    """What changes amount to together: at most one a row, in the order in which rows were first touched.

    Takes the changes of each row oldest first. A row that ends as it began is left out; otherwise it is told
    with the state before the first change, the state after the last one, and the last one's commit.
    """
    folded: dict[tuple[str, Key], Change[Id]] = {}
    for change in changes:
        where = (change.table, change.key)
        first = folded.get(where)
        folded[where] = change if first is None else change._replace(before=first.before)
    return [
        Change.of(change.commit, change.table, change.key, change.before, change.after)
        for change in folded.values()
        if change.before != change.after
    ]


class Snapshot(Protocol[Id_co]):
    """A store as it was at one commit of a branch. Stays the same for as long as it is held."""

    @property
    def commit(self) -> Id_co: ...

    @property
    def branch(self) -> str: ...

    def tables(self) -> Sequence[str]:
        """The names of what holds rows, sorted: `entity/Customer`, `documents`, `app.public.orders`, …"""
        ...

    def rows(self, table: str) -> Iterator[tuple[Key, Row]]:
        """Every row with its key, by key. Raises `NotFound` for a table that is not there."""
        ...


def check_snapshots(before: object, after: object) -> None:
    """Raise `Invalid` if one of two states to compare is not a snapshot."""
    for name, state in (("before", before), ("after", after)):
        if not all(hasattr(state, part) for part in ("commit", "branch", "tables", "rows")):
            raise Invalid(f"{name} must be a snapshot, not {state!r}", hint="pass what snapshot() returns")


@runtime_checkable
class Versioned(Protocol[Id]):
    """A store whose past can be read. Where `branch` is left out, the store's first branch is meant.

    Ranges of commits leave out where they start and take in where they end: `(since, until]`. An unknown branch
    or commit, or one that is no longer kept, is `NotFound`.
    """

    def commits(self, *, since: Id | None = None, until: Id | None = None, branch: str = ...) -> Iterator[Commit[Id]]:
        """The commits that a branch sees, newest first."""
        ...

    def changes(self, since: Id, until: Id | None = None, *, branch: str = ...) -> Iterator[Change[Id]]:
        """What each commit did, oldest first, a row at most once a commit. To follow a store, go on from the last."""
        ...

    def snapshot(self, commit: Id | None = None, *, branch: str = ...) -> Snapshot[Id]:
        """The store as it was at a commit, or at the head of a branch."""
        ...

    def at(self, ref: Ref) -> Snapshot[Id]:
        """`snapshot` for what a user wrote. Raises `Invalid` if the commit cannot be the id of one."""
        ...

    def diff(self, before: Snapshot[Id], after: Snapshot[Id]) -> Iterator[Change[Id]]:
        """What turns one snapshot into another, on whichever branches they are; a row at most once."""
        ...


class Branches(Protocol[Id]):
    """The branches of a store."""

    def list(self) -> Sequence[Branch[Id]]:
        """All that live, the first one first."""
        ...

    def create(self, name: str, *, at: Id | None = None, parent: str = ...) -> Branch[Id]:
        """A branch of `parent` as it was `at` a commit, else at its head. Raises `BranchExistsError` if a branch or a
        tag has that name, `Invalid` for a name that cannot be one, `NotFound`."""
        ...

    def delete(self, name: str) -> None:
        """Give a branch up. Raises `UnknownBranchError`, `BranchError` for one that must stay, such as the first one,
        `ProtectedBranchError`."""
        ...

    def rename(self, name: str, new: str) -> Branch[Id]:
        """Give a branch another name; its history stays. Raises what `create` and `delete` raise."""
        ...

    def protect(self, name: str, protected: bool = True) -> Branch[Id]:
        """Let a branch change by merges alone, or end that. Raises `UnknownBranchError`."""
        ...


class Tags(Protocol[Id]):
    """Names for commits. A tagged commit is kept by every cleanup."""

    def list(self) -> Sequence[Tag[Id]]:
        """All tags, by name."""
        ...

    def create(self, name: str, ref: str | Id | None = None, *, message: str | None = None) -> Tag[Id]:
        """Name a commit: that of a reference, else the head of the first branch. Raises `TagExistsError` if a tag or a
        branch has that name, `TagError` for a name that cannot be one, `UnknownBranchError`, `UnknownCommitError`."""
        ...

    def delete(self, name: str) -> None:
        """Take a name away; the commit stays. Raises `UnknownTagError`."""
        ...


@runtime_checkable
class Branched(Versioned[Id], Protocol[Id]):
    """A versioned store in which work goes on side by side."""

    @property
    def branches(self) -> Branches[Id]: ...


@runtime_checkable
class VersionControlled(Branched[Id], Protocol[Id]):
    """A store with all that people know of git: branches, tags, merges, and ways back.

    References are text as `Ref.parse` reads it. Whatever makes a commit takes `message` and `author`. Merges, reverts
    and cherry-picks are three-way: conflicts raise `MergeConflictError` and change nothing, unless a strategy or
    resolutions settle all of them; a dry run returns them. A resolution for what is not in conflict is `Invalid`.
    """

    @property
    def tags(self) -> Tags[Id]: ...

    def merge(
        self, source: str, into: str = ..., *, strategy: Strategy = None, resolutions: Iterable[Resolution] = (),
        dry_run: bool = False, message: str | None = None, author: str | None = None,
    ) -> MergeResult[Id]:  # fmt: skip
        """Bring the changes of a branch, tag or commit into a branch, as one commit with two parents, which is made
        even if it changes no row. Raises `BranchError` for a branch and itself, `UnrelatedError`."""
        ...

    def revert(
        self, commit: str | Id, *, branch: str = ..., strategy: Strategy = None, resolutions: Iterable[Resolution] = (),
        dry_run: bool = False, message: str | None = None, author: str | None = None,
    ) -> MergeResult[Id]:  # fmt: skip
        """Undo what one commit did, as a new commit; of a merge, what it brought to its first parent. Raises
        `RevertError` for the first commit and for one that the branch does not have."""
        ...

    def cherry_pick(
        self, commit: str | Id, *, branch: str = ..., strategy: Strategy = None,
        resolutions: Iterable[Resolution] = (), dry_run: bool = False, message: str | None = None,
        author: str | None = None,
    ) -> MergeResult[Id]:  # fmt: skip
        """Do on a branch what one commit did elsewhere, as a new commit. Raises `RevertError` for the first commit."""
        ...

    def restore(
        self, to: str | Id, *, branch: str = ..., tables: Iterable[str] | None = None, dry_run: bool = False,
        message: str | None = None, author: str | None = None,
    ) -> MergeResult[Id]:  # fmt: skip
        """Bring an earlier state back, of all tables or some, as a new commit; nothing of history is lost."""
        ...

    def history(self, table: str, key: Key, *, ref: str | None = None) -> Iterator[RowVersion[Id]]:
        """All states of a row that a reference has in its history, newest first."""
        ...

    def blame(self, table: str, key: Key, *, ref: str | None = None) -> dict[str, Commit[Id]]:
        """For each field of a row the commit that wrote its value. Raises `NotFound` if the row is not there."""
        ...

    def erase(self, table: str, key: Key, *, reason: str, dry_run: bool = True, author: str | None = None) -> Garbage:
        """Remove every stored version of a row, from every commit, branch and file, and what indexes keep of it.

        Leaves an audit entry with the reason and without the key. A dry run counts what would go.
        """
        ...


class Damage(NamedTuple):
    """Something that is stored and should not be trusted."""

    where: str
    what: str


class Garbage(NamedTuple):
    """What nobody can reach any more."""

    items: int
    bytes: int


@runtime_checkable
class Maintained(Protocol):
    """A store that can be checked and cleaned up."""

    def verify(self) -> Iterator[Damage]:
        """Read everything that can be read, and yield all damage that is found."""
        ...

    def gc(self, *, dry_run: bool = True) -> Garbage:
        """Find, and unless it is a dry run remove, what no commit that is kept needs."""
        ...
