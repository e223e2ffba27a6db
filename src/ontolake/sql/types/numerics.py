"""NUMERIC without a precision: any number, each with its own scale. The stored form is the text of PostgreSQL.

Sort bytes are what keys are made of: equal numbers have the same ones, whatever their scale.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation, localcontext

from ontolake.errors import Corruption
from ontolake.sql.errors import DataError

MAX_WHOLE, MAX_SCALE = 131_072, 16_383
"""How many digits a number may have before and behind its point."""

_LEAST, _NEGATIVE, _ZERO, _POSITIVE, _MOST, _NAN = range(1, 7)
_SPECIAL = {"-Infinity": _LEAST, "0": _ZERO, "Infinity": _MOST, "NaN": _NAN}
_NAMES = {mark: name for name, mark in _SPECIAL.items()}
_EXACT = Context(prec=MAX_WHOLE + MAX_SCALE + 10)


def text_of(number: Decimal) -> str:
    """A number as PostgreSQL writes it. Raises `DataError` for one that it does not hold."""
    if not number.is_finite():
        return "NaN" if number.is_nan() else "Infinity" if number > 0 else "-Infinity"
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    if exponent < -MAX_SCALE:
        number = number.quantize(Decimal((0, (1,), -MAX_SCALE)), ROUND_HALF_UP, _EXACT)
    if number.adjusted() >= MAX_WHOLE:
        raise DataError("a number has too many digits for NUMERIC", sqlstate="22003",
                        hint=f"up to {MAX_WHOLE} before and {MAX_SCALE} behind the point")
    found = f"{number:f}"
    return found[1:] if number == 0 and found.startswith("-") else found


def fitted(text: str, precision: int, scale: int) -> str:
    """A number as one of `NUMERIC(precision, scale)`. Raises `DataError` for one that does not fit."""
    number = Decimal(text)
    if number.is_nan():
        return text
    if number.is_infinite():
        raise DataError(f"{text} is out of range for NUMERIC({precision}, {scale})", sqlstate="22003")
    rounded = number.quantize(Decimal((0, (1,), -scale)), ROUND_HALF_UP, _EXACT)
    if rounded and rounded.adjusted() >= precision - scale:
        raise DataError(f"{text[:60]} is out of range for NUMERIC({precision}, {scale})", sqlstate="22003")
    return text_of(rounded)


def parsed(text: str) -> Decimal | None:
    """The number that a text stands for, or None."""
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        return None


def sort_bytes(text: str) -> bytes:
    """Bytes that sort as the numbers, from their stored form."""
    if text in _SPECIAL:
        return bytes((_SPECIAL[text],))
    whole, _, part = text.lstrip("-").partition(".")
    digits = (whole + part).lstrip("0")
    if not digits:
        return bytes((_ZERO,))
    exponent = len(digits) - len(part)  # where the point stands, from the first digit
    digits = digits.rstrip("0")
    digits += "0" * (len(digits) % 2)
    pairs = bytes(int(digits[n : n + 2]) + 1 for n in range(0, len(digits), 2))
    body = (exponent + (1 << 31)).to_bytes(4, "big") + pairs
    if text.startswith("-"):
        return bytes((_NEGATIVE, *(255 - byte for byte in body), 255))
    return bytes((_POSITIVE, *body, 0))


def read_sort_bytes(data: bytes, at: int = 0) -> tuple[str, int]:
    """The shortest stored form of a number from its sort bytes, and where they end. Raises `ValueError`."""
    mark = data[at]
    if mark in _NAMES:
        return _NAMES[mark], at + 1
    if mark not in (_NEGATIVE, _POSITIVE):
        raise ValueError(f"{mark:#x} begins no number")
    flip = 255 if mark == _NEGATIVE else 0
    end = data.index(flip, at + 5)
    exponent = int.from_bytes(bytes(byte ^ flip for byte in data[at + 1 : at + 5]), "big") - (1 << 31)
    digits = "".join(f"{(byte ^ flip) - 1:02}" for byte in data[at + 5 : end]).rstrip("0")
    with localcontext(_EXACT):
        number = Decimal(digits).scaleb(exponent - len(digits))
    return text_of(number.copy_negate() if flip else number), end + 1


def of_sort_bytes(data: bytes) -> str:
    """The stored form of a number from its sort bytes. Raises `Corruption`."""
    try:
        found, end = read_sort_bytes(data)
        if end != len(data):
            raise ValueError("there are bytes behind it")
    except (IndexError, ValueError) as error:
        raise Corruption(f"{data.hex()} is not a number in a key: {error}") from error
    return found
