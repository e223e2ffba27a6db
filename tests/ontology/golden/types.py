"""The types of the golden stores, in every version that they went through, and what was written of them."""

from __future__ import annotations

import enum
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, TypedDict
from uuid import UUID

from ontolake.model import Entity, Field, Relation


class Tier(enum.Enum):
    GOLD = "gold"
    SILVER = "silver"


class Address(TypedDict):
    city: str
    zip: int


class Everything(Entity):
    """Every type of field that there is. Never to be changed."""

    id: Field[str] = Field(primary_key=True)
    number: Field[int] = Field(index=True)
    real: Field[float]
    truth: Field[bool]
    moment: Field[datetime]
    local: Field[datetime | None] = Field(default=None)
    day: Field[date]
    raw: Field[bytes]
    money: Field[Decimal]
    unique: Field[UUID]
    tier: Field[Tier | None] = Field(default=None)
    word: Field[Literal["a", "b"]]
    either: Field[str | int]
    items: Field[list[str]]
    table: Field[dict[str, float]]
    address: Field[Address | None] = Field(default=None)
    anything: Field[Any] = Field(default=None)
    commit_id: Field[int] = Field(default=0)
    renamed: Field[str] = Field(default="", name='a "stored" name')


class Numbered(Entity):
    id: Field[int] = Field(primary_key=True)


class Links(Relation[Everything, Numbered]):
    weight: Field[float] = Field(default=1.0)


class Rates(Relation[Everything, Numbered]):
    year: Field[str] = Field(instance_key=True)
    stars: Field[int]


def things() -> list[list[Any]]:
    """What each commit declared."""
    first = Everything(
        id="a", number=2**63 - 1, real=math.inf, truth=True, moment=datetime(2024, 2, 29, 12, 30, 15, 123456, UTC),
        local=datetime(1999, 12, 31, 23, 59, 59), day=date(1, 1, 1), raw=b"\0\xff", money=Decimal("123456789.10"),
        unique=UUID(int=7), tier=Tier.GOLD, word="a", either="1", items=["x", "", "é"], table={"b": 0.5, "a": -1e300},
        address={"city": "Köln", "zip": 50667}, anything={"z": [1, None, {"y": True}]}, commit_id=99, renamed="r",
    )  # fmt: skip
    second = Everything(
        id="ä 'quoted' \U0001f600", number=-(2**63), real=-0.5, truth=False, moment=datetime(2024, 1, 1),
        day=date(9999, 12, 31), raw=b"", money=Decimal("-1E+3"), unique=UUID(int=2**128 - 1), word="b", either=1,
        items=[], table={},
    )  # fmt: skip
    third = first.model_copy(update={"real": math.nan, "tier": None, "anything": "text"})
    return [
        [first, second, Numbered(id=-5), Numbered(id=7), Links(left_key="a", right_key=-5)],
        [third, Rates(left_key="a", right_key=7, year="2023", stars=4), Rates(left_key="a", right_key=7, year="2024",
                                                                             stars=5)],
        [Links(left_key="a", right_key=-5, weight=2.5), Links(left_key="nobody", right_key=7)],
    ]  # fmt: skip


def people(version: int) -> tuple[Any, Any]:
    """`Person` and `Knows` as they were in versions 1, 2 and 3."""
    if version == 1:

        class Person(Entity):
            id: Field[str] = Field(primary_key=True)
            name: Field[str]
    elif version == 2:

        class Person(Entity):  # type: ignore[no-redef]
            id: Field[str] = Field(primary_key=True)
            given: Field[str]
            family: Field[str | None] = Field(default=None)
    else:

        class Person(Entity):  # type: ignore[no-redef]
            id: Field[str] = Field(primary_key=True)
            names: Field[list[str]]

    class Knows(Relation[Person, Person]):
        since: Field[int] = Field(default=0)

    return Person, Knows


class Gone(Entity):
    """A type that was dropped."""

    id: Field[str] = Field(primary_key=True)


def split(row: dict[str, Any]) -> dict[str, Any]:
    given, _, family = row.pop("name").partition(" ")
    return {**row, "given": given, "family": family or None}


def join(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "names": [row["given"], *([row["family"]] if row["family"] else [])]}
