"""Intervals as PostgreSQL reads and writes them."""

from __future__ import annotations

import re
from fractions import Fraction

from ontolake.sql.types.kinds import IntervalParts
from ontolake.sql.types.moments import DAY, out_of_range, time_text, unreadable

_UNITS = {name: unit for unit, names in {
    "us": ("us", "usec", "usecs", "microsecond", "microseconds", "useconds", "usecond"),
    "ms": ("ms", "msec", "msecs", "millisecond", "milliseconds", "mseconds", "msecond"),
    "s": ("s", "sec", "secs", "second", "seconds"), "min": ("m", "min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"), "d": ("d", "day", "days"), "w": ("w", "week", "weeks"),
    "mon": ("mon", "mons", "month", "months"), "y": ("y", "yr", "yrs", "year", "years"),
    "dec": ("dec", "decs", "decade", "decades"), "c": ("c", "cent", "century", "centuries"),
    "mil": ("mil", "mils", "millennium", "millennia"),
}.items() for name in names}  # fmt: skip
_MICROSECONDS = {"us": 1, "ms": 1000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}
_YEARS = {"y": 1, "dec": 10, "c": 100, "mil": 1000}
_SPAN_PART = re.compile(r"""\s* (?:
    (?P<clock>[+-]?\d+:\d{1,2}\.\d+|[+-]?\d+:\d{1,2}(?::\d{1,2}(?:\.\d*)?)?)
  | (?P<years>[+-]?\d+)-(?P<months>\d{1,2})
  | (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?) \s* (?P<unit>[A-Za-z]+)? ) (?:\s*,)?""", re.VERBOSE)
_ISO_SPAN = re.compile(r"P(?=.)([^T]*)(?:T(.+))?", re.IGNORECASE)


class _Sum:
    """An interval that is added up."""

    def __init__(self) -> None:
        self.months, self.days, self.rest = 0, 0, Fraction(0)

    def add(self, number: Fraction, unit: str) -> None:
        """Add a number of a unit. What is not whole goes to smaller units, as in PostgreSQL."""
        if unit in _MICROSECONDS:
            self.rest += number * _MICROSECONDS[unit]
        elif unit in ("d", "w"):
            self._days(number * (7 if unit == "w" else 1))
        elif unit == "mon":
            whole = int(number)
            self.months += whole
            self._days((number - whole) * 30)
        else:
            self.months += round(number * 12 * _YEARS[unit])

    def _days(self, number: Fraction) -> None:
        whole = int(number)
        self.days += whole
        self.rest += (number - whole) * DAY

    def clock(self, text: str, is_minutes: bool = False) -> None:
        """Add hours, minutes and seconds; of two numbers, minutes and seconds if these are meant."""
        sign = -1 if text.startswith("-") else 1
        parts = text.lstrip("+-").split(":")
        if len(parts) == 2 and ("." in parts[1] or is_minutes):
            parts = ["0", *parts]
        if int(parts[1]) > 59 or (len(parts) > 2 and Fraction(parts[2].rstrip(".")) >= 61):
            raise out_of_range("INTERVAL", repr(text))
        for part, unit in zip(parts, ("h", "min", "s"), strict=False):
            self.add(sign * Fraction(part.rstrip(".")), unit)


def interval(text: str, fields: str = "", digits: int = 6) -> IntervalParts:
    """The interval that a text stands for. Raises `DataError` with 22007 or 22008.

    `fields` are those of a type such as `INTERVAL DAY TO HOUR`, `digits` those of its seconds.
    """
    found, given = _Sum(), text.strip()
    if iso := _ISO_SPAN.fullmatch(given):
        _add_iso(found, text, iso)
    else:
        _add_parts(found, text, given, fields)
    span = IntervalParts(found.months, found.days, round(found.rest))
    return checked_span(limited(span, fields, digits), text)


def type_fields(text: str) -> tuple[str, int]:
    """The fields of a type and the digits of its seconds: of `DAY TO SECOND(2)` these are `DAY TO SECOND` and 2."""
    fields, _, digits = text.partition("(")
    return fields, min(int(digits.rstrip(")")), 6) if digits.rstrip(")").isdigit() else 6


def limited(span: IntervalParts, fields: str, digits: int = 6) -> IntervalParts:
    """An interval without the fields that its type does not have."""
    months, days, rest = span.months, span.days, span.microseconds
    last = fields.rpartition(" ")[2]
    if last in ("YEAR", "MONTH"):
        return IntervalParts(months if last == "MONTH" else int(months / 12) * 12, 0, 0)
    if last == "DAY":
        return IntervalParts(months, days, 0)
    unit = {"HOUR": 3_600_000_000, "MINUTE": 60_000_000}.get(last)
    if unit is not None:
        return IntervalParts(months, days, abs(rest) // unit * unit * (-1 if rest < 0 else 1))
    unit = 10 ** (6 - digits)
    rounded = (abs(rest) + unit // 2) // unit * unit
    return IntervalParts(months, days, rounded if rest >= 0 else -rounded)


def _add_iso(found: _Sum, text: str, iso: re.Match[str]) -> None:
    dates, times = {"y": "y", "m": "mon", "w": "w", "d": "d"}, {"h": "h", "m": "min", "s": "s"}
    for part, units in ((iso[1], dates), (iso[2], times)):
        rest = part or ""
        while rest:
            one = re.match(r"([+-]?\d+(?:[.,]\d*)?|[+-]?[.,]\d+)([A-Za-z])", rest)
            if one is None or one[2].lower() not in units:
                raise unreadable("INTERVAL", text)
            found.add(Fraction(one[1].replace(",", ".").rstrip(".")), units[one[2].lower()])
            rest = rest[one.end() :]


def _add_parts(found: _Sum, text: str, given: str, fields: str) -> None:
    """Add the parts of a text, the last one first: what follows a number without a unit says what it counts."""
    given = given.removeprefix("@").strip()
    ago = re.search(r"\bago\s*\Z", given, re.IGNORECASE)
    given = given[: ago.start()].rstrip() if ago else given
    parts: list[re.Match[str]] = []
    at = 0
    while at < len(given):
        part = _SPAN_PART.match(given, at)
        if part is None or part.end() == at:
            raise unreadable("INTERVAL", text)
        parts.append(part)
        at = part.end()
    if not parts:
        raise unreadable("INTERVAL", text)
    unit = _UNITS[(fields.rpartition(" ")[2] or "SECOND").lower()]
    seen: set[str] = set()
    for part in reversed(parts):
        unit, used = _add_part(found, text, part, unit, fields)
        if used & seen:
            raise unreadable("INTERVAL", text)
        seen |= used
    if ago:
        found.months, found.days, found.rest = -found.months, -found.days, -found.rest


def _add_part(found: _Sum, text: str, part: re.Match[str], unit: str, fields: str) -> tuple[str, set[str]]:
    """Add a part. Returns the unit of a bare number before it, and the fields that it is about."""
    if part["clock"]:
        found.clock(part["clock"], fields == "MINUTE TO SECOND")
        return "d", {"h", "min", "s", "ms", "us"}
    if part["years"]:
        months = int(part["months"])
        found.months += int(part["years"]) * 12 + (-months if part["years"].startswith("-") else months)
        return "mon", {"mon"}
    if part["unit"]:
        known = _UNITS.get(part["unit"].lower())
        if known is None:
            raise unreadable("INTERVAL", text)
        unit = known
    number = Fraction(part["number"].rstrip("."))
    found.add(number, unit)
    used = {"s", "ms", "us"} if unit == "s" and number.denominator > 1 else {unit}
    return ("d" if unit == "h" and not part["unit"] else unit), used


def checked_span(span: IntervalParts, given: object) -> IntervalParts:
    """An interval that fits its 32 bits of months and days, and 64 bits of nanoseconds. Raises `DataError`."""
    most = (2**63 - 1) // 1000
    if not (-(2**31) <= span.months < 2**31 and -(2**31) <= span.days < 2**31 and -most <= span.microseconds <= most):
        raise out_of_range("INTERVAL", repr(given) if isinstance(given, str) else given)
    return span


def span_order(span: IntervalParts) -> int:
    """What intervals are sorted by: their microseconds, with 30 days to a month."""
    return (span.months * 30 + span.days) * DAY + span.microseconds


def span_of(order: int) -> IntervalParts:
    """An interval that equals all that are sorted by this number."""
    days, rest = divmod(abs(order), DAY)
    months = max(0, days - (2**31 - 1)) // 30 + (1 if days > 2**31 - 1 else 0)
    sign = -1 if order < 0 else 1
    return IntervalParts(sign * months, sign * (days - months * 30), sign * rest)


def span_text(span: IntervalParts) -> str:
    """An interval as PostgreSQL writes it."""
    years, months = divmod(abs(span.months), 12)
    sign = -1 if span.months < 0 else 1
    parts, negative = [], False
    for number, name in ((sign * years, "year"), (sign * months, "mon"), (span.days, "day")):
        if number:
            plus = "+" if negative and number > 0 else ""
            parts.append(f"{plus}{number} {name}{'' if number == 1 else 's'}")
            negative = number < 0
    if span.microseconds or not parts:
        plus = "-" if span.microseconds < 0 else "+" if negative else ""
        parts.append(plus + time_text(abs(span.microseconds)))
    return " ".join(parts)
