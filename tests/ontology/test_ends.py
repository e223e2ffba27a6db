"""`relation.left` and `.right`: the entities at the ends, of the moment of the result, loaded for all at once."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from ontolake.model import EndUnavailableError, Entity, Field, Relation
from ontolake.ontology import DanglingRelationError, Session, left
from ontolake.ontology.query import hydration

from .shop import ENTITIES, RELATIONS, Customer, Order, Placed, Rated


@pytest.fixture
def shop(url: str, engine: str) -> Iterator[Session]:
    found = Session(url, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=engine)
    found.ensure(Customer(id=f"c{n}", name=f"n{n}") for n in range(5))
    found.ensure(Order(id=n, total=Decimal(n), at=datetime(2024, 1, 1)) for n in range(20))
    found.ensure(Placed(left_key=f"c{n % 5}", right_key=n) for n in range(20))
    found.ensure(Rated(left_key="c1", right_key=6, year=str(year)) for year in range(3))
    found.commit()
    yield found
    found.discard()
    found.close()


@contextmanager
def counted(session: Session) -> Iterator[list[str]]:
    """The types that are queried meanwhile."""
    seen: list[str] = []
    run = session.repository.run

    def noted(plan: Any, values: Any) -> Any:
        seen.append(plan.root.__name__)
        return run(plan, values)

    session.repository.run = noted  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        session.repository.run = run  # type: ignore[method-assign]


def test_ends_are_loaded_with_one_query_for_each_end_of_a_whole_result(shop: Session) -> None:
    with counted(shop) as seen:
        found = sorted(shop.query().relations(Placed).collect(), key=lambda one: one.right_key)
        assert seen == ["Placed"], "nothing is loaded before it is asked for"
        assert [(one.left.id, one.left.name, one.right.id) for one in found] == [
            (f"c{n % 5}", f"n{n % 5}", n) for n in range(20)]  # fmt: skip
        assert sorted(seen) == ["Customer", "Order", "Placed"]
        assert found[0].left is found[5].left, "one object for one entity"
        assert found[3].right.meta().commit_id == 1


def test_large_results_load_ends_in_parts(shop: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hydration, "RELATIONS", 8)
    with counted(shop) as seen:
        assert {one.left.id for one in shop.query().relations(Placed).collect()} == {f"c{n}" for n in range(5)}
        assert seen == ["Placed", "Customer", "Customer", "Customer"]


def test_ends_are_those_of_the_moment_of_the_result(shop: Session) -> None:
    query = shop.query().relations(Placed).where(Placed.right_key == 1)
    (before,) = query.collect()
    shop.ensure([Customer(id="c1", name="new"), Order(id=1, total=Decimal(99), at=datetime(2025, 1, 1))])
    shop.commit()
    (after,) = query.collect()
    assert (before.left.name, before.right.total) == ("n1", 1)
    assert (after.left.name, after.right.total) == ("new", 99)
    (then,) = query.as_of(1).collect()
    assert then.left.name == "n1"
    assert query.first().left.name == "new"  # type: ignore[union-attr]
    assert shop.get(Placed, ("c1", 1)).left.name == "new"  # type: ignore[union-attr]
    assert query.as_of(1).first().right.total == 1  # type: ignore[union-attr]
    assert [one.left.name for one in query.with_history().collect()] == ["new"]


def test_paths_and_filters_over_ends_have_them_too(shop: Session) -> None:
    with counted(shop) as seen:
        paths = shop.query().entities(Customer).where(Customer.id == "c1").via(Rated).collect()
        assert [(path.relations[0].left.id, path.relations[0].right.id) for path in paths] == [("c1", 6)] * 3
        (back,) = shop.query().entities(Order).where(Order.id == 6).via(Placed).collect()
        assert (back.relations[0].left, back.relations[0].right) == (back.target, back.source)
        assert seen == ["Customer", "Order"], "they are those of the path"
    found = shop.query().relations(Rated).where(left(Rated).name == "n1").order_by(Rated.year).collect()
    assert [(one.year, one.right.total) for one in found] == [("0", 6), ("1", 6), ("2", 6)]


def test_a_relation_that_no_query_returned_says_so(shop: Session) -> None:
    fresh = Placed(left_key="c1", right_key=1)
    with pytest.raises(EndUnavailableError, match="this Placed did not come out of a store, so it has no left"):
        fresh.left  # noqa: B018
    with pytest.raises(EndUnavailableError, match="no right"):
        Rated(left_key="c1", right_key=1, year="2024").right  # noqa: B018


def test_an_end_that_is_not_there_is_named(shop: Session) -> None:
    shop.ensure(Placed(left_key="nobody", right_key=1))
    shop.commit()
    found = shop.query().relations(Placed).where(Placed.right_key == 1).order_by(Placed.left_key).collect()
    assert [one.left_key for one in found] == ["c1", "nobody"]
    assert found[0].left.id == "c1"
    with counted(shop) as seen, pytest.raises(DanglingRelationError, match="no Customer 'nobody' at commit 2"):
        found[1].left  # noqa: B018
    assert seen == []
    assert found[1].right.id == 1


def test_objects_stay_what_they_were(shop: Session) -> None:
    (one,) = shop.query().relations(Placed).where(Placed.right_key == 1).collect()
    assert one == Placed(left_key="c1", right_key=1)
    assert one.model_dump() == {"left_key": "c1", "right_key": 1, "note": None, "count": 1}
    assert "ends" not in repr(one)
    assert copy.deepcopy(one).left.id == "c1"
    assert one.model_copy(update={"left_key": "c2"}).left.id == "c2"
    one.right_key = 7
    assert one.right.id == 7
    sent = pickle.loads(pickle.dumps(one))
    assert (sent, sent.meta()) == (one, one.meta())
    with pytest.raises(EndUnavailableError):
        sent.left  # noqa: B018
    shop.ensure(one)
    assert shop.pending == 1


class Slide(Entity):
    id: Field[str] = Field(primary_key=True)


class Beside(Relation[Slide, Slide]):
    left: Field[str]  # type: ignore[assignment]
    right: Field[int] = Field(default=5)  # type: ignore[assignment]


def test_fields_called_left_and_right_are_fields(url: str, engine: str) -> None:
    with Session(url, entity_types=[Slide], relation_types=[Beside], engine_version=engine) as session:
        session.ensure([Slide(id="a"), Beside(left_key="a", right_key="a", left="x")])
        session.commit()
        assert Beside(left_key="a", right_key="a", left="y").left == "y"
        cls: Any = Beside
        query: Any = session.query().relations(Beside)
        (one,) = query.where(cls.left == "x", cls.right > 4, left(Beside).id == "a").collect()
        assert (one.left, one.right, one.model_dump()["left"]) == ("x", 5, "x")


def test_ends_from_before_a_migration_are_read_as_the_relation_is(url: str, engine: str) -> None:
    def declared(**more: Any) -> tuple[Any, Any]:
        body = {"__module__": __name__, "__annotations__": {"id": Field[str], **dict.fromkeys(more, Field[str])},
                "id": Field(primary_key=True), **more}  # fmt: skip
        person = type(Entity)("Person", (Entity,), body)
        body = {"__module__": __name__, "__annotations__": {"since": Field[int]}}
        return person, type(Relation)("Knows", (Relation[person, person],), body)

    (old, knew), (person, knows) = declared(name=Field()), declared(title=Field(was="name"))
    with Session(url, entity_types=[old], relation_types=[knew], engine_version=engine) as session:
        session.ensure([old(id="a", name="A"), old(id="b", name="B"), knew(left_key="a", right_key="b", since=1)])
    with Session(url, entity_types=[person], relation_types=[knows]) as session:
        session.migrate(dry_run=False, force=True, upgraders={})
        session.ensure(person(id="a", title="AA"))
        session.commit()
        query: Any = session.query().relations(knows)
        assert [one.left.title for one in query.collect()] == ["AA"]
        (lifted,) = query.as_of(1, schema="current", upgraders={}).collect()
        assert (type(lifted.left), lifted.left.title, lifted.right.title) == (person, "A", "B")
        (stored,) = query.as_of(1, schema="stored").collect()
        assert (stored.left.name, stored.right.name) == ("A", "B")


def test_ends_are_those_of_the_branch(native: str) -> None:
    with Session(native, entity_types=ENTITIES, relation_types=RELATIONS, engine_version="v3") as main:
        main.ensure([Customer(id="c", name="main"), Order(id=1, total=Decimal(1), at=datetime(2024, 1, 1)),
                     Placed(left_key="c", right_key=1)])  # fmt: skip
        main.commit()
        main.branches.create("try")
        with Session(native, entity_types=ENTITIES, relation_types=RELATIONS, branch="try") as other:
            other.ensure(Customer(id="c", name="try"))
            other.commit()
            (there,) = other.query().relations(Placed).collect()
            (here,) = main.query().relations(Placed).collect()
            (across,) = main.query().relations(Placed).as_of(2).collect()
            assert (there.left.name, here.left.name, across.left.name) == ("try", "main", "try")
