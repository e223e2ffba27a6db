"""What a type checker makes of types: values on objects, filters on classes, errors for the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api
from type_cache import known_types

from ontolake.ontology import Query, Results

PRELUDE = """
from __future__ import annotations
from datetime import datetime
from ontolake.model import Condition, Entity, Field, Relation
from ontolake.ontology import Session, count, left

class Stamped:
    made: Field[datetime | None] = Field(default=None)

class Customer(Stamped, Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    tier: Field[str | None] = Field(default=None, index=True)
    tags: Field[list[str]] = Field(default_factory=list)

class Order(Entity):
    id: Field[int] = Field(primary_key=True)

class Placed(Relation[Customer, Order]):
    at: Field[datetime]

customer = Customer(id="c1", name="Ada")
session = Session("shop.db", entity_types=[Customer, Order], relation_types=[Placed])
query = session.query().entities(Customer)
placed = session.query().relations(Placed)
"""

RIGHT = """
reveal_type(customer.name)  # str
reveal_type(customer.tier)  # str | None
reveal_type(customer.tags)  # list[str]
reveal_type(Customer.name == "x")  # ontolake.model.filters.Condition
reveal_type(Customer.name)  # ontolake.model.filters.FieldRef[str]
reveal_type(Placed(left_key="a", right_key=1, at=datetime.now()).at)  # datetime.datetime
reveal_type(customer.made)  # datetime.datetime | None
reveal_type(Customer.made)  # ontolake.model.filters.FieldRef[datetime.datetime | None]
reveal_type(Placed.left_key == "c1")  # ontolake.model.filters.Condition
reveal_type(Customer.tags["a"].path("b").any_path() == 5)  # ontolake.model.filters.Condition
reveal_type(query.where(Customer.name == "x").order_by(Customer.name.desc()).limit(1))  # QUERY[snippet.Customer]
reveal_type(query.collect())  # RESULTS[snippet.Customer]
reveal_type(query.collect()[0].name)  # str
reveal_type(query.collect().diagnostics)  # dict[str, Any]
reveal_type(query.first())  # snippet.Customer | None
reveal_type(query.count())  # int
reveal_type(query.via(Placed).collect()[0].relations)  # tuple[Any, ...]
reveal_type(placed.where(left(Placed).tier == "gold", Placed.at > datetime.now()).first())  # snippet.Placed | None
reveal_type(query.group_by(Customer.tier).having(count() > 1).agg(n=count()))  # RESULTS[dict[str, Any]]
reveal_type(customer.meta().commit_id)  # int
reveal_type(placed.collect()[0].left)  # snippet.Customer
reveal_type(placed.collect()[0].right.id)  # int
reveal_type(session.commit())  # int | None
both: Condition = (Customer.tier == "gold") & ~Customer.name.startswith("A") | Customer.tags.any_path().in_(["x"])
"""

WRONG = """
Customer(id=5, name="x")
Customer(id="5")
Customer(id="5", name="x", nope=1)
customer.name = 5
Customer.nope
len(Customer.name)
Customer.name.startswith(5)
query.where("name")
query.where(customer.name == "x")
query.order_by("name")
query.limit("5")
query.via(Customer)
query.group_by(Customer.tier).agg(n=5)
session.query().entities(Placed)
session.query().relations(Customer)
session.ensure("x")
Session("shop.db", entity_types=[Placed])
"""


@pytest.mark.slow
def test_mypy_tells_values_from_filters_and_finds_mistakes(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(PRELUDE + RIGHT + WRONG)
    out, err, _ = api.run(["--strict", "--no-error-summary", "--cache-dir", str(known_types(tmp_path)), str(snippet)])
    assert err == ""
    lines = snippet.read_text().splitlines()
    revealed = dict(re.findall(r':(\d+): note: Revealed type is "(.*)"', out))
    expected = {str(n): _full(line.partition("# ")[2]) for n, line in enumerate(lines, 1) if "reveal_type" in line}
    assert revealed == expected
    faulty = {int(n) for n in re.findall(r":(\d+): error:", out)}
    begin = len((PRELUDE + RIGHT).splitlines()) + 1
    assert faulty == set(range(begin + 1, len(lines) + 1)), out


def _full(name: str) -> str:
    return name.replace("QUERY", f"{Query.__module__}.Query").replace("RESULTS", f"{Results.__module__}.Results")
