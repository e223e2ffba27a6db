"""One row of a typed store by its key: a few prepared statements and no Arrow, so quick that the event loop may wait.

Whatever is not simply that is left to pages: other filters, other keys than whole numbers and text, relations, types
that have changed since the store was opened. Rows look the same either way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from ontolake.model.columns import Column
from ontolake.model.filters import FieldRef, ValueRef
from ontolake.model.types import TypeInfo
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.arrow import typed_array
from ontolake.server.handles import OutdatedHandleError
from ontolake.server.tables.formats import plain_column
from ontolake.server.values import plain

Show = Callable[[Any], Any]
_LONGEST = 1 << 16
"""Characters of a filter that may be that of a key."""


class PointRows(NamedTuple):
    """The row of a key, or none, at a commit."""

    commit: int
    rows: list[dict[str, Any]]


class _Point(NamedTuple):
    """How rows of a type are read by key and shown."""

    key: str
    kind: type
    plan: Plan
    shown: Sequence[tuple[str, int, Show | None]]
    """Names of columns, their places in rows, and what makes JSON of a value that is not JSON already."""


def read_point(store: Any, table: str, columns: str | None, text: str) -> PointRows | None:
    """The row with a key at the head of the branch of an open typed store; None if pages have to be read for it.

    `columns` and `text` are the parameters `columns` and `filter` of a request. Raises `OutdatedHandleError`.
    """
    kind, _, name = table.partition("/")
    info = next((one for one in store.types if one.name == name and one.kind == kind == "entity"), None)
    point = None if info is None else _point(info, columns)
    if point is None or (value := _key(point, text)) is None:
        return None
    repository = store.repository
    with repository.reading():
        if not store.is_current():
            raise OutdatedHandleError
        commit = repository.head()
        found = list(repository.run(point.plan, Values((value,))))
    return PointRows(commit, [{name: row[place] if show is None else show(row[place])
                               for name, place, show in point.shown} for row in found])  # fmt: skip


def _key(point: _Point, text: str) -> Any:
    """The key that a filter asks for; None if it asks for something else."""
    if len(text) > _LONGEST:
        return None
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    match found:
        case [[str(column), "==", value]] | [str(column), "==", value]:
            is_key = column == point.key and type(value) is point.kind
            if is_key and (-(1 << 63) <= value < 1 << 63 if point.kind is int else "\0" not in value):
                return value
    return None


@lru_cache(256)
def _point(info: TypeInfo, columns: str | None) -> _Point | None:
    key = info.keys[0]
    if len(info.keys) != 1 or key.type.python not in (int, str):
        return None
    names = [*(column.stored for column in info.all_columns), "commit_id"]
    if len(set(names)) != len(names):
        return None  # the commit has another name then
    wanted = names if columns is None else [name.strip() for name in columns.split(",")]
    if len(set(wanted)) != len(wanted) or not set(wanted) <= set(names):
        return None
    shown = [(name, place := names.index(name),
              None if place == len(info.all_columns) else _show(info.all_columns[place])) for name in wanted]
    condition = FieldRef(ValueRef(info.cls, key.name)).compare("==", key.type.python())
    return _Point(key.stored, key.type.python, Plan(info.cls, where=condition.shape), shown)


def _show(column: Column) -> Show | None:
    """What makes JSON of an encoded value, as pages have it; None if there is nothing to do."""
    kind = column.type.python
    if kind in (int, str):
        return None
    if kind is bool:
        return lambda value: None if value is None else bool(value)
    return _shown_float if kind is float else lambda value: _shown_by_arrow(column, value)


def _shown_float(value: Any) -> Any:
    if value is None or (type(value) is float and math.isfinite(value)):
        return value
    return plain(float(value))


def _shown_by_arrow(column: Column, value: Any) -> Any:
    array = typed_array(column, [value])
    wanted = column.type.parallel_type(column.decimal)
    return plain_column(array if array.type == wanted else array.cast(wanted), False)[0]
