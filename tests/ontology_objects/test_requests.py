"""What things cost, in requests: the same whatever the history is and however many types there are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ontolake.model import Entity, Field
from ontolake.objects import open_store
from ontolake.objects.testing import CountingStore
from ontolake.ontology import Session
from ontolake.ontology.repository.objects.upkeep import maintenance
from ontolake.ontology.sizes import DEFAULT

from .works import Human, opened

COMMIT, OPEN, FIRST = 10, 5, 11


def many_types(count: int) -> list[Any]:
    return [type(f"Type{number}", (Entity,), {
        "__annotations__": {"id": Field[str], "value": Field[int]}, "id": Field(primary_key=True),
        "__module__": __name__}) for number in range(count)]  # fmt: skip


@pytest.mark.slow
def test_a_commit_of_one_type_makes_few_requests_whatever_the_history(memory: str) -> None:
    store = CountingStore(open_store(memory))
    session = opened(store)
    most = 0
    for number in range(3 * DEFAULT.fan**2 // 2):
        session.ensure(Human(id=f"p{(number * 7) % 40}", name="x", age=number))
        store.reset()
        assert session.commit() == number + 1
        most = max(most, store.total)
    assert most <= COMMIT, dict(store.operations)
    session.close()


def test_a_commit_of_one_type_makes_few_requests_however_many_types_there_are(memory: str) -> None:
    types = many_types(60)
    store = CountingStore(open_store(memory))
    session = Session(store.url, entity_types=types, config={"connect": {"store": store}})
    for cls in types:
        session.ensure(cls(id="a", value=1))
    session.commit()
    store.reset()
    session.ensure(types[7](id="a", value=2))
    assert session.commit() == 2
    assert store.total <= COMMIT
    session.close()
    store.reset()
    again = Session(store.url, entity_types=types, config={"connect": {"store": store}})
    again.validate()
    assert store.total <= OPEN
    store.reset()
    again.ensure(types[7](id="b", value=2))
    assert again.commit() == 3
    assert store.total <= COMMIT, "in a session that has read nothing yet"
    again.close()


def test_opening_makes_few_requests_whatever_the_history(memory: str) -> None:
    store = CountingStore(open_store(memory))
    session = opened(store)
    assert store.total <= OPEN, "a new one"
    for number in range(40):
        session.ensure(Human(id=f"p{number}", name="x"))
        session.commit()
    session.close()
    store.reset()
    session = opened(store)
    session.validate()
    assert store.total <= OPEN
    session.close()


def test_the_latest_read_of_a_compacted_type_reads_its_snapshot_and_tail_only(memory: str) -> None:
    store = CountingStore(open_store(memory))
    session = opened(store)
    for number in range(50):
        session.ensure(Human(id=f"p{number % 10}", name="x", age=number))
        session.commit()
    maintenance.compact(session.repository, dry_run=False)  # type: ignore[arg-type]
    for number in range(2):
        session.ensure(Human(id=f"p{number}", name="tail"))
        session.commit()
    moment = session.repository.moment()  # type: ignore[attr-defined]
    files = moment.state("entity", "Human").runs
    assert len(files) == 3
    session.close()
    session = opened(store)
    session.validate()
    store.reset()
    assert len(session.query().entities(Human).collect()) == 10
    data = sum(file.size for file in files)
    assert store.received["get_ranges"] == data
    assert store.operations["get_ranges"] == 1
    assert store.total <= 2, "the head, and these files at once"
    session.close()


def test_indices_follow_every_commit_with_one_request_each(memory: str) -> None:
    store = CountingStore(open_store(memory))
    types = many_types(20)

    def committed(cls: Any, session: Session, value: int) -> int:
        session.ensure(cls(id="a", value=value))
        store.reset()
        session.commit()
        return store.total

    def standing(session: Session) -> dict[str, int]:
        return dict(Counter(one.state for one in maintenance.verify_index(session.repository)))  # type: ignore[arg-type]

    def another() -> Session:
        return Session(store.url, entity_types=types, config={"connect": {"store": store}})

    with another() as session:
        session.ensure(cls(id="a", value=0) for cls in types)
        session.commit()
        assert committed(types[3], session, 1) == committed(types[4], session, 2)
        once = committed(types[3], session, 3)
        assert set(standing(session)) == {"ok"}
    with another() as session:
        assert committed(types[5], session, 4) <= FIRST, "it looks at one index of the commit before"
        assert set(standing(session)) == {"ok"}
        # As after a crash: the newest commit is there, and what is advisory is not.
        kept = {one.key: store.get(one.key).data for one in store.list("meta/indices/")}
        committed(types[6], session, 5)
        for key, data in kept.items():
            store.put(key, data)
        assert standing(session)["behind"] == 1
    with another() as session:
        committed(types[7], session, 6)
        assert set(standing(session)) == {"ok"}, "the next commit has found out"
        assert committed(types[7], session, 7) == once
    assert once <= COMMIT


@pytest.mark.slow
def test_a_commit_far_back_is_found_in_few_steps(memory: str) -> None:
    store = CountingStore(open_store(memory))
    session = opened(store)
    for number in range(300):
        session.ensure(Human(id="p", name="x", age=number + 1))
        session.commit()
    session.close()
    session = opened(store)
    for wanted in (1, 2, 100, 257, 299, 300):
        store.reset()
        commit = session.get_commit(wanted)
        assert commit.id == wanted
        assert store.total <= 20
    session.close()


def test_a_query_asks_once_which_moment_it_is(memory: str) -> None:
    store = CountingStore(open_store(memory))
    session = opened(store)
    session.ensure(Human(id="p", name="x"))
    session.commit()
    store.reset()
    assert session.query().entities(Human).where(Human.id == "p").first() is not None
    assert dict(store.operations) == {"get": 1}
    session.close()
