"""Snapshots of typed stores on objects as Spark's own Parquet reader reads them: exactly the files of one commit."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from ontolake import urls
from ontolake.model.types import TypeInfo
from ontolake.ontology.parallel.tables import TypedParallel
from ontolake.ontology.repository.jobs import ParquetFile, ParquetView
from ontolake.parallel import Parallel, View
from ontolake.spark.types import named, spark_schema

_LONG = 16 << 10
"""Rows of so many bytes are too long for Spark's own reader: it holds thousands of them at a time, and Java ends where
its memory does."""


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
    if view.mode == "changes" or location.place is not urls.Place.DIRECTORY or not one_machine(spark):
        return None
    names = {column.stored.lower() for column in info.all_columns}
    if len(names) < len(info.all_columns):  # which Spark's own reader cannot tell from each other
        return None
    if any(column.type.native_type() is None for column in info.all_columns):
        return None
    with repository.reading():
        if not store.splits(table, view, columns, parts=1):  # knows when there is nothing
            return None
        parquet = repository.parquet(info, view, columns, _LONG)
    if parquet is None:
        return None
    files, runs, past = _Files(spark, location.path, info, parquet), parquet.runs, parquet.past
    if view.mode == "history":
        found = files.read([*past, *runs]).where(F.col(parquet.commit) <= view.commit)
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
    commit, *ends = public.names[len(info.all_columns) :]
    shown = [named(parquet.names[column.stored]).cast(public[column.stored].dataType).alias(column.stored)
             for column in info.all_columns] + [F.col(parquet.commit).alias(commit)]
    shown += [F.lit(False).alias(name) for name in ends]  # files that have ends of rows are not read so
    return found.select(*shown).select(*[named(name) for name in columns])


class _Files:
    """Parquet files of one version of a type under a folder."""

    def __init__(self, spark: SparkSession, folder: str, info: TypeInfo, view: ParquetView) -> None:
        import pyarrow as pa

        self._spark = spark
        self._folder = folder
        self._view = view
        self.keys = list(view.keys)
        fields = [pa.field(view.names[column.stored], column.type.native_type())
                  for column in (*info.keys, *info.columns)]
        fields += [pa.field(name, pa.int64()) for name in (view.commit, view.row)]
        self._schema = spark_schema(pa.schema(fields))

    def read(self, files: Sequence[ParquetFile], until: int | None = None) -> DataFrame:
        """The rows of files; `until` a commit those that were not replaced by then."""
        schema = self._schema
        past = [file for file in files if file.superseded]
        if past and until is not None:
            schema = StructType([*schema.fields, StructField(self._view.superseded, LongType())])
        found = self._spark.read.schema(schema).parquet(*[f"{self._folder}/{file.path}" for file in files])
        if until is not None:
            found = found.where(F.col(self._view.commit) <= until)
            if past:
                found = found.where(named(self._view.superseded) > until).drop(self._view.superseded)
        return found

    def newest(self, rows: DataFrame) -> DataFrame:
        """Of every key the row that was written last."""
        names = rows.columns
        whole = F.max_by(F.struct(*[named(name) for name in names]), F.col(self._view.row)).alias("$row")
        found = rows.groupBy(*[named(key).alias(f"$key:{key}") for key in self.keys]).agg(whole)
        return found.select(*[F.col("`$row`").getField(name).alias(name) for name in names])
