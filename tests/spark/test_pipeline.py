"""Pipelines: bad rows are told with file and line, good ones are one commit, and the same input is none."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow.parquet as pq
import pytest

from ontolake import parallel
from ontolake.errors import Conflict, Invalid
from ontolake.ontology import Session
from ontolake.spark import ExpectationError, Pipeline, PipelineError, SourceError, TooManyRejectedError
from ontolake.spark.pipeline import report as reports
from ontolake.spark.pipeline import stage

from .deliveries import BAD, GOOD, Bought, Goods, Person, Tier, at, people, priced, prices, shop, stock, write

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]  # all in one worker, so that Spark starts once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["sqlite", "objects"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store for small files, and one for which all of them are taken for big ones."""
    if request.param == "sqlite":
        return f"{tmp_path}/shop.db"
    monkeypatch.setattr(stage, "SMALL", -1)
    return f"file://{tmp_path}/lake"


def test_bad_rows_are_told_good_ones_are_one_commit_and_once_more_is_none(
    spark: SparkSession, tmp_path: Path, url: str
) -> None:
    write(tmp_path / "one", [*GOOD, *BAD, "p1,Adam,,,,,,,,"])
    report = shop(tmp_path).run(url, spark=spark)
    assert (report.state, report.commit) == ("published", 1)
    found = {one.table: one for one in report.tables}
    assert (found["entity/Person"].rows, found["entity/Person"].rejected, found["entity/Person"].written) == (19, 16, 3)
    told = {row["line"]: row for row in pq.read_table(str(report.quarantine)).to_pylist()}
    for line, (raw, reason) in enumerate(BAD.items(), 2 + len(GOOD)):
        assert told[line]["raw"] == raw
        assert reason in told[line]["reason"]
        assert told[line]["file"].endswith("one/people.csv")
    assert "more than once" in told[2]["reason"]
    saved = people(url)
    assert set(saved) == {"p1", "p2", "p,3"}
    assert (saved["p1"].name, saved["p,3"].name) == ("Adam", 'Cleo "C"')
    assert saved["p2"] == Person(id="p2", name="Bob", seen=datetime(2024, 1, 31, 10, tzinfo=UTC), good=False)

    again = shop(tmp_path).run(url, spark=spark)
    assert (again.state, again.commit) == ("unchanged", None)
    write(tmp_path / "two", [GOOD[0], GOOD[1].replace("Bob", "Bert"), "p9,New,,,,,,,,"])
    second = shop(tmp_path).run(url, spark=spark, parameters={"data": "two"})
    person = second.tables[0]
    assert (person.inserts, person.updates, person.unchanged, person.written) == (1, 2, 0, 3)
    assert people(url)["p2"].name == "Bert"
    assert people(url)["p1"] == Person(
        id="p1", name="Ada", tier=Tier.GOLD, born=date(1990, 1, 31), visits=5, credit=Decimal("12.50"), good=True,
        seen=datetime(2024, 1, 31, 12, tzinfo=UTC), token=UUID("12345678-1234-1234-1234-123456789abc"), extra={"a": 1})
    assert people(url, 1)["p2"].name == "Bob"
    with Session(url, entity_types=[Person, Goods], relation_types=[Bought]) as session:
        metadata = session.get_commit(2).metadata
    assert metadata["run"] == second.run
    assert len(metadata["sources"]["people"]["sha256"]) == 64
    assert [one["state"] for one in reports.history(url)] == ["published", "unchanged", "published"]
    assert "Bert" not in Path(str(report.report)).read_text()
    assert "silver" in Path(str(report.report)).read_text()
    assert parallel.clean(url, older=0).items == 0


def test_small_files_take_one_job_and_one_for_their_header(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With bad and repeated rows, too; where rows turn out to be many, it is done as for big files."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "goods.csv").write_text("sku,price,`odd`\ns1,1.5,\ns2,1.5d,\ns1,2.5,\n")
    told = []
    for few, jobs in ((3, range(3)), (2, range(3, 20))):
        url = f"{tmp_path}/shop-{few}.db"
        monkeypatch.setattr(stage, "FEW", few)
        spark.sparkContext.setJobGroup(url, "a run")
        try:
            report = stock(tmp_path).run(url, spark=spark)
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(url)) in jobs
        assert priced(url) == {"s1": 2.5}
        told.append([(one["line"], one["reason"], one["raw"]) for one in report.samples])
    assert told[0] == told[1] == [
        (2, "the key is there more than once; the last row counts", "s1,1.5,"),
        (3, "price: '1.5d' is not a number", "s2,1.5d,")]  # fmt: skip


def test_nothing_is_published_when_it_should_not_be(spark: SparkSession, tmp_path: Path) -> None:
    url = f"{tmp_path}/shop.db"
    prices(tmp_path / "one", s1=1.5, s2=2.5, s3="much")
    assert stock(tmp_path).run(url, spark=spark, dry_run=True).state == "dry run"
    assert not Path(url).exists()
    with pytest.raises(TooManyRejectedError, match="1 of 3 rows are bad, and 10% may be") as caught:
        stock(tmp_path, max_rejected=0.1).run(url, spark=spark)
    assert "goods.csv, line 4, for entity/Goods: price: 'much' is not a number" in str(caught.value.hint)
    assert stock(tmp_path, max_rejected=1.0).run(url, spark=spark, dry_run=True).rejected == 1
    strict = stock(tmp_path)
    strict.expect("nothing is dear", "SELECT sku FROM Goods WHERE price > 2")
    strict.expect_rows(Goods, at_least=10)
    with pytest.raises(ExpectationError, match=r"dear: sku s2; rows of Goods: 2 rows"):
        strict.run(url, spark=spark)
    write(tmp_path / "one", GOOD, [{"who": "p1", "what": "s1", "count": 1}, {"who": "px", "what": "s1", "count": 1}])
    with pytest.raises(ExpectationError, match="there is no Person 'px'"):
        shop(tmp_path).run(url, spark=spark)
    assert reports.status(url)["state"] == "failed"
    with parallel.open_parallel(url, types=[Person]) as store:
        assert store.head() == 0


def test_sources_that_are_wrong_are_named(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"{tmp_path}/shop.db"
    with pytest.raises(SourceError, match="there is nothing at"):
        shop(tmp_path).run(url, spark=spark)
    with pytest.raises(Invalid, match="':memory:' is in the memory of one process"):
        shop(tmp_path).run(":memory:", spark=spark)
    write(tmp_path / "one", GOOD, [
        '{"who": "p1", "what": "s1"}', "{oops", "[1]", '{"who": 1, "what": "s1", "count": "x"}'])
    report = shop(tmp_path).run(url, spark=spark)
    assert [(one["line"], one["reason"]) for one in report.samples] == [
        (1, "count: a value is missing"), (2, "the line is not a JSON object"), (3, "the line is not a JSON object"),
        (4, "count: 'x' is not a whole number of 64 bits")]  # fmt: skip
    (tmp_path / "one" / "people.csv").write_text("id,title\np1,Ada\n")
    with pytest.raises(SourceError, match=r"nothing gives Person\.name.*id, title"):
        shop(tmp_path).run(url, spark=spark)
    wrong = Pipeline("wrong", types=[Goods], folder=tmp_path)
    wrong.load(Goods, wrong.parquet("goods", "one/goods.parquet"), columns={"price": "prize * 2"})
    with pytest.raises(SourceError, match="prize"):
        wrong.run(url, spark=spark)
    assert "prize" not in capfd.readouterr().err
    other = Pipeline("other", types=[Goods], folder=tmp_path)
    goods = other.parquet("goods", "one/goods.parquet")
    with pytest.raises(PipelineError, match="colour"):
        other.load(Goods, goods, columns={"colour": "x"})
    with pytest.raises(PipelineError, match="'Person' is not one of the types"):
        other.expect_rows(Person, at_least=1)
    part = Pipeline("part", types=[Goods, Bought], folder=tmp_path)
    with pytest.raises(PipelineError, match="'Person' is not one of the types"):
        part.load(Bought, part.parquet("bought", "one/bought.parquet"))
    lost = Pipeline("lost", types=[Goods], folder=tmp_path)
    lost.load(Goods, lost.format("old", "ontolake", url=url, table="entity/Bads"))
    with pytest.raises(SourceError, match=r"source old: cannot be read: there is no .*'entity/Bads'"):
        lost.run(url, spark=spark)
    asks = Pipeline("asks", types=[Goods], folder=tmp_path)
    asks.load(Goods, asks.parquet("goods", "{place}/goods.parquet"))
    with pytest.raises(SourceError, match="parameter 'place'"):
        asks.run(url, spark=spark)


def test_of_two_pipelines_at_once_one_reconciles_again_or_stops(spark: SparkSession, tmp_path: Path) -> None:
    url = f"{tmp_path}/shop.db"
    prices(tmp_path / "one", s1=1.5, s2=2.5, s3=3.5)
    prices(tmp_path / "other", s1=9.5)
    runs = iter(["the other pipeline"])

    def other() -> None:
        if next(runs, None):
            assert stock(tmp_path).run(url, spark=spark, parameters={"data": "other"}).commit == 1

    with at("pipeline: before the publish", other):
        report = stock(tmp_path).run(url, spark=spark)
    assert (report.state, report.commit, report.base) == ("published", 2, 1)
    assert (report.tables[0].inserts, report.tables[0].updates) == (2, 1)
    assert (priced(url), priced(url, 1)) == ({"s1": 1.5, "s2": 2.5, "s3": 3.5}, {"s1": 9.5})

    prices(tmp_path / "one", s7=7.5)

    def always() -> None:
        with Session(url, entity_types=[Goods]) as session:
            session.ensure(Goods(sku="other", price=float(len(session.list_commits()))))

    with at("pipeline: before the publish", always), pytest.raises(Conflict, match="came after"):
        stock(tmp_path).run(url, spark=spark)
    assert "s7" not in priced(url)
    assert parallel.clean(url, older=0).items == 0


def test_a_run_that_dies_is_repeated_safely(spark: SparkSession, tmp_path: Path) -> None:
    url = f"{tmp_path}/shop.db"
    prices(tmp_path / "one", s1=1.5)

    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    for step, head in (("pipeline: everything staged", 0), ("pipeline: published", 1)):
        with at(step, die), pytest.raises(Killed):
            stock(tmp_path).run(url, spark=spark)
        with parallel.open_parallel(url) as store:
            assert store.head() == head
    assert stock(tmp_path).run(url, spark=spark).state == "unchanged"
