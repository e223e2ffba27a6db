"""A driver that dies leaves a store as it was, or with the whole commit; what it staged is cleaned up later."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ontolake import parallel
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.ontology.repository.objects.upkeep.maintenance import collect, garbage
from ontolake.ontology.verification import verify

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]  # all in one worker, so that Spark starts once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER = """
import sys
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from ontolake import faults
from ontolake.model import Entity, Field
from ontolake.spark import save

class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int]

url, step = sys.argv[1:]
gateway = launch_gateway()
running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
spark = SparkSession(SparkContext(
    gateway=gateway, jsc=gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(running)))
rows = spark.range(0, 10_000, 1, 2).selectExpr("format_string('t%06d', id) AS id", "id AS size")
with faults.arm(lambda reached: faults.kill() if reached == step else None):
    save(rows, url, "entity/Thing", types=[Thing])
print("not killed")
"""


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int]


def driver(spark: SparkSession, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A driver in a process of its own, which drives the Java of these tests: to start another takes long."""
    java = spark.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]
    return subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments], capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYSPARK_GATEWAY_PORT": str(java.port), "PYSPARK_GATEWAY_SECRET": java.auth_token,
             "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip


@pytest.mark.parametrize(("step", "rows"), [("objects: linked", 1), ("ontology: commit durable", 10_001)])
def test_a_driver_that_is_killed_leaves_all_or_nothing(
    spark: SparkSession, tmp_path: Path, step: str, rows: int
) -> None:
    url = f"file://{tmp_path}/lake"
    with Session(url, entity_types=[Thing]) as session:
        session.ensure(Thing(id="first", size=1))
    done = driver(spark, url, step)
    assert done.returncode == -9, done.stdout + done.stderr
    with Session(url, entity_types=[Thing]) as session:
        assert session.query().entities(Thing).count() == rows
        assert [commit.id for commit in session.list_commits()] == ([1] if rows == 1 else [2, 1])
        session.ensure(Thing(id="later", size=2))  # others go on
        session.commit()
        assert session.query().entities(Thing).count() == rows + 1
    assert parallel.clean(url).items == 0  # it could still be at work
    staged = parallel.clean(url, older=0, dry_run=False).items
    assert staged >= 2
    with parallel.open_parallel(url, write=True) as store:
        repository = store.repository  # type: ignore[attr-defined]
        left = garbage(repository, grace=0)
        assert any("Thing" in key for key in left.keys) == (rows == 1)  # linked, and named by no commit
        collect(repository, left.token, grace=0)
        assert sum(batch.num_rows for split in store.splits("entity/Thing", store.view()) for batch in split.read()
                   ) == rows + 1  # fmt: skip
        assert [*verify(repository)] == []
