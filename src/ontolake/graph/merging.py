"""Merging one branch into another: three-way, row by row, over what changed on the source since the two last met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from ontolake.errors import Invalid
from ontolake.graph.constraints import Checker
from ontolake.graph.differ import positions, rows_at, same, touched
from ontolake.graph.errors import (
    BranchError,
    ConstraintError,
    ExpectedVersionMismatch,
    MergeConflictError,
    UnknownCommitError,
)
from ontolake.graph.lineage import merge_base
from ontolake.graph.manifest import Pin, State
from ontolake.graph.rows import check_values, key_at
from ontolake.graph.tables import Change
from ontolake.graph.types import GraphType, resolve_table
from ontolake.history import Commit

if TYPE_CHECKING:
    from ontolake.graph.graph import Graph

Strategy = Literal["ours", "theirs"]
_STRATEGIES = ("ours", "theirs")
_TRIES = 5
_KINDS = {"endpoint": "orphan_edge", "unique": "unique", "cardinality": "cardinality"}


class MergeConflict(NamedTuple):
    """One thing that both branches decided differently.

    `kind` is divergent_insert, divergent_update, delete_update, orphan_edge, unique, cardinality, value or schema.
    """

    kind: str
    table: str
    key: Any
    detail: str

    def __str__(self) -> str:
        return f"{self.kind.replace('_', ' ')} of {self.table}" + (f" {self.key!r}" if self.key is not None else "") + (
            f": {self.detail}" if self.detail else "")


class Counts(NamedTuple):
    """How many rows of a table a merge brings."""

    inserted: int
    updated: int
    deleted: int


@dataclass
class MergeResult:
    """What a merge did, or would do. `status` is up_to_date, fast_forward, merged or conflicts."""

    status: str
    source: str
    into: str
    base: str | None
    commit: Commit[str] | None = None
    tables: dict[str, Counts] = field(default_factory=dict)
    conflicts: list[MergeConflict] = field(default_factory=list)


def merge(
    graph: Graph, source: str, into: str, *, strategy: Strategy | Mapping[Any, Strategy] | None, dry_run: bool,
    actor: str | None,
) -> MergeResult:  # fmt: skip
    """See `Graph.merge`."""
    if source == into:
        raise BranchError(source, "cannot be merged into itself", hint="name two branches")
    for attempt in range(_TRIES):
        ours, theirs = graph._manifest_state(into), graph._manifest_state(source)
        try:
            return _Merge(graph, ours, theirs, strategy).run(dry_run, actor)
        except ExpectedVersionMismatch:  # the target moved on meanwhile: see what it is now
            if attempt == _TRIES - 1:
                raise
    raise AssertionError


class _Merge:
    def __init__(
        self, graph: Graph, ours: State, theirs: State, strategy: Strategy | Mapping[Any, Strategy] | None
    ) -> None:  # fmt: skip
        self.graph, self.ours, self.theirs = graph, ours, theirs
        self.strategies = _strategies(strategy, ours)
        self.conflicts: list[MergeConflict] = []
        self.changes: dict[str, Change] = {}
        self.counts: dict[str, Counts] = {}

    def run(self, dry_run: bool, actor: str | None) -> MergeResult:
        source, into = self.theirs.branch, self.ours.branch
        known, theirs = self.graph._manifest.commits(into), self.graph._manifest.commits(source)
        commits = {**theirs, **known}
        base_id = merge_base(commits, self.theirs.head.id, self.ours.head.id)
        if base_id is None:
            raise UnknownCommitError("", into)
        if base_id == self.theirs.head.id:
            return MergeResult("up_to_date", source, into, base_id)
        base = commits[base_id].pins
        for key, pin in self.theirs.pins.items():
            if base.get(key) != pin:
                self._table(key, base.get(key), pin)
        for key in base.keys() - self.theirs.pins.keys():
            self._schema(key, "the source has dropped the table")
        if not self.conflicts:
            self._check()
        status = "conflicts" if self.conflicts else (
            "fast_forward" if base_id == self.ours.head.id else "merged")
        result = MergeResult(status, source, into, base_id, tables=self.counts, conflicts=self.conflicts)
        if dry_run:
            return result
        if self.conflicts:
            raise MergeConflictError(source, into, self.conflicts)
        self.graph._writable()
        published = self.graph._writer.commit(
            self.ours, self.changes, kind="merge", actor=actor, merge_source=source,
            merged_parent=self.theirs.head.id, extra={"merged_branch": source}, recheck=self._recheck,
            lineage=[record.to_json() for id, record in theirs.items() if id not in known])  # fmt: skip
        result.commit = published.head.as_history()
        return result

    def _schema(self, key: str, detail: str) -> None:
        self.conflicts.append(MergeConflict("schema", key.replace(":", "/", 1), None, detail))

    def _table(self, key: str, base: Pin | None, theirs: Pin) -> None:
        ours = self.ours.pins.get(key)
        if base is None or ours is None:
            self._schema(key, "the source has added the table; apply the schema to the target first"
                         if base is None else "the target has dropped the table")
            return
        kind = self.theirs.types[key]
        if kind != self.ours.types[key]:
            self._schema(key, "the types differ; apply the same schema to both first")
            return
        tables = self.graph._tables
        found = touched(tables, kind, base, theirs)
        keys = found.keys
        if keys.num_rows == 0:
            return
        target = found.before if ours == base else rows_at(tables, kind, ours, keys)
        at_base, at_theirs = positions(kind, keys, found.before), positions(kind, keys, found.after)
        at_ours = positions(kind, keys, target)
        theirs_changed = ~same(kind, found.after, at_theirs, found.before, at_base)
        ours_changed = ~same(kind, target, at_ours, found.before, at_base)
        agree = same(kind, found.after, at_theirs, target, at_ours)
        take = theirs_changed & ~ours_changed
        clash = theirs_changed & ours_changed & ~agree
        strategy = self.strategies.get(key)
        if strategy == "theirs":
            take |= clash
        elif strategy is None:
            for index in np.flatnonzero(clash):
                self._clash(kind, keys, int(index), at_base[index], at_theirs[index], at_ours[index])
        puts = found.after.take(pa.array(at_theirs[take & (at_theirs >= 0)]))
        gone = take & (at_theirs < 0) & (at_ours >= 0)
        deletes = keys.take(pa.array(np.flatnonzero(gone)))
        self.counts[kind.table] = Counts(int((take & (at_theirs >= 0) & (at_ours < 0)).sum()),
                                         int((take & (at_theirs >= 0) & (at_ours >= 0)).sum()), deletes.num_rows)
        if puts.num_rows or deletes.num_rows:
            self.changes[key] = Change(puts if puts.num_rows else None, deletes if deletes.num_rows else None,
                                       fresh=bool(puts.num_rows) and not (take & (at_ours >= 0)).any())

    def _clash(self, kind: GraphType, keys: pa.Table, index: int, base: int, theirs: int, ours: int) -> None:
        if base < 0:
            what, detail = "divergent_insert", "both branches inserted it, differently"
        elif theirs < 0 or ours < 0:
            what = "delete_update"
            detail = "the source deleted it, the target changed it" if theirs < 0 else (
                "the source changed it, the target deleted it")
        else:
            what, detail = "divergent_update", "both branches changed it, differently"
        self.conflicts.append(MergeConflict(what, kind.table, key_at(kind, keys, index), detail))

    def _check(self) -> None:
        """What neither branch did wrong by itself can be wrong together."""
        for key, change in self.changes.items():
            if change.puts is not None:
                try:
                    check_values(self.ours.types[key], change.puts)
                except ConstraintError as error:
                    self.conflicts.append(MergeConflict("value", error.table, error.key, error.reason))
        checker = Checker(self.graph._tables, self.ours.types, self.ours.pins, self.changes, self._problem)
        checker.within_tables()
        checker.between_tables()
        self.reads = checker.reads()

    def _problem(self, error: ConstraintError) -> None:
        self.conflicts.append(MergeConflict(_KINDS.get(error.constraint, "value"), error.table, error.key,
                                            error.reason))

    def _recheck(self, state: State) -> None:
        if any(state.pins.get(key) != self.ours.pins.get(key) for key in self.reads):
            pins = {**state.pins, **{key: self.ours.pins[key] for key in self.changes}}
            Checker(self.graph._tables, state.types, pins, self.changes).between_tables()


def _strategies(given: Strategy | Mapping[Any, Strategy] | None, state: State) -> dict[str, Strategy]:
    if given is None:
        return {}
    if isinstance(given, str):
        chosen: dict[str, Strategy] = dict.fromkeys(state.pins, given)
    else:
        chosen = {resolve_table(table, state.pins): strategy for table, strategy in given.items()}
    for one in chosen.values():
        if one not in _STRATEGIES:
            raise Invalid(f"the strategy {one!r} is not known", hint="ours keeps the target's rows, theirs takes the "
                          "source's")
    return chosen
