"""What a type checker makes of types: values on objects, filters on classes, errors for the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

PRELUDE = """
from __future__ import annotations
from datetime import datetime
from ontolake.model import Condition, Entity, Field, Relation

class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    tier: Field[str | None] = Field(default=None, index=True)
    tags: Field[list[str]] = Field(default_factory=list)

class Order(Entity):
    id: Field[int] = Field(primary_key=True)

class Placed(Relation[Customer, Order]):
    at: Field[datetime]

customer = Customer(id="c1", name="Ada")
"""

RIGHT = """
reveal_type(customer.name)  # str
reveal_type(customer.tier)  # str | None
reveal_type(customer.tags)  # list[str]
reveal_type(Customer.name == "x")  # ontolake.model.filters.Condition
reveal_type(Customer.name)  # ontolake.model.filters.FieldRef[str]
reveal_type(Placed(left_key="a", right_key=1, at=datetime.now()).at)  # datetime.datetime
both: Condition = (Customer.tier == "gold") & ~Customer.name.startswith("A") | Customer.tags.any_path().in_(["x"])
"""

WRONG = """
Customer(id=5, name="x")
Customer(id="5")
Customer(id="5", name="x", nope=1)
customer.name = 5
Customer.nope
len(Customer.name)
"""


@pytest.mark.slow
def test_mypy_tells_values_from_filters_and_finds_mistakes(tmp_path: Path) -> None:
    snippet = tmp_path / "snippet.py"
    snippet.write_text(PRELUDE + RIGHT + WRONG)
    cache = Path(__file__).parents[2] / ".mypy_cache" / "snippets"
    out, err, _ = api.run(["--strict", "--no-error-summary", "--cache-dir", str(cache), str(snippet)])
    assert err == ""
    lines = snippet.read_text().splitlines()
    revealed = dict(re.findall(r':(\d+): note: Revealed type is "(.*)"', out))
    expected = {str(n): line.partition("# ")[2] for n, line in enumerate(lines, 1) if "reveal_type" in line}
    assert revealed == expected
    faulty = {int(n) for n in re.findall(r":(\d+): error:", out)}
    begin = len((PRELUDE + RIGHT).splitlines()) + 1
    assert faulty == set(range(begin + 1, len(lines) + 1)), out
