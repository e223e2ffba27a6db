"""Functions that DataFusion answers with an infinity or no number, where PostgreSQL raises an error.

What they are given goes through a check first, a whole column at a time.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

if TYPE_CHECKING:
    from datafusion import ScalarUDF, SessionContext

LOGARITHM_OF_ZERO = "cannot take the logarithm of zero"
LOGARITHM_OF_NEGATIVE = "cannot take the logarithm of a negative number"
ZERO_TO_NEGATIVE = "zero raised to a negative power is undefined"
COMPLEX_POWER = "a negative number raised to a fraction is no real number"
DIVISION_BY_ZERO = "division by zero"
OUT_OF_RANGE = "a value is out of range for DOUBLE PRECISION"
NO_ANGLE = "a value is out of range: it must be from -1 to 1"

CHECKED = (exp.Ln, exp.Log, exp.Exp, exp.Pow, exp.Acos, exp.Asin)


def check(node: exp.Expr) -> None:
    """Put a check around what a function of `CHECKED` is given."""
    if isinstance(node, exp.Pow | exp.Exp):
        given = [node.this, node.expression] if isinstance(node, exp.Pow) else [node.this]
        node.replace(_call("checked_power" if isinstance(node, exp.Pow) else "checked_exp", *given))
        return
    name = "checked_angle" if isinstance(node, exp.Acos | exp.Asin) else "checked_positive"
    for part in (node.this, node.args.get("expression")):
        if isinstance(part, exp.Expr):
            part.replace(_call(name, part))


def nonzero(divisor: exp.Expr) -> exp.Expr:
    """A floating point number to divide by."""
    return _call("checked_divisor", divisor)


def register(context: SessionContext, tree: exp.Expr) -> None:
    """Make the checks that a statement needs known to a context."""
    for name in {call.name for call in tree.find_all(exp.Anonymous)} & _CHECKS.keys():
        context.register_udf(_function(name))


def _call(name: str, *given: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=[each.copy() for each in given])


@cache
def _function(name: str) -> ScalarUDF:
    from datafusion import udf

    check = _CHECKS[name]
    double = pa.float64()
    return udf(check, [double] * check.__code__.co_argcount, double, "immutable", name)


def _refuse(where: pa.Array, message: str) -> None:
    if pc.any(where).as_py():
        raise ValueError(message)


def _positive(values: pa.Array) -> pa.Array:
    _refuse(pc.equal(values, 0.0), LOGARITHM_OF_ZERO)
    _refuse(pc.less(values, 0.0), LOGARITHM_OF_NEGATIVE)
    return values


def _divisor(values: pa.Array) -> pa.Array:
    _refuse(pc.equal(values, 0.0), DIVISION_BY_ZERO)
    return values


def _angle(values: pa.Array) -> pa.Array:
    _refuse(pc.greater(pc.abs(values), 1.0), NO_ANGLE)
    return values


def _exp(values: pa.Array) -> pa.Array:
    found = pc.exp(values)
    _refuse(pc.and_(pc.is_inf(found), pc.is_finite(values)), OUT_OF_RANGE)
    return found


def _power(base: pa.Array, exponent: pa.Array) -> pa.Array:
    negative = pc.less(base, 0.0)
    _refuse(pc.and_(pc.equal(base, 0.0), pc.less(exponent, 0.0)), ZERO_TO_NEGATIVE)
    _refuse(pc.and_(negative, pc.not_equal(pc.floor(exponent), exponent)), COMPLEX_POWER)
    found = pc.power(base, exponent)
    _refuse(pc.and_(pc.is_inf(found), pc.and_(pc.is_finite(base), pc.is_finite(exponent))), OUT_OF_RANGE)
    return found


_CHECKS: dict[str, Any] = {"checked_positive": _positive, "checked_divisor": _divisor, "checked_angle": _angle,
                           "checked_exp": _exp, "checked_power": _power}  # fmt: skip
