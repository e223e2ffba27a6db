"""Stores that were made by earlier versions open, read in full as they always did, and can be written to."""

from __future__ import annotations

import pprint
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from ontolake.ontology import Session, StorageBackendError, TypeDroppedError, left, open_repository, right
from ontolake.ontology.moving.conversion import convert

from .golden.types import Everything, Gone, Links, Numbered, Rates, join, people, split, things

HERE = Path(__file__).parent / "golden"
FULL = ["v1", "v1_unstamped", "v2", "v3", "v3_from_v1", "v3_from_v1_unstamped", "v3_from_v2"]
MIGRATED = ["v1_migrated", "v2_migrated", "v3_migrated", "v3_from_v1_migrated", "v3_from_v2_migrated"]
TYPES: list[Any] = [Everything, Numbered, Links, Rates]


@pytest.fixture
def golden(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A copy, since even opening may leave something behind; or what converting an older one to v3 gives."""
    _, converted, older = request.param.rpartition("_from_")
    if not converted:
        shutil.copy(HERE / f"{request.param}.db", tmp_path)
        return str(tmp_path / f"{request.param}.db")
    shutil.copy(HERE / f"{older}.db", tmp_path)
    found = str(tmp_path / f"{request.param}.db")
    source, target = open_repository(str(tmp_path / f"{older}.db")), open_repository(found, engine_version="v3")
    convert(source, target)
    source.close()
    target.close()
    return found


def opened(url: str, **options: Any) -> Session:
    return Session(url, entity_types=[Everything, Numbered], relation_types=[Links, Rates], **options)


def asked(session: Session, cls: Any) -> Any:
    start: Any = session.query()
    return start.relations(cls) if cls in (Links, Rates) else start.entities(cls)


def shown(obj: Any) -> str:
    """An object as text, in which what is not a number equals itself and keys have no order."""
    return pprint.pformat(obj if isinstance(obj, dict) else obj.model_dump(), sort_dicts=True)


def states(cls: Any, until: int = 3) -> list[tuple[int, str]]:
    return [(number, shown(obj)) for number, objects in enumerate(things()[:until], 1) for obj in objects
            if type(obj) is cls]  # fmt: skip


def latest(cls: Any, until: int = 3) -> list[str]:
    found: dict[Any, str] = {}
    for objects in things()[:until]:
        for obj in objects:
            if type(obj) is cls:
                key = obj.id if hasattr(obj, "id") else (obj.left_key, obj.right_key, getattr(obj, "year", ""))
                found[key] = shown(obj)
    return sorted(found.values())


@pytest.mark.parametrize("golden", FULL, indirect=True)
def test_everything_is_read_as_it_was_written(golden: str) -> None:
    session = opened(golden)
    session.validate()
    assert session.storage_info()["engine_version"] == Path(golden).stem[:2]
    for cls in TYPES:
        query = asked(session, cls)
        assert sorted(map(shown, query.collect())) == latest(cls)
        for at in range(4):
            assert sorted(map(shown, query.as_of(at).collect())) == latest(cls, at)
            assert query.as_of(at).count() == len(latest(cls, at))
        history = [(row.meta().commit_id, shown(row)) for row in query.with_history().collect()]
        assert sorted(history) == sorted(states(cls))
        assert query.history_since(1).count() == sum(number > 1 for number, _ in states(cls))
        assert query.to_arrow().num_rows == len(latest(cls))
    for objects in things():
        for obj in objects:
            assert asked(session, type(obj)).count() > 0
    session.close()


@pytest.mark.parametrize("golden", FULL, indirect=True)
def test_commits_and_what_they_changed_are_there(golden: str) -> None:
    session = opened(golden)
    commits = session.list_commits()
    assert [(commit.id, commit.author) for commit in commits] == [(3, "golden"), (2, "golden"), (1, "golden")]
    assert all(commit.time is not None for commit in commits)
    for number, objects in enumerate(things(), 1):
        changes = session.list_commit_changes(number)
        assert sorted(shown(change.after) for change in changes) == sorted(shown(obj.model_dump()) for obj in objects)
    session.close()


@pytest.mark.parametrize("golden", FULL, indirect=True)
def test_fields_of_every_type_are_found(golden: str) -> None:
    session = opened(golden)
    query: Any = session.query().entities(Everything)
    for obj in (things()[1][0], things()[0][1]):
        for name in Everything.model_fields:
            value, field = getattr(obj, name), getattr(Everything, name)
            if value is None:
                condition = field.is_null()
            elif isinstance(value, bool):
                condition = field.is_true() if value else field.is_false()
            else:
                condition = field == value
            assert obj.id in [found.id for found in query.where(condition).collect()], name
    assert query.where(Everything.id == "a").via(Links).where(Numbered.id == -5).count() == 1
    links = session.query().relations(Links)
    assert links.where((left(Links).word == "a") & (right(Links).id == -5)).sum(Links.weight) == 2.5
    session.close()


@pytest.mark.parametrize("golden", FULL, indirect=True)
def test_they_are_written_to_as_if_made_today(golden: str) -> None:
    session = opened(golden)
    for objects in things():
        session.ensure(objects)
    assert session.commit() is None, "nothing differs from what is there"
    session.ensure(Everything(**{**things()[1][0].model_dump(), "number": 5}))
    session.ensure(Numbered(id=number) for number in range(20))
    assert session.commit() == 4
    assert session.query().entities(Everything).where(Everything.number == 5).count() == 1
    assert session.query().entities(Numbered).count() == 21
    session.close()


@pytest.mark.parametrize("golden", MIGRATED, indirect=True)
def test_a_store_that_was_migrated_twice_reads_and_goes_on(golden: str) -> None:
    person, knows = people(3)
    session = Session(golden, entity_types=[person, Gone], relation_types=[knows])
    session.validate()
    query: Any = session.query().entities(person)
    found = {one.id: one.names for one in query.collect()}
    assert found == {"p1": ["Ada", "Lovelace"], "p2": ["Alan"], "p3": ["Grace", "Hopper"]}
    assert sorted(path.target.id for path in query.via(knows, direction="forward").collect()) == ["p1", "p2", "p3"]
    assert session.query().entities(Gone).collect() == []
    assert session.query().entities(Gone).with_history().count() == 0
    session.ensure(Gone(id="again"))
    with pytest.raises(TypeDroppedError):
        session.commit()
    session.discard()
    versions = session.repository.schema_versions("entity", "Person")
    assert [(one.schema_version_id, one.reason) for one in versions] == [(1, "initial"), (2, "migration"),
                                                                         (3, "migration")]  # fmt: skip
    kinds = [commit.metadata.get("kind") for commit in reversed(session.list_commits())]
    assert kinds == [None, "migration", None, "migration", None]
    rewritten = session.get_commit(4).metadata["migrated_types"]
    assert rewritten == [{"type_kind": "entity", "type_name": "Person", "from_schema_version_id": 2,
                          "to_schema_version_id": 3, "rows_rewritten": 2}]  # fmt: skip
    early = query.as_of(3)
    if session.storage_info()["engine_version"] != "v1":
        assert early.collect().diagnostics == {"reason": "commit_before_activation", "activation_commit_id": 4}
        assert query.with_history().count() == 3
        assert session.storage_info()["type_layouts"]["Person"]["historical_versions"] == [1, 2]
        db = apsw.Connection(golden)
        for table, rows in (("entity_Person_v1", 1), ("entity_Person_v2", 2), ("entity_Gone_v1", 1)):
            assert db.execute(f"SELECT count(*) FROM {table}").get == rows
        db.close()
    else:
        assert query.with_history().count() == 6
    session.ensure(person(id="p4", names=["Edsger"]))
    assert session.commit() == 6
    session.close()


@pytest.mark.parametrize("golden", MIGRATED, indirect=True)
def test_the_past_of_a_store_that_was_migrated_twice_is_read(golden: str) -> None:
    person, knows = people(3)
    rows = [
        {},
        {"p1": {"id": "p1", "name": "Ada Lovelace"}},
        {"p1": {"id": "p1", "given": "Ada", "family": "Lovelace"}},
        {"p1": {"id": "p1", "given": "Ada", "family": "Lovelace"}, "p2": {"id": "p2", "given": "Alan", "family": None}},
        {"p1": {"id": "p1", "names": ["Ada", "Lovelace"]}, "p2": {"id": "p2", "names": ["Alan"]}},
        {"p1": {"id": "p1", "names": ["Ada", "Lovelace"]}, "p2": {"id": "p2", "names": ["Alan"]},
         "p3": {"id": "p3", "names": ["Grace", "Hopper"]}},
    ]  # fmt: skip
    with Session(golden, entity_types=[person, Gone], relation_types=[knows]) as session:
        query: Any = session.query().entities(person)
        for at, expected in enumerate(rows):
            assert dict(session.snapshot(at).rows("entity/Person")) == expected
            stored = query.as_of(at, schema="stored")
            assert {one.id: one.model_dump() for one in stored.collect()} == expected
            assert stored.via(knows, direction="forward").count() == len(expected)
            lifted = query.as_of(at, schema="current", upgraders={("Person", 1): split, ("Person", 2): join})
            assert {one.id: one.names for one in lifted.collect()} == {key: rows[5][key]["names"] for key in expected}


@pytest.mark.parametrize("golden", ["v3_branched"], indirect=True)
def test_branches_of_a_store_are_there(golden: str, tmp_path: Path) -> None:
    session = Session(golden, entity_types=[Numbered])

    def ids(at: Any = None) -> list[int]:
        query = session.query().entities(Numbered)
        return sorted(one.id for one in (query if at is None else query.as_of(at)).collect())

    assert [(one.name, one.head, one.protected) for one in session.branches.list()] == [
        ("main", 5, False), ("side", 2, True)]  # fmt: skip
    assert (ids(), ids("first"), ids("side"), ids(3), ids(4)) == (
        [2, 3, 4, 6], [1, 2, 3], [2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 6])  # fmt: skip
    merged = session.list_commits(limit=1)[0]
    assert (merged.id, merged.parents, merged.message) == (5, (4, 2), "side comes in")
    assert session.tags.list()[0].message == "the first commit"
    assert not list(session.repository.check())
    session.ensure(Numbered(id=1))
    assert session.commit() == 6
    older = open_repository(str(tmp_path / "older.db"), engine_version="v2")
    with pytest.raises(StorageBackendError, match="branches, tags, deleted rows of Numbered"):
        convert(session.repository, older)
    assert older.head() == 0
    older.close()
    session.close()
