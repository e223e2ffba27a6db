"""Dates, times and timestamps as PostgreSQL reads and writes them, over all years that it knows.

Dates are days and timestamps microseconds since 1970, in the Gregorian calendar extended to all years; year 0 is 1 BC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction
from typing import NamedTuple
from zoneinfo import ZoneInfo

from ontolake.sql.errors import DataError

DAY = 86_400_000_000
"""Microseconds of a day."""
FOREVER, EVER = 2**63 - 1, -(2**63 - 1)
"""Timestamps that stand for infinity and -infinity."""
LAST_DAY, FIRST_DAY = 2**31 - 1, -(2**31 - 1)
"""Dates that stand for infinity and -infinity."""


def days_of(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date."""
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)  # years that begin in March
    era, of_era = divmod(year, 400)
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + (153 * month + 2) // 5 + day - 1 - 719_468


def date_of(days: int) -> tuple[int, int, int]:
    """The year, month and day that lie so many days after 1970-01-01."""
    era, of_era = divmod(days + 719_468, 146_097)
    years = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    year = era * 400 + years
    return (year, month + 3, day) if month < 10 else (year + 1, month - 9, day)


FIRST_DATE, LAST_DATE = days_of(-4713, 11, 24), days_of(5_874_897, 12, 31)
FIRST_MOMENT, LAST_MOMENT = FIRST_DATE * DAY, days_of(294_247, 1, 10) * DAY - 1
"""The range of timestamps: from the beginning of PostgreSQL's to the last whole day that 64 bits reach from 1970."""

_MONTHS = {name: number for number, names in enumerate((
    ("jan", "january"), ("feb", "february"), ("mar", "march"), ("apr", "april"), ("may",), ("jun", "june"),
    ("jul", "july"), ("aug", "august"), ("sep", "sept", "september"), ("oct", "october"), ("nov", "november"),
    ("dec", "december")), 1) for name in names}  # fmt: skip
_WORDS = {"today": 0, "tomorrow": 1, "yesterday": -1}
_JULIAN = 2_440_588
"""The Julian day of 1970-01-01."""
_ZONES = {
    "z": 0, "utc": 0, "zulu": 0, "gmt": 0, "ut": 0, "wet": 0, "bst": 1, "cet": 1, "west": 1, "met": 1, "cest": 2,
    "eet": 2, "eest": 3, "msk": 3, "est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8,
    "pdt": -7, "akst": -9, "akdt": -8, "hst": -10, "jst": 9, "kst": 9,
}  # fmt: skip
"""Hours east of UTC of the abbreviations of time zones that people use most."""
_DAYS = {name for day in ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
         for name in (day, day[:3])}  # fmt: skip
_TIME = re.compile(r"[Tt]?(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:[.,](\d*))?)?")
_TOKEN = re.compile(r"""\s* (?:
    (?P<time>[Tt]?\d{1,2}:\d{1,2}(?::\d{1,2}(?:\.\d*)?)?)
  | (?P<ymd>\d{3,}[-/.]\d{1,2}[-/.]\d{1,2}) | (?P<dmy>\d{1,2}[-/.]\d{1,2}[-/.]\d{1,})
  | (?P<named>\d{1,4}[-/ ]?[A-Za-z]{3,9}[-/ ,]+\d{1,}) (?![\d:]) | (?P<zone>[+-]\d{1,2}(?::?\d{2}(?::?\d{2})?)?)
  | (?P<compact>\d{8}|\d{6}) (?:T(?P<clock>\d{6}|\d{4})(?P<part>\.\d*)?)? (?!\d)
  | (?P<number>\d+) | (?P<word>[A-Za-z][A-Za-z_]*(?:/[A-Za-z_+\-0-9]+)*) ) (?P<after>[,\s]*)""", re.VERBOSE)


class Reading(NamedTuple):
    """What a text says: a date, a time of day in microseconds, and seconds east of UTC or a zone, where it does."""

    days: int | None
    time: int | None
    offset: int | None
    zone: str = ""
    infinite: int = 0
    """1 for infinity, -1 for -infinity."""


def unreadable(what: str, text: str) -> DataError:
    return DataError(f"{text!r} cannot be read as {what}", sqlstate="22007", hint=_HINTS.get(what))


_HINTS = {"DATE": "write 2026-02-11", "TIMESTAMP": "write 2026-02-11 10:00:00", "TIME": "write 10:00:00",
          "TIMESTAMPTZ": "write 2026-02-11 10:00:00+01", "INTERVAL": "write 1 year 2 days 03:04:05"}  # fmt: skip


def out_of_range(what: str, value: object) -> DataError:
    """The error for a value that a type of dates or times does not hold."""
    return DataError(f"{value} is out of range for {what}", sqlstate="22008")


def _clock(what: str, text: str, found: re.Match[str], afternoon: bool | None) -> int:
    hours, minutes, seconds = int(found[1]), int(found[2]), int(found[3] or 0)
    if afternoon is not None:
        if not 1 <= hours <= 12:
            raise out_of_range(what, repr(text))
        hours = hours % 12 + (12 if afternoon else 0)
    parts = _fraction(found[4])
    total = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + parts
    if minutes > 59 or seconds > 60 or total > DAY:
        raise out_of_range(what, repr(text))
    return total


def _fraction(digits: str | None) -> int:
    """Microseconds of the digits behind a point."""
    return round(Fraction(int(digits), 10 ** len(digits)) * 1_000_000) if digits else 0


def _days(what: str, text: str, year: int, month: int, day: int, before: bool, short: bool = False) -> int:
    if short and not before:
        year += 2000 if year < 70 else 1900
    if before:
        year = 1 - year
    lengths = (31, 28 + _is_leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    is_known = (before or year) and abs(year) < 6_000_000
    if not is_known or not 1 <= month <= 12 or not 1 <= day <= lengths[month - 1]:
        raise out_of_range(what, repr(text))
    return days_of(year, month, day)


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def read(what: str, given: str) -> Reading:
    """What a text says of a date and a time. Raises `DataError` with 22007 or 22008."""
    text = given.strip()
    plain = text.lower()
    if plain in ("infinity", "+infinity", "-infinity"):
        return Reading(None, None, None, infinite=-1 if plain[0] == "-" else 1)
    if plain == "epoch":
        return Reading(0, 0, 0)
    if plain in _WORDS or (plain == "now" and what != "DATE"):
        now = datetime.now(UTC)
        since = ((now.hour * 60 + now.minute) * 60 + now.second) * 1_000_000 + now.microsecond
        today = days_of(now.year, now.month, now.day)
        return Reading(today + _WORDS.get(plain, 0), since if plain == "now" else 0, None)
    if julian := re.fullmatch(r"j(\d{1,9})", plain):
        return Reading(int(julian[1]) - _JULIAN, None, None)
    if ordinal := re.fullmatch(r"(\d{4})\.(\d{3})(\s.*)?", plain):  # a year and the number of a day
        year, number = int(ordinal[1]), int(ordinal[2])
        if not 1 <= number <= 365 + _is_leap(year):
            raise unreadable(what, given)
        text = date_text(days_of(year, 1, 1) + number - 1) + (ordinal[3] or "")
    before, afternoon = False, None
    parts: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.end() == at:
            raise unreadable(what, given)
        kind = str(found.lastgroup if found.lastgroup != "after" else next(
            name for name in ("time", "ymd", "dmy", "named", "zone", "compact", "number", "word") if found[name]))
        value = found[kind]
        if kind == "compact" and found["clock"]:
            parts += [("compact", value), ("clock", found["clock"] + (found["part"] or ""))]
        elif kind == "word" and value.lower() in ("bc", "ad", "am", "pm"):
            before = before or value.lower() == "bc"
            if value.lower() in ("am", "pm"):
                afternoon = value.lower() == "pm"
        elif kind != "word" or value.lower() not in _DAYS:
            parts.append((kind, value))
        at = found.end()
    return _read(what, given, parts, before, afternoon)


def _east(text: str, zone: str) -> int:
    """Seconds east of UTC of a zone such as +02:00."""
    digits = re.fullmatch(r"([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?", zone)
    assert digits is not None
    if int(digits[2]) > 15 or int(digits[3] or 0) > 59:
        raise DataError(f"{text!r} has a time zone that is out of range", sqlstate="22009")
    seconds = (int(digits[2]) * 60 + int(digits[3] or 0)) * 60 + int(digits[4] or 0)
    return -seconds if digits[1] == "-" else seconds


def _read(what: str, text: str, parts: list[tuple[str, str]], before: bool, afternoon: bool | None) -> Reading:
    days: int | None = None
    time: int | None = None
    offset: int | None = None
    zone = ""
    words: list[int] = []  # the numbers of a date that names its month
    month: int | None = None
    for place, (kind, value) in enumerate(parts):
        if kind == "time" and time is None:
            clock = _TIME.fullmatch(value)
            if clock is None:
                raise unreadable(what, text)
            time = _clock(what, text, clock, afternoon)
        elif kind == "clock" and time is None:
            whole, _, part = value.partition(".")
            time = ((int(whole[:2]) * 60 + int(whole[2:4])) * 60 + int(whole[4:] or 0)) * 1_000_000 + _fraction(part)
        elif kind == "compact" and days is not None and time is None and len(value) == 6:
            clock = _TIME.fullmatch(f"{value[:2]}:{value[2:4]}:{value[4:]}")
            assert clock is not None
            time = _clock(what, text, clock, afternoon)
        elif kind in ("ymd", "dmy", "compact") and days is None:
            numbers = re.split(r"[-/.]", value)
            if kind == "compact":
                numbers = [value[:-4], value[-4:-2], value[-2:]]
            if kind == "dmy":  # month, day, year
                numbers = [numbers[2], numbers[0], numbers[1]]
            year, middle, last = map(int, numbers)
            days = _days(what, text, year, middle, last, before, len(numbers[0]) <= 2)
        elif kind == "named" and days is None:
            one, name, two = re.fullmatch(r"(\d+)[-/ ]?([A-Za-z]+)[-/ ,]+(\d+)", value).groups()  # type: ignore[union-attr]
            if name.lower() not in _MONTHS:
                raise unreadable(what, text)
            year, day = (int(one), int(two)) if len(one) > 2 else (int(two), int(one))
            short = len(one if len(one) > 2 else two) <= 2
            days = _days(what, text, year, _MONTHS[name.lower()], day, before, short)
        elif kind == "zone" and offset is None and (time is not None or days is not None):
            offset = _east(text, value)
        elif kind == "zone" and offset == 0 and parts[place - 1][1].lower() in ("gmt", "utc"):  # to the west is plus
            offset = -_east(text, value)
        elif kind == "word" and value.lower() in _ZONES and offset is None:
            offset = _ZONES[value.lower()] * 3600
        elif kind == "word" and value.lower() in _MONTHS and month is None:
            month = _MONTHS[value.lower()]
        elif kind == "number" and days is None:
            words.append(int(value))
        elif kind == "word" and "/" in value and not zone:
            zone = value
        else:
            raise unreadable(what, text)
    if month is not None or words:
        if month is None or days is not None or len(words) != 2:
            raise unreadable(what, text)
        first, second = words
        year, day = (first, second) if first > 31 else (second, first)
        days = _days(what, text, year, month, day, before, year < 100)
    return Reading(days, time, offset, zone)


_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[ T](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?)?")


def timestamp(what: str, text: str, zoned: bool) -> int:
    """Microseconds since 1970 that a text stands for. Without `zoned` its time zone is not looked at."""
    if (plain := _ISO.fullmatch(text)) is not None and plain[1] != "0000":
        year, month, day, hour, minute, second = (int(each or 0) for each in plain.groups()[:6])
        try:
            datetime(year, month, day, hour, minute, second)
        except ValueError:
            pass  # the slow way says what is wrong
        else:
            seconds = (hour * 60 + minute) * 60 + second
            return days_of(year, month, day) * DAY + seconds * 1_000_000 + int((plain[7] or "").ljust(6, "0"))
    found = read(what, text)
    if found.infinite:
        return FOREVER if found.infinite > 0 else EVER
    if found.days is None:
        raise unreadable(what, text)
    moment = found.days * DAY + (found.time or 0)
    if zoned:
        moment -= _offset(what, text, found, moment) * 1_000_000
    if not FIRST_MOMENT <= moment <= LAST_MOMENT:
        raise out_of_range(what, repr(text))
    return moment


def _offset(what: str, text: str, found: Reading, moment: int) -> int:
    if found.zone:
        try:
            place = ZoneInfo(found.zone)
            delta = datetime.fromtimestamp(0, place).replace(tzinfo=place)
            year, month, day = date_of(moment // DAY)
            rest = moment % DAY
            delta = datetime(year, month, day, rest // 3_600_000_000, rest // 60_000_000 % 60, tzinfo=place)
            away = delta.utcoffset()
        except (OSError, ValueError, KeyError):
            raise DataError(f"there is no time zone {found.zone}", sqlstate="22023") from None
        return int(away.total_seconds()) if away is not None else 0
    return found.offset or 0


def date(text: str) -> int:
    """Days since 1970 that a text stands for."""
    found = read("DATE", text)
    if found.infinite:
        return LAST_DAY if found.infinite > 0 else FIRST_DAY
    if found.days is None:
        raise unreadable("DATE", text)
    if not FIRST_DATE <= found.days <= LAST_DATE:
        raise out_of_range("DATE", repr(text))
    return found.days


def time(text: str) -> int:
    """Microseconds since midnight that a text stands for."""
    text = text.strip()
    if (compact := re.fullmatch(r"[Tt]?(\d{2})(\d{2})(\d{2})?(\.\d*)?", text)) is not None:
        text = f"{compact[1]}:{compact[2]}:{compact[3] or '00'}{compact[4] or ''}"
    found = read("TIME", text)
    if found.infinite or found.time is None:
        raise unreadable("TIME", text)
    return found.time


def date_text(days: int) -> str:
    """A date as PostgreSQL writes it."""
    if days in (LAST_DAY, FIRST_DAY):
        return "infinity" if days > 0 else "-infinity"
    year, month, day = date_of(days)
    return f"{year if year > 0 else 1 - year:04}-{month:02}-{day:02}" + (" BC" if year <= 0 else "")


def time_text(moment: int) -> str:
    """A time of day as PostgreSQL writes it."""
    seconds, part = divmod(moment, 1_000_000)
    shown = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return shown + (f".{part:06}".rstrip("0") if part else "")


def timestamp_text(moment: int, zoned: bool) -> str:
    """A timestamp as PostgreSQL writes it in UTC."""
    if moment in (FOREVER, EVER):
        return "infinity" if moment > 0 else "-infinity"
    days, rest = divmod(moment, DAY)
    shown = date_text(days)
    day, _, before = shown.partition(" ")
    return f"{day} {time_text(rest)}" + ("+00" if zoned else "") + (f" {before}" if before else "")
