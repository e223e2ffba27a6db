"""`onto schema` and `onto migrate`: types as they are stored, how they came to be, and how they change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ontolake.model import canonical_json, schema_hash, schema_of
from ontolake.ontology import open_repository

CHANGED = """
from shop_types import Customer as Before, Entity, Field, Order, Tier
from ontolake.ontology import upgrader


class {name}(Entity):
    id: Field[str] = Field(primary_key=True)
    label: Field[str]
    points: Field[int] = Field(default=0)
"""


def test_export_is_canonical(onto, shop) -> None:
    one = onto("schema", "export", "Customer", *shop.at)
    expected = schema_of(shop.types.Customer)
    assert one.out == canonical_json(expected) + "\n"
    everything = json.loads(onto("schema", "export", *shop.at, "--json").out)
    assert [schema["name"] for schema in everything] == ["Customer", "Order", "Placed", "Rated"]
    assert everything[2] == schema_of(shop.types.Placed)
    assert onto("schema", "export", "Custommer", *shop.at).code == 2


def test_export_as_python_gives_classes_of_the_same_schemas(onto, shop, tmp_path: Path) -> None:
    target = tmp_path / "written_types.py"
    assert onto("schema", "export", *shop.at, "--format", "python", "-o", str(target)).code == 0
    count = onto("query", "entities", "Customer", *shop.at, "--models", str(target), "--count")
    assert (count.code, count.out) == (0, "2\n"), count.err
    done = onto("migrate", *shop.at, "--models", str(target), "--json")
    assert (done.document["needed"], done.document["token"]) == (False, None)


def test_history_has_hash_reason_and_time(onto, shop) -> None:
    told = onto("schema", "history", "Customer", *shop.at, "--json").document
    assert (told["type_kind"], told["type_name"], told["dropped"]) == ("entity", "Customer", False)
    (version,) = told["versions"]
    assert version["schema_hash"] == schema_hash(schema_of(shop.types.Customer))
    assert (version["schema_version_id"], version["reason"], version["changes"]) == (1, "initial", "")
    plain = onto("schema", "history", "Customer", *shop.at)
    assert plain.out.splitlines()[1].split("\t")[:3] == ["1", version["schema_hash"][:12], "initial"]
    assert onto("schema", "history", "Customers", *shop.at).code == 2


def test_drop_needs_the_token_of_its_preview(onto, shop) -> None:
    drop = ("schema", "drop", "Placed", *shop.at)
    preview = onto(*drop)
    assert "would drop relation Placed: 1 row could not be read" in preview.out
    assert onto("query", "relations", "Placed", *shop.at, "--count").out == "1\n"
    wrong = onto(*drop, "--token", "0123456789ab", "--json")
    assert (wrong.code, wrong.error["type"]) == (7, "Refused")
    token = onto(*drop, "--json").document["token"]
    assert f"onto schema drop Placed --storage-uri {shop.url} --token {token}" in preview.out
    with shop.session() as session:
        session.ensure(shop.types.Customer(id="c3", name="Eve"))
    stale = onto(*drop, "--token", token)
    assert (stale.code, stale.out) == (7, "")
    token = onto(*drop, "--json").document["token"]
    assert onto(*drop, "--token", token, "--json").document["dropped"]["type_name"] == "Placed"
    gone = onto("query", "relations", "Placed", *shop.at)
    assert gone.code == 2
    assert onto("schema", "history", "Placed", *shop.at, "--json").document["dropped"] is True
    assert onto("verify", *shop.at).code == 0


def test_dropping_says_which_relations_lead_there(onto, native) -> None:
    assert onto("schema", "drop", "Order", *native.at, "--json").document["would_drop"]["relations"] == [
        "Placed", "Rated"]  # fmt: skip


@pytest.fixture
def changed(shop, tmp_path: Path) -> Path:
    path = tmp_path / "changed_types.py"
    path.write_text(CHANGED.format(name="Customer") + """

@upgrader("Customer", from_version=1)
def upgrade(row):
    return {"id": row["id"], "label": row["name"].upper(), "points": int(row["score"])}
""")
    return path


def test_migrate_shows_first_and_needs_the_token(onto, shop, changed: Path) -> None:
    migrate = ("migrate", *shop.at, "--models", f"{changed}:Customer")
    preview = onto(*migrate)
    assert preview.code == 0, preview.err
    assert "--token" in preview.out
    told = onto(*migrate, "--json").document
    (one,) = told["types"]
    assert (one["type_name"], one["from_schema_version_id"], one["to_schema_version_id"], one["rows"]) == (
        "Customer", 1, 2, 2)  # fmt: skip
    assert {"field": "label", "what": "added"} in one["changes"]
    assert onto("query", "entities", "Customer", *shop.at, "--json").document["rows"][0]["fields"]["name"] == "Ada"
    wrong = onto(*migrate, "--token", "nonsense", "--json")
    assert (wrong.code, wrong.error["type"]) == (7, "MigrationTokenError")
    with shop.session() as session:
        session.ensure(shop.types.Customer(id="c3", name="Eve"))
    stale = onto(*migrate, "--token", told["token"])
    assert (stale.code, stale.out) == (7, "")
    token = onto(*migrate, "--json").document["token"]
    done = onto(*migrate, "--token", token, "--json").document
    assert (done["commit_id"], done["types"][0]["rows"]) == (4, 3)
    rows = onto("query", "entities", "Customer", *shop.at, "--order-by", "id", "--json").document["rows"]
    assert [row["fields"] for row in rows] == [{"id": "c1", "label": "ADA", "points": 0}, {
        "id": "c2", "label": "BOB", "points": 2}, {"id": "c3", "label": "EVE", "points": 0}]
    assert "nothing is to be migrated" in onto(*migrate).out
    history = onto("schema", "history", "Customer", *shop.at, "--json").document["versions"]
    assert [version["reason"] for version in history] == ["initial", "migration"]
    assert "label added" in history[1]["changes"]
    assert onto("verify", *shop.at).code == 0


@pytest.fixture
def migrated(onto, shop, tmp_path: Path) -> str:
    """The shop after its customers were migrated by commit 3; the module with their class and the upgrader."""
    path = tmp_path / "changed_types.py"
    path.write_text(CHANGED.format(name="Customer") + "\n\n@upgrader('Customer', from_version=1)\n"
                    "def up(row):\n    return {'id': row['id'], 'label': row['name'], 'points': 0}\n")
    assert onto("migrate", *shop.at, "--models", f"{path}:Customer", "--force").code == 0
    return f"{path}:Customer"


BEFORE = {"reason": "commit_before_activation", "activation_commit_id": 3}


def test_queries_read_the_past_by_its_own_schema_and_say_so(onto, shop, migrated: str) -> None:
    query = ("query", "entities", "Customer", *shop.at)
    before = onto(*query, "--as-of", "1", "--order-by", "id", "--json")
    assert "born" in before.document["rows"][0]["fields"]
    assert [row["fields"]["name"] for row in before.document["rows"]] == ["Ada", "Bob\tthe second"]
    assert before.document["diagnostics"] == BEFORE
    assert "warning: commit 1 lies before commit 3, which began the current schema; rows are shown by the schema of" \
        in before.err  # fmt: skip
    plain = onto(*query, "--as-of", "2", "-w", "name=Bob", "--format", "csv")
    assert plain.out.splitlines()[1].startswith("c2,")
    assert plain.err.startswith("warning: commit 2 lies before commit 3")
    counted = onto(*query, "--as-of", "1", "--count", "--json")
    assert counted.document == {"type": "Customer", "count": 2, "diagnostics": BEFORE}
    assert onto(*query, "--as-of", "1", "--history", "--count").out == "2\n"
    assert "has no field 'label'" in onto(*query, "--as-of", "1", "-w", "label=x").err
    history = onto(*query, "--history", "--json")
    assert ("warning: states from before commit 3 have another schema and are left out; --as-of 2 shows them"
            in history.err) == (shop.engine == "v2")  # fmt: skip
    assert history.document.get("diagnostics") == ({"history_begins_at": 3} if shop.engine == "v2" else None)
    now = onto(*query, "--as-of", "3", "--json")
    assert ("diagnostics" in now.document, now.err) == (False, "")
    assert onto(*query, "--as-of", "9").code == 5


def test_queries_lift_the_past_by_the_upgraders_of_the_models(onto, shop, migrated: str) -> None:
    query = ("query", "entities", "Customer", *shop.at, "--as-of", "1", "--schema", "current")
    lifted = onto(*query, "--models", migrated, "-w", "label=Ada", "--json")
    assert [row["fields"] for row in lifted.document["rows"]] == [{"id": "c1", "label": "Ada", "points": 0}]
    assert (lifted.document["diagnostics"], "rows are shown as the current schema has them" in lifted.err) == (
        BEFORE, True)  # fmt: skip
    assert onto(*query, "--schema", "other").code == 2


def test_traversals_read_the_past_by_its_own_schema(onto, shop, migrated: str) -> None:
    ways = onto("query", "traverse", "Customer", "c1", *shop.at, "--via", "Placed", "--as-of", "1", "--json")
    (path,) = ways.document["paths"]
    assert (path["entities"][0]["fields"]["name"], path["relations"][0]["fields"]["count"]) == ("Ada", 3)
    assert ways.document["diagnostics"] == BEFORE
    assert "warning: commit 1" in ways.err


def test_the_past_is_exported_compared_and_examined_by_its_own_schema(onto, shop, migrated: str) -> None:
    def customers(*options: str) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in onto("export", shop.url, "--type", "Customer", *options).out.splitlines()]
        assert set(found[0]["schema"]["fields"]) == set(found[1]["fields"])
        return [one["fields"] for one in found[1:]]

    assert [row["name"] for row in customers("--as-of", "1")] == ["Ada", "Bob\tthe second"]
    assert [row["label"] for row in customers()] == ["Ada", "Bob"]
    changes = onto("diff", shop.url, "2", "--json").document["changes"]
    assert [(one["key"], one["kind"], one["before"]["name"], one["after"]["label"]) for one in changes] == [
        ("c1", "update", "Ada", "Ada"), ("c2", "update", "Bob", "Bob")]  # fmt: skip
    first = onto("commits", "examine", "1", *shop.at, "--type", "Customer", "--json").document["changes"]
    assert [(one["change"], one["after"]["name"]) for one in first] == [
        ("insert", "Ada"), ("insert", "Bob\tthe second")]  # fmt: skip
    third = onto("commits", "examine", "3", *shop.at).out
    assert 'label: (no such field) → "Ada"' in third
    assert 'name: "Ada" → (no such field)' in third
    assert [one["id"] for one in onto("log", shop.url, "--json").document["commits"]] == [3, 2, 1]


def test_models_of_before_a_migration_are_refused(onto, native, tmp_path: Path) -> None:
    path = tmp_path / "changed_types.py"
    path.write_text(CHANGED.format(name="Customer") + "\n\n@upgrader('Customer', from_version=1)\n"
                    "def up(row):\n    return {'id': row['id'], 'label': row['name'], 'points': 0}\n")
    assert onto("migrate", *native.at, "--models", f"{path}:Customer", "--force").code == 0
    assert onto("query", "entities", "Customer", *native.at, "--models", native.models).code == 3


def test_a_migration_that_cannot_be_done_leaves_everything(onto, native, tmp_path: Path) -> None:
    lonely = tmp_path / "lonely_types.py"
    lonely.write_text(CHANGED.format(name="Order").replace("id: Field[str]", "id: Field[int]"))
    done = onto("migrate", *native.at, "--models", f"{lonely}:Order", "--json")
    assert (done.code, done.error["type"]) == (3, "MissingUpgraderError")
    assert done.document["missing"] == [{"type_name": "Order", "from_schema_version_id": 1}]
    failing = tmp_path / "failing_types.py"
    failing.write_text(CHANGED.format(name="Order").replace("id: Field[str]", "id: Field[int]") + """

@upgrader("Order", from_version=1)
def upgrade(row):
    raise RuntimeError("no")
""")
    migrate = ("migrate", *native.at, "--models", f"{failing}:Order")
    token = onto(*migrate, "--json").document["token"]
    done = onto(*migrate, "--token", token, "--json")
    assert (done.code, done.error["type"]) == (4, "MigrationError")
    assert "RuntimeError: no" in done.error["message"]
    repository = open_repository(native.url)
    assert repository.head() == 2
    assert len(repository.schema_versions("entity", "Order")) == 1
    repository.close()
