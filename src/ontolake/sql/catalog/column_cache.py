"""Columns of whole tables that were read before, decoded, for queries that come back to them.

What is kept is kept for one version, so that nothing that was written since is missed; a moment of the past never
changes. The columns that were not used for longest go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import pyarrow as pa

from ontolake.sql.catalog.records import ColumnMeta, Table

ROOM = 128 * 1024 * 1024
"""How many bytes a database keeps, unless it is told otherwise."""

Where = tuple[int, int | None]
"""A table, by its id, and the moment at which it is read."""


class ColumnCache:
    """Decoded columns, by table and moment."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.size = 0
        self._kept: OrderedDict[Where, tuple[int, pa.Table]] = OrderedDict()

    def get(self, where: Where, version: int, columns: Sequence[ColumnMeta]) -> pa.Table | None:
        """All rows of these columns, if they are kept for this version."""
        found = self._valid(where, version)
        names = [column.name for column in columns]
        if found is None or not set(names) <= set(found.column_names):
            return None
        self._kept.move_to_end(where)
        return found.select(names)

    def with_kept(self, where: Where, version: int, columns: Sequence[ColumnMeta], table: Table) -> list[ColumnMeta]:
        """These columns of a table and those of it that are kept, so that all can be kept together."""
        found = self._valid(where, version)
        kept = [] if found is None else [table.by_name[name] for name in found.column_names]
        return list(dict.fromkeys([*columns, *kept]))

    def put(self, where: Where, version: int, table: pa.Table) -> None:
        """Keep all rows of some columns, if there is room for them."""
        self._drop(where)
        size = table.nbytes
        if size > self.room:
            return
        self._kept[where] = (version, table)
        self.size += size
        while self.size > self.room:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self.size = 0

    def _valid(self, where: Where, version: int) -> pa.Table | None:
        kept = self._kept.get(where)
        if kept is None or (where[1] is None and kept[0] != version):
            return None
        return kept[1]

    def _drop(self, where: Where) -> None:
        kept = self._kept.pop(where, None)
        if kept is not None:
            self.size -= kept[1].nbytes
