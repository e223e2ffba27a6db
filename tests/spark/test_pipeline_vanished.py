"""Rows that a source no longer has: counted, deleted in the same commit, or a reason to stop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ontolake.cli import main
from ontolake.graph import Graph
from ontolake.graph.errors import EndpointError
from ontolake.ontology import Session
from ontolake.ontology.errors import LayoutLacksError, LiveRelationsError
from ontolake.spark import Pipeline, PipelineError, TooManyVanishedError

from .deliveries import Bought, Goods, Person, priced

pytestmark = pytest.mark.xdist_group("spark")  # all in one worker, so that Spark starts once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def delivered(folder: Path, goods: Mapping[str, Any], bought: Mapping[str, int] | None = None) -> None:
    """What the sources have: prices of goods, and counts by `person sku`."""
    (folder / "goods.csv").write_text("".join(f"{line}\n" for line in (
        "sku,price", *(f"{sku},{price}" for sku, price in goods.items()))))
    (folder / "people.csv").write_text("id,name\np1,Ada\np2,Bob\n")
    lines = [dict(zip(("who", "what"), pair.split(), strict=True), count=count)
             for pair, count in (bought or {}).items()]
    (folder / "bought.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) or "\n")


def stock(folder: Path, **load: Any) -> Pipeline:
    made = Pipeline("stock", types=[Goods], folder=folder, max_rejected=0.9)
    made.load(Goods, made.csv("goods", "goods.csv"), **load)
    return made


def shop(folder: Path, *, goods: Mapping[str, Any], bought: Mapping[str, Any]) -> Pipeline:
    made = Pipeline("shop", types=[Person, Goods, Bought], folder=folder)
    made.load(Person, made.csv("people", "people.csv"))
    made.load(Goods, made.csv("goods", "goods.csv"), vanished="delete", max_vanished=1.0, **goods)
    made.load(Bought, made.json("bought", "bought.jsonl", columns=["who", "what", "count"]),
              columns={"left_key": "who", "right_key": "what"}, **bought)
    return made


def counts(url: str) -> dict[str, int]:
    with Session(url, entity_types=[Person, Goods], relation_types=[Bought]) as session:
        return {f"{one.left_key} {one.right_key}": one.count
                for one in session.query().relations(Bought).collect()}  # fmt: skip


def test_what_says_nothing_is_refused(tmp_path: Path) -> None:
    for load, why in (({"vanished": "drop"}, "vanished is 'keep', 'delete', 'fail', not 'drop'"),
                      ({"max_vanished": 0.5}, "says nothing without vanished"),
                      ({"vanished": "delete", "max_vanished": -1}, "max_vanished is a share or a number"),
                      ({"vanished": "delete", "max_vanished": "5%"}, "max_vanished is a share or a number"),
                      ({"vanished": "keep", "cascade": True}, "no entities are deleted")):  # fmt: skip
        with pytest.raises(PipelineError, match=why):
            stock(tmp_path, **load)
    for policy, limit in ((None, None), (True, None), ("keep", None), ("delete", 0.05), ("fail", 0)):
        target = stock(tmp_path, vanished=policy).targets[0]
        assert (target.vanished, target.max_vanished) == ("keep" if policy is True else policy, limit)


def test_a_limit_of_the_command_is_a_share_or_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "goods.py").write_text("""
from ontolake.model import Entity, Field
from ontolake.spark import Pipeline

class Goods(Entity):
    sku: Field[str] = Field(primary_key=True)

goods = Pipeline("goods", types=[Goods])
goods.load(Goods, goods.csv("goods", "goods.csv"), vanished="delete", max_vanished=7)
""")
    for limit in ("5%", "nan", "-1"):
        assert main(["pipeline", "run", f"{tmp_path}/goods.py", "--store", f"{tmp_path}/shop.db",
                     "--max-vanished", limit]) != 0
        assert "a share" in capsys.readouterr().err
    assert not (tmp_path / "shop.db").exists()
    assert main(["pipeline", "plan", f"{tmp_path}/goods.py", "--json"]) == 0
    target = json.loads(capsys.readouterr().out)["targets"][0]
    assert (target["vanished"], target["max_vanished"]) == ("delete", 7)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["{}/shop.db", "file://{}/shop"], ids=["sqlite", "objects"])
def test_rows_are_deleted_in_the_commit_that_writes_the_others(spark: SparkSession, tmp_path: Path, place: str) -> None:
    url = place.format(tmp_path)
    first = {f"s{n}": float(n) for n in range(40)}
    delivered(tmp_path, first)
    begun = stock(tmp_path, vanished="delete").run(url, spark=spark)
    assert (begun.commit, begun.tables[0].counts["deleted"]) == (1, 0)

    second = {**first, "s5": 55.5, "new": 1.0}
    del second["s7"], second["s8"]
    # The row of s9 is rejected: it has not vanished, and stays as it is.
    delivered(tmp_path, {**second, "s9": "nothing"})
    tried = stock(tmp_path, vanished="delete").run(url, spark=spark, dry_run=True)
    assert (tried.state, tried.tables[0].deleted) == ("dry run", 2)
    assert priced(url) == first
    made = stock(tmp_path, vanished="delete")
    made.expect_rows(Goods, at_least=39, at_most=39)
    done = made.run(url, spark=spark)
    wanted = {"rows": 39, "rejected": 1, "inserts": 1, "updates": 1, "unchanged": 36, "vanished": 2, "deleted": 2}
    assert (done.commit, done.tables[0].counts) == (2, wanted)
    assert priced(url) == second
    assert priced(url, 1) == first
    with Session(url, entity_types=[Goods]) as session:
        metadata = session.get_commit(2).metadata
        assert (metadata["counts"], metadata["deleted"]) == ({"entity/Goods": wanted}, {"entity/Goods": 2})
        assert sorted((one.key, one.kind.value) for one in session.changes(1)) == [
            ("new", "insert"), ("s5", "update"), ("s7", "delete"), ("s8", "delete")]
    assert "<td class='n'>2</td>" in Path(str(done.report)).read_text()
    assert stock(tmp_path, vanished="delete").run(url, spark=spark).state == "unchanged"


@pytest.mark.slow
def test_a_source_that_came_half_empty_stops_the_run(spark: SparkSession, tmp_path: Path) -> None:
    url = f"{tmp_path}/shop.db"
    first = {f"s{n}": float(n) for n in range(20)}
    delivered(tmp_path, first)
    stock(tmp_path, vanished="delete").run(url, spark=spark)
    delivered(tmp_path, {"s0": 9.0, **{f"s{n}": float(n) for n in range(1, 8)}})
    for load, allowed in (({"vanished": "delete"}, "5%"), ({"vanished": "fail"}, "0"),
                          ({"vanished": "keep", "max_vanished": 11}, "11")):  # fmt: skip
        with pytest.raises(TooManyVanishedError, match=f"12 of the 20 rows of entity/Goods .* {allowed} may") as caught:
            stock(tmp_path, **load).run(url, spark=spark)
        assert (caught.value.vanished, caught.value.rows) == (12, 20)
    assert priced(url) == first
    assert stock(tmp_path, vanished="keep").run(url, spark=spark).tables[0].counts["vanished"] == 12
    assert priced(url) == {**first, "s0": 9.0}, "kept rows stay"
    with (tmp_path / "goods.csv").open("a") as file:
        file.write(",4.0\n")  # which row it is nobody can tell
    stays = stock(tmp_path, vanished="delete", max_vanished=12).run(url, spark=spark)
    assert (stays.state, stays.tables[0].vanished, stays.tables[0].deleted) == ("unchanged", 12, 0)
    assert "12 vanished rows were not deleted: of 1 rejected rows" in str(stays.tables[0].note)
    delivered(tmp_path, {})
    with pytest.raises(TooManyVanishedError, match="20 of the 20 rows"):
        stock(tmp_path, vanished="delete", max_vanished=0.99).run(url, spark=spark)
    assert stock(tmp_path, vanished="delete").run(url, spark=spark, max_vanished=1.0).tables[0].deleted == 20
    assert priced(url) == {}


@pytest.mark.slow
def test_relations_of_deleted_rows_vanish_too_or_go_with_them_or_stop_the_run(
    spark: SparkSession, tmp_path: Path
) -> None:  # fmt: skip
    url = f"{tmp_path}/shop.db"
    goods, bought = {"s1": 1.0, "s2": 2.0, "s3": 3.0}, {"p1 s1": 1, "p1 s2": 2, "p2 s3": 3}
    delivered(tmp_path, goods, bought)
    shop(tmp_path, goods={}, bought={}).run(url, spark=spark)

    delivered(tmp_path, {"s2": 2.0, "s3": 3.0}, {"p1 s2": 2, "p2 s3": 3})
    for dry_run in (True, False):
        with pytest.raises(LiveRelationsError, match="Bought \\('p1', 's1'\\)"):
            shop(tmp_path, goods={}, bought={}).run(url, spark=spark, dry_run=dry_run)
    assert (priced(url), counts(url)) == (goods, bought), "nothing was published"
    both = shop(tmp_path, goods={}, bought={"vanished": "delete", "max_vanished": 1.0}).run(url, spark=spark)
    assert {one.table: one.deleted for one in both.tables} == {
        "entity/Person": None, "entity/Goods": 1, "relation/Bought": 1}
    assert (priced(url), counts(url)) == ({"s2": 2.0, "s3": 3.0}, {"p1 s2": 2, "p2 s3": 3})

    delivered(tmp_path, {"s3": 3.0}, {"p1 s2": 2, "p2 s3": 3})
    made = shop(tmp_path, goods={"cascade": True}, bought={})
    made.expect_rows(Bought, at_most=1)  # relations that go with their ends are gone by then
    done = made.run(url, spark=spark)
    assert {one.table: one.deleted for one in done.tables} == {
        "entity/Person": None, "entity/Goods": 1, "relation/Bought": 1}
    assert (priced(url), counts(url)) == ({"s3": 3.0}, {"p2 s3": 3})


@pytest.mark.slow
def test_engines_without_deletions_say_how_to_get_one_and_graphs_delete(spark: SparkSession, tmp_path: Path) -> None:
    old, graph = f"{tmp_path}/old.db", f"file://{tmp_path}/graph"
    with Session(old, entity_types=[Goods], engine_version="v2") as session:
        session.ensure(Goods(sku="s1", price=1.0))
    goods, bought = {"s1": 1.0, "s2": 2.0}, {"p1 s1": 1, "p2 s2": 2}
    delivered(tmp_path, goods, bought)
    with pytest.raises(LayoutLacksError, match="keeps no deletions") as caught:
        stock(tmp_path, vanished="delete").run(old, spark=spark)
    assert "onto convert" in str(caught.value.hint)
    assert priced(old) == {"s1": 1.0}

    shop(tmp_path, goods={}, bought={}).run(graph, spark=spark, graph=True)
    delivered(tmp_path, {"s2": 2.0}, {"p2 s2": 2})
    with pytest.raises(EndpointError):
        shop(tmp_path, goods={}, bought={}).run(graph, spark=spark)
    done = shop(tmp_path, goods={"cascade": True}, bought={}).run(graph, spark=spark)
    assert done.tables[1].deleted == 1
    with Graph.open(graph, read_only=True) as opened:
        assert opened.snapshot().table(Goods).to_arrow()["sku"].to_pylist() == ["s2"]
        assert opened.snapshot().table(Bought).to_arrow().num_rows == 1
        assert next(iter(opened.commits())).metadata["deleted"] == {"node/Goods": 1}
