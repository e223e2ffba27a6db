"""Pipelines on branches of typed stores: runs on a branch, and write, audit, publish by a merge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ontolake.history import MergeConflictError, ProtectedBranchError, UnknownBranchError
from ontolake.ontology import Session
from ontolake.ontology.errors import LayoutLacksError
from ontolake.spark import ExpectationError
from ontolake.spark.pipeline.report import history

from .deliveries import Goods, at, prices, stock

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def url(tmp_path: Path) -> str:
    where = f"{tmp_path}/shop.db"
    with Session(where, entity_types=[Goods], engine_version="v3") as session:
        session.ensure([Goods(sku="s1", price=1.0), Goods(sku="s2", price=2.0)])
    return where


@pytest.fixture(params=["sqlite", "objects"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(request.getfixturevalue("url"))
    where = f"file://{tmp_path}/lake"
    with Session(where, entity_types=[Goods], engine_version="v3") as session:
        session.ensure([Goods(sku="s1", price=1.0), Goods(sku="s2", price=2.0)])
    return where


def priced(url: str, branch: str = "main") -> dict[str, float]:
    with Session(url, entity_types=[Goods], branch=branch) as session:
        return {one.sku: one.price for one in session.query().entities(Goods).collect()}


def branches(url: str) -> list[str]:
    with Session(url, entity_types=[Goods]) as session:
        return [branch.name for branch in session.branches.list()]


def test_a_run_on_a_branch_leaves_the_others_as_they_are(spark: SparkSession, tmp_path: Path, url: str) -> None:
    prices(tmp_path / "one", s1=1.5, s3=3.0)
    with pytest.raises(UnknownBranchError):
        stock(tmp_path).run(url, spark=spark, branch="try", dry_run=True)
    with Session(url, entity_types=[Goods]) as session:
        session.branches.create("try")
        session.branches.protect("main")
    report = stock(tmp_path).run(url, spark=spark, branch="try")
    assert (report.state, report.branch, report.tables[0].counts["updates"]) == ("published", "try", 1)
    assert priced(url, "try") == {"s1": 1.5, "s2": 2.0, "s3": 3.0}
    assert priced(url) == {"s1": 1.0, "s2": 2.0}
    assert stock(tmp_path).run(url, spark=spark, branch="try").state == "unchanged"
    with pytest.raises(ProtectedBranchError):
        stock(tmp_path).run(url, spark=spark)
    assert priced(url) == {"s1": 1.0, "s2": 2.0}
    audited = stock(tmp_path).run(url, spark=spark, audit=True)  # a merge may change a protected branch
    assert audited.state == "published"
    assert priced(url) == {"s1": 1.5, "s2": 2.0, "s3": 3.0}


def test_a_branch_is_looked_at_and_merged_or_left_for_looking_at(
    spark: SparkSession, tmp_path: Path, any_url: str
) -> None:  # fmt: skip
    url = any_url
    prices(tmp_path / "one", s1=1.5)
    made = stock(tmp_path)
    made.expect("nothing is dear", "SELECT sku FROM Goods WHERE price > 50")

    def others() -> None:
        with Session(url, entity_types=[Goods]) as session:
            session.ensure(Goods(sku="other", price=1.0))

    with at("pipeline: published to a branch", others):
        report = made.run(url, spark=spark, audit=True)
    assert report.state == "published"
    assert priced(url) == {"s1": 1.5, "s2": 2.0, "other": 1.0}
    assert branches(url) == ["main"]
    with Session(url, entity_types=[Goods]) as session:
        newest = next(iter(session.commits()))
        assert (newest.id, newest.author, len(newest.parents)) == (
            report.commit, f"pipeline stock, run {report.run}", 2)
        assert session.get_commit(newest.parents[1]).metadata["run"] == report.run

    prices(tmp_path / "one", s9=99, s1=1.75)
    with pytest.raises(ExpectationError, match="nothing is dear: sku s9") as caught:
        made.run(url, spark=spark, audit=True)
    left = str(caught.value.branch)
    assert branches(url) == ["main", left]
    assert priced(url, left) == {"s1": 1.75, "s2": 2.0, "other": 1.0, "s9": 99.0}
    assert priced(url) == {"s1": 1.5, "s2": 2.0, "other": 1.0}
    with Session(url, entity_types=[Goods]) as session:
        assert next(iter(session.commits())).id == newest.id


def test_rows_that_others_changed_meanwhile_are_told_as_conflicts(
    spark: SparkSession, tmp_path: Path, url: str
) -> None:  # fmt: skip
    prices(tmp_path / "one", s1=1.5)
    dearer = iter(range(1, 9))

    def others() -> None:
        with Session(url, entity_types=[Goods]) as session:
            session.ensure(Goods(sku="s1", price=100.0 + next(dearer)))

    with at("pipeline: published to a branch", others), pytest.raises(MergeConflictError, match="s1"):
        stock(tmp_path).run(url, spark=spark, audit=True)
    assert priced(url)["s1"] == 103.0, "three times it was worked out again"
    assert branches(url) == ["main"]
    run = history(url)[0]
    assert (run["state"], len(run["conflicts"])) == ("failed", 1)
    assert "s1" in run["conflicts"][0]
    assert "<h2>Conflicts</h2>" in Path(run["report"]).read_text()


def test_the_first_run_starts_a_store_with_branches_and_older_engines_have_none(
    spark: SparkSession, tmp_path: Path
) -> None:  # fmt: skip
    prices(tmp_path / "one", s1=1.5)
    new, old = f"{tmp_path}/new.db", f"{tmp_path}/old.db"
    assert stock(tmp_path).run(new, spark=spark, audit=True).commit == 1
    prices(tmp_path / "one", s1=2.5)
    assert stock(tmp_path).run(new, spark=spark, audit=True).state == "published"
    assert (priced(new), branches(new)) == ({"s1": 2.5}, ["main"])
    with Session(old, entity_types=[Goods], engine_version="v2") as session:
        session.ensure(Goods(sku="s1", price=1.0))
    with pytest.raises(LayoutLacksError, match="keeps no branches") as caught:
        stock(tmp_path).run(old, spark=spark, audit=True)
    assert "onto convert" in str(caught.value.hint)
