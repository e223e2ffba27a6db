"""Spark Connect: a real server in processes of its own, and a client that has no Java."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyspark
import pytest
from waiting import wait_for

from ontolake.model import Entity, Field
from ontolake.ontology import Session

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]


class Part(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int | None] = Field(default=None)


def answers(port: int) -> bool:
    with closing(socket.socket()) as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    home = Path(pyspark.__file__).parent
    settings = {"spark.connect.grpc.binding.port": port, "spark.connect.grpc.binding.address": "127.0.0.1",
                "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": 2,
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}  # fmt: skip
    variables = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with (tmp_path / "server.log").open("wb") as log:
        started = subprocess.Popen(
            ["bash", str(home / "bin" / "spark-submit"), "--class",
             "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]",
             *[part for name, value in settings.items() for part in ("--conf", f"{name}={value}")], "spark-internal"],
            cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **variables},
            start_new_session=True)  # fmt: skip
    try:
        wait_for(lambda: answers(port) or started.poll() is not None, 120)
        assert started.poll() is None, (tmp_path / "server.log").read_text()[-4000:]
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def test_a_client_reads_saves_verifies_and_runs_a_pipeline(server: str, tmp_path: Path) -> None:
    program = Path(__file__).parent / "connect_program.py"
    done = subprocess.run([sys.executable, str(program), server, str(tmp_path)], capture_output=True, text=True,
                          timeout=500, env={**os.environ, "JAVA_HOME": f"{tmp_path}/none"}, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["remote"].startswith("pyspark.sql.connect")
    assert said["session"] is True, "session() takes the one that runs"
    assert (said["saved"], said["again"]) == ([1, {"entity/Part": 100}], None)
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
