"""Merges of typed stores: what the operations of `ontolake.history` ask, answered from the keys that commits wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ontolake import faults
from ontolake.errors import Invalid
from ontolake.history import Commit, Conflict, Decisions, Point, UnknownBranchError
from ontolake.history.dag import is_ancestor
from ontolake.history.metadata import AUTHOR, LEFT_OUT, MERGED, MESSAGE, MIGRATED_TYPES
from ontolake.history.operations import CommitNote, MergePlan, Moved, Sides
from ontolake.history.rows import RowChanges, RowSides, merge_rows
from ontolake.model.types import TypeInfo
from ontolake.ontology.errors import HeadMismatchError
from ontolake.ontology.history.lifted_states import LiftedStates
from ontolake.ontology.history.orphans import Orphans
from ontolake.ontology.history.references import TypedDag, TypedRefs
from ontolake.ontology.history.row_tables import RowTables, base_table
from ontolake.ontology.history.schema_choice import SchemaChoice
from ontolake.ontology.history.states import Name, StoreStates
from ontolake.ontology.history.type_plans import RewritePlan, TypedChanges, TypePlan, table_name
from ontolake.ontology.history.uniqueness import UniqueRows
from ontolake.ontology.migration.steps import migrated_type
from ontolake.ontology.migration.upgraders import Upgrader
from ontolake.ontology.repository.branched import BranchedRepository, BranchedTransaction
from ontolake.ontology.repository.protocol import Row


class TypedMergeable:
    """A typed store as the operations see it: a `history.operations.Mergeable`."""

    def __init__(
        self, repository: BranchedRepository, owner: str, declared: Iterable[TypeInfo] = (),
        upgraders: Mapping[tuple[str, int], Upgrader] | None = None,
    ) -> None:  # fmt: skip
        """`declared` are types as code has them; `upgraders` lead rows from one version to another."""
        self._repository = repository
        self._owner = owner
        self._declared = tuple(declared)
        self._upgraders = dict(upgraders or {})
        self._refs = TypedRefs(repository)
        self._states = StoreStates(repository)

    @property
    def dag(self) -> TypedDag:
        return self._states.dag

    def resolve(self, ref: str | int) -> Point[int]:
        return self._refs.resolve(ref)

    def head(self, branch: str) -> int:
        found = self._refs.head(branch)
        if found is None:
            raise UnknownBranchError(branch)
        return found

    def is_news(self, theirs: int, ours: int) -> bool:
        return not is_ancestor(self.dag, theirs, ours)

    # planning

    def plan(self, sides: Sides[int], decisions: Decisions) -> MergePlan[TypedChanges]:
        with self._repository.reading():
            return self._plan(sides, decisions)

    def _plan(self, sides: Sides[int], decisions: Decisions) -> MergePlan[TypedChanges]:
        choice = SchemaChoice(self._states, sides, decisions)
        self._check_tables(sides, set(choice.names))
        states = LiftedStates(self._states, self._declared, self._upgraders, choice.targets())
        changes, conflicts = TypedChanges(states), list(choice.conflicts)
        disputed = {one.table for one in conflicts}
        commits = self._states.apart((sides.theirs, base) for base in sides.bases)
        for name in choice.names:
            table = table_name(name)
            if table in disputed or (sides.tables is not None and table not in sides.tables):
                continue
            found = self._rewritten(states, sides, decisions, name) if name in choice.brought else \
                self._merged(states, sides, decisions, name, commits)
            if found is not None:
                changes.types[name] = found[0]
                conflicts += found[1]
        unique = UniqueRows(sides, decisions, changes)
        unique.settled()
        conflicts += Orphans(sides, decisions, changes).settled()
        conflicts += unique.settled()  # again: rows that orphans brought may clash, too
        counted = ((name, plan.counts) for name, plan in changes.types.items())
        counts = {table_name(name): found for name, found in counted if any(found)}
        return MergePlan(changes, counts, conflicts)

    def _check_tables(self, sides: Sides[int], known: set[Name]) -> None:
        unknown = sorted((sides.tables or frozenset()) - {table_name(name) for name in known})
        if unknown:
            raise Invalid(f"there is no table {unknown[0]!r}",
                          hint=f"there are {', '.join(sorted(map(table_name, known)))}")

    def _merged(
        self, states: LiftedStates, sides: Sides[int], decisions: Decisions, name: Name, commits: Collection[int]
    ) -> tuple[TypePlan, list[Conflict]] | None:  # fmt: skip
        """The plan of a type that keeps the schema that it has on the target."""
        keys = states.touched(name, commits, [sides.theirs, *sides.bases])
        return self._compared(states, sides, decisions, name, keys) if keys else None

    def _rewritten(
        self, states: LiftedStates, sides: Sides[int], decisions: Decisions, name: Name
    ) -> tuple[TypePlan, list[Conflict]]:  # fmt: skip
        """The plan of a type that gets the schema of the source. Only rows that the target changed are compared."""
        commits = self._states.apart((sides.ours, base) for base in sides.bases)
        keys = states.touched(name, commits, [sides.ours, *sides.bases])
        plan, conflicts = self._compared(states, sides, decisions, name, keys)
        ours, theirs = (states.every_key(name, one) for one in (sides.ours, sides.theirs))
        new, gone = (sorted(one.difference(keys)) for one in (theirs - ours, ours - theirs))
        tables = plan.tables
        puts = pa.concat_tables([plan.changes.puts, tables.table(states.rows(name, new, sides.theirs))])
        deletes = pa.concat_tables([plan.changes.deletes, tables.keys(gone)])
        version = states.version_at(name, sides.ours)
        assert version is not None
        return RewritePlan(name, tables, RowChanges(puts, deletes), plan.ours, plan.theirs, version, sides.theirs,
                           ours, frozenset(keys)), conflicts

    def _compared(
        self, states: LiftedStates, sides: Sides[int], decisions: Decisions, name: Name, keys: Sequence[Row]
    ) -> tuple[TypePlan, list[Conflict]]:  # fmt: skip
        tables = RowTables(states.info(name))
        mine, other = (states.rows(name, keys, one) for one in (sides.ours, sides.theirs))
        if states.is_lifted(name, [sides.ours, sides.theirs, *sides.bases]):
            # What is the same needs no base, which it may take an upgrader to lift.
            same, width = set(mine) & set(other), len(tables.names)
            alike = {row[:width] for row in same}
            keys = [key for key in keys if key not in alike]
        ours, theirs = tables.table(mine), tables.table(other)
        base, disputed, fields = (ours, None, {}) if [*sides.bases] == [sides.ours] else \
            base_table(tables, states, name, self.dag, sides.bases, keys)
        try:
            found = merge_rows(RowSides(
                table_name(name), tables.schema, tables.names, tables.keys(keys), base, ours, theirs,
                tables.key_of, tables.plain, disputed, fields), decisions)  # fmt: skip
        except pa.ArrowException as error:
            raise Invalid(f"a resolution gives {name[1]} a value that does not fit: {error}",
                          hint="give values of the fields' types") from error
        return TypePlan(name, tables, found.changes, ours, theirs), found.conflicts

    # writing

    def publish(self, sides: Sides[int], plan: MergePlan[TypedChanges], note: CommitNote) -> Commit[int]:
        row = self._repository.branch_named(sides.into)
        if row is None:
            raise UnknownBranchError(sides.into)
        metadata: dict[str, Any] = {**sides.metadata, **({MERGED: sides.source} if sides.is_merge else {})}
        metadata |= {name: text for name, text in ((MESSAGE, note.message), (AUTHOR, note.author)) if text is not None}
        target = self._repository.on(row.id)
        try:
            with target.transaction(self._owner) as transaction:
                if target.head() != sides.ours:
                    raise Moved
                transaction.merged = sides.theirs if sides.is_merge else None
                migrated = []
                for _, each in sorted(plan.changes.types.items()):
                    if isinstance(each, RewritePlan):
                        migrated.append(self._rewrite(transaction, target, each, plan.changes.states))
                        continue
                    _check_complete(each.tables, each.changes.puts)
                    if each.changes.puts.num_rows:
                        transaction.reconcile(each.tables.info, each.tables.rows(each.changes.puts))
                    faults.reach("ontology: merged rows written")
                    transaction.delete(each.tables.info, each.tables.rows(each.changes.deletes))
                left = [table_name(name) for name, each in sorted(plan.changes.types.items())
                        if sides.is_merge and each.leaves_out]  # fmt: skip
                metadata |= {LEFT_OUT: left} if left else {}
                id = transaction.finish({**metadata, **({MIGRATED_TYPES: migrated} if migrated else {})})
        except HeadMismatchError as error:  # from a store that finds out when it is written
            raise Moved from error
        return target.commit(id)

    def _rewrite(
        self, transaction: BranchedTransaction, target: BranchedRepository, plan: RewritePlan, states: LiftedStates
    ) -> dict[str, Any]:  # fmt: skip
        """Write a type under the schema of the source. Returns what the metadata of the commit says of it."""
        name, version = plan.name, states.targets[plan.name].version
        if version in target.activations(*name):  # the branch had it before: its rows of that time stay apart
            version = 1 + max(one.schema_version_id for one in target.every_version(*name))
        rows = transaction.rewrite(plan.tables.info, version, plan.rows(states))
        faults.reach("ontology: merged rows rewritten")
        steps = [(one.new.schema_version_id, one.numbers) for one in states.steps(name, plan.old_version)]
        steps = [*steps[:-1], (version, steps[-1][1])]
        return migrated_type(name, (plan.old_version, version), rows, steps)


def _check_complete(tables: RowTables, rows: pa.Table) -> None:
    """Raise `Invalid` if a row lacks what its columns need, which a resolution may have left out."""
    for column in tables.columns:
        values = rows.column(column.stored)
        if values.null_count and not column.nullable:
            row = tables.rows(rows.filter(values.is_null()).slice(0, 1))[0]
            raise Invalid(f"{tables.info.name} {row[: len(tables.names)]!r} needs a value for {column.stored}",
                          hint="give it in the resolution")
