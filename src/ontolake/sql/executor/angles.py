"""Trigonometry in degrees, exact at the angles where PostgreSQL is."""

from __future__ import annotations

import math
from collections.abc import Callable

from ontolake.sql.errors import SqlError

_SIN_30 = math.sin(math.radians(30.0))
_ONE_MINUS_COS_60 = 1.0 - math.cos(math.radians(60.0))


def _sine(degrees: float) -> float:
    """Of an angle from 0 to 90."""
    if degrees <= 30:
        return math.sin(math.radians(degrees)) / _SIN_30 / 2
    return 1.0 - (1.0 - math.cos(math.radians(90 - degrees))) / _ONE_MINUS_COS_60 / 2


def _cosine(degrees: float) -> float:
    """Of an angle from 0 to 90."""
    if degrees <= 60:
        return 1.0 - (1.0 - math.cos(math.radians(degrees))) / _ONE_MINUS_COS_60 / 2
    return math.sin(math.radians(90 - degrees)) / _SIN_30 / 2


def _reduced(degrees: float) -> float:
    if math.isinf(degrees):
        raise SqlError("input is out of range", sqlstate="22003")
    return math.fmod(degrees, 360.0)


def sind(degrees: float) -> float:
    angle, sign = _reduced(degrees), 1.0
    if angle < 0:
        angle, sign = -angle, -sign
    if angle > 180:
        angle, sign = 360 - angle, -sign
    return sign * _sine(180 - angle if angle > 90 else angle)


def cosd(degrees: float) -> float:
    angle, sign = abs(_reduced(degrees)), 1.0
    if angle > 180:
        angle = 360 - angle
    if angle > 90:
        angle, sign = 180 - angle, -sign
    return sign * _cosine(angle)


def tand(degrees: float) -> float:
    return _ratio(degrees, lambda angle: (_sine(angle), _cosine(angle)), _sine(45) / _cosine(45))


def cotd(degrees: float) -> float:
    return _ratio(degrees, lambda angle: (_cosine(angle), _sine(angle)), _cosine(45) / _sine(45))


def _ratio(degrees: float, parts: Callable[[float], tuple[float, float]], at_45: float) -> float:
    angle, sign = _reduced(degrees), 1.0
    if angle < 0:
        angle, sign = -angle, -sign
    if angle > 180:
        angle, sign = 360 - angle, -sign
    if angle > 90:
        angle, sign = 180 - angle, -sign
    above, below = parts(angle)
    found = sign * math.inf if below == 0 else sign * (above / below / at_45)
    return found if found else 0.0


def _arc_sine(value: float) -> float:
    """Degrees from 0 to 90, of a value from 0 to 1."""
    if value <= 0.5:
        return math.asin(value) / math.asin(0.5) * 30
    return 90 - math.acos(value) / math.acos(0.5) * 60


def _arc_cosine(value: float) -> float:
    if value <= 0.5:
        return 90 - math.asin(value) / math.asin(0.5) * 30
    return math.acos(value) / math.acos(0.5) * 60


def asind(value: float) -> float:
    _check_unit(value)
    return _arc_sine(value) if value >= 0 else -_arc_sine(-value)


def acosd(value: float) -> float:
    _check_unit(value)
    return _arc_cosine(value) if value >= 0 else 90 + _arc_sine(-value)


def _check_unit(value: float) -> None:
    if abs(value) > 1:
        raise SqlError("input is out of range", sqlstate="22003")


def atand(value: float) -> float:
    return math.atan(value) / math.atan(1.0) * 45


def atan2d(y: float, x: float) -> float:
    return math.atan2(y, x) / math.atan(1.0) * 45


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sind": sind, "cosd": cosd, "tand": tand, "cotd": cotd, "asind": asind, "acosd": acosd, "atand": atand,
}  # fmt: skip


def of_degrees(value: float, name: str) -> float:
    """A function by its name. What is no number stays none."""
    return value if math.isnan(value) else FUNCTIONS[name](value)
