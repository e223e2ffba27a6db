"""Roots, logarithms, powers and variances of numerics, with as many digits as PostgreSQL gives them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

from ontolake.sql.errors import SqlError

_WIDE = Context(prec=120, rounding=ROUND_HALF_UP)
_SIGNIFICANT = 16
"""Digits that a result has at least."""
_MOST_SCALE = 1000
"""Digits behind the point that a result has at most."""
_LARGEST = 131_072
"""Digits that a number has at most."""


def _rounded(value: Decimal, scale: int, context: Context) -> Decimal:
    try:
        return value.quantize(Decimal(1).scaleb(-min(max(scale, 0), _MOST_SCALE)), ROUND_HALF_UP, context)
    except InvalidOperation:
        raise SqlError("value overflows numeric format", sqlstate="22003") from None


def _room(context: Context, digits: int) -> Context:
    """A context with room for so many digits."""
    if digits <= context.prec - 20 and context is _WIDE:
        return context
    return Context(prec=max(digits, 20) + 20, rounding=ROUND_HALF_UP, Emax=999_999, Emin=-999_999)


def _scale_of(value: Decimal) -> int:
    return max(0, -int(value.as_tuple().exponent))


def quotient(a: Decimal, b: Decimal, context: Context = _WIDE) -> Decimal:
    """A quotient with the digits that PostgreSQL chooses: 16 that matter at least."""
    if not b:
        raise SqlError("division by zero", sqlstate="22012")
    weight_a, first_a = _weight(a)
    weight_b, first_b = _weight(b)
    weight = weight_a - weight_b - (1 if first_a <= first_b else 0)
    scale = min(max(16 - weight * 4, _scale_of(a), _scale_of(b)), _MOST_SCALE)
    context = _room(context, max(a.adjusted() - b.adjusted(), 0) + scale)
    return context.divide(a, b).quantize(Decimal(1).scaleb(-scale), context=context)


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


def square_root(text: str, context: Context = _WIDE) -> Decimal:
    value = Decimal(text)
    if value < 0:
        raise SqlError("cannot take square root of a negative number", sqlstate="2201F")
    return _root(value, context)


def _root(value: Decimal, context: Context) -> Decimal:
    scale = max(_SIGNIFICANT - ((_weight(value)[0] + 1) * 2 - 1), _scale_of(value))
    context = _room(context, abs(value.adjusted()) + min(scale, _MOST_SCALE))
    return _rounded(context.sqrt(value), scale, context)


def _log_weight(value: Decimal) -> int:
    """How many digits the natural logarithm of a number has before the point, about."""
    if Decimal("0.9") <= value <= Decimal("1.1"):
        apart = abs(value - 1)
        return apart.adjusted() if apart else 0
    return int(abs(_WIDE.ln(value)).log10(_WIDE))


def _check_positive(value: Decimal) -> None:
    if value <= 0:
        what = "zero" if value == 0 else "a negative number"
        raise SqlError(f"cannot take logarithm of {what}", sqlstate="2201E")


def natural_logarithm(text: str, context: Context = _WIDE) -> Decimal:
    value = Decimal(text)
    _check_positive(value)
    scale = max(_SIGNIFICANT - _log_weight(value), _scale_of(value))
    context = _room(context, min(scale, _MOST_SCALE) + 10)
    return _rounded(context.ln(value), scale, context)


def logarithm(base_text: str, text: str, context: Context = _WIDE) -> Decimal:
    base, value = Decimal(base_text), Decimal(text)
    for each in (base, value):
        _check_positive(each)
    if base == 1:
        raise SqlError("division by zero", sqlstate="22012")
    scale = max(_SIGNIFICANT - _log_weight(value) + _log_weight(base), _scale_of(base), _scale_of(value))
    context = _room(context, min(max(scale, 0), _MOST_SCALE) + 50)
    return _rounded(context.divide(context.ln(value), context.ln(base)), scale, context)


def exponential(text: str, context: Context = _WIDE) -> Decimal:
    value = Decimal(text)
    if value > 6000:
        raise SqlError("value overflows numeric format", sqlstate="22003")
    scale = max(_SIGNIFICANT - int(value * Decimal("0.4342944819")), _scale_of(value))
    context = _room(context, int(abs(value)) // 2 + min(scale, _MOST_SCALE))
    return _rounded(Decimal(0) if value < -6000 else context.exp(value), scale, context)


def power(base_text: str, text: str, context: Context = _WIDE) -> Decimal:
    base, value = Decimal(base_text), Decimal(text)
    if base == 0 and value < 0:
        raise SqlError("zero raised to a negative power is undefined", sqlstate="2201F")
    if base < 0 and value != value.to_integral_value():
        raise SqlError("a negative number raised to a non-integer power yields a complex result", sqlstate="2201F")
    if base == 0 or value == 0:
        scale = max(_SIGNIFICANT, _scale_of(base), _scale_of(value))
        return _rounded(Decimal(1 if value == 0 else 0), scale, context)
    size = _WIDE.multiply(value, _WIDE.log10(abs(base)))
    if abs(size) > (60 if context is _WIDE else _LARGEST):
        if size < 0:
            return Decimal(0)
        raise SqlError("value overflows numeric format", sqlstate="22003")
    if value == value.to_integral_value() and abs(value) < 2**31:
        scale = min(max(_SIGNIFICANT, _scale_of(base)), _MOST_SCALE)
    else:
        scale = min(max(_SIGNIFICANT - int(size), _scale_of(base), _scale_of(value)), _MOST_SCALE)
    context = _room(context, int(abs(size)) + scale)
    return _rounded(context.power(base, value), scale, context)


def variance(count: str, total: str, squares: str, kind: str, context: Context = _WIDE) -> Decimal | None:
    """The variance or deviation of numbers, from how many they are, their sum and the sum of their squares."""
    number = Decimal(count)
    name, _, form = kind.partition(":")
    if number == 0 or (form == "sample" and number == 1):
        return None
    square = context.multiply(Decimal(total), Decimal(total))
    above = context.subtract(context.multiply(number, Decimal(squares)), square)
    if above <= 0:
        return Decimal(0)
    below = number * (number - 1 if form == "sample" else number)
    found = quotient(above, below, context)
    return found if name == "variance" else _root(found, context)


FUNCTIONS: dict[str, tuple[Callable[..., Decimal | None], int]] = {
    "exact_sqrt": (square_root, 1), "exact_div": (whole_quotient, 2),
    "exact_ln": (natural_logarithm, 1), "exact_log": (logarithm, 2),
    "exact_exp": (exponential, 1), "exact_power": (power, 2), "exact_variance": (variance, 4),
}  # fmt: skip
"""The functions by name, with how many texts they take."""
