"""Roots, logarithms, powers and variances of numerics, with as many digits as PostgreSQL gives them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from ontolake.sql.errors import SqlError

_WIDE = Context(prec=120, rounding=ROUND_HALF_UP)
_SIGNIFICANT = 16
"""Digits that a result has at least."""


def _rounded(value: Decimal, scale: int) -> Decimal:
    try:
        return value.quantize(Decimal(1).scaleb(-max(scale, 0)), ROUND_HALF_UP, _WIDE)
    except InvalidOperation:
        raise SqlError("value overflows numeric format", sqlstate="22003") from None


def _scale_of(value: Decimal) -> int:
    return max(0, -int(value.as_tuple().exponent))


def quotient(a: Decimal, b: Decimal) -> Decimal:
    """A quotient with the digits that PostgreSQL chooses: 16 that matter at least."""
    if not b:
        raise SqlError("division by zero", sqlstate="22012")
    weight_a, first_a = _weight(a)
    weight_b, first_b = _weight(b)
    weight = weight_a - weight_b - (1 if first_a <= first_b else 0)
    scale = max(16 - weight * 4, -int(a.as_tuple().exponent), -int(b.as_tuple().exponent), 0)
    return _WIDE.divide(a, b).quantize(Decimal(1).scaleb(-scale), context=_WIDE)


def _weight(value: Decimal) -> tuple[int, int]:
    """The place of the first digit to the base of 10000, and that digit."""
    if not value:
        return 0, 0
    weight = value.adjusted() // 4
    return weight, int(abs(value).scaleb(-4 * weight, _WIDE))


def whole_quotient(a_text: str, b_text: str) -> Decimal:
    """`div`: a quotient without what stands behind the point."""
    a, b = Decimal(a_text), Decimal(b_text)
    if not b:
        raise SqlError("division by zero", sqlstate="22012")
    return _WIDE.divide_int(a, b)


def square_root(text: str) -> Decimal:
    value = Decimal(text)
    if value < 0:
        raise SqlError("cannot take square root of a negative number", sqlstate="2201F")
    return _root(value)


def _root(value: Decimal) -> Decimal:
    scale = _SIGNIFICANT - ((_weight(value)[0] + 1) * 2 - 1)
    return _rounded(_WIDE.sqrt(value), max(scale, _scale_of(value)))


def _log_weight(value: Decimal) -> int:
    """How many digits the natural logarithm of a number has before the point, about."""
    found = abs(_WIDE.ln(value))
    return int(found.log10(_WIDE)) if found else 0


def _check_positive(value: Decimal) -> None:
    if value <= 0:
        what = "zero" if value == 0 else "a negative number"
        raise SqlError(f"cannot take logarithm of {what}", sqlstate="2201E")


def natural_logarithm(text: str) -> Decimal:
    value = Decimal(text)
    _check_positive(value)
    return _rounded(_WIDE.ln(value), max(_SIGNIFICANT - _log_weight(value), _scale_of(value)))


def logarithm(base_text: str, text: str) -> Decimal:
    base, value = Decimal(base_text), Decimal(text)
    for each in (base, value):
        _check_positive(each)
    below = _WIDE.ln(base)
    if below == 0:
        raise SqlError("division by zero", sqlstate="22012")
    found = _WIDE.divide(_WIDE.ln(value), below)
    scale = max(_SIGNIFICANT - _log_weight(value) + _log_weight(base), _scale_of(base), _scale_of(value))
    return _rounded(found, scale)


def exponential(text: str) -> Decimal:
    value = Decimal(text)
    if abs(value) > 6000:
        raise SqlError("value overflows numeric format", sqlstate="22003")
    scale = _SIGNIFICANT - int(value * Decimal("0.4342944819"))
    return _rounded(_WIDE.exp(value), max(scale, _scale_of(value)))


def power(base_text: str, text: str) -> Decimal:
    base, value = Decimal(base_text), Decimal(text)
    if base == 0 and value < 0:
        raise SqlError("zero raised to a negative power is undefined", sqlstate="2201F")
    if base < 0 and value != value.to_integral_value():
        raise SqlError("a negative number raised to a non-integer power yields a complex result", sqlstate="2201F")
    if base == 0 or value == 0:
        return _rounded(Decimal(1 if value == 0 else 0), max(_SIGNIFICANT, _scale_of(base), _scale_of(value)))
    size = _WIDE.multiply(value, _WIDE.log10(abs(base)))
    if abs(size) > 60:
        if size < 0:
            return Decimal(0)
        raise SqlError("value overflows numeric format", sqlstate="22003")
    scale = max(_SIGNIFICANT - int(size), _scale_of(base), _scale_of(value))
    return _rounded(_WIDE.power(base, value), scale)


def variance(count: str, total: str, squares: str, kind: str) -> Decimal | None:
    """The variance or deviation of numbers, from how many they are, their sum and the sum of their squares."""
    number = Decimal(count)
    name, _, form = kind.partition(":")
    if number == 0 or (form == "sample" and number == 1):
        return None
    above = _WIDE.subtract(_WIDE.multiply(number, Decimal(squares)), _WIDE.multiply(Decimal(total), Decimal(total)))
    if above <= 0:
        return Decimal(0)
    below = number * (number - 1 if form == "sample" else number)
    found = quotient(above, below)
    return found if name == "variance" else _root(found)


FUNCTIONS: dict[str, tuple[Callable[..., Decimal | None], int]] = {
    "exact_sqrt": (square_root, 1), "exact_div": (whole_quotient, 2),
    "exact_ln": (natural_logarithm, 1), "exact_log": (logarithm, 2),
    "exact_exp": (exponential, 1), "exact_power": (power, 2), "exact_variance": (variance, 4),
}  # fmt: skip
"""The functions by name, with how many texts they take."""
