"""Values, keys and rows of any store as commands print them, and keys as people type them.

A key is typed as commands print it: text as it is, a number as digits, a key of several parts as a JSON list,
`'["a", 1]'`. Which of these is meant is decided by the keys that the table has; if it has no rows, a number or a list
is taken for one, and everything else for text.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake.errors import Invalid

if TYPE_CHECKING:
    from ontolake.history import Snapshot


class FieldDifference(NamedTuple):
    """A field that differs between two states of a row. A row that is not a mapping is one field without a name."""

    field: str
    before: Any
    after: Any


def plain(value: Any) -> Any:
    """Any value of a row or a key as JSON has it."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="constants")


def cell(value: Any) -> str:
    """A value on one line, as JSON."""
    return json.dumps(plain(value), ensure_ascii=False)


def key_cell(key: Any) -> str:
    """A key on one line, as it can be typed again."""
    found = plain(key)
    return found if isinstance(found, str) and found.isprintable() else json.dumps(found, ensure_ascii=False)


def changed_fields(before: Any, after: Any, *, pointers: bool = False) -> Iterator[FieldDifference]:
    """The fields that differ between two rows, in the order of the later one.

    With `pointers` rows are trees, and fields are JSON pointers to the smallest parts that differ.
    """
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        yield FieldDifference("", before, after)
        return
    for name in dict.fromkeys((*after, *before)):
        old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if _same(old, new):
            continue
        path = f"/{str(name).replace('~', '~0').replace('/', '~1')}" if pointers else str(name)
        if pointers and isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from (one._replace(field=path + one.field) for one in changed_fields(old, new, pointers=True))
        else:
            yield FieldDifference(path, old, new)


def _same(old: Any, new: Any) -> bool:
    """Whether two values are printed alike: 1, 1.0 and true are not."""
    if old is _ABSENT or new is _ABSENT:
        return old is new
    return json.dumps(plain(old), sort_keys=True) == json.dumps(plain(new), sort_keys=True)


def field_text(change: FieldDifference) -> str:
    """A changed field for people: `total: 1 → 2`."""
    before, after = (_MISSING if value is _ABSENT else cell(value) for value in (change.before, change.after))
    return f"{change.field}: {before} → {after}" if change.field else f"{before} → {after}"


class _Absent:
    """Stands for a field that a row does not have; None is a value."""

    def __repr__(self) -> str:
        return _MISSING


_MISSING = "(none)"
_ABSENT: Any = _Absent()


def parse_key(text: str, table: str, snapshot: Snapshot[Any]) -> Any:
    """The key that somebody typed, as the table has its keys. Raises `Invalid`, and what `Snapshot.rows` raises."""
    found = next(iter(snapshot.rows(table)), None)
    if found is not None:
        example = found[0]
        if isinstance(example, tuple):
            return key_like(example, _list(text, table, example), table)
        return text if isinstance(example, str) else key_like(example, text, table)
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value if type(value) in (int, float) else text


def key_like(example: Any, value: Any, table: str) -> Any:
    """A key from JSON or from text, of the type that another key of the table has. Raises `Invalid`."""
    if isinstance(example, tuple):
        if not isinstance(value, list | tuple) or len(value) != len(example):
            raise _unlike(value, table, example)
        try:
            return tuple(key_like(one, part, table) for one, part in zip(example, value, strict=True))
        except Invalid:
            raise _unlike(value, table, example) from None
    if isinstance(value, type(example)) and type(value) is not bool:
        return value
    return _converted(example, value, table)


def _converted(example: Any, value: Any, table: str) -> Any:
    from pydantic import TypeAdapter, ValidationError

    try:
        if isinstance(example, bytes):
            return base64.b64decode(value, validate=True, altchars=b"-_")
        return TypeAdapter(type(example)).validate_python(value)
    except (ValidationError, binascii.Error, TypeError, ValueError):
        raise _unlike(value, table, example) from None


def _list(text: str, table: str, example: Any) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise _unlike(text, table, example) from None


def _unlike(value: Any, table: str, example: Any) -> Invalid:
    return Invalid(f"{value!r} cannot be a key of {table}", hint=f"its keys look like this: {key_cell(example)!r}")
