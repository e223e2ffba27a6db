"""The tables of a graph as they were at one commit. They never change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ontolake.errors import Invalid
from ontolake.graph.arguments import check_names, check_optional_number
from ontolake.graph.commit.records import CommitRecord, Pin
from ontolake.graph.tables.datasets import GraphTables
from ontolake.graph.tables.filters import filtering, to_sql
from ontolake.graph.tables.rows import keys_table
from ontolake.graph.tables.types import GraphType, resolve_table

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

Guard = Callable[[], AbstractContextManager[None]]
"""Around what is read: tells rows that a cleanup has removed from damage."""


class TableView:
    """One table of a snapshot."""

    def __init__(self, tables: GraphTables, kind: GraphType, pin: Pin, guard: Guard = nullcontext) -> None:
        self.kind = kind
        self.pin = pin
        self._tables = tables
        self._guard = guard

    @property
    def name(self) -> str:
        return self.kind.table

    @property
    def dataset(self) -> LanceDataset:
        """The Lance dataset at the version that is shown, for readers of their own. Not to be written to."""
        with self._guard():
            return self._tables.at(self.kind, self.pin)

    def __len__(self) -> int:
        return self.count()

    def _columns(self, columns: Sequence[str] | None) -> list[str]:
        check_names(columns=columns)
        known = [field.name for field in self.kind.fields if columns is not None or field.type != "blob"]
        for name in columns or ():
            if name not in self.kind.by_name:
                raise Invalid(f"{self.name} has no column {name!r}", hint=f"it has {', '.join(self.kind.by_name)}")
        return list(columns) if columns is not None else known

    def to_arrow(self, filter: Any = None, columns: Sequence[str] | None = None, limit: int | None = None) -> pa.Table:
        """The rows, or those that a filter takes; blobs only where their column is named.

        Raises `Invalid` for a filter or a column that makes no sense, `DamagedGraphError`.
        """
        wanted = self._columns(columns)
        check_optional_number(0, limit=limit)
        with self._guard(), filtering(self.kind, filter):
            return self.dataset.to_table(columns=wanted, filter=to_sql(filter), limit=limit)

    def batches(self, filter: Any = None, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The same, a batch at a time."""
        with self._guard(), filtering(self.kind, filter):
            yield from self.dataset.to_batches(columns=self._columns(columns), filter=to_sql(filter))

    def count(self, filter: Any = None) -> int:
        with self._guard(), filtering(self.kind, filter):
            return int(self.dataset.count_rows(to_sql(filter)))

    def get(self, key: Any) -> dict[str, Any] | None:
        """The row with a key (a tuple for an edge), or None."""
        with self._guard():
            found = self._tables.find(self.kind, self.pin, keys_table(self.kind, [key]), self._columns(None))
        return self.row(found, 0) if found.num_rows else None

    def get_many(self, keys: Any) -> pa.Table:
        """The rows with these keys, those that are there, in no order."""
        names = [field.name for field in self.kind.fields if field.type != "blob"]
        with self._guard():
            return self._tables.lookup(self.kind, self.dataset, keys_table(self.kind, keys), names)

    def row(self, table: pa.Table, index: int) -> dict[str, Any]:
        """One row of an Arrow table as a dict, JSON parsed."""
        return self.plain({name: table.column(name)[index].as_py() for name in table.column_names})

    def plain(self, row: dict[str, Any]) -> dict[str, Any]:
        return plain_row(self.kind, row)

    def key_of(self, row: dict[str, Any]) -> Any:
        return row_key(self.kind, row)


def plain_row(kind: GraphType, row: dict[str, Any]) -> dict[str, Any]:
    """A row with its JSON parsed."""
    for field in kind.fields:
        if field.type == "json" and isinstance(row.get(field.name), str):
            row[field.name] = json.loads(row[field.name])
    return row


def row_key(kind: GraphType, row: dict[str, Any]) -> Any:
    return row[kind.keys[0]] if kind.kind == "node" else tuple(row[name] for name in kind.keys)


class SnapshotTables:
    """The tables that a branch showed at a commit."""

    def __init__(
        self, tables: GraphTables, branch: str, record: CommitRecord, history: Mapping[str, GraphType],
        guard: Guard = nullcontext,
    ) -> None:  # fmt: skip
        self._guard = guard
        self._tables = tables
        self.branch = branch
        self.record = record
        self.types = {key: history[pin.schema] for key, pin in record.pins.items()}
        self.adjacency: dict[str, Any] = {}
        """Positions of nodes and edges by node, as walks need them; made when they are first needed."""

    @property
    def root(self) -> str:
        """Where the graph is."""
        return self._tables.place.root

    @property
    def commit(self) -> str:
        return self.record.id

    @property
    def pins(self) -> dict[str, Pin]:
        return self.record.pins

    def tables(self) -> list[str]:
        """The names of the tables, sorted: `edge/Placed`, `node/Customer`."""
        return sorted(kind.table for kind in self.types.values())

    def table(self, name: Any) -> TableView:
        """A table by its name or its class. Raises `UnknownTableError`."""
        key = resolve_table(name, self.pins)
        return TableView(self._tables, self.types[key], self.pins[key], self._guard)

    def get(self, table: Any, key: Any) -> dict[str, Any] | None:
        return self.table(table).get(key)

    def rows(self, table: str) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Every row with its key, by key."""
        view = self.table(table)
        found = view.to_arrow()
        for row in found.sort_by([(name, "ascending") for name in view.kind.keys]).to_pylist():
            yield view.key_of(row), view.plain(row)
