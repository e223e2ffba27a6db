"""Scalars beyond the first ones through Spark: read from every layout, filtered, and loaded by pipelines."""

from __future__ import annotations

from datetime import time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from money import Money

from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.model.scalars import Codec, Scalar, register
from ontolake.ontology import Session
from ontolake.spark import Pipeline, table

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Shift(Entity):
    id: Field[int] = Field(primary_key=True)
    pay: Field[Money]
    starts: Field[time | None] = Field(default=None)
    lasts: Field[timedelta] = Field(default=timedelta(hours=8))


PLACES = ["sqlite/v1", "sqlite/v2", "objects/v1", "objects/v2", "graph"]


class Place:
    """A store of one layout, written and read by its own means."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, _, self.engine = kind.partition("/")
        self.table = "node/Shift" if kind == "graph" else "entity/Shift"
        self.url = f"{folder}/shifts.db" if self.kind == "sqlite" else f"file://{folder}/shifts"

    def start(self) -> None:
        if self.kind == "graph":
            Graph.init(self.url, [Shift]).close()
        else:
            Session(self.url, entity_types=[Shift], engine_version=self.engine).close()

    def put(self, rows: list[Any]) -> None:
        if self.kind == "graph":
            with Graph.open(self.url) as graph:
                graph.load(Shift, rows)
        else:
            with Session(self.url, entity_types=[Shift], engine_version=self.engine) as session:
                session.ensure(rows)

    def rows(self) -> list[Any]:
        if self.kind == "graph":
            with Graph.open(self.url, read_only=True) as graph:
                found = graph.snapshot().table(Shift).to_arrow().to_pylist()
            return sorted((Shift(**row) for row in found), key=lambda one: one.id)
        with Session(self.url, entity_types=[Shift]) as session:
            return list(session.query().entities(Shift).order_by(Shift.id).collect())


@pytest.fixture(autouse=True, scope="module")
def shipped(spark: SparkSession) -> None:
    """Workers see nothing of the folders of tests."""
    spark.sparkContext.addPyFile(str(Path(__file__).parents[1] / "support" / "money.py"))


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def shifts(count: int = 20) -> list[Any]:
    return [Shift(id=n, pay=Money(n * 125 - 300), starts=time(n, n, 0, n) if n % 4 else None,
                  lasts=timedelta(hours=n - 3, microseconds=n)) for n in range(count)]  # fmt: skip


def plain(one: Any) -> tuple[Any, ...]:
    return (one.id, Decimal(str(one.pay)), one.starts and one.starts.isoformat(timespec="microseconds"), one.lasts)


def test_workers_need_no_scalars_that_a_store_does_not_have(spark: SparkSession, tmp_path: Path) -> None:
    class Mark:
        pass

    class MarkScalar(Scalar):  # of this module, which workers cannot import
        name, python, sqlite = "Mark", Mark, "INTEGER"
        codec = Codec(lambda mark: 1, lambda number: Mark(), frozenset({Mark}))

    class Plain(Entity):
        id: Field[int] = Field(primary_key=True)

    register(MarkScalar())
    with Session(f"{tmp_path}/plain.db", entity_types=[Plain]) as session:
        session.ensure(Plain(id=1))
    assert [row["id"] for row in table(spark, f"{tmp_path}/plain.db", "entity/Plain").collect()] == [1]


def test_spark_reads_filters_and_sums_them(spark: SparkSession, place: Place) -> None:
    given = shifts()
    place.start()
    place.put(given)
    frame = table(spark, place.url, place.table).select("id", "pay", "starts", "lasts")
    assert sorted(map(tuple, frame.collect())) == [plain(one) for one in given]
    for filter, holds in [
        (("pay", ">", Decimal("5.00")), lambda one: one.pay > Money(500)),
        (("lasts", "<=", timedelta(hours=2)), lambda one: one.lasts <= timedelta(hours=2)),
        (("starts", "==", time(5, 5, 0, 5)), lambda one: one.id == 5),
        (("starts", "in", [time(8), time(9, 9, 0, 9)]), lambda one: one.id == 9),
        (("starts", ">", time(13, 13, 0, 13)), lambda one: one.starts is not None and one.id > 13),
        (("starts", "<=", time(13, 13, 0, 13)), lambda one: one.starts is not None and one.id <= 13),
        (("starts", ">=", "12:00:00"), lambda one: one.starts is not None and one.starts >= time(12)),
    ]:  # fmt: skip
        found = table(spark, place.url, place.table, filters=[filter])
        assert sorted(row["id"] for row in found.collect()) == [one.id for one in given if holds(one)], filter
    [total] = frame.selectExpr("sum(pay)", "sum(lasts)", "max(starts)").collect()
    assert tuple(total) == (sum(Decimal(str(one.pay)) for one in given), sum((one.lasts for one in given), timedelta()),
                            "19:19:00.000019")  # fmt: skip


def test_a_pipeline_loads_them_and_tells_what_is_wrong(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    place.start()
    place.put([Shift(id=2, pay=Money(225), starts=time(8, 30), lasts=timedelta(days=-1))])
    (tmp_path / "shifts.csv").write_text(
        "id,pay,starts,lasts\n"
        "1,12.50,08:30,P1DT2H3.5S\n2,2.25,08:30:00,-P1D\n3,0.1,,PT0S\n4,7,23:59:59.25,\n"
        "5,much,,PT1S\n6,1,25:00,PT1S\n7,1,,soon\n8,1,,P999999999D\n")  # fmt: skip
    made = Pipeline("shifts", types=[Shift], folder=tmp_path, max_rejected=0.9)
    made.load(Shift, made.csv("shifts", "shifts.csv"))
    report = made.run(place.url, spark=spark)
    [found] = report.tables
    assert (report.state, found.rejected, found.inserts, found.unchanged) == ("published", 4, 3, 1)
    told = {row["line"]: row["reason"] for row in pq.read_table(str(report.quarantine)).to_pylist()}
    assert {line: words in told[line] for line, words in (
        (6, "pay: 'much' is not an amount"), (7, "starts: '25:00' is not a time of day"),
        (8, "lasts: 'soon' is not a duration"), (9, "lasts: 'P999999999D' is not a duration"),
    )} == dict.fromkeys(range(6, 10), True), told
    assert place.rows() == [
        Shift(id=1, pay=Money(1250), starts=time(8, 30), lasts=timedelta(days=1, hours=2, seconds=3.5)),
        Shift(id=2, pay=Money(225), starts=time(8, 30), lasts=timedelta(days=-1)),
        Shift(id=3, pay=Money(10), lasts=timedelta(0)),
        Shift(id=4, pay=Money(700), starts=time(23, 59, 59, 250_000))]
    for filter, ids in ((("starts", "==", time(8, 30)), [1, 2]), (("starts", ">", time(8, 30)), [4])):
        found = table(spark, place.url, place.table, filters=[filter])
        assert sorted(row["id"] for row in found.collect()) == ids, filter
    assert made.run(place.url, spark=spark).state == "unchanged"
