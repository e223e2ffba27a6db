"""`onto pipeline`: killed with SIGKILL, run again, and asked what it did."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ontolake import parallel
from ontolake.cli import main

PIPELINE = """
import os
from ontolake import faults
from ontolake.model import Entity, Field
from ontolake.spark import Pipeline


class Goods(Entity):
    sku: Field[str] = Field(primary_key=True)
    price: Field[float] = Field(ge=0)


goods = Pipeline("goods", types=[Goods], max_rejected=1)
goods.load(Goods, goods.csv("goods", "goods.csv"), vanished=True)
goods.expect_rows(Goods, at_least=1)


def hook(step):
    if step == os.environ.get("KILLED_AT"):
        faults.kill()


armed = faults.arm(hook)  # for as long as the process lives
armed.__enter__()
"""


def onto(folder: Path, *arguments: str, killed_at: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ontolake", "pipeline", *arguments], cwd=folder, text=True,
                          timeout=280, capture_output=True, env={**os.environ, "KILLED_AT": killed_at}, check=False)


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.usefixtures("spark")
def test_a_run_that_is_killed_publishes_nothing_and_is_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "goods.py").write_text(PIPELINE)
    (tmp_path / "goods.csv").write_text("sku,price,colour\ns1,1.5,red\ns2,-1,red\ns3,2.5,blue\n")
    url = f"file://{tmp_path}/lake"
    killed = onto(tmp_path, "run", "goods.py", "--store", url, killed_at="pipeline: before the publish")
    assert (killed.returncode, killed.stderr) == (-signal.SIGKILL, "")
    with parallel.open_parallel(url) as store:
        assert store.head() == 0
    assert parallel.clean(url, older=0).items > 0
    assert main(["pipeline", "status", "--store", url]) == 0
    assert "killed" in capsys.readouterr().out

    (tmp_path / "repeated.py").write_text(PIPELINE.partition("def hook")[0])
    assert main(["pipeline", "run", f"{tmp_path}/repeated.py", "--store", url]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    table, unused, told, *_ = said.out.splitlines()[1:]
    assert table.split("\t") == ["entity/Goods", "3", "1", "2", "0", "0", "0", "2"]
    assert unused == "goods has columns that nothing asks for: colour"
    assert told.startswith("goods: commit 1, after ")
    assert main(["pipeline", "history", "--store", url, "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [one["state"] for one in runs] == ["published", "killed"]
    assert runs[0]["tables"][0]["reasons"] == {"price: is less than 0": 1}
    assert "rejected: 1 × entity/Goods: price: is less than 0\n" in said.out
    assert "such as: goods.csv, line 3, for entity/Goods: price: '-1' is less than 0\n" in said.out
    report = Path(runs[0]["report"]).read_text()
    for shown in ("published", "price: &#x27;-1&#x27; is less than 0", "price: is less than 0", "goods.csv", "colour",
                  "rows of Goods"):
        assert shown in report
    assert main(["pipeline", "clean", "--store", url, "--older", "0", "--remove"]) == 0
    assert " bytes removed" in capsys.readouterr().out
    assert parallel.clean(url, older=0).items == 0


def test_a_plan_tells_what_is_read_made_and_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "planned.py"
    module.write_text(PIPELINE.partition("def hook")[0])
    assert main(["pipeline", "plan", str(module), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["targets"][0]["table"] == "entity/Goods"
    assert plan["expectations"] == ["rows of Goods"]
    assert main(["pipeline", "plan", str(module)]) == 0
    assert "expects: rows of Goods" in capsys.readouterr().out
    assert main(["pipeline", "plan", f"{module}:other"]) == 2
    assert "it has goods" in capsys.readouterr().err
    assert main(["pipeline", "status", "--store", f"{tmp_path}/nothing.db"]) != 0
    assert "no pipeline has run" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "said"), [
    ("dat=second", "did you mean 'data'? it has data, day"), ("colour=red", "it has data, day"),
])
def test_a_parameter_that_the_pipeline_does_not_have_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, said: str
) -> None:
    module = tmp_path / "asked.py"
    module.write_text(PIPELINE.partition("def hook")[0].replace("goods.csv\"", "{data}/{day}.csv\"").replace(
        "max_rejected=1", "parameters={'data': 'first'}").replace('"goods"', '"asked"'))
    store = tmp_path / "store.db"
    assert main(["pipeline", "run", str(module), "--store", str(store), "--set", "day=1", "--set", given]) == 2
    told = capsys.readouterr()
    assert f"has no parameter {given.partition('=')[0]!r}" in told.err
    assert said in told.err
    assert "Spark" not in told.err
    assert list(tmp_path.glob("store*")) == []


def test_a_parameter_that_is_missing_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "missing.py"
    module.write_text(PIPELINE.partition("def hook")[0].replace("goods.csv\"", "{day}.csv\""))
    assert main(["pipeline", "run", str(module), "--store", f"{tmp_path}/store.db"]) == 4
    assert "asks for the parameter 'day'\nhint: give it with --set NAME=VALUE" in capsys.readouterr().err
    assert list(tmp_path.glob("store*")) == []
