"""Migrations: previewed, all types or none, every row kept, and current-schema-only reads afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import date, datetime
from typing import Any

import apsw
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from marking import slow_after

from ontolake import faults
from ontolake.model import Entity, Field, Relation
from ontolake.model.types import type_info
from ontolake.ontology import (
    MigrationError,
    MigrationPreview,
    MigrationResult,
    MigrationTokenError,
    MissingUpgraderError,
    SchemaOutdatedError,
    SchemaValidationError,
    Session,
    upgrader,
)
from ontolake.ontology.migration.upgraders import Upgrader


def first() -> tuple[Any, Any, Any]:
    class Person(Entity):
        id: Field[str] = Field(primary_key=True)
        name: Field[str]
        age: Field[int] = Field(default=0)

    class Place(Entity):
        id: Field[str] = Field(primary_key=True)

    class Visited(Relation[Person, Place]):
        at: Field[datetime]

    return Person, Place, Visited


def second() -> tuple[Any, Any, Any]:
    class Person(Entity):
        id: Field[str] = Field(primary_key=True)
        given: Field[str]
        family: Field[str]
        age: Field[int] = Field(default=0)

    class Place(Entity):
        id: Field[str] = Field(primary_key=True)
        country: Field[str | None] = Field(default=None)

    class Visited(Relation[Person, Place]):
        at: Field[datetime]
        days: Field[int] = Field(default=1)

    return Person, Place, Visited


def third() -> tuple[Any, Any, Any]:
    class Person(Entity):
        id: Field[str] = Field(primary_key=True)
        given: Field[str]
        family: Field[str]
        age: Field[str]

    _, Place, Visited = second()
    return Person, Place, Visited


def opened(url: str, types: tuple[Any, Any, Any], engine: str | None = None) -> Session:
    person, place, visited = types
    return Session(url, entity_types=[person, place], relation_types=[visited], engine_version=engine)


def split(row: dict[str, Any]) -> dict[str, Any]:
    given, _, family = row.pop("name").partition(" ")
    return {**row, "given": given, "family": family}


SPLIT = {("Person", 1): split}


def filled(url: str, engine: str) -> Session:
    person, place, visited = first()
    session = opened(url, (person, place, visited), engine)
    session.ensure([person(id="a", name="Ada Lovelace", age=36), person(id="b", name="Alan Turing")])
    session.ensure([place(id="p"), visited(left_key="a", right_key="p", at=datetime(2024, 1, 1))])
    session.commit()
    session.ensure(person(id="b", name="Alan Mathison Turing", age=41))
    session.commit()
    return session


def migrated(session: Session, upgraders: Any) -> MigrationResult:
    preview = session.migrate(upgraders=upgraders)
    assert isinstance(preview, MigrationPreview)
    result = session.migrate(dry_run=False, token=preview.token, upgraders=upgraders)
    assert isinstance(result, MigrationResult)
    return result


def test_a_migration_keeps_every_row_and_says_what_it_did(url: str, engine: str) -> None:
    keeper = filled(url, engine)
    types = second()
    session = opened(url, types)
    with pytest.raises(SchemaOutdatedError):
        session.validate()
    preview = session.migrate(upgraders=SPLIT)
    assert isinstance(preview, MigrationPreview)
    assert [(one.type_name, one.from_schema_version_id, one.to_schema_version_id, one.rows) for one in preview.types
            ] == [("Person", 1, 2, 2), ("Place", 1, 2, 1), ("Visited", 1, 2, 1)]  # fmt: skip
    assert session.repository.head() == 2, "a preview changes nothing"
    result = session.migrate(dry_run=False, token=preview.token, upgraders=SPLIT)
    assert isinstance(result, MigrationResult)
    assert result.commit_id == 3
    session.validate()
    people = session.query().entities(types[0]).order_by(types[0].id).collect()
    assert [(one.given, one.family, one.age) for one in people] == [
        ("Ada", "Lovelace", 36), ("Alan", "Mathison Turing", 41),
    ]  # fmt: skip
    assert session.query().entities(types[0]).via(types[2]).collect()[0].relations[0].days == 1
    metadata = session.get_commit(3).metadata
    assert metadata["kind"] == "migration"
    assert metadata["migrated_types"][0] == {
        "type_kind": "entity", "type_name": "Person", "from_schema_version_id": 1, "to_schema_version_id": 2,
        "rows_rewritten": 2,
    }  # fmt: skip
    assert migrated(session, SPLIT) == MigrationResult(None, ())
    session.ensure(types[0](id="c", given="Grace", family="Hopper"))
    assert session.commit() == 4
    session.close()
    keeper.close()


def test_a_type_can_be_migrated_again_and_again(native: str, engine: str) -> None:
    filled(native, engine).close()
    session = opened(native, second())
    migrated(session, SPLIT)
    session.close()
    types = third()
    session = opened(native, types)
    result = migrated(session, {("Person", 2): lambda row: {**row, "age": str(row["age"])}})
    assert [(one.type_name, one.to_schema_version_id) for one in result.types] == [("Person", 3)]
    assert {one.age for one in session.query().entities(types[0]).collect()} == {"36", "41"}
    session.close()


def test_upgraders_are_chained_over_versions_that_a_store_has_missed(native: str, engine: str) -> None:
    filled(native, engine).close()
    types = third()
    session = opened(native, types)
    result = migrated(session, {**SPLIT, ("Person", 2): lambda row: {**row, "age": str(row["age"])}})
    assert [(one.type_name, one.to_schema_version_id) for one in result.types] == [
        ("Person", 3), ("Place", 2), ("Visited", 2)]  # fmt: skip
    assert {one.age for one in session.query().entities(types[0]).collect()} == {"36", "41"}
    session.close()


def test_declared_upgraders_are_found_and_arrow_ones_take_whole_tables(native: str, engine: str) -> None:
    filled(native, engine).close()
    types = second()

    @upgrader(types[0], from_version=1, arrow=True)
    def names(table: pa.Table) -> pa.Table:
        parts = pc.split_pattern(table["name"], " ", max_splits=1)
        table = table.append_column("given", pc.list_element(parts, 0))
        return table.append_column("family", pc.list_element(parts, 1)).drop_columns(["name"])

    session = opened(native, types)
    result = migrated(session, [names])
    assert result.commit_id == 3
    people = session.query().entities(types[0]).order_by(types[0].id).collect()
    assert [(one.given, one.family) for one in people] == [("Ada", "Lovelace"), ("Alan", "Mathison Turing")]
    session.close()


def dump(path: str) -> list[Any]:
    with apsw.Connection(path) as db:
        tables = db.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()
        return [*tables, *(row for kind, name, _ in tables if kind == "table"
                           for row in db.execute(f'SELECT * FROM "{name}"').fetchall())]  # fmt: skip


def wrong_arrow(change: Callable[[pa.Table], pa.Table]) -> Any:
    return [upgrader("Person", from_version=1, arrow=True)(change)]


def _raising(row: Any) -> Any:
    if row["id"] == "b":
        raise RuntimeError("no")
    return split(row)


WRONG: list[tuple[Any, str]] = [
    ({("Person", 1): _raising}, "Person 'b': RuntimeError: no"),
    ({("Person", 1): lambda row: None}, "not a dict"),
    ({("Person", 1): lambda row: {**split(row), "id": "same"}}, "changed the key 'a'"),
    ({("Person", 1): lambda row: {"id": row["id"]}}, "given"),
    ({("Person", 1): lambda row: {**split(row), "age": "old"}}, "age"),
    (wrong_arrow(lambda table: table.slice(0, 1)), "does not fit"),
    (wrong_arrow(lambda table: pa.table({"id": ["a"], "given": ["A"], "family": ["L"]})), "2 rows went in, 1 came out"),
]


@pytest.mark.parametrize(("upgraders", "message"), WRONG, ids=range(len(WRONG)))
def test_a_failed_upgrader_leaves_the_store_exactly_as_it_was(
    native: str, engine: str, upgraders: Any, message: str
) -> None:  # fmt: skip
    filled(native, engine).close()
    before = dump(native)
    session = opened(native, second())
    with pytest.raises(MigrationError, match=message):
        session.migrate(dry_run=False, force=True, upgraders=upgraders)
    session.close()
    assert dump(native) == before


def test_a_migration_that_fails_after_some_types_leaves_the_store_as_it_was(native: str, engine: str) -> None:
    filled(native, engine).close()
    before = dump(native)
    session = opened(native, second())

    def fail(step: str) -> None:
        if step == "ontology: Place rewritten":
            raise RuntimeError("no")

    with faults.arm(fail), pytest.raises(RuntimeError):
        session.migrate(dry_run=False, force=True, upgraders=SPLIT)
    assert dump(native) == before
    assert session.migrate(dry_run=False, force=True, upgraders=SPLIT).types
    session.close()


def test_a_token_is_needed_and_must_be_that_of_the_preview(native: str, engine: str) -> None:
    old = filled(native, engine)
    session = opened(native, second())
    preview = session.migrate(upgraders=SPLIT)
    assert isinstance(preview, MigrationPreview)
    for token in (None, "", "x" * 32):
        with pytest.raises(MigrationTokenError):
            session.migrate(dry_run=False, token=token, upgraders=SPLIT)
    person = old.types[0].cls
    old.ensure(person(id="z", name="Zoe Z"))
    old.commit()
    with pytest.raises(MigrationTokenError):
        session.migrate(dry_run=False, token=preview.token, upgraders=SPLIT)
    assert migrated(session, SPLIT).commit_id == 4
    old.close()
    session.close()


def test_missing_upgraders_are_named(native: str, engine: str) -> None:
    filled(native, engine).close()
    session = opened(native, second())
    preview = session.migrate(upgraders={})
    assert isinstance(preview, MigrationPreview)
    assert preview.missing == (("Person", 1),)
    with pytest.raises(MissingUpgraderError) as caught:
        session.migrate(dry_run=False, token=preview.token, upgraders={})
    assert caught.value.missing == (("Person", 1),)
    session.close()


def test_types_without_rows_are_migrated_too(native: str, engine: str) -> None:
    opened(native, first(), engine).close()
    old = opened(native, first())
    old.ensure(old.types[1].cls(id="p"))
    old.commit()
    old.close()
    types = second()
    session = opened(native, types)
    assert [one.type_name for one in migrated(session, SPLIT).types] == ["Place"]
    session.ensure(types[0](id="c", given="Grace", family="Hopper"))
    assert session.commit() == 3
    session.close()


def test_v2_reads_see_only_the_current_version(native: str) -> None:
    filled(native, "v2").close()
    types = second()
    session = opened(native, types)
    migrated(session, SPLIT)
    people = session.query().entities(types[0])
    early = people.as_of(2).collect()
    assert early == []
    assert early.diagnostics == {"reason": "commit_before_activation", "activation_commit_id": 3}
    assert people.as_of(3).collect().diagnostics == {}
    assert people.as_of(2).count() == 0
    assert {one.meta().commit_id for one in people.with_history().collect()} == {3}
    assert people.history_since(0).count() == 2
    assert session.list_commit_changes(2) == []
    layout = session.storage_info()["type_layouts"]["Person"]
    assert layout == {"type_kind": "entity", "current_schema_version_id": 2, "activation_commit_id": 3,
                      "historical_versions": [1]}
    with apsw.Connection(native) as db:
        assert db.execute("SELECT count(*) FROM entity_Person_v1").fetchone() == (3,)
        assert db.execute("SELECT count(*) FROM entity_Person_v2").fetchone() == (2,)
    session.close()


def test_v1_reads_see_all_versions(native: str) -> None:
    person, place, visited = first()
    old = opened(native, (person, place, visited), "v1")
    old.ensure(place(id="p"))
    old.commit()
    old.close()
    types = second()
    session = opened(native, types)
    migrated(session, SPLIT)
    assert session.query().entities(types[1]).as_of(1).count() == 1
    assert session.query().entities(types[1]).with_history().count() == 2
    session.close()


def test_a_session_of_the_old_types_is_told_after_a_migration(native: str, engine: str) -> None:
    old = filled(native, engine)
    person = old.types[0].cls
    assert old.query().entities(person).count() == 2
    session = opened(native, second())
    migrated(session, SPLIT)
    session.close()
    with pytest.raises(SchemaOutdatedError):
        old.query().entities(person).count()
    old.ensure(person(id="z", name="Z"))
    with pytest.raises(SchemaOutdatedError):
        old.commit()
    old.close()


@pytest.mark.parametrize("version", [None, 0, 2, 99])
def test_v2_rows_go_to_the_current_version_or_nowhere(native: str, version: int | None) -> None:
    session = filled(native, "v2")
    repository: Any = session.repository
    repository.begin_transaction()
    commit = repository.create_commit({})
    with pytest.raises(SchemaValidationError, match="schema_version_id"):
        repository.insert_entity("Person", "x", {"name": "X", "age": 1}, commit, schema_version_id=version)
    repository.insert_entity("Person", "a", {"name": "X", "age": 1}, commit, schema_version_id=1)
    repository.insert_relation("Visited", "a", "p", {"at": datetime(2024, 2, 2)}, commit, schema_version_id=1)
    repository.commit_transaction()
    person = session.types[0].cls
    found = session.query().entities(person).where(person.id == "a").collect()
    assert [(one.name, one.meta().commit_id) for one in found] == [("X", 3)]
    assert session.query().entities(person).count() == 2
    session.close()


def test_v1_never_shows_a_value_of_an_older_schema_as_one_of_the_new(native: str) -> None:
    filled(native, "v1").close()
    session = opened(native, second())
    migrated(session, SPLIT)
    session.close()
    person = third()[0]
    session = opened(native, third())
    migrated(session, {("Person", 2): lambda row: {**row, "age": str(row["age"])}})
    session.close()
    session = Session(native, entity_types=[person])
    query = session.query().entities(person)
    assert {one.age for one in query.collect()} == {"36", "41"}
    assert {one.age for one in query.as_of(4).collect()} == {"36", "41"}
    for past in (query.with_history(), query.as_of(3)):
        with pytest.raises(SchemaValidationError, match="another schema"):
            past.collect()
    with pytest.raises(SchemaValidationError, match="Person"):
        query.as_of(1).collect()
    session.close()


@pytest.mark.parametrize("given", [{"Person": split}, {("Person", 1): 5}, [split], {("Person",): split}])
def test_what_is_no_upgrader_is_refused(native: str, given: Any) -> None:
    filled(native, "v2").close()
    session = opened(native, second())
    with pytest.raises(MigrationError, match="upgrade"):
        session.migrate(upgraders=given)
    session.close()


def test_groups_say_too_that_a_moment_lies_before_activation(native: str) -> None:
    filled(native, "v2").close()
    types = second()
    session = opened(native, types)
    migrated(session, SPLIT)
    groups = session.query().entities(types[0]).as_of(1).group_by(types[0].family).agg()
    assert groups == []
    assert groups.diagnostics == {"reason": "commit_before_activation", "activation_commit_id": 3}
    paths = session.query().entities(types[0]).as_of(2).via(types[2]).collect()
    assert paths.diagnostics["activation_commit_id"] == 3
    session.close()


def test_types_whose_names_differ_by_case_only_are_kept_apart(native: str, engine: str) -> None:
    class Thing(Entity):
        id: Field[str] = Field(primary_key=True)
        a: Field[int]

    class THING(Entity):
        id: Field[str] = Field(primary_key=True)
        b: Field[str]

    session = Session(native, entity_types=[Thing, THING], engine_version=engine)
    for start in (0, 20):
        session.ensure(Thing(id=f"t{n + start}", a=n) for n in range(20))
        session.ensure(THING(id=f"t{n + start}", b=str(n)) for n in range(20))
        session.commit()
    assert session.query().entities(Thing).sum(Thing.a) == 380
    assert session.query().entities(THING).where(THING.b == "7").count() == 2
    session.close()


def test_a_type_without_rows_needs_no_upgrader_and_none_is_called(url: str, engine: str) -> None:
    def never(row: Any) -> Any:
        raise AssertionError("there are no rows")

    class Empty(Entity):
        id: Field[str] = Field(primary_key=True)
        a: Field[int]

    session = Session(url, entity_types=[Empty], engine_version=engine)
    with session.repository.transaction("test") as transaction:
        transaction.reconcile(type_info(Empty), [])
        transaction.finish({})
    session.close()

    class Changed(Entity):
        id: Field[str] = Field(primary_key=True)
        b: Field[str]

    Changed.__name__ = "Empty"
    for upgraders in (None, {("Empty", 1): never}):
        session = Session(url, entity_types=[Changed])
        preview: Any = session.migrate(upgraders=upgraders)
        assert (preview.missing, [one.rows for one in preview.types]) == ((), [0])
    result: Any = session.migrate(dry_run=False, token=preview.token, upgraders={("Empty", 1): never})
    assert [(one.to_schema_version_id, one.rows) for one in result.types] == [(2, 0)]
    session.ensure(Changed(id="x", b="y"))
    assert session.commit() == result.commit_id + 1
    assert [(one.id, one.b) for one in session.query().entities(Changed).collect()] == [("x", "y")]
    assert session.repository.schemas()["entity", "Empty"].schema_version_id == 2
    session.close()


def _keyed(person: Any, town: Any, extra: bool = False) -> tuple[Any, Any, Any, Any]:
    """People and towns with keys of these types, and relations between them: to others, to themselves, keyed."""
    class Person(Entity):
        id: Field[person] = Field(primary_key=True)  # type: ignore[valid-type]
        age: Field[int]

    class Town(Entity):
        id: Field[town] = Field(primary_key=True)  # type: ignore[valid-type]

    class Visits(Relation[Person, Town]):
        when: Field[str] = Field(instance_key=True)
        days: Field[int]
        if extra:
            well: Field[bool] = Field(default=True)

    class Knows(Relation[Person, Person]):
        since: Field[int] = Field(default=0)

    return Person, Town, Visits, Knows


def _session_of(url: str, types: tuple[Any, Any, Any, Any], engine: str | None = None) -> Session:
    return Session(url, entity_types=types[:2], relation_types=types[2:], engine_version=engine)


_PEOPLE = [3, 20, 100]
_UUIDS = [uuid.UUID(int=n) for n in (7, 300)]
_DAYS = [date(2024, 1, 1), date(2023, 12, 31)]
KEYS: list[tuple[Any, Any, Any, Any, list[Any], list[Any]]] = [
    (int, str, str, uuid.UUID, _PEOPLE, [str(one) for one in _UUIDS]),
    (str, int, str, str, ["3", "20", "100"], ["b", "a"]),
    (uuid.UUID, str, date, str, [*_UUIDS, uuid.UUID(int=1)], _DAYS),
]  # fmt: skip


@pytest.mark.parametrize("how", ["rows", "tables", "tables that see to the ends"])
@pytest.mark.parametrize(("old", "new", "old_town", "new_town", "people", "towns"), slow_after(1, KEYS))
def test_the_keys_of_entities_that_have_relations_get_another_type(
    native: str, engine: str, how: str, old: Any, new: Any, old_town: Any, new_town: Any, people: list[Any],
    towns: list[Any],
) -> None:  # fmt: skip
    person, town, visits, knows = _keyed(old, old_town)
    with _session_of(native, (person, town, visits, knows), engine) as session:
        session.ensure([person(id=key, age=n) for n, key in enumerate(people)] + [town(id=key) for key in towns])
        session.ensure(visits(left_key=key, right_key=towns[n % 2], when=w, days=n) for n, key in enumerate(people)
                       for w in ("may", "june"))
        session.ensure(knows(left_key=people[n - 1], right_key=key, since=n) for n, key in enumerate(people))
        session.commit()

    def person_key(value: Any) -> Any:
        return new(str(value))

    def town_key(value: Any) -> Any:
        return new_town(str(value))

    def column(table: pa.Table, name: str, make: Any, kind: Any) -> pa.Table:
        values = [make(one) for one in table.column(name).to_pylist()]
        at = table.column_names.index(name)
        return table.set_column(at, name, pa.array(values if kind is int else map(str, values),
                                                   pa.int64() if kind is int else pa.string()))

    if how == "rows":
        upgraders: Any = {("Person", 1): lambda row: {**row, "id": person_key(row["id"])},
                          ("Town", 1): lambda row: {**row, "id": town_key(row["id"])}}
    else:
        upgraders = [Upgrader(lambda table: column(table, "id", person_key, new), "Person", 1, True),
                     Upgrader(lambda table: column(table, "id", town_key, new_town), "Town", 1, True),
                     Upgrader(lambda table: table, "Knows", 1, True)]
    if how == "tables that see to the ends":
        upgraders[2] = Upgrader(lambda table: column(column(table, "left_key", person_key, new), "right_key",
                                                     person_key, new), "Knows", 1, True)
    types = person, town, visits, knows = _keyed(new, new_town, extra=True)
    session = _session_of(native, types)
    result = migrated(session, upgraders)
    rows = {one.type_name: one.rows for one in result.types}
    towns_rewritten = {"Town": 2} if old_town is not new_town else {}
    assert rows == {"Person": 3, "Visits": 6, "Knows": 3} | towns_rewritten
    assert {one.id: one.age for one in session.query().entities(person).collect()} == {
        person_key(key): n for n, key in enumerate(people)}
    assert {(one.left_key, one.right_key, one.when): (one.days, one.well)
            for one in session.query().relations(visits).collect()} == {
        (person_key(key), town_key(towns[n % 2]), w): (n, True) for n, key in enumerate(people)
        for w in ("may", "june")}  # fmt: skip
    one = person_key(people[1])
    assert len(session.query().entities(person).where(person.id == one).via(visits).collect()) == 2
    assert [path.entities[-1].id for path in session.query().entities(person).where(person.age == 1).via(
        knows, direction="forward").collect()] == [person_key(people[2])]
    session.ensure(person(id=person_key(key), age=n) for n, key in enumerate(people))
    session.ensure(knows(left_key=person_key(people[n - 1]), right_key=person_key(key), since=n)
                   for n, key in enumerate(people))
    assert session.commit() is None, "the same rows under the same keys"
    session.ensure(knows(left_key=one, right_key=one))
    assert session.commit() == 3
    assert not list(session.repository.check())
    session.close()


def test_a_key_that_cannot_be_of_another_type_leaves_all_as_it_was(native: str, engine: str) -> None:
    types = _keyed(str, str)
    person, knows = types[0], types[3]
    with _session_of(native, types, engine) as session:
        session.ensure([person(id="1", age=1), person(id="x", age=2), knows(left_key="1", right_key="1")])
        session.commit()
    later = _keyed(int, str)
    for number in (lambda text: int(text), lambda text: 5):
        upgraders: Any = {("Person", 1): lambda row, number=number: {**row, "id": number(row["id"])}}
        session = _session_of(native, later)
        with pytest.raises(MigrationError, match="Person"):
            session.migrate(dry_run=False, force=True, upgraders=upgraders)
        session.close()
    entities_only = Session(native, entity_types=later[:2])
    with pytest.raises(MigrationError, match="ends of Knows"):
        entities_only.migrate()
    entities_only.close()
    with _session_of(native, types) as session:
        session.validate()
        assert len(session.list_commits()) == 1
        assert session.query().entities(person).via(knows, direction="forward").collect()[0].entities[1].id == "1"
