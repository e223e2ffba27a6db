"""The words of history as the OpenAPI document describes them: the shape of answers in plain JSON."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

CommitId = int | str
"""A number where commits are numbered, else text."""


class CommitOut(msgspec.Struct):
    """One atomic change of a store."""

    id: CommitId
    parents: list[CommitId]
    time: str | None
    author: str | None
    metadata: dict[str, Any]
    message: str | None


class BranchOut(msgspec.Struct):
    """A line of history."""

    name: str
    head: CommitId
    base: CommitId | None
    parent: str | None
    protected: bool


class TagOut(msgspec.Struct):
    """A name for a commit."""

    name: str
    commit: CommitId
    branch: str
    time: str | None
    message: str | None


class ChangeOut(msgspec.Struct):
    """What became of one row, or of a table: then `kind` is `schema`, and there is no key."""

    commit: CommitId
    table: str
    key: Any
    kind: Literal["insert", "update", "delete", "schema"]
    before: Any
    after: Any


class ConflictOut(msgspec.Struct):
    """Something that both sides of a merge decided differently."""

    table: str
    key: Any
    kind: str
    field: str | None
    base: Any
    ours: Any
    theirs: Any
    detail: str
    rows: list[Any]


class CountsOut(msgspec.Struct):
    """How many rows of a table were changed."""

    inserted: int
    updated: int
    deleted: int


class MergeOut(msgspec.Struct):
    """What a merge, revert, cherry-pick or restore did, or in a dry run would do."""

    status: Literal["up_to_date", "fast_forward", "merged", "conflicts"]
    source: str
    into: str
    commit: CommitOut | None
    tables: dict[str, CountsOut]
    conflicts: list[ConflictOut]
    base: CommitId | None


class RowVersionOut(msgspec.Struct):
    """One state of a row; None if the commit deleted it."""

    commit: CommitOut
    row: Any


class GarbageOut(msgspec.Struct):
    """How much was removed, or would be."""

    items: int
    bytes: int


class DamageOut(msgspec.Struct):
    """Something that is stored and should not be trusted."""

    where: str
    what: str


class CommitPage(msgspec.Struct):
    """Commits, newest first. `cursor` is None on the last page."""

    commits: list[CommitOut]
    cursor: str | None


class ChangePage(msgspec.Struct):
    """Changes in order. `cursor` is None on the last page."""

    changes: list[ChangeOut]
    cursor: str | None


class BranchList(msgspec.Struct):
    """All branches, the first one first."""

    branches: list[BranchOut]


class TagList(msgspec.Struct):
    """All tags, by name."""

    tags: list[TagOut]


class RowVersions(msgspec.Struct):
    """All states of a row, newest first."""

    versions: list[RowVersionOut]


class Blame(msgspec.Struct):
    """For each field of a row the commit that wrote its value."""

    fields: dict[str, CommitOut]
