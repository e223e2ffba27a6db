"""Pages of rows: where a page begins is found by its position, so that every page costs the same.

A `TableReader` reads chunks of one table at one commit behind a position: a key where the model keeps rows by key, a
place in the files where it does not. Positions are values of the model's own; cursors carry them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ontolake.errors import NotFound
from ontolake.parallel import Filter
from ontolake.server.tables.filters import mask
from ontolake.stores import Store

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 65_536


@dataclass
class RowChunk:
    """Some rows in the order of the table. `positions` has that of each row, `end` where reading goes on; None if these
    are the last rows."""

    rows: pa.Table
    positions: Sequence[Any]
    end: Any


class TableReader(ABC):
    """One table of a store at one commit, as parallel readers see its columns."""

    found: Store
    table: str
    commit: Any
    branch: str
    place: str
    """The branch that readers in parallel open."""
    schema: pa.Schema
    keys: Sequence[str]
    ref: str = ""
    """A reference to the commit, for whoever opens the table again."""

    @abstractmethod
    def chunk(self, columns: Sequence[str], filters: Sequence[Filter], after: Any, size: int) -> RowChunk:
        """About `size` rows behind a position, at least one unless there are no more. Filters may leave more rows in
        than fulfil them, never fewer."""

    def batches(self, columns: Sequence[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        """All rows in no particular order, lazily. Filters as in `chunk`."""
        try:
            parallel = self.found.open_parallel(branch=self.place)
        except NotFound:  # the branch is gone, and a tag has kept the commit
            yield from self._by_chunks(columns, filters)
            return
        with parallel:
            view = parallel.view(as_of=self.commit)
            for split in parallel.splits(self.table, view, columns, filters):
                yield from split.read()

    def _by_chunks(self, columns: Sequence[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        after = None
        while True:
            chunk = self.chunk(columns, filters, after, CHUNK)
            yield from chunk.rows.to_batches()
            after = chunk.end
            if after is None:
                return

    def stream(self, columns: Sequence[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        """All rows that fulfil filters, in these columns."""
        needed = list(dict.fromkeys([*columns, *(one.column for one in filters)]))
        for batch in self.batches(needed, filters):
            chosen = mask(batch, filters)
            found = batch if chosen is None else batch.filter(chosen)
            if found.num_rows:
                yield found if needed == list(columns) else found.select(list(columns))


def read_page(
    reader: TableReader, columns: Sequence[str], filters: Sequence[Filter], after: Any, limit: int
) -> tuple[pa.Table, Any]:  # fmt: skip
    """Up to `limit` rows behind a position, and the position of the last one; None if there are no more."""
    import pyarrow as pa
    import pyarrow.compute as pc

    needed = list(dict.fromkeys([*columns, *(one.column for one in filters)]))
    parts: list[Any] = []
    positions: list[Any] = []
    size = limit + 1
    while len(positions) <= limit:
        chunk = reader.chunk(needed, filters, after, size)
        chosen = mask(chunk.rows, filters)
        if chosen is None:
            parts.append(chunk.rows)
            positions += chunk.positions
        else:
            places = pc.indices_nonzero(chosen).to_pylist()
            parts.append(chunk.rows.filter(chosen))
            positions += [chunk.positions[place] for place in places]
        after = chunk.end
        if after is None:
            break
        size = min(size * 4, CHUNK)
    rows = pa.concat_tables(parts).slice(0, limit).select(list(columns))
    return rows, positions[limit - 1] if len(positions) > limit else None
