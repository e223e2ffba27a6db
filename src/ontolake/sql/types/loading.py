"""Stored forms into Python values and into the text of PostgreSQL."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from ontolake.sql.errors import DataError
from ontolake.sql.types import arrays, moments, spans
from ontolake.sql.types.kinds import IntervalParts, Items, Kind, Type
from ontolake.sql.types.storing import EPOCH, EPOCH_DAY

_LAST_DATE = date.max.toordinal() - EPOCH_DAY
_FIRST_DATE = date.min.toordinal() - EPOCH_DAY


def _beyond(type: Type, shown: str) -> DataError:
    return DataError(f"Python's {'date' if type.kind == Kind.DATE else 'datetime'} cannot hold the {type} {shown}",
                     sqlstate="22008", hint="read it with arrow(), or as text with CAST")


def _timestamp_ns(type: Type, stored: int) -> datetime:
    """A `datetime` has no nanoseconds: what is finer is cut off. Arrow keeps it."""
    found = EPOCH + timedelta(microseconds=stored // 1000)
    return found.replace(tzinfo=UTC) if type.zoned else found


def _timestamp(type: Type, stored: int) -> datetime:
    try:
        found = EPOCH + timedelta(microseconds=stored)
    except OverflowError:
        raise _beyond(type, moments.timestamp_text(stored, type.zoned)) from None
    return found.replace(tzinfo=UTC) if type.zoned else found


def _date(type: Type, stored: int) -> date:
    if not _FIRST_DATE <= stored <= _LAST_DATE:
        raise _beyond(type, moments.date_text(stored))
    return date.fromordinal(stored + EPOCH_DAY)


def _time(type: Type, stored: int) -> time:
    if stored >= moments.DAY:
        raise DataError("Python's time cannot hold 24:00:00", sqlstate="22008", hint="read it as text with CAST")
    seconds, part = divmod(stored, 1_000_000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, part)


def _interval(type: Type, stored: IntervalParts) -> timedelta:
    """A `timedelta` has no months: a year counts 365 days and a month 30. Arrow keeps them."""
    years, months = divmod(abs(stored.months), 12)
    days = (years * 365 + months * 30) * (-1 if stored.months < 0 else 1) + stored.days
    try:
        return timedelta(days=days, microseconds=stored.microseconds)
    except OverflowError:
        raise DataError(f"Python's timedelta cannot hold {spans.span_text(stored)}", sqlstate="22008",
                        hint="read it with arrow(), or as text with CAST") from None


def _decimal(type: Type, stored: int) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return Decimal(stored).scaleb(-type.scale)


def _array(type: Type, stored: Items) -> list[Any]:
    assert type.item is not None
    return list(stored.values) if type.item.loads_as_stored else list(map(type.item.load, stored.values))


_LOAD: dict[Kind, Callable[[Type, Any], Any]] = {
    Kind.REAL: lambda type, stored: float(str(np.float32(stored))), Kind.TIMESTAMP_NS: _timestamp_ns,
    Kind.TIMESTAMP_US: _timestamp, Kind.DECIMAL: _decimal, Kind.DATE: _date,
    Kind.TIME: _time, Kind.INTERVAL: _interval, Kind.NUMERIC: lambda type, stored: Decimal(stored),
    Kind.UUID: lambda type, stored: uuid.UUID(bytes=stored), Kind.JSON: lambda type, stored: json.loads(stored),
    Kind.JSONB: lambda type, stored: json.loads(stored), Kind.ARRAY: _array,
    Kind.ENUM: lambda type, stored: type.label_of[stored],
}  # fmt: skip


def loader(type: Type) -> Callable[[Type, Any], Any] | None:
    """How a stored form becomes a Python value; None if it is one."""
    if type.padded:
        return lambda type, stored: stored.ljust(type.length)
    return _LOAD.get(Kind(type.kind))


def _floating(number: np.floating[Any], plain: int) -> str:
    """The shortest text that reads as the number, with an exponent from `plain` digits before the point on."""
    if not np.isfinite(number) or number == 0:
        return "NaN" if np.isnan(number) else "0" if number == 0 else "Infinity" if number > 0 else "-Infinity"
    mantissa, _, exponent = np.format_float_scientific(number, unique=True, trim="-").partition("e")
    power, sign = int(exponent), "-" if mantissa.startswith("-") else ""
    digits = mantissa.lstrip("-").replace(".", "")
    if not -5 < power < plain:
        part = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{part}e{'-' if power < 0 else '+'}{abs(power):02}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    whole, part = digits[: power + 1].ljust(power + 1, "0"), digits[power + 1 :]
    return sign + whole + (f".{part}" if part else "")


def _array_text(type: Type, stored: Items) -> str:
    assert type.item is not None
    text = type.item.text
    return arrays.text_of(None if value is None else text(value) for value in stored.values)


TEXT_OF: dict[Kind, Callable[[Type, Any], str]] = {
    Kind.BOOLEAN: lambda type, stored: "t" if stored else "f", Kind.INT64: lambda type, stored: str(stored),
    Kind.UTF8: lambda type, stored: stored.ljust(type.length) if type.padded else stored,
    Kind.TIMESTAMP_NS: lambda type, stored: str(np.datetime64(stored, "ns")).replace("T", " "),
    Kind.DECIMAL: lambda type, stored: f"{_decimal(type, stored):f}",
    Kind.DOUBLE: lambda type, stored: _floating(np.float64(stored), 15),
    Kind.REAL: lambda type, stored: _floating(np.float32(stored), 6),
    Kind.DATE: lambda type, stored: moments.date_text(stored), Kind.BYTES: lambda type, stored: f"\\x{stored.hex()}",
    Kind.TIMESTAMP_US: lambda type, stored: moments.timestamp_text(stored, type.zoned),
    Kind.NUMERIC: lambda type, stored: stored, Kind.UUID: lambda type, stored: str(uuid.UUID(bytes=stored)),
    Kind.TIME: lambda type, stored: moments.time_text(stored),
    Kind.INTERVAL: lambda type, stored: spans.span_text(stored),
    Kind.JSON: lambda type, stored: stored, Kind.JSONB: lambda type, stored: stored, Kind.ARRAY: _array_text,
    Kind.ENUM: lambda type, stored: type.label_of[stored],
}  # fmt: skip
"""The text that PostgreSQL writes for a stored form, by kind."""
