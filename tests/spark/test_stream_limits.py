"""How much a stream reads at a time: commits, rows, or both; a commit is never split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from marking import slow_after
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from ontolake.documents import Delete, Set, open_space
from ontolake.errors import Invalid, NotFound
from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.parallel import open_parallel
from ontolake.spark.options import ConnectorOptions
from ontolake.spark.streams import StreamReader
from ontolake.spark.types import spark_schema
from ontolake.sql import open_database

pytestmark = pytest.mark.xdist_group("spark")  # all in one worker, so that Spark starts once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZES = (3, 1, 1, 5, 0, 2, 1)
"""So many rows each commit has; that with none is about another table, or another document."""


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int]


class Other(Entity):
    id: Field[str] = Field(primary_key=True)


def typed(url: str) -> None:
    with Session(url, entity_types=[Thing, Other]) as session:
        for number, size in enumerate(SIZES):
            things = [Thing(id=f"t{n}", size=number) for n in range(size)]
            session.ensure(things or [Other(id="o")])
            session.commit()


def graph(url: str) -> None:
    with Graph.init(url, [Thing, Other]) as made:
        for number, size in enumerate(SIZES):
            things = pa.table({"id": [f"t{n}" for n in range(size)], "size": pa.array([number] * size, pa.int64())})
            made.load(Thing, things, mode="merge") if size else made.load(Other, [Other(id="o")])


def sql(url: str) -> None:
    with open_database(url) as database:
        database.execute("CREATE TABLE thing (id TEXT PRIMARY KEY, size INT); CREATE TABLE other (id TEXT PRIMARY KEY)")
        for number, size in enumerate(SIZES):
            with database.transaction():
                for n in range(size):
                    database.execute("DELETE FROM thing WHERE id = ?", (f"t{n}",))
                    database.execute("INSERT INTO thing VALUES (?, ?)", (f"t{n}", number))
                if not size:
                    database.execute("INSERT INTO other VALUES ('o')")


def documents(url: str) -> None:
    with open_space(f"{Path(url).parent}/", Path(url).stem) as space:
        for number, size in enumerate(SIZES):
            space.branches.create("side") if not size else space.transact(
                "s", number + 1, [Set(f"t{n}", {"size": number}) for n in range(size)])


LAYOUTS: dict[str, Any] = {
    "sqlite": (typed, "{}/shop.db", "entity/Thing"), "objects": (typed, "file://{}/lake", "entity/Thing"),
    "graph": (graph, "file://{}/graph", "node/Thing"), "sql": (sql, "{}/tables.db", "main.public.thing"),
    "documents": (documents, "{}/orders.sqlite", "documents"),
}  # fmt: skip


@pytest.fixture(params=slow_after(2, LAYOUTS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    fill, where, table = LAYOUTS[request.param]
    url = where.format(tmp_path)
    fill(url)
    return url, table


def batches(place: tuple[str, str], **limits: int) -> list[list[int]]:
    """How many rows the commits of each batch have, as a stream from the start reads them, to its end."""
    url, table = place
    options = ConnectorOptions({"url": url, "table": table, **{name: str(value) for name, value in limits.items()}})
    with open_parallel(url) as store:
        schema, found, head = store.schema(table, "changes"), [], store.head()
        reader = StreamReader(options, StructType())
        at = reader.initialOffset()
        while at["commit"] < head:
            end = reader.latestOffset(at, reader.getDefaultReadLimit())
            assert end["commit"] > at["commit"], "it goes on"
            view = store.view(as_of=end["commit"], mode="changes", since=at["commit"])
            commits = [row[schema.names[-1]] for split in store.splits(table, view) for batch in split.read()
                       for row in batch.to_pylist()]
            if commits:
                found.append([commits.count(commit) for commit in sorted(set(commits))])
            at = end
        assert reader.latestOffset(at, reader.getDefaultReadLimit()) == at
        assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == at, "Spark may ask for everything"
    return found


@pytest.mark.slow
def test_a_batch_has_no_more_rows_than_it_may_unless_one_commit_has(place: tuple[str, str]) -> None:
    assert batches(place, max_rows=3) == [[3], [1, 1], [5], [2, 1]]
    assert batches(place, max_rows=1) == [[3], [1], [1], [5], [2], [1]]
    assert batches(place, max_rows=4) == [[3, 1], [1], [5], [2, 1]]
    assert batches(place, max_rows=100) == batches(place) == [[3, 1, 1, 5, 2, 1]]


def test_both_limits_hold(place: tuple[str, str]) -> None:
    assert max(map(len, batches(place, max_rows=100, max_commits=2))) <= 2
    both = batches(place, max_rows=3, max_commits=1)
    assert both == [[3], [1], [1], [5], [2], [1]]


def followed(url: str, table: str, **more: str) -> list[tuple[Any, ...]]:
    """All that a stream from the start reads."""
    options = ConnectorOptions({"url": url, "table": table, **more})
    with open_parallel(url) as store:
        schema = spark_schema(store.schema(table, options.mode))
        reader = StreamReader(options, schema)
        parts = reader.partitions(reader.initialOffset(), {"commit": store.head()})
    return sorted(tuple(row.values()) for part in parts for batch in reader.read(part) for row in batch.to_pylist())


def deleted(kind: str, folder: Path) -> tuple[str, str]:
    """A place where `b` is written, and `a` is written and deleted."""
    _, where, table = LAYOUTS[kind]
    url = where.format(folder)
    if kind == "graph":
        with Graph.init(url, [Thing]) as graph:
            graph.load(Thing, [{"id": "a", "size": 1}, {"id": "b", "size": 1}])
            graph.delete(Thing, ["a"])
    elif kind == "sql":
        with open_database(url) as database:
            database.execute("CREATE TABLE thing (id TEXT PRIMARY KEY, size INT); "
                             "INSERT INTO thing VALUES ('a', 1), ('b', 1); DELETE FROM thing WHERE id = 'a'")
    else:
        with open_space(f"{folder}/", "orders") as space:
            space.transact("s", 1, [Set("a", {}), Set("b", {})])
            space.transact("s", 2, [Delete("a")])
    return url, table


@pytest.mark.parametrize("kind", ["graph", "sql", "documents"])
def test_rows_that_are_deleted_come_only_where_they_can_be_told_from_others(kind: str, tmp_path: Path) -> None:
    url, table = deleted(kind, tmp_path)
    assert [row[0] for row in followed(url, table)] == ["a", "b"]
    assert [row[:2] for row in followed(url, table, mode="changes")] == [
        ("delete", "a"), ("insert", "a"), ("insert", "b")]


def test_a_stream_begins_and_goes_on_only_where_there_are_commits(tmp_path: Path) -> None:
    url = f"{tmp_path}/shop.db"
    typed(url)
    options = {"url": url, "table": "entity/Thing"}
    with pytest.raises(NotFound, match="99"):
        StreamReader(ConnectorOptions({**options, "since": "99"}), StructType())
    with pytest.raises(Invalid, match="read up to 99"):  # as of a checkpoint from before the store was replaced
        StreamReader(ConnectorOptions(options), StructType()).latestOffset({"commit": 99}, ReadAllAvailable())


def test_a_stream_of_a_graph_begins_behind_a_commit_by_its_name(tmp_path: Path) -> None:
    url = f"{tmp_path}/graph/"
    graph(url)
    with Graph.open(url, read_only=True) as found:
        first = str(list(found.commits())[-2].id)
    reader = StreamReader(ConnectorOptions({"url": url, "table": "node/Thing", "since": first}), StructType())
    assert reader.initialOffset() == {"commit": 1}


@pytest.mark.slow
def test_a_stream_takes_so_many_rows_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/lake"
    typed(url)
    seen: list[int] = []

    def take(batch: DataFrame, number: int) -> None:
        seen.append(batch.count())

    changes = spark.readStream.format("ontolake").option("url", url).option("table", "entity/Thing").option(
        "mode", "changes").option("max_rows", 3).load()
    changes.writeStream.foreachBatch(take).option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(
        availableNow=True).start().awaitTermination()
    assert [count for count in seen if count] == [3, 2, 5, 3]
