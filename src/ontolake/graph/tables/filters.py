"""Filters in Lance's words: SQL text as users write it, or conditions on the fields of a class."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, NamedTuple, assert_never

from ontolake.errors import Invalid, OntolakeError
from ontolake.graph.errors import in_short, reading
from ontolake.graph.tables.types import GraphType
from ontolake.model import scalars, type_info
from ontolake.model.filters import (
    Compare,
    CompareOp,
    Condition,
    Junction,
    JunctionOp,
    Match,
    MatchOp,
    Member,
    Negation,
    Shape,
    TestOp,
    UnaryTest,
    ValueRef,
    balanced,
)


def to_sql(filter: Any) -> str | None:
    """A filter as SQL text. Raises `Invalid` for what cannot be one."""
    if filter is None or isinstance(filter, str):
        return filter or None
    if isinstance(filter, Condition):
        return _shape(filter.shape, iter(filter.values))
    raise Invalid(f"a filter is SQL text or a condition such as Customer.tier == 'gold', not {filter!r}")


_DAMAGE = ("LanceError(IO)", "Not found", "a Lance file", "corrupt", "Generic ")


@contextmanager
def filtering(kind: GraphType, filter: Any) -> Iterator[None]:
    """Tell whether a filter or what is stored is to blame: `Invalid`, or what `reading` raises."""
    with reading(kind.table):
        try:
            yield
        except (ValueError, OSError) as error:
            text = in_short(error)
            if filter is None or isinstance(error, OntolakeError) or any(sign in text for sign in _DAMAGE):
                raise
            raise Invalid(f"{kind.table}: the filter {to_sql(filter)!r} cannot be used: {text}",
                          hint=f"write SQL over the columns {', '.join(kind.by_name)}") from error


def literal(value: Any) -> str:
    """A value as SQL text."""
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None:
        return "NULL"
    scalar = scalars.of_value(value)
    if scalar is None:
        raise Invalid(f"{value!r} cannot stand in a filter")
    try:
        return scalar.lance_literal(value)
    except ValueError as error:
        raise Invalid(f"{value!r} cannot stand in a filter: {error}") from None


def _column(ref: Any) -> str:
    if not isinstance(ref, ValueRef) or ref.side or ref.path or ref.any_path is not None:
        raise Invalid(f"a filter of a table cannot look at {ref!r}", hint="compare fields of the type itself")
    return f"`{type_info(ref.owner).by_name[ref.name].stored}`"


def _shape(shape: Shape, values: Iterator[Any]) -> str:
    match shape:
        case Junction():
            return balanced(_word(shape.op), [_shape(part, values) for part in shape.parts])
        case Negation():
            return f"(NOT {_shape(shape.part, values)})"
        case Compare():
            return _compare(shape, values)
        case Member():
            return _member(shape, values)
        case UnaryTest():
            return f"{_column(shape.ref)} {_test(shape.op)}"
        case Match():
            return f"{_function(shape.op)}({_column(shape.ref)}, {literal(next(values))})"
        case _:
            assert_never(shape)


def _compare(shape: Compare, values: Iterator[Any]) -> str:
    sign = _sign(shape.op)
    if _is_decimal(shape.ref):
        right = _decimal_column(shape.other) if shape.other is not None else _decimal(next(values))
        return _decimals(_decimal_column(shape.ref), sign, right)
    other = _column(shape.other) if shape.other is not None else literal(next(values))
    return f"{_column(shape.ref)} {sign} {other}"


def _member(shape: Member, values: Iterator[Any]) -> str:
    if _is_decimal(shape.ref):
        number = _decimal_column(shape.ref)
        same = [_decimals(number, "=", _decimal(next(values))) for _ in range(shape.size)]
        return f"({' OR '.join(same)})" if same else "false"
    found = [literal(next(values)) for _ in range(shape.size)]
    return f"{_column(shape.ref)} IN ({', '.join(found)})" if found else "false"


def _word(op: JunctionOp) -> str:
    match op:
        case "and":
            return "AND"
        case "or":
            return "OR"
        case _:
            assert_never(op)


def _sign(op: CompareOp) -> str:
    match op:
        case "==":
            return "="
        case "!=":
            return "<>"
        case "<" | "<=" | ">" | ">=":
            return op
        case _:
            assert_never(op)


def _test(op: TestOp) -> str:
    match op:
        case "is_null":
            return "IS NULL"
        case "is_not_null":
            return "IS NOT NULL"
        case "is_true":
            return "IS TRUE"
        case "is_false":
            return "IS FALSE"
        case _:
            assert_never(op)


def _function(op: MatchOp) -> str:
    match op:
        case "startswith":
            return "starts_with"
        case "endswith":
            return "ends_with"
        case "contains":
            return "contains"
        case _:
            assert_never(op)


# Decimals without digits are text in a table, which sorts in another way and has several forms of one number.

_WIDE = "Decimal256(76, 38)"
_EXACT = 38


class _Number(NamedTuple):
    """A decimal: when it does not fit the type for exact ones, what it is as such, and as a float."""

    odd: str
    exact: str
    rough: str


def _is_decimal(ref: Any) -> bool:
    plain = isinstance(ref, ValueRef) and not ref.side and not ref.path and ref.any_path is None
    return plain and type_info(ref.owner).by_name[ref.name].type.fixed_point


def _decimal_column(ref: Any) -> _Number:
    name = _column(ref)
    if type_info(ref.owner).by_name[ref.name].decimal is not None:
        return _Number("false", f"arrow_cast({name}, '{_WIDE}')", f"CAST({name} AS double)")
    return _Number(f"(length({name}) > {_EXACT} OR strpos(upper({name}), 'E') > 0)",
                   f"arrow_cast(regexp_replace({name}, '^(.*[eE].*|.{{{_EXACT + 1},}})$', '0'), '{_WIDE}')",
                   f"CAST({name} AS double)")  # fmt: skip


def _decimal(value: Any) -> _Number:
    if value is None:
        return _Number("false", "NULL", "NULL")
    try:
        text = format(Decimal(str(value.value if isinstance(value, enum.Enum) else value)), "f")
        if not Decimal(text).is_finite():
            raise ValueError
    except (ArithmeticError, ValueError):
        raise Invalid(f"{value!r} is not a decimal", hint="compare with a finite number") from None
    odd = len(text) > _EXACT
    return _Number(str(odd).lower(), f"arrow_cast('{'0' if odd else text}', '{_WIDE}')", f"CAST('{text}' AS double)")


def _decimals(left: _Number, sign: str, right: _Number) -> str:
    odd = f"({left.odd} OR {right.odd})"
    return f"((NOT {odd} AND {left.exact} {sign} {right.exact}) OR ({odd} AND {left.rough} {sign} {right.rough}))"
