"""What SQLite lacks and typed columns need: the order and the sums of decimals, and lists of any length as values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal, localcontext
from typing import Any

import apsw
import apsw.ext

VALUES = "ontolake_values"
"""A table of the values of a list, which is bound to a statement as one value: `value`, and `sort` of pairs."""

DECIMAL = "ontolake_decimal"
"""A collation under which texts of decimals compare as numbers."""


def install(db: apsw.Connection) -> None:
    """Give a connection our functions."""
    db.create_collation(DECIMAL, _compare)
    apsw.ext.make_virtual_module(db, VALUES, _TABLE)
    for name, end in (("sum", _total), ("avg", _average)):
        db.create_aggregate_function(f"ontolake_decimal_{name}", _aggregate(end), 1)


def given_list(values: Iterable[Any]) -> Any:
    """Values, or pairs of a value and its sort, as something to bind for `VALUES`."""
    return apsw.pyobject(list(values))


def _listed(given: Any) -> Iterator[tuple[Any, Any]]:
    return (one if isinstance(one, tuple) else (one, None) for one in given)


_TABLE: Any = _listed
_TABLE.columns = ("value", "sort")
_TABLE.column_access = apsw.ext.VTColumnAccess.By_Index


def _aggregate(end: Callable[[list[Decimal]], str | None]) -> Any:
    return lambda: ([], _collect, end)


def _compare(left: str, right: str) -> int:
    try:
        one, two = Decimal(left), Decimal(right)
    except ArithmeticError:
        return (left > right) - (left < right)
    return (one > two) - (one < two)


def _collect(values: list[Decimal], text: Any) -> None:
    if text is not None:
        values.append(Decimal(text))


def _total(values: list[Decimal]) -> str | None:
    with localcontext(prec=60):
        return str(sum(values, Decimal(0))) if values else None


def _average(values: list[Decimal]) -> str | None:
    with localcontext(prec=60):
        total = sum(values, Decimal(0))
    return str(total / len(values)) if values else None
