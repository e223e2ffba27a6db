"""Filters that are given with a read, so that the store skips what it can.

Those that a query has are not taken from Spark: for a source in Python it keeps the splits of the last filter with the
DataFrame that was loaded, and reads them for every other question about that DataFrame as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import reduce
from typing import Any, assert_never

import pyarrow as pa
from pyspark.sql import Column

from ontolake.errors import Invalid, NotFound
from ontolake.model import scalars
from ontolake.model.scalars.times import encode_time, parse_duration
from ontolake.parallel import OPERATORS, Filter
from ontolake.spark.types import named

FilterSpec = Sequence[Any]
"""A column, an operator, and a value where the operator takes one."""


def encoded(filters: Iterable[FilterSpec]) -> str:
    """Filters as the text of an option."""
    return json.dumps([list(one) for one in filters], default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (set, frozenset)):
        return list(value)
    scalar = scalars.of_value(value)
    if scalar is None:
        raise Invalid(f"a filter cannot compare with {value!r}")
    try:
        # A time is text in Spark, in the form in which it is stored.
        return encode_time(value) if isinstance(value, time) else scalar.lance_json(scalar.lance_value(value))
    except ValueError as error:
        raise Invalid(f"a filter cannot compare with {value!r}: {error}") from None


def decoded(text: str, schema: pa.Schema) -> list[Filter]:
    """The filters of an option, with values of their columns' types. Raises `Invalid` or `NotFound`."""
    try:
        given = json.loads(text)
    except ValueError:
        raise _wrong(text) from None
    if not isinstance(given, list):
        raise _wrong(text)
    return [_filter(one, schema) for one in given]


def _wrong(what: Any) -> Invalid:
    return Invalid(f"{what!r} is no list of filters", hint='a filter is ["size", ">", 3], or ["size", "is_null"]')


def _filter(one: Any, schema: pa.Schema) -> Filter:
    if not isinstance(one, list) or not 2 <= len(one) <= 3 or not all(isinstance(part, str) for part in one[:2]):
        raise _wrong([one])
    name, wanted, *values = one
    if name not in schema.names:
        raise NotFound(f"there is no column {name!r} to filter by", hint=f"there are {', '.join(schema.names)}")
    op = next((known for known in OPERATORS if known == wanted), None)
    if op is None:
        raise Invalid(f"there is no operator {wanted!r}", hint=f"there are {' '.join(OPERATORS)}")
    if len(values) != (not op.startswith("is_")):
        raise Invalid(f"{name} {op} takes {'no' if values else 'a'} value")
    if not values:
        return Filter(name, op)
    [value], type = values, schema.field(name).type
    if op == "in":
        if not isinstance(value, list):
            raise Invalid(f"{name} in takes a list of values, not {value!r}")
        return Filter(name, op, tuple(_value(part, type, name) for part in value))
    return Filter(name, op, _value(value, type, name))


def _value(raw: Any, type: pa.DataType, name: str) -> Any:
    try:
        if pa.types.is_timestamp(type):
            moment = datetime.fromisoformat(raw)
            return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        if pa.types.is_date(type):
            return date.fromisoformat(raw)
        if pa.types.is_duration(type):
            return parse_duration(raw)
        if pa.types.is_decimal(type):
            return Decimal(str(raw))
        if pa.types.is_binary(type) or pa.types.is_large_binary(type):
            return bytes.fromhex(raw)
        if raw is None:
            raise ValueError("None")
        return pa.scalar(raw, type).as_py()
    except (TypeError, ValueError, ArithmeticError, pa.ArrowException):
        raise Invalid(f"{name} is of type {type} and cannot be compared with {raw!r}") from None


def condition(filters: Sequence[Filter]) -> Column:
    """What Spark asks of every row that the store has not skipped."""
    return reduce(lambda a, b: a & b, map(_condition, filters))


def _condition(one: Filter) -> Column:
    column: Column = named(one.column)
    found: Column
    match one.op:
        case "==":
            found = column == one.value
        case "<":
            found = column < one.value
        case "<=":
            found = column <= one.value
        case ">":
            found = column > one.value
        case ">=":
            found = column >= one.value
        case "in":
            found = column.isin(one.values)
        case "startswith":
            found = column.startswith(one.value)
        case "is_null":
            found = column.isNull()
        case "is_not_null":
            found = column.isNotNull()
        case _:
            assert_never(one.op)
    return found
