"""`table`, `save` and `catalog`: the fast way between stores and DataFrames.

Where a store is Parquet on this machine's disk, Spark's own reader reads exactly the files of the snapshot; staged rows
are written by Spark's own writer, or, where that makes them files of the store as they are, by workers in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ontolake.errors import Invalid, NotFound
from ontolake.history.metadata import RUN
from ontolake.parallel import (
    Fragment,
    Mode,
    Parallel,
    Published,
    Shape,
    View,
    absolute,
    beside,
    chosen,
    discard,
    new_job,
    open_parallel,
    stage_shaped,
    staged,
)
from ontolake.spark.filters import FilterSpec, condition, decoded, encoded
from ontolake.spark.options import scalar_names
from ontolake.spark.parquet import is_new, native_frame, one_machine
from ontolake.spark.requests import accepted, check_since
from ontolake.spark.sessions import register
from ontolake.spark.types import named, quoted, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa

_FRAGMENT = "table string, place string, key string, rows bigint, bytes bigint, told string"


def table(
    spark: SparkSession, url: str, name: str, *, columns: Sequence[str] | None = None, branch: str | None = None,
    as_of: int | str | None = None, mode: Mode = "latest", since: int | str | None = None,
    filters: Iterable[FilterSpec] = (), types: Iterable[Any] = (), parts: int | None = None,
) -> DataFrame:  # fmt: skip
    """A table of a store as a DataFrame, pinned to one commit: the newest, or `as_of`.

    `mode` is `latest`, `history` (every state) or `changes` (after `since`, with a column `change`). With the classes
    in `types` decimals have their declared digits; without they are text. Of `filters`, such as `("size", ">", 3)`, all
    hold for every row, and the store skips what it can by them. Raises `NotFound` for a store, table, column or commit
    that is not there.
    """
    check_since(mode, since)
    if parts is not None and parts < 0:
        raise Invalid(f"parts is about how many splits to read in parallel, not {parts}")
    with open_parallel(url, branch=branch, types=types) as store:
        view = store.view(as_of=as_of, mode=mode, since=since)
        return frame(spark, store, name, view, columns, filters=filters, branch=branch, parts=parts)


def frame(
    spark: SparkSession, store: Parallel, name: str, view: View, columns: Sequence[str] | None = None, *,
    filters: Iterable[FilterSpec] = (), branch: str | None = None, parts: int | None = None,
) -> DataFrame:  # fmt: skip
    """`table` for a store that is open, at a view that was pinned before."""
    schema = store.schema(name, view.mode, view)
    told = encoded(filters)
    asked = decoded(told, schema)
    wanted = chosen(schema, columns, asked, name)
    read = list(dict.fromkeys((*wanted, *(one.column for one in asked))))
    found = native_frame(spark, store, name, view, read)
    if found is None and is_new(store, name):
        found = spark.createDataFrame([], _pruned(schema, read))
    elif found is None:
        found = _by_python(spark, store, schema, name, view, read, told, branch, parts)
    return found.where(condition(asked)).select(*[named(column) for column in wanted]) if asked else found


def _by_python(
    spark: SparkSession, store: Parallel, schema: pa.Schema, name: str, view: View, columns: list[str], filters: str,
    branch: str | None, parts: int | None,
) -> DataFrame:  # fmt: skip
    register(spark)
    pruned = _pruned(schema, columns)
    reader = spark.read.format("ontolake").schema(pruned).option("url", store.url).option("table", name)
    reader = reader.option("as_of", view.commit).option("mode", view.mode).option("parts", parts or 0).option(
        "filters", filters)
    if told := scalar_names(store):
        reader = reader.option("scalars", told)
    if view.mode == "changes":
        reader = reader.option("since", view.since)
    return (reader if branch is None else reader.option("branch", branch)).load()


def _pruned(schema: pa.Schema, columns: Sequence[str]) -> StructType:
    found = spark_schema(schema)
    return StructType([found[column] for column in columns])


def save(
    df: DataFrame, url: str, name: str, *, branch: str | None = None, types: Iterable[Any] = (),
    metadata: Mapping[str, Any] | None = None, expected: int | None = None,
) -> Published:  # fmt: skip
    """Publish the rows of a DataFrame that differ from the latest state as one commit; rows are named by their keys.

    With `types` a typed store is started where there is none. Raises `SchemaValidationError` for columns or values that
    do not fit, `Conflict` if `expected` is given and another commit came behind it. Then nothing is published.
    """
    classes = tuple(types)
    with open_parallel(url, branch=branch, write=True, types=classes) as store:
        prepared = fitting(df, store, name)
        job = new_job()
        try:
            fragments = stage_frame(prepared, url, name, job=job, shape=store.shape(name))
            return store.publish(fragments, metadata={RUN: job, **(metadata or {})}, expected=expected)
        finally:
            discard(url, job)


def fitting(df: DataFrame, store: Parallel, name: str) -> DataFrame:
    """The columns of a DataFrame that a table takes. Raises `SchemaValidationError` for one too many or too few."""
    return df.select(*[named(column) for column in accepted(df.columns, store, name)])


def local_path(place: str) -> str | None:
    """The path of a place on this machine's disk, which Spark can read and write by itself."""
    return unquote(place.removeprefix("file://")) if place.startswith("file://") else None


def writes_beside(spark: SparkSession, url: str) -> bool:
    """Whether Spark can write by itself where work on a store keeps its files."""
    return local_path(beside(url)) is not None and one_machine(spark)


def stage_frame(
    df: DataFrame, url: str, name: str, *, job: str, shape: Shape | None = None
) -> list[Fragment]:  # fmt: skip
    """Write the rows of a DataFrame as files of a job, beside the store. Nobody sees them yet.

    With a `shape` they have the form of the store's own files, if they fit: Arrow writes it in less time than Spark
    takes for any other.
    """
    if shape is None and writes_beside(df.sparkSession, url):
        df.write.mode("append").parquet(f"{local_path(beside(url))}/{job}/staged/{name}")
        return staged(url, name, job=job)
    target = absolute(url)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        task = TaskContext.get()
        found = stage_shaped(target, name, batches, job=job, shape=shape, part=task.partitionId() if task else 0)
        if found:
            yield pa.RecordBatch.from_pylist([one._asdict() for one in found])

    return [Fragment(**row.asDict()) for row in df.mapInArrow(write, _FRAGMENT).collect()]


def staged_frame(spark: SparkSession, fragments: Sequence[Fragment], columns: str) -> DataFrame:
    """Staged rows as a DataFrame, for looking at what would be published.

    Spark would look for the `columns` in the files, by a job of its own, if it were not told.
    """
    path = local_path(fragments[0].place)
    if path is not None and one_machine(spark):
        return spark.read.schema(columns).parquet(*[f"{path}/{fragment.key}" for fragment in fragments])
    schema = spark_schema(fragments[0].read().schema)
    listed = spark.createDataFrame([tuple(fragment) for fragment in fragments], _FRAGMENT)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from Fragment(**row).read().to_batches()

    return listed.repartition(min(len(fragments), 64)).mapInArrow(read, schema)


@dataclass(frozen=True)
class Catalog:
    """The tables of a store at one commit."""

    url: str
    branch: str | None
    commit: int
    tables: tuple[str, ...]
    types: tuple[Any, ...] = ()

    def views(self, spark: SparkSession, prefix: str = "") -> dict[str, str]:
        """Make a temporary view of every table, called after it: `Customer`, `Placed`. Returns tables by view."""
        made: dict[str, str] = {}
        with open_parallel(self.url, branch=self.branch, types=self.types) as store:
            view = store.view(as_of=self.commit)
            for name in self.tables:
                called = prefix + name.rpartition("/")[2].replace(".", "_")
                if called in made:
                    called = prefix + name.replace("/", "_").replace(".", "_")
                try:
                    found = frame(spark, store, name, view, branch=self.branch)
                except NotFound:  # migrated after that commit: there is nothing of it to see
                    continue
                found.createOrReplaceTempView(quoted(called))
                made[called] = name
        return made


def catalog(
    url: str, *, branch: str | None = None, as_of: int | str | None = None, types: Iterable[Any] = ()
) -> Catalog:  # fmt: skip
    """The tables of a store at the newest commit, or at `as_of`: `catalog(url).views(spark)` lets SQL see them all."""
    classes = tuple(types)
    with open_parallel(url, branch=branch, types=classes) as store:
        return Catalog(store.url, branch, store.view(as_of=as_of).commit, tuple(store.tables()), classes)


__all__ = ["Catalog", "catalog", "save", "table"]
