"""A copy has every commit and every row of its source, whichever engines they have, and goes on where it stopped."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after
from tests.ontology.shop import ENTITIES, RELATIONS, Customer, Order, Placed, Rated
from tests.ontology.test_migration import SPLIT, filled, migrated, opened, second
from tests.ontology.test_oracle import MAKERS

from ontolake.cli import main
from ontolake.errors import OntolakeError
from ontolake.objects import open_store
from ontolake.objects.testing import Fault, FaultyStore
from ontolake.ontology import Session, StorageBackendError, open_repository
from ontolake.ontology.moving.conversion import convert
from ontolake.ontology.repository import Repository

from .conftest import fresh_memory

WAYS = [("sqlite v2", "objects v2"), ("objects v2", "sqlite v2"), ("objects v1", "objects v2"),
        ("objects v1", "objects v3"), ("objects v3", "sqlite v2"), ("objects v2", "objects v3"),
        ("sqlite v1", "objects v2"), ("sqlite v1", "objects v1"), ("objects v2", "objects v2")]  # fmt: skip


def place(kind: str, folder: Path, name: str) -> str:
    return str(folder / f"{name}.db") if kind == "sqlite" else fresh_memory()


def shop(url: str, engine: str) -> None:
    rng = random.Random(3)
    session = Session(url, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=engine)
    for number in range(14):
        session.ensure(rng.choice(MAKERS)(rng) for _ in range(rng.choice([1, 4, 9])))
        session.commit(metadata={"number": number})
    session.close()


def states(url: str) -> Any:
    with Session(url, entity_types=ENTITIES, relation_types=RELATIONS) as session:
        query: Any = session.query()
        found = [
            [(row.meta().commit_id, repr(row)) for row in start(cls).with_history().collect()]
            for start, classes in ((query.entities, (Customer, Order)), (query.relations, (Placed, Rated)))
            for cls in classes
        ]  # fmt: skip
        return found, [(commit.id, commit.metadata) for commit in session.list_commits()]


@pytest.mark.parametrize(("old", "new"), slow_after(2, WAYS))
def test_a_copy_is_like_its_source(tmp_path: Path, old: str, new: str) -> None:
    source, target = place(old.split()[0], tmp_path, "old"), place(new.split()[0], tmp_path, "new")
    shop(source, old.split()[1])
    one, two = open_repository(source), open_repository(target, engine_version=new.split()[1])
    done = convert(one, two)
    assert done.copied == done.commits == one.head()
    assert done.rows > 30
    assert convert(one, two).copied == 0, "there is nothing left to do"
    one.close()
    two.close()
    assert states(target) == states(source)


@pytest.mark.parametrize(("old", "new"), slow_after(2, WAYS))
def test_migrations_and_dropped_types_are_copied_too(tmp_path: Path, old: str, new: str) -> None:
    source, target = place(old.split()[0], tmp_path, "old"), place(new.split()[0], tmp_path, "new")
    filled(source, old.split()[1]).close()
    session = opened(source, second())
    migrated(session, SPLIT)
    session.ensure(session.types[0].cls(id="n", given="N", family="M"))
    session.commit()
    session.repository.drop_type("relation", "Visited")
    session.close()
    one, two = open_repository(source), open_repository(target, engine_version=new.split()[1])
    convert(one, two)
    assert set(two.dropped()) == {("relation", "Visited")}
    assert [version.schema_version_id for version in two.schema_versions("entity", "Person")] == [1, 2]
    one.close()
    two.close()
    types = second()
    with opened(source, types) as before, opened(target, types) as after:
        for at in (3, 4):
            assert after.query().entities(types[0]).as_of(at).collect() == before.query().entities(
                types[0]).as_of(at).collect()
        assert after.query().entities(types[0]).collect() == before.query().entities(types[0]).collect()


def test_a_copy_that_was_interrupted_goes_on(memory: str) -> None:
    source = fresh_memory()
    shop(source, "v2")
    old = open_repository(source)
    store = open_store(memory)
    broken = FaultyStore(store, Fault(30, "fail", times=10_000))
    with pytest.raises(OntolakeError):
        convert(old, open_repository(memory, config={"connect": {"store": broken}}))
    new: Repository = open_repository(memory)
    had = new.head()
    assert 0 < had < old.head()
    assert convert(old, new).copied == old.head() - had
    assert states(memory) == states(source)
    old.close()
    new.close()


def test_nothing_is_copied_over_something_else(memory: str) -> None:
    source = fresh_memory()
    shop(source, "v2")
    with Session(memory, entity_types=ENTITIES) as session:
        session.ensure(Customer(id="x", name="not that"))
    old, new = open_repository(source), open_repository(memory)
    with pytest.raises(StorageBackendError, match="commit 1"):
        convert(old, new)
    assert new.head() == 1
    old.close()
    new.close()


@pytest.mark.slow
def test_commands_look_after_a_store(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def onto(*arguments: str, code: int = 0) -> Any:
        capfd.readouterr()
        assert main([*arguments, "--json"]) == code
        out, err = capfd.readouterr()
        return json.loads(out or err)

    source, target = str(tmp_path / "shop.db"), (tmp_path / "lake").as_uri()
    shop(source, "v2")
    assert onto("convert", source, target)["engine"] == "s3/v3"
    store = open_store(target)
    store.delete(["meta/type_layout_catalog.json"])
    assert {one["state"] for one in onto("index", "verify", target, code=5)["objects"]} >= {"missing"}
    onto("index", "repair", target)
    assert {one["state"] for one in onto("index", "verify", target)["objects"]} == {"ok"}
    preview = onto("compact", target)
    assert {one["type_name"] for one in preview["types"]} == {"Customer", "Order", "Placed", "Rated"}
    onto("compact", target, "--token", "wrong", code=7)
    assert onto("compact", target, "--token", preview["token"])["done"]
    assert onto("compact", target)["types"] == []
    assert onto("verify", target)["ok"]
    assert onto("gc", target)["would_remove"]["items"] == 0, "readers may still look at it"
    assert states(target) == states(source)
