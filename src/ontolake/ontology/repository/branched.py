"""What a typed store with branches offers beyond `Repository`, whichever backend it has: `ontology.history` uses only
this.

A branch sees its own commits, and those of its parent up to the commit at which it began: the first parents of its
head. Ids of commits grow along that line. Rows are encoded tuples, keys first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from ontolake.history import Garbage
from ontolake.model.columns import Column
from ontolake.model.types import Kind, TypeInfo
from ontolake.ontology.repository.protocol import Repository, RepositoryTransaction, Row

T = TypeVar("T")


class BranchRow(NamedTuple):
    """A branch as it is stored."""

    id: int
    name: str
    parent_id: int | None
    base_commit_id: int
    head_commit_id: int
    protected: bool
    is_deleted: bool
    is_collected: bool


class TagRow(NamedTuple):
    """A tag as it is stored."""

    name: str
    commit_id: int
    message: str | None
    created_at: datetime


class KeyState(NamedTuple):
    """What a commit wrote for a key: a row of keys and columns, or None if it deleted it."""

    commit: int
    row: Row | None


class Names(Protocol):
    """Changes to the names of branches and tags, all of which become durable together. Rules are the caller's."""

    def add_branch(self, name: str, parent_id: int, base: int) -> BranchRow:
        """A new branch that begins at the commit `base`."""
        ...

    def change_branch(
        self, id: int, *, name: str | None = None, protected: bool | None = None, deleted: bool = False
    ) -> None:  # fmt: skip
        """Give a branch another name, protect it or end that, or delete it."""
        ...

    def add_tag(self, name: str, commit: int, message: str | None) -> TagRow:
        """A new tag."""
        ...

    def drop_tag(self, name: str) -> bool:
        """Remove a tag, and return whether it was there."""
        ...


class StateReader(Protocol):
    """Reads rows of one version of a type, by key and commit. `info` is a class of that version.

    Each costs what the keys or commits that it names have, never what is stored.
    """

    def touched(self, info: TypeInfo, version: int, commits: Collection[int]) -> list[Row]:
        """The keys that some commits wrote or deleted, sorted."""
        ...

    def rows(self, info: TypeInfo, version: int, keys: Sequence[Row], commit: int) -> list[Row]:
        """The rows of these keys at a commit, in any order; none for a key that was not there."""
        ...

    def written(self, info: TypeInfo, version: int, key: Row, commit: int) -> list[KeyState]:
        """What was written for a key along the first parents of a commit, that commit included, in any order."""
        ...

    def live_relations(self, info: TypeInfo, version: int, side: str, keys: Collection[Row], commit: int) -> list[Row]:
        """The keys of relations whose `side`, left or right, is one of some entities at a commit."""
        ...


class UniqueReader(Protocol):
    """What a store that keeps unique fields can tell beyond `StateReader`."""

    def holders(
        self, info: TypeInfo, version: int, column: Column, values: Iterable[Any], commit: int
    ) -> list[tuple[Row, Any]]:  # fmt: skip
        """The keys of rows that have one of these values in a column at a commit, each with the value."""
        ...


class KeyErasure(Protocol):
    """The erasure of the row of a key, on all branches."""

    def count(self) -> Garbage:
        """How many rows would go. Raises what `erase` raises."""
        ...

    def erase(self, reason: str, author: str | None) -> Garbage:
        """Remove every stored version of the row, and note it.

        Raises `UnknownKeyError` if no commit has the row, `LiveRelationsError` if relations lead or led to it and do
        not go with it, `Invalid` if an event that waits to be handled names it, and `Contended` if others read on and
        bytes of it are left.
        """
        ...


class ErasureRecord(NamedTuple):
    """The audit entry of an erasure: what is left of a row."""

    erased_at: str
    author: str | None
    reason: str
    type_kind: Kind
    type_name: str
    rows: int
    salt: str
    key_hash: str


class BranchedTransaction(RepositoryTransaction, Protocol):
    """A commit in the making on a branch."""

    merged: int | None
    """The second parent, if it is a merge; None at first."""


class BranchedRepository(Repository, Protocol):
    """A typed store with branches, read and written on one of them."""

    branch_id: int
    """The branch that is read and written; 0 is the first one."""

    # names
    def branch_rows(self) -> list[BranchRow]:
        """The branches that live, in the order in which they were made."""
        ...

    def branch_named(self, name: str) -> BranchRow | None:
        """A branch that lives."""
        ...

    def branch_row(self, id: int) -> BranchRow:
        """A branch, whether it lives or not."""
        ...

    def tag_rows(self) -> list[TagRow]:
        """All tags, by name."""
        ...

    def tag_named(self, name: str) -> TagRow | None: ...

    def change_names(self, change: Callable[[Names], T]) -> T:
        """Change names by a function, and return what it returns; nothing is changed if it raises.

        What the function reads of this repository is of the moment that it changes, without its own changes. It may be
        called again if another writer was faster, so it must do nothing else. Raises `StorageBackendError` if the store
        is closed or open for reading only, `LockContentionError`.
        """
        ...

    # lines of commits
    def on(self, branch_id: int) -> BranchedRepository:
        """The same store on another branch, which may be a deleted one."""
        ...

    def on_branch(self, name: str) -> BranchedRepository: ...

    def holding(self, commit: int) -> BranchedRepository: ...

    def branch_of(self, commit: int) -> int:
        """The branch on which a commit was made. Raises `UnknownCommitError`."""
        ...

    def in_line(self, branch_id: int, commit: int) -> bool:
        """Whether a branch sees a commit. Raises `UnknownCommitError`."""
        ...

    def parents(self, commit: int) -> Sequence[int]:
        """The parents of a commit, that of its branch first; none of the first commit."""
        ...

    def commit_before(self, time: datetime, branch_id: int) -> int | None:
        """The newest commit that a branch sees and that is not younger than `time`."""
        ...

    # rows
    @property
    def states(self) -> StateReader:
        """Rows by key and commit."""
        ...

    def erasure(self, kind: Kind, name: str, key: Row, *, cascade: bool) -> KeyErasure:
        """The erasure of a row, which has done nothing yet. With `cascade` its relations go with it."""
        ...

    def erasures(self) -> list[ErasureRecord]:
        """The audit entries of all erasures, oldest first."""
        ...

    def note_erasures(self, records: Sequence[ErasureRecord]) -> None:
        """Add audit entries of erasures that were done elsewhere, as in the store that this is a copy of."""
        ...

    def transaction(self, owner: str) -> AbstractContextManager[BranchedTransaction]: ...


def reached(starts: Iterable[int], leads: Mapping[int, Collection[int]]) -> set[int]:
    """The branches that are kept: some of them, and all that these lead to, by their beginnings and their merges."""
    kept: set[int] = set()
    waiting = list(starts)
    while waiting:
        branch = waiting.pop()
        if branch not in kept:
            kept.add(branch)
            waiting += leads.get(branch, ())
    return kept
