"""Spark Connect: a real server, and a client in a process of its own that has no Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ontolake.model import Entity, Field
from ontolake.ontology import Session

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Part(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int | None] = Field(default=None)


@pytest.fixture
def server(spark: SparkSession) -> Iterator[str]:
    java = spark._jvm  # type: ignore[attr-defined]
    service = getattr(getattr(java, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$")
    service.start(spark.sparkContext._jsc.sc())  # type: ignore[union-attr]
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        service.stop(java.scala.Option.empty(), java.scala.Option.empty())


def test_a_client_reads_saves_verifies_and_runs_a_pipeline(server: str, tmp_path: Path) -> None:
    program = Path(__file__).parent / "connect_program.py"
    done = subprocess.run([sys.executable, str(program), server, str(tmp_path)], capture_output=True, text=True,
                          timeout=500, env={**os.environ, "JAVA_HOME": f"{tmp_path}/none"}, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["remote"].startswith("pyspark.sql.connect")
    assert said["session"] is True, "session() takes the one that runs"
    assert (said["saved"], said["again"]) == ([1, {"entity/Part": 100}, {}], None)
    assert said["read"] == [["new1", 1], ["p001", 1]]
    assert said["past"] == 100
    assert said["changes"] == [["insert", "new0", 0, 2], ["insert", "new1", 1, 2]]
    assert said["sql"] == sum(range(100)) + 1
    assert "entity/Other" in said["missing"]
    assert said["verified"] == [True, 102]
    assert said["pipeline"] == ["published", 3, {"rows": 3, "rejected": 1, "inserts": 1, "updates": 1, "unchanged": 0}]
    with Session(f"file://{tmp_path}/lake", entity_types=[Part]) as session:
        assert {one.id: one.size for one in session.query().entities(Part).where(Part.id.in_(["p000", "q2"])).collect()
                } == {"p000": 7, "q2": 2}  # fmt: skip
