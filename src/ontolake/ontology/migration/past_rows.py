"""Rows of the past as rows of today: read by the schema of their time, and led through the upgraders of a migration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ontolake.model.filters import Compare, Member, ValueRef
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.migration.lifts import Lift
from ontolake.ontology.migration.past import Era, eras, type_of
from ontolake.ontology.migration.rewrite import upgraded_rows, upgraded_table
from ontolake.ontology.migration.steps import VersionStep, lifting, steps_along, steps_to
from ontolake.ontology.migration.upgraders import Upgrader
from ontolake.ontology.query.compiler.loaded import Loaded
from ontolake.ontology.query.needs import conjuncts, needed
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.arrow import arrow_table
from ontolake.ontology.repository.protocol import Repository, Row, SchemaVersion
from ontolake.ontology.repository.versions import version_for

if TYPE_CHECKING:
    import pyarrow as pa

Upgraders = dict[tuple[str, int], Upgrader]


class Lifted:
    """Answers plans as a repository does, with the rows of a commit, of whichever branch, under the current schemas."""

    def __init__(self, repository: Repository, upgraders: Upgraders, commit: int) -> None:
        self._repository = repository
        self._there = repository.holding(commit)
        self._upgraders = upgraders
        self._commit = commit

    def run(self, plan: Plan, values: Values) -> Iterator[Row]:
        """The answer to a plan.

        Raises `SchemaOutdatedError` for a class that has another schema than the current one, `MissingUpgraderError`,
        and `MigrationError` if an upgrader fails or returns a row that does not fit.
        """
        root = type_info(plan.root)
        types = list(needed(plan))
        histories = {info: self._eras(info, plan.history and info is root) for info in types}
        if all(era.until is None and not self._steps(info, era) for info, found in histories.items() for era in found):
            return self._repository.run(plan, values)
        loaded = Loaded()
        keys = None if plan.hops else _keys(plan, values, root)
        for info, found in histories.items():
            first, history = (keys, plan.history) if info is root else (None, False)
            rows = (row for era in found for row in self._rows(info, era, history, first))
            loaded.add(info, (*info.keys, *info.columns), ((*row, place) for place, row in enumerate(rows)))
        return loaded.run(plan._replace(as_of=False), values)

    def run_arrow(self, plan: Plan, values: Values) -> pa.Table:
        return arrow_table(type_info(plan.root).all_columns, self.run(plan, values))

    def _eras(self, info: TypeInfo, history: bool) -> list[Era]:
        """The versions whose rows are read: that of the commit, or all up to it."""
        found = [era for era in eras(self._there, info.kind, info.name) if era.since <= self._commit]
        return found if history else found[-1:]

    def _current(self, info: TypeInfo) -> SchemaVersion:
        """The version that a type has now, on the branch that is read; else on that of the commit."""
        name = (info.kind, info.name)
        return self._repository.schemas().get(name) or self._there.schemas()[name]

    def _rows(self, info: TypeInfo, era: Era, history: bool, keys: tuple[Any, ...] | None) -> Iterator[Row]:
        """The rows of a version as the type has them now, keys first, with the commit behind them.

        With `keys`, those that have one of these as their first key.
        """
        until = self._commit
        if era.until is not None and era.until < until:  # which may be a commit of another branch
            until = next((one.id for one in self._there.commits(until=era.until, limit=1)), 0)
        then = type_of(era.version)
        plan, values = Plan(then.cls, history=history, as_of=True), Values(as_of=until)
        if keys is not None and then.keys[0].scalar == info.keys[0].scalar:
            plan = plan._replace(where=Member("in", ValueRef(then.cls, then.keys[0].name), len(keys)))
            values = values._replace(where=keys)
        rows = self._there.run(plan, values)
        version_for(info, self._current(info))
        steps = self._steps(info, era)
        if not steps:
            yield from in_order(then, [column.stored for column in (*info.keys, *info.columns)], rows)
            return
        stored = StoredType(era.version.schema)
        found = list(in_order(then, [column.stored for column in stored.all_columns], rows))
        if found:
            yield from lifted_rows(info, stored, lifting(steps, info.all_columns, self._upgraders), found)

    def _steps(self, info: TypeInfo, era: Era) -> list[VersionStep]:
        """What leads from a version to the current one."""
        line = eras(self._repository, info.kind, info.name)
        for place, own in enumerate(line):
            if own.version.schema_version_id == era.version.schema_version_id:
                return steps_along(self._repository, line[place:])
        return steps_to(self._repository, line, era.version, self._current(info))


def _keys(plan: Plan, values: Values, root: TypeInfo) -> tuple[Any, ...] | None:
    """The first keys that rows of the root can have, if a plan names them: only these need to be lifted."""
    for shape, given in conjuncts(plan.where, values.where):
        if (isinstance(shape, Compare | Member) and shape.op in ("==", "in") and getattr(shape, "other", None) is None
                and shape.ref == ValueRef(plan.root, root.keys[0].name)):  # fmt: skip
            return given
    return None


def in_order(info: TypeInfo, stored: Sequence[str], rows: Iterable[Row]) -> Iterator[Row]:
    """Rows of a type with their columns in another order, the commit behind them."""
    places = {column.stored: place for place, column in enumerate(info.all_columns)}
    return map(itemgetter(*(places[name] for name in stored), -1), rows)


def lifted_rows(
    info: TypeInfo, stored: StoredType, steps: Sequence[Upgrader | Lift], rows: Sequence[Row]
) -> Iterator[Row]:  # fmt: skip
    """Rows of a version, the commit behind them, as rows of the current one."""
    lifts = [one for one in steps if isinstance(one, Lift)]
    if len(lifts) == len(steps):
        after: Iterable[Row] = rows
        for lift in lifts:
            order = [column.stored for column in (*info.keys, *info.columns)] if lift is lifts[-1] else None
            after = lift.rows(after, order)
        for row, found in zip(rows, after, strict=True):
            yield (*found, row[-1])
        return
    chain = [Upgrader(one.values, info.name, 0, False) if isinstance(one, Lift) else one for one in steps]
    if not any(one.arrow for one in chain):
        for row, found in zip(rows, upgraded_rows(info, stored, chain, rows), strict=True):
            yield (*found, row[-1])
        return
    width = len(info.keys)
    places = [stored.all_columns.index(column) for column in stored.keys]
    for _, same in groupby(rows, key=itemgetter(-1)):  # a key is once in a commit
        batch = list(same)
        commits = {tuple(str(row[place]) for place in places): row[-1] for row in batch}
        table = arrow_table(stored.all_columns, iter(batch))
        for found in upgraded_table(info, stored, chain, table.drop_columns([table.column_names[-1]])):
            yield (*found, commits[tuple(map(str, found[:width]))])


__all__ = ["Lifted", "in_order", "lifted_rows"]
