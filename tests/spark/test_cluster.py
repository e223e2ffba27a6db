"""A real cluster: a master and two workers, each a process of its own, against a real object store."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
import pytest
from waiting import wait_for

from ontolake.cli import main
from ontolake.model import Entity, Field
from ontolake.objects.testing import SeaweedServer
from ontolake.ontology import Session
from ontolake.parallel import clean
from ontolake.spark.quick_start import class_archive, home
from ontolake.spark.sessions import check_java

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600)]

ROWS = 9_000


class Part(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int]


class Wider(Entity):
    id: Field[str] = Field(primary_key=True)
    size: Field[int]
    double: Field[int]


Wider.__name__ = "Part"
PATHS = {"PYTHONPATH": str(Path(__file__).parents[1] / "support")}
"""Where the driver and the workers find what tests share."""
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of Java where there are many, for seconds."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Cluster:
    """A standalone master and two workers, and a driver that does what it is told."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self._folder = folder
        self._home = home() or Path(pyspark.__file__).parent
        self._processes: list[subprocess.Popen[Any]] = []
        self._archive = class_archive(check_java())
        if "ArchiveClassesAtExit" in self._archive:  # one of all these that would write it is enough: the driver
            self._archive = ""
        port, self._pages = free_port(), free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self._start("master", "master.Master", "--port", str(port), "--webui-port", str(self._pages))
        wait_for(lambda: self.alive() is not None, 60)
        self.workers = [self._worker(number) for number in range(2)]
        wait_for(lambda: self.alive() == 2, 60)
        self._log = (folder / "driver.log").open("wb")
        program = Path(__file__).parent / "cluster_program.py"
        self._driver = subprocess.Popen(
            [sys.executable, str(program), self.master, f"{LIGHT} {self._archive}"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._log, text=True, env={**os.environ, **variables, **PATHS},
            start_new_session=True)  # fmt: skip
        self._processes.append(self._driver)
        assert self.said() == "ready"

    def _start(self, name: str, what: str, *arguments: str, host: str = "127.0.0.1") -> subprocess.Popen[Any]:
        variables = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
        variables |= PATHS | {"SPARK_HOME": str(self._home), "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m",
                              "SPARK_DAEMON_JAVA_OPTS": f"{LIGHT} {self._archive}"}
        with (self._folder / f"{name}.log").open("wb") as log:
            started = subprocess.Popen(
                ["bash", str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", "--host", host,
                 *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables, start_new_session=True)  # fmt: skip
        self._processes.append(started)
        return started

    def _worker(self, number: int) -> subprocess.Popen[Any]:
        """Each under an address of its own, as if on a machine of its own: a task is not speculated where it runs."""
        return self._start(f"worker{number}", "worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port",
                           str(free_port()), "--work-dir", str(self._folder / f"work{number}"), self.master,
                           host=f"127.0.0.{number + 1}")

    def alive(self) -> int | None:
        """How many workers the master knows to be alive; None before it answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._pages}/json/", timeout=5) as page:
                return int(json.load(page)["aliveworkers"])
        except (OSError, ValueError):
            return None

    def tell(self, do: str, **more: Any) -> None:
        assert self._driver.stdin is not None
        self._driver.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._driver.stdin.flush()

    def said(self) -> Any:
        assert self._driver.stdout is not None
        line = self._driver.stdout.readline()
        assert line, (self._folder / "driver.log").read_text(errors="replace")[-4000:]
        return json.loads(line)

    def ask(self, do: str, **more: Any) -> Any:
        self.tell(do, **more)
        return self.said()

    def kill_worker(self, number: int) -> None:
        """As if its machine were gone: the worker, its executor, and their Python processes."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)
        self.workers[number].wait()

    def close(self) -> None:
        for one in reversed(self._processes):
            with suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()
        self._log.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, seaweed: SeaweedServer) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("cluster"), seaweed.env())
    try:
        yield started
    finally:
        started.close()


def rows(url: str, kind: Any = Part) -> list[Any]:
    with Session(url, entity_types=[kind]) as session:
        return session.query().entities(kind).order_by(kind.id).collect()


def states(url: str) -> int:
    with Session(url, entity_types=[Part]) as session:
        return len(session.query().entities(Part).with_history().collect())


def test_load_stream_migrate_and_verify(cluster: Cluster, seaweed_url: str, tmp_path: Path) -> None:
    (tmp_path / "seen").mkdir()
    seen = cluster.ask("where", gate=f"{tmp_path}/seen")
    assert len({process for process, _ in seen}) == 2, "both workers do something"
    assert {place for _, place in seen} == {os.environ["AWS_ENDPOINT_URL"]}
    source, target = f"{seaweed_url}/one", f"{seaweed_url}/two"
    assert cluster.ask("load", url=source, rows=ROWS) == {"commit": 1, "written": {"entity/Part": ROWS}, "deleted": {}}
    assert cluster.ask("load", url=source, rows=ROWS)["commit"] is None
    assert cluster.ask("load", url=source, rows=ROWS + 10)["commit"] == 2
    with Session(target, entity_types=[Part]) as session:
        session.ensure(Part(id="own", size=1))
    for _ in range(2):  # the second time there is nothing to do
        assert cluster.ask("stream", source=source, target=target, checkpoint=f"{tmp_path}/checkpoint") is True
        assert [one.size for one in rows(target)] == [1, *range(ROWS + 10)]
        assert states(target) == ROWS + 11
    assert cluster.ask("migrate", url=source) == 3
    assert [one.double for one in rows(source, Wider)] == [2 * n for n in range(ROWS + 10)]
    for url, count in ((source, 2 * (ROWS + 10)), (target, ROWS + 11)):
        damage, parts, looked_at = cluster.ask("verify", url=url)
        assert (damage, looked_at) == ([], count)
        assert parts > 1


def test_a_task_that_is_done_twice_doubles_nothing_and_what_the_slower_one_leaves_is_collected(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, gate, work = f"file://{tmp_path}/lake", tmp_path / "gate", tmp_path / "lake-work"
    gate.mkdir()
    with Session(url, entity_types=[Part]) as session:
        session.ensure(Part(id="own", size=-1))

    def left() -> list[Path]:
        return sorted(work.rglob("*.parquet"))

    begun = cluster.ask("speculate", url=url, rows=ROWS, gate=str(gate))
    assert begun == [f"begun-{number}-0" for number in range(6)] + ["begun-5-1"], "the last one was begun twice"
    assert left() == []
    (gate / "go").touch()  # the slower one goes on, though nobody waits for it any more
    wait_for(lambda: len(left()) == 1, 60)
    assert [one.size for one in rows(url)] == [-1, *range(ROWS)]
    assert states(url) == ROWS + 1
    assert main(["gc", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["would_remove"]["staged"] == 0, "it might still be published"
    yesterday = time.time() - 25 * 3600
    os.utime(left()[0], (yesterday, yesterday))
    assert main(["gc", url, "--json"]) == 0
    preview = json.loads(capsys.readouterr().out)
    assert preview["would_remove"]["staged"] == 1
    assert main(["gc", url, "--token", preview["token"]]) == 0
    assert left() == []
    assert [one.size for one in rows(url)] == [-1, *range(ROWS)]
    assert cluster.ask("verify", url=url)[0] == []


def test_a_worker_that_is_killed_in_the_middle_of_a_load_doubles_and_loses_nothing(
    cluster: Cluster, seaweed_url: str, tmp_path: Path
) -> None:
    def begun() -> set[str]:
        return {file.name.split("-")[1] for file in tmp_path.glob("begun-*")}

    cluster.tell("load", url=seaweed_url, rows=ROWS, gate=str(tmp_path))
    wait_for(lambda: {"0", "1", "2", "3"} <= begun(), 120)  # two are done, two are under way, one on each worker
    cluster.kill_worker(0)
    (tmp_path / "go").touch()
    assert cluster.said() == {"commit": 1, "written": {"entity/Part": ROWS}, "deleted": {}}
    attempts = [file.name.split("-")[1] for file in tmp_path.glob("begun-*")]
    assert len(attempts) > 6, "what the killed worker had begun was begun again"
    assert [one.size for one in rows(seaweed_url)] == list(range(ROWS))
    assert states(seaweed_url) == ROWS
    assert cluster.ask("verify", url=seaweed_url)[0] == []
    assert clean(seaweed_url, older=0).items == 0, "what was published is not left behind"
    wait_for(lambda: cluster.alive() == 1, 120)

