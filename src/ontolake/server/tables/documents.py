"""Pages of documents, by id."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ontolake.documents.parallel import bounds, schema
from ontolake.documents.values import codec
from ontolake.history import UnknownTableError
from ontolake.parallel import Filter
from ontolake.server.tables.pages import RowChunk, TableReader
from ontolake.stores import Store


class DocumentTable(TableReader):
    """The documents of a space. Positions are ids."""

    def __init__(self, found: Store, snapshot: Any, table: str) -> None:
        """Raises `NotFound` for another table than that of documents."""
        if table not in snapshot.tables():
            raise UnknownTableError(table, snapshot.tables())
        self.found, self.table, self._snapshot = found, table, snapshot
        self.commit, self.branch, self.place = snapshot.commit, snapshot.branch, snapshot.branch
        self.schema, self.keys = schema("latest"), ["id"]

    def chunk(self, columns: Sequence[str], filters: Sequence[Filter], after: Any, size: int) -> RowChunk:
        import pyarrow as pa

        low, high = bounds(filters)
        if after is not None:
            low = max(low, after + "\0")
        rows: list[tuple[Any, ...]] = []
        if high is None or low < high:
            rows = list(itertools.islice(self._snapshot.between(low, high, page=size), size))
        ids = [row[0] for row in rows]
        parts: dict[str, list[Any]] = {"id": ids, "commit_id": [row[2] for row in rows]}
        if "document" in columns:
            parts["document"] = [codec.encode(row[1]) for row in rows]
        fields = pa.schema([self.schema.field(name) for name in columns])
        return RowChunk(pa.table([pa.array(parts[one.name], one.type) for one in fields], schema=fields), ids,
                        ids[-1] if len(rows) == size else None)
