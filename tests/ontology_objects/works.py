"""Things that are done to a store, each with a store to do it to and a look at whether it was done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ontolake.errors import NotFound
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


def opened(store: ObjectStore, types: tuple[Any, Any] = Before, engine: str | None = None, **config: Any) -> Session:
    return Session(store.url, entity_types=[types[0]], relation_types=[types[1]], engine_version=engine,
                   config={"connect": {"store": store}, "lock_timeout": 20.0, **config})


def fill(store: ObjectStore, engine: str | None = None) -> None:
    """Eleven commits, so that the next one merges files too."""
    session = opened(store, engine=engine)
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
            if repository.keeps_branches:
                found["names"] = ([(one.name, one.head) for one in session.branches.list()], session.tags.list())
                for branch in session.branches.list():
                    there = repository.on_branch(branch.name)
                    found[f"on {branch.name}"] = [
                        sorted(map(repr, there.read_stored(StoredType(version.schema))))
                        for _, version in sorted(there.schemas().items())]
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
    highest = session.repository.highest()
    session.ensure(types[0](id="next", name="x"))
    assert session.commit() == highest + 1
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


def branched(store: ObjectStore) -> None:
    """A store of the newest engine in its place, with a branch that differs from the first one."""
    store.delete([info.key for info in store.list()])
    fill(store, "v3")
    with opened(store) as session:
        session.branches.create("try")
        session.ensure([Human(id="p1", name="on main"), Knows(left_key="p2", right_key="p0")])
    with opened(store, branch="try") as session:
        session.ensure([Human(id="p2", name="on try"), Human(id="tried", name="x")])
        session.delete(Human, "p4")


def commit_to_branch(store: ObjectStore) -> None:
    with opened(store, branch="try") as session:
        session.ensure(Human(id=f"p{number}", name="new", age=1) for number in range(8))
        session.delete(Human, "tried")


def delete_rows(store: ObjectStore) -> None:
    with opened(store) as session:
        session.delete(Human, "p1", cascade=True)


def make_names(store: ObjectStore) -> None:
    with opened(store) as session:
        session.branches.create("other", at="try")


def merge(store: ObjectStore) -> None:
    with opened(store) as session:
        session.merge("try")


def erase(store: ObjectStore) -> None:
    with opened(store) as session:
        session.erase(Human, "p1", "asked for", dry_run=False, cascade=True)


def leaves_nothing(store: ObjectStore) -> None:
    """Whatever an erasure left undone, the next one does. It need not wait until the lease of the first has run out."""
    store.delete([layout.LOCK])
    with opened(store) as session:
        for key in ("p1", "p3"):
            with contextlib.suppress(NotFound):
                session.erase(Human, key, "asked for", dry_run=False, cascade=True)
    names = {name for info in store.list() if info.key.endswith(".parquet")
             for name in pq.read_table(pa.BufferReader(store.get(info.key).data)).column(0).to_pylist()}  # fmt: skip
    assert not names & {"p1", "p3"}
    assert not any(f'"{key}"'.encode() in store.get(info.key).data for info in store.list() for key in ("p1", "p3"))


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
    "commit to a branch": Work(commit_to_branch, True, branched),
    "deletion": Work(delete_rows, True, branched),
    "branch": Work(make_names, True, branched),
    "merge": Work(merge, True, branched),
    "erasure": Work(erase, True, branched, leaves_nothing),
}
