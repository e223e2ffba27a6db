"""Spark on typed stores and graphs against Spark on bare Parquet: the same rows, the same questions, in one session.

Beside each ratio of times stands that of the processor time of all processes, which says more on a busy machine.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from report import Report, Taken

from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.ontology.parallel.tables import TypedParallel
from ontolake.ontology.repository.objects.upkeep.maintenance import compact
from ontolake.spark import Pipeline, save, session, table

_TICK = os.sysconf("SC_CLK_TCK")


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    tier: Field[str | None]
    points: Field[int]
    weight: Field[float]
    at: Field[datetime]


def processor_time() -> float:
    """Seconds of this process and all that came from it: Java, and Python workers below it."""
    found: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    mine = {os.getpid()}
    while more := {pid for pid, (parent, _) in found.items() if parent in mine} - mine:
        mine |= more
    return sum(found[pid][1] for pid in mine if pid in found) / _TICK


class Measured:
    """Medians of time and of processor time of actions that are run in turns."""

    def __init__(self, rounds: int, **actions: Callable[[], object]) -> None:
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in actions}
        for action in actions.values():  # once to get warm
            action()
        for _ in range(rounds):
            for name, action in actions.items():
                before, begun = processor_time(), time.perf_counter()
                action()
                times[name].append((time.perf_counter() - begun, processor_time() - before))
        self.time = {name: statistics.median(one for one, _ in taken) for name, taken in times.items()}
        self.work = {name: statistics.median(one for _, one in taken) for name, taken in times.items()}

    def ratio(self, one: str, other: str) -> float:
        return self.time[one] / self.time[other]

    def detail(self, one: str, other: str) -> str:
        took = f"{self.time[one]:.1f} s against {self.time[other]:.1f} s"
        if min(self.work[one], self.work[other]) <= 0:  # a process ended meanwhile, and took its account along
            return took
        return (f"{took}; processors {self.work[one] / self.work[other]:.2f}: {self.work[one]:.1f} s against "
                f"{self.work[other]:.1f} s")


def rows(spark: Any, number: int) -> Any:
    from pyspark.sql import functions as F

    id = F.col("id")
    return spark.range(0, number, 1, 4).select(
        F.format_string("c%09d", id).alias("id"), F.format_string("customer %d", id % 9973).alias("name"),
        F.when(id % 3 == 1, "gold").when(id % 3 == 2, "silver").alias("tier"),
        (id * 7919 % 100_000).alias("points"), (id / 7).alias("weight"),
        F.timestamp_micros(id * 1_000_000 + 1_700_000_000_000_000).alias("at"))  # fmt: skip


def asked(df: Any) -> Any:
    """A question that looks at every column of every row."""
    return df.groupBy("tier").agg({"id": "max", "name": "max", "points": "sum", "weight": "sum", "at": "max",
                                   "*": "count"}).collect()  # fmt: skip


def by_format(spark: Any, url: str) -> Any:
    return spark.read.format("ontolake").option("url", url).option("table", "entity/Customer").load()


def reading(
    report: Report, spark: Any, folder: Path, parquet: str, number: int, rounds: int, compacted: bool
) -> str:  # fmt: skip
    lake, graph = f"file://{folder}/lake", f"{folder}/graph/"
    until = datetime.fromtimestamp(1_700_000_000 + number // 100, UTC)
    save(spark.read.parquet(parquet), lake, "entity/Customer", types=[Customer])
    if compacted:
        with TypedParallel(lake, write=True) as store:
            compact(store.repository, dry_run=False)  # type: ignore[arg-type]
    else:
        small_saves(report, spark, lake, 12 if number > 100_000 else 6)
    with Graph.init(graph, [Customer]) as made:
        made.load("node/Customer", spark.read.parquet(parquet).toArrow(), mode="append")
    scans = Measured(
        rounds, parquet=lambda: asked(spark.read.parquet(parquet)),
        typed=lambda: asked(table(spark, lake, "entity/Customer")),
        graph=lambda: asked(table(spark, graph, "node/Customer")),
        format=lambda: asked(by_format(spark, lake)),
        few=lambda: asked(table(spark, lake, "entity/Customer", filters=[("at", "<", until)])))  # fmt: skip
    for name, said, target in (
            ("typed", f"table() of a {'compacted ' if compacted else ''}typed store", 1.2 if compacted else 1.5),
            ("graph", "table() of a graph", 1.6),
            ("format", 'format("ontolake") of the typed store', 2)):  # fmt: skip
        report.at_most(f"full scan with an aggregate, {said} / spark.read.parquet", scans.ratio(name, "parquet"),
                       target, scans.detail(name, "parquet"))
    report.at_least("full scan / scan with a filter that keeps 1 %", scans.ratio("typed", "few"), 5,
                    scans.detail("typed", "few"))
    return lake


def writing(report: Report, spark: Any, folder: Path, parquet: str, rounds: int) -> None:
    source, number = spark.read.parquet(parquet), count()

    def new() -> str:
        shutil.rmtree(folder / "written", ignore_errors=True)
        return f"file://{folder}/written/{next(number)}"

    def bare() -> None:
        source.write.parquet(new())

    def saved() -> None:
        save(source, new(), "entity/Customer", types=[Customer])

    def formatted() -> None:
        url = new()
        with Session(url, entity_types=[Customer]) as begun:  # so that the type is known there
            begun.ensure(Customer(id="a", name="first", tier=None, points=0, weight=0.0, at=datetime.now(UTC)))
        source.write.format("ontolake").mode("append").option("url", url).option("table", "entity/Customer").save()

    writes = Measured(rounds, bare=bare, save=saved, format=formatted)
    report.at_most("write and publish, save() / df.write.parquet", writes.ratio("save", "bare"), 1.2,
                   writes.detail("save", "bare"))
    report.at_most('write and publish, format("ontolake") / df.write.parquet', writes.ratio("format", "bare"), 1.6,
                   writes.detail("format", "bare"))


def pipelines(report: Report, spark: Any, folder: Path, parquet: str, lake: str, rounds: int) -> None:
    """A delivery in which one row of a hundred has changed, checked, compared with the state, and published."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    deliveries = [f"{folder}/delivery{number}" for number in range(rounds + 1)]
    for number, delivery in enumerate(deliveries, 1):
        changed = F.when(F.expr(f"crc32(id) % 100 = {number}"), F.col("points") + number).otherwise(F.col("points"))
        spark.read.parquet(parquet).withColumn("points", changed).write.parquet(delivery)
    loads, hands, names = iter(deliveries), iter(deliveries), ("id", "name", "tier", "points", "weight", "at")
    states = [parquet]

    def pipeline() -> None:
        made = Pipeline("bench", types=[Customer], folder=folder)
        made.load(Customer, made.parquet("customers", next(loads)), columns={name: name for name in names})
        made.run(lake, spark=spark)

    def by_hand() -> None:
        """Bad rows apart, one join with the state, what became of the rows counted on the way to the new state."""
        delivery, state = spark.read.parquet(next(hands)), spark.read.parquet(states[-1])
        bad = F.lit(False)
        for name in names:
            bad = bad | F.col(name).isNull() if name != "tier" else bad
        delivery.where(bad).write.parquet(f"{folder}/hand/bad{len(states)}")
        new, old = {name: F.col(f"new.{name}") for name in names}, {name: F.col(f"old.{name}") for name in names}
        alike = F.lit(True)
        for name in names:
            alike = alike & new[name].eqNullSafe(old[name])
        kind = F.when(new["id"].isNull(), "kept").when(old["id"].isNull(), "insert").when(
            alike, "unchanged").otherwise("update")
        joined = delivery.where(~bad).alias("new").join(state.alias("old"), new["id"] == old["id"], "full")
        merged = joined.select(kind.alias("kind"), *[
            F.when(new["id"].isNotNull(), new[name]).otherwise(old[name]).alias(name) for name in names])
        counts = Observation()
        merged.observe(counts, *[F.count(F.when(F.col("kind") == one, 1)).alias(one) for one in (
            "insert", "update", "unchanged")]).drop("kind").write.parquet(f"{folder}/hand/{len(states)}")
        states.append(f"{folder}/hand/{len(states)}")
        assert counts.get["update"] > 0

    found = Measured(rounds, hand=by_hand, pipeline=pipeline)
    report.at_most("pipeline with 1 % changed / the same by hand with df.write.parquet",
                   found.ratio("pipeline", "hand"), 2.5, found.detail("pipeline", "hand"))


def small_saves(report: Report, spark: Any, lake: str, times: int) -> None:
    """Commits of a hundred changed rows, one after the other, each by its own job."""
    from pyspark.sql import functions as F

    taken = Taken()
    for number in range(times):
        some = rows(spark, 100).withColumn("points", F.lit(number))
        taken.add(lambda some=some: save(some, lake, "entity/Customer", types=[Customer]))
    first, last = statistics.median(taken.time[:3]), statistics.median(taken.time[-3:])
    report.at_most("save() of 100 changed rows: the last 3 / the first 3", last / first, 1.5,
                   f"{last:.2f} s against {first:.2f} s")


def run(report: Report, number: int, rounds: int, *, tuned: bool) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ontolake-spark-"))
    settings = {"spark.driver.memory": "4g", "spark.ui.showConsoleProgress": "false"}
    spark = session("benchmark", settings=settings) if tuned else session("benchmark")
    try:
        parquet = f"{folder}/parquet"
        rows(spark, number).write.parquet(parquet)
        report.note(f"{number:,} rows of 6 columns, local[2]")
        lake = reading(report, spark, folder, parquet, number, rounds, compacted=tuned)
        writing(report, spark, folder, parquet, rounds)
        pipelines(report, spark, folder, parquet, lake, rounds)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    told = Report("Spark")
    if told.as_users_do:
        run(told, *((100_000, 1) if told.small else (500_000, 2)), tuned=False)
    if told.tuned:
        run(told, *((100_000, 1) if told.small else (5_000_000, 3)), tuned=True)
    told.finish()
