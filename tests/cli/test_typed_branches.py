"""Commands for typed stores with `--branch`: each reads and writes that branch, and leaves the others alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

CHANGED = """
from shop_types import Entity, Field
from ontolake.ontology import upgrader


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    label: Field[str]
    points: Field[int] = Field(default=0)


@upgrader("Customer", from_version=1)
def upgrade(row):
    return {"id": row["id"], "label": row["name"].upper(), "points": int(row["score"])}
"""
HANDLERS = """
from shop_types import Customer
from ontolake.ontology import Event, on_event


class Joined(Event):
    id: str


@on_event(Joined)
def join(context):
    context.ensure(Customer(id=context.event.id, name="Joined"))
"""


@pytest.fixture
def branched(shop_in, onto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A shop of engine v3 with the branch `try`, which has one customer more."""
    shop = shop_in("native v3", tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert onto("branch", "create", shop.url, "try").code == 0
    line = {"kind": "entity", "type": "Customer", "key": "c9", "fields": {"id": "c9", "name": "Nina"}}
    (tmp_path / "new.jsonl").write_text(json.dumps(line) + "\n")
    done = onto("import", str(tmp_path / "new.jsonl"), *shop.at, "--models", shop.models, "--branch", "try", "--json")
    assert done.code == 0, done.err
    assert done.document["commit_id"] == 3
    return shop


def customers(onto, shop, *more: str) -> dict[str, Any]:
    rows = onto("query", "entities", "Customer", *shop.at, *more, "--json").document["rows"]
    return {row["key"]: row["fields"].get("name", row["fields"].get("label")) for row in rows}


def test_rows_go_in_and_out_on_a_branch(onto, branched, tmp_path: Path) -> None:
    main = customers(onto, branched)
    assert set(main) == {"c1", "c2"}
    assert customers(onto, branched, "--branch", "try") == {**main, "c9": "Nina"}
    keys = {json.loads(line).get("key") for line in onto("export", branched.url, "--branch", "try", "--type",
                                                         "Customer").out.splitlines()}  # fmt: skip
    assert keys == {None, "c1", "c2", "c9"}
    told = onto("commits", "list", *branched.at, "--branch", "try", "--json").document["commits"]
    assert [one["id"] for one in told] == [3, 2, 1]
    assert [one["id"] for one in onto("commits", "list", *branched.at, "--json").document["commits"]] == [2, 1]
    unknown = onto("query", "entities", "Customer", *branched.at, "--branch", "nothing", "--json")
    assert (unknown.code, unknown.error["type"]) == (2, "UnknownBranchError")


def test_a_branch_is_migrated_and_merged(onto, branched, tmp_path: Path) -> None:
    changed = tmp_path / "changed_types.py"
    changed.write_text(CHANGED)
    migrate = ("migrate", *branched.at, "--models", f"{changed}:Customer", "--branch", "try")
    preview = onto(*migrate, "--json").document
    shown = onto(*migrate)
    assert f"--branch try --token {preview['token']}" in shown.out
    assert onto(*migrate, "--token", preview["token"], "--json").document["commit_id"] == 4
    versions = [[one["schema_version_id"] for one in onto(
        "schema", "history", "Customer", *branched.at, "--branch", name, "--json").document["versions"]]
        for name in ("main", "try")]  # fmt: skip
    assert versions == [[1], [1, 2]]
    exported = onto("schema", "export", "Customer", *branched.at, "--branch", "try").out
    assert sorted(json.loads(exported)["fields"]) == ["id", "label", "points"]
    before = customers(onto, branched)
    with branched.session() as session:
        session.ensure(branched.types.Customer(id="c4", name="Di", score=2.5))
    merged = onto("merge", branched.url, "try", "--models", f"{changed}:Customer", "--json")
    assert merged.code == 0, merged.err
    assert merged.document["tables"]["entity/Customer"] == {"inserted": 1, "updated": 3, "deleted": 0}
    after = {**before, "c4": "Di", "c9": "Nina"}
    assert customers(onto, branched) == {key: name.upper() for key, name in after.items()}
    assert onto("verify", *branched.at).code == 0


def test_handlers_run_on_a_branch(onto, branched, tmp_path: Path) -> None:
    handlers = tmp_path / "joining.py"
    handlers.write_text(HANDLERS)
    assert onto("events", "emit", "Joined", '{"id": "j1"}', *branched.at).code == 0
    done = onto("events", "run", "--handlers", str(handlers), *branched.at, "--until-idle", "--branch", "try", "--json")
    assert done.code == 0, done.err
    assert done.document["handled"] == 1
    assert customers(onto, branched, "--branch", "try")["j1"] == "Joined"
    assert "j1" not in customers(onto, branched)
