"""Types by name: those that statements name, and those of Arrow data."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from ontolake.sql.errors import DefinitionError, UnsupportedError
from ontolake.sql.types import kinds
from ontolake.sql.types.kinds import JSONB_ARROW, NUMERIC_ARROW, SYSTEM_ARROW, TIMESTAMPS, VENDOR, Kind, Type

if TYPE_CHECKING:
    from sqlglot import exp

_NAMES = {
    "BOOLEAN": kinds.BOOLEAN, "SMALLINT": kinds.SMALLINT, "INT": kinds.INTEGER, "BIGINT": kinds.BIGINT,
    "FLOAT": kinds.REAL, "REAL": kinds.REAL, "DOUBLE": kinds.DOUBLE, "DECIMAL": kinds.NUMERIC,
    "BIGDECIMAL": kinds.NUMERIC, "TEXT": kinds.TEXT, "VARCHAR": kinds.TEXT, "CHAR": Type(Kind.UTF8, padded=True),
    "BPCHAR": kinds.TEXT, "NCHAR": Type(Kind.UTF8, padded=True), "NAME": kinds.TEXT,
    "VARBINARY": kinds.BYTES, "BINARY": kinds.BYTES, "BLOB": kinds.BYTES, "UUID": kinds.UUID, "DATE": kinds.DATE,
    "TIME": kinds.TIME, "INTERVAL": kinds.INTERVAL, "TIMESTAMP": kinds.TIMESTAMP, "TIMESTAMPNTZ": kinds.TIMESTAMP,
    "TIMESTAMPTZ": kinds.TIMESTAMPTZ, "TIMESTAMPLTZ": kinds.TIMESTAMPTZ, "TIMESTAMP_NS": kinds.TIMESTAMP_NS,
    "JSON": kinds.JSON, "JSONB": kinds.JSONB,
}  # fmt: skip
_WRITTEN = {"timestamp_ns": kinds.TIMESTAMP_NS, "timestamptz_ns": kinds.TIMESTAMPTZ_NS}
"""Types of ours that the parser takes for user-defined ones."""
_MAX_TEXT = 10_485_760
_SECONDS = (Kind.TIMESTAMP_US, Kind.TIME, Kind.INTERVAL)

IDS = "give every row its id, or let it have one with TEXT DEFAULT gen_random_uuid()"
"""What to do where PostgreSQL would count."""

UserTypes = Callable[["exp.DataType"], Type | None]
"""Finds an enum by the node that names it."""


def decimal(precision: int, scale: int = 0) -> Type:
    """DECIMAL(precision, scale). Raises `DefinitionError` for what no column can have."""
    if not 1 <= precision <= 1000 or not 0 <= scale <= precision:
        raise DefinitionError(f"DECIMAL({precision}, {scale}) is out of range", sqlstate="22023",
                              hint="a precision from 1 to 1000, and a scale up to it")
    return Type(Kind.DECIMAL if precision <= 38 else Kind.NUMERIC, precision, scale)


def array_of(item: Type) -> Type:
    """The type of arrays of a type."""
    return Type(Kind.ARRAY, item=item)


def from_sql(node: exp.DataType, user_types: UserTypes | None = None) -> Type:
    """The type that a statement names. Raises `UnsupportedError` or `DefinitionError`."""
    name = node.this.name if hasattr(node.this, "name") else str(node.this)
    if name == "ARRAY" and len(node.expressions) == 1:
        item = from_sql(node.expressions[0], user_types)
        return item if item.kind == Kind.ARRAY else array_of(item)  # the number of dimensions is not part of a type
    if name == "INTERVAL" or (name not in _NAMES and hasattr(node.this, "this")):
        return kinds.INTERVAL
    found = _NAMES.get(name)
    if name == "USERDEFINED":
        found = _WRITTEN.get(str(node.args.get("kind")).lower()) or (user_types and user_types(node))
    if found is None or node.args.get("nested"):
        written = node.sql("postgres")
        if name.endswith("SERIAL"):
            raise UnsupportedError(f"columns of the type {written} are not supported", hint=IDS)
        raise UnsupportedError(f"columns of the type {written} are not supported",
                               hint="there are BOOLEAN, SMALLINT, INTEGER, BIGINT, NUMERIC, REAL, DOUBLE PRECISION, "
                                    "TEXT, VARCHAR(n), CHAR(n), BYTEA, UUID, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, "
                                    "INTERVAL, JSON, JSONB, enums, and arrays of them")  # fmt: skip
    return _sized(name, found, [int(each.name) for each in node.expressions if each.name.isdigit()])


def _sized(name: str, found: Type, numbers: list[int]) -> Type:
    """A type with what stands in its parentheses."""
    if found.kind == Kind.NUMERIC and numbers:
        return decimal(*numbers[:2])
    if found.kind == Kind.UTF8 and (numbers or found.padded):
        length = numbers[0] if numbers else 1
        if not 1 <= length <= _MAX_TEXT:
            raise DefinitionError(f"{name}({length}) is out of range", sqlstate="22023", hint=f"from 1 to {_MAX_TEXT}")
        return Type(Kind.UTF8, length=length, padded=found.padded or name == "BPCHAR")
    if name == "FLOAT" and numbers:
        return kinds.REAL if numbers[0] <= 24 else kinds.DOUBLE
    if found.kind in _SECONDS and numbers and numbers[0] < 6:
        return Type(found.kind, zoned=found.zoned, scale=6 - numbers[0])
    return found


@lru_cache(maxsize=256)
def from_arrow(arrow: pa.DataType) -> Type | None:
    """The column type that holds an Arrow type, or None."""
    if pa.types.is_decimal(arrow):
        return Type(Kind.DECIMAL, arrow.precision, arrow.scale) if 0 <= arrow.scale <= arrow.precision <= 38 else None
    if pa.types.is_timestamp(arrow):
        return Type(Kind.TIMESTAMP_NS if arrow.unit == "ns" else Kind.TIMESTAMP_US, zoned=bool(arrow.tz))
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        item = from_arrow(arrow.value_type)
        return None if item is None else array_of(item)
    if is_system(arrow):
        return kinds.TEXT if arrow.storage_type == pa.string() else kinds.BIGINT
    if isinstance(arrow, pa.OpaqueType) and arrow.vendor_name == VENDOR and arrow.type_name[:1] in "[b":
        if arrow.type_name.startswith("bpchar("):
            return Type(Kind.UTF8, length=int(arrow.type_name[7:-1]), padded=True)
        _, name, labels = json.loads(arrow.type_name)
        return Type(Kind.ENUM, name=name, labels=tuple((label, order) for label, order in labels))
    if isinstance(arrow, pa.BaseExtensionType):
        return next((type for known, type in _EXTENSIONS if known.equals(arrow)),
                    kinds.JSON if isinstance(arrow, pa.JsonType) else None)
    if pa.types.is_integer(arrow):
        unsigned = pa.types.is_unsigned_integer(arrow)
        bits = arrow.bit_width * 2 if unsigned else arrow.bit_width
        return kinds.SMALLINT if bits <= 16 else kinds.INTEGER if bits <= 32 else kinds.BIGINT
    if pa.types.is_floating(arrow):
        return kinds.DOUBLE if arrow.bit_width == 64 else kinds.REAL
    return next((type for test, type in _TESTS if test(arrow)), None)


_EXTENSIONS: tuple[tuple[pa.DataType, Type], ...] = (
    (pa.uuid(), kinds.UUID), (NUMERIC_ARROW, kinds.NUMERIC), (JSONB_ARROW, kinds.JSONB))
_TESTS: tuple[tuple[Callable[[pa.DataType], bool], Type], ...] = (
    (pa.types.is_boolean, kinds.BOOLEAN), (pa.types.is_string, kinds.TEXT), (pa.types.is_large_string, kinds.TEXT),
    (pa.types.is_string_view, kinds.TEXT), (pa.types.is_date, kinds.DATE), (pa.types.is_time, kinds.TIME),
    (pa.types.is_interval, kinds.INTERVAL), (pa.types.is_duration, kinds.INTERVAL), (pa.types.is_binary, kinds.BYTES),
    (pa.types.is_large_binary, kinds.BYTES), (pa.types.is_binary_view, kinds.BYTES),
    (pa.types.is_fixed_size_binary, kinds.BYTES),
)  # fmt: skip


def is_system(arrow: pa.DataType) -> bool:
    """Whether a type is one that only columns of system tables have."""
    return isinstance(arrow, pa.OpaqueType) and arrow.vendor_name == VENDOR and arrow.type_name in SYSTEM_ARROW


def is_timestamp(type: Type) -> bool:
    """Whether a type is a date with a time, however fine."""
    return type.kind in TIMESTAMPS
