"""Streams: follow a table by its commits, and publish one commit for each micro-batch, each exactly once.

An offset is a commit, so that a batch that is read again has the same rows. A sink writes the number of the batch into
the commit itself: whoever stops it, before or after it has published, when it is started again it knows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import datasource as ds
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StringType, StructField, StructType

from ontolake.errors import Conflict, Invalid
from ontolake.faults import reach
from ontolake.history import Commit
from ontolake.history.contention import Pace, commit_optimistically
from ontolake.history.metadata import BATCH, LOCAL_SEQ, STREAM
from ontolake.parallel import Fragment, Parallel, Published, Split, View, beside, new_job, stage_shaped
from ontolake.spark.filters import decoded
from ontolake.spark.options import FOLLOW, SINK, ConnectorOptions
from ontolake.spark.requests import accepted, plainly
from ontolake.spark.stream_errors import StreamError
from ontolake.spark.types import arrow_schema, fitted, in_pieces

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.spark.source import SplitPartition, StagedFragments



class StreamReader(ds.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a table: an offset is a commit, a batch the changes of `(start, end]`, without deletions unless asked."""

    def __init__(self, options: ConnectorOptions, schema: StructType) -> None:
        options.only(FOLLOW, "a stream that reads")
        for name in ("max_commits", "max_rows"):
            if getattr(options, name) == 0:
                raise Invalid(f"{name} is 0: such a stream would never read anything", hint="give 1 or more")
        self._options = options
        self._schema = schema
        self._until: int | None = None
        self._since = 0
        if options.since is not None:
            with options.open() as store:
                self._since = store.view(mode="changes", since=options.since).since

    def initialOffset(self) -> dict[str, int]:
        return {"commit": self._since}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark knows one limit and only hands it back: whether there is any is what counts here."""
        options = self._options
        if options.max_rows:
            return ReadMaxRows(options.max_rows)
        return ReadMaxFiles(options.max_commits) if options.max_commits else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._head()

    def _head(self) -> int:
        with self._options.open() as store:
            return store.head()

    @plainly
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        options, since = self._options, start["commit"]
        end = self._head() if self._until is None else self._until
        if end < since:
            raise Invalid(f"{options.url!r} has commits up to {end}, and this stream has read up to {since} already: "
                          "it was replaced, or restored to an earlier state",
                          hint="begin with another checkpoint, and let since say where")
        if not isinstance(limit, ReadAllAvailable):
            with options.open() as store:
                if options.max_commits:
                    end = after(store, since, end, options.max_commits)
                if options.max_rows and end > since + 1:
                    end = within(store, options.table, since, end, options.max_rows)
        return {"commit": end}

    def reportLatestOffset(self) -> dict[str, int]:
        return {"commit": self._head()}

    @plainly
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[ds.InputPartition]:
        from ontolake.spark.source import SplitPartition

        options = self._options
        if end["commit"] <= start["commit"]:
            return []
        with options.open() as store:
            view = store.view(as_of=end["commit"], mode="changes", since=start["commit"])
            change, names = store.schema(options.table, "changes").names[0], self._schema.names
            if options.mode == "changes" or change in names:
                return [SplitPartition(split) for split in splits(options, store, view, self._schema)]
            told = StructType([*self._schema.fields, StructField(change, StringType())])
            return [SplitPartition(Standing(split, change)) for split in splits(options, store, view, told)]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self._schema)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to let go of: what was read stays for ever."""


@dataclass(frozen=True)
class Standing:
    """A split of changes without rows that were deleted, of which there is only the key: nobody could tell them."""

    split: Split
    change: str

    def read(self) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        for batch in self.split.read():
            yield batch.filter(pc.not_equal(batch.column(self.change), "delete"))


def after(store: Parallel, since: int, until: int, count: int) -> int:
    """The commit that comes `count` commits after another, `until` at most.

    The commits of a branch have numbers with gaps between them. Looks at few more commits than it counts.
    """
    end = since
    while end < until:
        end = min(until, since + 2 * max(end - since, (count + 1) // 2))
        found = sorted(commit.id for commit in store.commits(since=since, until=end))
        if len(found) >= count:
            return found[count - 1]
    return until


def within(store: Parallel, table: str, since: int, until: int, rows: int) -> int:
    """The last commit of `(since, until]` up to which a table changes in no more than so many rows.

    A commit is never split: the first one that changes the table counts as a whole, however big it is. Looks at ever
    more commits at a time, so that what is read, one column, is not much more than what the batch will have.
    """
    import pyarrow.compute as pc

    column = store.schema(table, "changes").names[-1]
    done, step = 0, 1
    while since < until:
        end = min(since + step, until)
        counts: dict[int, int] = {}
        for split in store.splits(table, store.view(as_of=end, mode="changes", since=since), [column], parts=1):
            for batch in split.read():
                for found in pc.value_counts(batch.column(0)).to_pylist():
                    counts[found["values"]] = counts.get(found["values"], 0) + found["counts"]
        for commit in sorted(counts):
            if done and done + counts[commit] > rows:
                return commit - 1
            done += counts[commit]
            if done >= rows:
                return commit
        since, step = end, 2 * step
    return until


def splits(options: ConnectorOptions, store: Parallel, view: View, schema: StructType) -> Sequence[Split]:
    """The splits of what a schema has of a table, without what the filters of the options let the store skip."""
    import pyarrow as pa

    asked = {field.name: field for field in arrow_schema(schema)}
    known = pa.schema([asked.get(field.name, field) for field in store.schema(options.table, view.mode, view)])
    return store.splits(options.table, view, schema.names, decoded(options.filters, known), parts=options.parts)


def read_part(partition: ds.InputPartition | SplitPartition | None, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The batches of a split, as Spark wants them."""
    if partition is None or partition.value is None:  # Spark reads once even where there is nothing
        return
    for batch in partition.value.read():
        yield from in_pieces(fitted(batch, schema))


class StreamWriter(ds.DataSourceStreamArrowWriter):
    """One commit for each micro-batch. A batch that was published before is not published again."""

    def __init__(self, options: ConnectorOptions, schema: StructType) -> None:
        if not options.stream:
            raise Invalid('a stream that writes to format("ontolake") needs the option stream',
                          hint="give it a name of its own, which stays the same when it is started again")
        options.only(SINK, "a stream that writes")
        with options.open(write=bool(options.types())) as store:
            accepted(schema.names, store, options.table)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFragments:
        from ontolake.spark.source import StagedFragments

        job = f"{new_job()}-stream"  # one each: a stream that goes on for ever would never count as given up
        return StagedFragments(stage_shaped(self._options.url, self._options.table, iterator, job=job, shape=None))

    @plainly
    def commit(self, messages: list[ds.WriterCommitMessage | None], batchId: int) -> None:
        from ontolake.spark.source import fragments_of

        fragments = fragments_of(messages)
        if not fragments:
            return
        publish_batch(self._options, str(self._options.stream), batchId, fragments)
        with contextlib.suppress(Exception):  # `clean` does it later
            from ontolake.objects import open_store

            with contextlib.closing(open_store(beside(self._options.url))) as store:
                store.delete([fragment.key for fragment in fragments])

    def abort(self, messages: list[ds.WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is deleted: the publish may have happened. What is left is cleaned up later."""


def publish_batch(
    options: ConnectorOptions, stream: str, batch: int, fragments: Sequence[Fragment]
) -> Published | None:  # fmt: skip
    """Publish a batch of a stream as one commit, unless one says that it is in it already; then None.

    Looking and publishing are one step: if anybody commits in between, it looks again. Raises `StreamError` if a later
    batch of this stream was published before, `Conflict` if others keep committing.
    """
    with options.open(write=True) as store:

        def once() -> Published | None:
            head = store.head()
            last = last_batch(store, stream)
            if last is not None and last.batch == batch:
                return None
            if last is not None and last.batch > batch:
                raise StreamError(stream, f"batch {last.batch} was published as commit {last.commit}, and now batch "
                                  f"{batch} comes: another checkpoint or another query uses this name",
                                  hint="give the option stream another name, or start from the old checkpoint")
            reach("stream: before publishing")
            done = store.publish(fragments, metadata={STREAM: stream, BATCH: batch}, expected=head)
            reach("stream: published")
            return done

        def too_busy(error: Exception) -> Conflict:
            return Conflict(f"others keep committing to {options.url!r}", hint="start the stream again")

        return commit_optimistically(once, Conflict, Pace(attempts=20), exhausted=too_busy)


class Mark(NamedTuple):
    """Which batch of a stream a commit has in it."""

    batch: int
    commit: int | str


def last_batch(store: Parallel, stream: str) -> Mark | None:
    """The newest commit that says it has a batch of this stream in it.

    Reads the commits that came since the stream published last; all of them, where it never did.
    """
    for commit in store.commits():
        batch = _batch_of(commit, stream)
        if batch is not None:
            return Mark(batch, commit.id)
    return None


def _batch_of(commit: Commit[Any], stream: str) -> int | None:
    told = commit.metadata
    if told.get(STREAM) == stream and isinstance(told.get(BATCH), int):
        return int(told[BATCH])
    if commit.author == stream and isinstance(told.get(LOCAL_SEQ), int):  # documents count requests, from 1
        return int(told[LOCAL_SEQ]) - 1
    return None


__all__ = ["Mark", "StreamReader", "StreamWriter", "last_batch", "publish_batch", "read_part", "splits", "within"]
