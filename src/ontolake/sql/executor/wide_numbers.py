"""Numerics as texts: each with its own scale, of any size, with NaN and infinities, as PostgreSQL computes with them.

DuckDB's decimals have 38 digits. A statement that needs more is compiled a second time, with these functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal

from ontolake.sql.errors import DataError, SqlError
from ontolake.sql.executor import exact_functions
from ontolake.sql.types import numerics

_EXACT = Context(prec=400_000, rounding=ROUND_HALF_UP, Emax=999_999, Emin=-999_999, traps=[])
_ROUNDED = Context(prec=2_600, rounding=ROUND_HALF_UP, Emax=999_999, Emin=-999_999, traps=[])
"""For quotients, roots and powers: PostgreSQL shows up to 1000 digits behind the point of these."""
_MOST_DIGITS = 1000
_NAN, _ZERO = Decimal("NaN"), Decimal(0)
_LAST_FACTORIAL = 32_177
_LIMITS = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}


def read(text: str) -> str:
    """A text that is read as a numeric. Raises `DataError`."""
    number = None if "_" in text else numerics.parsed(text)
    if number is None:
        raise DataError(f'invalid input syntax for type numeric: "{text}"', sqlstate="22P02")
    return numerics.text_of(number)


def fitted(text: str, precision: int, scale: int) -> str:
    """A number as one of `numeric(precision, scale)`. Raises `DataError`."""
    return numerics.fitted(text, precision, scale)


def key(text: str) -> bytes:
    """Bytes that sort as the numbers."""
    return numerics.sort_bytes(text)


def whole(text: str, type: str) -> str:
    """A number as an integer of a type. Raises `DataError`."""
    number = Decimal(text)
    if not number.is_finite():
        what = "NaN" if number.is_nan() else "infinity"
        raise DataError(f"cannot convert {what} to {type}", sqlstate="0A000")
    found = int(number.to_integral_value(ROUND_HALF_UP, _EXACT))
    if not -_LIMITS[type] <= found < _LIMITS[type]:
        raise DataError(f"{type} out of range", sqlstate="22003")
    return str(found)


def double(text: str) -> float:
    """A number as a double precision. Raises `DataError`."""
    found = float(text)
    if math.isinf(found) and "nf" not in text:
        raise DataError(f'"{text[:40]}" is out of range for type double precision', sqlstate="22003")
    return found


def _shown(number: Decimal) -> str:
    return numerics.text_of(number)


def _scale_of(number: Decimal) -> int:
    return max(0, -int(number.as_tuple().exponent)) if number.is_finite() else 0


# two operands


def _quotient(a: Decimal, b: Decimal) -> Decimal:
    if a.is_nan() or b.is_nan():
        return _NAN
    if b == 0:
        raise SqlError("division by zero", sqlstate="22012")
    if not a.is_finite() or not b.is_finite():
        return _EXACT.divide(a, b) if not a.is_finite() else _ZERO
    return exact_functions.quotient(a, b, _ROUNDED)


def _remainder(a: Decimal, b: Decimal) -> Decimal:
    if a.is_nan() or b.is_nan():
        return _NAN
    if b == 0:
        raise SqlError("division by zero", sqlstate="22012")
    if not a.is_finite():
        return _NAN
    if not b.is_finite():
        return a
    scale = max(_scale_of(a), _scale_of(b))
    return _EXACT.remainder(a, b).quantize(Decimal(1).scaleb(-scale), context=_EXACT)


def _whole_quotient(a: Decimal, b: Decimal) -> Decimal:
    if a.is_nan() or b.is_nan() or (a.is_infinite() and b.is_infinite()):
        return _NAN
    if b == 0:
        raise SqlError("division by zero", sqlstate="22012")
    if not a.is_finite() or not b.is_finite():
        return _quotient(a, b)
    return _EXACT.divide_int(a, b)


def _power(a: Decimal, b: Decimal) -> Decimal:
    if a == 1 or b == 0:
        return Decimal(1) if not (a.is_finite() and b.is_finite()) else exact_functions.power(str(a), str(b), _ROUNDED)
    if a.is_nan() or b.is_nan():
        return _NAN
    if a.is_finite() and b.is_finite():
        return exact_functions.power(str(a), str(b), _ROUNDED)
    if a == 0 and b < 0:
        raise SqlError("zero raised to a negative power is undefined", sqlstate="2201F")
    if a < 0 and b.is_finite() and b != b.to_integral_value():
        raise SqlError("a negative number raised to a non-integer power yields a complex result", sqlstate="2201F")
    if b.is_infinite():
        size = abs(a)
        return Decimal(1) if size == 1 else Decimal("Infinity") if (size > 1) == (b > 0) else _ZERO
    if b < 0:
        return _ZERO
    return Decimal("-Infinity") if a < 0 and int(b) % 2 else Decimal("Infinity")


def _logarithm(a: Decimal, b: Decimal) -> Decimal:
    if a.is_nan() or b.is_nan():
        return _NAN
    for each in (a, b):
        if each <= 0:
            what = "zero" if each == 0 else "a negative number"
            raise SqlError(f"cannot take logarithm of {what}", sqlstate="2201E")
    if a.is_infinite() or b.is_infinite():
        return _NAN if a.is_infinite() and b.is_infinite() else _ZERO if a.is_infinite() else b
    return exact_functions.logarithm(str(a), str(b), _ROUNDED)


def _settled(rounding: str) -> Callable[[Decimal, Decimal], Decimal]:
    def apply(number: Decimal, places: Decimal) -> Decimal:
        if not number.is_finite():
            return number
        scale = max(-numerics.MAX_WHOLE, min(int(places), numerics.MAX_SCALE))
        found = number.quantize(Decimal(1).scaleb(-scale, _EXACT), rounding, _EXACT)
        return found if scale >= 0 else found.quantize(Decimal(1), context=_EXACT)

    return apply


def _common(apply: Callable[[int, int], int]) -> Callable[[Decimal, Decimal], Decimal]:
    """gcd and lcm, of numbers that are brought to one scale."""

    def found(a: Decimal, b: Decimal) -> Decimal:
        if not a.is_finite() or not b.is_finite():
            return _NAN
        scale = max(_scale_of(a), _scale_of(b))
        one, other = (int(_EXACT.scaleb(each, scale)) for each in (a, b))
        return Decimal(apply(one, other)).scaleb(-scale, _EXACT)

    return found


_TWO: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": _EXACT.add, "-": _EXACT.subtract, "*": _EXACT.multiply, "/": _quotient, "%": _remainder, "mod": _remainder,
    "div": _whole_quotient, "power": _power, "pow": _power, "log": _logarithm, "round": _settled(ROUND_HALF_UP),
    "trunc": _settled(ROUND_DOWN), "gcd": _common(math.gcd), "lcm": _common(math.lcm),
}  # fmt: skip


def of_two(a: str, b: str, name: str) -> str:
    """What an operator or function of two numbers gives."""
    return _shown(_TWO[name](Decimal(a), Decimal(b)))


# one operand


def _root(number: Decimal) -> Decimal:
    if number.is_nan() or number == Decimal("Infinity"):
        return number
    if number < 0:
        raise SqlError("cannot take square root of a negative number", sqlstate="2201F")
    return exact_functions.square_root(str(number), _ROUNDED)


def _natural(number: Decimal) -> Decimal:
    if number.is_nan() or number == Decimal("Infinity"):
        return number
    if number.is_infinite():
        raise SqlError("cannot take logarithm of a negative number", sqlstate="2201E")
    return exact_functions.natural_logarithm(str(number), _ROUNDED)


def _exponential(number: Decimal) -> Decimal:
    if not number.is_finite():
        return _ZERO if number == Decimal("-Infinity") else number
    return exact_functions.exponential(str(number), _ROUNDED)


def _sign(number: Decimal) -> Decimal:
    return number if number.is_nan() else Decimal((number > 0) - (number < 0))


def _to_whole(rounding: str) -> Callable[[Decimal], Decimal]:
    return lambda number: number.quantize(Decimal(1), rounding, _EXACT) if number.is_finite() else number


def _trimmed(number: Decimal) -> Decimal:
    if not number.is_finite():
        return number
    return number.quantize(Decimal(1).scaleb(-_least_scale(number)), context=_EXACT)


def _least_scale(number: Decimal) -> int:
    return len(f"{number:f}".partition(".")[2].rstrip("0")) if number.is_finite() else 0


def _factorial(number: Decimal) -> Decimal:
    if number < 0:
        raise SqlError("factorial of a negative number is undefined", sqlstate="22003")
    if number > _LAST_FACTORIAL:
        raise SqlError("value overflows numeric format", sqlstate="22003")
    return Decimal(math.factorial(int(number)))


_ONE: dict[str, Callable[[Decimal], Decimal]] = {
    "neg": lambda number: number if number.is_nan() else number.copy_negate(), "abs": lambda number: number.copy_abs(),
    "ceil": _to_whole(ROUND_CEILING), "ceiling": _to_whole(ROUND_CEILING), "floor": _to_whole(ROUND_FLOOR),
    "round": _to_whole(ROUND_HALF_UP), "trunc": _to_whole(ROUND_DOWN), "sign": _sign, "sqrt": _root, "ln": _natural,
    "exp": _exponential, "log": lambda number: _logarithm(Decimal(10), number),
    "log10": lambda number: _logarithm(Decimal(10), number), "trim_scale": _trimmed, "factorial": _factorial,
}  # fmt: skip
FUNCTIONS = frozenset(_ONE) | (frozenset(_TWO) - set("+-*/%")) | {"scale", "min_scale", "greatest", "least"}
"""The functions that there are."""


def of_one(text: str, name: str) -> str:
    """What an operator or function of one number gives."""
    return _shown(_ONE[name](Decimal(text)))


def scale(text: str, name: str) -> int | None:
    """How many digits a number has behind its point, with or without zeros at the end."""
    number = Decimal(text)
    if not number.is_finite():
        return None
    return _least_scale(number) if name == "min_scale" else _scale_of(number)


# several


def of_several(texts: list[str | None], name: str) -> str | None:
    """An aggregate of numbers, or the largest or smallest of them. NULLs do not count."""
    given = [Decimal(each) for each in texts if each is not None]
    if not given:
        return None
    if name in ("greatest", "least"):
        return (max if name == "greatest" else min)((_shown(each) for each in given), key=numerics.sort_bytes)
    total = _ZERO
    for each in given:
        total = _EXACT.add(total, each)
    if name == "sum":
        return _shown(total)
    if name == "avg":
        return _shown(_quotient(total, Decimal(len(given))))
    if len(given) == 1 and not name.endswith("_pop"):
        return None
    if any(not each.is_finite() for each in given):
        return "NaN"
    squares = _ZERO
    for each in given:
        squares = _EXACT.add(squares, _EXACT.multiply(each, each))
    kind = "deviation" if name.startswith("stddev") else "variance"
    form = "population" if name.endswith("_pop") else "sample"
    found = exact_functions.variance(str(len(given)), str(total), str(squares), f"{kind}:{form}", _ROUNDED)
    return None if found is None else _shown(found)
