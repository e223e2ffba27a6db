"""The keys of tables, kept in memory while a process writes to them: checks of small commits then need no scan.

What is kept holds for exactly one version of a line. It is moved on with every change that this process makes to it;
where others have moved a table, only fragments that are new are read.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ontolake.graph.commit.records import Pin
from ontolake.graph.tables.changes import TableChange
from ontolake.graph.tables.membership import KeyBlock, KeyLookup, values_of
from ontolake.graph.tables.types import GraphType

if TYPE_CHECKING:
    from lance import LanceDataset
    from numpy.typing import NDArray

READ_ROWS = 20_000
"""Tables of up to so many rows have their keys read at once; those of bigger ones when they are asked for again."""
MOST_ROWS = 4_000_000
"""Keys of bigger tables are not kept."""
KEPT_ROWS = 8_000_000
"""Rows whose keys are kept of all tables."""
SINGLE_ROWS = 65_536
"""Keys that are kept one by one for a line, and keys of a fragment up to which they are."""
_FIRST = 2
_PER_ASKING = 500_000
"""A table with an index is read after the first questions, and one more for each so many of its rows."""
_KEPT_LINES = 32

Line = tuple[str, str | None]
Files = tuple[str, ...]
"""The data files of a fragment and the file of its deletions: what has the same ones has the same rows."""


class _View:
    """The keys of one version of a line: of fragments, those written since, less those deleted since."""

    def __init__(self, version: int, files: set[Files], blocks: list[KeyBlock], single: set[Any]) -> None:
        self.version, self.files, self.blocks = version, files, blocks
        self.single = single
        self.gone: set[Any] = set()

    def fork(self) -> _View:
        made = _View(self.version, set(self.files), list(self.blocks), set(self.single))
        made.gone = set(self.gone)
        return made

    def has(self, wanted: KeyLookup) -> NDArray[Any]:
        found = np.zeros(len(wanted.columns[0]), dtype=bool)
        for block in self.blocks:
            found |= block.has(wanted)
        for number, value in enumerate(wanted.values):
            found[number] = value in self.single or (found[number] and value not in self.gone)
        return found


class KnownKeys:
    """Keys by table and line of versions."""

    def __init__(self) -> None:
        self._views: OrderedDict[Line, _View] = OrderedDict()
        self._blocks: dict[str, dict[Files, KeyBlock | list[Any]]] = {}
        self._asked: Counter[Line] = Counter()
        self._lock = threading.Lock()

    def among(
        self, kind: GraphType, pin: Pin, keys: pa.Table, dataset: Callable[[], LanceDataset]
    ) -> NDArray[Any] | None:  # fmt: skip
        """For each key whether a version has it; None if a look into the dataset is the better way to tell."""
        columns = [keys.column(name) for name in kind.keys]
        if pin.rows > MOST_ROWS or any(column.null_count or not _plain(column.type) for column in columns):
            return None
        where, wanted = (kind.location, pin.branch), KeyLookup(columns)
        with self._lock:
            view = self._views.get(where)
            if view is not None and view.version == pin.version:
                self._views.move_to_end(where)
                return view.has(wanted)
        read = self._read(kind, pin, dataset())
        if read is None:
            return None
        with self._lock:
            found = read.has(wanted)
            self._keep(where, read)
        return found

    def _read(self, kind: GraphType, pin: Pin, dataset: LanceDataset) -> _View | None:
        where = (kind.location, pin.branch)
        with self._lock:
            kept = dict(self._blocks.get(kind.location, {}))
            self._asked[where] += 1
        fragments = {fragment.fragment_id: fragment for fragment in dataset.get_fragments()}
        files = {id: _files(fragment.metadata) for id, fragment in fragments.items()}
        missing = [id for id in fragments if files[id] not in kept]
        rows = sum(fragments[id].metadata.num_rows for id in missing)
        if rows > READ_ROWS and self._asked[where] <= _FIRST + rows // _PER_ASKING and _indexed(dataset, kind.keys[0]):
            return None
        for id, columns in _columns(dataset, [fragments[id] for id in missing], kind.keys).items():
            small = len(columns[0]) <= SINGLE_ROWS // 16
            kept[files[id]] = values_of(columns) if small else KeyBlock(columns)
        shown = [kept[files[id]] for id in fragments]
        view = _View(pin.version, set(files.values()), [one for one in shown if isinstance(one, KeyBlock)],
                     {value for one in shown if not isinstance(one, KeyBlock) for value in one})
        with self._lock:
            self._blocks[kind.location] = {**self._blocks.get(kind.location, {}), **kept}
        return view

    def _keep(self, where: Line, view: _View) -> None:
        self._views[where] = view
        self._views.move_to_end(where)
        while len(self._views) > 1 and (len(self._views) > _KEPT_LINES or self._rows() > KEPT_ROWS):
            self._views.popitem(last=False)
        for location in list(self._blocks):
            used = {files for line, one in self._views.items() if line[0] == location for files in one.files}
            self._blocks[location] = {files: one for files, one in self._blocks[location].items() if files in used}
            if not used:
                del self._blocks[location]

    def _rows(self) -> int:
        blocks = {id(block): block.rows for view in self._views.values() for block in view.blocks}
        return sum(blocks.values())

    def moved(self, kind: GraphType, before: Pin, change: TableChange, version: int, line: str | None) -> None:
        """A change has made a version of a line from what a pin shows, which may be on the line that it forked from."""
        new = change.puts.num_rows if change.puts is not None else 0
        lost = change.deletes.num_rows if change.deletes is not None else 0
        with self._lock:
            view = self._views.get((kind.location, before.branch))
            if line == before.branch:
                self._views.pop((kind.location, line), None)
            if view is None or view.version != before.version or change.replace or (
                new + lost + len(view.single) + len(view.gone) > SINGLE_ROWS):
                return
            if line != before.branch:
                view = view.fork()
            if change.puts is not None:
                added = _values(kind, change.puts)
                view.single.update(added)
                view.gone.difference_update(added)
            if change.deletes is not None:
                removed = _values(kind, change.deletes)
                view.single.difference_update(removed)
                view.gone.update(removed)
            view.version = version
            self._keep((kind.location, line), view)

    def forget(self, branch: str) -> None:
        with self._lock:
            for where in [where for where in self._views if where[1] == branch]:
                del self._views[where]


def _plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind))


def _values(kind: GraphType, keys: pa.Table) -> list[Any]:
    return values_of([keys.column(name) for name in kind.keys])


def _files(fragment: Any) -> Files:
    deleted = fragment.deletion_file
    return (*(file.path for file in fragment.files), str(deleted.path(fragment.id)) if deleted is not None else "")


def _indexed(dataset: LanceDataset, column: str) -> bool:
    return any(column in index.field_names and "BTree" in index.type_url for index in dataset.describe_indices())


def _columns(dataset: LanceDataset, fragments: list[Any], names: tuple[str, ...]) -> dict[int, list[Any]]:
    """The key columns of fragments, each by itself."""
    if not fragments:
        return {}
    scanner = dataset.scanner(columns=list(names), fragments=fragments, with_row_address=True, scan_in_order=True)
    table = scanner.to_table()
    owners = table.column("_rowaddr").to_numpy() >> 32
    begins = [0, *(np.flatnonzero(owners[1:] != owners[:-1]) + 1).tolist(), len(owners)] if len(owners) else [0]
    found = {fragment.fragment_id: [table.column(name).slice(0, 0) for name in names] for fragment in fragments}
    for begin, end in pairwise(begins):
        found[int(owners[begin])] = [table.column(name).slice(begin, end - begin) for name in names]
    return {id: [column.combine_chunks() for column in columns] for id, columns in found.items()}
