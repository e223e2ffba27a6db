"""The words of history: commit, branch, tag, change, version of a row. They mean the same on every store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, NamedTuple

from ontolake.errors import Invalid
from ontolake.history.ids import Id, Key, Row


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
    """What became of a row, or of the table that it is in."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    SCHEMA = "schema"
    """The table itself was created, altered or dropped."""


class Change(NamedTuple, Generic[Id]):
    """What one commit did to one row: `before` is None for an insert, `after` for a delete.

    A change of kind `schema` has no key, and the definitions of the table as `before` and `after`, as a conflict of
    that kind has them: `before` is None for a table that was created, `after` for one that was dropped.
    """

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

    @classmethod
    def of_schema(cls, commit: Id, table: str, before: Row | None, after: Row | None) -> Change[Id]:
        """The change from one definition of a table to another. Raises `Invalid` if there is neither."""
        return cls.of(commit, table, None, before, after)._replace(kind=ChangeKind.SCHEMA)


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
        (Change.of_schema(change.commit, change.table, change.before, change.after)
         if change.kind is ChangeKind.SCHEMA
         else Change.of(change.commit, change.table, change.key, change.before, change.after))
        for change in folded.values()
        if change.before != change.after
    ]  # fmt: skip


class Damage(NamedTuple):
    """Something that is stored and should not be trusted."""

    where: str
    what: str


class Garbage(NamedTuple):
    """What nobody can reach any more."""

    items: int
    bytes: int
