"""Deleting rows of a typed store, engine v3: what is gone, what the past still shows, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake import faults
from ontolake.ontology import (
    DanglingRelationError,
    LayoutLacksError,
    LiveRelationsError,
    QueryError,
    SchemaValidationError,
    Session,
    UnknownKeyError,
)
from ontolake.ontology.parallel.tables import TypedParallel

from .conftest import fresh_url
from .shop import ENTITIES, RELATIONS, Customer, Order, Placed, Rated

AT = datetime(2026, 11, 17, tzinfo=UTC)


def opened(url: str, **options: Any) -> Session:
    return Session(url, entity_types=ENTITIES, relation_types=RELATIONS, engine_version="v3", **options)


@pytest.fixture(params=slow_after(2, ["native", "objects in memory", "page file", "pages in memory"]))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(str(request.param), tmp_path)


@pytest.fixture
def shop(url: str) -> Iterator[Session]:
    """Commit 1: customers a, b, c; orders 1, 2; a placed 1 and b placed 2, and rated 1."""
    session = opened(url)
    session.ensure([Customer(id=key, name=key.upper(), score=-0.0) for key in "abc"])
    session.ensure([Order(id=number, total=Decimal(number), at=AT) for number in (1, 2)])
    session.ensure([Placed(left_key="a", right_key=1), Placed(left_key="b", right_key=2),
                    Rated(left_key="b", right_key=1, year="2026", stars=4)])  # fmt: skip
    assert session.commit() == 1
    yield session
    session.close()


def keys(session: Session, **bounds: int) -> list[str]:
    query = session.query().entities(Customer)
    return sorted(one.id for one in (query.as_of(bounds["as_of"]) if bounds else query).collect())


def test_a_deleted_row_is_gone_and_stays_in_the_past(shop: Session) -> None:
    shop.delete(Customer, "c")
    assert keys(shop) == ["a", "b", "c"]
    assert shop.commit() == 2
    assert keys(shop) == ["a", "b"]
    query = shop.query().entities(Customer)
    assert query.count() == 2
    assert query.where(Customer.id == "c").collect() == []
    assert query.where(Customer.id == "c").first() is None
    assert query.where(Customer.id == "c", Customer.name == "C").collect() == []
    assert query.where(Customer.id.in_(["b", "c"])).count() == 1
    assert query.to_arrow().num_rows == 2
    assert query.group_by(Customer.name).agg() == [{"name": "A", "count": 1}, {"name": "B", "count": 1}]
    assert shop.get(Customer, "c") is None
    assert keys(shop, as_of=1) == ["a", "b", "c"]
    assert query.where(Customer.id == "c").as_of(1).collect()[0].name == "C"


def test_the_history_shows_the_end(shop: Session) -> None:
    shop.update(Customer, "c", name="Cy")
    shop.commit()
    shop.delete(shop.get(Customer, "c"))
    shop.commit()
    query = shop.query().entities(Customer).where(Customer.id == "c").with_history()
    states = query.collect()
    assert [(one.name, one.meta().commit_id, one.meta().deleted) for one in states] == [
        ("C", 1, False), ("Cy", 2, False), ("Cy", 3, True)]  # fmt: skip
    assert query.count() == 3
    assert query.to_arrow().column("deleted").to_pylist() == [False, False, True]
    assert [one.meta().deleted for one in query.as_of(2).collect()] == [False, False]
    since = shop.query().entities(Customer).history_since(2).collect()
    assert [(one.id, one.meta().deleted) for one in since] == [("c", True)]
    assert since[0].score == 0.0
    assert str(since[0].score) == "-0.0"


def test_a_deleted_key_comes_back(shop: Session) -> None:
    shop.delete(Customer, "c")
    shop.commit()
    shop.ensure(Customer(id="c", name="C", score=-0.0))
    assert shop.commit() == 3, "the same values as before are a change all the same"
    assert keys(shop) == ["a", "b", "c"]
    assert keys(shop, as_of=2) == ["a", "b"]
    assert [change.kind for change in shop.changes() if change.key == "c"] == ["insert", "delete", "insert"]
    shop.ensure([Customer(id=f"n{number}", name="N") for number in range(200)])
    shop.delete(Customer, "c")
    shop.commit()
    shop.ensure([Customer(id="c", name="C"), *(Customer(id=f"n{number}", name="M") for number in range(200))])
    assert shop.commit() == 5, "staged rows take the place of deleted ones too"
    assert len(keys(shop)) == 203


def test_changes_tell_deletions(shop: Session) -> None:
    shop.delete(Placed, ("a", 1))
    shop.update(Customer, "a", name="Ada")
    commit = shop.commit()
    assert commit == 2
    listed = {(one.table, one.key): one for one in shop.list_commit_changes(2)}
    deleted = listed["relation/Placed", ("a", 1)]
    assert (deleted.kind, deleted.after, deleted.before) == (
        "delete", None, {"left_key": "a", "right_key": 1, "note": None, "count": 1})  # fmt: skip
    assert listed["entity/Customer", "a"].kind == "update"
    arrow = [row for batch in shop.changes(1).to_batches() for row in batch.to_pylist()]
    assert [(row["type"], row["kind"], row["after"]) for row in arrow if row["kind"] == "delete"] == [
        ("relation/Placed", "delete", None)]  # fmt: skip
    assert {one.kind for one in shop.diff(shop.snapshot(1), shop.snapshot(2))} == {"delete", "update"}
    assert [one.kind for one in shop.diff(shop.snapshot(2), shop.snapshot(1))] == ["update", "insert"]


def test_readers_in_parallel_see_deletions(url: str) -> None:
    with opened(url) as session:
        session.ensure([Customer(id="a", name="A"), Customer(id="b", name="B")])
        session.commit()
        session.delete(Customer, "a")
        session.commit()
        session.ensure(Customer(id="a", name="Again"))
        session.commit()
        session.delete(Customer, "b")
    with TypedParallel(url) as store:
        def rows(**view: Any) -> list[dict[str, Any]]:
            splits = store.splits("entity/Customer", store.view(**view), None)
            return [row for split in splits for batch in split.read() for row in batch.to_pylist()]

        assert [row["id"] for row in rows()] == ["a"]
        assert [row["id"] for row in rows(as_of=2)] == ["b"]
        changes = [(row["id"], row["change"], row["commit_id"]) for row in rows(mode="changes", since=0)]
        assert changes == [("a", "insert", 1), ("b", "insert", 1), ("a", "delete", 2), ("a", "insert", 3),
                           ("b", "delete", 4)]  # fmt: skip
        assert [(row["id"], row["change"]) for row in rows(mode="changes", since=3)] == [("b", "delete")]
        assert [(row["name"], row["deleted"]) for row in rows(mode="history")] == [
            ("A", False), ("B", False), ("A", True), ("Again", False), ("B", True)]  # fmt: skip


def test_an_entity_with_relations_stays_unless_they_go_with_it(shop: Session) -> None:
    shop.delete(Customer, "b")
    with pytest.raises(LiveRelationsError, match="Placed") as refused:
        shop.commit()
    assert sorted(refused.value.relations) == [("Placed", ("b", 2)), ("Rated", ("b", 1, "2026"))]
    assert refused.value.key == "b"
    assert keys(shop) == ["a", "b", "c"]
    shop.discard()
    shop.delete(Customer, "b", cascade=True)
    assert shop.commit() == 2
    assert keys(shop) == ["a", "c"]
    assert [one.left_key for one in shop.query().relations(Placed).collect()] == ["a"]
    assert shop.query().relations(Rated).count() == 0
    assert shop.query().relations(Rated).as_of(1).count() == 1
    assert len(shop.list_commit_changes(2)) == 3


def test_relations_may_go_in_the_same_commit(shop: Session) -> None:
    shop.delete(Customer, "a")
    shop.delete(Placed, ("a", 1))
    assert shop.commit() == 2
    assert keys(shop) == ["b", "c"]
    shop.delete(Order, [1, 2])
    shop.delete(shop.query().relations(Placed).collect())
    shop.query().relations(Rated).where(Rated.stars == 4).delete()
    assert shop.commit() == 3
    assert shop.query().entities(Order).count() == 0


def test_a_relation_declared_beside_the_deletion_of_its_end_is_refused(shop: Session) -> None:
    shop.ensure(Placed(left_key="c", right_key=1))
    shop.delete(Customer, "c", cascade=True)
    with pytest.raises(LiveRelationsError, match="'c', 1"):
        shop.commit()
    assert shop.list_commits()[0].id == 1


def test_relations_of_types_that_the_session_does_not_know_count(shop: Session, url: str) -> None:
    other = Session(url, entity_types=[Customer], engine_version="v3")
    other.delete(Customer, "a")
    with pytest.raises(LiveRelationsError, match="Placed"):
        other.commit()
    other.discard()
    other.delete(Customer, "a", cascade=True)
    assert other.commit() == 2
    other.close()
    assert shop.query().relations(Placed).count() == 1


def test_a_path_does_not_go_through_what_is_gone(shop: Session) -> None:
    shop.delete(Rated, ("b", 1, "2026"))
    shop.commit()
    assert shop.query().entities(Customer).via(Rated).count() == 0
    assert shop.query().entities(Customer).via(Rated).as_of(1).count() == 1
    assert len(shop.query().entities(Customer).with_history().via(Placed).collect()) == 2


def test_endpoints_that_were_deleted_are_missing(url: str) -> None:
    session = opened(url, config={"check_endpoints": True})
    session.ensure([Customer(id="a", name="A"), Order(id=1, total=Decimal(1), at=AT)])
    session.commit()
    session.delete(Customer, "a")
    session.commit()
    session.ensure(Placed(left_key="a", right_key=1))
    with pytest.raises(DanglingRelationError, match="no Customer 'a'"):
        session.commit()
    session.close()


def test_deleting_what_is_not_there_does_nothing(shop: Session) -> None:
    shop.delete(Customer, "nobody")
    shop.delete(Placed, ("a", 2))
    assert shop.commit() is None
    shop.delete(Customer, "c")
    shop.commit()
    shop.delete(Customer, "c")
    assert shop.commit() is None


def test_the_last_declaration_of_a_key_counts(shop: Session) -> None:
    shop.delete(Customer, "c")
    shop.ensure(Customer(id="c", name="Kept"))
    shop.ensure(Customer(id="new", name="N"))
    shop.delete(Customer, "new")
    assert shop.pending == 2
    assert shop.commit() == 2
    assert keys(shop) == ["a", "b", "c"]
    assert shop.get(Customer, "c") == Customer(id="c", name="Kept")


def test_the_complete_state_of_a_type(shop: Session) -> None:
    shop.ensure_all(Customer, [Customer(id="b", name="B", score=-0.0), Customer(id="d", name="D")], cascade=True)
    assert shop.commit() == 2
    assert keys(shop) == ["b", "d"]
    assert {(one.kind.value, one.key) for one in shop.list_commit_changes(2)} == {
        ("insert", "d"), ("delete", "a"), ("delete", "c"), ("delete", ("a", 1))}  # fmt: skip
    shop.ensure_all(Rated, [])
    assert shop.commit() == 3
    assert shop.query().relations(Rated).count() == 0
    shop.ensure_all(Rated, [])
    assert shop.commit() is None
    shop.ensure_all(Customer, [])
    with pytest.raises(LiveRelationsError):
        shop.commit()
    shop.discard()
    with pytest.raises(SchemaValidationError, match="Customer alone"):
        shop.ensure_all(Customer, [Order(id=1, total=Decimal(1), at=AT)])


def test_parts_of_a_row(shop: Session) -> None:
    assert shop.update(Customer, "a", name="Ada").name == "Ada"
    shop.update(Customer, "a", active=False)
    shop.update(Rated, ("b", 1, "2026"), stars=5)
    assert shop.commit() == 2
    found = shop.get(Customer, "a")
    assert found is not None
    assert (found.name, found.active) == ("Ada", False)
    rated = shop.get(Rated, ("b", 1, "2026"))
    assert rated is not None
    assert rated.stars == 5
    with pytest.raises(UnknownKeyError, match="no Customer 'nobody'"):
        shop.update(Customer, "nobody", name="N")
    shop.delete(Customer, "c")
    with pytest.raises(UnknownKeyError):
        shop.update(Customer, "c", name="N")
    with pytest.raises(SchemaValidationError, match="a key stays"):
        shop.update(Customer, "a", id="b")
    with pytest.raises(SchemaValidationError, match="score"):
        shop.update(Customer, "a", score="high")


def test_bad_input_names_what_is_wrong(shop: Session) -> None:
    with pytest.raises(SchemaValidationError, match="needs a key"):
        shop.delete(Customer)
    with pytest.raises(SchemaValidationError, match="not a key"):
        shop.delete(Customer, 5)
    with pytest.raises(SchemaValidationError, match="left_key, right_key, year"):
        shop.delete(Rated, ("b", 1))
    with pytest.raises(SchemaValidationError, match="neither an object"):
        shop.delete("a")
    for query in (shop.query().entities(Customer).as_of(1), shop.query().entities(Customer).with_history(),
                  shop.query().entities(Customer).via(Placed)):  # fmt: skip
        with pytest.raises(QueryError, match="only what is there now"):
            query.delete()
    assert not shop.pending


@pytest.mark.parametrize("older", ["v1", "v2"])
def test_older_engines_name_the_way_to_a_newer_one(native: str, older: str) -> None:
    session = Session(native, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=older)
    session.ensure(Customer(id="a", name="A"))
    session.commit()
    for refused in (lambda: session.delete(Customer, "a"), lambda: session.ensure_all(Customer, []),
                    lambda: session.query().entities(Customer).delete()):  # fmt: skip
        with pytest.raises(LayoutLacksError, match="onto convert"):
            refused()
    assert session.update(Customer, "a", name="B").name == "B"
    assert session.commit() == 2
    assert session.get(Customer, "a") == Customer(id="a", name="B")
    session.close()


class Stopped(Exception):
    """Raised at a fault point."""


def stop() -> None:
    raise Stopped


def test_a_commit_that_fails_at_any_step_deletes_nothing(native: str) -> None:
    session = opened(native)
    session.ensure([Customer(id=key, name=key) for key in "abc"])
    session.commit()
    seen: list[str] = []
    for step in itertools.count():
        session.delete(Customer, "a")
        session.ensure([Customer(id="new", name="N"), Customer(id="b", name="B")])
        hook = faults.At(step, stop)
        with faults.arm(hook), pytest.raises(Stopped):
            session.commit()
        session.discard()
        seen.append(hook.seen[-1])
        assert not list(session.repository.check())
        if seen[-1] == "ontology: commit durable":
            break
        assert keys(session) == ["a", "b", "c"], seen[-1]
    assert keys(session) == ["b", "c", "new"]
    assert "ontology: rows deleted" in seen
    session.close()


ODD = ["zero\0inside", "ä€", " ", "'"]


@pytest.mark.parametrize("names", [ODD, [name for name in ODD if "\0" not in name]], ids=["with zeros", "without"])
def test_keys_of_any_text_are_deleted_and_merged(tmp_path: Path, names: list[str]) -> None:
    with opened(str(tmp_path / "shop.db")) as session:
        session.ensure(Customer(id=name, name="n") for name in [*names, "zero", "kept"])
        session.ensure(Order(id=number, total=Decimal(1), at=AT) for number in (-(2**63), 0, 2**63 - 1))
        session.commit()
        session.branches.create("try")
        with opened(str(tmp_path / "shop.db"), branch="try") as work:
            work.ensure(Customer(id=name, name="changed") for name in names)
            work.delete(Order, [-(2**63), 2**63 - 1])
        session.merge("try")
        found = {one.id: one.name for one in session.query().entities(Customer).collect()}
        assert found == {**dict.fromkeys(names, "changed"), "zero": "n", "kept": "n"}
        assert [one.id for one in session.query().entities(Order).collect()] == [0]
        session.delete(Customer, names)
        session.commit()
        assert keys(session) == ["kept", "zero"]
