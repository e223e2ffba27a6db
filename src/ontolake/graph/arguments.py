"""Checks of the arguments that callers pass to a graph.

Each function takes arguments by their names and raises `Invalid` for the first one of a wrong type. The error names the
argument and says what it takes. The checks run before anything is read or written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ontolake.errors import Invalid
from ontolake.history.metadata import GRAPH_RECORD, MESSAGE, RENAMES, TABLES, TRACES

_HINTS = {
    "branch": "name a branch; graph.branches.list() returns them",
    "commit": "pass the id of a commit or a tag; graph.commits() returns the commits",
    "actor": "name who makes the change",
    "message": "say in a line what the commit does",
}
for _name, _same in (("parent", "branch"), ("source", "branch"), ("into", "branch"), ("since", "commit"),
                     ("until", "commit"), ("at", "commit"), ("author", "actor")):  # fmt: skip
    _HINTS[_name] = _HINTS[_same]

RESERVED = frozenset({*GRAPH_RECORD, TABLES, RENAMES, MESSAGE, TRACES})
"""Keys under which a commit stores what a graph itself needs to know of it."""


def _invalid(name: str, wanted: str, value: Any, hint: str | None = None) -> Invalid:
    return Invalid(f"{name} must be {wanted}, not {value!r}", hint=hint or _HINTS.get(name) or f"pass {wanted}")


def check_text(**given: Any) -> None:
    for name, value in given.items():
        if not isinstance(value, str):
            raise _invalid(name, "text", value)
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise _invalid(name, "Unicode text", value) from None


def check_optional_text(**given: Any) -> None:
    check_text(**{name: value for name, value in given.items() if value is not None})


def check_flag(**given: Any) -> None:
    for name, value in given.items():
        if not isinstance(value, bool):
            raise _invalid(name, "True or False", value)


def check_number(least: int, **given: Any) -> None:
    """Whole numbers of at least `least`."""
    for name, value in given.items():
        if type(value) is not int or not least <= value < 2**63:
            raise _invalid(name, f"a whole number of at least {least}", value)


def check_optional_number(least: int, **given: Any) -> None:
    check_number(least, **{name: value for name, value in given.items() if value is not None})


def check_vector(length: int, **given: Any) -> None:
    """Sequences of so many numbers."""
    for name, value in given.items():
        try:
            good = len(value) == length and all(isinstance(float(one), float) for one in value) and not isinstance(
                value, str | bytes | Mapping)  # fmt: skip
        except (TypeError, ValueError, OverflowError):
            good = False
        if not good:
            raise _invalid(name, f"a list of {length} numbers", value)


def check_age(**given: Any) -> None:
    """Lengths of time that reach back from now, or None."""
    for name, value in given.items():
        if value is None:
            continue
        if not isinstance(value, timedelta) or value < timedelta(0):
            raise _invalid(name, "a timedelta that is not negative", value, "pass for example timedelta(days=30)")
        try:
            datetime.now(UTC) - value
        except OverflowError:
            raise _invalid(name, "a timedelta within the calendar", value) from None


def check_path(**given: Any) -> None:
    for name, value in given.items():
        try:
            good = isinstance(value, str | os.PathLike) and b"\0" not in os.fsencode(value)
        except (TypeError, UnicodeEncodeError):
            good = False
        if not good:
            raise _invalid(name, "a path", value)


def check_names(**given: Any) -> None:
    """A sequence of names, or None. A single string is refused: its letters would be taken for names."""
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable) or iter(value) is value:
            raise _invalid(name, "a list of names", value, "put a single name into brackets")
        for one in value:
            check_text(**{f"a name in {name}": one})


def check_iterable(**given: Any) -> None:
    for name, value in given.items():
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise _invalid(name, "a list", value)


def check_renames(renames: Any) -> None:
    """Columns with another name by type, or None: `{"Customer": {"name": "full_name"}}`."""
    if renames is None:
        return
    good = isinstance(renames, Mapping) and all(
        isinstance(type_, str) and isinstance(pairs, Mapping)
        and all(isinstance(one, str) for pair in pairs.items() for one in pair) for type_, pairs in renames.items())
    if not good:
        raise _invalid("renames", "a mapping of types to mappings of column names", renames,
                       'pass for example {"Customer": {"name": "full_name"}}')


def check_metadata(metadata: Any) -> None:
    """What a commit is to carry, or None."""
    if metadata is None:
        return
    if not isinstance(metadata, Mapping) or not all(isinstance(name, str) for name in metadata):
        raise _invalid("metadata", "a mapping with text as keys", metadata)
    for name, value in metadata.items():
        if name in RESERVED:
            raise Invalid(f"metadata cannot have the key {name!r}: the log has it itself", hint="choose another key")
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError):
            raise _invalid(f"metadata[{name!r}]", "a value that JSON has", value) from None


def check_type(kind: type | tuple[type, ...], wanted: str, **given: Any) -> None:
    """Objects of a class of ours; `wanted` says in words which, and how to get one."""
    for name, value in given.items():
        if not isinstance(value, kind):
            raise _invalid(name, wanted, value)
