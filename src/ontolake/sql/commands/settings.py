"""The settings of a session: SET, SHOW and RESET. Settings that tools of PostgreSQL send are known.

A setting that could change an answer takes only the value that answers are given for, such as the time zone UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ontolake.sql.errors import LISTING, DataError, SqlError, UnknownNameError, nearest

_ZONES = {"utc", "etc/utc", "gmt", "0", "+0", "-0", "00:00", "zulu", "universal", "etc/universal", "etc/zulu", "uct"}
_LEVELS = {"serializable", "repeatable read", "read committed", "read uncommitted"}
_UNITS = {"": 1, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "us": 0.001}


def _any(value: str) -> str:
    return value


def _only(*allowed: str, shown: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value.lower() not in allowed:
            raise DataError(f"only {shown} is supported, not {value}", sqlstate="22023")
        return shown

    return check


def _flag(value: str) -> str:
    for shown, words in (("on", ("on", "true", "yes", "1", "t", "y")), ("off", ("off", "false", "no", "0", "f", "n"))):
        if value.lower() in words:
            return shown
    raise DataError(f"{value} is neither on nor off", sqlstate="22023")


def _duration(value: str) -> str:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min|h|d)?\s*", value)
    if found is None:
        raise DataError(f"{value} is no time such as 500, 2s or 1min", sqlstate="22023",
                        hint="units are us, ms, s, min, h and d")
    total = round(float(found[1]) * _UNITS[found[2] or ""])
    for unit, size in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if total and total % size == 0:
            return f"{total // size}{unit}"
    return f"{total}ms" if total else "0"


def _whole(value: str) -> str:
    if re.fullmatch(r"[+-]?\d+", value) is None:
        raise DataError(f"{value} is no whole number", sqlstate="22023")
    return str(int(value))


def _level(value: str) -> str:
    if value.lower() not in _LEVELS:
        raise DataError(f"there is no isolation level {value}", sqlstate="22023")
    return value.lower()


class Setting(NamedTuple):
    """What a setting is at first, and what it may be; None if it cannot be set."""

    default: str
    check: Callable[[str], str] | None


KNOWN: dict[str, Setting] = {
    "application_name": Setting("", _any), "bytea_output": Setting("hex", _only("hex", shown="hex")),
    "check_function_bodies": Setting("on", _flag), "client_encoding": Setting("UTF8", _only(
        "utf8", "utf-8", "unicode", shown="UTF8")),
    "client_min_messages": Setting("notice", _any),
    "datestyle": Setting("ISO, MDY", _only("iso", "iso, mdy", "iso,mdy", "iso, ymd", "default", shown="ISO, MDY")),
    "default_table_access_method": Setting("heap", _any), "default_tablespace": Setting("", _only("", shown="")),
    "default_transaction_deferrable": Setting("off", _flag),
    "default_transaction_isolation": Setting("serializable", _level),
    "default_transaction_read_only": Setting("off", _flag), "extra_float_digits": Setting("1", _whole),
    "idle_in_transaction_session_timeout": Setting("0", _duration), "idle_session_timeout": Setting("0", _duration),
    "in_hot_standby": Setting("off", None), "integer_datetimes": Setting("on", None),
    "intervalstyle": Setting("postgres", _only("postgres", shown="postgres")), "jit": Setting("off", _flag),
    "lc_collate": Setting("C", None), "lc_ctype": Setting("C", None), "lc_messages": Setting("C", _any),
    "lc_monetary": Setting("C", _any), "lc_numeric": Setting("C", _any), "lc_time": Setting("C", _any),
    "lock_timeout": Setting("0", _duration), "max_identifier_length": Setting("63", None),
    "row_security": Setting("on", _flag), "search_path": Setting("public", _any),
    "server_encoding": Setting("UTF8", None), "server_version": Setting("15.0", None),
    "server_version_num": Setting("150000", None),
    "standard_conforming_strings": Setting("on", _only("on", "true", "1", "yes", shown="on")),
    "statement_timeout": Setting("0", _duration), "synchronous_commit": Setting("on", _any),
    "timezone": Setting("UTC", _only(*_ZONES, shown="UTC")), "transaction_isolation": Setting("serializable", None),
    "transaction_read_only": Setting("off", None), "work_mem": Setting("4MB", _any),
    "xmloption": Setting("content", _any),
}  # fmt: skip
"""All settings, by name."""


class Settings:
    """The values that settings have in a session. A transaction that is rolled back takes back what it set."""

    def __init__(self, **given: str) -> None:
        self._defaults = {name: setting.default for name, setting in KNOWN.items()} | given
        self._values = dict(self._defaults)
        self._before: dict[str, str] | None = None
        self._local: set[str] = set()
        self.changes = 0
        """Counts whatever may have changed a value."""

    def start(self, name: str, value: str) -> None:
        """Let a setting be this at first, and after RESET. Raises what `set` raises."""
        self.set(name, [value])
        self._defaults[name.lower()] = self._values[name.lower()]

    def get(self, name: str) -> str:
        """The value of a setting. Raises `UnknownNameError`."""
        name = name.lower()
        if name not in self._values:
            raise _unknown(name)
        return self._values[name]

    def all(self) -> dict[str, str]:
        return dict(sorted(self._values.items()))

    def milliseconds(self, name: str) -> int:
        """A setting that is a time, in milliseconds."""
        found = re.fullmatch(r"(\d+)(\w*)", self._values[name])
        assert found is not None
        return int(int(found[1]) * _UNITS[found[2]])

    def seconds(self, name: str) -> float | None:
        """A time-out in seconds; None if there is none."""
        return None if self._values[name] == "0" else self.milliseconds(name) / 1000

    def set(self, name: str, values: Sequence[str] | None, *, local: bool = False) -> None:
        """Set a setting, None to its default. Raises `UnknownNameError`, and `SqlError` for a value it cannot have."""
        name = name.lower()
        self.changes += 1
        setting = KNOWN.get(name)
        if setting is None and "." not in name:
            raise _unknown(name)
        if setting is not None and setting.check is None:
            raise SqlError(f"{name} cannot be changed", sqlstate="55P02")
        if values is None:
            value = self._defaults.get(name, "")
        else:
            value = ", ".join(values)
            value = setting.check(value) if setting is not None and setting.check is not None else value
        if local:
            if self._before is None:
                return
            self._local.add(name)
        else:
            self._local.discard(name)
        self._values[name] = value

    def reset(self) -> None:
        """Set all settings to their defaults."""
        self.changes += 1
        self._values = dict(self._defaults)

    def begin(self) -> None:
        """A transaction begins."""
        self._before, self._local = dict(self._values), set()

    def end(self, *, committed: bool) -> None:
        """A transaction ends: what it set for itself is as it was before, all of it if it was rolled back."""
        if self._before is None:
            return
        self.changes += 1
        names = self._local if committed else set(self._values)
        for name in names:
            if name in self._before:
                self._values[name] = self._before[name]
            else:
                del self._values[name]
        self._before, self._local = None, set()


def _unknown(name: str) -> UnknownNameError:
    listed = name in ("tables", "databases", "schemas", "columns", "indexes")
    return UnknownNameError(f"there is no setting {name}", sqlstate="42704",
                            hint=LISTING if listed else nearest(name, KNOWN))  # fmt: skip
