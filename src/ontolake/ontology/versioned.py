"""Typed stores in the words of `ontolake.history`: commits, changes, snapshots and their differences.

Tables are called `entity/Customer` and `relation/Placed`; rows are dicts of fields by stored name. As with every typed
read, a type is seen from the commit on that made its current schema the current one. What a migration rewrote appears
as inserted by it; a snapshot from before is `NotFound`, since it cannot be told under the schema of today.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from ontolake.errors import Invalid, NotFound
from ontolake.history import Change, ChangeKind, Commit, Ref, Snapshot, net
from ontolake.model.codecs import json_text
from ontolake.model.filters import Order
from ontolake.model.filters import Ref as FieldOf
from ontolake.model.types import TypeInfo
from ontolake.ontology.bounds import check_commits
from ontolake.ontology.config import Config
from ontolake.ontology.errors import UnknownCommitError
from ontolake.ontology.plan import Plan, Values
from ontolake.ontology.repository.protocol import Repository


def table_of(info: TypeInfo) -> str:
    """What the rows of a type are called among all tables of a store."""
    return f"{info.kind}/{info.name}"


def fields_of(info: TypeInfo, row: Sequence[Any]) -> dict[str, Any]:
    """A row of `all_columns` as fields by stored name."""
    return {column.stored: column.decode(value) for column, value in zip(info.all_columns, row, strict=False)}


def key_of(info: TypeInfo, fields: dict[str, Any]) -> Any:
    """The key of a row: a value for an entity, a tuple for a relation."""
    keys = tuple(fields[column.stored] for column in info.keys)
    return keys[0] if info.kind == "entity" else keys


class TypedHistory(ABC):
    """What a typed store with known types offers as `history.Versioned`. The commits of a store are numbered."""

    repository: Repository
    config: Config

    @property
    @abstractmethod
    def types(self) -> Sequence[TypeInfo]:
        """The types whose rows are told."""

    def commits(
        self, *, since: int | None = None, until: int | None = None, branch: str | None = None
    ) -> Iterator[Commit[int]]:  # fmt: skip
        """The commits in `(since, until]`, newest first. Raises `NotFound` for a commit or branch that is not there."""
        self._check_branch(branch)
        return self.repository.commits(since=self._commit_or(since, 0), until=self._commit_or(until, None))

    def changes(self, since: int, until: int | None = None, *, branch: str | None = None) -> Iterator[Change[int]]:
        """What the commits in `(since, until]` did to rows of the types, oldest first. Raises what `commits` does."""
        self._check_branch(branch)
        self._commit_or(since, 0)
        end = self.repository.head() if until is None else self._commit_or(until, 0)
        return self._changes(since, end)

    def _changes(self, since: int, end: int) -> Iterator[Change[int]]:
        while since < end:
            to = min(end, since + self.config.sizes.window_commits)
            with self.repository.reading():
                found = [change for commit in sorted(one.id for one in self.repository.commits(since=since, until=to))
                         for info in self.types for change in self._of(commit, info)]
            yield from found
            since = to

    def _of(self, commit: int, info: TypeInfo) -> Iterator[Change[int]]:
        for change in self.repository.commit_changes(commit, info):
            before = None if change.before is None else fields_of(info, change.before)
            after = fields_of(info, change.after)
            kind = ChangeKind.INSERT if before is None else ChangeKind.UPDATE
            yield Change(commit, table_of(info), key_of(info, after), kind, before, after)

    def snapshot(self, commit: int | None = None, *, branch: str | None = None) -> Moment:
        """The rows as they were at a commit, or are now. Raises what `commits` does."""
        self._check_branch(branch)
        at = self.repository.head() if commit is None else self._commit_or(commit, 0)
        return Moment(self.repository, self.types, self.config.branch, at)

    def at(self, ref: Ref) -> Moment:
        """`snapshot` for what a user wrote. Raises `Invalid` if the commit is not a number."""
        if ref.commit is None:
            return self.snapshot(branch=ref.branch)
        if not (ref.commit.isascii() and ref.commit.isdigit() and len(ref.commit) < 19):
            raise Invalid(f"{ref.commit!r} is not a commit", hint="commits of a typed store are numbered from 1")
        return self.snapshot(int(ref.commit), branch=ref.branch)

    def diff(self, before: Snapshot[int], after: Snapshot[int]) -> Iterator[Change[int]]:
        """What turns one snapshot into another, a row at most once.

        Two snapshots of one store cost what was changed between them; others are compared row by row. Raises
        `NotFound` for a snapshot that lies before the migration of a type.
        """
        if not _same_store(before, after):
            yield from compare(before, after)
            return
        first, last = sorted((before.commit, after.commit))
        for info in self.types:
            Moment(self.repository, self.types, before.branch, first).check(info)
        for change in net(self._changes(first, last)):
            if before.commit <= after.commit:
                yield change._replace(commit=after.commit)
            else:
                yield Change.of(after.commit, change.table, change.key, change.after, change.before)

    def _check_branch(self, branch: str | None) -> None:
        if branch is not None and branch != self.config.branch:
            raise NotFound(f"the store is open on the branch {self.config.branch!r}, not on {branch!r}",
                           hint="open it with Config(branch=…)")

    def _commit_or(self, commit: int | None, otherwise: Any) -> Any:
        if commit is None:
            return otherwise
        if isinstance(commit, bool) or not isinstance(commit, int) or commit < 0:
            raise UnknownCommitError(commit)
        check_commits(self.repository, commit)
        return commit


class Moment:
    """A typed store as it was at one commit: a `history.Snapshot`."""

    def __init__(self, repository: Repository, types: Sequence[TypeInfo], branch: str, commit: int) -> None:
        self.repository = repository
        self.commit = commit
        self.branch = branch
        self._types = {table_of(info): info for info in types}

    def tables(self) -> Sequence[str]:
        """The types, sorted."""
        return sorted(self._types)

    def rows(self, table: str) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Every row with its key, by key. Raises `NotFound` for a type that is not there, or was migrated since."""
        info = self._types.get(table)
        if info is None:
            raise NotFound(f"there is no table {table!r}", hint=f"there are {', '.join(self.tables()) or 'none'}")
        self.check(info)
        return self._rows(info)

    def _rows(self, info: TypeInfo) -> Iterator[tuple[Any, dict[str, Any]]]:
        for row in by_key(self.repository, info, self.commit):
            fields = fields_of(info, row)
            yield key_of(info, fields), fields

    def check(self, info: TypeInfo) -> None:
        """Raise `NotFound` if the rows of that time have another schema than the one that is read now."""
        activation = self.repository.activation(info)
        known = self.repository.schemas().get((info.kind, info.name))
        if known is not None and known.schema_version_id > 1 and self.commit < activation:
            raise NotFound(f"{info.name} was migrated by commit {activation}: how it was at commit {self.commit} is "
                           "stored under another schema", hint=f"look at commits from {activation} on")


def by_key(repository: Repository, info: TypeInfo, as_of: int | None) -> Iterator[tuple[Any, ...]]:
    """Encoded rows of `all_columns`, each with its commit, as they were at a commit, sorted by key."""
    order = tuple(Order(FieldOf(info.cls, column.name), False) for column in info.keys)
    return repository.run(Plan(info.cls, order=order, as_of=as_of is not None), Values(as_of=as_of))


def _same_store(before: Snapshot[int], after: Snapshot[int]) -> bool:
    return isinstance(before, Moment) and isinstance(after, Moment) and before.repository is after.repository


def compare(before: Snapshot[int], after: Snapshot[int]) -> Iterator[Change[int]]:
    """What turns one snapshot into another, whatever they belong to, by reading both in the order of keys."""
    for table in sorted({*before.tables(), *after.tables()}):
        old = ((key, 0, row) for key, row in (before.rows(table) if table in before.tables() else ()))
        new = ((key, 1, row) for key, row in (after.rows(table) if table in after.tables() else ()))
        merged = heapq.merge(old, new, key=lambda item: (item[0], item[1]))
        held: Any = None
        for item in merged:
            if held is not None and held[0] == item[0]:
                if not _same(held[2], item[2]):
                    yield Change.of(after.commit, table, item[0], held[2], item[2])
                held = None
                continue
            if held is not None:
                yield _alone(after.commit, table, held)
            held = item
        if held is not None:
            yield _alone(after.commit, table, held)


def _same(one: Any, two: Any) -> bool:
    """Whether rows say the same, even if their classes are not the same: as JSON enums are values, and NaN is NaN."""
    if one == two:
        return True
    told = [to_jsonable_python(row, bytes_mode="base64", inf_nan_mode="constants") for row in (one, two)]
    return json_text(told[0]) == json_text(told[1])


def _alone(commit: int, table: str, item: tuple[Any, int, Any]) -> Change[int]:
    key, side, row = item
    return Change.of(commit, table, key, row if side == 0 else None, row if side == 1 else None)
