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
from ontolake.ontology.arrow.physical import COMMIT, encoded, table_of
from ontolake.ontology.migration.rewrite import Migration, MigrationPreview, MigrationResult, TypeMigration
from ontolake.ontology.migration.tables import upgraded_rows_of, user_code
from ontolake.ontology.migration.upgraders import Upgrader, UpgraderOption
from ontolake.ontology.repository.jobs import TypeRewrite
from ontolake.ontology.repository.protocol import Repository, RepositoryTransaction, Row
from ontolake.parallel import Fragment, View, discard, new_job, stage
from ontolake.spark.jobs.places import need, typed, workers_of
from ontolake.spark.jobs.workers import Workers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

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
        if repository.jobs is None:  # the transaction itself keeps others out
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
    where, _ = need("migrate", url, {
        "objects": None, "sqlite": None, "graph": "onto graph schema gives a graph other types",
        "sql": "ALTER TABLE changes SQL tables", "documents": "documents have no types"})  # fmt: skip
    infos = [type_info(cls) for cls in types]
    with typed(where, write=write) as repository:
        yield SpreadMigration(repository, infos, upgraders, where, workers_of(spark, parts))


class SpreadMigration(Migration):
    """A migration whose rows are rewritten by workers."""

    def __init__(
        self, repository: Repository, types: Sequence[TypeInfo], upgraders: UpgraderOption, url: str, workers: Workers
    ) -> None:  # fmt: skip
        super().__init__(repository, types, upgraders)
        self.repository = repository
        self._url = url
        self._workers = workers

    def _count(self, stored: StoredType) -> int:
        jobs = self.repository.jobs
        return self.repository.count_stored(stored) if jobs is None else jobs.count(stored, self._workers)

    def _rewrite(self, transaction: RepositoryTransaction, planned: TypeMigration) -> int:
        info, stored, chain = self._planned(planned)
        version = planned.to_schema_version_id
        if self.repository.jobs is not None:
            rewrite = TypeRewrite(info, stored, chain, version)
            return self.repository.jobs.rewrite(transaction, rewrite, self._workers)
        job = new_job()
        try:
            fragments = self._workers.run(
                stage_part, [StagePart(part, info.cls, tuple(chain), job) for part in self._ranges(stored)],
                code=user_code(info, chain))  # fmt: skip
            reach("spark: upgraded rows staged")
            return transaction.rewrite(info, version, _staged_rows(info, [one for one in fragments if one is not None]))
        finally:
            discard(self._url, job)

    def _ranges(self, stored: StoredType) -> Sequence[KeyRange]:
        from ontolake.ontology.parallel.tables import TypedParallel

        with TypedParallel(self._url) as store:
            table, view = f"{stored.kind}/{stored.name}", View(store.head())
            return cast("Sequence[KeyRange]", store.splits(table, view, parts=self._workers.parts))


# on workers


@dataclass(frozen=True)
class StagePart:
    """A range of keys that is to be rewritten and staged beside a store in SQLite."""

    part: KeyRange
    cls: Any
    chain: tuple[Upgrader, ...]
    job: str


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
