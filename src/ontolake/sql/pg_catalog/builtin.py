"""What every database has: the system tables with their columns, and the rows of PostgreSQL's types and functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from ontolake.sql.executor.pg_types import SHOWN
from ontolake.sql.pg_catalog import data
from ontolake.sql.types import SYSTEM_ARROW
from ontolake.sql.types.kinds import VENDOR

_PLAIN = {
    "bool": pa.bool_(), "int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64(), "float4": pa.float32(),
    "float8": pa.float64(), "numeric": pa.decimal128(38, 0), "bytea": pa.binary(), "cardinal_number": pa.int32(),
    "timestamptz": pa.timestamp("us", "UTC"), "time_stamp": pa.timestamp("us", "UTC"),
    "interval": pa.month_day_nano_interval(), "sql_identifier": SYSTEM_ARROW["name"], "anyarray": pa.list_(pa.string()),
    "int2vector": pa.opaque(pa.list_(pa.int16()), "int2vector", VENDOR),
    "oidvector": pa.opaque(pa.list_(pa.int64()), "oidvector", VENDOR),
}  # fmt: skip


class SystemColumn(NamedTuple):
    """A column of a system table."""

    name: str
    type_oid: int
    typmod: int
    not_null: bool


class SystemTable(NamedTuple):
    """A table or view of `pg_catalog` or `information_schema`."""

    schema: str
    name: str
    oid: int
    kind: str
    columns: tuple[SystemColumn, ...]


@lru_cache(maxsize=1)
def tables() -> Mapping[tuple[str, str], SystemTable]:
    """All system tables, by schema and name."""
    found = [SystemTable(schema, name, oid, kind, tuple(SystemColumn(*column) for column in columns))
             for schema, name, oid, kind, columns in data.lines("relations")]  # fmt: skip
    return {(each.schema, each.name): each for each in found}


@lru_cache(maxsize=1)
def type_names() -> Mapping[int, str]:
    """The names of types, by their numbers."""
    return {row["oid"]: row["typname"] for row in rows("pg_type")}


@lru_cache(maxsize=1)
def types() -> Mapping[str, Mapping[str, Any]]:
    """The rows of types that are built in, by their names."""
    return {row["typname"]: row for row in rows("pg_type")}


@lru_cache(maxsize=16)
def rows(table: str) -> tuple[Mapping[str, Any], ...]:
    """The rows of a system table that every database has."""
    names = [column.name for column in tables()["pg_catalog", table].columns]
    return tuple(dict(zip(names, line, strict=True)) for line in data.lines(table))


def shown_type(name: str) -> str:
    """A type that is built in as SQL writes it; of a domain, the type that it is made of."""
    base = {"sql_identifier": "name", "character_data": "varchar", "yes_or_no": "varchar", "cardinal_number": "int4",
            "time_stamp": "timestamptz"}.get(name, name)
    return SHOWN.get(base, base)


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a column of a system table."""
    if name in _PLAIN:
        return _PLAIN[name]
    if name.startswith("_"):
        return pa.list_(arrow_type(name[1:]))
    if name in SYSTEM_ARROW:
        return pa.opaque(pa.int64(), name, VENDOR) if name.startswith("reg") else SYSTEM_ARROW[name]
    return pa.string()


@lru_cache(maxsize=256)
def schema(table: SystemTable) -> pa.Schema:
    """The names and Arrow types of the columns of a system table."""
    names = {**type_names()}
    return pa.schema([(each.name, arrow_type(names.get(each.type_oid, "text"))) for each in table.columns])


def arrow_table(table: SystemTable, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as an Arrow table; a column that a row does not have is NULL."""
    given = list(rows)
    arrays = []
    for field in schema(table):
        values = [row.get(field.name) for row in given]
        arrays.append(_array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema(table))


def _array(values: list[Any], type: pa.DataType) -> pa.Array:
    if isinstance(type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type, pa.array(values, type.storage_type))
    if pa.types.is_list(type) and isinstance(type.value_type, pa.BaseExtensionType):
        plain = pa.array(values, pa.list_(type.value_type.storage_type))
        items = pa.ExtensionArray.from_storage(type.value_type, plain.values)
        return pa.Array.from_buffers(type, len(plain), plain.buffers()[:2], plain.null_count, 0, [items])
    return pa.array(values, type)
