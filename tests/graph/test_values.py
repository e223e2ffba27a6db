"""Values of fields mean the same in a graph as in Python: decimals compare as numbers, and JSON is of its type."""

from __future__ import annotations

import operator
import random
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import pyarrow as pa
import pytest

from ontolake.errors import Invalid
from ontolake.graph import ConstraintError, Graph, RowError, Unique
from ontolake.model import Entity, Field

COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
               "!=": operator.ne}  # fmt: skip


class Item(Entity):
    id: Field[int] = Field(primary_key=True)
    price: Field[Decimal | None] = Field(default=None)
    paid: Field[Decimal] = Field(default=Decimal("5"), ge=2, lt=100)
    exact: Field[Decimal] = Field(default=Decimal("1.00"), max_digits=8, decimal_places=2)
    code: Field[Annotated[UUID | None, Unique]] = Field(default=None)
    tags: Field[list[str]] = Field(default_factory=list)
    counts: Field[dict[str, int]] = Field(default_factory=dict)


def number(chance: random.Random) -> Decimal:
    """Small ones that often are equal in value and differ in form, and a few that are far apart."""
    return chance.choice([
        Decimal(chance.randint(-12, 12)), Decimal(chance.randint(-120, 120)) / 10, Decimal(chance.randint(-3, 3)) * 100,
        Decimal(f"{chance.randint(-9, 9)}.{chance.randint(0, 9)}0"), Decimal(f"{chance.randint(1, 9)}E+3"),
        Decimal("12345678901234567890.1") + Decimal(chance.randint(0, 3)) / 10, Decimal(10) ** 45,
    ])  # fmt: skip


@pytest.mark.slow
def test_decimals_without_digits_compare_as_numbers(tmp_path: Path) -> None:
    chance = random.Random(7)
    prices = {id: chance.choice([None, *(number(chance) for _ in range(6))]) for id in range(80)}
    with Graph.init(f"{tmp_path}/graph/", [Item]) as graph:
        graph.load(Item, [{"id": id, "price": price, "exact": Decimal(id)} for id, price in prices.items()])
        view = graph.snapshot().table(Item)

        def found(filter: Any) -> list[int]:
            return sorted(view.to_arrow(filter=filter, columns=["id"]).column(0).to_pylist())

        for _ in range(15):
            other = number(chance)
            for compare in COMPARISONS.values():
                wanted = [id for id, price in prices.items() if price is not None and compare(price, other)]
                assert found(compare(Item.price, other)) == wanted, (compare, other)
                assert found(~compare(Item.price, other)) == [
                    id for id, price in prices.items() if price is not None and id not in wanted]
        several = [number(chance) for _ in range(5)]
        assert found(Item.price.in_(several)) == [id for id, price in prices.items() if price in several]
        assert found(Item.price > Item.exact) == [
            id for id, price in prices.items() if price is not None and price > Decimal(id)]
        assert found(Item.exact > Decimal("76.5")) == [77, 78, 79]
        small = [price for price in prices.values() if price is not None and abs(price) < 10**6]
        query = "SELECT min(price) AS a, max(price) AS b, sum(price) AS c FROM item WHERE abs(price) < 1000000"
        with pytest.raises(Invalid, match="query"):
            graph.snapshot().sql(query)  # one of them has too many digits
        graph.delete(Item, where=Item.price > Decimal(10) ** 20)
        assert graph.snapshot().sql(query).to_pylist() == [{"a": min(small), "b": max(small), "c": sum(small)}]
        with pytest.raises(Invalid, match="finite"):
            found(Item.price > Decimal("NaN"))


def test_bounds_of_decimals_are_numbers(tmp_path: Path) -> None:
    with Graph.init(f"{tmp_path}/graph/", [Item]) as graph:
        graph.load(Item, [{"id": 1, "paid": Decimal(10)}, {"id": 2, "paid": "99.99"}, {"id": 3, "paid": 2}])
        for wrong in ("1.99", 100, "1E+2", Decimal("-1"), Decimal(10) ** 60):
            with pytest.raises(ConstraintError) as caught:
                graph.load(Item, [{"id": 4, "paid": wrong}])
            assert (caught.value.column, caught.value.constraint) == ("paid", "range")


@pytest.mark.parametrize(("column", "value"), [
    ("price", "abc"), ("price", "1,5"), ("price", ""), ("price", float("nan")), ("price", Decimal("Infinity")),
    ("price", True), ("price", [1]), ("code", "abc"), ("code", 7), ("tags", "abc"), ("tags", [1, 2]),
    ("tags", {"a": 1}), ("tags", 5), ("counts", [1]), ("counts", {"a": "x"}), ("counts", "a"), ("counts", {"a": None}),
])  # fmt: skip
def test_what_is_not_of_the_type_of_a_field_is_refused(tmp_path: Path, column: str, value: Any) -> None:
    """From dicts as from objects."""
    with Graph.init(f"{tmp_path}/graph/", [Item]) as graph:
        with pytest.raises(RowError) as caught:
            graph.load(Item, [{"id": 1}, {"id": 2, column: value}])
        assert (caught.value.row, caught.value.column) == (1, column)
        assert graph.snapshot().table(Item).count() == 0


def test_what_is_of_the_type_of_a_field_is_taken(tmp_path: Path) -> None:
    with Graph.init(f"{tmp_path}/graph/", [Item]) as graph:
        code = "6fa459ea-ee8a-3ca4-894e-db77e160355e"
        rows = [{"id": 1, "price": "1.50", "code": UUID(code), "tags": ["a"], "counts": {"b": 1}},
                {"id": 2, "price": 3, "code": None, "tags": [], "counts": {}}]  # fmt: skip
        graph.load(Item, rows)
        first = graph.snapshot().get(Item, 1)
        assert first is not None
        assert (first["price"], first["code"], first["tags"], first["counts"]) == ("1.50", code, ["a"], {"b": 1})
        for wrong in (pa.table({"id": [3], "price": ["x"]}), pa.table({"id": [3], "code": ["x"]})):
            with pytest.raises(RowError, match="x"):
                graph.load(Item, wrong)
