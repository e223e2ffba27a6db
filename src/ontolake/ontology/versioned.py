"""Typed stores in the words of `ontolake.history`: commits, changes, snapshots and their differences.

Tables are called `entity/Customer` and `relation/Placed`; rows are dicts of fields by stored name. Snapshots and their
differences have rows by the schema of their time. Changes, which are followed, are typed reads: a type is seen from the
commit on that made its current schema the current one, and what a migration rewrote appears as inserted by it.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from ontolake.errors import Invalid
from ontolake.history import Change, Commit, Ref, Snapshot, UnknownTableError, check_snapshots, net
from ontolake.model.codecs import json_text
from ontolake.model.filters import Order, ValueRef
from ontolake.model.types import TypeInfo
from ontolake.ontology.config import Config
from ontolake.ontology.errors import UnknownCommitError
from ontolake.ontology.migration.past import era_at, types_at
from ontolake.ontology.query.bounds import check_commits
from ontolake.ontology.query.plan import Plan, Values
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
        self, *, since: Any = None, until: Any = None, branch: str | None = None
    ) -> Iterator[Commit[int]]:  # fmt: skip
        """The commits in `(since, until]`, newest first. Raises `NotFound` for a commit or branch that is not there."""
        there = self._on(branch)
        return there.commits(since=self._commit_or(since, 0), until=self._commit_or(until, None, branch))

    def changes(self, since: Any, until: Any = None, *, branch: str | None = None) -> Iterator[Change[int]]:
        """What the commits in `(since, until]` did to rows of the types, oldest first. Raises what `commits` does."""
        there = self._on(branch)
        since = self._commit_or(since, 0)
        end = there.head() if until is None else self._commit_or(until, 0, branch)
        return changes_of(there, self.types, since, end)

    def types_at(self, commit: int) -> Sequence[TypeInfo]:
        """The types as the schemas of a commit have them, in the order of `types`. Raises what `commits` does.

        Where that is the current schema, it is the class that is known; others are made of schemas. Queries take
        these classes with `as_of(commit, schema="stored")`, and their filters reach fields that are no more.
        """
        with self.repository.reading():
            found = types_at(self.repository, self.types, self._commit_or(commit, 0))
            return [found[info.kind, info.name] for info in self.types]

    def snapshot(self, commit: int | None = None, *, branch: str | None = None) -> TypedSnapshot:
        """The rows as they were at a commit, by the schemas of its time, or are now. Raises what `commits` does."""
        there = self._on(branch)
        at = there.head() if commit is None else self._commit_or(commit, 0, branch)
        return TypedSnapshot(self.repository, self.types, self.config.branch if branch is None else branch, at)

    def commit_changes(self, commit: int, types: Sequence[TypeInfo] | None = None) -> Iterator[Change[int]]:
        """What one commit did to rows, by the schemas of its time: of a migration, how rows were and what they became.

        Raises what `commits` does.
        """
        if not self._commit_or(commit, 0):
            return
        chosen = [table_of(info) for info in types or self.types]
        parents = self.repository.commit(commit).parents
        before, after = self.snapshot(parents[0] if parents else 0), self.snapshot(commit)
        for table in chosen:
            if before.same_schema(after, table):
                yield from _of(self.repository, commit, after.type_of(table))
            else:
                yield from compare(before, after, [table])

    def at(self, ref: Ref) -> TypedSnapshot:
        """`snapshot` for what a user wrote. Raises `Invalid` if the commit is not a number."""
        if ref.commit is None:
            return self.snapshot(branch=ref.branch)
        if not (ref.commit.isascii() and ref.commit.isdigit() and len(ref.commit) < 19):
            raise Invalid(f"{ref.commit!r} is not a commit", hint="commits of a typed store are numbered from 1")
        return self.snapshot(int(ref.commit), branch=ref.branch)

    def diff(self, before: Snapshot[int], after: Snapshot[int]) -> Iterator[Change[int]]:
        """What turns one snapshot into another, a row at most once; each row by the schema of its time.

        Two snapshots of one store cost what was changed between them, unless a type was migrated between them; such
        types, and snapshots of several stores, are compared row by row.
        """
        if not (isinstance(before, TypedSnapshot) and isinstance(after, TypedSnapshot)
                and before.repository is after.repository):
            check_snapshots(before, after)
            yield from compare(before, after)
            return
        first, last = sorted((before.commit, after.commit))
        kept = [table for table in before.tables() if before.same_schema(after, table)]
        infos = [after.type_of(table_of(info)) for info in self.types if table_of(info) in kept]
        for change in net(changes_of(self.repository, infos, first, last)):
            if before.commit <= after.commit:
                yield change._replace(commit=after.commit)
            else:
                yield Change.of(after.commit, change.table, change.key, change.after, change.before)
        yield from compare(before, after, [table for table in before.tables() if table not in kept])

    def _on(self, branch: str | None) -> Repository:
        """The store on a branch. Raises `NotFound`."""
        return self.repository if branch is None else self.repository.on_branch(branch)

    def _commit_or(self, commit: int | None, otherwise: Any, branch: str | None = None) -> Any:
        if commit is None:
            return otherwise
        if isinstance(commit, bool) or not isinstance(commit, int) or commit < 0:
            raise UnknownCommitError(commit)
        check_commits(self.repository, commit)
        if branch is not None and (there := self._on(branch)).holding(commit) is not there:
            raise UnknownCommitError(commit)
        return commit


class TypedSnapshot:
    """A typed store as it was at one commit, a `history.Snapshot`. Rows are read by the schemas of its time."""

    def __init__(self, repository: Repository, types: Sequence[TypeInfo], branch: str, commit: int) -> None:
        self.repository = repository
        self.commit = commit
        self.branch = branch
        self._types = {table_of(info): info for info in types}

    def tables(self) -> Sequence[str]:
        """The types, sorted."""
        return sorted(self._types)

    def rows(self, table: str) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Every row with its key, by key. Raises `NotFound` for a type that is not there."""
        return self._rows(self.type_of(table))

    def _rows(self, info: TypeInfo) -> Iterator[tuple[Any, dict[str, Any]]]:
        for row in by_key(self.repository, info, self.commit):
            fields = fields_of(info, row)
            yield key_of(info, fields), fields

    def type_of(self, table: str) -> TypeInfo:
        """The type of a table as the schemas of the commit have it. Raises `NotFound`."""
        info = self._types.get(table)
        if info is None:
            raise UnknownTableError(table, self.tables())
        with self.repository.reading():
            return types_at(self.repository, [info], self.commit)[info.kind, info.name]

    def same_schema(self, other: TypedSnapshot, table: str) -> bool:
        """Whether no migration of a type lies between two snapshots of one store."""
        kind, name = (info := self._types[table]).kind, info.name
        with self.repository.reading():
            eras = [era_at(self.repository, kind, name, moment.commit) for moment in (self, other)]
        return len({None if era is None else era.version.schema_version_id for era in eras}) == 1


def changes_of(repository: Repository, types: Sequence[TypeInfo], since: int, end: int) -> Iterator[Change[int]]:
    """What the commits in `(since, end]` did to rows of types, oldest first."""
    while since < end:
        to = min(end, since + repository.config.sizes.window_commits)
        with repository.reading():
            found = [change for commit in sorted(one.id for one in repository.commits(since=since, until=to))
                     for info in types for change in _of(repository, commit, info)]
        yield from found
        since = to


def _of(repository: Repository, commit: int, info: TypeInfo) -> Iterator[Change[int]]:
    for change in repository.commit_changes(commit, info):
        before, after = (None if row is None else fields_of(info, row) for row in (change.before, change.after))
        key = key_of(info, after or before or {})
        yield Change.of(commit, table_of(info), key, before, after)


def by_key(repository: Repository, info: TypeInfo, as_of: int | None) -> Iterator[tuple[Any, ...]]:
    """Encoded rows of `all_columns`, each with its commit, as they were at a commit, sorted by key."""
    order = tuple(Order(ValueRef(info.cls, column.name), False) for column in info.keys)
    return repository.run(Plan(info.cls, order=order, as_of=as_of is not None), Values(as_of=as_of))


def compare(
    before: Snapshot[int], after: Snapshot[int], tables: Sequence[str] | None = None
) -> Iterator[Change[int]]:  # fmt: skip
    """What turns one snapshot into another, whatever they belong to, by reading both in the order of keys.

    Of all tables, unless some are named.
    """
    for table in sorted({*before.tables(), *after.tables()}) if tables is None else tables:
        old = [] if table not in before.tables() else ((key, 0, row) for key, row in before.rows(table))
        new = [] if table not in after.tables() else ((key, 1, row) for key, row in after.rows(table))
        if _other_keys(before, after, table):
            yield from _by_text(after.commit, table, old, new)
            continue
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


def _other_keys(before: Snapshot[int], after: Snapshot[int], table: str) -> bool:
    """Whether a migration gave the keys of a type another type: they stay the same text, but have another order."""
    if not (isinstance(before, TypedSnapshot) and isinstance(after, TypedSnapshot)) or table not in before.tables():
        return False
    kinds = [[column.scalar for column in moment.type_of(table).keys] for moment in (before, after)
             if table in moment.tables()]
    return kinds[0] != kinds[-1]


def _by_text(commit: int, table: str, old: Iterable[Any], new: Iterable[Any]) -> Iterator[Change[int]]:
    """What turns rows into others whose keys have another type, but are the same as text."""
    rows = {_text(key): (key, row) for key, _, row in old}
    for key, _, row in new:
        known = rows.pop(_text(key), None)
        if known is None or not _same(known[1], row):
            yield Change.of(commit, table, key, None if known is None else known[1], row)
    for key, row in rows.values():
        yield Change.of(commit, table, key, row, None)


def _text(key: Any) -> Any:
    return tuple(map(str, key)) if isinstance(key, tuple) else str(key)
