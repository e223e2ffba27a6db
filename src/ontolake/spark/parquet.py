"""Snapshots of typed stores on objects as Spark's own Parquet reader reads them: exactly the files of one commit."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from ontolake import urls
from ontolake.model.types import TypeInfo
from ontolake.ontology.arrow.physical import COMMIT, ROW, SUPERSEDED, place
from ontolake.ontology.parallel.tables import TypedParallel
from ontolake.ontology.repository.objects.base import S3Repository
from ontolake.ontology.repository.objects.layout import DataFile
from ontolake.ontology.repository.objects.scan import Span, relevant
from ontolake.parallel import Parallel, View
from ontolake.spark.types import named, spark_schema

_LONG = 16 << 10
"""Rows of so many bytes are too long for Spark's own reader: it holds thousands of them at a time, and Java ends where
its memory does."""
_PACKED = _LONG // 256
"""They have at least so many bytes in a file: compression is never better."""


def one_machine(spark: SparkSession) -> bool:
    """Whether drivers and workers see the same disk."""
    try:
        return str(spark.sparkContext.master).startswith("local")
    except Exception:  # Spark Connect: the server may be anywhere
        return False


def is_new(store: Parallel, table: str) -> bool:
    """Whether a typed store knows a table by the classes alone that it was opened with: workers would not find it."""
    if not isinstance(store, TypedParallel):
        return False
    info = store.info(table)
    return (info.kind, info.name) not in store.repository.schemas()


def native_frame(
    spark: SparkSession, store: Parallel, table: str, view: View, columns: Sequence[str]
) -> DataFrame | None:  # fmt: skip
    """The rows of a view, read by Spark alone; None where only Python can."""
    if not isinstance(store, TypedParallel):
        return None
    repository, location, info = store.repository, urls.parse(store.url), store.info_at(table, view)
    if (not isinstance(repository, S3Repository) or not repository.versions_apart or view.mode == "changes"
            or location.place is not urls.Place.DIRECTORY or not one_machine(spark)):  # fmt: skip
        return None
    names = {column.stored.lower() for column in info.all_columns}
    if len(names) < len(info.all_columns):  # which Spark's own reader cannot tell from each other
        return None
    if any(column.type.native_type() is None for column in info.all_columns):
        return None
    with repository.reading():
        if not store.splits(table, view, columns, parts=1):  # knows when there is nothing
            return None
        state = repository.files_of(info)
        runs, past = relevant(state, Span(view.commit, None, view.mode != "latest"))
        read = {place(column) for column in info.all_columns if column.stored in columns}
        if any(_long_rows(repository, file, read) for file in (*runs, *past)):
            return None
    files = _Files(spark, location.path, info)
    if view.mode == "history":
        found = files.read([*past, *runs]).where(F.col(COMMIT) <= view.commit)
    elif past or any(file.max_commit_id > view.commit for file in runs):
        found = files.newest(files.read(past, view.commit).unionByName(files.read(runs, view.commit)) if past
                             else files.read(runs, view.commit))
    else:
        first = next((number for number, file in enumerate(runs) if number and file.updates), len(runs))
        found = files.read(runs[:first])
        if first < len(runs):
            newer = files.read(runs[first:])
            newer = newer if len(runs) - first == 1 else files.newest(newer)
            found = found.join(newer.select(*files.keys), files.keys, "left_anti").select(*newer.columns)
            found = found.unionByName(newer)
    public = spark_schema(store.schema(table, view.mode, view))
    shown = [named(place(column)).cast(public[column.stored].dataType).alias(column.stored)
             for column in info.all_columns] + [F.col(COMMIT).alias(public.names[-1])]
    return found.select(*shown).select(*[named(name) for name in columns])


def _long_rows(repository: S3Repository, file: DataFile, columns: Collection[str]) -> bool:
    if file.size < _PACKED * file.row_count:
        return False
    meta = repository.files.statistics(file)
    groups = map(meta.row_group, range(meta.num_row_groups))
    chunks = (group.column(at) for group in groups for at in range(group.num_columns))
    size = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in columns)
    return bool(size > _LONG * file.row_count)


class _Files:
    """Parquet files of one version of a type under a folder."""

    def __init__(self, spark: SparkSession, folder: str, info: TypeInfo) -> None:
        import pyarrow as pa

        self._spark = spark
        self._folder = folder
        self.keys = [place(column) for column in info.keys]
        fields = [pa.field(place(column), column.type.native_type()) for column in (*info.keys, *info.columns)]
        self._schema = spark_schema(pa.schema([*fields, pa.field(COMMIT, pa.int64()), pa.field(ROW, pa.int64())]))

    def read(self, files: Sequence[DataFile], until: int | None = None) -> DataFrame:
        """The rows of files; `until` a commit those that were not replaced by then."""
        schema = self._schema
        past = [file for file in files if file.superseded is not None]
        if past and until is not None:
            schema = StructType([*schema.fields, StructField(SUPERSEDED, LongType())])
        found = self._spark.read.schema(schema).parquet(*[f"{self._folder}/{file.path}" for file in files])
        if until is not None:
            found = found.where(F.col(COMMIT) <= until)
            if past:
                found = found.where(named(SUPERSEDED) > until).drop(SUPERSEDED)
        return found

    def newest(self, rows: DataFrame) -> DataFrame:
        """Of every key the row that was written last."""
        names = rows.columns
        whole = F.max_by(F.struct(*[named(name) for name in names]), F.col(ROW)).alias("$row")
        found = rows.groupBy(*[named(key).alias(f"$key:{key}") for key in self.keys]).agg(whole)
        return found.select(*[F.col("`$row`").getField(name).alias(name) for name in names])
