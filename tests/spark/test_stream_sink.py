"""A streaming sink makes one commit of each micro-batch, however often and wherever it is stopped."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ontolake import faults
from ontolake.documents import open_space
from ontolake.errors import Invalid
from ontolake.graph import Graph
from ontolake.history import UnknownBranchError
from ontolake.model import Entity, Field
from ontolake.model.errors import SchemaValidationError
from ontolake.ontology import Session
from ontolake.parallel import Fragment, clean, new_job, open_parallel, stage
from ontolake.spark.options import ConnectorOptions
from ontolake.spark.source import OntolakeSource
from ontolake.spark.stream_errors import StreamError
from ontolake.spark.streams import Mark, StreamReader, StreamWriter, last_batch, publish_batch
from ontolake.sql import open_database

pytestmark = pytest.mark.xdist_group("spark")  # all in one worker, so that Spark starts once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int]


def started(url: str) -> str:
    with Session(url, entity_types=[Thing]) as session:
        session.ensure(Thing(id="first", size=0))
    return url


def deliver(folder: Path, number: int, *ids: str) -> None:
    """One file, which becomes one micro-batch. Spark takes files by their times."""
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps({"id": id, "size": number}) + "\n" for id in ids)
    file = folder / f"{number:03}.json"
    hidden = folder / f".{file.name}"
    hidden.write_text(lines)
    os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
    hidden.rename(file)


def told(url: str) -> list[tuple[int, Any, Any]]:
    """Of every commit its number, stream and batch, oldest first."""
    with Session(url, entity_types=[Thing]) as session:
        return sorted((one.id, one.metadata.get("stream"), one.metadata.get("batch")) for one in session.list_commits())


def rows(url: str) -> dict[str, int]:
    with Session(url, entity_types=[Thing]) as session:
        return {one.id: one.size for one in session.query().entities(Thing).collect()}


def states(url: str) -> int:
    with Session(url, entity_types=[Thing]) as session:
        return len(session.query().entities(Thing).with_history().collect())


def deliveries(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("id string, size bigint").option("maxFilesPerTrigger", 1).json(str(folder))


def follow(frame: DataFrame, url: str, checkpoint: Path, *, format: str = "ontolake", table: str = "entity/Thing",
           stream: str = "deliveries") -> None:  # fmt: skip
    query = frame.writeStream.format(format).option("url", url).option("table", table).option(
        "stream", stream).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination(100)
    assert not query.isActive


@pytest.mark.slow
@pytest.mark.parametrize("step", ["stream: before publishing", "stream: published"])
def test_a_sink_that_is_killed_publishes_every_batch_once(spark: SparkSession, tmp_path: Path, step: str) -> None:
    """Killed between staging and publishing, and between publishing and Spark's own checkpoint."""
    from pyspark.errors import StreamingQueryException

    url, inbox = started(f"file://{tmp_path}/lake"), tmp_path / "inbox"

    def kill(reached: str) -> None:
        if reached == step:
            faults.kill()

    class KilledWriter(StreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:
            with faults.arm(kill) if batchId == 1 else nullcontext():
                super().commit(messages, batchId)

    class KilledSource(OntolakeSource):
        @classmethod
        def name(cls) -> str:
            return "ontolake-killed"

        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
            return KilledWriter(ConnectorOptions(self.options), schema)

    spark.dataSource.register(KilledSource)
    for number in range(2):
        deliver(inbox, number, "a", f"b{number}")
    with pytest.raises(StreamingQueryException):
        follow(deliveries(spark, inbox), url, tmp_path / "checkpoint", format="ontolake-killed")
    published_first = step == "stream: published"
    assert told(url)[1:] == [(number + 2, "deliveries", number) for number in range(2 if published_first else 1)]
    with Session(url, entity_types=[Thing]) as session:  # meanwhile somebody else changes what was just delivered
        session.ensure(Thing(id="b1", size=99))
    deliver(inbox, 2, "c")
    follow(deliveries(spark, inbox), url, tmp_path / "checkpoint")
    batches = [one[1:] for one in told(url) if one[1]]
    assert batches == [("deliveries", number) for number in range(3)]
    assert rows(url) == {"first": 0, "a": 1, "b0": 0, "b1": 99 if published_first else 1, "c": 2}
    assert clean(url, older=0, dry_run=False).items == 1, "what the killed one staged, and nothing else"


@pytest.mark.slow
def test_a_checkpoint_that_is_lost_is_noticed_and_one_that_is_behind_is_not_published_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    url, inbox, checkpoint = started(f"{tmp_path}/shop.db"), tmp_path / "inbox", tmp_path / "checkpoint"
    deliver(inbox, 0, "a")
    deliver(inbox, 1, "a", "b")
    follow(deliveries(spark, inbox), url, checkpoint)
    before = told(url)
    for name in ("1", ".1.crc"):  # as if Spark had died after the sink was done, before it wrote that down
        (checkpoint / "commits" / name).unlink()
    follow(deliveries(spark, inbox), url, checkpoint)
    assert told(url) == before
    assert states(url) == 4
    shutil.rmtree(checkpoint)
    with pytest.raises(StreamingQueryException, match="another checkpoint"):
        follow(deliveries(spark, inbox), url, checkpoint)
    assert told(url) == before


@pytest.mark.slow
def test_documents_take_batches_too(spark: SparkSession, tmp_path: Path) -> None:
    with open_space(f"{tmp_path}/", "orders"):
        pass
    url, inbox, checkpoint = f"{tmp_path}/orders.sqlite", tmp_path / "inbox", tmp_path / "checkpoint"
    deliver(inbox, 0, "a")
    deliver(inbox, 1, "a", "b")
    documents = deliveries(spark, inbox).selectExpr("id", "to_json(struct(size)) AS document")
    follow(documents, url, checkpoint, table="documents")
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    follow(documents, url, checkpoint, table="documents")
    with open_space(f"{tmp_path}/", "orders") as space:
        assert [one.seq for one in space.commits()] == [2, 1]
        assert space.read("a").document == {"size": 1}


def staged(url: str, *sizes: int, table: str = "entity/Thing") -> list[Fragment]:
    batch = pa.record_batch({"id": [f"n{size}" for size in sizes], "size": pa.array(sizes, pa.int64())})
    found = stage(url, table, [batch], job=new_job())
    assert found is not None
    return [found]


@pytest.fixture(params=["sqlite", "objects"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return started(f"{tmp_path}/shop.db" if request.param == "sqlite" else f"file://{tmp_path}/lake")


def test_of_two_that_publish_the_same_batch_one_does(url: str) -> None:
    options = ConnectorOptions({"url": url, "table": "entity/Thing"})
    inner: list[object] = []

    def overtake(reached: str) -> None:
        if reached == "stream: before publishing" and not inner:
            inner.append("begun")
            inner[0] = publish_batch(options, "s", 0, staged(url, 1, 2))

    with faults.arm(overtake):
        assert publish_batch(options, "s", 0, staged(url, 1, 2, 3)) is None
    assert [one.commit for one in inner] == [2]  # type: ignore[attr-defined]
    assert told(url) == [(1, None, None), (2, "s", 0)]


def test_a_commit_of_others_in_between_is_no_reason_to_fail(url: str) -> None:
    options = ConnectorOptions({"url": url, "table": "entity/Thing"})
    others = iter([7, 8])

    def disturb(reached: str) -> None:
        size = next(others, None) if reached == "stream: before publishing" else None
        if size is not None:
            with Session(url, entity_types=[Thing]) as session:
                session.ensure(Thing(id="other", size=size))

    with faults.arm(disturb):
        done = publish_batch(options, "s", 3, staged(url, 1))
    assert done is not None
    assert done.commit == 4
    assert publish_batch(options, "s", 3, staged(url, 1)) is None
    with pytest.raises(StreamError, match="batch 3 was published as commit 4"):
        publish_batch(options, "s", 2, staged(url, 1))


def test_the_last_batch_of_each_stream_is_known(url: str) -> None:
    options = ConnectorOptions({"url": url, "table": "entity/Thing"})
    for batch, size in enumerate((1, 2, 3)):
        publish_batch(options, "s", batch, staged(url, size))
    publish_batch(options, "t", 0, staged(url, 4))
    with open_parallel(url) as store:
        assert last_batch(store, "s") == Mark(2, 4)
        assert last_batch(store, "t") == Mark(0, 5)
        assert last_batch(store, "u") is None


@pytest.mark.parametrize("kind", ["graph", "sql"])
def test_graphs_and_sql_tables_publish_a_batch_once_too(tmp_path: Path, kind: str) -> None:
    place, table = {"graph": ("graph/", "node/Thing"), "sql": ("sql.db", "main.public.thing")}[kind]
    url = f"{tmp_path}/{place}"
    if kind == "graph":
        with Graph.init(url, [Thing]) as graph:
            graph.load(table, [{"id": "n1", "size": 0}])
    else:
        with open_database(url) as database:
            database.execute("CREATE TABLE thing (id TEXT PRIMARY KEY, size INT)")
    options = ConnectorOptions({"url": url, "table": table})
    published = [publish_batch(options, "s", batch, staged(url, 1, batch + 2, table=table)) for batch in (0, 0, 1, 1)]
    assert [one is None for one in published] == [False, True, False, True]
    with open_parallel(url) as store:
        assert last_batch(store, "s") == Mark(1, published[2].commit)  # type: ignore[union-attr,arg-type]
        found = [row for split in store.splits(table, store.view()) for batch in split.read()
                 for row in batch.to_pylist()]
    assert sorted(row["id"] for row in found) == ["n1", "n2", "n3"]
    with pytest.raises(StreamError, match="batch 1 was published"):
        publish_batch(options, "s", 0, staged(url, 9, table=table))


@pytest.mark.parametrize(("options", "told"), [
    ({"as_of": "1"}, "as_of"), ({"max_commits": "0"}, "max_commits"), ({"max_rows": "0"}, "max_rows"),
    ({"max_rows": "many"}, "number"), ({"since": "x"}, "'x'")])
def test_options_of_a_source_are_checked(url: str, options: dict[str, str], told: str) -> None:
    from pyspark.sql.types import StructType

    with pytest.raises((Invalid, UnknownBranchError), match=told):
        StreamReader(ConnectorOptions({"url": url, "table": "entity/Thing", **options}), StructType())


def test_what_a_stream_has_left_is_cleaned_up_while_it_goes_on(url: str) -> None:
    from pyspark.sql.types import LongType, StringType, StructType

    columns = StructType().add("id", StringType()).add("size", LongType())
    sink = StreamWriter(ConnectorOptions({"url": url, "table": "entity/Thing", "stream": "s"}), columns)
    batch = pa.record_batch({"id": ["a"], "size": pa.array([1], pa.int64())})
    (left,), (new,) = sink.write(iter([batch])).fragments, sink.write(iter([batch])).fragments
    old = Path(left.place.removeprefix("file://"), left.key)
    os.utime(old, (1_700_000_000, 1_700_000_000))
    assert clean(url, dry_run=False).items == 1
    assert not old.exists()
    assert new.read().num_rows == 1


def test_a_sink_needs_a_name(url: str) -> None:
    from pyspark.sql.types import StructType

    with pytest.raises(Invalid, match="option stream"):
        StreamWriter(ConnectorOptions({"url": url, "table": "entity/Thing"}), StructType())


def test_a_sink_refuses_columns_that_do_not_fit_before_it_stages_any(url: str) -> None:
    from pyspark.sql.types import StringType, StructType

    options = ConnectorOptions({"url": url, "table": "entity/Thing", "stream": "s"})
    with pytest.raises(SchemaValidationError, match="colour"):
        StreamWriter(options, StructType().add("id", StringType()).add("colour", StringType()))
    with pytest.raises(SchemaValidationError, match="size"):
        StreamWriter(options, StructType().add("id", StringType()))
    with pytest.raises(Invalid, match="max_rows"):
        StreamWriter(ConnectorOptions({"url": url, "table": "entity/Thing", "stream": "s", "max_rows": "3"}),
                     StructType())
