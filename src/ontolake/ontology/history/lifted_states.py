"""Rows of typed stores in one version of each type, whichever version they had at a commit: what merges compare."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from ontolake.model.columns import Column
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo
from ontolake.ontology.history.states import Name, StoreStates
from ontolake.ontology.migration.past import eras, type_of
from ontolake.ontology.migration.past_rows import in_order, lifted_rows
from ontolake.ontology.migration.steps import VersionStep, lifting, steps_to
from ontolake.ontology.migration.upgraders import Upgrader
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.branched import UniqueReader
from ontolake.ontology.repository.protocol import Row, SchemaVersion


class TargetVersion(NamedTuple):
    """The version that rows of a type are to have, and a commit at which it is the current one."""

    version: int
    commit: int


class LiftedStates:
    """Reads rows as rows of chosen versions, by key and commit.

    Everything that lifts rows raises `MissingUpgraderError`, and `MigrationError` if an upgrader fails.
    """

    def __init__(
        self, states: StoreStates, declared: Iterable[TypeInfo], upgraders: dict[tuple[str, int], Upgrader],
        targets: Mapping[Name, TargetVersion],
    ) -> None:  # fmt: skip
        """`declared` are types as code has them: they know defaults, and which fields were renamed."""
        self._states = states
        self._declared = {(info.kind, info.name): info for info in declared}
        self._upgraders = upgraders
        self._targets = targets
        self._steps: dict[tuple[Name, int], list[VersionStep]] = {}

    @property
    def targets(self) -> Mapping[Name, TargetVersion]:
        return self._targets

    def info(self, name: Name) -> TypeInfo:
        """A class for the rows of a type."""
        return self._states.info(name, self._targets[name].version)

    def schema(self, name: Name) -> SchemaVersion:
        return self._states.version(name, self._targets[name].version)

    def version_at(self, name: Name, commit: int) -> int | None:
        """The version of a type at a commit; None if it is not there."""
        return self._states.versions_at(commit).get(name) if commit else None

    def is_lifted(self, name: Name, commits: Iterable[int]) -> bool:
        """Whether a type has another schema at one of these commits than its rows are to have."""
        found = {self.version_at(name, commit) for commit in commits} - {None}
        return any(self.steps(name, version) for version in found if version is not None)

    def steps(self, name: Name, version: int) -> list[VersionStep]:
        """The steps from a version to the one that rows are to have; none if that has the same schema."""
        known = self._steps.get((name, version))
        if known is None:
            known = self._steps[name, version] = self._worked_out(name, version)
        return known

    def _worked_out(self, name: Name, version: int) -> list[VersionStep]:
        commit = self._targets[name].commit
        there = self._states.repository.holding(commit)
        line = [era for era in eras(there, *name) if era.since <= commit]
        return steps_to(there, line, self._states.version(name, version), self.schema(name))

    # rows
    def rows(self, name: Name, keys: Sequence[Row], commit: int) -> list[Row]:
        """The rows of these keys at a commit; none for a key that was not there."""
        version = self.version_at(name, commit)
        if version is None or not keys:
            return []
        then, info = self._states.info(name, version), self.info(name)
        found = self._states.rows(then, version, rekeyed(keys, info.keys, then.keys), commit)
        return self._lifted(name, version, found)

    def every_row(self, name: Name, commit: int) -> Iterator[Row]:
        """All rows of a type at a commit, at which it has the version that rows are to have."""
        target = self.info(name)
        order = [column.stored for column in (*target.keys, *target.columns)]
        return (row[:-1] for row in self._scan(name, commit, order))

    def every_key(self, name: Name, commit: int) -> set[Row]:
        """All keys of a type at a commit."""
        version = self.version_at(name, commit)
        if version is None:
            return set()
        then = self._states.info(name, version)
        found = [row[:-1] for row in self._scan(name, commit, [column.stored for column in then.keys])]
        return set(rekeyed(found, then.keys, self.info(name).keys))

    def _scan(self, name: Name, commit: int, order: Sequence[str]) -> Iterator[Row]:
        version = self.version_at(name, commit)
        assert version is not None
        then = type_of(self._states.version(name, version))
        rows = self._states.repository.run(Plan(then.cls, as_of=True), Values(as_of=commit))
        return in_order(then, order, rows)

    def touched(self, name: Name, commits: Collection[int], heads: Iterable[int]) -> list[Row]:
        """The keys that some commits wrote in a version that a head has had, sorted."""
        info = self.info(name)
        versions = {version for head in heads if head
                    for version in self._states.repository.holding(head).activations(*name)}
        found: list[Sequence[Row]] = []
        for version in sorted(versions):
            then = self._states.info(name, version)
            found.append(rekeyed(self._states.touched(then, version, commits), then.keys, info.keys))
        return sorted(found[0]) if len(found) == 1 else sorted({key for keys in found for key in keys})

    def live_relations(self, name: Name, side: str, entity: Name, keys: Sequence[Row], commit: int) -> list[Row]:
        """The keys of relations that lead to some entities at a commit."""
        version = self.version_at(name, commit)
        if version is None:
            return []
        then, place = self._states.info(name, version), 0 if side == "left" else 1
        ends = rekeyed(keys, self.info(entity).keys, then.keys[place : place + 1])
        found = self._states.live_relations(then, version, side, ends, commit)
        return rekeyed(found, then.keys, self.info(name).keys)

    def holders(self, name: Name, column: Column, values: Iterable[Any], commit: int) -> list[tuple[Row, Any]]:
        """The keys of rows that have one of these values in a unique column at a commit, each with the value.

        The type must have the schema there that rows are to have.
        """
        version = self.version_at(name, commit)
        if version is None:
            return []
        reader = cast(UniqueReader, self._states.repository.states)
        return reader.holders(self._states.info(name, version), version, column, values, commit)

    def _lifted(self, name: Name, version: int, rows: list[Row]) -> list[Row]:
        then, info = self._states.info(name, version), self.info(name)
        steps = self.steps(name, version)
        if not rows or version == self._targets[name].version:
            return rows
        if not steps:
            return list(_ordered(then, info, rows))
        declared = self._declared.get(name, info)
        whole = declared if declared.schema_hash == info.schema_hash else info
        stored = StoredType(steps[0].old.schema)
        held = [column.stored for column in (*then.keys, *then.columns)]
        places = [held.index(column.stored) for column in stored.all_columns]
        given = [(*(row[place] for place in places), 0) for row in rows]
        found = lifted_rows(whole, stored, lifting(steps, declared.all_columns, self._upgraders), given)
        return list(_ordered(whole, info, (row[:-1] for row in found)))


def _ordered(held: TypeInfo, wanted: TypeInfo, rows: Iterable[Row]) -> Iterator[Row]:
    """Rows of one class of a schema as another class of it has them."""
    names = [column.stored for column in (*held.keys, *held.columns)]
    places = [names.index(column.stored) for column in (*wanted.keys, *wanted.columns)]
    return (tuple(row[place] for place in places) for row in rows)


def rekeyed(keys: Sequence[Row], old: Sequence[Column], new: Sequence[Column]) -> list[Row]:
    """Encoded keys of one version as keys of another: their text stays. Without those that cannot be any."""
    if [column.spec for column in old] == [column.spec for column in new]:
        return list(keys)
    found = []
    for key in keys:
        try:
            found.append(tuple(int(str(part)) if column.sqlite_type == "INTEGER" else str(part)
                               for part, column in zip(key, new, strict=True)))
        except ValueError:
            continue
    return found
