"""Indexes of tables: which ones a table should have, making them, and keeping them right when files are rewritten.

Lance leaves the entries of deleted rows in text and vector indexes. As long as a fragment has a deletion file, a search
masks them. When compaction has rewritten the fragment, nothing masks them any more, and they take the places of rows
that are there. So such an index is made anew with the compaction, and a search that comes back short asks again with a
mask of all rows (`ontolake.graph.read.queries`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ontolake.errors import Invalid
from ontolake.graph.errors import DamagedGraphError, in_short, reading
from ontolake.graph.tables.types import LEFT, RIGHT, GraphType

if TYPE_CHECKING:
    from lance import LanceDataset

INDEX_ROWS = 10_000
"""Rows from which on a table's keys get an index when it is optimized."""

INDEX_KINDS: Mapping[str, str] = {"btree": "BTREE", "text": "INVERTED", "vector": "IVF_FLAT"}
_SEARCHED: Mapping[str, str] = {"Inverted": "text", "Vector": "vector"}
"""Indexes that are searched for the best rows, by what Lance calls their details."""
_DETAILS: Mapping[str, str] = {**_SEARCHED, "BTree": "btree"}
"""All indexes, likewise."""
PARTITION_ROWS = 4096
"""Rows of one partition of a vector index."""


def wanted_indexes(kind: GraphType, rows: int) -> list[str]:
    """The columns that should have a BTREE."""
    found = [field.name for field in kind.fields if field.index and field.type not in ("json", "vector", "blob")]
    if rows >= INDEX_ROWS:
        found += [kind.keys[0]] if kind.kind == "node" else [LEFT, RIGHT]
    return list(dict.fromkeys(found)) if rows else []


def missing_indexes(dataset: LanceDataset, kind: GraphType) -> list[str]:
    """The columns that should have a BTREE and have none."""
    indexes = [index for index in dataset.describe_indices() if "BTree" in index.type_url]
    there = {column for index in indexes for column in index.field_names}
    return [column for column in wanted_indexes(kind, dataset.count_rows()) if column not in there]


def check_index(kind: GraphType, column: Any, index: Any) -> None:
    """Raises `Invalid` if a column cannot have an index of a kind."""
    field = kind.by_name.get(column)
    if field is None:
        raise Invalid(f"{kind.table} has no column {column!r}", hint=f"it has {', '.join(kind.by_name)}")
    if index not in INDEX_KINDS:
        raise Invalid(f"the index {index!r} is not known", hint=f"choose one of {', '.join(INDEX_KINDS)}")
    fits = {"text": field.scalar is not None and field.scalar.textual, "vector": field.type == "vector",
            "btree": field.type not in ("vector", "blob", "json")}[index]
    if not fits:
        raise Invalid(f"{kind.table}.{column} is of the type {field.type}, which takes no {index} index")


def make_index(dataset: LanceDataset, column: str, index: str, name: str | None = None) -> None:
    """Make an index of a kind on a column, in the place of one that is there.

    A column that was renamed keeps its index, and with it the name of that: a new one is called otherwise then.
    """
    if name is None:
        taken = {one.name: one.field_names for one in dataset.describe_indices()}
        name = f"{column}_idx"
        while taken.get(name, [column]) != [column]:
            name += "_"
    if index == "vector":
        partitions = max(1, min(256, dataset.count_rows() // PARTITION_ROWS))
        dataset.create_index(column, INDEX_KINDS[index], metric="L2", num_partitions=partitions, replace=True,
                             name=name)  # fmt: skip
    else:
        dataset.create_scalar_index(column, INDEX_KINDS[index], name=name, replace=True)  # type: ignore[arg-type]


def index_kind(index: Any) -> str | None:
    """The kind of an index, as `make_index` takes it; None for one that is not ours."""
    return _kind(index, _DETAILS)


def _kind(index: Any, details: Mapping[str, str]) -> str | None:
    return next((kind for sign, kind in details.items() if sign in index.type_url), None)


class Unreadable(NamedTuple):
    """An index whose files cannot be opened."""

    name: str
    column: str
    kind: str
    reason: str

    @property
    def what(self) -> str:
        return f"the {self.kind} index {self.name} on {self.column} cannot be read: {self.reason}"


def unreadable_indexes(dataset: LanceDataset, table: str) -> list[Unreadable]:
    """The indexes of a table that have to be made anew.

    Raises `DamagedGraphError` if the list of them cannot be read, and `Transient` if the storage does not answer.

    Earlier releases left such indexes when they optimized a branch: see `masked`.
    """
    found = []
    with reading(table):
        indexes = dataset.describe_indices()
    for index in indexes:
        kind = _kind(index, _DETAILS)
        try:
            with reading(table):
                _open(dataset, index, kind)
        except DamagedGraphError as error:
            if kind is not None:
                found.append(Unreadable(index.name, index.field_names[0], kind, in_short(error.__cause__ or error)))
    return found


def _open(dataset: LanceDataset, index: Any, kind: str | None) -> None:
    """Have Lance open all parts of an index. Statistics of vector indexes hold all centroids, so these are asked."""
    if kind != "vector":
        dataset.stats.index_stats(index.name)
        return
    column = index.field_names[0]
    nowhere = np.zeros(dataset.schema.field(column).type.list_size, dtype=np.float32)
    nearest = {"column": column, "q": nowhere, "k": 1}
    dataset.to_table(columns=["_distance"], nearest=nearest, fast_search=True)


def mend_indexes(dataset: LanceDataset, table: str) -> None:
    """Make indexes anew that cannot be opened."""
    for one in unreadable_indexes(dataset, table):
        make_index(dataset, one.column, one.kind, one.name)


Masked = dict[str, tuple[str, str, frozenset[int]]]
"""Indexes by name: their column, their kind, and the fragments whose rewriting makes them stale.

Text and vector indexes are here where searches mask deleted rows; on the line of a branch, those on keys are too.
"""


def masked(dataset: LanceDataset, *, forked: bool = False) -> Masked:
    """The indexes that hold entries of deleted rows, which the deletion files of fragments mask.

    On the line of a branch these are all: when Lance compacts what an inherited index covers, it writes the new index
    to the files of the branch and looks for it where the old one was.
    """
    deleted = {fragment.fragment_id for fragment in dataset.get_fragments()
               if forked or fragment.metadata.deletion_file is not None}  # fmt: skip
    found: Masked = {}
    for index in dataset.describe_indices() if deleted else ():
        kind = _kind(index, _DETAILS if forked else _SEARCHED)
        covered = {id for segment in index.segments for id in segment.fragment_ids} & deleted
        if kind is not None and covered:
            found[index.name] = (index.field_names[0], kind, frozenset(covered))
    return found


def refresh_indexes(dataset: LanceDataset, kind: GraphType, before: Masked) -> list[str]:
    """Bring the indexes of a table up to date, after files were rewritten; `before` has what was masked in the old
    ones. Returns the columns of indexes that are new."""
    there = {index.name for index in dataset.describe_indices()}
    left = {fragment.fragment_id for fragment in dataset.get_fragments()}
    stale = {name: (column, made) for name, (column, made, covered) in before.items()
             if name in there and not covered <= left}  # fmt: skip
    for name, (column, made) in stale.items():
        make_index(dataset, column, made, name)
    rest = sorted(there - stale.keys())
    if rest:
        dataset.optimize.optimize_indices(index_names=rest)
    new = missing_indexes(dataset, kind)
    for column in new:
        make_index(dataset, column, "btree")
    return new
