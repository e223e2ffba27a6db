"""The types that tests use: a small shop with every kind of field."""

from __future__ import annotations

import enum
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from ontolake.model import Entity, Field, Relation


class Tier(enum.Enum):
    GOLD = "gold"
    SILVER = "silver"


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    tier: Field[Tier | None] = Field(default=None, index=True)
    score: Field[float] = Field(default=0.0)
    active: Field[bool] = Field(default=True)
    born: Field[date | None] = Field(default=None)
    tags: Field[list[str]] = Field(default_factory=list)
    extra: Field[Any] = Field(default=None)


class Order(Entity):
    id: Field[int] = Field(primary_key=True)
    total: Field[Decimal]
    at: Field[datetime]
    commit_id: Field[int | None] = Field(default=None, name="commit_id")
    key: Field[bytes] = Field(default=b"")


class Placed(Relation[Customer, Order]):
    note: Field[str | None] = Field(default=None)
    count: Field[int] = Field(default=1)


class Rated(Relation[Customer, Order]):
    year: Field[str] = Field(instance_key=True)
    stars: Field[int] = Field(default=0)


ENTITIES: list[type[Entity]] = [Customer, Order]
RELATIONS: list[type[Relation[Any, Any]]] = [Placed, Rated]
