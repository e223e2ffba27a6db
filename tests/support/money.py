"""A scalar that is none of ours: amounts of money in cents. Nothing but this module knows of it."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import total_ordering
from typing import Any

from pydantic_core import core_schema

from ontolake.model.scalars import Codec, Digits, Scalar, register


@total_ordering
class Money:
    """An amount, exact to the cent."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    @classmethod
    def of(cls, value: Any) -> Money:
        """From an amount, its text or a decimal. Raises `ValueError`."""
        if isinstance(value, Money):
            return value
        if not isinstance(value, str | Decimal):
            raise ValueError(f"{value!r} is not an amount")
        try:
            cents = Decimal(value) * 100
        except ArithmeticError:
            raise ValueError(f"{value!r} is not an amount") from None
        if cents != cents.to_integral_value():
            raise ValueError(f"{value!r} has parts of a cent")
        return cls(int(cents))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and self.cents == other.cents

    def __lt__(self, other: Money) -> bool:
        return self.cents < other.cents

    def __hash__(self) -> int:
        return hash(self.cents)

    def __str__(self) -> str:
        return str(Decimal(self.cents).scaleb(-2))

    __repr__ = __str__

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return core_schema.no_info_plain_validator_function(cls.of)


class MoneyScalar(Scalar):
    """Cents in SQLite, `decimal128(18, 2)` elsewhere, text in JSON."""

    name, python = "Money", Money
    codec = Codec(lambda money: money.cents, lambda cents: Money(round(cents)), frozenset({Money}))
    wanted = "is not an amount such as 12.50"
    sqlite = "INTEGER"
    spark = "decimal(18,2)"
    sums = "value"
    key = numeric = statistics = True

    def to_json(self, value: Any) -> Any:
        return str(Money(value))

    def from_json(self, value: Any) -> Any:
        return Money.of(value)

    def arrow_type(self, digits: Digits = None) -> Any:
        import pyarrow as pa

        return pa.decimal128(18, 2)

    def to_arrow(self, values: Sequence[Any], digits: Digits = None) -> Any:
        import pyarrow as pa

        return pa.array([None if cents is None else Decimal(cents).scaleb(-2) for cents in values], self.arrow_type())

    def from_arrow(self, values: Any) -> list[Any]:
        return [None if value is None else int(value.scaleb(2)) for value in values.to_pylist()]


register(MoneyScalar())
