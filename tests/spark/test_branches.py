"""Spark on branches of typed stores: reads at any reference, histories with deletions, streams, writes to a branch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from branched_history import PARTS, TYPES, BranchedHistory, written

from ontolake.history import ProtectedBranchError
from ontolake.spark import save, table
from ontolake.spark.options import ConnectorOptions
from ontolake.spark.streams import StreamReader, after
from ontolake.spark.types import spark_schema

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]  # all in one worker, so that Spark starts once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


@pytest.fixture
def store(tmp_path: Path) -> BranchedHistory:
    return written(f"{tmp_path}/parts.db")


@pytest.fixture(params=["{}/parts.db", "file://{}/parts"], ids=["sqlite", "objects"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> BranchedHistory:
    return written(request.param.format(tmp_path))


def sizes(df: DataFrame) -> dict[str, int]:
    rows = df.collect()
    found = {row["id"]: row["size"] for row in rows}
    assert len(found) == len(rows)
    return found


def reader(spark: SparkSession, url: str, **options: Any) -> DataFrameReader:
    return spark.read.format("ontolake").option("url", url).option("table", PARTS).options(**options)


def test_branches_tags_times_and_the_past_are_what_the_store_says(
    spark: SparkSession, any_store: BranchedHistory
) -> None:  # fmt: skip
    from ontolake.spark import register

    store = any_store
    register(spark)
    url, early = store.url, store.tags["early"]
    for branch in store.lines:
        assert sizes(table(spark, url, PARTS, branch=branch, types=TYPES)) == store.states[store.head(branch)][PARTS]
    assert sizes(reader(spark, url, branch="try").load()) == store.states[store.head("try")][PARTS]
    for as_of in (early, "early", f"main@{early}", store.times[early].isoformat()):
        assert sizes(reader(spark, url, as_of=as_of).load()) == store.states[early][PARTS], as_of
        assert sizes(table(spark, url, PARTS, as_of=as_of)) == store.states[early][PARTS], as_of
    elsewhere = store.head("deep")
    assert sizes(table(spark, url, PARTS, as_of=elsewhere)) == store.states[elsewhere][PARTS]
    line = store.lines["deep"]
    changes = reader(spark, url, branch="deep", mode="changes", since=line[0]).load()
    assert {(row.commit_id, row.id, row.change) for row in changes.collect()} == {
        (commit, key, kind) for commit in line[1:] for key, kind in store.changes[commit].items()}
    history = table(spark, url, PARTS, branch="deep", mode="history")
    assert {(row.commit_id, row.id, row.deleted) for row in history.collect()} == {
        (commit, key, kind == "delete") for commit in line for key, kind in store.changes[commit].items()}


def test_a_stream_follows_a_branch_with_its_deletions_and_another_writes_to_one(
    spark: SparkSession, store: BranchedHistory, tmp_path: Path
) -> None:  # fmt: skip
    line, got = store.lines["main"], list[tuple[int, set[tuple[int, str, str]]]]()

    def keep(df: DataFrame, number: int) -> None:
        got.append((number, {(row.commit_id, row.id, row.change) for row in df.collect()}))

    stream = spark.readStream.format("ontolake").option("url", store.url).option("table", PARTS).option(
        "mode", "changes").option("max_commits", 1).load()
    stream.writeStream.foreachBatch(keep).option("checkpointLocation", f"{tmp_path}/c").trigger(
        availableNow=True).start().awaitTermination()
    wanted = [{(commit, key, kind) for key, kind in store.changes[commit].items()} for commit in line]
    assert [rows for _, rows in got] == wanted, "one batch for each commit of the branch, whatever lies between them"

    store.branch("copied", "try")
    follow = spark.readStream.format("ontolake").option("url", store.url).option("table", PARTS).option(
        "branch", "deep").option("since", line[0]).load().select("id", "size", "name")
    follow.writeStream.format("ontolake").option("url", store.url).option("table", PARTS).option(
        "branch", "copied").option("stream", "copy").option("checkpointLocation", f"{tmp_path}/d").trigger(
        availableNow=True).start().awaitTermination()  # fmt: skip
    assert sizes(table(spark, store.url, PARTS, branch="copied")) == {
        **store.states[store.head("try")][PARTS], "b": 20, "g": 7, "h": 8}
    assert sizes(table(spark, store.url, PARTS)) == store.states[store.head()][PARTS], "main is as it was"


def test_offsets_of_a_stream_are_commits_of_its_branch(store: BranchedHistory) -> None:
    options = ConnectorOptions({"url": store.url, "table": PARTS, "branch": "try", "max_commits": "1"})
    with options.open() as opened:
        schema = spark_schema(opened.schema(PARTS))
        line = store.lines["try"]
        assert [after(opened, 0, line[-1], count) for count in (1, 2, 3, 99)] == [*line, line[-1]]
    made = StreamReader(options, schema)
    offsets, start = [], made.initialOffset()
    while (end := made.latestOffset(start, made.getDefaultReadLimit())) != start:
        offsets.append(end["commit"])
        start = end
    assert offsets == line


def test_rows_are_written_to_a_branch_and_never_to_a_protected_one(
    spark: SparkSession, any_store: BranchedHistory
) -> None:  # fmt: skip
    from ontolake.spark import register

    store = any_store
    register(spark)
    before = store.states[store.head()][PARTS]
    new = spark.createDataFrame([("a", 1000), ("z", 26)], "id string, size bigint")
    done = save(new, store.url, PARTS, branch="try", types=TYPES)
    assert done.written == {PARTS: 2}
    wanted = {**store.states[store.head("try")][PARTS], "a": 1000, "z": 26}
    assert sizes(table(spark, store.url, PARTS, branch="try")) == wanted
    new.selectExpr("id", "size + 1 AS size", "id AS name").write.format("ontolake").option("url", store.url).option(
        "table", PARTS).option("branch", "deep").mode("append").save()
    assert sizes(table(spark, store.url, PARTS, branch="deep")) == {
        **store.states[store.head("deep")][PARTS], "a": 1001, "z": 27}
    with store.session() as session:
        session.branches.protect("try")
    with pytest.raises(ProtectedBranchError, match="'try' is protected"):
        save(new.selectExpr("id", "size + 2 AS size"), store.url, PARTS, branch="try", types=TYPES)
    with pytest.raises(Exception, match="branch 'try' is protected and cannot be written to"):
        new.selectExpr("id", "size + 2 AS size", "id AS name").write.format("ontolake").option(
            "url", store.url).option("table", PARTS).option("branch", "try").mode("append").save()
    assert sizes(table(spark, store.url, PARTS, branch="try")) == wanted
    assert sizes(table(spark, store.url, PARTS)) == before
