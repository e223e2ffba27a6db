"""Merging one branch into another: three-way, row by row, over what changed on the source since the two last met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ontolake.graph.commit.evolution import reshape
from ontolake.graph.commit.lineage import Lineage
from ontolake.graph.commit.records import PASSIVE, CommitDetails, CommitRecord, GraphState, Pin
from ontolake.graph.errors import (
    BranchError,
    ConstraintError,
    ExpectedVersionMismatch,
    MergeConflictError,
    UnknownCommitError,
    reading,
)
from ontolake.graph.merge.bases import base_pins, base_rows
from ontolake.graph.merge.columns import JoinedType, Sources, join_types, sources_since, translated
from ontolake.graph.merge.differences import distinct, positions, rows_at, same, touched, touched_keys
from ontolake.graph.merge.results import Counts, MergeConflict, MergeResult
from ontolake.graph.merge.rows import Strategy, merge_rows, strategies_by_table
from ontolake.graph.merge.types import alike, check_whole, misfits, renames_since, schema_conflict
from ontolake.graph.parts import GraphParts
from ontolake.graph.tables.changes import TableChange
from ontolake.graph.tables.constraints import Checker
from ontolake.graph.tables.rows import check_values
from ontolake.graph.tables.types import GraphType
from ontolake.history.contention import commit_optimistically
from ontolake.history.metadata import MERGED_BRANCH, RENAMES

_KINDS = {"endpoint": "orphan_edge", "unique": "unique", "cardinality": "cardinality"}


class _Side(NamedTuple):
    """Where the rows of a side are, of which type, and where the columns of the merged type are in it."""

    pin: Pin
    kind: GraphType
    columns: Sources


def merge(
    parts: GraphParts, source: str, into: str, *, strategy: Strategy | Mapping[Any, Strategy] | None, dry_run: bool,
    actor: str | None,
) -> MergeResult:  # fmt: skip
    """See `Graph.merge`."""
    if source == into:
        raise BranchError(source, "cannot be merged into itself", hint="name two branches")

    def run() -> MergeResult:
        ours, theirs = parts.state(into), parts.state(source)
        return _Merge(parts, ours, theirs, strategy).run(dry_run, actor)

    return commit_optimistically(run, ExpectedVersionMismatch)  # the target may move on meanwhile


class _Merge:
    def __init__(
        self, parts: GraphParts, ours: GraphState, theirs: GraphState,
        strategy: Strategy | Mapping[Any, Strategy] | None,
    ) -> None:  # fmt: skip
        self.parts, self.ours, self.theirs = parts, ours, theirs
        self.strategies = strategies_by_table(strategy, {**theirs.pins, **ours.pins})
        self.known, self.their_commits = parts.manifest.commits(ours.branch), parts.manifest.commits(theirs.branch)
        self.commits = {**self.their_commits, **self.known}
        self.lineage = Lineage(self.commits, parts.orders)
        self.history = {**theirs.history, **ours.history}
        self.conflicts: list[MergeConflict] = []
        self.changes: dict[str, TableChange] = {}
        self.counts: dict[str, Counts] = {}
        self.added: dict[str, GraphType] = {}
        self.reshaped: dict[str, GraphType] = {}
        """Tables of the target that get another type, with where its columns are in the one that they have."""
        self.sources: dict[str, Sources] = {}
        self.dropped: list[str] = []

    def run(self, dry_run: bool, actor: str | None) -> MergeResult:
        source, into = self.theirs.branch, self.ours.branch
        self.bases = self.lineage.merge_bases([self.ours.head.id], [self.theirs.head.id])
        if not self.bases:
            raise UnknownCommitError("", into)
        self.crossed = len(self.bases) > 1
        base_id = self.bases[-1]
        news = self.lineage.since(self.theirs.head.id, self.ours.head.id)
        if all(self.commits[id].kind in PASSIVE for id in news):
            return MergeResult("up_to_date", source, into, base_id)
        base, self.origins, self.disputed = base_pins(self.lineage, self.bases, self.commits)
        shown = [self.commits[one].pins for one in self.bases]
        for key in sorted({key for pins in (*shown, self.theirs.pins) for key in pins}):
            if any(pins.get(key) != self.theirs.pins.get(key) for pins in shown):
                self._table(key, base.get(key), self.theirs.pins.get(key), self.ours.pins.get(key))
        self.conflicts += misfits({**self.ours.types, **self.reshaped}, self.added, self.dropped)
        if not self.conflicts:
            self._check()
        status = "conflicts" if self.conflicts else (
            "fast_forward" if base_id == self.ours.head.id else "merged")
        result = MergeResult(status, source, into, base_id, tables=self.counts, conflicts=self.conflicts)
        if dry_run:
            return result
        if self.conflicts:
            raise MergeConflictError(source, into, self.conflicts)
        self.parts.require_writable()
        result.commit = self._publish(actor).head.as_history()
        return result

    def _publish(self, actor: str | None) -> GraphState:
        told: dict[str, Any] = {MERGED_BRANCH: self.theirs.branch}
        brought = [self.commits[id] for id in self.lineage.since(self.theirs.head.id, self.ours.head.id)
                   if id not in self.known]
        new = {**self.added, **self.reshaped}
        details = CommitDetails(
            "merge", actor, merge_source=self.theirs.branch, merged_parent=self.theirs.head.id,
            types=tuple(new.values()), past=self._past(brought), lineage=[record.to_json() for record in brought],
            extra=told, recheck=self._recheck)  # fmt: skip
        if not new and not self.dropped:
            return self.parts.writer.commit(self.ours, self.changes, details)
        renames = {key: found for key in self.reshaped
                   if (found := {old: new for new, old in self.sources[key].items() if old not in (None, new)})}
        moves = {key: self.changes[key].steps if key in self.changes else 1 for key in (*new, *self.changes)}
        if renames:
            details = replace(details, extra={**told, RENAMES: renames})
        return self.parts.writer.operate(
            self.ours, moves, lambda operation: {key: self._move(key, operation) for key in moves}, details,
            dropped=self.dropped)  # fmt: skip

    def _past(self, brought: Sequence[CommitRecord]) -> list[GraphType]:
        """The types of commits that the merge brings, unless the target has them or gets them."""
        new = {kind.hash for kind in (*self.added.values(), *self.reshaped.values())}
        hashes = {pin.schema for record in brought for pin in record.pins.values()} - self.ours.history.keys() - new
        return [kind for hash, kind in self.theirs.history.items() if hash in hashes]

    def _move(self, key: str, operation: str) -> Pin:
        """Bring a table to what the merge makes of it: its type, then its rows."""
        tables = self.parts.tables
        kind = self.added.get(key) or self.reshaped.get(key) or self.ours.types[key]
        if key in self.added:
            pin = Pin(None, tables.create(kind).version, 0, kind.hash)
        elif key in self.reshaped:
            pin = reshape(self.parts, self.ours, key, kind, self.sources[key], operation)
        else:
            pin = self.ours.pins[key]
        return tables.apply(kind, pin, self.ours.line, self.changes[key], operation) if key in self.changes else pin

    def _schema(self, key: str, detail: str) -> None:
        self.conflicts.append(schema_conflict(key, detail))

    # What becomes of a table and its type

    def _table(self, key: str, base: Pin | None, theirs: Pin | None, ours: Pin | None) -> None:
        """A table that the source has changed, in its rows or its type."""
        strategy = self.strategies.get(key)
        if key in self.disputed and not alike(self.theirs.types.get(key), self.ours.types.get(key)):
            self._schema(key, "both branches have merged its type from two others, and decided differently")
            return
        if theirs is None:
            assert base is not None
            if ours is not None:
                if strategy == "theirs" or not self._differs(key, base, ours, self.ours):
                    self.dropped.append(key)
                elif strategy is None:
                    self._schema(key, "the source has dropped the table, the target has changed it")
        elif ours is None:
            if base is None or strategy == "theirs":
                self._add(key, theirs)
            elif strategy is None and self._differs(key, base, theirs, self.theirs):
                self._schema(key, "the target has dropped the table, the source has changed it")
        else:
            self._both(key, base, theirs, ours)

    def _add(self, key: str, theirs: Pin) -> None:
        kind = self.theirs.types[key]
        rows = self._all(kind, theirs)
        self.added[key] = kind
        self.counts[kind.table] = Counts(rows.num_rows, 0, 0)
        if rows.num_rows:
            self.changes[key] = TableChange(rows.cast(kind.schema), fresh=True)

    def _all(self, kind: GraphType, pin: Pin) -> pa.Table:
        with reading(kind.table):
            return self.parts.tables.at(kind, pin).to_table(columns=[field.name for field in kind.fields])

    def _differs(self, key: str, base: Pin, pin: Pin, state: GraphState) -> bool:
        """Whether a branch has changed a table since: its type, or any row."""
        kind = state.types[key]
        if base.schema != pin.schema or self._names(state, key) is None:
            return True
        found = touched(self.parts.tables, kind, base, pin)
        at_base, at_pin = positions(kind, found.keys, found.before), positions(kind, found.keys, found.after)
        return not bool(same(kind, found.before, at_base, found.after, at_pin).all())

    def _names(self, state: GraphState, key: str) -> dict[str, str] | None:
        return self._names_since(state, key, self.origins[key])

    def _names_since(self, state: GraphState, key: str, base: str) -> dict[str, str] | None:
        return renames_since(self.commits, state.head, key, self.lineage.since(state.head.id, base))

    def _both(self, key: str, base: Pin | None, theirs: Pin, ours: Pin) -> None:
        """A table that all have: its rows, in the type that the merge gives it."""
        their_type, our_type = self.theirs.types[key], self.ours.types[key]
        if base is None:
            if their_type != our_type:
                self._schema(key, "both branches have added the type, differently")
                return
            same_names = {name: name for name in our_type.by_name}
            self._rows(key, our_type, None, _Side(theirs, their_type, same_names), _Side(ours, our_type, same_names))
            return
        base_type = self.history[base.schema]
        their_names, our_names = self._names(self.theirs, key), self._names(self.ours, key)
        if their_names is None or our_names is None:
            self._schema(key, "the type was dropped and made anew by "
                         + ("the source" if their_names is None else "the target"))
            return
        if len({kind.keys for kind in (base_type, their_type, our_type)}) > 1:
            self._schema(key, "its key has another name on one side; rename it on both first")
            return
        if sum(kind.key == key for kind in self.history.values()) == 1:
            plain = {name: name for name in our_type.by_name}
            joined: JoinedType | list[str] = JoinedType(our_type, plain, plain, plain)
        else:
            tables, start = self.parts.tables, (base, base_type)
            joined = join_types(base_type, their_type, our_type,
                                sources_since(tables, start, (theirs, their_type), their_names),
                                sources_since(tables, start, (ours, our_type), our_names))  # fmt: skip
        if isinstance(joined, list):
            self._schema(key, f"both branches have changed the type, differently: {', '.join(joined)}")
            return
        if joined.kind != our_type or any(name != own for name, own in joined.ours.items()):
            self.reshaped[key], self.sources[key] = joined.kind, joined.ours
        self._rows(key, joined.kind, _Side(base, base_type, joined.base), _Side(theirs, their_type, joined.theirs),
                   _Side(ours, our_type, joined.ours))  # fmt: skip

    def _side(self, side: _Side, kind: GraphType, keys: pa.Table) -> pa.Table:
        """The rows of one side with these keys, in the type that the merge gives the table."""
        return translated(rows_at(self.parts.tables, side.kind, side.pin, keys), kind, side.columns)

    def _rows(self, key: str, kind: GraphType, base: _Side | None, theirs: _Side, ours: _Side) -> None:
        keys = self._keys(key, theirs, ours)
        if not keys.num_rows:
            return
        if base is not None and self.crossed:
            before, disputed = base_rows(self.lineage, self.bases, self.commits, kind, keys,
                                         lambda record, some: self._rows_of_base(record, key, kind, some, theirs, ours))
        else:
            before = kind.schema.empty_table() if base is None else self._side(base, kind, keys)
            disputed = np.zeros(keys.num_rows, dtype=bool)
        is_base = base is not None and not self.crossed and ours.pin == base.pin
        target = before if is_base else self._side(ours, kind, keys)
        merged = merge_rows(kind, keys, before, self._side(theirs, kind, keys), target, disputed=disputed,
                            their_columns=theirs.columns, our_columns=ours.columns, strategy=self.strategies.get(key))
        self.counts[kind.table] = merged.counts
        self.conflicts += merged.conflicts
        if merged.change is not None:
            self.changes[key] = merged.change

    def _keys(self, key: str, theirs: _Side, ours: _Side) -> pa.Table:
        """The keys of rows in which the source may differ from any base, or has a column that is new to the target."""
        names, pins = list(theirs.kind.keys), [self.commits[base].pins.get(key) for base in self.bases]
        found = [touched_keys(self.parts.tables, theirs.kind, pin, theirs.pin) for pin in pins
                 if pin is not None and self.history[pin.schema].keys == theirs.kind.keys]
        news = [name for name, own in theirs.columns.items() if own is not None and ours.columns[name] is None]
        if news or None in pins:
            found.append(self._all(theirs.kind, theirs.pin).select(names))
        schema = theirs.kind.schema
        some = [keys.cast(pa.schema([schema.field(name) for name in names])) for keys in found]
        return distinct(theirs.kind, pa.concat_tables(some))

    def _rows_of_base(
        self, record: CommitRecord, key: str, kind: GraphType, keys: pa.Table, theirs: _Side, ours: _Side
    ) -> pa.Table:  # fmt: skip
        """The rows of a base with these keys, in the type that the merge gives the table."""
        pin = record.pins.get(key)
        if pin is None or self.history[pin.schema].keys != kind.keys:
            return kind.schema.empty_table()
        own, sources = self.history[pin.schema], dict.fromkeys(kind.by_name)
        for state, side in ((self.theirs, theirs), (self.ours, ours)):
            names = self._names_since(state, key, record.id)
            if names is None:  # dropped since, and made anew
                return kind.schema.empty_table()
            found = sources_since(self.parts.tables, (pin, own), (side.pin, side.kind), names)
            sources |= {name: found[at] for name, at in side.columns.items() if at and found[at]}
        return self._side(_Side(pin, own, sources), kind, keys)

    # What neither branch did wrong by itself can be wrong together

    def _check(self) -> None:
        tables, types = self.parts.tables, {**self.ours.types, **self.added}
        for key, kind in self.reshaped.items():
            stored = translated(self._all(self.ours.types[key], self.ours.pins[key]), kind, self.sources[key])
            check_whole(kind, stored, self.changes.get(key), self._problem)
        plain = {key: change for key, change in self.changes.items() if key not in self.reshaped}
        for key, change in plain.items():
            if change.puts is not None:
                try:
                    check_values(types[key], change.puts)
                except ConstraintError as error:
                    self.conflicts.append(MergeConflict("value", error.table, error.key, error.reason))
        pins = self._pins(self.ours)
        Checker(tables, types, pins, plain, self._problem).within_tables()
        checker = Checker(tables, types, pins, self.changes, self._problem)
        checker.between_tables()
        self.reads = checker.reads()

    def _pins(self, state: GraphState) -> dict[str, Pin]:
        """What is shown, and new tables as empty ones."""
        return {**{key: Pin(None, 0, 0, kind.hash) for key, kind in self.added.items()}, **state.pins}

    def _problem(self, error: ConstraintError) -> None:
        self.conflicts.append(MergeConflict(_KINDS.get(error.constraint, "value"), error.table, error.key,
                                            error.reason))

    def _recheck(self, state: GraphState) -> None:
        for key in self.dropped:  # whoever came meanwhile may have made edges to what goes
            left = [kind for one, kind in state.types.items() if one not in self.dropped]
            if any(key == end for kind in left for _, end in kind.ends):
                raise ExpectedVersionMismatch(key, self.ours.pins[key].version, None)
        if any(state.pins.get(key) != self.ours.pins.get(key) for key in self.reads):
            pins = {**self._pins(state), **{key: self.ours.pins[key] for key in self.changes if key in self.ours.pins}}
            Checker(self.parts.tables, {**state.types, **self.added}, pins, self.changes).between_tables()
