"""Graphs as `history.operations` sees them: what is at a reference, what a step does, and its commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ontolake.graph.commit.evolution import reshape
from ontolake.graph.commit.lineage import Lineage
from ontolake.graph.commit.records import PASSIVE, CommitDetails, CommitRecord, GraphState, Pin
from ontolake.graph.commit.retention import require
from ontolake.graph.errors import ExpectedVersionMismatch, UnknownTableError
from ontolake.graph.merge.merge import MergeStep
from ontolake.graph.merge.rules import RuleCheck
from ontolake.graph.merge.types import table_of
from ontolake.graph.parts import GraphParts
from ontolake.graph.read.resolution import find_commit, resolve_ref
from ontolake.graph.tables.rows import array_of
from ontolake.graph.tables.types import GraphType, resolve_table
from ontolake.history import Commit, Conflict, Decisions, Point, Resolution, Strategy, Value
from ontolake.history.conflicts import Side, Take, checked
from ontolake.history.metadata import CHERRY_PICKED, MERGED_BRANCH, MESSAGE, RENAMES, RESTORES, REVERTS
from ontolake.history.operations import CommitNote, MergePlan, Moved, Sides

Strategies = Side | Mapping[Any, Side] | Callable[[Conflict], Take | None] | None
"""A strategy for all tables, by table: its class, `Customer`, `node/Customer` or `node:Customer`, or a function."""

_KINDS = {REVERTS: "revert", CHERRY_PICKED: "cherry-pick", RESTORES: "restore"}


class GraphHistory:
    """One graph as it is now: a `Mergeable`."""

    def __init__(self, parts: GraphParts) -> None:
        self._parts = parts
        self._commits: dict[str, CommitRecord] = {}
        self._states: dict[str, GraphState] = {}
        """By commit, a branch that knows it."""
        self.dag = Lineage(self._commits, parts.orders)

    def head(self, branch: str) -> str:
        state = self._parts.state(branch)
        self._commits.update(self._parts.manifest.commits(state.branch))
        self._states[state.head.id] = state
        return state.head.id

    def resolve(self, ref: str) -> Point[str]:
        point = resolve_ref(self._parts, ref)
        self._learn(point.commit, point.branch)
        return point

    def _learn(self, commit: str, branch: str | None) -> None:
        """Get to know a commit and all that it was made on."""
        state, record = find_commit(self._parts, commit, branch)
        self._commits.update({id: one for id, one in self._parts.manifest.commits(state.branch).items()
                              if id not in self._commits})  # fmt: skip
        self._states.setdefault(commit, state if record.id == state.head.id else state.at(record))

    def is_news(self, theirs: str, ours: str) -> bool:
        return any(self._commits[id].kind not in PASSIVE for id in self.dag.since(theirs, ours))

    def plan(self, sides: Sides[str], decisions: Decisions) -> MergePlan[MergeStep]:
        for commit in {sides.theirs, *sides.bases} - self._states.keys():
            self._learn(commit, None)
        ours, theirs = self._states[sides.ours], self._states[sides.theirs]
        if not sides.is_merge:
            for commit in (sides.theirs, *sides.bases):
                require(self._parts, self._commits[commit], self._parts.manifest.state(self._states[commit].branch))
        step = MergeStep(self._parts, ours, theirs, self._commits, sides, decisions)
        if not step.conflicts:
            RuleCheck(step).settle()
        return MergePlan(step, step.counts, step.conflicts)

    def publish(self, sides: Sides[str], plan: MergePlan[MergeStep], note: CommitNote) -> Commit[str]:
        self._parts.require_writable()
        try:
            return self._publish(sides, plan.changes, note).head.as_history()
        except ExpectedVersionMismatch as error:
            raise Moved from error

    def _publish(self, sides: Sides[str], step: MergeStep, note: CommitNote) -> GraphState:
        ours, theirs, changes = step.ours, step.theirs, step.changes()
        kind = next((kind for name, kind in _KINDS.items() if name in sides.metadata), "merge")
        extra: dict[str, Any] = {**sides.metadata, **({MESSAGE: note.message} if note.message is not None else {})}
        new = {**step.added, **step.reshaped}
        details = CommitDetails(kind, note.author, types=tuple(new.values()), recheck=RuleCheck(step).recheck)
        if sides.is_merge:
            known = self._parts.manifest.commits(ours.branch)
            brought = [self._commits[id] for id in self.dag.since(sides.theirs, sides.ours) if id not in known]
            hashes = {pin.schema for record in brought for pin in record.pins.values()}
            past = [kind for hash, kind in theirs.history.items()
                    if hash in hashes - ours.history.keys() - {kind.hash for kind in new.values()}]
            extra[MERGED_BRANCH] = self._parts.names.name(theirs.branch)
            details = replace(details, merge_source=theirs.branch, merged_parent=sides.theirs, past=past,
                              lineage=[record.to_json() for record in brought])
        renames = {key: found for key in step.reshaped
                   if (found := {old: new for new, old in step.sources[key].items() if old not in (None, new)})}
        details = replace(details, extra={**extra, **({RENAMES: renames} if renames else {})})
        if not new and not step.dropped:
            return self._parts.writer.commit(ours, changes, details)
        moves = {key: changes[key].steps if key in changes else 1 for key in (*new, *changes)}

        def move(operation: str) -> dict[str, Pin | None]:
            return {key: self._move(step, key, operation) for key in moves}

        return self._parts.writer.operate(ours, moves, move, details, dropped=step.dropped)

    def _move(self, step: MergeStep, key: str, operation: str) -> Pin:
        """Bring a table to what the step makes of it: its type, then its rows."""
        tables, kind, changes = self._parts.tables, step.kind(key), step.changes()
        if key in step.added:
            pin = Pin(None, tables.create(kind).version, 0, kind.hash)
        elif key in step.reshaped:
            pin = reshape(self._parts, step.ours, key, kind, step.sources[key], operation)
        else:
            pin = step.ours.pins[key]
        return tables.apply(kind, pin, step.ours.line, changes[key], operation) if key in changes else pin


def strategy_by_table(strategy: Strategies, tables: Iterable[str]) -> Strategy:
    """A strategy by the names that tables have in conflicts. Raises `UnknownTableError`."""
    if not isinstance(strategy, Mapping):
        return strategy
    known = list(tables)
    return {table_of(resolve_table(table, known)): side for table, side in strategy.items()} or None


def stored_resolutions(resolutions: Iterable[Resolution], types: Mapping[str, GraphType]) -> list[Resolution]:
    """Resolutions with the names that tables have in conflicts, and values as they are stored. Raises `RowError`."""
    found: list[Resolution] = []
    for one in map(checked, resolutions):
        try:
            key = resolve_table(one.table, types)
        except UnknownTableError:
            found.append(one)  # it is for no conflict, and refused as such
            continue
        take = one.take
        if isinstance(take, Value):
            take = _stored(types[key], one.field, take)
        found.append(one._replace(table=table_of(key), take=take))
    return found


def _stored(kind: GraphType, field: str | None, take: Value) -> Value:
    def stored(name: str, value: Any) -> Any:
        known = kind.by_name.get(name)
        return value if known is None or value is None else array_of(kind, known, [value])[0].as_py()

    if field is not None:
        return Value(stored(field, take.value))
    if not isinstance(take.value, Mapping):
        return take
    return Value({name: stored(name, value) for name, value in take.value.items()})
