"""Relations whose ends are missing: rejected with their ends, or as `dangling` says; reasons are counted."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from ontolake.graph import Graph
from ontolake.model import Entity, Field, Relation
from ontolake.ontology import Session
from ontolake.parallel import clean
from ontolake.spark import ExpectationError, Pipeline, PipelineError, TooManyRejectedError
from ontolake.spark.pipeline import stage

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Shop(Entity):
    id: Field[int] = Field(primary_key=True)
    size: Field[int] = Field(ge=0)


class Near(Relation[Shop, Shop]):
    how: Field[str] = Field(instance_key=True)
    metres: Field[int] = Field(ge=0)


@pytest.fixture(params=["sqlite", "objects, big files", "graph"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if "big files" in request.param:
        monkeypatch.setattr(stage, "SMALL", -1)
    if request.param == "sqlite":
        return f"{tmp_path}/shops.db"
    url = f"file://{tmp_path}/shops"
    if request.param.startswith("graph"):
        Graph.init(url, types=[Shop, Near]).close()
    return url


def pipeline(folder: Path, **more: Any) -> Pipeline:
    """Shops and which are near each other, both from the lines of one file of JSON."""
    made = Pipeline("shops", types=[Shop, Near], folder=folder, **{"max_rejected": 1.0} | more)
    shops = made.json("shops", "{data}/shops.jsonl", columns=["id", "size", "near", "how", "metres"])
    made.load(Shop, shops)
    made.load(Near, shops, columns={"left_key": "id", "right_key": "near"}, where="near IS NOT NULL")
    return made


def deliver(folder: Path, lines: list[dict[str, Any]]) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    (folder / "shops.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return {"data": folder.name}


def holds_graph(url: str) -> bool:
    return Path(url.removeprefix("file://"), "__manifest").is_dir()


def stored(url: str) -> tuple[set[int], set[tuple[int, int, str]]]:
    if holds_graph(url):
        with Graph.open(url, read_only=True) as graph:
            state = graph.snapshot()
            shops, near = (state.table(cls).to_arrow().to_pylist() for cls in (Shop, Near))
        return {row["id"] for row in shops}, {(row["left_key"], row["right_key"], row["how"]) for row in near}
    with Session(url, entity_types=[Shop], relation_types=[Near]) as session:
        return ({one.id for one in session.query().entities(Shop).collect()},
                {(one.left_key, one.right_key, one.how) for one in session.query().relations(Near).collect()})


REPEATED = "the key is there more than once; the last row counts"


def expected(
    lines: list[dict[str, Any]], there: set[int], *, never: str
) -> tuple[set[int], set[tuple[int, int, str]], dict[int, str], list[Counter[str]]]:
    """What plain Python makes of a delivery: shops, relations, why lines make no relation, and counts of reasons.
    `never` is what becomes of relations with ends that were never there."""
    good = [line["id"] for line in lines if line["size"] >= 0]
    shops, rejected = there | set(good), {line["id"] for line in lines if line["size"] < 0}
    reasons = [Counter({"size: is less than 0": len(lines) - len(good), REPEATED: len(good) - len(set(good))}),
               Counter[str]()]
    near, why = dict[tuple[int, int, str], int](), dict[int, str]()
    for number, line in enumerate(lines, 1):
        if line["near"] is None:
            continue
        wrong = {}
        if line["metres"] < 0:
            wrong["metres"] = f"'{line['metres']}'", "is less than 0"
        for side, key in (("left_key", line["id"]), ("right_key", line["near"])) if not wrong else ():
            if key not in shops and key in rejected:
                wrong[side] = f"'{key}'", "is the key of a Shop that was rejected"
            elif key not in shops and never == "quarantine":
                wrong[side] = f"'{key}'", "is not the key of any Shop"
        if wrong:
            why[number] = "; ".join(f"{name}: {value} {what}" for name, (value, what) in wrong.items())
            reasons[1].update(f"{name}: {what}" for name, (_, what) in wrong.items())
            continue
        key = (line["id"], line["near"], line["how"])
        if key in near:
            why[near[key]] = REPEATED
            reasons[1][REPEATED] += 1
        near[key] = number
    return shops, set(near), why, [+counts for counts in reasons]


def lines_of(random_: random.Random, count: int) -> list[dict[str, Any]]:
    return [{"id": random_.randrange(30), "size": random_.choice([-1, 1, 2]), "how": random_.choice("ab"),
             "near": random_.choice([None, *range(33)]), "metres": random_.choice([-5, 1, 2, 3, 4])}
            for _ in range(count)]  # fmt: skip


def test_relations_of_rejected_rows_are_rejected_with_that_as_the_reason(
    spark: SparkSession, tmp_path: Path, url: str
) -> None:
    random_, shops, near = random.Random(7), set[int](), set[tuple[int, int, str]]()
    for number in range(2):
        lines = lines_of(random_, 40)
        report = pipeline(tmp_path, dangling="quarantine").run(
            url, spark=spark, parameters=deliver(tmp_path / f"day{number}", lines))
        shops, new, why, reasons = expected(lines, shops, never="quarantine")
        near |= new
        assert stored(url) == (shops, near)
        kept = [row for row in pq.read_table(str(report.quarantine)).to_pylist() if row["table"].endswith("/Near")]
        assert {row["line"]: row["reason"] for row in kept} == why
        assert {row["line"]: json.loads(row["raw"]) for row in kept} == {line: lines[line - 1] for line in why}
        assert [one.reasons for one in report.tables] == reasons
        assert any("that was rejected" in one for one in why.values())
        assert any("not the key of any" in one for one in why.values())
        assert [one.rejected for one in report.tables] == [sum(reasons[0].values()), len(why)]
        assert report.tables[1].rows == sum(line["near"] is not None for line in lines)
    assert clean(url, older=0).items == 0


@pytest.mark.parametrize("url", ["sqlite", "graph, big files"], indirect=True)
def test_ends_that_were_never_there_fail_the_run_or_are_allowed(
    spark: SparkSession, tmp_path: Path, url: str
) -> None:
    """Whatever `dangling` says, relations of rejected rows are rejected."""
    lines = [{"id": 1, "size": 1, "near": 2, "how": "a", "metres": 1},
             {"id": 2, "size": -1, "near": 1, "how": "a", "metres": 1},
             {"id": 3, "size": 1, "near": 1, "how": "a", "metres": 1}]  # fmt: skip
    given = deliver(tmp_path / "day", lines)
    report = pipeline(tmp_path).run(url, spark=spark, parameters=given)
    assert stored(url) == ({1, 3}, {(3, 1, "a")})
    assert report.tables[1].reasons == {"left_key: is the key of a Shop that was rejected": 1,
                                        "right_key: is the key of a Shop that was rejected": 1}
    assert [one["ok"] for one in report.expectations] == [True, True]
    assert pipeline(tmp_path).run(url, spark=spark, parameters=given).state == "unchanged"

    given = deliver(tmp_path / "day", [*lines, {"id": 3, "size": 1, "near": 9, "how": "a", "metres": 1}])
    strict = pipeline(tmp_path)
    strict.expect_rows(Shop, at_least=100)
    with pytest.raises(ExpectationError, match="right ends of Near exist: there is no Shop '9'; rows of Shop: 2 rows"):
        strict.run(url, spark=spark, parameters=given)
    with pytest.raises(TooManyRejectedError, match="5 of 8 rows are bad"):  # with those that the ends have rejected
        pipeline(tmp_path, dangling="quarantine", max_rejected=4).run(url, spark=spark, parameters=given)
    assert stored(url) == ({1, 3}, {(3, 1, "a")})
    lenient = pipeline(tmp_path, dangling="allow")
    if holds_graph(url):
        with pytest.raises(ExpectationError, match="there is no Shop '9'"):
            pipeline(tmp_path).run(url, spark=spark, parameters=given, audit=True)
        with pytest.raises(PipelineError, match="an edge of a graph has both its ends"):
            lenient.run(url, spark=spark, parameters=given)
        with Graph.open(url, read_only=True) as graph:
            assert [branch.name for branch in graph.branches.list()] == ["main"]
        return
    assert lenient.run(url, spark=spark, parameters=given).tables[1].rejected == 2
    assert stored(url) == ({1, 3}, {(3, 1, "a"), (3, 9, "a")})


def test_rows_of_frames_are_rejected_with_their_ends_although_nobody_knows_their_places(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = Pipeline("frames", types=[Shop, Near], folder=tmp_path, max_rejected=1.0, dangling="fail")
    made.load(Shop, made.frame("shops", lambda spark: spark.createDataFrame([(1, 1), (2, -1)], "id long, size long")))
    made.load(Near, made.frame("near", lambda spark: spark.createDataFrame(
        [(1, 2, "a", 1), (1, 1, "a", 1), (1, 8, "a", 1)], "left_key long, right_key long, how string, metres long")),
        dangling="quarantine")
    report = made.run(f"{tmp_path}/shops.db", spark=spark)
    assert stored(f"{tmp_path}/shops.db") == ({1}, {(1, 1, "a")})
    rows = {row["reason"]: json.loads(row["raw"]) for row in pq.read_table(str(report.quarantine)).to_pylist()}
    assert rows["right_key: '2' is the key of a Shop that was rejected"]["right_key"] == 2
    assert rows["right_key: '8' is not the key of any Shop"]["right_key"] == 8
    assert [place.partition(": ")[0] for place in report.examples()] == [
        "shops, for entity/Shop", "near, for relation/Near", "near, for relation/Near"]
