"""The contract of stores that keep their history: what each offers, in the words of `ontolake.history.words`.

Every kind of store means the same by these words, whatever it calls them inside: a commit is a `commit_id`, a
`seq`, a version or an LSN. What works on any store (`onto log`, `diff`, `export`, …) asks for nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from ontolake.errors import Invalid
from ontolake.history.conflicts import Resolution, Strategy
from ontolake.history.ids import Id, Id_co, Key, Row
from ontolake.history.refs import Ref
from ontolake.history.results import MergeResult
from ontolake.history.words import Branch, Change, Commit, Damage, Garbage, RowVersion, Tag


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


def as_snapshot(store: Versioned[Any], state: Any) -> Any:
    """A state that a caller names by a reference or a commit as a snapshot; anything else as it is."""
    if isinstance(state, str | Ref):
        return store.at(state)
    return store.snapshot(state) if isinstance(state, int) and not isinstance(state, bool) else state


def check_snapshots(before: object, after: object) -> None:
    """Raise `Invalid` if one of two states to compare is not a snapshot."""
    for name, state in (("before", before), ("after", after)):
        if not all(hasattr(state, part) for part in ("commit", "branch", "tables", "rows")):
            raise Invalid(f"{name} must be a snapshot, not {state!r}", hint="pass what snapshot() returns")


@runtime_checkable
class Versioned(Protocol[Id]):
    """A store whose past can be read. Where `branch` is left out, the store's first branch is meant.

    Wherever a commit is named, a reference can stand as well, as text that `Ref.parse` reads or as a `Ref`.

    Ranges of commits leave out where they start and take in where they end: `(since, until]`. An unknown branch
    or commit, or one that is no longer kept, is `NotFound`.
    """

    def commits(
        self, *, since: Id | str | Ref | None = None, until: Id | str | Ref | None = None, branch: str = ...
    ) -> Iterator[Commit[Id]]:  # fmt: skip
        """The commits that a branch sees, newest first."""
        ...

    def changes(
        self, since: Id | str | Ref, until: Id | str | Ref | None = None, *, branch: str = ...
    ) -> Iterator[Change[Id]]:  # fmt: skip
        """What each commit did, oldest first, a row at most once a commit. To follow a store, go on from the last."""
        ...

    def snapshot(self, commit: Id | str | Ref | None = None, *, branch: str = ...) -> Snapshot[Id]:
        """The store as it was at a commit, or at the head of a branch."""
        ...

    def at(self, ref: Ref | str) -> Snapshot[Id]:
        """`snapshot` for what a user wrote. Raises `Invalid` if the commit cannot be the id of one."""
        ...

    def diff(self, before: Snapshot[Id] | Id | str | Ref, after: Snapshot[Id] | Id | str | Ref) -> Iterator[Change[Id]]:
        """What turns one snapshot into another, on whichever branches they are; a row at most once."""
        ...


class Branches(Protocol[Id]):
    """The branches of a store."""

    def list(self) -> Sequence[Branch[Id]]:
        """All that live, the first one first."""
        ...

    def create(self, name: str, *, at: Id | str | Ref | None = None, parent: str | None = None) -> Branch[Id]:
        """A branch of `parent`, by default the first branch, as it was `at` a commit, else at its head. A reference
        names the branch itself: `create("try", at="old~2")`. Raises `BranchExistsError` if a branch or a tag has that
        name, `Invalid` for a name that cannot be one, `NotFound`."""
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
        self, to: str | Id, tables: Iterable[str] | None = None, *, branch: str = ..., dry_run: bool = False,
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

    def erase(self, table: str, key: Key, reason: str, *, dry_run: bool = True, author: str | None = None) -> Garbage:
        """Remove every stored version of a row, from every commit, branch and file, and what indexes keep of it.

        Leaves an audit entry with the reason and without the key. A dry run counts what would go.
        """
        ...


@runtime_checkable
class Maintained(Protocol):
    """A store that can be checked and cleaned up."""

    def verify(self) -> Iterator[Damage]:
        """Read everything that can be read, and yield all damage that is found."""
        ...

    def gc(self, *, dry_run: bool = True) -> Garbage:
        """Find, and unless it is a dry run remove, what no commit that is kept needs."""
        ...
