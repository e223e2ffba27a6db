"""`Session("http://…")` commits and queries as on a file: the same story on both, with the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from serving import Served, serving

import ontolake
from ontolake import Entity, Field, Relation
from ontolake.errors import Invalid
from ontolake.model.errors import SchemaValidationError
from ontolake.ontology import Session
from ontolake.ontology.errors import LiveRelationsError, UniqueFieldError, UnknownCommitError


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    tier: Field[str | None] = Field(default=None, index=True)
    credit: Field[Decimal] = Field(default=Decimal("0.00"))
    email: Field[str | None] = Field(default=None, unique=True)


class Order(Entity):
    number: Field[int] = Field(primary_key=True)
    at: Field[datetime]
    lines: Field[dict[str, int]]


class Placed(Relation[Customer, Order]):
    note: Field[str | None] = Field(default=None)


NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
Open = Callable[..., Session]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("typed") / "shop.db"
    with Session(str(place), entity_types=[Customer]):
        pass
    with serving({}) as found:
        yield found


@pytest.fixture(params=["file", "server"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, served: Served) -> Open:
    """Opens sessions with a new store: on its file, or behind a server."""
    from ontolake.server.handles import ServedStore

    place = str(tmp_path / "shop.db")
    Session(place, entity_types=[Customer]).close()
    if request.param == "server":
        name = f"s{abs(hash(place))}"
        served.server.stores.add(ServedStore(name, place))
        place = f"{served.url}/{name}"
    options = {"connect": {"token": "admin-secret"}} if request.param == "server" else {}

    def open(**rest: Any) -> Session:
        return Session(place, entity_types=[Customer, Order], relation_types=[Placed], config=options, **rest)

    return open


def fill(session: Session) -> int | None:
    session.ensure([Customer(id="c1", name="Ada", tier="gold", credit=Decimal("1.50"), email="a@x"),
                    Customer(id="c2", name="Bob"), Order(number=1, at=NOON, lines={"tea": 2}),
                    Order(number=2, at=NOON, lines={"pen": 1})])
    session.ensure([Placed(left_key="c1", right_key=1, note="by phone"), Placed(left_key="c1", right_key=2)])
    return session.commit(message="first orders")


def test_only_differences_are_committed(opened: Open) -> None:
    with opened() as session:
        first = fill(session)
        assert first is not None
        assert fill(session) is None
        session.ensure(Customer(id="c2", name="Bob", tier="new"))
        second = session.commit()
        assert second == first + 1
        assert [one.id for one in session.list_commits()][:2] == [second, first]
        assert session.get_commit(first).message == "first orders"
        changes = session.list_commit_changes(second)
        assert [(one.table, one.key, one.after["tier"]) for one in changes if one.after] == [
            ("entity/Customer", "c2", "new")]
        with pytest.raises(UnknownCommitError):
            session.get_commit(99)


def test_queries_answer_alike(opened: Open) -> None:
    with opened() as session:
        first = fill(session)
        session.update(Customer, "c1", tier="silver")
        session.commit()
        query = session.query()
        ada = query.entities(Customer).where(Customer.name.startswith("A") & (Customer.credit > Decimal("1"))).first()
        assert ada is not None
        assert (ada.tier, ada.credit, ada.meta().commit_id) == ("silver", Decimal("1.50"), first + 1)  # type: ignore[operator]
        assert [one.id for one in query.entities(Customer).order_by(Customer.name.desc()).limit(1).collect()] == ["c2"]
        assert query.entities(Customer).where(Customer.tier.is_null()).count() == 1
        assert query.entities(Customer).where(Customer.id.in_(["c1", "zz"])).sum(Customer.credit) == Decimal("1.50")
        assert query.entities(Customer).where(Customer.id == "c1").as_of(first).collect()[0].tier == "gold"
        states = query.entities(Customer).where(Customer.id == "c1").with_history().collect()
        assert {one.tier for one in states} == {"gold", "silver"}
        order = query.entities(Order).where(Order.number == 1).first()
        assert order is not None
        assert (order.at, order.lines) == (NOON, {"tea": 2})
        placed = query.relations(Placed).where(Placed.note == "by phone").collect()
        assert [(one.left_key, one.right_key) for one in placed] == [("c1", 1)]
        paths = query.entities(Customer).where(Customer.id == "c1").via(Placed).collect()
        assert sorted(path.entities[-1].number for path in paths) == [1, 2]
        table = query.entities(Customer).order_by(Customer.id).to_arrow()
        assert table.column("name").to_pylist() == ["Ada", "Bob"]
        assert session.get(Customer, "c2").name == "Bob"  # type: ignore[union-attr]
        assert session.get(Customer, "zz") is None


def test_bad_commits_are_refused_with_the_same_errors(opened: Open) -> None:
    with opened() as session:
        fill(session)
        session.delete(Customer, "c1")
        with pytest.raises(LiveRelationsError):
            session.commit()
        session.discard()
        session.ensure(Customer(id="c3", name="Eve", email="a@x"))
        with pytest.raises(UniqueFieldError):
            session.commit()
        session.discard()
        with pytest.raises(SchemaValidationError):
            session.update(Customer, "c1", name=5)
        session.delete(Customer, "c1", cascade=True)
        assert session.commit()
        assert session.query().relations(Placed).count() == 0
        session.ensure_all(Order, [Order(number=1, at=NOON, lines={})])
        assert session.commit()
        assert [one.number for one in session.query().entities(Order).collect()] == [1]


def test_branches_are_worked_on_and_merged(opened: Open) -> None:
    with opened() as session:
        fill(session)
        session.branches.create("try")
    with opened(branch="try") as trying:
        trying.ensure(Customer(id="c9", name="Zoe"))
    with opened() as session:
        assert session.get(Customer, "c9") is None
        assert [one.key for one in session.diff("main", "try")] == ["c9"]
        assert session.merge("try").commit is not None
        assert session.get(Customer, "c9") is not None


def test_a_store_with_the_same_schemas_is_valid(opened: Open) -> None:
    with opened() as session:
        fill(session)
        session.validate()


def test_a_store_behind_a_server_can_be_asked_without_classes(served: Served, tmp_path: Path) -> None:
    from ontolake.server.handles import ServedStore

    place = str(tmp_path / "plain.db")
    with Session(place, entity_types=[Customer, Order], relation_types=[Placed]) as session:
        fill(session)
    served.server.stores.add(ServedStore("plain", place))
    with ontolake.open(f"{served.url}/plain", token="reader-secret") as store:
        found: Any = store
        assert [info.name for info in found.types] == ["Customer", "Order", "Placed"]
        customer = found.find("Customer").cls
        by_name = found.query().entities(customer).order_by(customer.name)
        assert [one.name for one in by_name.collect()] == ["Ada", "Bob"]
        table = found.snapshot().to_arrow("entity/Customer", columns=["id", "name"])
        assert table.to_pylist() == [{"id": "c1", "name": "Ada"}, {"id": "c2", "name": "Bob"}]


def test_what_http_cannot_do_is_refused(served: Served, tmp_path: Path) -> None:
    from ontolake.server.handles import ServedStore

    place = str(tmp_path / "more.db")
    Session(place, entity_types=[Customer]).close()
    served.server.stores.add(ServedStore("more", place))
    config = {"connect": {"token": "writer-secret"}}
    with Session(f"{served.url}/more", entity_types=[Customer], config=config) as session:
        with pytest.raises(Invalid, match="onto migrate"):
            session.migrate()
        with pytest.raises(Invalid):
            session.run([], until_idle=True)
