"""Classes from stored schemas, and schemas as Python source: the same types again, to the hash."""

from __future__ import annotations

import enum
import json
import sys
from datetime import date, datetime
from decimal import Decimal
from types import ModuleType
from typing import Any, Literal, NotRequired
from uuid import UUID

import pytest
from typing_extensions import TypedDict

from ontolake.model import Entity, Field, Relation, SchemaValidationError, schema_hash, schema_of, type_info
from ontolake.model.restoration import restore
from ontolake.model.source import python_source


class Tier(enum.Enum):
    GOLD = "gold"
    OTHER = "something else"


class Level(enum.IntEnum):
    ONE = 1
    TWO = 2


class Address(TypedDict):
    street: str
    since: NotRequired[datetime]


class Tree(TypedDict):
    children: list[Tree]
    label: Literal["leaf", "it's"]


Odd = TypedDict("Odd", {"a b": int, "class": NotRequired[str]})


class Everything(Entity):
    id: Field[str] = Field(primary_key=True)
    optional: Field[int | None]
    tier: Field[Tier | None]
    level: Field[Level]
    choice: Field[Literal["x", "y"]]
    addresses: Field[list[Address]]
    numbers: Field[dict[str, int | str]]
    some: Field[set[int]]
    pair: Field[tuple[int, str]]
    many: Field[tuple[int, ...]]
    anything: Field[Any]
    tree: Field[Tree]
    money: Field[Decimal]
    uuid: Field[UUID]
    data: Field[bytes]
    real: Field[float]
    truth: Field[bool]
    day: Field[date] = Field(name="date")
    spaced: Field[str] = Field(name="my field")
    reserved: Field[str] = Field(name="model_dump")
    hidden: Field[str] = Field(name="_hidden")
    word: Field[int] = Field(name="class")
    nothing: Field[None]
    mixed: Field[int | str | None]
    strange: Field[int | Tier]
    odd: Field[Odd]


class Order(Entity):
    id: Field[int] = Field(primary_key=True)


class Rated(Relation[Everything, Order]):
    year: Field[str] = Field(instance_key=True)
    stars: Field[int]


class Empty(Relation[Order, Order]):
    pass


CLASSES = (Everything, Order, Rated, Empty)


def stored(*classes: Any) -> list[dict[str, Any]]:
    """Schemas as they come out of a store."""
    return [json.loads(json.dumps(schema_of(cls), sort_keys=True)) for cls in classes]


def test_a_restored_class_has_the_schema_it_was_made_from() -> None:
    schemas = stored(*CLASSES)
    found = restore(schemas)
    assert len(found) == 4
    for schema in schemas:
        cls = found[schema["kind"], schema["name"]]
        assert schema_of(cls) == schema
        assert type_info(cls).schema_hash == schema_hash(schema)
    rated = type_info(found["relation", "Rated"])
    assert rated.left is found["entity", "Everything"]


def test_a_restored_class_checks_its_values() -> None:
    order, rated = (restore(stored(*CLASSES))[key] for key in (("entity", "Order"), ("relation", "Rated")))
    assert type_info(order).encode(order(id=3)) == (3,)
    assert type_info(rated).encode(rated(left_key="a", right_key=1, year="2024", stars=5)) == ("a", 1, "2024", 5)
    with pytest.raises(SchemaValidationError, match="stars"):
        rated(left_key="a", right_key=1, year="2024", stars="many")
    with pytest.raises(SchemaValidationError, match="right_key"):
        rated(left_key="a", right_key="one", year="2024", stars=1)


def test_ends_that_are_not_stored_are_made_up_and_given_ones_are_used() -> None:
    alone = restore(stored(Rated))
    assert list(alone) == [("relation", "Rated")]
    assert type_info(alone["relation", "Rated"]).left.__name__ == "Everything"
    assert schema_of(alone["relation", "Rated"]) == stored(Rated)[0]
    given = restore(stored(Everything, Rated), {("entity", "Order"): Order})
    assert type_info(given["relation", "Rated"]).right is Order


def written(source: str, *names: str) -> list[dict[str, Any]]:
    """The schemas of classes of a module with this source."""
    module = ModuleType("written_by_a_test")
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, "written", "exec", dont_inherit=True), module.__dict__)
        return [schema_of(getattr(module, name)) for name in names]
    finally:
        del sys.modules[module.__name__]


def test_source_has_classes_of_the_same_schemas() -> None:
    schemas = stored(*CLASSES)
    assert written(python_source(schemas, 'a "shop"'), *(schema["name"] for schema in schemas)) == schemas


def test_two_enums_of_one_name_are_kept_apart_in_source() -> None:
    def declare(*values: str) -> Any:
        return enum.Enum("Tier", {value.upper(): value for value in values})  # type: ignore[misc]

    first, second = declare("a", "b"), declare("c")

    class One(Entity):
        id: Field[int] = Field(primary_key=True)
        tier: Field[first]

    class Two(Entity):
        id: Field[int] = Field(primary_key=True)
        tier: Field[second]

    schemas = stored(One, Two)
    assert written(python_source(schemas, "x"), "One", "Two") == schemas
