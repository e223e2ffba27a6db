"""Filters of rows as requests write them: a JSON list of `[column, operator, value]`, all of which must hold.

    [["tier", "==", "gold"], ["total", ">=", 10], ["note", "is_null"]]

Operators are those that every model can push down: `==`, `<`, `<=`, `>`, `>=`, `in` (with a list), `startswith`,
`is_null` and `is_not_null`. Values are read as what the column is: dates and times as ISO 8601, decimals as numbers or
text, bytes as base64.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn, assert_never

import msgspec

from ontolake.parallel import OPERATORS, Filter
from ontolake.server.problems import RefusedError

if TYPE_CHECKING:
    import pyarrow as pa

_HINT = 'write [["column", "==", value], …] with ' + ", ".join(OPERATORS)
_MOST = 1_000
"""So many values may be in a list."""


def parse(text: str, schema: pa.Schema) -> list[Filter]:
    """The filters of a text. Raises `RefusedError` with 422, which names the column."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise RefusedError(422, f"the filter is not JSON: {error}", hint=_HINT) from error
    if not isinstance(found, list):
        raise RefusedError(422, "the filter is not a list", hint=_HINT)
    if found and all(isinstance(part, str) for part in found[:2]):
        found = [found]  # one condition alone
    return [_one(part, schema) for part in found]


def _one(part: Any, schema: pa.Schema) -> Filter:
    if not isinstance(part, list) or not 2 <= len(part) <= 3 or not all(isinstance(one, str) for one in part[:2]):
        raise RefusedError(422, f"{part!r} is not a condition", hint=_HINT)
    column, op = part[0], part[1]
    if column not in schema.names:
        raise RefusedError(422, f"there is no column {column!r}", hint=f"there are {', '.join(schema.names)}")
    if op not in OPERATORS:
        raise RefusedError(422, f"column {column!r}: there is no operator {op!r}", hint=_HINT)
    alone = op in ("is_null", "is_not_null")
    if alone != (len(part) == 2):
        raise RefusedError(422, f"column {column!r}: {op} takes {'no' if alone else 'a'} value", hint=_HINT)
    if alone:
        return Filter(column, op)
    kind, value = schema.field(column).type, part[2]
    if op == "in":
        if not isinstance(value, list) or len(value) > _MOST:
            _refuse(column, f"in takes a list of at most {_MOST} values")
        return Filter(column, op, tuple(_value(column, kind, one) for one in value))
    if op == "startswith" and not _is_text(kind):
        _refuse(column, "is not text, so that nothing starts it")
    return Filter(column, op, _value(column, kind, value))


def _refuse(column: str, reason: str) -> NoReturn:
    raise RefusedError(422, f"column {column!r}: {reason}", hint=_HINT)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow.types as types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _value(column: str, kind: pa.DataType, value: Any) -> Any:
    """A value of JSON as one of the column's type. Raises `RefusedError` with 422."""
    import pyarrow as pa

    if value is None:
        _refuse(column, "nothing compares with null; write is_null")
    try:
        found = read_value(kind, value)
        pa.scalar(found, kind)
    except (ValueError, TypeError, ArithmeticError, OverflowError, pa.ArrowException):
        _refuse(column, f"{value!r} is not {kind}")
    return found


def read_value(kind: pa.DataType, value: Any) -> Any:
    """A value of JSON as what Arrow takes for a type. Raises `ValueError`, `TypeError`."""
    import pyarrow.types as types

    if types.is_boolean(kind):
        return _of(bool, value)
    if types.is_integer(kind):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError
        return value
    if types.is_floating(kind):
        return float(value) if not isinstance(value, bool) else _of(float, value)
    if types.is_decimal(kind):
        return Decimal(str(value)) if not isinstance(value, bool) else _of(Decimal, value)
    if _is_text(kind):
        return _of(str, value)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return base64.b64decode(_of(str, value), validate=True)
    if types.is_timestamp(kind):
        moment = datetime.fromisoformat(_of(str, value))
        if kind.tz is not None:
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    if types.is_date(kind):
        return date.fromisoformat(_of(str, value))
    if types.is_time(kind):
        return time.fromisoformat(_of(str, value))
    raise TypeError(f"nothing is compared with {kind}")


def _of(kind: type[Any], value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value


def mask(batch: pa.RecordBatch | pa.Table, filters: Sequence[Filter]) -> pa.Array | None:
    """Which rows fulfil all filters, exactly; None for all of them."""
    import pyarrow.compute as pc

    found: Any = None
    for one in filters:
        part = pc.fill_null(_fulfils(batch.column(one.column), one), False)
        found = part if found is None else pc.and_(found, part)
    return found


def _fulfils(column: Any, one: Filter) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    match one.op:
        case "is_null":
            return pc.is_null(column)
        case "is_not_null":
            return pc.is_valid(column)
        case "in":
            return pc.is_in(column, pa.array(one.value, column.type))
        case "startswith":
            return pc.starts_with(column, one.value)
        case "==":
            return pc.equal(column, pa.scalar(one.value, column.type))
        case "<":
            return pc.less(column, pa.scalar(one.value, column.type))
        case "<=":
            return pc.less_equal(column, pa.scalar(one.value, column.type))
        case ">":
            return pc.greater(column, pa.scalar(one.value, column.type))
        case ">=":
            return pc.greater_equal(column, pa.scalar(one.value, column.type))
        case _:
            assert_never(one.op)
