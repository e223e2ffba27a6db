"""A small shop for tests of pipelines: its types, its sources with and without mistakes, its pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from ontolake.faults import arm
from ontolake.model import Entity, Field, Relation
from ontolake.ontology import Session
from ontolake.spark import Pipeline


class Tier(Enum):
    GOLD = "gold"
    PLAIN = "plain"


class Person(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str] = Field(min_length=2)
    tier: Field[Tier] = Field(default=Tier.PLAIN)
    born: Field[date | None] = Field(default=None)
    visits: Field[int] = Field(default=0, ge=0)
    credit: Field[Decimal] = Field(default=Decimal("0.00"), max_digits=6, decimal_places=2)
    seen: Field[datetime | None] = Field(default=None)
    good: Field[bool | None] = Field(default=None)
    token: Field[UUID | None] = Field(default=None)
    extra: Field[dict[str, Any]] = Field(default_factory=dict)


class Goods(Entity):
    sku: Field[str] = Field(primary_key=True)
    price: Field[float]


class Bought(Relation[Person, Goods]):
    count: Field[int]


def at(step: str, action: Callable[[], None]) -> AbstractContextManager[None]:
    """Do something when a run has come to a step."""
    return arm(lambda reached: action() if reached == step else None)


HEADER = "id,name,tier,born,visits,credit,seen,good,token,extra"
GOOD = [
    "p1,Ada,gold,1990-01-31,5,12.50,2024-01-31T12:00:00Z,yes,12345678-1234-1234-1234-123456789ABC,\"{\"\"a\"\": 1}\"",
    "p2,Bob,,,,,2024-01-31 12:00:00+02:00,0,,",
    "\"p,3\",\"Cleo \"\"C\"\"\",plain,,7,1.5,,,,{}",
]
BAD = {
    "p4,X,gold,,,,,,,": "name: 'X' is shorter than 2",
    "p5,Dora,silver,,,,,,,": "tier: 'silver' is not one of",
    "p6,Dora,,1990-13-01,,,,,,": "born: '1990-13-01' is not a date",
    "p7,Dora,,,1.5,,,,,": "visits: '1.5' is not a whole number",
    "p8,Dora,,,-1,,,,,": "visits: '-1' is less than 0",
    "p9,Dora,,,,1.239,,,,": "credit: '1.239' is not a number with up to 6 digits",
    "p10,Dora,,,,,yesterday,,,": "seen: 'yesterday' is not a moment",
    "p11,Dora,,,,,,maybe,,": "good: 'maybe' is not true or false",
    "p12,Dora,,,,,,,123,": "token: '123' is not a UUID",
    "p13,Dora,,,,,,,,{": "extra: '{' is not a JSON object",
    "p17,Dora,,,,,,,,[]": "extra: '[]' is not a JSON object",
    ",Dora,,,,,,,,": "id: a value is missing",
    "p14,,,,,,,,,": "name: a value is missing",
    "p15,Dora": "does not have the 10 columns",
    "p16,No,,,,,,,,": "no is not a name",
}


def write(folder: Path, people: list[str], bought: list[Any] | None = None) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "people.csv").write_text("\n".join([HEADER, *people]) + "\n")
    pq.write_table(pa.table({"sku": ["s1", "s2"], "price": [1.5, 2.5]}), folder / "goods.parquet")
    lines = [{"who": "p1", "what": "s1", "count": 2}, {"who": "p2", "what": "s2", "count": 1}]
    (folder / "bought.jsonl").write_text("".join(
        (one if isinstance(one, str) else json.dumps(one)) + "\n" for one in (lines if bought is None else bought)))


def shop(folder: Path, **more: Any) -> Pipeline:
    made = Pipeline("shop", types=[Person, Goods, Bought], parameters={"data": "one"}, folder=folder,
                    **{"max_rejected": 0.9} | more)
    made.load(Person, made.csv("people", "{data}/people.csv"), checks={"no is not a name": "name <> 'No'"})
    made.load(Goods, made.parquet("goods", "{data}/goods.parquet"))
    made.load(Bought, made.json("bought", "{data}/bought.jsonl"), columns={"left_key": "who", "right_key": "what"})
    return made


def stock(folder: Path, **more: Any) -> Pipeline:
    """Goods alone, where it does not matter what is loaded: each table of a run takes its time."""
    made = Pipeline("stock", types=[Goods], parameters={"data": "one"}, folder=folder, **{"max_rejected": 0.9} | more)
    made.load(Goods, made.csv("goods", "{data}/goods.csv"))
    return made


def prices(folder: Path, **given: float | str) -> None:
    """What `stock` reads: goods with their prices."""
    folder.mkdir(exist_ok=True)
    lines = ["sku,price", *[f"{sku},{price}" for sku, price in given.items()]]
    (folder / "goods.csv").write_text("\n".join(lines) + "\n")


def priced(url: str, at: int | None = None) -> dict[str, float]:
    with Session(url, entity_types=[Goods]) as session:
        query = session.query().entities(Goods)
        return {one.sku: one.price for one in (query if at is None else query.as_of(at)).collect()}


def people(url: str, at: int | None = None) -> dict[str, Person]:
    with Session(url, entity_types=[Person, Goods], relation_types=[Bought]) as session:
        query = session.query().entities(Person)
        return {one.id: one for one in (query if at is None else query.as_of(at)).collect()}
