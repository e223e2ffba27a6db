"""DuckDB's errors as ours, with the SQLSTATE that PostgreSQL gives them."""

from __future__ import annotations

import re

from ontolake.sql.errors import (
    DataError,
    SqlError,
    SqlSyntaxError,
    TypeMismatchError,
    UnknownNameError,
    UnsupportedError,
)

_OURS = re.compile(r"\b([0-9A-Z]{5})\|([^\n]*)")
_KNOWN: tuple[tuple[str, type[SqlError], str, str | None], ...] = (
    (r"[Dd]ivision by zero", DataError, "22012", "division by zero"),
    (r"More than one row returned by a subquery", SqlError, "21000",
     "more than one row returned by a subquery used as an expression"),
    (r"INTERRUPT|Interrupted", SqlError, "57014", "canceling statement due to user request"),
    (r"Out of Memory|could not allocate|failed to allocate", SqlError, "53200", None),
    (r"[Uu]nknown TimeZone", DataError, "22023", None),
    (r"LIMIT.*negative|negative.*LIMIT|value for LIMIT", SqlError, "2201W", "LIMIT must not be negative"),
    (r"OFFSET.*negative|negative.*OFFSET|value for OFFSET", SqlError, "2201X", "OFFSET must not be negative"),
    (r"date field value out of range|timestamp field value out of range|time field value out of range", DataError,
     "22008", None),
    (r"[Oo]verflow|out of range|Could not cast value|Failed to cast|too large|Could not convert", DataError, "22003", None),  # noqa: E501
    (r"Could not convert string|invalid .* format|Malformed|Invalid JSON", DataError, "22P02", None),
    (r"Like pattern must not end with escape", DataError, "22025", "LIKE pattern must not end with escape character"),
    (r"Max expression depth|too deep|stack", SqlError, "54001", "the statement is nested too deeply"),
)  # fmt: skip
_KINDS: dict[str, tuple[type[SqlError], str]] = {
    "ParserException": (SqlSyntaxError, "42601"), "CatalogException": (UnknownNameError, "42883"),
    "BinderException": (TypeMismatchError, "42804"), "NotImplementedException": (UnsupportedError, "0A000"),
    "OutOfRangeException": (DataError, "22003"), "ConversionException": (DataError, "22P02"),
    "InvalidInputException": (DataError, "22023"), "OutOfMemoryException": (SqlError, "53200"),
    "InterruptException": (SqlError, "57014"),
}  # fmt: skip


def translated(error: BaseException) -> SqlError:
    """An error of DuckDB as one of ours."""
    if isinstance(error, SqlError):
        return error
    text = str(error)
    if (ours := _OURS.search(text)) is not None:
        kind = DataError if ours[1][:2] == "22" else SqlError
        return kind(ours[2].strip(), sqlstate=ours[1])
    first = re.sub(r"^[A-Z][\w ]* Error: ", "", text.split("\n\n")[0].split("\nLINE ")[0]).strip()
    name = type(error).__name__
    if name not in ("BinderException", "ParserException", "CatalogException"):
        if "Could not convert string" in text:  # what is not a number at all was refused before
            return DataError(first, sqlstate="22003" if "to DECIMAL" in text else "22P02")
        for pattern, kind, state, message in _KNOWN:
            if re.search(pattern, text):
                return kind(message or first, sqlstate=state)
    kind, state = _KINDS.get(name, (SqlError, "XX000"))
    return kind(first or text, sqlstate=state)
