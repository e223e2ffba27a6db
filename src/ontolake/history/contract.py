"""One vocabulary for data that keeps its history: commit, branch, change, snapshot, and who offers them.

Every kind of store means the same by these words, whatever it calls them inside: a commit is a `commit_id`, a
`seq`, a version or an LSN. What works on any store (`onto log`, `diff`, `export`, …) asks for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from ontolake.errors import Invalid

Id = TypeVar("Id", int, str)
"""What names a commit: a number that grows, or text. All commits of one store have ids of one type."""

Id_co = TypeVar("Id_co", int, str, covariant=True)

Key = Any
"""What names a row within its table: a value, or a tuple of values where a key has several parts."""

Row = Any
"""What stands under a key: a mapping from fields to values for typed data and documents, bytes for a page."""


class Commit(NamedTuple, Generic[Id]):
    """One atomic change of a store. What a layout does not keep is empty or None."""

    id: Id
    parents: tuple[Id, ...] = ()
    """The commits it was made on: none for the first one, two after a merge."""
    time: datetime | None = None
    """When it was made, with a time zone."""
    author: str | None = None
    metadata: Mapping[str, Any] = {}


class Branch(NamedTuple, Generic[Id]):
    """A line of history. `base` is where it left its `parent`; a store's first branch has neither."""

    name: str
    head: Id
    base: Id | None = None
    parent: str | None = None


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


class Ref(NamedTuple):
    """A moment in a store as a user writes it: `try`, `try@12`, or `@12` on the store's first branch.

    Without a branch the first one is meant, without a commit the branch's head. `commit` is the id as text,
    which the store reads. A branch whose name has an `@` in it is written with one more behind it.
    """

    branch: str | None = None
    commit: str | None = None

    @classmethod
    def parse(cls, text: str) -> Ref:
        """Read a reference. Raises `Invalid` if it names nothing."""
        branch, at, commit = text.rpartition("@")
        if not at:
            branch, commit = commit, ""
        if not branch and not commit:
            raise Invalid(f"{text!r} names neither a branch nor a commit",
                          hint="write BRANCH, BRANCH@COMMIT or @COMMIT")
        return cls(branch or None, commit or None)

    def __str__(self) -> str:
        branch, commit = self.branch or "", self.commit or ""
        return f"{branch}@{commit}" if commit or "@" in branch else branch


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
        """A branch of `parent` as it was `at` a commit, else at its head. Raises `AlreadyExists` if one of that name
        lives, `Invalid` for a name that cannot be one, `NotFound`."""
        ...

    def delete(self, name: str) -> None:
        """Give a branch up. Raises `NotFound`, or `Invalid` for one that must stay."""
        ...


@runtime_checkable
class Branched(Versioned[Id], Protocol[Id]):
    """A versioned store in which work can go on side by side."""

    @property
    def branches(self) -> Branches[Id]: ...


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
