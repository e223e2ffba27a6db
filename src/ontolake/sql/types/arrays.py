"""Arrays in the text form of PostgreSQL: `{1,NULL,"a b"}`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ontolake.sql.errors import DataError, UnsupportedError

_SPECIAL = set('{},"\\')


def _malformed(text: str) -> DataError:
    return DataError(f"{text!r} cannot be read as an array", sqlstate="22P02", hint="write {1,2} or ARRAY[1, 2]")


def elements(text: str) -> list[str | None]:
    """The elements of an array literal, None for NULL. Raises `DataError`, and `UnsupportedError` for dimensions."""
    given = text.strip()
    if given.startswith("["):
        raise UnsupportedError("arrays with bounds are not supported", hint="leave them out: they count from 1")
    if len(given) < 2 or given[0] != "{":
        raise _malformed(text)
    found: list[str | None] = []
    at, end = 1, len(given)
    while True:
        at = _spaces(given, at)
        if at >= end:
            raise _malformed(text)
        if given[at] == "}" and not found:
            at += 1
            break
        if given[at] == "{":
            raise UnsupportedError("arrays of more than one dimension are not supported", hint="use JSONB")
        value, at = _quoted(text, given, at + 1) if given[at] == '"' else _bare(text, given, at)
        found.append(value)
        at = _spaces(given, at)
        if at >= end or given[at] not in ",}":
            raise _malformed(text)
        at += 1
        if given[at - 1] == "}":
            break
    if given[at:].strip():
        raise _malformed(text)
    return found


def _spaces(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _quoted(text: str, given: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    while at < len(given) and given[at] != '"':
        if given[at] == "\\":
            at += 1
        if at >= len(given):
            break
        parts.append(given[at])
        at += 1
    if at >= len(given):
        raise _malformed(text)
    return "".join(parts), at + 1


def _bare(text: str, given: str, at: int) -> tuple[str | None, int]:
    parts: list[str] = []
    escaped = False
    kept = 0
    while at < len(given) and given[at] not in ',}{"':
        if given[at] == "\\":
            escaped = True
            at += 1
            if at >= len(given):
                break
            kept = len(parts) + 1
        parts.append(given[at])
        at += 1
    if at >= len(given) or given[at] in '{"':
        raise _malformed(text)
    value = "".join(parts)
    value = value[:kept] + value[kept:].rstrip()
    if not value:
        raise _malformed(text)
    return (None if value.upper() == "NULL" and not escaped else value), at


def text_of(items: Iterable[str | None]) -> str:
    """The literal of an array whose elements have these texts."""
    return "{" + ",".join("NULL" if item is None else _written(item) for item in items) + "}"


def _written(item: str) -> str:
    if item and item.upper() != "NULL" and not _SPECIAL & set(item) and not any(map(str.isspace, item)):
        return item
    return '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'


def check_flat(values: Sequence[object]) -> None:
    """Raise `UnsupportedError` for lists within lists."""
    if any(isinstance(value, list | tuple) for value in values):
        raise UnsupportedError("arrays of more than one dimension are not supported", hint="use JSONB")
