"""Jobs run on Spark's workers: in other processes, with the user's own code, and with errors that come back whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ontolake.cli import main
from ontolake.errors import Invalid, Transient
from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.ontology.errors import MigrationError
from ontolake.ontology.migration.upgraders import Upgrader
from ontolake.spark import jobs
from ontolake.spark.jobs.workers import OnSpark

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]  # all in one worker, so that Spark starts once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Part(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int]


class Wider(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int]
    double: Field[int]
    tier: Field[str] = Field(default="new")


Wider.__name__ = "Part"

ROWS = 12_000


def doubled(rows: pa.Table) -> pa.Table:
    return rows.append_column("double", twice(rows.column("size")))


def twice(values: Any) -> Any:
    return pc.multiply(values, 2)


@pytest.fixture
def lake(tmp_path: Path) -> str:
    url = f"file://{tmp_path}/lake"
    with Session(url, entity_types=[Part]) as session:
        session.ensure(Part(id=f"p{n:05}", size=n) for n in range(ROWS))
        session.commit()
        session.ensure(Part(id=f"p{n:05}", size=-n - 1) for n in range(0, ROWS, 3))
    return url


def where(number: int) -> tuple[int, int]:
    return number, os.getpid()


def refused(number: int) -> int:
    if number == 2:
        raise Invalid("part 2 is wrong", hint="leave it out")
    return number


def test_parts_are_done_by_other_processes_and_come_back_in_order(spark: SparkSession) -> None:
    found = OnSpark(spark).run(where, list(range(5)), code=[where])
    assert [number for number, _ in found] == list(range(5))
    assert os.getpid() not in {process for _, process in found}
    with pytest.raises(Invalid, match="part 2 is wrong") as error:
        OnSpark(spark).run(refused, list(range(4)), code=[refused])
    assert error.value.hint == "leave it out"


def test_what_fails_in_passing_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    marker = tmp_path / "failed-once"

    def once(number: int) -> int:
        if number == 1 and not marker.exists():
            marker.touch()
            raise Transient("the first attempt fails")
        return number * 10

    assert OnSpark(spark).run(once, [0, 1, 2]) == [0, 10, 20]
    assert marker.exists()


def test_every_job_on_a_typed_store(spark: SparkSession, lake: str, tmp_path: Path) -> None:
    assert jobs.verify(lake, spark=spark).rows == ROWS + ROWS // 3
    assert [one.files_before for one in jobs.compact(lake, spark=spark, rows_per_file=4000)] == [2]
    assert jobs.verify(lake, spark=spark).ok
    wrong = [Upgrader(lambda rows: rows, "Part", 1, True)]
    with pytest.raises(MigrationError, match="double"):
        jobs.migrate(lake, [Wider], spark=spark, upgraders=wrong, force=True)
    upgraders = [Upgrader(doubled, "Part", 1, True)]
    token = jobs.preview_migration(lake, [Wider], spark=spark, upgraders=upgraders).token
    done = jobs.migrate(lake, [Wider], spark=spark, upgraders=upgraders, token=token)
    assert (done.commit_id, done.types[0].rows) == (3, ROWS)
    copy = f"{tmp_path}/copy.db"
    assert jobs.convert(lake, copy, spark=spark).rows == 2 * ROWS + ROWS // 3
    assert jobs.verify(copy, spark=spark).ok
    exported = jobs.export(copy, f"{tmp_path}/out", spark=spark)
    assert exported.tables["entity/Part"].rows == ROWS
    found = spark.read.parquet(f"{tmp_path}/out/entity/Part")
    assert found.where("double != 2 * size OR tier != 'new'").count() == 0
    assert found.count() == ROWS


def test_every_job_on_a_graph(spark: SparkSession, tmp_path: Path) -> None:
    url = f"{tmp_path}/graph/"
    with Graph.init(url, [Part]) as graph:
        for round in range(4):
            graph.load("node/Part", [{"id": f"{round}-{n}", "size": n} for n in range(3000)])
    assert [(one.files_before, one.files_after) for one in jobs.compact(url, spark=spark)] == [(4, 1)]
    assert [one.what for one in jobs.reindex(url, spark=spark)] == ["node/Part.id"]
    assert jobs.verify(url, spark=spark) == ((), 1, 12_000)
    with Graph.open(url) as graph:
        assert graph.snapshot().table("node/Part").count() == 12_000
        assert graph.repair() == []


MODELS = """
from ontolake.model import Entity, Field
from ontolake.ontology import upgrader
import pyarrow.compute as pc

class Part(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int]
    double: Field[int]

@upgrader(Part, from_version=1, arrow=True)
def doubled(rows):
    return rows.append_column("double", twice(rows.column("size")))

def twice(values):
    return pc.multiply(values, 2)
"""


@pytest.mark.usefixtures("spark")
def test_the_commands(lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def onto(*arguments: str, code: int = 0) -> Any:
        assert main(["spark", *arguments, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    models = tmp_path / "models_of_parts.py"
    models.write_text(MODELS)
    preview = onto("compact", lake)
    assert [one["files_before"] for one in preview["types"]] == [2]
    assert onto("compact", lake, "--token", preview["token"])["done"] is True
    assert onto("compact", lake)["types"] == []
    preview = onto("migrate", lake, "--models", str(models))
    done = onto("migrate", lake, "--models", str(models), "--token", preview["token"])
    assert (done["commit_id"], done["types"][0]["rows"]) == (3, ROWS)
    assert onto("verify", lake)["ok"] is True
    assert onto("export", lake, "--output", f"{tmp_path}/out", "--as-of", "3")["tables"]["entity/Part"]["rows"] == ROWS
    assert list(onto("export", lake, "--output", f"{tmp_path}/part", "--type", "Part")["tables"]) == ["entity/Part"]
    assert onto("convert", lake, f"{tmp_path}/copy.db")["copied"] == 3
    assert onto("reindex", lake)["made"] == []
    file = next(Path(lake.removeprefix("file://")).glob("commits/**/*.parquet"))
    file.write_bytes(file.read_bytes()[:-1])
    assert onto("verify", lake, code=5)["damage"]
    assert main(["spark", "compact", f"{tmp_path}/copy.db"]) == 2
    assert "onto gc" in capsys.readouterr().err
