"""A store whose keys were renamed: types in three versions, and what was committed and migrated."""

from __future__ import annotations

from typing import Any

from ontolake.model import Entity, Field, Relation
from ontolake.ontology import Session, upgrader


def _first() -> tuple[Any, Any]:
    class Resident(Entity):
        id: Field[str] = Field(primary_key=True)
        age: Field[int]

    class Visits(Relation[Resident, Resident]):
        place: Field[str] = Field(instance_key=True)
        since: Field[int]

    return Resident, Visits


def _renamed() -> tuple[Any, Any]:
    class Resident(Entity):
        code: Field[str] = Field(primary_key=True)
        age: Field[int]

    class Visits(Relation[Resident, Resident]):
        town: Field[str] = Field(instance_key=True)
        since: Field[int]

    return Resident, Visits


def _extended() -> tuple[Any, Any]:
    class Resident(Entity):
        code: Field[str] = Field(primary_key=True)
        age: Field[int]
        tall: Field[bool] = Field(default=False)

    class Visits(Relation[Resident, Resident]):
        town: Field[str] = Field(instance_key=True)
        since: Field[int]
        well: Field[bool] = Field(default=False)

    return Resident, Visits


VERSIONS = (_first(), _renamed(), _extended())


def opened(url: str, version: int, engine: str | None = None) -> Session:
    resident, visits = VERSIONS[version - 1]
    return Session(url, entity_types=[resident], relation_types=[visits], engine_version=engine)


@upgrader("Resident", from_version=1)
def _resident(row: dict[str, Any]) -> dict[str, Any]:
    return {"code": row["id"], "age": row["age"]}


@upgrader("Visits", from_version=1)
def _visits(row: dict[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in row.items() if name != "place"}, "town": row["place"]}


def renamed(url: str, engine: str, third: str = "cid") -> None:
    """Commits 1 and 2, the renaming as commit 3, and a change as commit 4. `third` is the key of a resident."""
    resident, visits = VERSIONS[0]
    with opened(url, 1, engine) as session:
        session.ensure([resident(id="ann", age=1), resident(id="bob", age=2), resident(id=third, age=3)])
        session.ensure([visits(left_key="ann", right_key="bob", place="Bonn", since=1)])
        session.commit()
        session.ensure(resident(id="ann", age=11))
        session.commit()
    with opened(url, 2) as session:
        session.migrate(dry_run=False, force=True, upgraders=[_resident, _visits])
        session.ensure(VERSIONS[1][0](code="bob", age=22))
        session.commit()


def extended(url: str) -> None:
    """A field more for both, as commit 5."""
    with opened(url, 3) as session:
        session.migrate(dry_run=False, force=True)


def filled(url: str, engine: str, third: str = "cid") -> None:
    renamed(url, engine, third)
    extended(url)
