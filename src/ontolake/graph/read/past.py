"""The past of one row: all states that it had, and who wrote each of its fields."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import isnan
from typing import Any

from ontolake.errors import NotFound
from ontolake.graph.commit.lineage import Lineage
from ontolake.graph.commit.records import CommitRecord, GraphState, Pin
from ontolake.graph.commit.retention import require, types_of
from ontolake.graph.parts import GraphParts
from ontolake.graph.read.resolution import find_commit, resolve_ref
from ontolake.graph.read.views import plain_row
from ontolake.graph.tables.rows import keys_table
from ontolake.graph.tables.traces import Trace, changed_fields, sign
from ontolake.graph.tables.types import resolve_table
from ontolake.history import Commit, RowVersion
from ontolake.history.blame import blame
from ontolake.history.dag import missing
from ontolake.history.metadata import TRACES

Row = dict[str, Any]


class RowPast:
    """One row, by its table and key, in the history of a reference. Each version of the table is read once."""

    def __init__(self, parts: GraphParts, table: Any, key: Any, ref: str) -> None:
        """Raises `UnknownTableError`, `UnknownBranchError`, `UnknownCommitError`, `RowError` for what is no key."""
        self._parts = parts
        point = resolve_ref(parts, ref)
        self._state: GraphState
        self._state, self._head = find_commit(parts, point.commit, point.branch)
        self._commits = parts.manifest.commits(self._state.branch)
        known = {kind.key: kind for kind in self._state.history.values()} | self._state.types
        self._table = resolve_table(table, known)
        self._wanted, self._name = key, known[self._table].table
        keys_table(known[self._table], [key])
        self._lineage = Lineage(self._commits, parts.orders)
        self._rows: dict[Pin, Row | None] = {}
        self._signs: dict[str, str] = {}
        self._changed: dict[tuple[str, int], Collection[str]] = {}
        """The fields that traces name, by type."""
        self._traced = True

    def _pin(self, commit: str) -> Pin | None:
        return self._commits[commit].pins.get(self._table)

    def _row(self, commit: str) -> Row | None:
        """The row at a commit. Raises `RemovedCommitError` if a cleanup has taken it."""
        pin = self._pin(commit)
        if pin is None:
            return None
        if pin not in self._rows:
            record: CommitRecord = self._commits[commit]
            kind = types_of(self._parts, record, self._state)[pin.schema]
            place = self._parts.place
            if not place.has_version(kind.location, pin.branch, pin.version):
                require(self._parts, record, self._state)
            names = [field.name for field in kind.fields if field.type != "blob"]
            found = self._parts.tables.find(kind, pin, keys_table(kind, [self._wanted]), names)
            self._rows[pin] = plain_row(kind, found.to_pylist()[0]) if found.num_rows else None
        return self._rows[pin]

    def _trace(self, commit: str) -> int | None:
        """What a commit made of the row that its first parent shows, as its trace tells: the fields that became others,
        a bit for each; None if there is no trace."""
        record = self._commits[commit]
        pin, before = self._pin(commit), self._pin(record.parent) if record.parent in self._commits else None
        trace: Trace | None = record.extra.get(TRACES, {}).get(self._table)
        if trace is None or not self._traced or pin is None or before is None or pin.schema != before.schema:
            return None
        if pin.schema not in self._signs:
            kind = types_of(self._parts, record, self._state)[pin.schema]
            [self._signs[pin.schema]] = sign(kind, keys_table(kind, [self._wanted]))
        return trace.get(self._signs[pin.schema], 0)

    def _wrote(self, commit: str) -> bool:
        """Whether a commit gave the row a state that none of its parents has."""
        pin, parents = self._pin(commit), self._lineage.parents(commit)
        if any(self._pin(parent) == pin for parent in parents) or self._trace(commit) == 0:
            return False
        row = self._row(commit)
        before = [self._row(parent) for parent in parents] or [None]
        return not any(_same_rows(row, one) for one in before)

    def versions(self) -> Iterator[RowVersion[str]]:
        """All states of the row, newest first."""
        for id in missing(self._lineage, self._head.id, []):
            if self._wrote(id):
                yield RowVersion(self._commits[id].as_history(), self._row(id))

    def blame(self) -> dict[str, Commit[str]]:
        """For each field the commit that wrote its value. Raises `NotFound` if the row is not there."""
        row = self._row(self._head.id)
        if row is None:
            raise NotFound(f"there is no row {self._wanted!r} in {self._name} at commit {self._head.id}",
                           hint="history tells whether it was there before")
        authors = self._authors(row)
        if not all(self._is_author(commit, name, row[name]) for name, commit in authors.items()):
            self._traced = False  # another row with the same sign, or another spelling of the same value
            authors = self._authors(row)
        return {name: self._commits[commit].as_history() for name, commit in authors.items()}

    def _authors(self, row: Row) -> dict[str, str]:
        return blame(self._head.id, row, parents=self._lineage.parents, wrote=self._writer, same=_same,
                     read=lambda commit: self._row(commit) or {}, unchanged=self._unchanged)

    def _writer(self, commit: str) -> str | None:
        """The newest commit at or before another, along first parents, that wrote the row."""
        while parents := self._lineage.parents(commit):
            if self._pin(parents[0]) != self._pin(commit):
                trace = self._trace(commit)
                if trace or (trace is None and not _same_rows(self._row(parents[0]), self._row(commit))):
                    break
            commit = parents[0]
        return commit

    def _unchanged(self, commit: str, parent: str, names: Collection[str]) -> Collection[str] | None:
        """Which fields a commit has from a parent, as far as its trace tells."""
        record = self._commits[commit]
        trace = self._trace(commit) if parent == record.parent else None
        if trace is None:
            return None
        schema = record.pins[self._table].schema
        if (schema, trace) not in self._changed:
            self._changed[schema, trace] = changed_fields(types_of(self._parts, record, self._state)[schema], trace)
        return [name for name in names if name not in self._changed[schema, trace]]

    def _is_author(self, commit: str, name: str, value: Any) -> bool:
        """Whether a commit shows a value of a field, and no parent of it does."""
        row = self._row(commit)
        before = [self._row(parent) or {} for parent in self._lineage.parents(commit)]
        return row is not None and name in row and _same(row[name], value) and not any(
            name in one and _same(one[name], value) for one in before)


def _same_rows(one: Row | None, other: Row | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and isnan(one) and isnan(other):
        return True
    return bool(one == other)
