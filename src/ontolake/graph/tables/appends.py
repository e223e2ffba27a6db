"""Many new rows, written to files while they are still being checked. Nobody sees them before their table moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ontolake.graph.commit.records import Pin
from ontolake.graph.concurrency import begin, in_order
from ontolake.graph.place import GraphPlace
from ontolake.graph.tables import tiers
from ontolake.graph.tables.types import GraphType

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

STEP_ROWS = 2 * tiers.FRAGMENT_ROWS
"""Rows that are written in one go, beside others; their files are made durable while the next ones are written."""
STAGED_ROWS = 50_000
"""Rows from which on writing and checking overlap."""


class _Tables(Protocol):
    place: GraphPlace

    def at(self, kind: GraphType, pin: Pin) -> LanceDataset: ...


OnWritten = Callable[[Sequence[Any]], None]


def append(place: GraphPlace, base: LanceDataset, rows: pa.Table, on_written: OnWritten | None = None) -> Any:
    """Files with new rows, and the transaction that would make them part of a dataset.

    `on_written` is given fragments whose files are whole while others are still being written.
    """
    from lance.dataset import LanceOperation, Transaction
    from lance.fragment import write_fragments

    def write(start: int) -> Any:
        return write_fragments(rows.slice(start, STEP_ROWS), base, mode="append", storage_options=place.options,
                               max_rows_per_file=tiers.FRAGMENT_ROWS)

    fragments: list[Any] = []
    for written in in_order([partial(write, start) for start in range(0, rows.num_rows, STEP_ROWS)]):
        if on_written is not None:
            on_written(written)
        fragments += written
    return Transaction(base.version, LanceOperation.Append(fragments))


class StagedAppend:
    """New rows of a table, on their way into files as soon as this is made."""

    def __init__(self, tables: _Tables, kind: GraphType, pin: Pin, rows: pa.Table) -> None:
        self.rows = rows
        self._place = tables.place
        self._taken = False
        self._base, self._line = tables.at(kind, pin), pin.branch
        self._written = begin(self._write)

    def _write(self) -> Any:
        return self._place.settled(self._base, self._line, partial(append, self._place, self._base, self.rows))

    def transaction(self, base: LanceDataset) -> Any:
        """What makes the rows part of the version that they were written for; None for any other one."""
        if base.version != self._base.version:
            return None
        self._taken = True
        return self._written.result()

    def discard(self) -> None:
        """Remove the files, unless a version of the table may have them: the rows are not wanted."""
        if not self._taken and self._written.exception() is None:
            self._place.remove_files(self._base, self._line, self._written.result())
