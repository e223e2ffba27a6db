"""Rows that workers staged in the very form that a store on objects has, so that their files become part of a commit.

Such a file is sorted by key, has the columns of the type in their physical types, and the numbers that a commit gives
its rows: whoever stages takes them from a `Shape`. The driver looks at the directory and the keys of every file; what
does not hold what it promises, or says something of rows that are there already, goes the long way instead.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontolake import faults
from ontolake.model.restoring import restore
from ontolake.model.schema import Schema, schema_of
from ontolake.model.types import TypeInfo, type_info
from ontolake.objects import ObjectStore, open_store
from ontolake.objects.linking import link
from ontolake.ontology.arrow_columns import _plain, _validates, columns_from_arrow
from ontolake.ontology.repository.s3.base import S3Repository
from ontolake.ontology.repository.s3.files import GROUP, write_file
from ontolake.ontology.repository.s3.layout import DataFile
from ontolake.ontology.repository.s3.merge import level_of
from ontolake.ontology.repository.s3.rows import COMMIT, ROW, VERSION, by_key, encoded, physical_type, place
from ontolake.parallel import Fragment

if TYPE_CHECKING:
    from ontolake.ontology.repository.s3.transaction import S3Transaction

LEAST = 4096
"""Rows below which a file is not worth keeping as it is."""
MOST_GROUP = 4 * GROUP
"""Rows that a row group may have: looking up one key reads one."""
PART_ROWS = 1 << 33
"""Room for the numbers of the rows of one task."""
_OURS = (COMMIT, ROW, VERSION)


@dataclass(frozen=True)
class Shape:
    """What rows of a type look like in files of the commit that would come next."""

    schema: Schema
    version: int
    commit: int
    row: int

    @property
    def info(self) -> TypeInfo:
        return type_info(restore([self.schema])[self.schema["kind"], self.schema["name"]])

    def file(self, rows: pa.Table, part: int) -> bytes | None:
        """The rows of one task as a file; None if they do not fit, which whoever publishes will tell."""
        info = self.info
        found = columns_from_arrow(info, rows)
        if found is None or not len(found):
            return None
        table = by_key(info, pa.table({place(column): values for column, values in found.columns()}))
        first = self.row + part * PART_ROWS
        for name, values in ((COMMIT, np.full(len(table), self.commit)), (VERSION, np.full(len(table), self.version)),
                             (ROW, np.arange(first, first + len(table)))):  # fmt: skip
            table = table.append_column(name, pa.array(values, pa.int64()))
        return write_file(info, table, "", self.version)[1]


def shape_of(repository: Any, info: TypeInfo) -> Shape | None:
    """The shape of rows that could be attached now; None where rows have to go through the store's own hands."""
    if not isinstance(repository, S3Repository) or not repository.versions_apart:
        return None
    names = {place(column) for column in info.all_columns}
    if not all(map(_plain, info.all_columns)) or _validates(info) or names & {*_OURS}:
        return None
    with repository.reading():
        version = repository.current_version(info)
        moment = repository.moment()
        state = None if version is None else moment.state(info.kind, info.name)
        if version is None and (info.kind, info.name) in moment.dropped:
            return None
        return Shape(schema_of(info.cls), version or 1, moment.commit_id + 1, state.next_row if state else 1)


def unshaped(info: TypeInfo, table: pa.Table) -> pa.Table:
    """Staged rows under the names that users know."""
    return table.select([place(column) for column in info.all_columns]).rename_columns(
        [column.stored for column in info.all_columns])


class _Looked(NamedTuple):
    """A staged file that is what it should be."""

    file: DataFile
    fragment: Fragment
    first_row: int
    last_row: int


def attach(
    repository: S3Repository, transaction: S3Transaction, info: TypeInfo, fragments: Sequence[Fragment]
) -> int | None:  # fmt: skip
    """Make staged files part of a commit as they are, if they can be. Returns how many rows they have, else None.

    They can if all keys are new, and nothing was committed since they were staged.
    """
    rows = sum(one.rows for one in fragments)
    if not fragments or not all(one.shaped for one in fragments) or rows < LEAST * len(fragments):
        return None
    shape = shape_of(repository, info)
    if shape is None or shape.commit != transaction.commit_id:
        return None
    path = repository.data_path(transaction.folder, info.kind, info.name, shape.version).removesuffix(".parquet")
    source = open_store(fragments[0].place)
    try:
        with ThreadPoolExecutor(2) as pool:
            numbered = list(enumerate(fragments, 1))
            looked = list(pool.map(lambda one: _look(shape, info, source, one[1], f"{path}-part{one[0]}.parquet"),
                                   numbered))
            found = [one for one in looked if one is not None]
            if len(found) < len(looked) or not _new_and_apart(repository, info, found, source):
                return None
            faults.reach("ontology: rows staged")
            for done in [pool.submit(link, source, one.fragment.key, repository.access.store, one.file.path)
                         for one in found]:
                done.result()
    finally:
        source.close()
    faults.reach("ontology: rows written")
    transaction.attach(info, [one.file for one in found], next_row=max(one.last_row for one in found) + 1)
    return rows


def _look(shape: Shape, info: TypeInfo, store: ObjectStore, fragment: Fragment, path: str) -> _Looked | None:
    """A staged file as one of the commit; None if it is not sorted, lacks values, or is of another shape."""
    data = store.get(fragment.key).data
    opened = pq.ParquetFile(pa.BufferReader(data))
    columns = (*info.keys, *info.columns)
    wanted = {place(column): physical_type(column) for column in columns} | dict.fromkeys(_OURS, pa.int64())
    there = {field.name: field.type for field in opened.schema_arrow}
    groups = [opened.metadata.row_group(number) for number in range(opened.metadata.num_row_groups)]
    names = {opened.metadata.schema.column(number).name: number for number in range(len(there))}
    if there != wanted or max(group.num_rows for group in groups) > MOST_GROUP:
        return None
    for name in (place(column) for column in columns if not column.nullable):
        stats = [group.column(names[name]).statistics for group in groups]
        told = all(one is not None and one.has_null_count for one in stats)
        if any(one.null_count for one in stats) if told else opened.read([name]).column(name).null_count:
            return None
    table = opened.read([*(place(column) for column in info.keys), *_OURS])
    bounds = {name: tuple(pc.min_max(table.column(name)).as_py().values()) for name in _OURS}
    numbers = table.column(ROW)
    if (bounds[COMMIT] != (shape.commit, shape.commit) or bounds[VERSION] != (shape.version, shape.version)
            or any(table.column(name).null_count for name in _OURS)
            or not _ascending([numbers.combine_chunks()])):  # fmt: skip
        return None
    keys = [table.column(place(column)) for column in info.keys]
    if not _ascending([key.combine_chunks() for key in keys]) or any(
            column.scalar == "str" and pc.any(pc.equal(key, "")).as_py()
            for column, key in zip(info.keys, keys, strict=True)):  # fmt: skip
        return None
    low, high = encoded(info.keys[0], table.take([0, len(table) - 1]))
    file = DataFile(path, len(table), len(data), shape.version, shape.commit, shape.commit,
                    hashlib.sha256(data).hexdigest(), 0, level_of(len(table)), low, high)
    return _Looked(file, fragment, *bounds[ROW])


def _ascending(keys: Sequence[pa.Array]) -> bool:
    """Whether rows are sorted by these keys, and no key is there twice."""
    if len(keys[0]) < 2:
        return True
    before, behind = [key[:-1] for key in keys], [key[1:] for key in keys]
    found = pc.less(before[-1], behind[-1])
    for one, two in zip(before[-2::-1], behind[-2::-1], strict=True):
        found = pc.or_(pc.less(one, two), pc.and_(pc.equal(one, two), found))
    return bool(pc.all(found).as_py())


def _new_and_apart(
    repository: S3Repository, info: TypeInfo, found: Sequence[_Looked], source: ObjectStore
) -> bool:  # fmt: skip
    """Whether no key or number of a row is in two files, and none of the keys is in the store.

    Keys of all files are brought together only where their ranges overlap.
    """
    if info.keys[0].scalar == "datetime":
        return False
    state = repository.moment().state(info.kind, info.name) if repository.current_version(info) is not None else None
    ordered = sorted(found, key=lambda one: cast(Any, one.file.low))
    low, high = cast(Any, ordered[0].file.low), max(cast(Any, one.file.high) for one in ordered)
    runs = state.runs if state is not None else ()
    if not all(run.low is not None and run.high is not None and (cast(Any, run.high) < low or cast(Any, run.low) > high)
               for run in runs):  # fmt: skip
        return False
    by_row = sorted((one.first_row, one.last_row) for one in found)
    if by_row[0][0] < (state.next_row if state else 1) or any(a[1] >= b[0] for a, b in itertools.pairwise(by_row)):
        return False
    if all(cast(Any, one.file.high) < cast(Any, two.file.low) for one, two in itertools.pairwise(ordered)):
        return True
    names = [place(column) for column in info.keys]
    together = pa.concat_tables(
        [pq.read_table(pa.BufferReader(source.get(one.fragment.key).data), columns=names) for one in found])
    return bool(together.group_by(names).aggregate([]).num_rows == len(together))
