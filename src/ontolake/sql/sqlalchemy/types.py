"""Column types as SQLAlchemy's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sqlalchemy import types as generic
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.types import TypeEngine

from ontolake.sql.types import Kind, Type

_PLAIN: dict[int, Callable[[], TypeEngine[Any]]] = {
    Kind.BOOLEAN: generic.BOOLEAN, Kind.NUMERIC: generic.NUMERIC, Kind.REAL: generic.REAL,
    Kind.DOUBLE: lambda: generic.DOUBLE_PRECISION(53), Kind.DATE: generic.DATE, Kind.BYTES: pg.BYTEA,
    Kind.UUID: generic.UUID, Kind.JSON: pg.JSON, Kind.JSONB: pg.JSONB,
}  # fmt: skip
_INTEGERS = {16: generic.SMALLINT, 32: generic.INTEGER, 64: generic.BIGINT}


def reflected(type: Type | None, schema: str | None = None) -> TypeEngine[Any]:
    """The type of SQLAlchemy that a column is reflected as. `schema` is where its enum is, if it has to be named."""
    if type is None:
        return generic.NULLTYPE
    if type.item is not None:
        return pg.ARRAY(reflected(type.item, schema))
    digits = 6 - type.scale if type.scale else None
    match type.kind:
        case Kind.INT64:
            return _INTEGERS[type.bits]()
        case Kind.DECIMAL:
            return generic.NUMERIC(type.precision, type.scale)
        case Kind.UTF8:
            if type.padded:
                return generic.CHAR(type.length)
            return generic.VARCHAR(type.length) if type.length else generic.TEXT()
        case Kind.TIMESTAMP_US | Kind.TIMESTAMP_NS:
            return pg.TIMESTAMP(timezone=type.zoned, precision=digits)
        case Kind.TIME:
            return pg.TIME(timezone=False, precision=digits)
        case Kind.INTERVAL:
            return pg.INTERVAL(precision=digits)
        case Kind.ENUM:
            return pg.ENUM(*(label for label, _ in sorted(type.labels, key=lambda each: each[1])), name=type.name,
                           schema=schema, create_type=False)  # fmt: skip
    return _PLAIN[type.kind]()


class _Documents(generic.JSON):
    """JSON, which the DB-API module gives as Python values already."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        loads = getattr(dialect, "_json_deserializer", None)
        if loads is None:
            return None
        return lambda value: None if value is None else loads(json.dumps(value))


class Json(_Documents, pg.JSON):
    pass


class Jsonb(_Documents, pg.JSONB):
    pass
