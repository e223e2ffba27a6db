"""Text that PostgreSQL makes of values and reads: `to_char` and its kin, `format`, intervals, regular expressions."""

from __future__ import annotations

import base64
import re
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np

from ontolake.sql.errors import SqlError

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TIME_PARTS = re.compile(
    r'"[^"]*"|FM|(?:SSSSS|SSSS|HH24|HH12|HH|MI|SS|MS|US|FF[1-6]|[AP]\.M\.|[ap]\.m\.|AM|PM|am|pm|Y,YYY|YYYY|YYY|YY|Y'
    r"|IYYY|IYY|IY|MONTH|Month|month|MON|Mon|mon|MM|DAY|Day|day|DY|Dy|dy|IDDD|DDD|DD|ID|D|IW|WW|W|CC|BC|AD|bc|ad|J|Q"
    r"|RM|TZH|TZM|TZ|tz|OF)(?:TH|th)?|.", re.DOTALL | re.IGNORECASE)  # fmt: skip
_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")


def ordinal(number: int) -> str:
    """The ending of an ordinal number."""
    if number % 100 in (11, 12, 13):
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


def time_text(moment: datetime, pattern: str) -> str:
    """A moment in the way of `to_char`."""
    parts: list[str] = []
    fill = True
    for found in _TIME_PARTS.finditer(pattern):
        word = found[0]
        if word.upper() == "FM":
            fill = False
            continue
        if word.startswith('"'):
            parts.append(word[1:-1])
            continue
        name, ending = word, ""
        if len(word) > 2 and word[-2:].upper() == "TH" and word.upper() not in ("MONTH",):
            name, ending = word[:-2], word[-2:]
        shown = _time_part(moment, name, fill)
        if ending:
            suffix = ordinal(int(shown)) if shown.strip("-").isdigit() else ""
            shown += suffix.upper() if ending.isupper() else suffix
        parts.append(shown)
        fill = True
    return "".join(parts)


def _time_part(moment: datetime, name: str, fill: bool) -> str:
    upper = name.upper()
    numbers: dict[str, tuple[int, int]] = {
        "HH24": (moment.hour, 2), "HH12": ((moment.hour + 11) % 12 + 1, 2), "HH": ((moment.hour + 11) % 12 + 1, 2),
        "MI": (moment.minute, 2), "SS": (moment.second, 2), "MS": (moment.microsecond // 1000, 3),
        "US": (moment.microsecond, 6), "SSSS": (moment.hour * 3600 + moment.minute * 60 + moment.second, 1),
        "SSSSS": (moment.hour * 3600 + moment.minute * 60 + moment.second, 1), "YYYY": (moment.year, 4),
        "YYY": (moment.year % 1000, 3), "YY": (moment.year % 100, 2), "Y": (moment.year % 10, 1),
        "IYYY": (moment.isocalendar()[0], 4), "IYY": (moment.isocalendar()[0] % 1000, 3),
        "IY": (moment.isocalendar()[0] % 100, 2), "MM": (moment.month, 2), "DD": (moment.day, 2),
        "DDD": (moment.timetuple().tm_yday, 3), "D": (moment.isoweekday() % 7 + 1, 1), "ID": (moment.isoweekday(), 1),
        "IDDD": ((moment.isocalendar()[1] - 1) * 7 + moment.isoweekday(), 3), "IW": (moment.isocalendar()[1], 2),
        "WW": ((moment.timetuple().tm_yday - 1) // 7 + 1, 2), "W": ((moment.day - 1) // 7 + 1, 1),
        "CC": ((moment.year + 99) // 100, 2), "J": (moment.toordinal() + 1721425, 1), "Q": ((moment.month + 2) // 3, 1),
    }  # fmt: skip
    if upper in numbers:
        number, width = numbers[upper]
        return f"{number:0{width}d}" if fill else str(number)
    if upper == "Y,YYY":
        return f"{moment.year // 1000},{moment.year % 1000:03d}"
    if re.fullmatch("FF[1-6]", upper):
        return f"{moment.microsecond:06d}"[: int(upper[2])]
    if upper in ("AM", "PM", "A.M.", "P.M."):
        half = "PM" if moment.hour >= 12 else "AM"
        half = half if "." not in name else f"{half[0]}.{half[1]}."
        return half if name[0].isupper() else half.lower()
    if upper in ("BC", "AD"):
        return "AD" if name.isupper() else "ad"
    if upper in ("MONTH", "DAY"):
        text = _MONTHS[moment.month - 1] if upper == "MONTH" else _DAYS[moment.weekday()]
        return _cased(text, name).ljust(9 if fill else 0)
    if upper in ("MON", "DY"):
        return _cased((_MONTHS[moment.month - 1] if upper == "MON" else _DAYS[moment.weekday()])[:3], name)
    if upper == "RM":
        return _cased(_ROMAN[moment.month - 1], name).ljust(4 if fill else 0)
    return {"TZ": "UTC" if name.isupper() else "utc", "OF": "+00", "TZH": "+00", "TZM": "00"}.get(upper, name)


def _cased(text: str, pattern: str) -> str:
    return text.upper() if pattern.isupper() else text.lower() if pattern.islower() else text


def span_text(span: Any, pattern: str) -> str:
    """An interval in the way of `to_char`."""
    months, days, micros = _parts(span)
    seconds, fraction = divmod(abs(micros), 1_000_000)
    hours = seconds // 3600
    numbers = {"HH24": hours, "HH12": (hours + 11) % 12 + 1, "HH": (hours + 11) % 12 + 1, "MI": seconds // 60 % 60,
               "SS": seconds % 60, "DD": days, "MM": months % 12, "YYYY": months // 12, "DDD": days}  # fmt: skip
    parts: list[str] = []
    fill = True
    for found in _TIME_PARTS.finditer(pattern):
        word = found[0]
        if word.upper() == "FM":
            fill = False
            continue
        if word.upper() in numbers:
            width = {"DDD": 3, "YYYY": 4}.get(word.upper(), 2)
            number = numbers[word.upper()]
            parts.append(f"{number:0{width}d}" if fill else str(number))
        elif word.upper() in ("MS", "US"):
            parts.append(f"{fraction // 1000:03d}" if word.upper() == "MS" else f"{fraction:06d}")
        else:
            parts.append(word.strip('"'))
        fill = True
    return "".join(parts)


def _parts(span: Any) -> tuple[int, int, int]:
    """The months, days and microseconds of an interval as Arrow has it."""
    if isinstance(span, timedelta):
        return 0, span.days, span.seconds * 1_000_000 + span.microseconds
    return int(span[0]), int(span[1]), int(span[2]) // 1000


def interval_text(span: Any) -> str:
    """An interval as PostgreSQL shows it."""
    months, days, micros = _parts(span)
    parts = []
    years, months = int(months / 12), months - int(months / 12) * 12
    negative = False
    for number, name in ((years, "year"), (months, "mon"), (days, "day")):
        if number:
            sign = "+" if negative and number > 0 else ""
            parts.append(f"{sign}{number} {name}{'' if number == 1 else 's'}")
            negative = number < 0
    if micros or not parts:
        seconds, fraction = divmod(abs(micros), 1_000_000)
        sign = "-" if micros < 0 else "+" if negative else ""
        clock = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        parts.append(clock + (f".{fraction:06d}".rstrip("0") if fraction else ""))
    return " ".join(parts)


def read_time(text: str, pattern: str) -> datetime:
    """`to_timestamp` and `to_date`: the moment that a text shows in the way of a pattern."""
    found: dict[str, int] = {}
    place, half = 0, ""
    for each in _TIME_PARTS.finditer(pattern):
        word = each[0].upper()
        if word == "FM":
            continue
        while place < len(text) and text[place].isspace() and not word.isspace():
            place += 1
        if word in ("MONTH", "MON"):
            name = next(
                (n for n, month in enumerate(_MONTHS) if text[place : place + 3].lower() == month[:3].lower()), None
            )
            if name is None:
                raise SqlError(f'invalid value "{text[place : place + 3]}" for "{each[0]}"', sqlstate="22007")
            full = text[place:].lower().startswith(_MONTHS[name].lower()) and word == "MONTH"
            place += len(_MONTHS[name]) if full else 3
            found["MM"] = name + 1
        elif word in ("DAY", "DY"):
            place += len(re.match(r"[A-Za-z]*", text[place:])[0])  # type: ignore[index]
        elif word in ("AM", "PM", "A.M.", "P.M."):
            half = text[place].upper() if place < len(text) else ""
            place += len(word)
        elif re.fullmatch(r"Y,YYY|Y+|MM|DD|DDD|HH24|HH12|HH|MI|SS|MS|US|FF[1-6]|J|SSSSS?", word):
            width = {
                "YYYY": 4,
                "YYY": 3,
                "YY": 2,
                "Y": 1,
                "MS": 3,
                "US": 6,
                "DDD": 3,
                "J": 7,
                "SSSS": 5,
                "SSSSS": 5,
            }.get(word, 2)
            width = int(word[2]) if word.startswith("FF") else width
            number = re.match(rf"[+-]?\d{{1,{width}}}", text[place:])
            if number is None:
                if place >= len(text):
                    break
                raise SqlError(f'invalid value "{text[place:]}" for "{each[0]}"', sqlstate="22007")
            place += number.end()
            scale = {"MS": 3, "US": 6}.get(word, width)
            if word in ("MS", "US") or word.startswith("FF"):
                found["US"] = int(number[0].ljust(scale, "0").ljust(6, "0")[:6])
            else:
                found["HH" if word == "HH12" else word] = int(number[0])
        else:
            place += 1
    return _composed(found, half, text)


def _composed(found: dict[str, int], half: str, text: str) -> datetime:
    year = found.get("YYYY", 1)
    if "YY" in found:
        year = found["YY"] + (2000 if found["YY"] < 70 else 1900)
    hour = found.get("HH24", found.get("HH", 0))
    if half == "P" and hour < 12:
        hour += 12
    elif half == "A" and hour == 12:
        hour = 0
    try:
        day = date(year, found.get("MM", 1), found.get("DD", 1))
        if "DDD" in found:
            day = date(year, 1, 1) + timedelta(found["DDD"] - 1)
        if "J" in found:
            day = date.fromordinal(found["J"] - 1721425)
        return datetime(day.year, day.month, day.day, hour, found.get("MI", 0), found.get("SS", 0), found.get("US", 0))
    except ValueError:
        raise SqlError(f'date/time field value out of range: "{text}"', sqlstate="22008") from None


def evaluated_moment(text: str) -> str:
    """A moment with a zone as what clocks show in UTC."""
    from ontolake.sql.executor import connections, literals
    from ontolake.sql.executor.pg_types import TIMESTAMPTZ

    with connections.connection() as connection:
        row = connection.execute(f"SELECT CAST({literals.read(text, TIMESTAMPTZ)[0]} AS VARCHAR)").fetchone()
    assert row is not None
    return str(row[0])


def shortest_float4(value: float) -> str:
    """The fewest digits that give the same number of 32 bits."""
    return str(np.float32(value))


def formatted(pattern: str, values: list[str | None]) -> str:
    """`format`: values in the places of a text."""
    parts: list[str] = []
    place = 0
    for found in re.finditer(r"%(?:(\d+)\$)?(-)?(\d+|\*(?:\d+\$)?)?([sILd%])|%|[^%]+", pattern):
        if not found[0].startswith("%"):
            parts.append(found[0])
            continue
        if found[4] is None:
            raise SqlError("unterminated format() type specifier", sqlstate="22023")
        if found[4] == "%":
            parts.append("%")
            continue
        if found[4] == "d":
            raise SqlError('unrecognized format() type specifier "d"', sqlstate="22023")
        width = found[3] or "0"
        if width.startswith("*"):
            at = int(width[1:-1]) - 1 if len(width) > 1 else place
            place = at + 1
            width = _argument(values, at) or "0"
        if found[1]:
            place = int(found[1]) - 1
        _argument(values, place)
        value, kind = values[place], found[4]
        place += 1
        shown = _quoted(value, kind)
        room = int(width)
        parts.append(shown.ljust(abs(room)) if found[2] or room < 0 else shown.rjust(room))
    return "".join(parts)


def _argument(values: list[str | None], place: int) -> str | None:
    if place < 0:
        raise SqlError("format specifies argument 0, but arguments are numbered from 1", sqlstate="22023")
    if place >= len(values):
        raise SqlError("too few arguments for format()", sqlstate="22023")
    return values[place]


def _quoted(value: str | None, kind: str) -> str:
    if kind == "s":
        return "" if value is None else value
    if kind == "L":
        return "NULL" if value is None else quote_literal(value)
    if value is None:
        raise SqlError("null values cannot be formatted as an SQL identifier", sqlstate="22004")
    return quote_ident(value)


def quote_literal(value: str) -> str:
    """A text as a literal of SQL."""
    doubled = value.replace("'", "''")
    return f"E'{doubled}'".replace("\\", "\\\\") if "\\" in value else f"'{doubled}'"


def quote_ident(value: str) -> str:
    """A text as an identifier of SQL."""
    return value if re.fullmatch(r"[a-z_][a-z0-9_$]*", value) else '"' + value.replace('"', '""') + '"'


def encoded(digits: str, kind: str) -> str:
    """Bytes, given by their hexadecimal digits, as text: `hex`, `base64` or `escape`."""
    data = bytes.fromhex(digits)
    if kind == "hex":
        return digits
    if kind == "base64":
        return re.sub(r"(.{76})(?=.)", r"\1\n", base64.b64encode(data).decode())
    if kind == "escape":
        return "".join("\\\\" if each == 92 else chr(each) if 0 < each < 128 else f"\\{each:03o}" for each in data)
    raise SqlError(f'unrecognized encoding: "{kind}"', sqlstate="22023")


def decoded(text: str, kind: str) -> str:
    """The hexadecimal digits of bytes that a text shows."""
    try:
        if kind == "hex":
            return bytes.fromhex(text).hex()
        if kind == "base64":
            return base64.b64decode(re.sub(r"\s", "", text), validate=True).hex()
    except ValueError:
        raise SqlError(f"invalid {kind} data", sqlstate="22023") from None
    if kind == "escape":
        return re.sub(rb"\\(\\|[0-3][0-7][0-7])", lambda found: b"\\" if found[1] == b"\\" else bytes([int(found[1], 8)]),  # noqa: E501
                      text.encode()).hex()  # fmt: skip
    raise SqlError(f'unrecognized encoding: "{kind}"', sqlstate="22023")
