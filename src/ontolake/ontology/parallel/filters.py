"""Filters of parallel readers as conditions of typed stores. What cannot be told exactly is widened or left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from ontolake.errors import OntolakeError
from ontolake.model.columns import Column
from ontolake.model.filters import Condition, FieldRef, ValueRef
from ontolake.model.types import TypeInfo
from ontolake.ontology.query.compiler.conditions import comparand
from ontolake.parallel import Filter

LISTED = 500
"""A filter with more values is left out."""


def column_of(info: TypeInfo, name: str) -> Column | None:
    return next((column for column in info.all_columns if column.stored == name), None)


def conditions_of(info: TypeInfo, filters: Iterable[Filter]) -> Iterator[Condition]:
    """Conditions that every row fulfils which fulfils the filters."""
    for one in filters:
        column = column_of(info, one.column)
        if column is None or column.scalar is None:
            continue
        field: FieldRef[Any] = FieldRef(ValueRef(info.cls, column.name))
        if (found := _condition(field, column, one)) is not None:
            yield found


def _condition(field: FieldRef[Any], column: Column, one: Filter) -> Condition | None:
    match one.op:
        case "is_null":
            return field.is_null()
        case "is_not_null":
            return field.is_not_null()
        case "==" | "<" | "<=" | ">" | ">=" | "in" | "startswith":
            return _compared(field, column, one)
        case _:
            assert_never(one.op)


def _compared(field: FieldRef[Any], column: Column, one: Filter) -> Condition | None:
    values = one.values
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
    return _exact(field, one)


def _exact(field: FieldRef[Any], one: Filter) -> Condition | None:
    match one.op:
        case "==" | "<" | "<=" | ">" | ">=":
            return field.compare(one.op, one.value)
        case "in":
            return field.in_(one.values) if len(one.values) <= LISTED else None
        case "startswith":
            return field.startswith(one.value)
        case "is_null" | "is_not_null":
            return None
        case _:
            assert_never(one.op)


def usable(column: Column, values: Iterable[Any]) -> bool:
    """Whether a column can be compared with these values."""
    allowed = column.type.filter_types
    if not allowed or (column.type.fixed_point and column.decimal is None):
        return False
    return all(isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool)) for value in values)


def _moment(field: FieldRef[Any], one: Filter) -> Condition | None:
    """Moments without a zone are read as UTC, but are stored as other values: ranges are widened to have both."""
    match one.op:
        case "==":
            return None if (bounds := _around(field, one.value)) is None else bounds[0] & bounds[1]
        case ">" | ">=":
            return None if (bounds := _around(field, one.value)) is None else bounds[0]
        case "<" | "<=":
            return None if (bounds := _around(field, one.value)) is None else bounds[1]
        case "in" | "startswith" | "is_null" | "is_not_null":
            return None
        case _:
            assert_never(one.op)


def _around(field: FieldRef[Any], value: datetime) -> tuple[Condition, Condition] | None:
    """That a field is not before a moment, and that it is not after it; None next to the ends of all time."""
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if not datetime(2, 1, 1, tzinfo=UTC) < moment < datetime(9998, 1, 1, tzinfo=UTC):
        return None
    return field > moment - timedelta(microseconds=1), field <= moment
