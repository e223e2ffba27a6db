"""The commands of `onto graph`, from init to view."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from graph_support import Customer, customers

from ontolake.cli import main
from ontolake.graph import Graph

MODELS = str(Path(__file__).parent / "support" / "graph_support.py")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], url: str, tmp_path: Path) -> Any:
    def call(*arguments: str, code: int = 0) -> Any:
        given = [str(one) for one in arguments]
        at = 2 if given[0] in ("branch", "schema") else 1
        assert main(["graph", *given[:at], url, *given[at:], "--json"]) == code
        out = capsys.readouterr()
        return json.loads(out.out if code == 0 else out.err)

    return call


@pytest.mark.slow
def test_the_whole_of_it(run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("init", "--models", MODELS)
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, customers("a", "b", "c"))))
    (tmp_path / "o.jsonl").write_text('{"id": 1}\n{"id": 2}')
    (tmp_path / "p.jsonl").write_text('{"left_key": "a", "right_key": 1}')
    for table, file in (("Customer", "c"), ("Order", "o"), ("edge/Placed", "p")):
        assert run("load", table, str(tmp_path / f"{file}.jsonl"), "--actor", "ada")["commit"]
    shown = run("snapshot")
    assert shown["internal_schema_version"] == 4
    assert {one["table"]: one["rows"] for one in shown["tables"]} == {
        "node/Customer": 3, "node/Order": 2, "edge/Placed": 1}
    assert run("get", "Customer", "a")["name"] == "A"
    assert run("get", "Placed", "a", "1")["right_key"] == 1
    assert run("get", "Customer", "zz", code=5)["error"]["type"] == "NotFound"
    assert run("sql", "SELECT id FROM customer ORDER BY id DESC", "--limit", "1")["rows"] == [{"id": "c"}]
    assert run("traverse", "Customer", "a", "Placed")["rows"] == [{"id": 1, "depth": 1}]
    assert run("branch", "create", "try")["name"] == "try"
    assert run("delete", "Customer", "c", "--branch", "try")["deleted"] == 1
    assert [one["kind"] for one in run("diff", "try")["changes"]] == ["delete"]
    assert run("merge", "try", "--dry-run")["status"] == "fast_forward"
    assert run("merge", "try")["tables"]["node/Customer"]["deleted"] == 1
    assert run("log", "--limit", "1")["commits"][0]["metadata"]["kind"] == "merge"
    assert [one["name"] for one in run("branch", "list")["branches"]] == ["main", "try"]
    token = run("branch", "delete", "try")["token"]
    assert run("branch", "delete", "try", "--token", "no", code=7)["error"]["type"] == "Refused"
    assert run("branch", "delete", "try", "--token", token)["deleted"]
    assert run("schema", "plan", "--models", MODELS)["steps"] == []
    assert run("search", "Customer", "b", code=2)["error"]["hint"].endswith("onto graph index --kind text")
    assert run("index", "Customer", "name", "--kind", "text")["commit"]
    assert [row["id"] for row in run("search", "Customer", "b")["rows"]] == ["b"]
    refused = run("delete", "Customer", "--where", "nme = 'A'", code=2)["error"]["message"]
    assert "nme" in refused
    assert ".rs:" not in refused
    run("optimize")
    found = run("cleanup", "--keep-commits", "1")
    assert found["removable"]
    run("cleanup", "--keep-commits", "1", "--token", found["token"])
    assert run("repair")["findings"] == []
    assert run("export", str(tmp_path / "out"))["rows"]["node/Customer"] == 2
    assert main(["graph", "import", f"{tmp_path}/copy/", str(tmp_path / "out")]) == 0
    assert "committed" in capsys.readouterr().out
    run("view", str(tmp_path / "view.html"))
    page = (tmp_path / "view.html").read_text()
    assert all(word in page for word in ("Customer", "Placed", "merge", "<svg"))
    assert "http" not in page


def test_conflicts_end_with_six_and_name_the_rows(run: Any, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("init", "--models", MODELS)
    with Graph.open(url) as graph:
        graph.branches.create("try")
        graph.load(Customer, customers("a", tier="one"))
        graph.load(Customer, customers("a", tier="two"), branch="try")
    assert run("merge", "try", code=6)["error"]["type"] == "MergeConflictError"
    assert main(["graph", "merge", url, "try"]) == 6
    assert "divergent_insert" in capsys.readouterr().out


RENAMED = """
from ontolake.model import Entity, Field

class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    full_name: Field[str]
    tier: Field[str | None] = Field(default=None)
"""


def test_types_change_by_plan_and_columns_are_renamed(run: Any, tmp_path: Path, capsys: Any, url: str) -> None:
    run("init", "--models", MODELS)
    with Graph.open(url) as graph:
        graph.load(Customer, customers("a"))
    models = tmp_path / "renamed.py"
    models.write_text(RENAMED)
    given = ("--models", str(models), "--rename", "Customer.name=full_name")
    plan = run("schema", "plan", *given)
    assert {(step["action"], step["table"], step["column"]) for step in plan["steps"]} == {
        ("rename_column", "node/Customer", "name"), ("drop_column", "node/Customer", "email"),
        ("drop_type", "node/Order", None), ("drop_type", "edge/Placed", None)}
    assert main(["graph", "schema", "plan", url, *given]) == 0
    assert "--rename Customer.name=full_name" in capsys.readouterr().out
    assert run("schema", "apply", *given, "--token", "no", code=7)["error"]["type"] == "Refused"
    assert run("schema", "apply", *given, "--token", plan["token"])["commit"]
    assert run("get", "Customer", "a") == {"id": "a", "full_name": "A", "tier": None}
    for wrong in ("Customer.name", "name=x", "Customer.=x", "Customer.a=", "Customer.nowhere=full_name"):
        run("schema", "plan", "--models", str(models), "--rename", wrong, code=3 if "nowhere" in wrong else 2)
    assert run("schema", "plan", *given[:2])["steps"] == []


def test_a_strategy_is_for_all_tables_or_for_one(run: Any, url: str) -> None:
    run("init", "--models", MODELS)
    with Graph.open(url) as graph:
        graph.branches.create("try")
        graph.load(Customer, customers("a", tier="one"))
        graph.load(Customer, customers("a", tier="two"), branch="try")
    run("merge", "try", "--strategy", "Order=theirs", code=6)
    run("merge", "try", "--strategy", "theirs", "--strategy", "Customer=ours", code=2)
    run("merge", "try", "--strategy", "mine", code=2)
    assert run("merge", "try", "--strategy", "Customer=theirs")["tables"]["node/Customer"]["updated"] == 1
    assert run("get", "Customer", "a")["tier"] == "two"


@pytest.mark.slow
def test_the_verbs_of_any_store(run: Any, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("init", "--models", MODELS)
    with Graph.open(url) as graph:
        graph.load(Customer, customers("a"), actor="ada")
        graph.branches.create("try")
        graph.load(Customer, customers("b"), branch="try")
        first = list(graph.commits())[-1].id
        graph.tags.create("2024", first)

    def onto(*arguments: str, code: int = 0) -> Any:
        assert main([*arguments, "--json"]) == code, capsys.readouterr().err
        out = capsys.readouterr()
        return json.loads(out.out if code == 0 else out.err)

    shown = onto("info", url)
    assert (shown["kind"], shown["model"], shown["format_version"]) == ("graph", "graph", 4)
    assert [branch["name"] for branch in shown["branches"]] == ["main", "try"]
    assert [commit["author"] for commit in onto("log", url)["commits"]] == ["ada", None]
    assert [commit["id"] for commit in onto("log", url, "--until", first)["commits"]] == [first]
    assert [change["key"] for change in onto("diff", url, "main", "try")["changes"]] == ["b"]
    for before in (first, f"main@{first}", f"@{first}", "2024"):
        assert [change["key"] for change in onto("diff", url, before)["changes"]] == ["a"]
    onto("diff", url, "nowhere", code=2)
    assert onto("branch", url, "create", "old", "--at", first)["created"]["head"] == first
    assert len(onto("branch", url)["branches"]) == 3
    token = onto("branch", url, "delete", "old")["token"]
    onto("branch", url, "delete", "old", "--token", token)
    for options, keys in (((), ["a"]), (("--branch", "try"), ["a", "b"]), (("--as-of", first), [])):
        assert main(["export", url, *options]) == 0
        assert [json.loads(line)["key"] for line in capsys.readouterr().out.splitlines()] == keys
    assert onto("verify", url)["ok"]
    assert onto("gc", url)["would_remove"]["items"] == 0
    for path in (tmp_path / "graph" / "nodes").rglob("*.lance"):
        path.write_bytes(path.read_bytes()[:20])
    assert main(["verify", url, "--json"]) == 5
    assert json.loads(capsys.readouterr().out)["damage"]


def test_the_stamp_is_told_per_branch(run: Any, url: str) -> None:
    run("init", "--models", MODELS)
    run("branch", "create", "try")
    with Graph.open(url) as graph:
        manifest = graph.parts.manifest.dataset("try")
        manifest.update_schema_metadata({"omnigraph:internal_schema_version": "5"}, replace=True)
    assert [run("snapshot", "--branch", name)["internal_schema_version"] for name in ("main", "try")] == [4, 5]


def test_version_names_the_internal_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["internal_schema"] == 4
