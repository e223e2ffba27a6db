"""The rules that hold between rows: keys, unique columns, cardinality of edges, endpoints that exist.

Each check looks only for what the change could break, so its cost follows the change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_keys import KeySet, are_distinct, contains, repeated
from ontolake.graph.commit.records import Pin
from ontolake.graph.errors import ConstraintError, DuplicateKeyError, EndpointError, reading
from ontolake.graph.tables import datasets
from ontolake.graph.tables.changes import TableChange
from ontolake.graph.tables.datasets import GraphTables, having
from ontolake.graph.tables.rows import key_at
from ontolake.graph.tables.types import LEFT, RIGHT, GraphType

if TYPE_CHECKING:
    from lance import LanceDataset

Problem = Callable[[ConstraintError], None]


def _raise(error: ConstraintError) -> None:
    raise error


class Checker:
    """Checks changes against the tables that are pinned. `report` takes what is wrong; by default it is raised."""

    def __init__(
        self, tables: GraphTables, types: Mapping[str, GraphType], pins: Mapping[str, Pin],
        changes: Mapping[str, TableChange], report: Problem = _raise,
    ) -> None:  # fmt: skip
        self.tables, self.types, self.pins, self.changes, self.report = tables, types, pins, changes, report

    def _dataset(self, key: str) -> LanceDataset | None:
        """The rows that stay unless a change touches them; None if there are none."""
        pin = self.pins[key]
        if pin.rows == 0 or (key in self.changes and self.changes[key].replace):
            return None
        return self.tables.at(self.types[key], pin)

    def within_tables(self) -> None:
        """Unique columns and cardinality. Raises `ConstraintError`."""
        for key, change in self.changes.items():
            kind = self.types[key]
            if change.puts is None:
                continue
            for field in kind.fields:
                if field.unique and field.name not in kind.keys:
                    self._unique(kind, change, field.name, "unique", f"the value of {field.name} is taken already")
            if kind.cardinality in ("1:n", "1:1"):
                self._unique(kind, change, RIGHT, "cardinality",
                             f"a {kind.right} has at most one {kind.name} (cardinality {kind.cardinality})")
            if kind.cardinality in ("n:1", "1:1"):
                self._unique(kind, change, LEFT, "cardinality",
                             f"a {kind.left} has at most one {kind.name} (cardinality {kind.cardinality})")

    def _unique(self, kind: GraphType, change: TableChange, column: str, rule: str, reason: str) -> None:
        puts = change.puts
        assert puts is not None
        valid = pc.is_valid(puts.column(column))
        given, places = puts.column(column).filter(valid), np.flatnonzero(valid)
        if len(given) == 0:
            return
        if not are_distinct(given):
            for _, again in repeated(given):
                self._tell(kind, puts, int(places[again]), column, rule, reason)
        dataset = self._dataset(kind.key)
        if dataset is None:
            return
        names = [*dict.fromkeys((*kind.keys, column))]
        with reading(kind.table):
            stored = having(dataset, names, column, given)
        for keys in (puts, change.deletes):
            if keys is not None and stored.num_rows:
                stored = stored.filter(pc.invert(contains(keys, stored, kind.keys)))
        taken = np.flatnonzero(KeySet(stored.column(column)).has(given)) if stored.num_rows else ()
        told: set[Any] = set()
        for row in map(int, taken):
            if (value := given[row].as_py()) not in told:
                told.add(value)
                self._tell(kind, puts, int(places[row]), column, rule, reason)

    def _tell(self, kind: GraphType, table: pa.Table, row: int, column: str, rule: str, reason: str) -> None:
        self.report(ConstraintError(kind.table, rule, f"{reason}: {table.column(column)[row].as_py()!r}", row=row,
                                    key=key_at(kind, table, row), column=column))

    def fresh_keys(self, key: str, puts: pa.Table) -> None:
        """That no row to append is there already. Raises `DuplicateKeyError`."""
        if self._dataset(key) is None:
            return
        kind = self.types[key]
        row = pc.index(self.tables.there(kind, self.pins[key], puts), pa.scalar(True)).as_py()
        if row >= 0:
            raise DuplicateKeyError(kind.table, "the key is there already", row=row, key=key_at(kind, puts, row),
                                    column=kind.keys[0], hint="use mode='merge' to change rows that are there")

    # Between tables

    def between_tables(self) -> None:
        """Endpoints of new edges exist, and no node goes that an edge still needs. Raises `EndpointError`."""
        for key, change in self.changes.items():
            kind = self.types[key]
            if kind.kind == "edge" and change.puts is not None:
                self._endpoints(kind, change.puts)
            elif kind.kind == "node" and (change.deletes is not None or change.replace):
                self._stranded(kind, change)

    def reads(self) -> set[str]:
        """The tables that `between_tables` looks at beside those that change."""
        found: set[str] = set()
        for key, change in self.changes.items():
            kind = self.types[key]
            if kind.kind == "edge":
                found.update(node for _, node in kind.ends)
            elif change.deletes is not None or change.replace:
                found.update(edge.key for edge in self.types.values() if key in (end for _, end in edge.ends))
        return found - self.changes.keys()

    def _endpoints(self, kind: GraphType, puts: pa.Table) -> None:
        there: dict[str, KeySet] = {}
        for column, end in kind.ends:
            if end not in there:
                ends = [puts.column(name) for name, other in kind.ends if other == end]
                there[end] = self._nodes(self.types[end], ends)
            if not there[end].has_all(puts.column(column)):
                missing = ~there[end].has(puts.column(column))
                self._nowhere(kind, puts.filter(pa.array(missing)), np.flatnonzero(missing), column, self.types[end])

    def _nodes(self, node: GraphType, ends: list[Any]) -> KeySet:
        """The keys of nodes that will be there: all of them, or at least those that edges end at."""
        change, name = self.changes.get(node.key), node.keys[0]
        parts = [change.puts.column(name)] if change is not None and change.puts is not None else []
        dataset = self._dataset(node.key)
        if dataset is not None:
            given = pa.chunked_array([chunk for column in ends for chunk in column.chunks], ends[0].type)
            if len(given) <= datasets.FEW_KEYS:
                wanted = pc.unique(given)
                if parts:
                    wanted = wanted.filter(pa.array(~KeySet(parts).has(wanted)))
                keys = pa.table({name: wanted})
                stored = keys.filter(self.tables.there(node, self.pins[node.key], keys)).column(name)
            else:
                with reading(node.table):
                    stored = dataset.to_table(columns=[name]).column(name)
            if change is not None and change.deletes is not None:
                stored = stored.filter(pa.array(~KeySet(change.deletes.column(name)).has(stored)))
            parts.append(stored)
        return KeySet(parts or [pa.chunked_array([], ends[0].type)])

    def _nowhere(self, kind: GraphType, puts: pa.Table, rows: Any, column: str, node: GraphType) -> None:
        """Tell every node that is missing once, with the first row that leads there."""
        values = puts.column(column)
        for value in pc.unique(values).to_pylist():
            row = pc.index(values, pa.scalar(value, values.type)).as_py()
            self.report(EndpointError(kind.table, f"there is no {node.name} {value!r}", row=int(rows[row]),
                                      key=key_at(kind, puts, row), column=column,
                                      hint=f"load the {node.name} first, or in the same transaction"))

    def _stranded(self, node: GraphType, change: TableChange) -> None:
        gone = self.removed(node, change)
        if gone is None or gone.num_rows == 0:
            return
        keys = gone.column(node.keys[0]).combine_chunks()
        for edge in self.types.values():
            for column, end in edge.ends:
                if end != node.key:
                    continue
                left = self.edges_at(edge, column, keys)
                for row in range(left.num_rows):
                    key = key_at(edge, left, row)
                    self.report(EndpointError(
                        edge.table, f"the edge leads to {node.name} {left.column(column)[row].as_py()!r}, "
                        "which goes", key=key, column=column,
                        hint="delete the edges too: cascade=True, or --cascade"))  # fmt: skip

    def removed(self, kind: GraphType, change: TableChange) -> pa.Table | None:
        """The keys of the rows that a change takes away."""
        if not change.replace:
            return change.deletes
        pin = self.pins[kind.key]
        if pin.rows == 0:
            return None
        with reading(kind.table):
            stored = self.tables.at(kind, pin).to_table(columns=list(kind.keys))
        return stored if change.puts is None else stored.filter(pc.invert(contains(change.puts, stored, kind.keys)))

    def edges_at(self, edge: GraphType, column: str, nodes: Any) -> pa.Table:
        """The keys of the stored edges with these nodes at one end, but for those that go or are written anew."""
        dataset = self._dataset(edge.key)
        if dataset is None:
            return pa.Table.from_batches([], pa.schema([edge.schema.field(name) for name in edge.keys]))
        with reading(edge.table):
            found = having(dataset, list(edge.keys), column, nodes)
        change = self.changes.get(edge.key)
        for keys in (change.puts, change.deletes) if change is not None else ():
            if keys is not None and found.num_rows:
                found = found.filter(pc.invert(contains(keys, found, edge.keys)))
        return found
