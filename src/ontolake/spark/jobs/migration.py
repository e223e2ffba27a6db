"""`migrate`: the latest state rewritten under new types, by workers, a range of keys each.

The write lock is held meanwhile, the rows are of one moment, and the driver makes one commit of what the workers wrote,
or none. A worker that is lost leaves files that no commit names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ontolake.faults import reach
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.arrow.physical import (
    COMMIT,
    ROW,
    declared_table,
    encoded,
    naive_place,
    places,
    public_table,
    rows_of,
    table_of,
)
from ontolake.ontology.migration.rewrite import (
    Migration,
    MigrationPreview,
    MigrationResult,
    TypeMigration,
    upgraded_rows,
)
from ontolake.ontology.migration.rewrite import upgraded_table as upgraded
from ontolake.ontology.migration.upgraders import Upgrader, UpgraderOption
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.files import write_file
from ontolake.ontology.repository.objects.layout import DataFile
from ontolake.ontology.repository.objects.merge import level_of
from ontolake.ontology.repository.protocol import Repository, RepositoryTransaction, Row
from ontolake.parallel import Fragment, View, discard, new_job, stage
from ontolake.spark.jobs.compaction import check_written
from ontolake.spark.jobs.places import need, on_objects, typed, workers_of
from ontolake.spark.jobs.ranges import KeyPart, key_parts
from ontolake.spark.jobs.workers import Workers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ontolake.ontology.repository.objects.base import S3Repository
    from ontolake.ontology.repository.objects.transaction import S3Transaction
    from ontolake.ontology.repository.ranges import KeyRange



def migrate(
    url: str, types: Iterable[Any], *, spark: SparkSession | Workers | None = None, upgraders: UpgraderOption = None,
    token: str | None = None, force: bool = False, parts: int | None = None,
) -> MigrationResult:  # fmt: skip
    """Rewrite the latest state for changed types as one commit, all types or none.

    Upgraders with `arrow=True` get the rows of a range of keys as a table, others row by row. Raises
    `MigrationTokenError` unless `token` is that of a preview of just this (or `force` is set), `MissingUpgraderError`,
    `MigrationError`, `LockContentionError` if somebody else writes, `JobError` for a store without types.
    """
    with _migration(url, types, spark, upgraders, parts, write=True) as migration:
        repository, owner = migration.repository, f"onto spark migrate {new_job()}"
        if not migration.on_objects:  # the transaction itself keeps others out
            return migration.apply(owner, token, force=force)
        repository.acquire_lease(owner)
        try:
            return migration.apply(owner, token, force=force)
        finally:
            repository.release_lease(owner)


def preview_migration(
    url: str, types: Iterable[Any], *, spark: SparkSession | Workers | None = None, upgraders: UpgraderOption = None,
    parts: int | None = None,
) -> MigrationPreview:  # fmt: skip
    """What `migrate` would do now, and the token for it. Changes nothing."""
    with _migration(url, types, spark, upgraders, parts) as migration, migration.repository.reading():
        return migration.preview()


@contextmanager
def _migration(
    url: str, types: Iterable[Any], spark: SparkSession | Workers | None, upgraders: UpgraderOption, parts: int | None,
    *, write: bool = False,
) -> Iterator[SpreadMigration]:  # fmt: skip
    where, kind = need("migrate", url, {
        "objects": None, "sqlite": None, "graph": "onto graph schema gives a graph other types",
        "sql": "ALTER TABLE changes SQL tables", "documents": "documents have no types"})  # fmt: skip
    infos = [type_info(cls) for cls in types]
    with typed(where, write=write) as repository:
        yield SpreadMigration(repository, infos, upgraders, where, workers_of(spark, parts), kind == "objects")


class SpreadMigration(Migration):
    """A migration whose rows are rewritten by workers."""

    def __init__(
        self, repository: Repository, types: Sequence[TypeInfo], upgraders: UpgraderOption, url: str, workers: Workers,
        on_objects: bool,
    ) -> None:  # fmt: skip
        super().__init__(repository, types, upgraders)
        self.repository = repository
        self.on_objects = on_objects
        self._url = url
        self._workers = workers

    def _parts(self, stored: StoredType, info: TypeInfo | None = None) -> list[KeyPart]:
        """Ranges of keys that can be rewritten apart: only one if keys of other types have another order."""
        repository = cast("S3Repository", self.repository)
        state = repository.moment().state(stored.kind, stored.name)
        if state is None:
            return []
        same = info is None or [one.scalar for one in info.keys] == [one.scalar for one in stored.keys]
        parts = self._workers.parts if repository.versions_apart and same else 1
        return key_parts(repository, self._url, stored, state.schema_version_id, state.runs, parts)

    def _count(self, stored: StoredType) -> int:
        if not self.on_objects or not cast("S3Repository", self.repository).versions_apart:
            return self.repository.count_stored(stored)
        parts = self._parts(stored)
        if not any(file.updates for part in parts for file in part.files):
            return sum({file.path: file.row_count for part in parts for file in part.files}.values())
        return sum(self._workers.run(count_part, parts))

    def _rewrite(self, transaction: RepositoryTransaction, planned: TypeMigration) -> int:
        info, stored, chain = self._planned(planned)
        version = planned.to_schema_version_id
        if self.on_objects:
            return self._adopted(cast("S3Transaction", transaction), info, stored, chain, version)
        job = new_job()
        try:
            fragments = self._workers.run(
                stage_part, [StagePart(part, info.cls, tuple(chain), job) for part in self._ranges(stored)],
                code=_code(info, chain))  # fmt: skip
            reach("spark: upgraded rows staged")
            return transaction.rewrite(info, version, _staged_rows(info, [one for one in fragments if one is not None]))
        finally:
            discard(self._url, job)

    def _adopted(
        self, transaction: S3Transaction, info: TypeInfo, stored: StoredType, chain: list[Upgrader], version: int
    ) -> int:  # fmt: skip
        repository = cast("S3Repository", self.repository)
        state = repository.state_to_extend(info, repository.moment(), version, transaction.commit_id, True)
        items, row = [], state.next_row
        for part in self._parts(stored, info):
            items.append(UpgradePart(part, info.cls, tuple(chain), version, transaction.commit_id, transaction.folder,
                                     row))
            row += part.most
        files = self._workers.run(upgrade_part, items, code=_code(info, chain))
        reach("spark: upgraded files written")
        written = [file for file in files if file is not None]
        check_written(repository, [file.path for file in written])
        return transaction.adopt(info, version, written, next_row=row)

    def _ranges(self, stored: StoredType) -> Sequence[KeyRange]:
        from ontolake.ontology.parallel.tables import TypedParallel

        with TypedParallel(self._url) as store:
            table, view = layout.type_key(stored.kind, stored.name), View(store.head())
            return cast("Sequence[KeyRange]", store.splits(table, view, parts=self._workers.parts))


def _code(info: TypeInfo, chain: Sequence[Upgrader]) -> list[Any]:
    """What of the user's own code workers need."""
    ends = [info.left, info.right] if info.kind == "relation" else []
    return [info.cls, *ends, *(one.function for one in chain)]


# on workers


@dataclass(frozen=True)
class UpgradePart:
    """A range of keys that is to be rewritten as a file of a commit; `row` is the number of its first row."""

    part: KeyPart
    cls: Any
    chain: tuple[Upgrader, ...]
    version: int
    commit: int
    folder: str
    row: int


@dataclass(frozen=True)
class StagePart:
    """A range of keys that is to be rewritten and staged beside a store in SQLite."""

    part: KeyRange
    cls: Any
    chain: tuple[Upgrader, ...]
    job: str


def count_part(part: KeyPart) -> int:
    """How many keys there are in a range."""
    with on_objects(part.url) as repository:
        return len(part.latest(repository, [*places(part.stored.keys), ROW]))


def upgrade_part(item: UpgradePart) -> DataFile | None:
    """Rewrite the rows of a range of keys and write them as a file, which no manifest names yet."""
    import numpy as np
    import pyarrow as pa

    info, stored = type_info(item.cls), item.part.stored
    with on_objects(item.part.url) as repository:
        rows = item.part.latest(repository) if repository.versions_apart else repository.table(stored)
        table = upgraded_rows_of(info, stored, item.chain, rows)
        if not len(table):
            return None
        numbers = np.arange(item.row, item.row + len(table))
        table = table.append_column(COMMIT, pa.array(np.full(len(table), item.commit, np.int64)))
        table = repository.physical(info, item.version, table.append_column(ROW, pa.array(numbers)))
        path = repository.data_path(item.folder, info.kind, info.name, item.version)
        path = f"{path.removesuffix('.parquet')}-{layout.new_attempt()}.parquet"
        file, data = write_file(info, table, path, item.version, level=level_of(len(table)),
                                updates=0 if repository.versions_apart else len(table))
        repository.access.write({path: data})
        return file


def upgraded_rows_of(info: TypeInfo, stored: StoredType, chain: Sequence[Upgrader], rows: pa.Table) -> pa.Table:
    """Stored rows of one version as those of another, all at once where that says the same."""
    if _at_once(stored, chain, rows):
        shown = public_table(stored.all_columns, rows)
        return declared_table(info, upgraded(info, stored, chain, shown.drop_columns([shown.column_names[-1]])))
    return table_of(info, list(upgraded_rows(info, stored, chain, rows_of(stored.all_columns, rows))))


def _at_once(stored: StoredType, chain: Sequence[Upgrader], rows: pa.Table) -> bool:
    """Whether rows can stay a table: an upgrader asks for it, or there is none and no moment without a zone."""
    if chain:
        return any(one.arrow for one in chain)
    names = {naive_place(column) for column in stored.all_columns if column.type.zoned}
    return names.isdisjoint(rows.column_names)


def stage_part(item: StagePart) -> Fragment | None:
    """Rewrite the rows of a range of keys of a store in SQLite, and stage them beside it."""
    info, split = type_info(item.cls), item.part
    stored = StoredType(split.schema)
    with typed(split.url) as repository:
        table = upgraded_rows_of(info, stored, item.chain, stored_table(repository, split))
    return stage(split.url, "rewritten", table.to_batches(), job=item.job)


def stored_table(repository: Repository, split: KeyRange) -> pa.Table:
    """The rows of a range of keys as stores on objects have them, with the commit, whichever store they are in."""
    import pyarrow as pa

    from ontolake.ontology.repository.ranges import checked

    stored, info = StoredType(split.schema), checked(repository, split.schema, split.schema_hash)
    rows = list(repository.run(*split.plan_of(info, ())))
    names = [column.stored for column in info.all_columns]
    wanted = [names.index(column.name) for column in (*stored.keys, *stored.columns)]
    table = table_of(stored, [tuple(row[place] for place in wanted) for row in rows])
    return table.append_column(COMMIT, pa.array([row[-1] for row in rows], pa.int64()))


def _staged_rows(info: TypeInfo, fragments: Sequence[Fragment]) -> Iterator[Row]:
    """Staged rows, encoded, a fragment at a time."""
    for fragment in fragments:
        table = fragment.read()
        yield from zip(*[encoded(column, table) for column in (*info.keys, *info.columns)], strict=True)
