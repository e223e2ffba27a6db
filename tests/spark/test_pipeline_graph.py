"""Pipelines on graphs: one commit, or a branch that is looked at and merged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ontolake.graph import Graph, MergeConflictError
from ontolake.ontology import LayoutLacksError, Session
from ontolake.spark import ExpectationError, PipelineError

from .deliveries import GOOD, Bought, Goods, Person, at, prices, shop, stock, write

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def url(tmp_path: Path) -> str:
    where = f"file://{tmp_path}/graph"
    Graph.init(where, types=[Person, Goods, Bought]).close()
    return where


def test_a_run_makes_the_graph_and_one_commit_and_once_more_is_none(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/graph"
    write(tmp_path / "one", GOOD)
    prices(tmp_path / "one", s1=1.5)
    tried = stock(tmp_path).run(url, spark=spark, graph=True, dry_run=True)
    assert (tried.state, [one.table for one in tried.tables]) == ("dry run", ["node/Goods"])
    assert not (tmp_path / "graph").exists()
    report = shop(tmp_path).run(url, spark=spark, graph=True)
    assert (report.state, report.commit) == ("published", 1)
    assert [(one.table, one.written) for one in report.tables] == [
        ("node/Person", 3), ("node/Goods", 2), ("edge/Bought", 2)]
    assert shop(tmp_path).run(url, spark=spark).state == "unchanged"
    with Graph.open(url, read_only=True) as graph:
        newest = next(iter(graph.commits()))
        assert newest.metadata["run"] == report.run
        assert newest.metadata["counts"]["node/Person"]["inserts"] == 3
        ada = graph.snapshot().get(Person, "p1")
        assert ada is not None
        assert (ada["name"], str(ada["credit"])) == ("Ada", "12.50")


def test_a_branch_is_looked_at_and_merged_or_left_for_looking_at(spark: SparkSession, tmp_path: Path, url: str) -> None:
    write(tmp_path / "one", GOOD)
    made = shop(tmp_path)
    made.expect("nobody is called Eve", "SELECT id FROM Person WHERE name = 'Eve'")

    def others() -> None:
        with Graph.open(url) as graph:
            graph.load(Goods, [Goods(sku="other", price=1.0)])

    with at("pipeline: published to a branch", others):
        report = made.run(url, spark=spark, audit=True)
    with Graph.open(url, read_only=True) as graph:
        newest = next(iter(graph.commits()))
        assert (report.state, newest.author) == ("published", f"pipeline shop, run {report.run}")
        assert {row["sku"] for row in graph.snapshot().table(Goods).to_arrow().to_pylist()} == {"s1", "s2", "other"}
        assert [branch.name for branch in graph.branches.list()] == ["main"]

    prices(tmp_path / "one", s9=99)
    cheap = stock(tmp_path)
    cheap.expect("nothing is dear", "SELECT sku FROM Goods WHERE price > 50")
    with pytest.raises(ExpectationError, match="nothing is dear: sku s9") as caught:
        cheap.run(url, spark=spark, audit=True)
    with Graph.open(url) as graph:
        assert graph.snapshot().get(Goods, "s9") is None
        assert next(iter(graph.commits())).id == newest.id
        assert graph.snapshot(branch=str(caught.value.branch)).get(Goods, "s9") is not None
        graph.branches.delete(str(caught.value.branch))


def test_rows_that_others_changed_meanwhile_are_not_overwritten_unseen(
    spark: SparkSession, tmp_path: Path, url: str
) -> None:
    prices(tmp_path / "one", s1=1.5)
    dearer = iter(range(1, 9))

    def others() -> None:
        with Graph.open(url) as graph:
            graph.load(Goods, [Goods(sku="s1", price=100.0 + next(dearer))])

    with at("pipeline: published to a branch", others), pytest.raises(MergeConflictError, match="divergent"):
        stock(tmp_path).run(url, spark=spark, audit=True)
    with Graph.open(url) as graph:
        found = graph.snapshot().get(Goods, "s1")
        assert found is not None
        assert found["price"] == 103.0, "three times it was worked out again"
        assert [branch.name for branch in graph.branches.list()] == ["main"]


def test_what_is_no_graph_is_not_taken_for_one(spark: SparkSession, tmp_path: Path) -> None:
    prices(tmp_path / "one", s1=1.5)
    with pytest.raises(PipelineError, match="is not a graph"):
        stock(tmp_path).run(f"{tmp_path}/shop.db", spark=spark, graph=True)
    assert not (tmp_path / "shop.db").exists()
    lake = f"file://{tmp_path}/lake"
    with Session(lake, entity_types=[Goods], engine_version="v2") as session:
        session.ensure(Goods(sku="s1", price=1.0))
    with pytest.raises(PipelineError, match="lake' is not a graph"):
        stock(tmp_path).run(lake, spark=spark, graph=True)
    with pytest.raises(LayoutLacksError, match="keeps no branches"):
        stock(tmp_path).run(lake, spark=spark, audit=True)
