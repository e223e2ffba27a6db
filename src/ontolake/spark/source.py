"""`format("ontolake")`: read, write and follow any store through Spark's Python data sources, in Arrow batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from ontolake.errors import Invalid
from ontolake.parallel import MODES, Fragment, Mode, Parallel, new_job, open_parallel, stage_shaped
from ontolake.spark.filtering import decoded
from ontolake.spark.streams import StreamReader, StreamWriter, read_part
from ontolake.spark.types import arrow_schema, spark_schema

OPTIONS = ("url", "table", "branch", "as_of", "mode", "since", "models", "parts", "filters", "max_commits", "max_rows",
           "stream", "run")


class Options:
    """The options of a read or write, checked."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {key.lower(): value for key, value in given.items()}
        self._given.setdefault("table", self._given.get("path", ""))
        known = {*OPTIONS, "path", "checkpointlocation"}
        unknown = sorted(set(self._given) - known)
        if unknown:
            raise Invalid(f'format("ontolake") has no option {unknown[0]!r}', hint=f"it has {', '.join(OPTIONS)}")
        self.url = self._given.get("url", "")
        self.table = self._given["table"]
        if not self.url or not self.table:
            raise Invalid('format("ontolake") needs the options url and table',
                          hint='.option("url", "shop.db").option("table", "entity/Customer")')
        self.branch = self._given.get("branch")
        mode = self._given.get("mode", "latest")
        if mode not in MODES:
            raise Invalid(f"there is no mode {mode!r}", hint=f"write {', '.join(MODES)}")
        self.mode: Mode = mode
        self.as_of = self._commit("as_of")
        self.since = self._number("since")
        self.parts = self._number("parts") or None
        self.filters = self._given.get("filters", "[]")
        self.max_commits = self._number("max_commits")
        self.max_rows = self._number("max_rows")
        self.stream = self._given.get("stream")
        self.run = self._given.get("run")

    def _commit(self, name: str) -> int | str | None:
        """A commit: its number, or its name."""
        text = self._given.get(name)
        return self._number(name) if text is None or text.isdigit() or not text.isalnum() else text

    def _number(self, name: str) -> int | None:
        text = self._given.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise Invalid(f"the option {name} is a number, not {text!r}")
        return int(text)

    def types(self) -> Sequence[Any]:
        """The classes of the option `models`: a module or a file."""
        models = self._given.get("models")
        if not models:
            return ()
        from ontolake.cli.model_loading import load

        return load(models)

    def open(self, *, write: bool = False) -> Parallel:
        return open_parallel(self.url, branch=self.branch, write=write, types=self.types())


class Part(ds.InputPartition):
    """A split on its way to a worker."""


class OntolakeSource(ds.DataSource):
    """What Spark asks for tables of stores."""

    @classmethod
    def name(cls) -> str:
        return "ontolake"

    def _options(self) -> Options:
        return Options(self.options)

    def schema(self) -> StructType:
        options = self._options()
        with options.open() as store:
            view = None if options.as_of is None else store.view(as_of=options.as_of, mode=options.mode)
            return spark_schema(store.schema(options.table, options.mode, view))

    def reader(self, schema: StructType) -> Reader:
        return Reader(self._options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        if overwrite:
            raise Invalid("a store keeps its history and cannot be overwritten",
                          hint='write with .mode("append"): rows replace those of the same key')
        return Writer(self._options(), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self._options(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return StreamWriter(self._options(), schema)


class Reader(ds.DataSourceReader):
    """Reads a table at the commit that is pinned when the query is planned."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[ds.InputPartition]:
        options = self._options
        with options.open() as store:
            view = store.view(as_of=options.as_of, mode=options.mode, since=options.since)
            asked = {field.name: field for field in arrow_schema(self._schema)}
            stored = store.schema(options.table, options.mode, view)
            known = pa.schema([asked.get(field.name, field) for field in stored])
            splits = store.splits(options.table, view, self._schema.names, decoded(options.filters, known),
                                  parts=options.parts)  # fmt: skip
        return [Part(split) for split in splits]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self._schema)


class Staged(ds.WriterCommitMessage):
    """What a task has staged."""

    def __init__(self, fragments: Sequence[Fragment]) -> None:
        self.fragments = fragments


def fragments_of(messages: Iterable[ds.WriterCommitMessage | None]) -> list[Fragment]:
    return [fragment for message in messages if isinstance(message, Staged) for fragment in message.fragments]


class Writer(ds.DataSourceArrowWriter):
    """Stages what tasks write, and publishes it as one commit at the end."""

    def __init__(self, options: Options, schema: StructType) -> None:
        with options.open(write=bool(options.types())) as store:
            store.schema(options.table)  # refuse a table that is not there before any task runs
            self._shape = store.shape(options.table)
        self._options = options
        self._job = options.run or new_job()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        task = TaskContext.get()
        return Staged(stage_shaped(self._options.url, self._options.table, iterator, job=self._job, shape=self._shape,
                                   part=task.partitionId() if task else 0))

    def commit(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        with self._options.open(write=True) as store:
            store.publish(fragments_of(messages), metadata={"run": self._job})
        _tidy(self._options.url, self._job)

    def abort(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Nothing is deleted: the publish may have happened. What is left is cleaned up later."""


def _tidy(url: str, job: str) -> None:
    """Remove what was published. If that fails, `clean` does it later."""
    from ontolake.parallel import discard

    with contextlib.suppress(Exception):
        discard(url, job)
