"""Filters of parallel readers as conditions of typed stores. What cannot be told exactly is widened or left out."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from ontolake.errors import OntolakeError
from ontolake.model.columns import Column
from ontolake.model.filters import Condition, FieldRef, Ref
from ontolake.model.types import TypeInfo
from ontolake.ontology.query.compiler.conditions import comparand
from ontolake.parallel import Filter

_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def column_of(info: TypeInfo, name: str) -> Column | None:
    return next((column for column in info.all_columns if column.stored == name), None)


def conditions_of(info: TypeInfo, filters: Iterable[Filter]) -> Iterator[Condition]:
    """Conditions that every row fulfils which fulfils the filters."""
    for one in filters:
        column = column_of(info, one.column)
        if column is None or column.scalar is None:
            continue
        field: FieldRef[Any] = FieldRef(Ref(info.cls, column.name))
        if one.op in ("is_null", "is_not_null"):
            yield field.is_null() if one.op == "is_null" else field.is_not_null()
        elif (found := _condition(field, column, one)) is not None:
            yield found


def _condition(field: FieldRef[Any], column: Column, one: Filter) -> Condition | None:
    values = list(one.value) if one.op == "in" else [one.value]
    if not values or not usable(column, values):
        return None
    if column.type.truth:
        if one.op != "==":
            return None
        return field.is_true() if one.value else field.is_false()
    if column.type.zoned:
        return _moment(field, one)
    if column.sqlite_type == "REAL" and (one.op in (">", ">=") or any(value != value for value in values)):
        return None  # not a number is greater than all others to Spark
    if one.op == "startswith":
        return field.startswith(one.value) if column.type.textual else None
    try:
        for value in values:
            comparand(column)(value)
    except OntolakeError:
        return None
    if one.op == "in":
        return field.in_(values) if len(values) <= 500 else None
    found: Condition = _COMPARED[one.op](field, one.value)
    return found


def usable(column: Column, values: Iterable[Any]) -> bool:
    """Whether a column can be compared with these values."""
    allowed = column.type.filter_types
    if not allowed or (column.type.fixed_point and column.decimal is None):
        return False
    return all(isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool)) for value in values)


def _moment(field: FieldRef[Any], one: Filter) -> Condition | None:
    """Moments without a zone are read as UTC, but are stored as other values: ranges are widened to have both."""
    if one.op not in _COMPARED:
        return None
    moment = one.value if one.value.tzinfo is not None else one.value.replace(tzinfo=UTC)
    if not datetime(2, 1, 1, tzinfo=UTC) < moment < datetime(9998, 1, 1, tzinfo=UTC):
        return None
    after: Condition
    until: Condition
    after, until = field > moment - timedelta(microseconds=1), field <= moment
    return after & until if one.op == "==" else after if one.op in (">", ">=") else until
