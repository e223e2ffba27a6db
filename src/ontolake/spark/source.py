"""`format("ontolake")`: read, write and follow any store through Spark's Python data sources, in Arrow batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from ontolake.errors import Invalid
from ontolake.history.metadata import RUN
from ontolake.parallel import Fragment, new_job, stage_shaped
from ontolake.spark.options import READ, WRITE, ConnectorOptions
from ontolake.spark.requests import accepted, check_since, plainly
from ontolake.spark.streams import StreamReader, StreamWriter, read_part, splits
from ontolake.spark.types import spark_schema


class SplitPartition(ds.InputPartition):
    """A split on its way to a worker."""


class OntolakeSource(ds.DataSource):
    """What Spark asks for tables of stores."""

    @classmethod
    def name(cls) -> str:
        return "ontolake"

    def _options(self) -> ConnectorOptions:
        return ConnectorOptions(self.options)

    @plainly
    def schema(self) -> StructType:
        options = self._options()
        with options.open() as store:
            view = None if options.as_of is None else store.view(as_of=options.as_of, mode=options.mode)
            return spark_schema(store.schema(options.table, options.mode, view))

    @plainly
    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(self._options(), schema)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise Invalid("a store keeps its history and cannot be overwritten",
                          hint='write with .mode("append"): rows replace those of the same key')
        return BatchWriter(self._options(), schema)

    @plainly
    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self._options(), schema)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return StreamWriter(self._options(), schema)


class BatchReader(ds.DataSourceReader):
    """Reads a table at the commit that is pinned when the query is planned."""

    def __init__(self, options: ConnectorOptions, schema: StructType) -> None:
        options.only(READ, "a read")
        check_since(options.mode, options.since)
        self._options = options
        self._schema = schema

    @plainly
    def partitions(self) -> Sequence[ds.InputPartition]:
        options = self._options
        with options.open() as store:
            view = store.view(as_of=options.as_of, mode=options.mode, since=options.since)
            return [SplitPartition(split) for split in splits(options, store, view, self._schema)]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self._schema)


class StagedFragments(ds.WriterCommitMessage):
    """What a task has staged."""

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self.fragments = fragments


def fragments_of(messages: Iterable[ds.WriterCommitMessage | None]) -> list[Fragment]:
    return [fragment for message in messages if isinstance(message, StagedFragments) for fragment in message.fragments]


class BatchWriter(ds.DataSourceArrowWriter):
    """Stages what tasks write, and publishes it as one commit at the end."""

    def __init__(self, options: ConnectorOptions, schema: StructType) -> None:
        options.only(WRITE, "a write")
        with options.open(write=bool(options.types())) as store:
            accepted(schema.names, store, options.table)
            self._shape = store.shape(options.table)
        self._options = options
        self._job = new_job()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFragments:
        task = TaskContext.get()
        return StagedFragments(stage_shaped(self._options.url, self._options.table, iterator, job=self._job,
                                            shape=self._shape, part=task.partitionId() if task else 0))

    @plainly
    def commit(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        with self._options.open(write=True) as store:
            store.publish(fragments_of(messages), metadata={RUN: self._job})
        _tidy(self._options.url, self._job)

    def abort(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Nothing is deleted: the publish may have happened. What is left is cleaned up later."""


def _tidy(url: str, job: str) -> None:
    """Remove what was published. If that fails, `clean` does it later."""
    from ontolake.parallel import discard

    with contextlib.suppress(Exception):
        discard(url, job)
