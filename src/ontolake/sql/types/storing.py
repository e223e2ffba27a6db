"""Values into their stored forms: what columns accept, and the errors for what they refuse.

A value has a *stored form*, which keys and rows are made of: bool, int, str, bytes or float; a timestamp is its
microseconds or nanoseconds and a date its days since 1970, a time its microseconds, a decimal its digits as an
integer, a number without a precision and JSON their text, a UUID its bytes, and a value of an enum its place in the
order.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

import numpy as np
import pyarrow as pa

from ontolake.sql.errors import DataError, TypeMismatchError
from ontolake.sql.types import arrays, documents, moments, numerics, spans
from ontolake.sql.types.kinds import (
    DATE,
    DOUBLE,
    INTERVAL,
    NUMERIC,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    IntervalParts,
    Items,
    Kind,
    Stored,
    Type,
)

EPOCH = datetime(1970, 1, 1)
EPOCH_DAY = date(1970, 1, 1).toordinal()
_INT64 = (-(2**63), 2**63 - 1)
_FLOAT32 = float(np.finfo(np.float32).max)
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
_UUID = re.compile(r"(?:[0-9a-fA-F]{4}-?){8}(?<!-)")
_SPELLINGS = {word[:length]: value for word, value in (
    ("true", True), ("yes", True), ("on", True), ("1", True),
    ("false", False), ("no", False), ("off", False), ("0", False))
    for length in range(2 if word.startswith("o") else 1, len(word) + 1)}  # fmt: skip


def _wrong(type: Type, value: Any) -> TypeMismatchError:
    return TypeMismatchError(f"{value!r} is a {builtin_name(value)}, not a {type}",
                             hint=f"give a {type}, or convert it with CAST")


def builtin_name(value: Any) -> str:
    return str(value.__class__.__name__)


def _unreadable(type: Type, value: Any) -> DataError:
    return DataError(f"{value!r} cannot be read as {type}", sqlstate="22P02")


def _boolean(type: Type, value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, str):
        if (found := _SPELLINGS.get(value.strip().lower())) is not None:
            return found
        raise _unreadable(type, value)
    raise _wrong(type, value)


def _integer(type: Type, value: Any) -> int:
    if value.__class__ is not int:
        value = _to_integer(type, value)
    low, high = _INT64 if type.bits == 64 else (-(1 << type.bits - 1), (1 << type.bits - 1) - 1)
    if not low <= value <= high:
        raise DataError(f"{value} is out of range for {type}", sqlstate="22003", hint=f"from {low} to {high}")
    return int(value)


def _to_integer(type: Type, value: Any) -> int:
    if isinstance(value, bool | np.bool_):
        raise _wrong(type, value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | Decimal):
        number = Decimal(value)
        if not number.is_finite() or number.adjusted() > 20:
            raise DataError(f"{value!r} is out of range for {type}", sqlstate="22003")
        return round(value) if isinstance(value, float) else int(number.quantize(Decimal(1), ROUND_HALF_UP))
    if isinstance(value, str):
        if _INTEGER.fullmatch(value) is None:
            raise _unreadable(type, value)
        return int(value)
    raise _wrong(type, value)


def _text(type: Type, given: Any) -> str:
    value = str(given) if isinstance(given, str) else _as_text(type, given)
    if type.padded:
        value = value.rstrip(" ")
    if type.length and len(value) > type.length:
        if not value[type.length :].strip(" "):
            return value[: type.length]
        raise DataError(f"a value of {len(value)} characters is too long for {type}", sqlstate="22001")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError(f"{value!r} is not text that UTF-8 can hold", sqlstate="22021") from None
    if "\x00" in value and type.padded:
        raise DataError("CHAR cannot hold the character 0", sqlstate="22021")
    return value


def _as_text(type: Type, value: Any) -> str:
    """The text that PostgreSQL assigns to a column for a number, truth value, date, time or UUID."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return _text_as(TIMESTAMP if value.tzinfo is None else TIMESTAMPTZ, value)
    for kinds, of in _TEXT_OF:
        if isinstance(value, kinds):
            return _text_as(of, value)
    raise _wrong(type, value)


def _text_as(type: Type, value: Any) -> str:
    return type.text(type.store(value))


_TEXT_OF: tuple[tuple[tuple[type, ...], Type], ...] = (
    ((int, np.integer, Decimal), NUMERIC), ((float, np.floating), DOUBLE), ((date,), DATE), ((time,), TIME),
    ((np.datetime64,), TIMESTAMP), ((timedelta, np.timedelta64), INTERVAL), ((uuid.UUID,), UUID),
)  # fmt: skip


def _moment(type: Type, value: Any) -> int:
    """A timestamp in microseconds."""
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            raise _wrong(type, value)
        found = int(value.astype("datetime64[us]").astype(np.int64))
    elif isinstance(value, str):
        found = moments.timestamp("TIMESTAMPTZ" if type.zoned else "TIMESTAMP", value, type.zoned)
    elif isinstance(value, datetime):
        if value.tzinfo is not None:
            value = _in_utc(type, value)
        since: timedelta = value - EPOCH
        found = (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds
    elif isinstance(value, date):
        found = (value.toordinal() - EPOCH_DAY) * moments.DAY
    else:
        raise _wrong(type, value)
    if found in (moments.FOREVER, moments.EVER):
        return int(found)
    found = _rounded(int(found), type.scale)
    if not moments.FIRST_MOMENT <= found <= moments.LAST_MOMENT:
        raise moments.out_of_range(str(type), value)
    return found


def _in_utc(type: Type, value: datetime) -> datetime:
    """What clocks show in UTC at a moment. Raises `DataError` if that is in no year that Python knows."""
    try:
        return value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        raise moments.out_of_range(str(type), value) from None


def _rounded(number: int, digits: int) -> int:
    """A number of which the last decimal digits are rounded to zero."""
    if not digits:
        return number
    step = int(10**digits)
    found = (abs(number) + step // 2) // step * step
    return -found if number < 0 else found


def _timestamp(type: Type, value: Any) -> int:
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[ns]").astype(np.int64))
    if isinstance(value, str):
        value = _parse_timestamp(type, value)
        if isinstance(value, int):
            return value
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = _in_utc(type, value)
        since = value - EPOCH
        nanoseconds = ((since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
    elif isinstance(value, date):
        nanoseconds = (value.toordinal() - EPOCH_DAY) * 86_400_000_000_000
    else:
        raise _wrong(type, value)
    if not _INT64[0] <= nanoseconds <= _INT64[1]:
        raise DataError(f"{value} is out of range for TIMESTAMP", sqlstate="22008", hint="from 1677 to 2262")
    return int(nanoseconds)


def _parse_timestamp(type: Type, text: str) -> datetime | int:
    parts = re.fullmatch(r"(.*[0-9])\.([0-9]{7,9})(|Z|[+-][0-9:]+)", text.strip())
    try:
        if parts is not None:
            return _timestamp(type, datetime.fromisoformat(parts[1] + parts[3])) + int(parts[2].ljust(9, "0"))
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise DataError(f"{text!r} cannot be read as {type}", sqlstate="22007",
                        hint="write 2026-02-11 10:00:00") from None


def _decimal(type: Type, value: Any) -> int:
    if isinstance(value, bool):
        raise _wrong(type, value)
    if isinstance(value, float):
        value = repr(value)
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise _unreadable(type, value) from None
    except (TypeError, ValueError):
        raise _wrong(type, value) from None
    if not number.is_finite():
        raise DataError(f"{number} is out of range for {type}", sqlstate="22003")
    if number.adjusted() > 60:
        raise DataError(f"{value} is out of range for {type}", sqlstate="22003")
    with localcontext() as context:
        context.prec = 120
        digits = int(number.scaleb(type.scale).quantize(Decimal(1), ROUND_HALF_UP))
    if abs(digits) >= 10**type.precision:
        raise DataError(f"{value} is out of range for {type}", sqlstate="22003")
    return digits


def _floating(type: Type, value: Any) -> float:
    if isinstance(value, bool | np.bool_):
        raise _wrong(type, value)
    try:
        if isinstance(value, str) and "_" in value:
            raise _unreadable(type, value)
        return float(value) + 0.0  # there is one zero
    except ValueError:
        raise _unreadable(type, value) from None
    except OverflowError:
        raise DataError(f"{value} is out of range for {type}", sqlstate="22003") from None
    except TypeError:
        raise _wrong(type, value) from None


def _double(type: Type, value: Any) -> float:
    found = _floating(type, value)
    if isinstance(value, str) and np.isinf(found) and any(map(str.isdigit, value)):
        raise DataError(f"{value} is out of range for {type}", sqlstate="22003")
    return found


def _real(type: Type, value: Any) -> float:
    found = _floating(type, value)
    if np.isinf(found) and not (isinstance(value, str) and any(map(str.isdigit, value))):
        return found
    with np.errstate(over="ignore"):
        single = float(np.float32(found))
    if np.isinf(single) or (found != 0 and single == 0):
        raise DataError(f"{value} is out of range for {type}", sqlstate="22003", hint="use DOUBLE PRECISION")
    return single + 0.0


def _numeric(type: Type, value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        raise _wrong(type, value)
    if isinstance(value, float | np.floating):
        value = repr(float(value))
    if isinstance(value, str):
        number = None if "_" in value else numerics.parsed(value)
        if number is None:
            raise _unreadable(type, value)
    elif isinstance(value, int | np.integer | Decimal):
        number = Decimal(int(value)) if not isinstance(value, Decimal) else value
    else:
        raise _wrong(type, value)
    found = numerics.text_of(number)
    return numerics.fitted(found, type.precision, type.scale) if type.precision else found


def _date(type: Type, value: Any) -> int:
    if isinstance(value, str):
        return moments.date(value)
    if isinstance(value, date):
        return value.toordinal() - EPOCH_DAY
    if isinstance(value, np.datetime64) and not np.isnat(value):
        return int(value.astype("datetime64[us]").astype(np.int64)) // moments.DAY
    raise _wrong(type, value)


def _time(type: Type, value: Any) -> int:
    if isinstance(value, str):
        found = moments.time(value)
    elif isinstance(value, datetime | time):
        found = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    else:
        raise _wrong(type, value)
    return _rounded(found, type.scale)


def _interval(type: Type, value: Any) -> IntervalParts:
    if isinstance(value, str):
        found = spans.interval(value)
    elif isinstance(value, timedelta):
        found = IntervalParts(0, value.days, value.seconds * 1_000_000 + value.microseconds)
    elif isinstance(value, np.timedelta64):
        found = IntervalParts(0, 0, int(value.astype("timedelta64[us]").astype(np.int64)))
    elif isinstance(value, pa.MonthDayNano):
        found = IntervalParts(value.months, value.days, round(value.nanoseconds / 1000))
    elif isinstance(value, IntervalParts):
        found = value
    else:
        raise _wrong(type, value)
    found = spans.checked_span(found, value)
    return found if not type.scale else found._replace(microseconds=_rounded(found.microseconds, type.scale))


def _uuid(type: Type, value: Any) -> bytes:
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, str):
        text = value[1:-1] if value.startswith("{") and value.endswith("}") else value
        if not text.startswith("-") and _UUID.fullmatch(text):
            return bytes.fromhex(text.replace("-", ""))
        raise _unreadable(type, value)
    if isinstance(value, bytes) and len(value) == 16:
        return value
    raise _wrong(type, value)


def _json(type: Type, value: Any) -> str:
    if isinstance(value, str):
        documents.read("JSON", value)
        return value
    return documents.text_of(value)


def _jsonb(type: Type, value: Any) -> str:
    text = value if isinstance(value, str) else documents.text_of(value, "JSONB")
    return documents.canonical(documents.read("JSONB", text))


def _array(type: Type, value: Any) -> Items:
    assert type.item is not None
    if isinstance(value, str):
        value = arrays.elements(value)
    elif isinstance(value, np.ndarray):
        value = value.tolist()
    elif isinstance(value, Items):
        return value
    if not isinstance(value, list | tuple):
        raise _wrong(type, value)
    if type.item.kind not in (Kind.JSON, Kind.JSONB):
        arrays.check_flat(value)
    return Items(type.item.kind, tuple(map(type.item.store, value)))


def _enum(type: Type, value: Any) -> float:
    if not isinstance(value, str):
        raise _wrong(type, value)
    found = type.order_of.get(value)
    if found is None:
        raise DataError(f"{value!r} is not a value of the enum {type}", sqlstate="22P02",
                        hint=f"use {', '.join(label for label, _ in type.labels[:10])}")
    return found


def _bytes(type: Type, value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        is_hex = value.startswith("\\x")
        try:
            return bytes.fromhex(value[2:]) if is_hex else _unescaped(value)
        except ValueError:
            raise DataError(f"{value!r} cannot be read as {type}", sqlstate="22023" if is_hex else "22P02") from None
    raise _wrong(type, value)


def _unescaped(text: str) -> bytes:
    """Bytes in PostgreSQL's older form: a backslash is doubled or has three octal digits behind it."""
    if re.fullmatch(r"(?:[^\\]|\\\\|\\[0-3][0-7]{2})*", text, re.DOTALL) is None:
        raise ValueError(text)
    parts = re.split(rb"(\\\\|\\[0-3][0-7]{2})", text.encode())
    return b"".join(part if not part.startswith(b"\\") or len(part) == 1 else b"\\" if part == b"\\\\"
                    else bytes((int(part[1:], 8),)) for part in parts)  # fmt: skip


STORE: dict[Kind, Callable[[Type, Any], Stored]] = {
    Kind.BOOLEAN: _boolean, Kind.INT64: _integer, Kind.UTF8: _text, Kind.TIMESTAMP_NS: _timestamp,
    Kind.DECIMAL: _decimal, Kind.DOUBLE: _double, Kind.DATE: _date, Kind.BYTES: _bytes, Kind.TIMESTAMP_US: _moment,
    Kind.REAL: _real, Kind.NUMERIC: _numeric, Kind.UUID: _uuid, Kind.TIME: _time, Kind.INTERVAL: _interval,
    Kind.JSON: _json, Kind.JSONB: _jsonb, Kind.ARRAY: _array, Kind.ENUM: _enum,
}  # fmt: skip
"""How a Python value that is not None becomes its stored form, by kind."""
