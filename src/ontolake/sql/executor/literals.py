"""Text that stands in a statement, read as a value of a type as PostgreSQL reads it, and written in DuckDB's SQL."""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from ontolake.sql.errors import DataError, UnsupportedError
from ontolake.sql.executor.pg_types import DIGITS, INTEGERS, VECTORS, PgType, WideNumber, is_wide, numeric
from ontolake.sql.types import moments, numerics, spans

_LIMITS = {"int2": 2**15, "int4": 2**31, "int8": 2**63}
_MONTHS = {name: number for number, name in enumerate(
    ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1)}  # fmt: skip
_ZONES = {"z": "+00:00", "utc": "+00:00", "gmt": "+00:00"}
_SECOND = 1_000_000


def quoted(text: str) -> str:
    """Text in quotes."""
    return "'" + text.replace("'", "''") + "'"


def _place(text: str, type: PgType) -> int:
    """Where a value stands among those of an enum. Raises `DataError`."""
    labels = [label for label, _ in type.labels]
    if text not in labels:
        raise DataError(f'invalid input value for enum {type.name}: "{text}"', sqlstate="22P02",
                        hint=f"use {', '.join(labels[:10])}")
    return labels.index(text)


def enum_list(type: PgType) -> str:
    """The values of an enum as a list of DuckDB."""
    return f"[{', '.join(quoted(label) for label, _ in type.labels)}]"


def read(text: str, type: PgType) -> tuple[str, PgType]:
    """DuckDB's SQL of a text that is read as a type, and the type with its digits. Raises `DataError`."""
    name = type.name
    if type.is_array and name not in VECTORS:
        return _array(text, type)
    if type.labels:
        return str(_place(text, type)), type
    if name in VECTORS:
        return _array("{" + ",".join(text.split()) + "}", type.element.array)[0], type
    if name in ("oid", "xid", "cid"):
        return read(text, PgType("int8"))[0], type
    if name in INTEGERS:
        if not re.fullmatch(r"\s*[+-]?\d+\s*", text):
            raise _unreadable(text, type)
        value = int(text)
        if not -_LIMITS[name] <= value < _LIMITS[name]:
            raise DataError(f'value "{text}" is out of range for type {type.shown}', sqlstate="22003")
        return f"CAST({value} AS {type.duck})", type
    if name == "numeric":
        return number(_decimal(text, type), type)
    if name in ("float4", "float8"):
        return f"CAST({quoted(_float(text, type))} AS {type.duck})", type
    if name == "bool":
        return ("TRUE" if _boolean(text, type) else "FALSE"), type
    if name in ("date", "timestamp", "timestamptz"):
        return _moment(text, type)
    if name == "time":
        return f"TIME {quoted(_time(text, type))}", type
    if name == "interval":
        return interval_sql(*interval(text)), type
    if name == "bytea":
        return f"unhex('{_bytes(text, type).hex()}')", type
    if name == "uuid":
        try:
            return f"UUID '{uuid.UUID(text.strip())}'", type
        except ValueError:
            raise _unreadable(text, type) from None
    if name == "jsonpath":
        from ontolake.sql.executor.json_paths import read_path

        return quoted(read_path(text).text), type
    if name in ("json", "jsonb"):
        return quoted(canonical_json(text) if name == "jsonb" else _checked_json(text)), type
    return quoted(text), type


def _unreadable(text: str, type: PgType) -> DataError:
    state = "22007" if type.family in "DT" else "22P02"
    return DataError(f'invalid input syntax for type {type.shown}: "{text}"', sqlstate=state)


_ANY_NUMERIC = PgType("numeric", 0, -1)


def number(value: Decimal, type: PgType = _ANY_NUMERIC) -> tuple[str, PgType]:
    """A numeric in DuckDB's SQL. Raises `WideNumber` for more digits than it holds, and `DataError`."""
    if is_wide():
        text = numerics.text_of(value)
        return quoted(numerics.fitted(text, type.precision, type.scale) if type.precision else text), numeric(0)
    if not value.is_finite():
        raise WideNumber
    scale = max(0, -int(value.as_tuple().exponent))
    digits = max(len(value.as_tuple().digits) + max(0, int(value.as_tuple().exponent)), scale)
    if digits > DIGITS:
        if type.scale >= 0 and value.adjusted() < DIGITS - type.scale:
            value = round(value, type.scale)
            return number(value, type)
        raise WideNumber
    text = f"{value:f}"
    if type.precision:
        return f"CAST({quoted(text)} AS {type.duck})", type
    found = numeric(scale, max(digits, 1))
    return f"CAST({quoted(text)} AS {found.duck})", found


def _decimal(text: str, type: PgType) -> Decimal:
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        raise _unreadable(text, type) from None


def _float(text: str, type: PgType) -> str:
    try:
        value = float(text)
    except ValueError:
        raise _unreadable(text, type) from None
    if "_" in text:
        raise _unreadable(text, type)
    lost = value == 0 and re.search("[1-9]", text.lower().partition("e")[0]) is not None
    if type.name == "float4" and "inf" not in text.lower() and value == value:
        lost = lost or abs(value) > 3.4028235677973366e38 or 0 < abs(value) < 7.006e-46
    if lost or (value in (float("inf"), float("-inf")) and "inf" not in text.lower()):
        raise DataError(f'"{text}" is out of range for type {type.shown}', sqlstate="22003")
    return repr(value)


def _boolean(text: str, type: PgType) -> bool:
    word = text.strip().lower()
    if (word and any(full.startswith(word) for full in ("true", "yes"))) or word in ("on", "1"):
        return True
    if (word and any(full.startswith(word) for full in ("false", "no"))) or word in ("of", "off", "0"):
        return False
    raise _unreadable(text, type)


def _bytes(text: str, type: PgType) -> bytes:
    if text.startswith("\\x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise DataError(f'invalid hexadecimal data: "{text}"', sqlstate="22023") from None
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise _unreadable(text, type) from None
    parts = re.split(rb"(\\\\|\\[0-3][0-7][0-7])", raw)
    if any(b"\\" in part for part in parts[::2]):
        raise _unreadable(text, type)
    return b"".join(b"\\" if part == b"\\\\" else bytes([int(part[1:], 8)]) if n % 2 else part
                    for n, part in enumerate(parts))  # fmt: skip


_ISO = re.compile(r"(\d{4,7})-(\d{1,2})-(\d{1,2})(?:[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(\.\d*)?)?)?\s*"
                  r"(z|utc|gmt|[+-]\d{1,2}(?::?\d{2})?(?::\d{2})?|[a-z]+/[a-z_/]+)?\s*(bc|ad)?", re.IGNORECASE)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(\.\d*)?)?\s*(am|pm)?", re.IGNORECASE)


def _moment(text: str, type: PgType) -> tuple[str, PgType]:
    """A date or timestamp. What has a zone is moved to UTC."""
    word = text.strip().lower()
    if word in ("now", "today", "tomorrow", "yesterday", "epoch"):
        now = datetime.now(UTC).replace(tzinfo=None)
        moved = {"now": now, "epoch": datetime(1970, 1, 1)}.get(word) or now.replace(
            hour=0, minute=0, second=0, microsecond=0) + timedelta({"tomorrow": 1, "yesterday": -1}.get(word, 0))
        return f"CAST('{moved}' AS {type.duck})", type._replace(fine=False)
    if word in ("infinity", "-infinity"):
        return f"CAST('{word}' AS {type._replace(fine=False).duck})", type._replace(fine=False)
    found = _ISO.fullmatch(_iso(word))
    if found is None:
        return _other_moment(text, type)
    year, month, day = (int(found[n]) for n in (1, 2, 3))
    hour, minute, second = (int(found[n] or 0) for n in (4, 5, 6))
    era = " (BC)" if (found[9] or "").lower() == "bc" else ""
    days = _days_of(year, month, era)
    if not 1 <= month <= 12 or not 1 <= day <= days or hour > 24 or minute > 59 or second > 60 or year == 0:
        raise DataError(f'date/time field value out of range: "{text}"', sqlstate="22008")
    calendar = f"{year:04d}-{month:02d}-{day:02d}"
    if type.name == "date":
        if year > 5_874_897:
            raise DataError(f'date out of range: "{text}"', sqlstate="22008")
        return f"DATE '{calendar}{era}'", type
    if year > 294_276 or (era and year > 4713):
        raise DataError(f'timestamp out of range: "{text}"', sqlstate="22008")
    fraction = (found[7] or "")[1:]
    fine = type.fine and 1678 <= year <= 2261 and not era
    micros = round(Decimal(f"0.{fraction or 0}") * 10**6) if not fine else 0
    clock = f"{hour:02d}:{minute:02d}:{second:02d}" + (f".{fraction[:9]}" if fine and fraction else "")
    sql = f"CAST('{calendar}{era} {clock}' AS {'TIMESTAMP_NS' if fine else 'TIMESTAMP'})"
    if hour == 24 or second == 60:
        day_start = f"CAST('{calendar}{era}' AS TIMESTAMP)"
        sql = f"({day_start} + to_microseconds({(hour * 3600 + minute * 60 + second) * _SECOND + micros}))"
        return (sql, type._replace(fine=False)) if not found[8] else _moved(sql, found[8], type)
    if micros:
        sql = f"({sql} + to_microseconds({micros}))"
    if found[8] and type.name == "timestamptz":
        return _moved(sql, found[8], type._replace(fine=fine))
    return sql, type._replace(fine=fine)


def _other_moment(text: str, type: PgType) -> tuple[str, PgType]:
    """A date or timestamp in one of the other ways to write them, which columns read as well."""
    plain = type._replace(fine=False)
    try:
        if type.name == "date":
            shown = moments.date_text(moments.date(text))
        else:
            zoned = type.name == "timestamptz"
            shown = moments.timestamp_text(moments.timestamp(type.shown, text, zoned), False)
    except DataError as error:
        if error.sqlstate != "22007":
            raise
        raise _unreadable(text, type) from None
    day, _, rest = shown.removesuffix(" BC").partition(" ")
    era = " (BC)" if shown.endswith(" BC") else ""
    return f"CAST('{f'{day}{era} {rest}'.rstrip()}' AS {plain.duck})", plain


def _moved(sql: str, zone: str, type: PgType) -> tuple[str, PgType]:
    if type.name != "timestamptz":
        return sql, type
    zone = _ZONES.get(zone.lower(), zone)
    if zone[0] in "+-":
        hours, _, rest = zone[1:].partition(":") if ":" in zone else (zone[1:3], "", zone[3:])
        minutes = int(hours) * 60 + int((rest or "0").partition(":")[0] or 0)
        sign = -1 if zone[0] == "+" else 1
        return (sql if not minutes else f"({sql} + to_minutes({sign * minutes}))"), type
    return f"CAST(timezone({quoted(zone)}, CAST({sql} AS TIMESTAMP)) AT TIME ZONE 'UTC' AS TIMESTAMP)", \
        type._replace(fine=False)  # fmt: skip


def _iso(word: str) -> str:
    """Other ways to write a date in the way of ISO, as far as they are known."""
    if found := re.match(r"(\d{4})(\d{2})(\d{2})(?=$|[ t])", word):
        return f"{found[1]}-{found[2]}-{found[3]}{word[found.end() :]}"
    if found := re.match(r"(\d{1,2})[/-](\d{1,2})[/-](\d{4})", word):
        return f"{found[3]}-{found[1]}-{found[2]}{word[found.end() :]}"
    if found := re.match(r"(\d{4})/(\d{1,2})/(\d{1,2})", word):
        return f"{found[1]}-{found[2]}-{found[3]}{word[found.end() :]}"
    if (found := re.match(r"(?:[a-z]{3,9},? )?([a-z]{3})[a-z]*\.?[ -](\d{1,2}),?[ -]+(\d{4})", word)) and found[
        1
    ] in _MONTHS:
        return f"{found[3]}-{_MONTHS[found[1]]}-{found[2]}{word[found.end() :]}"
    if (found := re.match(r"(\d{1,2})[ -]([a-z]{3})[a-z]*[ -](\d{4})", word)) and found[2] in _MONTHS:
        return f"{found[3]}-{_MONTHS[found[2]]}-{found[1]}{word[found.end() :]}"
    if (found := re.match(r"(\d{4})[ -]([a-z]{3})[a-z]*[ -](\d{1,2})", word)) and found[2] in _MONTHS:
        return f"{found[1]}-{_MONTHS[found[2]]}-{found[3]}{word[found.end() :]}"
    return word


def _days_of(year: int, month: int, era: str) -> int:
    if not 1 <= month <= 12:
        return 31
    cycle = (year - 1 if era else year) % 400 + 2000
    following = date(cycle + month // 12, month % 12 + 1, 1)
    return (following - date(cycle, month, 1)).days


def _time(text: str, type: PgType) -> str:
    found = _CLOCK.match(text.strip())
    if found is None:
        try:
            return moments.time_text(moments.time(text))
        except DataError:
            raise _unreadable(text, type) from None
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    if found[5]:
        hour = hour % 12 + (12 if found[5].lower() == "pm" else 0)
    if hour > 24 or minute > 59 or second > 60:
        raise DataError(f'date/time field value out of range: "{text}"', sqlstate="22008")
    return f"{hour:02d}:{minute:02d}:{second:02d}{(found[4] or '')[:7]}"


def interval(text: str, fields: str = "", digits: int = 6) -> tuple[int, int, int]:
    """The months, days and microseconds of an interval. Raises `DataError`."""
    try:
        found = spans.interval(text, fields, digits)
    except DataError as error:
        if error.sqlstate != "22007":
            raise
        raise DataError(f'invalid input syntax for type interval: "{text}"', sqlstate="22007") from None
    return found.months, found.days, found.microseconds


def interval_sql(months: int, days: int, micros: int) -> str:
    """An interval in DuckDB's SQL."""
    return f"(to_months({months}) + to_days({days}) + to_microseconds({micros}))"


def _checked_json(text: str) -> str:
    load_json(text)
    return text


def load_json(text: str) -> Any:
    """A JSON text as Python values, decimals as they are written. Raises `DataError`."""

    def refuse(word: str) -> Any:
        raise ValueError(word)

    try:
        return json.loads(text, parse_float=Decimal, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise DataError(f'invalid input syntax for type json: "{text}"', sqlstate="22P02") from None


def canonical_json(text: str) -> str:
    """A JSON text as jsonb shows it."""
    return shown_json(load_json(text))


def shown_json(value: Any) -> str:
    """Python values as jsonb shows them: keys by length and then bytes, spaces behind colons and commas."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {shown_json(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown_json, value)) + "]"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return json.dumps(value, ensure_ascii=False)


def _array(text: str, type: PgType) -> tuple[str, PgType]:
    items = array_items(text, type)
    read_items = ["NULL" if item is None else read(item, type.element)[0] for item in items]
    return f"CAST([{', '.join(read_items)}] AS {type.duck})", type


def array_items(text: str, type: PgType) -> list[str | None]:
    """The elements of an array's text. Raises `DataError`."""
    inner = text.strip()
    if inner[:1] != "{" or inner[-1:] != "}":
        raise DataError(f'malformed array literal: "{text}"', sqlstate="22P02")
    if re.search(r'(?<!["\\])\{', inner[1:]):
        raise UnsupportedError("arrays of several dimensions are not supported")
    items: list[str | None] = []
    rest = inner[1:-1].strip()
    while rest:
        found = re.match(r'\s*("(?:[^"\\]|\\.)*"|(?:[^,"\\{}]|\\.)+)\s*(,|$)', rest)
        if found is None:
            raise DataError(f'malformed array literal: "{text}"', sqlstate="22P02")
        word = found[1].strip()
        if word.startswith('"'):
            items.append(re.sub(r"\\(.)", r"\1", word[1:-1]))
        else:
            items.append(None if word.upper() == "NULL" else re.sub(r"\\(.)", r"\1", word))
        rest = rest[found.end() :]
        if found[2] == "," and not rest.strip():
            raise DataError(f'malformed array literal: "{text}"', sqlstate="22P02")
    return items
