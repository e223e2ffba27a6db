"""What PostgreSQL and what we say to a statement, and whether that is the same."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any, NamedTuple

import psycopg
import pyarrow as pa

from ontolake.sql import Database, SqlError
from ontolake.sql.types.kinds import JSONB_ARROW, NUMERIC_ARROW


class Answer(NamedTuple):
    """What a statement gave: rows with names and types, or how many it changed, or the SQLSTATE."""

    sqlstate: str | None
    rows: list[tuple[Any, ...]]
    names: list[str]
    types: list[str]
    count: int
    told: str = ""


_EXACT = Context(prec=10_000)
_OIDS = {16: "bool", 17: "bytea", 20: "int8", 21: "int2", 23: "int4", 25: "text", 700: "float4", 701: "float8",
         1042: "text", 1043: "text", 1082: "date", 1083: "time", 1114: "timestamp", 1184: "timestamptz",
         1186: "interval", 1700: "numeric", 2950: "uuid", 114: "json", 3802: "jsonb", 1000: "bool[]", 1005: "int2[]",
         1007: "int4[]", 1016: "int8[]", 1009: "text[]", 1231: "numeric[]", 1022: "float8[]", 2206: "text",
         19: "text"}  # fmt: skip
"""The types of PostgreSQL by their ids; what differs only in length is one."""


def theirs(connection: psycopg.Connection[Any], sql: str) -> Answer:
    """What PostgreSQL says. What it did is not committed yet."""
    try:
        cursor = connection.execute(sql)
    except psycopg.Error as error:
        return Answer(error.sqlstate, [], [], [], 0, str(error))
    if cursor.description is None:
        return Answer(None, [], [], [], cursor.rowcount)
    return Answer(None, cursor.fetchall(), [column.name for column in cursor.description],
                  [_OIDS[column.type_code] for column in cursor.description], cursor.rowcount)  # fmt: skip


def ours(db: Database, sql: str) -> Answer:
    """What we say. Anything but `SqlError` is a mistake, and raised."""
    try:
        result = db.execute(sql)
    except SqlError as error:
        return Answer(error.sqlstate, [], [], [], 0, f"{error.sqlstate}: {error}")
    types = [type_name(type) for _, type in result.description] if result.columns else []
    return Answer(None, result.fetchall(), list(result.columns), types, result.count)


_NAMES: tuple[tuple[str, Any], ...] = (
    ("bool", pa.types.is_boolean), ("int2", pa.types.is_int16), ("int4", pa.types.is_int32),
    ("int8", pa.types.is_int64),
    ("float4", pa.types.is_float32), ("float8", pa.types.is_float64), ("numeric", pa.types.is_decimal),
    ("date", pa.types.is_date), ("time", pa.types.is_time), ("interval", pa.types.is_interval),
    ("bytea", pa.types.is_binary), ("text", pa.types.is_string),
)  # fmt: skip


def type_name(type: pa.DataType) -> str:
    """PostgreSQL's name of an Arrow type."""
    if isinstance(type, pa.BaseExtensionType):
        known = ((pa.uuid(), "uuid"), (JSONB_ARROW, "jsonb"), (NUMERIC_ARROW, "numeric"))
        return next((name for each, name in known if each.equals(type)), "json")
    if pa.types.is_list(type):
        return f"{type_name(type.value_type)}[]"
    if pa.types.is_timestamp(type):
        return "timestamptz" if type.tz else "timestamp"
    return next((name for name, test in _NAMES if test(type)), str(type))


def plain(value: Any) -> Any:
    """A value so that equal ones are the same."""
    if isinstance(value, float):
        return ("double", "nan" if math.isnan(value) else float(f"{value:.12g}"))
    if isinstance(value, Decimal) and value.is_nan():
        return ("number", "nan")
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        return ("number", Decimal(value).normalize(_EXACT))
    if isinstance(value, datetime | date | time):
        return ("time", value.isoformat())
    if isinstance(value, timedelta):
        return ("span", value)
    if isinstance(value, list):
        return ("list", [plain(each) for each in value])
    if isinstance(value, dict):
        return ("object", {key: plain(each) for key, each in value.items()})
    return (type(value).__name__, value)


def _is_ordered(sql: str) -> bool:
    """Whether a statement has an ORDER BY of its own, outside all parentheses."""
    depth, outside = 0, []
    for mark in sql.upper():
        depth += {"(": 1, ")": -1}.get(mark, 0)
        outside.append(mark if depth == 0 else "")
    return " ORDER BY " in "".join(outside)


def compare(sql: str, wanted: Answer, found: Answer, *, whole_state: bool = True) -> None:
    """Compare. A refusal has to have the same SQLSTATE, or one of the same class."""
    if wanted.sqlstate is not None:
        assert found.sqlstate is not None, f"{sql}\nis refused by PostgreSQL: {wanted.told}\nhere {found.rows}"
        size = 5 if whole_state else 2
        assert found.sqlstate[:size] == wanted.sqlstate[:size], f"{sql}\n{wanted.sqlstate} {wanted.told}\n{found.told}"
        return
    assert found.sqlstate is None, f"{sql}\nis refused: {found.told}"
    expected, given = ([[plain(cell) for cell in row] for row in answer.rows] for answer in (wanted, found))
    if not _is_ordered(sql):
        expected, given = sorted(expected, key=repr), sorted(given, key=repr)
    assert given == expected, sql
    assert found.names == wanted.names, sql
    assert found.types == wanted.types, sql
    assert found.count == wanted.count, sql
