"""Streams: changes by commits, each exactly once, however often a stream is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ontolake.model import Entity, Field
from ontolake.ontology import Session

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]  # all in one worker, so that Spark starts once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int]


def commit(url: str, *sizes: tuple[str, int]) -> None:
    with Session(url, entity_types=[Thing]) as session:
        session.ensure(Thing(id=id, size=size) for id, size in sizes)


def changes(spark: SparkSession, url: str) -> DataFrame:
    return spark.readStream.format("ontolake").option("url", url).option("table", "entity/Thing").option(
        "mode", "changes").option("max_commits", 1).load()


def test_each_commit_is_read_once_also_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    url = f"{tmp_path}/shop.db"
    commit(url, ("a", 1), ("b", 1))
    commit(url, ("a", 2))
    batches: list[list[tuple[str, str, int]]] = []

    def take(batch: DataFrame, number: int) -> None:
        batches.append(sorted((row.change, row.id, row.size) for row in batch.collect()))

    def follow() -> None:
        changes(spark, url).writeStream.foreachBatch(take).option(
            "checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True).start().awaitTermination()

    follow()
    assert [one for one in batches if one] == [[("insert", "a", 1), ("insert", "b", 1)], [("update", "a", 2)]]
    last = max(int(file.name) for file in (tmp_path / "checkpoint" / "commits").iterdir() if file.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):  # as if Spark had died before it wrote down that the batch was done
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    commit(url, ("a", 3), ("c", 3))
    batches.clear()
    follow()
    again, new = [one for one in batches if one]
    assert again == [("update", "a", 2)], "the same rows, although there is a newer state by now"
    assert new == [("insert", "c", 3), ("update", "a", 3)]
