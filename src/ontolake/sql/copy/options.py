"""The options of COPY, with PostgreSQL's rules of what may stand together."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ontolake.sql.errors import (
    DefinitionError,
    SqlError,
    SqlSyntaxError,
    UnknownNameError,
    UnsupportedError,
    nearest,
)  # fmt: skip

_BOOLEANS = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
_KNOWN = ("format", "header", "delimiter", "null", "quote", "escape", "force_quote", "force_null", "force_not_null",
          "encoding", "freeze")  # fmt: skip
_IN_TEXT = "\\.abcdefghijklmnopqrstuvwxyz0123456789"
"""What no delimiter of the text format can be: it has a meaning behind a backslash."""
_ENCODINGS = {"utf8": "utf-8", "unicode": "utf-8", "sql_ascii": "utf-8", "euc_jp": "euc_jp", "euc_kr": "euc_kr",
              "sjis": "shift_jis", "win1252": "cp1252"}  # fmt: skip

Columns = Sequence[str] | None
"""Names of columns; None for all of them."""


@dataclass(frozen=True)
class CopyOptions:
    """How a file is written. Characters are bytes, since PostgreSQL takes only those of one byte."""

    is_csv: bool
    is_binary: bool
    header: bool
    checks_header: bool
    delimiter: bytes
    null: bytes
    quote: bytes
    escape: bytes
    force_quote: Columns
    force_null: Columns
    force_not_null: Columns
    encoding: str


def read_options(given: Mapping[str, Any], *, into: bool) -> CopyOptions:
    """The options of COPY … FROM (`into`) or TO. Raises `SqlError` for those that cannot be."""
    for name in given:
        if name not in _KNOWN:
            raise SqlSyntaxError(f"COPY has no option {name}", hint=nearest(name, _KNOWN))
    kind = str(given.get("format", "text")).lower()
    if kind not in ("text", "csv", "binary"):
        raise SqlError(f"{kind!r} is not a format of COPY", sqlstate="22023", hint="use csv, text or binary")
    for name in ("delimiter", "null") if kind == "binary" else ():
        if name in given:
            raise SqlSyntaxError(f"{name.upper()} cannot be used with the binary format of COPY")
    is_csv = kind == "csv"
    if "freeze" in given:
        _boolean("freeze", given["freeze"])
    header, checks = _header(given.get("header", False), into=into)
    quote = _character("quote", given.get("quote", '"'))
    found = CopyOptions(
        is_csv, kind == "binary", header, checks,
        _character("delimiter", given.get("delimiter", "," if is_csv else "\t")),
        _text("null", given.get("null", "" if is_csv else "\\N")).encode(), quote,
        _character("escape", given["escape"]) if "escape" in given else quote,
        _columns(given, "force_quote"), _columns(given, "force_null"), _columns(given, "force_not_null"),
        _encoding(_text("encoding", given.get("encoding", "utf8"))))  # fmt: skip
    _check(found, given, into)
    return found


def _check(options: CopyOptions, given: Mapping[str, Any], into: bool) -> None:
    if options.is_binary and options.header:
        raise UnsupportedError("HEADER cannot be used with the binary format of COPY")
    if options.delimiter in b"\r\n":
        raise SqlError("the delimiter of COPY cannot be the end of a line", sqlstate="22023")
    if any(each in options.null for each in (b"\r", b"\n")):
        raise SqlError("the text for NULL of COPY cannot have the end of a line", sqlstate="22023")
    if not options.is_csv and options.delimiter.decode() in _IN_TEXT:
        raise SqlError(f"the delimiter of COPY cannot be {options.delimiter.decode()!r}", sqlstate="22023",
                       hint="it has a meaning behind a backslash: use another, or the format csv")
    for name in ("quote", "escape", "force_quote", "force_not_null", "force_null"):
        if name in given and not options.is_csv:
            raise UnsupportedError(f"{name.upper()} of COPY is for the format csv")
        if name in given and name.startswith("force") and (name == "force_quote") == into:
            raise UnsupportedError(f"{name.upper()} cannot be used with COPY {'FROM' if into else 'TO'}")
    if options.is_csv and options.delimiter == options.quote:
        raise SqlError("the delimiter and the quote of COPY must differ", sqlstate="22023")
    if options.delimiter in options.null:
        raise UnsupportedError("the text for NULL of COPY cannot have the delimiter")
    if options.is_csv and options.quote in options.null:
        raise UnsupportedError("the text for NULL of COPY cannot have the quote")


def chosen(names: Columns, columns: Sequence[str], known: Collection[str], option: str) -> frozenset[str]:
    """The columns that an option means, of those that are copied; `known` are all that there are.

    Raises `UnknownNameError`, and `DefinitionError` for one that is not copied.
    """
    if names is None:
        return frozenset(columns)
    for name in names:
        if name not in known:
            raise UnknownNameError(f"{option} names the column {name}, which is not there", sqlstate="42703",
                                   hint=nearest(name, known))
        if name not in columns:
            raise DefinitionError(f"{option} names the column {name}, which is not copied", sqlstate="42P10",
                                  hint=nearest(name, columns))
    return frozenset(names)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise SqlSyntaxError(f"{name.upper()} of COPY is text, not {value!r}")
    return value


def _character(name: str, value: Any) -> bytes:
    found = _text(name, value).encode()
    if len(found) != 1:
        raise UnsupportedError(f"{name.upper()} of COPY is one character of one byte, not {value!r}")
    return found


def _boolean(name: str, value: Any) -> bool:
    found = value if isinstance(value, bool) else _BOOLEANS.get(str(value).lower())
    if found is None:
        raise SqlSyntaxError(f"{name.upper()} of COPY is true or false, not {value!r}")
    return found


def _header(value: Any, *, into: bool) -> tuple[bool, bool]:
    if isinstance(value, str) and value.lower() == "match":
        if not into:
            raise UnsupportedError("HEADER MATCH is for COPY FROM")
        return True, True
    return _boolean("header", value), False


def _columns(given: Mapping[str, Any], name: str) -> Columns:
    """The columns of an option; an empty list if it is not given."""
    value = given.get(name, ())
    if value in ("*", True):
        return None
    if isinstance(value, str) or not all(isinstance(each, str) for each in value):
        raise SqlSyntaxError(f"{name.upper()} of COPY is a list of columns, not {value!r}")
    return list(value)


def _encoding(name: str) -> str:
    """Python's name for an encoding of PostgreSQL. Raises `SqlError` (22023)."""
    plain = name.lower().replace("-", "_")
    for known in (_ENCODINGS.get(plain.replace("utf_8", "utf8")), plain, plain.replace("win", "cp", 1),
                  plain.replace("latin", "iso8859_", 1)):  # fmt: skip
        if known is None:
            continue
        try:
            "".encode(known)
            return codecs.lookup(known).name
        except LookupError:  # also for what encodes bytes, such as base64
            continue
    raise SqlError(f"COPY does not know the encoding {name!r}", sqlstate="22023", hint="use UTF8")
