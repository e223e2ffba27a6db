"""Write, audit, publish without Spark: what a killed run leaves is removed, and what may be needed is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from waiting import wait_for

from ontolake import stores
from ontolake.cli import main
from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.parallel import Parallel, Published, clean, new_job, stage
from ontolake.spark import ExpectationError, PipelineError
from ontolake.spark.pipeline.audit import audited, left_behind, start_graph
from ontolake.spark.pipeline.report import ALIVE, SILENT, history, state_of


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)


RUN = """
import sys
import pyarrow as pa
from ontolake.faults import arm
from ontolake.parallel import stage
from ontolake.spark.pipeline.heartbeat import alive
from ontolake.spark.pipeline.audit import audited
from ontolake.spark.pipeline.report import Report, begin, keep, now

url, run, table = sys.argv[1:]
report = Report(run, "things", url, None, now())


def wait(step):
    if step == "pipeline: published to a branch":
        print("published", flush=True)
        sys.stdin.readline()


with alive(url, run):
    begin(url, report)
    fragment = stage(url, table, [pa.record_batch({"id": ["new"]})], job=run)
    with arm(wait):
        audited(url, None, run, "a test", publish=lambda own: own.publish([fragment]), look=lambda own: None)
    report.state = "published"
    keep(url, report)
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    where = f"file://{tmp_path}/graph"
    start_graph(where, [Thing])
    return where


@pytest.fixture(params=["graph", "typed"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "graph":
        return str(request.getfixturevalue("url"))
    with Session(f"{tmp_path}/shop.db", entity_types=[Thing], engine_version="v3") as session:
        session.ensure(Thing(id="old"))
    return f"{tmp_path}/shop.db"


def table_of(url: str) -> str:
    return "entity/Thing" if url.endswith(".db") else "node/Thing"


def begun(url: str, run: str) -> subprocess.Popen[str]:
    """A run in a process of its own, which has published to its branch and waits before it merges."""
    process = subprocess.Popen([sys.executable, "-c", RUN, url, run, table_of(url)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "published\n"
    return process


def branches(url: str) -> list[str]:
    with stores.find(url).opened() as store:
        return [branch.name for branch in store.branches.list()][1:]


def things(url: str) -> set[str]:
    with stores.find(url).opened() as store:
        return {key for key, _ in store.snapshot().rows(table_of(url))}


def another_run(url: str, look: Callable[[Parallel], None] = lambda own: None) -> Published:
    run = new_job()
    fragment = stage(url, table_of(url), [pa.record_batch({"id": [run]})], job=run)
    assert fragment is not None
    return audited(url, None, run, "a test", publish=lambda own: own.publish([fragment]), look=look)


@pytest.mark.slow
def test_the_branch_of_a_killed_run_goes_and_that_of_a_run_that_is_alive_stays(
    any_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = any_url
    killed, alive = new_job(), new_job()
    first, second = begun(url, killed), begun(url, alive)
    try:
        assert [state_of(url, run) for run in (killed, alive, "other")] == ["running", "running", None]
        assert left_behind(url) == []
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert left_behind(url) == [f"run-{killed}"]
        assert main(["pipeline", "clean", "--store", url]) == 0
        assert f"the branch run-{killed}" in capsys.readouterr().out
        assert sorted(branches(url)) == sorted([f"run-{killed}", f"run-{alive}"]), "a preview removes nothing"
        assert main(["pipeline", "clean", "--store", url, "--remove", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["branches"] == [f"run-{killed}"]
        assert branches(url) == [f"run-{alive}"]
        assert another_run(url).commit is not None
        assert branches(url) == [f"run-{alive}"]
        out, _ = second.communicate("go on\n", timeout=60)
        assert (second.returncode, out) == (0, "")
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
    assert branches(url) == []
    assert "new" in things(url)
    assert state_of(url, alive) == "published"


@pytest.mark.slow
def test_the_next_run_removes_what_a_killed_one_left_and_leaves_what_is_to_be_looked_at(url: str) -> None:
    def not_so(own: Parallel) -> None:
        raise ExpectationError(["it is not so"])

    with pytest.raises(ExpectationError) as caught:
        another_run(url, look=not_so)
    run = new_job()
    process = begun(url, run)
    process.kill()
    process.wait()
    assert sorted(branches(url)) == sorted([str(caught.value.branch), f"run-{run}"])
    assert another_run(url).commit == 1
    assert branches(url) == [caught.value.branch]
    assert "new" not in things(url), "what was not merged is gone"


@pytest.mark.slow
def test_a_run_on_another_machine_is_alive_for_as_long_as_it_says_so(url: str, tmp_path: Path) -> None:
    run = new_job()
    process = begun(url, run)
    process.kill()
    process.wait()
    folder = tmp_path / "graph-work" / run
    told = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(told | {"process": f"elsewhere:{told['process'].rpartition(':')[2]}"}))
    assert [one["state"] for one in history(url)] == ["running"]
    assert left_behind(url, remove=True) == []
    day = 25 * 3600
    for file in folder.rglob("*"):
        if file.is_file() and file.name != ALIVE:
            os.utime(file, (time.time() - day, time.time() - day))
    assert clean(url).items == 0, "it is alive, however long ago it staged"
    os.utime(folder / ALIVE, (time.time() - SILENT - 60, time.time() - SILENT - 60))
    assert [one["state"] for one in history(url)] == ["killed"]
    assert left_behind(url, remove=True) == [f"run-{run}"]
    assert branches(url) == []
    os.utime(folder / ALIVE, (time.time() - day, time.time() - day))
    assert clean(url, dry_run=False).items == 1


def test_signs_of_life_go_on_and_end_with_the_run(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ontolake.spark.pipeline import heartbeat

    monkeypatch.setattr(heartbeat, "EVERY", 0.01)
    sign = tmp_path / "graph-work" / "a-run" / ALIVE
    with heartbeat.alive(url, "a-run"):
        os.utime(sign, (0, 0))
        wait_for(lambda: sign.stat().st_mtime > 0)
    assert not sign.exists()


def test_a_graph_is_made_only_where_there_is_nothing_and_can_be_one(url: str, tmp_path: Path) -> None:
    start_graph(url, [Thing])  # it is there: nothing happens
    with Graph.open(url, read_only=True) as graph:
        assert len(list(graph.commits())) == 1
    with pytest.raises(PipelineError, match=r"shop\.db' is not a graph"):
        start_graph(f"{tmp_path}/shop.db", [Thing])
    assert not (tmp_path / "shop.db").exists()
