"""Things that are done to a store, each with a store to do it to and a look at whether it was done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ontolake.model import Entity, Field, Relation
from ontolake.objects import ObjectStore
from ontolake.ontology import Session
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.upkeep import maintenance


class Human(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    age: Field[int] = Field(default=0)


class Knows(Relation[Human, Human]):
    since: Field[int] = Field(default=0)


Before = (Human, Knows)


def _newer() -> tuple[Any, Any]:
    class Human(Entity):
        id: Field[str] = Field(primary_key=True)
        name: Field[str]
        age: Field[int] = Field(default=0)
        town: Field[str | None] = Field(default=None)

    class Knows(Relation[Human, Human]):
        since: Field[int] = Field(default=0)
        well: Field[bool] = Field(default=False)

    return Human, Knows


After = _newer()


def opened(store: ObjectStore, types: tuple[Any, Any] = Before, **config: Any) -> Session:
    return Session(store.url, entity_types=[types[0]], relation_types=[types[1]],
                   config={"connect": {"store": store}, "lock_timeout": 1.0, **config})


def fill(store: ObjectStore) -> None:
    """Eleven commits, so that the next one merges files too."""
    session = opened(store)
    for number in range(11):
        session.ensure(Human(id=f"p{number % 5}", name=f"name {number}", age=number))
        if number in (1, 7):
            session.ensure(Knows(left_key="p1", right_key="p0", since=number))
        session.commit()
    session.close()


def commit(store: ObjectStore) -> None:
    session = opened(store)
    session.ensure(Human(id=f"p{number}", name="new", age=1) for number in range(8))
    session.ensure(Knows(left_key="p1", right_key="p2", since=99))
    try:
        session.commit()
    finally:
        session.close()


def migrate(store: ObjectStore) -> None:
    session = opened(store, After)
    try:
        session.migrate(dry_run=False, force=True)
    finally:
        session.close()


def compact(store: ObjectStore) -> None:
    session = opened(store)
    try:
        maintenance.compact(session.repository, dry_run=False)  # type: ignore[arg-type]
    finally:
        session.close()


def repair(store: ObjectStore) -> None:
    session = opened(store)
    try:
        maintenance.repair_index(session.repository)  # type: ignore[arg-type]
    finally:
        session.close()


def drop(store: ObjectStore) -> None:
    session = opened(store)
    try:
        session.repository.drop_type("relation", "Knows")
    finally:
        session.close()


def seen(store: ObjectStore) -> Any:
    """All that reads can see, whatever the types are by now."""
    from ontolake.model.stored import StoredType

    session = opened(store)
    repository = session.repository
    try:
        with repository.reading():
            found: dict[str, Any] = {"head": repository.head(), "dropped": sorted(repository.dropped())}
            for (kind, name), version in sorted(repository.schemas().items()):
                rows = sorted(map(repr, repository.read_stored(StoredType(version.schema))))
                history = [sorted(map(repr, repository.stored_history(one)))
                           for one in repository.schema_versions(kind, name)]
                found[name] = (version.schema_version_id, rows, history)
            found["commits"] = [(commit.id, commit.metadata) for commit in repository.commits()]
            assert not list(repository.check())
    finally:
        session.close()
    return found


def goes_on(store: ObjectStore) -> None:
    """The next commit works, and brings up to date what is advisory."""
    session = opened(store)
    types = After if session.repository.schemas()["entity", "Human"].schema_version_id == 2 else Before
    session.close()
    session = opened(store, types)
    head = session.repository.head()
    session.ensure(types[0](id="next", name="x"))
    assert session.commit() == head + 1
    found = session.query().entities(types[0]).where(types[0].id == "next").first()
    assert found is not None
    assert found.name == "x"
    assert {one.state for one in maintenance.verify_index(session.repository)} == {"ok"}  # type: ignore[arg-type]
    session.close()


def damage(store: ObjectStore) -> None:
    """What is advisory is missing, cut short or behind."""
    store.delete([layout.CATALOG, layout.versions_path("entity", "Human")])
    store.put(layout.index_path("relation", "Knows"), b"{")


def can_be_repaired(store: ObjectStore) -> None:
    session = opened(store)
    repository: Any = session.repository
    maintenance.repair_index(repository)
    assert {one.state for one in maintenance.verify_index(repository)} == {"ok"}
    session.close()


class Work(NamedTuple):
    do: Callable[[ObjectStore], None]
    visible: bool
    """Whether what is seen differs once it is done."""
    prepare: Callable[[ObjectStore], None] = lambda store: None
    then: Callable[[ObjectStore], None] = lambda store: None
    """What else must work afterwards, however it went."""


WORKS: dict[str, Work] = {
    "commit": Work(commit, True),
    "migration": Work(migrate, True),
    "compaction": Work(compact, False),
    "drop": Work(drop, True),
    "repair": Work(repair, False, damage, can_be_repaired),
}
