"""Pages of graphs: rows in the order of their files, which stays the same at one commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ontolake.graph.splits import condition, fitted, public_schema
from ontolake.parallel import Filter
from ontolake.server.tables.pages import CHUNK, RowChunk, TableReader
from ontolake.stores import Store


class GraphTable(TableReader):
    """The rows of a node or edge type. Positions are a fragment and how many rows of it were read."""

    def __init__(self, found: Store, snapshot: Any, table: str) -> None:
        """Raises `UnknownTableError` for a table that is not there."""
        view = snapshot.table(table)
        self.found, self.table = found, table
        self.commit, self.branch, self.place = snapshot.commit, snapshot.branch, snapshot.branch
        self.schema, self.keys = public_schema(view.kind, "latest"), list(view.kind.keys)
        self._view = view

    def chunk(self, columns: Sequence[str], filters: Sequence[Filter], after: Any, size: int) -> RowChunk:
        import pyarrow as pa

        wanted = pa.schema([self.schema.field(name) for name in columns])
        dataset = self._view.dataset
        where = condition(self._view.kind, filters)
        if where is not None and after is None:  # a few rows are found by indexes and statistics, wherever they are
            few = [fitted(one, wanted) for one in
                   dataset.scanner(columns=list(columns), filter=where, limit=size).to_batches()]
            rows = pa.Table.from_batches(few, wanted)
            if rows.num_rows < size:
                return RowChunk(rows, range(rows.num_rows), None)
        if where is not None:
            size = max(size, CHUNK)  # how many of the rows fulfil it is not known
        place, start = (0, 0) if after is None else after
        fragments = dataset.get_fragments()
        while place < len(fragments):
            fragment = fragments[place]
            scanner: Any = dataset.scanner(fragments=[fragment], columns=list(columns), offset=start, limit=size)
            rows = pa.Table.from_batches([fitted(one, wanted) for one in scanner.to_batches()], wanted)
            if rows.num_rows:
                positions = [(place, start + n + 1) for n in range(rows.num_rows)]
                is_last = rows.num_rows < size and place == len(fragments) - 1
                end = None if is_last else positions[-1] if rows.num_rows == size else (place + 1, 0)
                return RowChunk(rows, positions, end)
            place, start = place + 1, 0
        return RowChunk(wanted.empty_table(), (), None)
