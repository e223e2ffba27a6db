"""Conditions that keys can answer: a column against constants, taken from the WHERE of a statement."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from datetime import date
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any, NamedTuple

import msgspec
import numpy as np
from sqlglot import exp

from ontolake.sql.catalog.records import ColumnMeta
from ontolake.sql.errors import SqlError
from ontolake.sql.syntax.statements import NotConstant, Parameters, constant, given_value, mark_place, name_of
from ontolake.sql.types import TEXT, Kind, Stored, Type

_WIDE = Context(prec=200_000, Emin=MIN_EMIN, Emax=MAX_EMAX)
"""Rounds no number that a NUMERIC can hold."""

EQUAL, LOW, ABOVE, HIGH, BELOW = "=", ">=", ">", "<=", "<"
_OPERATORS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: (EQUAL, EQUAL), exp.GTE: (LOW, HIGH), exp.GT: (ABOVE, BELOW), exp.LTE: (HIGH, LOW), exp.LT: (BELOW, ABOVE),
}  # fmt: skip


class ColumnCondition(NamedTuple):
    """`column operator one of the values`."""

    column: ColumnMeta
    operator: str
    values: Callable[[Parameters], Sequence[Any]]
    """Gives the values, once those of parameters are known."""
    conjunct: int
    """Which part of the WHERE it is from: it takes all conditions of a part to make that part true."""
    single: bool = False
    """Whether there is one value."""


def conjuncts(node: exp.Expr | None) -> Iterator[exp.Expr]:
    """The parts of a condition that are joined by AND."""
    while isinstance(node, exp.Paren | exp.Where):
        node = node.this
    if isinstance(node, exp.And):
        yield from conjuncts(node.this)
        yield from conjuncts(node.expression)
    elif node is not None:
        yield node


def inner_parts(query: exp.Expr, *, joined: bool = False) -> list[exp.Expr]:
    """The conditions that every row of a query satisfies: its WHERE, and the ON of its joins if all are inner ones.

    With `joined`, nothing if there are others.
    """
    joins = query.args.get("joins") or ()
    inner = all(not join.side and join.kind in ("", "INNER", "CROSS") for join in joins)
    if joined and not inner:
        return []
    parts = list(conjuncts(query.args.get("where")))
    return parts + [part for join in joins for part in conjuncts(join.args.get("on"))] if inner else parts


Resolve = Callable[[exp.Expr], ColumnMeta | None]
"""The column of a table that a node is, or an expression that one of its indexes is on."""


def conditions_of(node: exp.Expr, number: int, resolve: Resolve) -> list[ColumnCondition]:
    """What a part of a WHERE says about one column, if it is that simple; else nothing."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Between):
        column = _column(node.this, resolve)
        low, high = node.args["low"], node.args["high"]
        if column is None or not _are_values(column, low, high) or node.args.get("symmetric"):
            return []
        return [ColumnCondition(column, LOW, _values([low]), number),
                ColumnCondition(column, HIGH, _values([high]), number)]
    if isinstance(node, exp.In):
        column = _column(node.this, resolve)
        nodes = node.expressions
        if column is None or not nodes or node.args.get("query") or not _are_values(column, *nodes):
            return []
        return [ColumnCondition(column, EQUAL, _values(nodes), number)]
    operators = _OPERATORS.get(type(node))
    if operators is None:
        return []
    left, right = node.this, node.expression
    if operators[0] == EQUAL and isinstance(right, exp.Any):
        column, inner = _column(left, resolve), right.this
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if column is None or not isinstance(inner, exp.Placeholder | exp.Array):
            return []
        if isinstance(inner, exp.Array):
            given = inner.expressions
            return [ColumnCondition(column, EQUAL, _values(given), number)] if _are_values(column, *given) else []
        return [ColumnCondition(column, EQUAL, _elements(inner), number)]
    if _is_value(right) and (column := _column(left, resolve)) is not None and _are_values(column, right):
        return [ColumnCondition(column, operators[0], _values([right]), number, True)]
    if _is_value(left) and (column := _column(right, resolve)) is not None and _are_values(column, left):
        return [ColumnCondition(column, operators[1], _values([left]), number, True)]
    return []


def _values(nodes: Sequence[exp.Expr]) -> Callable[[Parameters], Sequence[Any]]:
    """How to get the values of literals and parameters."""
    if not any(isinstance(node, exp.Placeholder) for node in nodes):
        constants = [constant(node) for node in nodes]
        return lambda parameters: constants
    places = [mark_place(node) if isinstance(node, exp.Placeholder) else None for node in nodes]
    if None not in places:
        return lambda parameters: [parameters[place] for place in places]  # type: ignore[index]
    return lambda parameters: [
        given_value(node, parameters) if isinstance(node, exp.Placeholder) else constant(node) for node in nodes]


def _elements(node: exp.Expr) -> Callable[[Parameters], Sequence[Any]]:
    """How to get the elements of a parameter that is a list."""

    def values(parameters: Parameters) -> Sequence[Any]:
        given = given_value(node, parameters)
        return list(given) if isinstance(given, list | tuple | set | frozenset) else [given]

    return values


def _column(node: exp.Expr, resolve: Resolve) -> ColumnMeta | None:
    while isinstance(node, exp.Paren):
        node = node.this
    return None if isinstance(node, exp.Literal | exp.Placeholder) else resolve(node)


def _are_values(column: ColumnMeta, *nodes: exp.Expr) -> bool:
    """Whether nodes are constants that keys of a column can be compared with.

    CHAR is compared as text, blanks and all, with what is converted to it.
    """
    return all(map(_is_value, nodes)) and not (column.type.padded and any(isinstance(each, exp.Cast) for each in nodes))


def _is_value(node: exp.Expr) -> bool:
    if isinstance(node, exp.Placeholder):
        return True
    try:
        constant(node)
    except (NotConstant, SqlError):
        return False
    return True


def exact(column: ColumnMeta, value: Any) -> Stored:
    """The stored form of a column that a value of a condition equals, or None: see `exact_form`."""
    return exact_form(column.type, value)


def exact_form(type: Type, value: Any) -> Stored:
    """The stored form that a value of a condition equals, or None if no stored form does exactly.

    What is not exact is left to the engine that evaluates conditions on rows.
    """
    kind = type.kind
    if kind == Kind.INT64 and value.__class__ is int:
        return value if -(2**63) <= value < 2**63 else None
    if value is None or (isinstance(value, float) and kind not in (Kind.DOUBLE, Kind.REAL)):
        return None
    if kind == Kind.DECIMAL and isinstance(value, int | Decimal | str):
        try:
            number = Decimal(value)
        except ArithmeticError:
            return None
        if not _is_whole(number, type.scale):
            return None
    elif kind == Kind.INT64 and isinstance(value, Decimal):
        if not _is_whole(value):
            return None
    elif kind == Kind.REAL and not isinstance(value, str):
        try:
            if float(value) != type.store(value):
                return None
        except (SqlError, ValueError, TypeError, OverflowError):
            return None
    elif kind == Kind.TIMESTAMP_US and isinstance(value, np.datetime64):
        if value.astype("datetime64[us]") != value:
            return None
    elif (
        (kind == Kind.DOUBLE and isinstance(value, int) and abs(value) > 2**53)
        or (kind == Kind.DATE and not (isinstance(value, str) or value.__class__ is date))
        or (kind == Kind.BOOLEAN and not isinstance(value, bool))
        or (kind == Kind.UTF8 and not isinstance(value, str))
    ):
        return None
    try:
        if kind == Kind.UTF8:
            return TEXT.store(value.rstrip(" ") if type.padded and isinstance(value, str) else value)
        if type.scale and kind in (Kind.TIMESTAMP_US, Kind.TIME, Kind.INTERVAL):
            return msgspec.structs.replace(type, scale=0).store(value)
        return type.store(value)
    except SqlError:
        return None


def _is_whole(number: Decimal, digits: int = 0) -> bool:
    """Whether a number has no more than so many digits behind the point."""
    if not number.is_finite():
        return False
    try:
        moved = number.scaleb(digits, _WIDE)
    except ArithmeticError:
        return False
    return moved == moved.to_integral_value()


def is_hiding(tree: exp.Expr, names: Container[str]) -> bool:
    """Whether an output of a query has a name of these but is something else, which an ORDER BY would then mean."""
    named = {name_of(each.args["alias"]): each.this for each in tree.expressions if isinstance(each, exp.Alias)}
    return any(name in names and not (isinstance(node, exp.Column) and table_and_name(node)[1] == name)
               for name, node in named.items())  # fmt: skip


def table_and_name(column: exp.Column) -> tuple[str, str]:
    """The alias that qualifies a column, or nothing, and its name."""
    return name_of(column.args.get("table")), name_of(column.this)
