"""A store whose keys were renamed: types in three versions, and what was committed and migrated."""

from __future__ import annotations

from typing import Any

from ontolake.model import Entity, Field, Relation
from ontolake.ontology import Session, upgrader


def _first() -> tuple[Any, Any]:
    class Person(Entity):
        id: Field[str] = Field(primary_key=True)
        age: Field[int]

    class Knows(Relation[Person, Person]):
        place: Field[str] = Field(instance_key=True)
        since: Field[int]

    return Person, Knows


def _renamed() -> tuple[Any, Any]:
    class Person(Entity):
        code: Field[str] = Field(primary_key=True)
        age: Field[int]

    class Knows(Relation[Person, Person]):
        town: Field[str] = Field(instance_key=True)
        since: Field[int]

    return Person, Knows


def _extended() -> tuple[Any, Any]:
    class Person(Entity):
        code: Field[str] = Field(primary_key=True)
        age: Field[int]
        tall: Field[bool] = Field(default=False)

    class Knows(Relation[Person, Person]):
        town: Field[str] = Field(instance_key=True)
        since: Field[int]
        well: Field[bool] = Field(default=False)

    return Person, Knows


VERSIONS = (_first(), _renamed(), _extended())


def opened(url: str, version: int, engine: str | None = None) -> Session:
    person, knows = VERSIONS[version - 1]
    return Session(url, entity_types=[person], relation_types=[knows], engine_version=engine)


@upgrader("Person", from_version=1)
def _person(row: dict[str, Any]) -> dict[str, Any]:
    return {"code": row["id"], "age": row["age"]}


@upgrader("Knows", from_version=1)
def _knows(row: dict[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in row.items() if name != "place"}, "town": row["place"]}


def renamed(url: str, engine: str, third: str = "cid") -> None:
    """Commits 1 and 2, the renaming as commit 3, and a change as commit 4. `third` is the key of a person."""
    person, knows = VERSIONS[0]
    with opened(url, 1, engine) as session:
        session.ensure([person(id="ann", age=1), person(id="bob", age=2), person(id=third, age=3)])
        session.ensure([knows(left_key="ann", right_key="bob", place="Bonn", since=1)])
        session.commit()
        session.ensure(person(id="ann", age=11))
        session.commit()
    with opened(url, 2) as session:
        session.migrate(dry_run=False, force=True, upgraders=[_person, _knows])
        session.ensure(VERSIONS[1][0](code="bob", age=22))
        session.commit()


def extended(url: str) -> None:
    """A field more for both, as commit 5."""
    with opened(url, 3) as session:
        session.migrate(dry_run=False, force=True)


def filled(url: str, engine: str, third: str = "cid") -> None:
    renamed(url, engine, third)
    extended(url)
