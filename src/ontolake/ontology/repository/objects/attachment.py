"""Rows that workers staged in the very form that a store on objects has, so that their files become part of a commit.

Such a file is sorted by key, has the columns of the type in their physical types, and the numbers that a commit gives
its rows: whoever stages takes them from a `TypeShape`, and tells what a manifest has to say of the file. The driver
reads none of them unless their keys may meet; what says something of rows that are there already goes the long way.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ontolake import faults
from ontolake.arrow_values import numbers
from ontolake.decoders import learn
from ontolake.model.restoration import restore
from ontolake.model.schema import Schema, schema_of
from ontolake.model.types import TypeInfo, type_info
from ontolake.objects import ObjectStore, open_store
from ontolake.objects.links import link
from ontolake.ontology.arrow.columns import columns_from_arrow, stays_columns
from ontolake.ontology.arrow.physical import COMMIT, ROW, VERSION, by_key, place
from ontolake.ontology.repository.objects.files import write_file
from ontolake.ontology.repository.objects.layout import DataFile
from ontolake.ontology.repository.objects.upkeep.merge import level_of
from ontolake.ontology.sizes import DEFAULT
from ontolake.parallel import Fragment, ShapedFile

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.base import S3Repository
    from ontolake.ontology.repository.objects.transaction import S3Transaction

LEAST = 4096
"""Rows below which a file is not worth keeping as it is."""
PART_ROWS = 1 << 33
"""Room for the numbers of the rows of one task."""
_OURS = (COMMIT, ROW, VERSION)
_AT_ONCE = 4
"""Files that are linked at a time, or copied through memory: on a disk each waits until it is durable."""


@dataclass(frozen=True)
class TypeShape:
    """What rows of a type look like in files of the commit that would come next."""

    schema: Schema
    version: int
    commit: int
    row: int

    @property
    def info(self) -> TypeInfo:
        return type_info(restore([self.schema])[self.schema["kind"], self.schema["name"]])

    def files(self, rows: pa.Table, part: int, before: int) -> list[ShapedFile] | None:
        """Rows of one task as files; None if they do not fit, which whoever publishes will tell."""
        info = self.info
        found = columns_from_arrow(info, rows)
        if found is None or any(values.type == pa.timestamp("us") for _, values in found.columns()):
            return None
        made = []
        first = self.row + part * PART_ROWS + before
        for table in _sorted(info, pa.table({place(column): values for column, values in found.columns()})):
            count = len(table)
            for name, values in ((COMMIT, np.full(count, self.commit)), (VERSION, np.full(count, self.version)),
                                 (ROW, np.arange(first, first + count))):  # fmt: skip
                table = table.append_column(name, pa.array(values, pa.int64()))
            if not _ascending(info, table).all():
                return None
            file, data = write_file(info, table, "", self.version, level=level_of(count), ordered=True)
            made.append(ShapedFile(count, data, msgspec.json.encode(FileFacts(file, first)).decode()))
            first += count
        return made


class FileFacts(msgspec.Struct, frozen=True):
    """What is known of a staged file: what a manifest says of it, but for its path, and the number of its first row."""

    file: DataFile
    first: int

    @property
    def low(self) -> Any:
        return self.file.low

    @property
    def high(self) -> Any:
        return self.file.high

    @property
    def last(self) -> int:
        return self.first + self.file.row_count - 1


learn(FileFacts)


def shape_of(repository: S3Repository, info: TypeInfo) -> TypeShape | None:
    """The shape of rows that could be attached now; None where rows have to go through the store's own hands."""
    if not repository.versions_apart:
        return None
    names = {place(column) for column in info.all_columns}
    if not stays_columns(info) or names & {*_OURS}:
        return None
    if info.keys[0].type.zoned:  # a manifest does not say where such keys begin and end
        return None
    with repository.reading():
        version = repository.current_version(info)
        moment = repository.moment()
        state = None if version is None else moment.state(info.kind, info.name)
        if version is None and (info.kind, info.name) in moment.dropped:
            return None
        return TypeShape(schema_of(info.cls), version or 1, moment.next_commit, state.next_row if state else 1)


def unshaped(info: TypeInfo, table: pa.Table) -> pa.Table:
    """Staged rows under the names that users know."""
    return table.select([place(column) for column in info.all_columns]).rename_columns(
        [column.stored for column in info.all_columns])


def attach(
    repository: S3Repository, transaction: S3Transaction, info: TypeInfo, fragments: Sequence[Fragment]
) -> int | None:  # fmt: skip
    """Make staged files part of a commit as they are, if they can be. Returns how many rows they have, else None.

    They can if all keys are new, and nothing was committed since they were staged.
    """
    rows = sum(one.rows for one in fragments)
    if info.unique or not fragments or not all(one.shaped for one in fragments) or rows < LEAST * len(fragments):
        return None
    shape = shape_of(repository, info)
    told = {msgspec.json.decode(one.told, type=FileFacts): one for one in fragments}
    if shape is None or shape.commit != transaction.commit_id or len(told) < len(fragments) or any(
            (one.file.schema_version_id, one.file.min_commit_id) != (shape.version, shape.commit) for one in told):
        return None
    path = repository.data_path(transaction.folder, info.kind, info.name, shape.version).removesuffix(".parquet")
    files = {one.key: msgspec.structs.replace(known.file, path=f"{path}-part{number}.parquet")
             for number, (known, one) in enumerate(told.items(), 1)}
    source = open_store(fragments[0].place)
    try:
        if not _numbered_apart(shape, told) or not _new(repository, info, told) or not _unique(info, told, source):
            return None
        faults.reach("ontology: rows staged")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for done in [pool.submit(link, source, key, repository.access.store, file.path)
                         for key, file in files.items()]:  # fmt: skip
                done.result()
    finally:
        source.close()
    faults.reach("ontology: rows written")
    transaction.add(info, [*files.values()], next_row=max(one.last for one in told) + 1)
    return rows


def _sorted(info: TypeInfo, table: pa.Table) -> list[pa.Table]:
    """Rows in the order of their keys: as long pieces of them are that already, if they are, or else as one."""
    breaks = np.flatnonzero(~_ascending(info, table)) + 1
    edges = [0, *breaks.tolist(), len(table)]
    if len(breaks) and min(high - low for low, high in itertools.pairwise(edges)) < DEFAULT.part_rows:
        return [by_key(info, table)]
    return [table.slice(low, high - low) for low, high in itertools.pairwise(edges)]


def _ascending(info: TypeInfo, table: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """For each row but the last whether the next one has a greater key."""
    keys = [table.column(place(column)).combine_chunks() for column in info.keys]
    before, behind = [key[:-1] for key in keys], [key[1:] for key in keys]
    found = pc.less(before[-1], behind[-1])
    for one, two in zip(before[-2::-1], behind[-2::-1], strict=True):
        found = pc.or_(pc.less(one, two), pc.and_(pc.equal(one, two), found))
    return cast("np.ndarray[Any, np.dtype[np.bool_]]", numbers(found))


def _numbered_apart(shape: TypeShape, told: Iterable[FileFacts]) -> bool:
    """Whether no number of a row is in two files or in the store."""
    ordered = sorted(told, key=lambda one: one.first)
    return ordered[0].first >= shape.row and all(one.last < two.first for one, two in itertools.pairwise(ordered))


def _new(repository: S3Repository, info: TypeInfo, told: Collection[FileFacts]) -> bool:
    """Whether all keys lie outside of the ranges of those in the store."""
    state = repository.moment().state(info.kind, info.name) if repository.current_version(info) is not None else None
    low, high = min(one.low for one in told), max(one.high for one in told)
    runs: Sequence[Any] = state.runs if state is not None else ()
    return all(run.low is not None and run.high is not None and (run.high < low or run.low > high) for run in runs)


def _unique(info: TypeInfo, told: Mapping[FileFacts, Fragment], source: ObjectStore) -> bool:
    """Whether no key is in two files. Only those whose ranges meet are read."""
    ordered = sorted(told, key=lambda one: one.low)
    meeting: dict[str, None] = {}
    furthest = ordered[0]
    for one in ordered[1:]:
        if one.low <= furthest.high:
            meeting |= {told[furthest].key: None, told[one].key: None}
        furthest = max(furthest, one, key=lambda file: file.high)
    if not meeting:
        return True
    names = [place(column) for column in info.keys]
    keys = pa.concat_tables([pq.read_table(pa.BufferReader(source.get(key).data), columns=names) for key in meeting])
    different = len(pc.unique(keys.column(0))) if len(names) == 1 else keys.group_by(names).aggregate([]).num_rows
    return bool(different == len(keys))
