"""Objects from encoded rows. What is stored was validated when it was written, so it is not validated again."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from functools import cache
from itertools import islice
from typing import Any, Protocol

from pydantic import BaseModel

from ontolake.model.codecs import failure
from ontolake.model.entity import COMMIT, ENDS
from ontolake.model.field import UNSET
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.errors import SchemaValidationError

Rows = Iterable[tuple[Any, ...]]
EndsOf = Callable[[list[Any], list[Any]], Any]
"""Makes what loads the ends of some relations, from their encoded left and right keys."""

RELATIONS = 10_000
"""How many relations of a result have their ends loaded together. They keep each other's keys, and no more."""


class Hydrate(Protocol):
    """Makes objects of rows. Relations can load their ends if it is said how."""

    def __call__(self, rows: Rows, ends: EndsOf | None = None, /) -> list[Any]: ...


_set_dict = BaseModel.__dict__["__dict__"].__set__
_set_fields = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private = BaseModel.__dict__["__pydantic_private__"].__set__


@cache
def hydrator(cls: Any) -> Hydrate:
    """What makes objects of a type from rows of its columns, in the order of the fields, and the commit.

    It is written for the type, since it runs once for every row that anybody reads.
    """
    info = type_info(cls)
    columns = info.all_columns
    names = [f"v{n}" for n in range(len(columns))]
    scope: dict[str, Any] = {
        "cls": cls, "new": cls.__new__, "set_dict": _set_dict, "set_fields": _set_fields, "set_extra": _set_extra,
        "set_private": _set_private, "fields": {column.name for column in columns},
        "complete": lambda values: _complete(info, values), "damaged": lambda row: _damaged(info, row),
    }  # fmt: skip
    parts = []
    for name, column in zip(names, columns, strict=True):
        part = name
        if column.codec.decode is not None:
            scope[f"decode_{name}"] = column.codec.decode
            part = f"None if {name} is None else decode_{name}({name})"
            if column.sqlite_type == "REAL":
                part = f"{name} if {name}.__class__ is float else ({part})"
        parts.append(f"{column.name!r}: {part}")
    required = " or ".join(f"{name} is None" for name, column in zip(names, columns, strict=True)
                           if not column.nullable)
    relation = info.kind == "relation"
    more = f", {ENDS!r}: ends" if relation else ""
    source = f"""
def hydrate(rows, ends):
    found = []
    keep = found.append
    for row in rows:
        {", ".join(names)}, commit = row
        try:
            values = {{{", ".join(parts)}, {COMMIT!r}: commit{more}}}
        except (ValueError, KeyError, TypeError):
            raise damaged(row)
        if {required}:
            complete(values)
        obj = new(cls)
        set_dict(obj, values)
        set_fields(obj, fields)
        set_extra(obj, None)
        set_private(obj, None)
        keep(obj)
    return found
"""
    exec(compile(source, f"<objects of {info.name}>", "exec"), scope)
    hydrate: Callable[[Rows, Any], list[Any]] = scope["hydrate"]
    if not relation:
        return lambda rows, ends=None, /: _without_collector(hydrate, rows, None)
    places = [columns.index(key) for key in info.keys[:2]]
    return lambda rows, ends=None, /: (_without_collector(hydrate, rows, None) if ends is None
                                       else _with_ends(hydrate, rows, ends, *places))  # fmt: skip


def _with_ends(
    hydrate: Callable[[Rows, Any], list[Any]], rows: Rows, ends: EndsOf, left: int, right: int
) -> list[Any]:  # fmt: skip
    found: list[Any] = []
    left_over = iter(rows)
    while some := list(islice(left_over, RELATIONS)):
        found += _without_collector(hydrate, some, ends([row[left] for row in some], [row[right] for row in some]))
    return found


def _without_collector(hydrate: Callable[[Rows, Any], list[Any]], rows: Rows, ends: Any) -> list[Any]:
    """Many objects at once, none of which can be garbage yet: looking for some would take longer than making them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        return hydrate(rows, ends)
    finally:
        if enabled:
            gc.enable()


def _complete(info: TypeInfo, values: dict[str, Any]) -> None:
    """Fill in what rows of an older schema lack, as far as there are defaults."""
    for column in info.all_columns:
        if values[column.name] is None and not column.nullable:
            default = column.default_value()
            if default is UNSET:
                raise SchemaValidationError(
                    f"commit {values[COMMIT]} has no value for it", type_name=info.name,
                    key=tuple(values[key.name] for key in info.keys), field=column.name,
                    hint="it was written under another schema; migrate the type")  # fmt: skip
            values[column.name] = default


def _damaged(info: TypeInfo, row: tuple[Any, ...]) -> SchemaValidationError:
    """What to raise for a row that cannot be decoded: the first field that is wrong."""
    keys = tuple(row[info.all_columns.index(key)] for key in info.keys)
    for column, value in zip(info.all_columns, row, strict=False):
        try:
            column.decode(value)
        except (ValueError, KeyError, TypeError) as error:
            return SchemaValidationError(
                f"the stored value {value!r} of commit {row[-1]} cannot be read: {failure(error)}",
                type_name=info.name, key=keys, field=column.name)  # fmt: skip
    raise AssertionError("every field can be read")
