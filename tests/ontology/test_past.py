"""The past by its own schemas, and lifted to those of today, against a plain record of what every commit wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake.model import Entity, Field, Relation
from ontolake.ontology import (
    MigrationError,
    MissingUpgraderError,
    QueryError,
    SchemaOutdatedError,
    Session,
    TypedStore,
    UnknownCommitError,
    count,
    open_repository,
    upgrader,
)
from ontolake.ontology.moving.conversion import convert
from ontolake.ontology.moving.exports import write_parquet

from .conftest import fresh_url
from .past import NAMES, UPGRADERS, Fields, Program, Types, run_past, split_names, table, told, types_of


@pytest.mark.parametrize("engine", ["v1", "v2"])
@pytest.mark.parametrize("seed", slow_after(1, range(5)))
def test_the_past_is_told_as_it_was_written(tmp_path: Path, engine: str, seed: int) -> None:
    assert run_past(fresh_url("native", tmp_path), engine, seed, 8 if seed == 0 else 25) == {"migrate"}


@pytest.fixture
def people(url: str, engine: str) -> Iterator[tuple[Session, Types]]:
    """A commit of version 1, and one that migrates people to version 3 with no upgrader declared."""
    old, new = types_of(), types_of(3, 2)
    with Session(url, entity_types=old[:2], relation_types=old[2:], engine_version=engine) as session:
        session.ensure([old[0](id="a", name="Ada L"), old[1](id=1), old[2](left_key="a", right_key=1, year="1")])
        session.commit()
        with Session(url, entity_types=new[:2], relation_types=new[2:]) as after:
            after.migrate(dry_run=False, force=True, upgraders={("Person", 1): lambda row: {**split_names(row)}})
            yield after, new


def test_the_default_keeps_its_diagnostics(people: tuple[Session, Types], engine: str) -> None:
    session, (person, _, _) = people
    if engine == "v2":
        found = session.query().entities(person).as_of(1).collect()
        assert (found, found.diagnostics) == ([], {"reason": "commit_before_activation", "activation_commit_id": 2})
    for schema in ("stored", "current"):
        query = session.query().entities(person).as_of(1, schema=schema, **(
            {"upgraders": UPGRADERS} if schema == "current" else {}))  # fmt: skip
        assert (len(query.collect()), query.collect().diagnostics) == (1, {})
        assert query.as_of(2).collect()[0].given == "Ada"
    (row,) = session.query().entities(person).as_of(1, schema="stored").collect()
    assert (row.name, row.meta().commit_id, row.meta().keys) == ("Ada L", 1, {"id": "a"})


def test_a_missing_upgrader_is_named(people: tuple[Session, Types]) -> None:
    session, (person, place, visited) = people
    query = session.query().entities(person).as_of(1, schema="current", upgraders={})
    for ask in (query.collect, query.count, query.to_arrow, query.via(visited).count):
        with pytest.raises(MissingUpgraderError, match="no upgrader for Person from version 1") as missing:
            ask()
        assert missing.value.missing == (("Person", 1),)
    assert session.query().entities(place).as_of(1, schema="current", upgraders={}).first().country is None
    assert session.query().entities(person).as_of(2, schema="current", upgraders={}).first().given == "Ada"


def test_an_upgrader_that_fails_is_named_with_the_row(people: tuple[Session, Types]) -> None:
    session, (person, _, _) = people
    for broken, wrong in ((lambda row: 1 / 0, "ZeroDivisionError"), (lambda row: row, "given"),
                          (lambda row: {**split_names(row), "id": "b"}, "changed the key")):  # fmt: skip
        with pytest.raises(MigrationError, match=wrong):
            session.query().entities(person).as_of(1, schema="current", upgraders={("Person", 1): broken}).collect()
    for given in ({"Person": split_names}, [split_names]):
        with pytest.raises(MigrationError):
            session.query().entities(person).as_of(1, schema="current", upgraders=given)  # type: ignore[arg-type]


def test_only_rows_of_the_keys_that_a_filter_names_are_lifted(url: str, engine: str) -> None:
    old, new = types_of(), types_of(2)
    with Session(url, entity_types=old[:2], engine_version=engine) as before, Session(
            url, entity_types=new[:2]) as session:  # fmt: skip
        before.ensure(old[0](id=f"p{n}", name=f"N{n} X") for n in range(20))
        before.commit()
        session.migrate(dry_run=False, force=True, upgraders=UPGRADERS)
        called: list[str] = []

        def noted(row: Fields) -> Fields:
            called.append(row["id"])
            return split_names(row)

        person, query = new[0], session.query().entities(new[0]).as_of(1, schema="current",
                                                                       upgraders={("Person", 1): noted})
        for condition, keys in ((person.id == "p7", ["p7"]), (person.id.in_(["p1", "p2", "x"]), ["p1", "p2"]),
                                ((person.id == "p3") & (person.given == "N4"), ["p3"]), (person.id.in_([]), [])):
            called.clear()
            found = [one.id for one in query.where(condition).collect()]
            assert (sorted(called), found) == (keys, keys if person.given.ref.name not in str(condition) else [])
        called.clear()
        assert query.where((person.id == "p3") | (person.given == "N4")).count() == 2
        assert len(called) == 20
        with pytest.raises(QueryError):
            query.where(person.id == 3).collect()


def test_declared_upgraders_lift_the_past(people: tuple[Session, Types], monkeypatch: pytest.MonkeyPatch) -> None:
    from ontolake.ontology.migration import upgraders

    session, (person, _, _) = people
    monkeypatch.setattr(upgraders, "_registered", {})
    upgrader(person, from_version=1)(split_names)
    found = session.query().entities(person).as_of(1, schema="current").where(person.family == "L").collect()
    assert [told(one) for one in found] == [{"id": "a", "given": "Ada", "family": "L", "nick": "nobody", "age": 0}]


def test_the_past_is_asked_for_in_words_that_mean_something(people: tuple[Session, Types]) -> None:
    session, (person, _, _visited) = people
    query: Any = session.query().entities(person)
    for wrong in (lambda: query.as_of(1, schema="old"), lambda: query.as_of(1, schema=1),
                  lambda: query.as_of(1, upgraders={}), lambda: query.as_of(1, schema="stored", upgraders={}),
                  lambda: query.as_of(None, schema="stored"), lambda: query.as_of(-1, schema="current"),
                  lambda: query.as_of(1, schema="stored").where(person.given == "Ada").collect(),
                  lambda: query.as_of(1, schema="stored").sum(person.nick),
                  lambda: query.as_of(1, schema="stored").group_by(person.id).agg(n=count(person.nick)),
                  lambda: query.as_of(1, schema="stored").where(person.age == "x").collect()):  # fmt: skip
        with pytest.raises(QueryError):
            wrong()
    for schema in ("stored", "current"):
        with pytest.raises(UnknownCommitError, match="there is no commit 3: the newest is 2"):
            query.as_of(3, schema=schema).collect()
    assert query.as_of(0, schema="stored").collect() == query.as_of(0, schema="current", upgraders={}).collect() == []


def test_classes_of_the_past_reach_fields_that_are_no_more(people: tuple[Session, Types]) -> None:
    session, (_person, _place, _) = people
    then, there, over = (info.cls for info in session.types_at(1))
    query: Any = session.query().entities(then).as_of(1, schema="stored")
    assert [one.id for one in query.where(then.name.startswith("Ada")).collect()] == ["a"]
    assert type(query.first()) is then
    assert query.via(over).where(there.id == 1).count() == 1
    assert [info.cls for info in session.types_at(2)] == [session.types[n].cls for n in range(3)]
    for wrong in (lambda: session.query().entities(then).collect(), lambda: query.as_of(1).collect(),
                  lambda: query.as_of(1, schema="current").collect()):  # fmt: skip
        with pytest.raises(QueryError, match="Person is a class of the past"):
            wrong()
    assert session.query().entities(then).as_of(2, schema="stored").first().given == "Ada"  # type: ignore[union-attr]


def test_fields_that_come_and_go_without_an_upgrader(tmp_path: Path, engine: str) -> None:
    """Dropped fields, and added ones with a default or that may be None, in each of several migrations in a row."""
    def declare(**fields: tuple[Any, Any]) -> Any:
        body: dict[str, Any] = {"__module__": __name__, "__annotations__": {"id": Field[str]},
                                "id": Field(primary_key=True)}  # fmt: skip
        for name, (annotation, declared) in fields.items():
            body["__annotations__"][name] = Field[annotation]
            if declared is not None:
                body[name] = declared
        return type(Entity)("Thing", (Entity,), body)

    a, b, c = (int, None), (str | None, Field(default="x")), (int, Field(default=5))
    versions = [declare(a=a), declare(a=a, b=b), declare(a=a, b=b, c=c), declare(a=a, c=c), declare(c=c)]
    url = str(tmp_path / "store.db")
    for number, cls in enumerate(versions):
        with Session(url, entity_types=[cls], engine_version=engine) as session:
            if number:
                kept = set(cls.model_fields)
                dropping = {("Thing", number): lambda row, kept=kept: {name: row[name] for name in kept}}
                session.migrate(dry_run=False, force=True, upgraders=dropping if number > 2 else {})
            session.ensure(cls(id=str(number), **({} if number == 4 else {"a": number})))
    with Session(url, entity_types=[versions[-1]]) as session:
        query: Any = session.query().entities(versions[-1])
        for number in range(5):
            at = 2 * number + 1
            expected = {str(n): {"id": str(n), "c": 5} for n in range(number + 1)}
            found = query.as_of(at, schema="current", upgraders={}).collect()
            assert {one.id: one.model_dump() for one in found} == expected
            stored = query.as_of(at, schema="stored").where(versions[-1].id == str(number)).first()
            assert set(stored.model_dump()) == set(versions[number].model_fields)


def test_a_rename_is_not_taken_for_a_field_that_went(tmp_path: Path, engine: str) -> None:
    class Thing(Entity):
        id: Field[str] = Field(primary_key=True)
        old: Field[str | None] = Field(default=None)

    before = Thing

    class Thing(Entity):  # type: ignore[no-redef]
        id: Field[str] = Field(primary_key=True)
        new: Field[str | None] = Field(default=None)

    rename = {("Thing", 1): lambda row: {"id": row["id"], "new": row["old"]}}
    with Session(str(tmp_path / "a.db"), entity_types=[before], engine_version=engine) as session:
        session.ensure(before(id="a", old="x"))
    with Session(str(tmp_path / "a.db"), entity_types=[Thing]) as session:
        session.migrate(dry_run=False, force=True, upgraders=rename)
        query: Any = session.query().entities(Thing)
        with pytest.raises(MissingUpgraderError):
            query.as_of(1, schema="current", upgraders={}).collect()
        assert query.as_of(1, schema="current", upgraders=rename).first().new == "x"
        assert query.as_of(1, schema="stored").first().old == "x"


def test_parquet_files_have_the_schema_of_their_time(people: tuple[Session, Types], tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    session, _ = people
    assert write_parquet(session.repository, session.types, tmp_path / "then", as_of=1) == 3
    assert write_parquet(session.repository, session.types, tmp_path / "now") == 3
    names = [pq.read_table(tmp_path / when / "entity/Person.parquet").column_names for when in ("then", "now")]
    assert [sorted(one) for one in names] == [["age", "commit_id", "id", "name"],
                                              ["age", "commit_id", "family", "given", "id", "nick"]]  # fmt: skip
    schemas = json.loads((tmp_path / "then/schemas.json").read_text())["schemas"]
    assert [set(one["fields"]) for one in schemas if one["name"] == "Person"] == [{"age", "id", "name"}]


@pytest.mark.parametrize("place", ["sqlite", "memory"])
def test_keys_of_another_type_are_those_of_the_same_rows(tmp_path: Path, engine: str, place: str) -> None:
    def declare(key: Any) -> tuple[Any, Any]:
        class Box(Entity):
            id: Field[key] = Field(primary_key=True)
            size: Field[int] = Field(default=0)

        class Holds(Relation[Box, Box]):
            n: Field[int] = Field(default=1)

        return Box, Holds

    url = str(tmp_path / "a.db") if place == "sqlite" else f"memory://past-keys-{engine}-{tmp_path.name}"
    (old, over), (box, holds) = declare(int), declare(str)
    texts = {("Box", 1): lambda row: {**row, "id": str(row["id"])}}
    with Session(url, entity_types=[old], relation_types=[over], engine_version=engine) as before, Session(
            url, entity_types=[box], relation_types=[holds]) as session:  # fmt: skip
        before.ensure([old(id=2), old(id=10), over(left_key=2, right_key=10)])
        before.commit()
        session.migrate(dry_run=False, force=True, upgraders=texts)
        session.ensure([box(id="10", size=3), box(id="x")])
        session.commit()
        query: Any = session.query()
        lifted = query.entities(box).as_of(1, schema="current", upgraders=texts)
        assert sorted(one.id for one in lifted.collect()) == ["10", "2"]
        assert [(one.source.id, one.target.id) for one in lifted.where(box.id == "2").via(holds).collect()] == [
            ("2", "10")]  # fmt: skip
        (link,) = query.relations(holds).as_of(1, schema="current", upgraders=texts).collect()
        assert (link.left_key, link.right_key, type(link)) == ("2", "10", holds)
        stored = query.entities(box).as_of(1, schema="stored")
        assert sorted(one.id for one in stored.collect()) == [2, 10]
        assert stored.via(holds).count() == 1
        changes = list(session.diff(session.snapshot(1), session.snapshot()))
        assert {(one.table, one.key): (one.before, one.after) for one in changes} == {
            ("entity/Box", "2"): ({"id": 2, "size": 0}, {"id": "2", "size": 0}),
            ("entity/Box", "10"): ({"id": 10, "size": 0}, {"id": "10", "size": 3}),
            ("entity/Box", "x"): (None, {"id": "x", "size": 0}),
            ("relation/Holds", ("2", "10")): ({"left_key": 2, "right_key": 10, "n": 1},
                                              {"left_key": "2", "right_key": "10", "n": 1})}  # fmt: skip


def test_code_of_before_a_migration_reads_what_is_stored(people: tuple[Session, Types], url: str) -> None:
    old = types_of()
    with Session(url, entity_types=old[:2], relation_types=old[2:]) as session:
        query: Any = session.query().entities(old[0])
        assert query.as_of(1, schema="stored").collect() == [old[0](id="a", name="Ada L")]
        assert query.as_of(2, schema="stored").first().given == "Ada"
        for ask in (query.as_of(1, schema="current").collect, query.as_of(2, schema="current").collect,
                    query.as_of(2).collect):  # fmt: skip
            with pytest.raises(SchemaOutdatedError):
                ask()


WAYS = [("sqlite v1", "memory v2"), ("memory v1", "sqlite v2"), ("sqlite v2", "memory v1"), ("memory v2", "sqlite v1")]


@pytest.mark.parametrize(("old", "new"), slow_after(1, WAYS))
def test_copies_have_the_same_past(tmp_path: Path, old: str, new: str) -> None:
    def place(kind: str, name: str) -> str:
        return str(tmp_path / f"{name}.db") if kind.startswith("sqlite") else f"memory://past-{name}-{tmp_path.name}"

    program = Program(place(old, "old"), old[-2:], 40)
    for step in range(9):
        program.migrate() if step % 3 == 2 else program.commit()
    assert program.happened == {"migrate"}
    target = open_repository(place(new, "new"), engine_version=new[-2:])
    convert(program.session.repository, target)
    with TypedStore(place(new, "new"), config={"create": False, "readonly": True}) as copied:
        for at, state in enumerate(program.record.states):
            assert {name: dict(copied.snapshot(at).rows(table(name))) for name in NAMES} == state.rows
    target.close()
    program.close()
