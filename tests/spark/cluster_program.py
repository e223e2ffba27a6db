"""The driver of the tests on a cluster: does what it is told, a line of JSON each, and says what came of it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from waiting import wait_for

from ontolake.model import Entity, Field
from ontolake.ontology.migration.upgraders import Upgrader
from ontolake.spark import jobs, save, session
from ontolake.spark.jobs.workers import OnSpark
from ontolake.spark.source import BatchWriter, OntolakeSource, StagedFragments


class Part(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int]


class Wider(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int]
    double: Field[int]


Wider.__name__ = "Part"
COLUMNS = "id string, size bigint"


def held(gate: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Lets the first two tasks through, and the others once the gate is open."""

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        Path(gate, f"begun-{number}-{os.getpid()}").touch()
        if number > 1:
            wait_for(Path(gate, "go").exists, 120)
        yield from batches

    return hold


def once_slow(gate: str) -> type[OntolakeSource]:
    """A source called `once-slow`: the first attempt of the last task has its rows, and stages them once the gate is
    open."""

    class SlowWriter(BatchWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFragments:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            number, attempt, batches = context.partitionId(), context.attemptNumber(), list(iterator)
            Path(gate, f"begun-{number}-{attempt}").touch()
            if (number, attempt) == (5, 0):
                wait_for(Path(gate, "go").exists, 120)
            return super().write(iter(batches))

    class SlowSource(OntolakeSource):
        @classmethod
        def name(cls) -> str:
            return "once-slow"

        def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
            return SlowWriter(self._options(), schema)

    return SlowSource


def doubled(rows: pa.Table) -> pa.Table:
    return rows.append_column("double", pc.multiply(rows.column("size"), 2))


class Driver:
    """What it can be told to do."""

    def __init__(self, master: str, java: str) -> None:
        self.spark = session("cluster", master=master, short_lived=True, settings={
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m",
            "spark.driver.memory": "1g", "spark.executor.cores": 1, "spark.cores.max": 2,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": 2, "spark.locality.wait": "0s", "spark.speculation": "true",
            "spark.python.task.killTimeout": "120s",
            "spark.executor.extraJavaOptions": java,
        })  # fmt: skip

    def where(self, gate: str) -> Any:
        """What tasks see: their processes, and where the bucket is. They wait until both workers have begun."""
        return OnSpark(self.spark).run(_seen, [gate] * 6, code=[_seen])

    def parts(self, rows: int) -> DataFrame:
        return self.spark.range(0, rows, 1, 6).selectExpr("concat('p', lpad(id, 6, '0')) AS id", "id AS size")

    def speculate(self, url: str, rows: int, gate: str) -> Any:
        self.spark.dataSource.register(once_slow(gate))
        self.parts(rows).write.format("once-slow").mode("append").option("url", url).option(
            "table", "entity/Part").save()
        return sorted(file.name for file in Path(gate).glob("begun-*"))

    def load(self, url: str, rows: int, gate: str | None = None) -> Any:
        frame = self.parts(rows)
        if gate is not None:
            frame = frame.mapInArrow(held(gate), COLUMNS)
        return save(frame, url, "entity/Part", types=[Part])._asdict()

    def stream(self, source: str, target: str, checkpoint: str) -> Any:
        changes = self.spark.readStream.format("ontolake").option("url", source).option("table", "entity/Part").option(
            "max_commits", 1).load().select("id", "size")
        query = changes.writeStream.format("ontolake").option("url", target).option("table", "entity/Part").option(
            "stream", "copy").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination(120)
        return not query.isActive

    def migrate(self, url: str) -> Any:
        upgraders = [Upgrader(doubled, "Part", 1, True)]
        return jobs.migrate(url, [Wider], spark=self.spark, upgraders=upgraders, force=True).commit_id

    def verify(self, url: str) -> Any:
        return jobs.verify(url, spark=self.spark)


def _seen(gate: str) -> tuple[int, str | None]:
    Path(gate, str(os.getppid())).touch()
    wait_for(lambda: len(list(Path(gate).iterdir())) == 2, 120)
    return os.getppid(), os.environ.get("AWS_ENDPOINT_URL")


def main() -> None:
    driver = Driver(*sys.argv[1:])
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        try:
            said = getattr(driver, told.pop("do"))(**told)
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
