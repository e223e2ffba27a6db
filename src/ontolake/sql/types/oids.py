"""PostgreSQL's numbers of types: oids, sizes and modifiers, as its catalog and its protocol have them.

The oids of built-in types are PostgreSQL's. Enums have oids above them, and so have their arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from ontolake.sql.types import kinds
from ontolake.sql.types.kinds import TIMESTAMPS, Kind, Type
from ontolake.sql.types.names import from_arrow, is_system


class BuiltinType(NamedTuple):
    """A type of PostgreSQL. `size` is in bytes, -1 if values differ in size."""

    name: str
    oid: int
    array_oid: int
    size: int


BUILTINS = tuple(BuiltinType(*each) for each in (
    ("bool", 16, 1000, 1), ("bytea", 17, 1001, -1), ("char", 18, 1002, 1), ("name", 19, 1003, 64),
    ("int8", 20, 1016, 8), ("int2", 21, 1005, 2), ("int2vector", 22, 1006, -1), ("int4", 23, 1007, 4),
    ("regproc", 24, 1008, 4), ("text", 25, 1009, -1), ("oid", 26, 1028, 4), ("xid", 28, 1011, 4),
    ("oidvector", 30, 1013, -1), ("json", 114, 199, -1), ("pg_node_tree", 194, 0, -1), ("float4", 700, 1021, 4),
    ("float8", 701, 1022, 8), ("unknown", 705, 0, -2), ("aclitem", 1033, 1034, 12), ("bpchar", 1042, 1014, -1),
    ("varchar", 1043, 1015, -1), ("date", 1082, 1182, 4), ("time", 1083, 1183, 8), ("timestamp", 1114, 1115, 8),
    ("timestamptz", 1184, 1185, 8), ("interval", 1186, 1187, 16), ("timetz", 1266, 1270, 12),
    ("numeric", 1700, 1231, -1), ("regprocedure", 2202, 2207, 4), ("regoper", 2203, 2208, 4),
    ("regoperator", 2204, 2209, 4), ("regclass", 2205, 2210, 4), ("regtype", 2206, 2211, 4),
    ("record", 2249, 2287, -1), ("cstring", 2275, 1263, -2), ("any", 2276, 0, 4), ("anyarray", 2277, 0, -1),
    ("void", 2278, 0, 4), ("uuid", 2950, 2951, 16), ("jsonb", 3802, 3807, -1), ("jsonpath", 4072, 4073, -1),
    ("regnamespace", 4089, 4090, 4), ("regrole", 4096, 4097, 4), ("regcollation", 4191, 4192, 4),
))  # fmt: skip
BY_NAME = {each.name: each for each in BUILTINS}
BY_OID = {each.oid: each for each in BUILTINS}
BY_ARRAY_OID = {each.array_oid: each for each in BUILTINS if each.array_oid}
VECTORS = {"int2vector": "int2", "oidvector": "oid"}
"""Arrays of system tables, whose elements are counted from 0."""
FIRST = 16384
"""PostgreSQL gives lower numbers to what is built in. An enum has this and its number in our catalog."""
_FIRST_ARRAY = 1 << 29

_NAMES = {
    Kind.BOOLEAN: "bool", Kind.DECIMAL: "numeric", Kind.DOUBLE: "float8", Kind.DATE: "date", Kind.BYTES: "bytea",
    Kind.REAL: "float4", Kind.NUMERIC: "numeric", Kind.UUID: "uuid", Kind.TIME: "time", Kind.INTERVAL: "interval",
    Kind.JSONB: "jsonb", Kind.JSON: "json",
}  # fmt: skip
_TYPES = {
    "bool": kinds.BOOLEAN, "bytea": kinds.BYTES, "int8": kinds.BIGINT, "int2": kinds.SMALLINT, "int4": kinds.INTEGER,
    "text": kinds.TEXT, "name": kinds.TEXT, "char": kinds.TEXT, "oid": kinds.BIGINT, "json": kinds.JSON,
    "float4": kinds.REAL, "float8": kinds.DOUBLE, "unknown": kinds.TEXT, "bpchar": kinds.TEXT, "varchar": kinds.TEXT,
    "date": kinds.DATE, "time": kinds.TIME, "timestamp": kinds.TIMESTAMP, "timestamptz": kinds.TIMESTAMPTZ,
    "interval": kinds.INTERVAL, "numeric": kinds.NUMERIC, "uuid": kinds.UUID, "jsonb": kinds.JSONB,
    "regclass": kinds.TEXT, "regtype": kinds.TEXT, "regnamespace": kinds.TEXT, "regproc": kinds.TEXT,
}  # fmt: skip


def builtin_name(type: Type) -> str:
    """PostgreSQL's short name of a type that is neither an array nor an enum."""
    if type.kind == Kind.INT64:
        return {16: "int2", 32: "int4", 64: "int8"}[type.bits]
    if type.kind == Kind.UTF8:
        return "bpchar" if type.padded else "varchar" if type.length else "text"
    if type.kind in TIMESTAMPS:
        return "timestamptz" if type.zoned else "timestamp"
    return _NAMES[Kind(type.kind)]


def type_oid(type: Type) -> int:
    """The oid of a type. An enum needs its `type_id`."""
    if type.item is not None:
        item = type.item
        return array_oid(type_oid(item)) if item.kind == Kind.ENUM else BY_NAME[builtin_name(item)].array_oid
    return FIRST + type.type_id if type.kind == Kind.ENUM else BY_NAME[builtin_name(type)].oid


def array_oid(oid: int) -> int:
    """The oid of the arrays of an enum."""
    return _FIRST_ARRAY + oid


def type_size(type: Type) -> int:
    """The size of a type in bytes, as the catalog of PostgreSQL has it; -1 if values differ in size."""
    if type.item is not None:
        return -1
    return 4 if type.kind == Kind.ENUM else BY_NAME[builtin_name(type)].size


def type_modifier(type: Type) -> int:
    """What PostgreSQL keeps of the numbers in a type's parentheses; -1 if there are none."""
    if type.item is not None:
        return type_modifier(type.item)
    if type.kind == Kind.DECIMAL:
        return ((type.precision << 16) | type.scale) + 4
    if type.kind == Kind.UTF8:
        return type.length + 4 if type.length else -1
    if type.scale and type.kind == Kind.INTERVAL:
        return (0x7FFF << 16) | (6 - type.scale)
    return 6 - type.scale if type.scale else -1


def arrow_numbers(arrow: pa.DataType) -> tuple[int, int, int]:
    """The oid, size and modifier of a column of an answer by its Arrow type."""
    if is_system(arrow):
        found = BY_NAME.get(arrow.type_name, BY_NAME["text"])
        return found.oid, found.size, -1
    if pa.types.is_list(arrow) and is_system(arrow.value_type):
        return BY_NAME.get(arrow.value_type.type_name, BY_NAME["text"]).array_oid, -1, -1
    type = from_arrow(arrow) or kinds.TEXT
    return type_oid(type), type_size(type), type_modifier(type)


def builtin_type(oid: int) -> Type | None:
    """Our type for values of a built-in type or of arrays of one; None if there is none."""
    if (found := BY_OID.get(oid)) is not None:
        return _TYPES.get(found.name)
    if (found := BY_ARRAY_OID.get(oid)) is not None and (item := _TYPES.get(found.name)) is not None:
        return Type(Kind.ARRAY, item=item)
    return None
