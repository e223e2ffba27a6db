"""Expressions over a few rows, in Python: columns, integers, text and truth values, and what is common among them.

An expression is compiled once. What is not in this short list, or would need an error of PostgreSQL's, is `Unable`:
then the executor of queries is asked, which has the same answer for everything that is in the list.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from sqlglot import exp

from ontolake.sql.errors import SqlError
from ontolake.sql.plan.conditions import exact_form
from ontolake.sql.syntax.statements import NotConstant, Parameters, constant, mark_place
from ontolake.sql.types import BIGINT, BOOLEAN, INTEGER, SMALLINT, TEXT, Kind, Stored, Type

Env = Sequence[Sequence[Stored]]
"""A row of each source, with its columns by id."""
Run = Callable[[Env, Parameters], Any]


class Unable(Exception):
    """The expression, or a value in it, is not for this module."""


class Compiled(NamedTuple):
    """An expression: its type, or None for a parameter or constant, which has the type of what it meets; its value."""

    type: Type | None
    run: Run


Resolve = Callable[[exp.Column], "tuple[int, int, Type] | None"]
"""Finds the source, the place and the type of a column."""

_COMPARED: dict[type[exp.Expr], Callable[[Any, Any], bool]] = {
    exp.EQ: operator.eq, exp.NEQ: operator.ne, exp.LT: operator.lt, exp.LTE: operator.le, exp.GT: operator.gt,
    exp.GTE: operator.ge,
}  # fmt: skip
_ADDED: dict[type[exp.Expr], Callable[[Any, Any], int]] = {
    exp.Add: operator.add, exp.Sub: operator.sub, exp.Mul: operator.mul}
_OPERANDS = frozenset({"this", "expression"})
_KNOWN: dict[type[exp.Expr], frozenset[str]] = {
    exp.Column: frozenset({"this", "table"}), exp.Is: _OPERANDS | {"negate"}, exp.Literal: _OPERANDS | {"is_string"},
    exp.Anonymous: frozenset({"this", "expressions"}),
    exp.Placeholder: frozenset({"this", "kind", "widget", "jdbc"}), exp.DPipe: _OPERANDS | {"safe"},
    exp.In: frozenset({"this", "expressions"}), exp.Between: frozenset({"this", "low", "high"}),
    exp.Cast: frozenset({"this", "to"}),
}  # fmt: skip
"""What parts a node may have; anything else may mean something that is not known here."""
_ORDERED: dict[int, frozenset[type]] = {
    Kind.DATE: frozenset({str, date}), Kind.TIMESTAMP_US: frozenset({str, datetime}),
    Kind.DECIMAL: frozenset({int, Decimal, str}), Kind.DOUBLE: frozenset({int, float, Decimal, str}),
}  # fmt: skip
"""Kinds whose stored forms have the order of their values, and what may stand for values in a statement."""


def compiled(node: exp.Expr, resolve: Resolve) -> Compiled:
    """An expression, ready to run. Raises `Unable`."""
    kind = type(node)
    if any(given for name, given in node.args.items() if name not in _KNOWN.get(kind, _OPERANDS)):
        raise Unable
    if kind is exp.Paren:
        return compiled(node.this, resolve)
    if kind is exp.Column:
        return _column(node, resolve)  # type: ignore[arg-type]
    if kind is exp.Placeholder:
        place: Any = mark_place(node)
        return Compiled(None, lambda env, parameters: parameters[place])
    if kind in _COMPARED:
        return _comparison(_COMPARED[kind], compiled(node.this, resolve), compiled(node.expression, resolve))
    if kind in _ADDED:
        return _arithmetic(_ADDED[kind], compiled(node.this, resolve), compiled(node.expression, resolve))
    if kind is exp.And or kind is exp.Or:
        return _connected(kind is exp.Or, compiled(node.this, resolve), compiled(node.expression, resolve))
    if kind is exp.Not:
        inner = _truth(compiled(node.this, resolve)).run
        return Compiled(BOOLEAN, lambda env, parameters: None if (value := inner(env, parameters)) is None
                        else not value)  # fmt: skip
    if kind is exp.Is and type(node.expression) is exp.Null:
        value, wanted = _typed(compiled(node.this, resolve)).run, not node.args.get("negate")
        return Compiled(BOOLEAN, lambda env, parameters: (value(env, parameters) is None) is wanted)
    if kind is exp.DPipe:
        return _joined(_text(compiled(node.this, resolve)), _text(compiled(node.expression, resolve)))
    if kind is exp.Anonymous and node.this in ("upper", "lower") and len(node.expressions) == 1:
        return _cased(node.this == "upper", _text(compiled(node.expressions[0], resolve)))
    if kind is exp.In and node.expressions:
        return _among([_compared(operator.eq, node.this, each, resolve) for each in node.expressions])
    if kind is exp.Between:
        return _connected(False, _compared(operator.ge, node.this, node.args["low"], resolve),
                          _compared(operator.le, node.this, node.args["high"], resolve))  # fmt: skip
    if kind is exp.Like:
        return _like(_text(compiled(node.this, resolve)), compiled(node.expression, resolve))
    return _constant(node)


def _compared(compare: Callable[[Any, Any], bool], left: exp.Expr, right: exp.Expr, resolve: Resolve) -> Compiled:
    return _comparison(compare, compiled(left, resolve), compiled(right, resolve))


def _among(found: Sequence[Compiled]) -> Compiled:
    """Whether any of some comparisons holds."""
    runs = [each.run for each in found]

    def run(env: Env, parameters: Parameters) -> bool | None:
        values = [each(env, parameters) for each in runs]
        return True if True in values else None if None in values else False

    return Compiled(BOOLEAN, run)


def _column(node: exp.Column, resolve: Resolve) -> Compiled:
    found = resolve(node)
    if found is None:
        raise Unable
    source, place, type = found
    return Compiled(type, lambda env, parameters: env[source][place])


def _constant(node: exp.Expr) -> Compiled:
    if not isinstance(node, exp.Literal | exp.Neg | exp.Boolean | exp.Null | exp.Cast):
        raise Unable
    try:
        value = constant(node)
    except (NotConstant, SqlError) as error:
        raise Unable from error
    if isinstance(node, exp.Cast) and type(value) not in (date, datetime):
        raise Unable
    if value is not None and type(value) not in (int, str, bool, Decimal, date, datetime):
        raise Unable
    return Compiled(None, lambda env, parameters: value)


def _is_integer(type: Type | None) -> bool:
    return type is not None and type.kind == Kind.INT64


def _is_text(type: Type | None) -> bool:
    return type == TEXT


def _typed(given: Compiled) -> Compiled:
    if given.type is None:
        raise Unable
    return given


def _as(python: type, given: Compiled) -> Run:
    """The value of an operand, which is of a Python type if it stands in the statement or its parameters."""
    if given.type is not None:
        return given.run

    def run(env: Env, parameters: Parameters) -> Any:
        value = given.run(env, parameters)
        if value is not None and type(value) is not python:
            raise Unable
        return value

    return run


def _comparison(compare: Callable[[Any, Any], bool], left: Compiled, right: Compiled) -> Compiled:
    types = [each.type for each in (left, right) if each.type is not None]
    if types and all(map(_is_integer, types)):
        python: type = int
    elif types and all(map(_is_text, types)) and not any(type.length for type in types):
        python = str
    elif types and all(type.kind == Kind.BOOLEAN for type in types):
        python = bool
    elif types and types[0].kind in _ORDERED and all(each == types[0] for each in types):
        return _stored_comparison(compare, types[0], left, right)
    else:
        raise Unable
    one, other = _as(python, left), _as(python, right)

    def run(env: Env, parameters: Parameters) -> bool | None:
        a, b = one(env, parameters), other(env, parameters)
        return None if a is None or b is None else bool(compare(a, b))

    return Compiled(BOOLEAN, run)


def _stored_comparison(
    compare: Callable[[Any, Any], bool], type: Type, left: Compiled, right: Compiled
) -> Compiled:
    """A comparison of values of one type, whose stored forms have their order."""
    one, other = _stored(type, left), _stored(type, right)

    def run(env: Env, parameters: Parameters) -> bool | None:
        a, b = one(env, parameters), other(env, parameters)
        if a is None or b is None:
            return None
        if a != a or b != b:  # NaN, which PostgreSQL has an order for
            raise Unable
        return bool(compare(a, b))

    return Compiled(BOOLEAN, run)


def _stored(type: Type, given: Compiled) -> Run:
    """The stored form of an operand, which is read as the type if it stands in the statement or its parameters."""
    if given.type is not None:
        return given.run
    allowed = _ORDERED[Kind(type.kind)]

    def run(env: Env, parameters: Parameters) -> Any:
        value = given.run(env, parameters)
        if value is None:
            return None
        found = exact_form(type, value) if value.__class__ in allowed else None
        if found is None:
            raise Unable
        return found

    return run


def _like(given: Compiled, pattern: Compiled) -> Compiled:
    value, wanted = _typed(given).run, _as(str, pattern)
    if pattern.type is not None:
        raise Unable

    def run(env: Env, parameters: Parameters) -> bool | None:
        text, like = value(env, parameters), wanted(env, parameters)
        if text is None or like is None:
            return None
        if "\\" in like or ("_" in like and not text.isascii()):
            raise Unable
        return _pattern(like).fullmatch(text) is not None

    return Compiled(BOOLEAN, run)


@lru_cache(maxsize=256)
def _pattern(like: str) -> re.Pattern[str]:
    parts = [".*" if each == "%" else "." if each == "_" else re.escape(each) for each in like]
    return re.compile("".join(parts), re.DOTALL)


def _arithmetic(combine: Callable[[Any, Any], int], left: Compiled, right: Compiled) -> Compiled:
    """Integers; a number in the statement is an INTEGER, as it is without a column beside it."""
    types = [each.type for each in (left, right) if each.type is not None]
    if not types or not all(map(_is_integer, types)):
        raise Unable
    bits = max(type.bits for type in (*types, *([] if len(types) == 2 else [INTEGER])))
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    one, other = _as(int, left), _as(int, right)

    def run(env: Env, parameters: Parameters) -> int | None:
        a, b = one(env, parameters), other(env, parameters)
        if a is None or b is None:
            return None
        found = combine(a, b)
        if not least <= found <= most or not least <= a <= most or not least <= b <= most:
            raise Unable
        return found

    return Compiled(BIGINT if bits == 64 else INTEGER if bits == 32 else SMALLINT, run)


def _truth(given: Compiled) -> Compiled:
    if given.type is None or given.type.kind != Kind.BOOLEAN:
        raise Unable
    return given


def _connected(is_or: bool, left: Compiled, right: Compiled) -> Compiled:
    one: Run = _truth(left).run
    other: Run = _truth(right).run

    def run(env: Env, parameters: Parameters) -> bool | None:
        a: bool | None = one(env, parameters)
        b: bool | None = other(env, parameters)
        if a is is_or or b is is_or:
            return is_or
        return None if a is None or b is None else (not is_or)

    return Compiled(BOOLEAN, run)


def _text(given: Compiled) -> Compiled:
    """An operand that is text; of a limited length only if that changes nothing."""
    if given.type is not None and (not _is_text(given.type) or given.type.length):
        raise Unable
    return given


def _joined(left: Compiled, right: Compiled) -> Compiled:
    if left.type is None and right.type is None:
        raise Unable
    one, other = _as(str, left), _as(str, right)

    def run(env: Env, parameters: Parameters) -> str | None:
        a, b = one(env, parameters), other(env, parameters)
        return None if a is None or b is None else a + b

    return Compiled(TEXT, run)


def _cased(upper: bool, given: Compiled) -> Compiled:
    inner = _typed(given).run

    def run(env: Env, parameters: Parameters) -> str | None:
        value = inner(env, parameters)
        if value is None:
            return None
        if not value.isascii():  # other letters change by tables that differ
            raise Unable
        return str(value.upper() if upper else value.lower())

    return Compiled(TEXT, run)
