"""What SQLite lacks and typed columns need: the order and the sums of scalars, and lists of any length as values."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import apsw
import apsw.ext

from ontolake.model import scalars

VALUES = "ontolake_values"
"""A table of the values of a list, which is bound to a statement as one value: `value`, and `sort` of pairs."""


def install(db: apsw.Connection) -> None:
    """Give a connection our functions."""
    apsw.ext.make_virtual_module(db, VALUES, _TABLE)
    for scalar in scalars.every():
        if scalar.collation is not None:
            db.create_collation(scalar.collation, scalar.compare)
        for op in ("sum", "avg"):
            name = scalar.aggregate(op)
            if name is not None:
                db.create_aggregate_function(name, _aggregate(partial(scalar.total, op)), 1)


def given_list(values: Iterable[Any]) -> Any:
    """Values, or pairs of a value and its sort, as something to bind for `VALUES`."""
    return apsw.pyobject(list(values))


def key_list(values: Iterable[Any]) -> tuple[str, Any]:
    """A table of keys, or places of rows, for the FROM clause, and the list to bind for it.

    That is a table of SQLite's own where it can hold them, which needs no Python for each value.
    """
    items = tuple(values)
    kinds = set(map(type, items)) if hasattr(apsw, "carray") else set()
    try:
        if kinds == {str}:
            return "carray", apsw.carray(items)
        if kinds == {int}:
            return "carray", apsw.carray(array("q", items))
    except (ValueError, OverflowError):  # text with zeros in it, and numbers that no column holds
        pass
    return VALUES, given_list(items)


def _listed(given: Any) -> Iterator[tuple[Any, Any]]:
    return (one if isinstance(one, tuple) else (one, None) for one in given)


_TABLE: Any = _listed
_TABLE.columns = ("value", "sort")
_TABLE.column_access = apsw.ext.VTColumnAccess.By_Index


def _aggregate(end: Any) -> Any:
    return lambda: ([], _collect, end)


def _collect(values: list[Any], value: Any) -> None:
    if value is not None:
        values.append(value)
