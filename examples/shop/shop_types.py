"""What the shop knows: customers, products, orders, payments, and who placed which order."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Literal

from ontolake.model import Entity, Field, Relation


class Customer(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str] = Field(min_length=1)
    email: Field[str | None] = Field(default=None, pattern="^[^@ ]+@[^@ ]+$")
    tier: Field[Literal["gold", "silver", "plain"]] = Field(default="plain", index=True)
    since: Field[date]


class Product(Entity):
    sku: Field[str] = Field(primary_key=True)
    title: Field[str]
    price: Field[Decimal] = Field(max_digits=10, decimal_places=2, gt=Decimal(0))


class Order(Entity):
    id: Field[int] = Field(primary_key=True)
    sku: Field[str]
    count: Field[int] = Field(ge=1)
    total: Field[Decimal] = Field(max_digits=12, decimal_places=2, ge=Decimal(0))
    at: Field[datetime]


class Payment(Entity):
    id: Field[str] = Field(primary_key=True)
    order: Field[int]
    amount: Field[Decimal] = Field(max_digits=12, decimal_places=2)
    paid: Field[bool] = Field(default=False)


class Placed(Relation[Customer, Order]):
    at: Field[datetime]


TYPES = [Customer, Product, Order, Payment, Placed]
