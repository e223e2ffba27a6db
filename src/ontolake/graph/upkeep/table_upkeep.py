"""Upkeep of one table beside its writers: fewer fragments, and indexes on keys that follow what is written.

New files are made first, from a version that is shown. They take the place of the old ones in a moment in which
nobody writes; what has changed too much meanwhile is left for the next time. Rows stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ontolake.graph.commit.records import Pin
from ontolake.graph.tables import indexes
from ontolake.graph.tables.datasets import GraphTables
from ontolake.graph.tables.indexes import wanted_indexes
from ontolake.graph.tables.origins import UPKEEP
from ontolake.graph.tables.tiers import rows_to_merge
from ontolake.graph.tables.types import GraphType

if TYPE_CHECKING:
    from lance import LanceDataset

SEGMENT_ROWS = 32_768
"""Rows of a fragment from which on it gets its part of an index that is there; smaller ones are read, and merged.

An indexed fragment is merged only with others of the same part of the index, so it should not be small."""
AT_ONCE_ROWS = 50_000
"""So many rows are rewritten again while writers wait, if somebody has changed them meanwhile."""


class Upkeep:
    """What there is to do for a table, prepared as far as that can be done beside writers."""

    def __init__(self, tables: GraphTables, kind: GraphType, pin: Pin) -> None:
        self.kind = kind
        self._tables = tables
        dataset = tables.own(kind, pin)
        self._segments = _build(dataset, kind, pin.rows)
        self._rewritten = _Rewritten(dataset, {id for segment in self._segments for id in segment.fragment_ids})

    @property
    def is_ready(self) -> bool:
        return bool(self._segments or self._rewritten.files)

    def take_over(self, pin: Pin, line: str | None) -> Pin | None:
        """Put what was made in its place, on top of what is pinned now. None if that cannot be done now."""
        moved = self._tables.rework(self.kind, pin, line, None, self._commit, UPKEEP)
        return pin._replace(version=moved.version) if moved is not None and moved.version != pin.version else None

    def _commit(self, dataset: LanceDataset) -> None:
        from lance.dataset import LanceOperation, Transaction
        from lance.optimize import Compaction

        for segment in self._segments:
            if not _is_missing(dataset, segment):
                continue  # somebody else was quicker
            transaction = Transaction(segment.dataset_version, LanceOperation.CreateIndex([segment], []))
            type(dataset).commit(dataset, transaction, max_retries=0, storage_options=self._tables.place.options)
            dataset.checkout_latest()  # type: ignore[no-untyped-call]
        rewritten = self._rewritten
        if rewritten.files and not rewritten.fits(dataset) and rewritten.rows <= AT_ONCE_ROWS:
            rewritten = _Rewritten(dataset, set())
        if rewritten.files and rewritten.fits(dataset):
            Compaction.commit(dataset, rewritten.files)


def _is_missing(dataset: LanceDataset, segment: Any) -> bool:
    """Whether a dataset has the fragments of a new part of an index, and no other part covers them."""
    covered = {id for index in dataset.describe_indices() if index.name == segment.name for id in _covered(index)}
    fragments = {fragment.fragment_id for fragment in dataset.get_fragments()}
    return set(segment.fragment_ids) <= fragments - covered


def _build(dataset: LanceDataset, kind: GraphType, rows: int) -> list[Any]:
    """New parts of the indexes that a table has or should have, for fragments that are big and not covered."""
    there = {index.name: index for index in dataset.describe_indices()}
    columns = {f"{column}_idx": column for column in wanted_indexes(kind, rows)}
    columns |= {name: index.field_names[0] for name, index in there.items() if "BTree" in index.type_url}
    fragments = {fragment.fragment_id: fragment.metadata.num_rows for fragment in dataset.get_fragments()}
    found = []
    for name, column in columns.items():
        index = there.get(name)
        if index is not None and "BTree" not in index.type_url:
            continue  # an index of another kind has the name
        covered, least = (_covered(index), SEGMENT_ROWS) if index is not None else (set(), indexes.INDEX_ROWS)
        missing = [id for id, size in fragments.items() if id not in covered and size >= least]
        if missing:
            found.append(dataset.create_index_uncommitted(column, "BTREE", name=name, replace=True,
                                                          fragment_ids=missing))
    return found


class _Rewritten:
    """New files for small fragments that no index covers."""

    def __init__(self, dataset: LanceDataset, fixed: set[int]) -> None:
        from lance.optimize import Compaction

        fixed = fixed.union(*(_covered(index) for index in dataset.describe_indices()))
        sizes = {fragment.fragment_id: fragment.metadata.num_rows for fragment in dataset.get_fragments()
                 if fragment.fragment_id not in fixed}  # fmt: skip
        target = rows_to_merge(sizes.values())
        tasks = Compaction.plan(dataset, {"target_rows_per_fragment": target}).tasks if target is not None else []
        tasks = [task for task in tasks if all(fragment.id in sizes for fragment in task.fragments)]
        replaced = {fragment.id for task in tasks for fragment in task.fragments}
        self._replaced = {id: files for id, files in _fragments(dataset).items() if id in replaced}
        self.rows = sum(sizes[id] for id in replaced)
        self.files = [task.execute(dataset) for task in tasks]

    def fits(self, dataset: LanceDataset) -> bool:
        """Whether a version still has the fragments, as they were."""
        return self._replaced.items() <= _fragments(dataset).items()


def _covered(index: Any) -> set[int]:
    return {id for segment in index.segments for id in segment.fragment_ids}


def _fragments(dataset: LanceDataset) -> dict[int, tuple[str, ...]]:
    """What each fragment of a dataset is made of: its files, and which of its rows are deleted."""
    return {fragment.fragment_id: (*(file.path for file in fragment.metadata.files), _deleted(fragment.metadata))
            for fragment in dataset.get_fragments()}  # fmt: skip


def _deleted(fragment: Any) -> str:
    return str(fragment.deletion_file.path(fragment.id)) if fragment.deletion_file is not None else ""
