"""Typed sessions in the words of every versioned store: commits, changes, snapshots, differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from marking import examples

from ontolake.errors import Invalid, NotFound
from ontolake.history import ChangeKind, Maintained, Ref, Versioned, net
from ontolake.model import Entity, Field
from ontolake.ontology import Config, Session
from ontolake.ontology.typed_store import TypedStore

from .shop import ENTITIES, RELATIONS, Customer, Placed


def open_shop(url: str, **options: Any) -> Session:
    return Session(url, entity_types=ENTITIES, relation_types=RELATIONS, **options)


@pytest.fixture
def session(url: str, engine: str) -> Any:
    """Three commits: c1 and c2 come; c1 changes; c1 is as it was, and c2 is placed."""
    with open_shop(url, engine_version=engine) as session:
        session.ensure([Customer(id="c1", name="Ada"), Customer(id="c2", name="Bob")])
        session.commit(metadata={"author": "me"})
        session.ensure(Customer(id="c1", name="Eva"))
        session.commit()
        session.ensure([Customer(id="c1", name="Ada"), Placed(left_key="c2", right_key=1)])
        session.commit()
        yield session


def test_a_session_is_a_versioned_store(session: Session) -> None:
    assert isinstance(session, Versioned)
    assert [(commit.id, commit.parents, commit.author) for commit in session.commits()] == [
        (3, (2,), None), (2, (1,), None), (1, (), "me")]  # fmt: skip
    assert [commit.id for commit in session.commits(since=1, until=2)] == [2]
    assert [commit.id for commit in session.commits(since=3)] == []


def test_changes_come_oldest_first(session: Session) -> None:
    changes = list(session.changes(0))
    assert [(one.commit, one.table, one.key, one.kind) for one in changes] == [
        (1, "entity/Customer", "c1", ChangeKind.INSERT), (1, "entity/Customer", "c2", ChangeKind.INSERT),
        (2, "entity/Customer", "c1", ChangeKind.UPDATE), (3, "entity/Customer", "c1", ChangeKind.UPDATE),
        (3, "relation/Placed", ("c2", 1), ChangeKind.INSERT)]  # fmt: skip
    assert (changes[2].before["name"], changes[2].after["name"]) == ("Ada", "Eva")
    assert [one.commit for one in session.changes(1, 2)] == [2]
    assert list(session.changes(3)) == []


def test_snapshots_stay_as_they_are(session: Session) -> None:
    second = session.snapshot(2)
    assert (second.commit, second.branch) == (2, "main")
    assert second.tables() == ["entity/Customer", "entity/Order", "relation/Placed", "relation/Rated"]
    assert [(key, row["name"]) for key, row in second.rows("entity/Customer")] == [("c1", "Eva"), ("c2", "Bob")]
    assert list(second.rows("relation/Placed")) == []
    now = session.snapshot()
    session.ensure(Customer(id="c1", name="Zoe"))
    session.commit()
    assert [row["name"] for _, row in now.rows("entity/Customer")] == ["Ada", "Bob"]
    assert [key for key, _ in now.rows("relation/Placed")] == [("c2", 1)]
    assert session.at(Ref.parse("main@2")).commit == session.at(Ref.parse("@2")).commit == 2
    assert session.at(Ref.parse("main")).commit == 4


def test_differences_in_both_directions(session: Session) -> None:
    first, second, third = (session.snapshot(number) for number in (1, 2, 3))
    assert [(one.key, one.kind) for one in session.diff(first, third)] == [(("c2", 1), ChangeKind.INSERT)]
    (forth,) = session.diff(first, second)
    (back,) = session.diff(second, first)
    assert (forth.before, forth.after, forth.commit) == (back.after, back.before, 2)
    assert back.commit == 1
    assert [one.kind for one in session.diff(third, session.snapshot(0))] == [ChangeKind.DELETE] * 3
    assert list(session.diff(second, second)) == []


def test_what_is_not_there(session: Session) -> None:
    for call in (
        lambda: session.snapshot(9), lambda: session.changes(9), lambda: session.changes(0, 9),
        lambda: session.commits(until=9), lambda: session.commits(since=9), lambda: session.list_commits(since=9),
        lambda: session.list_commits(until=9), lambda: session.snapshot(branch="try"),
        lambda: session.snapshot().rows("entity/Nothing"), lambda: session.at(Ref.parse("@9")),
    ):  # fmt: skip
        with pytest.raises(NotFound):
            call()
    with pytest.raises(Invalid):
        session.at(Ref.parse("@soon"))


def test_since_none_means_from_the_beginning(session: Session) -> None:
    commits = list(session.commits(since=0))
    assert session.list_commits(since=None) == list(session.commits(since=None)) == commits
    assert list(session.changes(None)) == list(session.changes(0))  # type: ignore[arg-type]


def test_snapshots_of_different_stores_are_compared_row_by_row(tmp_path: Path) -> None:
    with open_shop(str(tmp_path / "a.db")) as one, open_shop(str(tmp_path / "b.db"), engine_version="v1") as two:
        one.ensure([Customer(id="a", name="x"), Customer(id="b", name="x"), Customer(id="c", name="x")])
        two.ensure([Customer(id="b", name="x"), Customer(id="c", name="y"), Customer(id="d", name="x")])
        one.commit(), two.commit()
        found = [(change.key, change.kind.value) for change in one.diff(one.snapshot(), two.snapshot())]
        assert found == [("a", "delete"), ("c", "update"), ("d", "insert")]


def test_a_branch_over_the_seam_has_a_history_of_its_own(tmp_path: Path) -> None:
    from ontolake.storage import open_storage

    url = f"file://{tmp_path}/pages.db"
    with open_shop(url, engine_version="v2") as session:
        session.ensure(Customer(id="a", name="x"))
    with open_storage(url) as storage:
        storage.create_branch("try", storage.durable_lsn())
    with open_shop(url, config=Config(branch="try")) as there:
        there.ensure(Customer(id="b", name="x"))
        there.commit()
        assert there.snapshot().branch == "try"
        with open_shop(url, config=Config(readonly=True)) as here:
            assert [commit.id for commit in here.commits()] == [1]
            assert [change.key for change in here.diff(here.snapshot(), there.snapshot())] == ["b"]


def test_what_lies_before_a_migration_is_told_by_its_own_schema(url: str, engine: str) -> None:
    def declare(extra: bool) -> Any:
        class Thing(Entity):
            id: Field[str] = Field(primary_key=True)
            if extra:
                size: Field[int | None] = Field(default=None)

        return Thing

    old, new = declare(False), declare(True)
    with Session(url, entity_types=[old], engine_version=engine) as before, Session(url, entity_types=[new]) as session:
        before.ensure(old(id="a"))
        before.commit()
        early = before.snapshot()
        session.migrate(dry_run=False, force=True)
        session.ensure(new(id="b", size=2))
        session.commit()
        for first in (session.snapshot(1), early):
            assert dict(first.rows("entity/Thing")) == {"a": {"id": "a"}}
        found = {one.key: one for one in session.diff(session.snapshot(1), session.snapshot())}
        assert {key: (one.kind, one.before, one.after) for key, one in found.items()} == {
            "a": (ChangeKind.UPDATE, {"id": "a"}, {"id": "a", "size": None}),
            "b": (ChangeKind.INSERT, None, {"id": "b", "size": 2})}  # fmt: skip
        back = {one.key: (one.kind, one.after) for one in session.diff(session.snapshot(), session.snapshot(1))}
        assert back == {"a": (ChangeKind.UPDATE, {"id": "a"}), "b": (ChangeKind.DELETE, None)}
        assert [(one.kind, one.before, one.after) for one in session.commit_changes(2)] == [
            (ChangeKind.UPDATE, {"id": "a"}, {"id": "a", "size": None})]
        assert [(one.kind, one.after) for one in session.commit_changes(1)] == [(ChangeKind.INSERT, {"id": "a"})]
        assert [one.key for one in session.diff(session.snapshot(2), session.snapshot())] == ["b"]
        with pytest.raises(NotFound):
            list(session.commit_changes(9))


def test_a_store_opened_without_classes_tells_the_same(session: Session, url: str) -> None:
    with TypedStore(url, config={"create": False, "readonly": True}) as store:
        assert isinstance(store, Versioned)
        assert isinstance(store, Maintained)
        assert [info.name for info in store.types] == ["Customer", "Placed"]
        assert [(one.commit, one.table, one.key, one.kind) for one in store.changes(0)] == [
            (one.commit, one.table, one.key, one.kind) for one in session.changes(0)]  # fmt: skip
        assert list(store.verify()) == []
        assert store.gc().items == 0


STEPS = st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), min_size=1, max_size=3), max_size=5)


@pytest.mark.parametrize("version", ["v1", "v2"])
@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_changes_add_up_to_snapshots(version: str, steps: list[list[tuple[str, int]]]) -> None:
    with open_shop(":memory:", engine_version=version) as session:
        for step in steps:
            session.ensure(Customer(id=key, name="x", score=float(value)) for key, value in step)
            session.commit()
        head = session.snapshot().commit
        states = [dict(session.snapshot(number).rows("entity/Customer")) for number in range(head + 1)]
        for first in range(head + 1):
            for last in range(first, head + 1):
                state = dict(states[first])
                for change in session.changes(first, last):
                    state[change.key] = change.after
                assert state == states[last]
                found = session.diff(session.snapshot(first), session.snapshot(last))
                expected = net(session.changes(first, last))
                assert {one.key: one.after for one in found} == {one.key: one.after for one in expected}
