"""PostgreSQL's types as the executor knows them: names, families, conversions, and what they are in Arrow and DuckDB.

A moment with a time zone is a TIMESTAMP in UTC to DuckDB: the difference lives in these types alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import pyarrow as pa
from sqlglot import exp

from ontolake.sql import types
from ontolake.sql.errors import UnknownNameError, UnsupportedError
from ontolake.sql.syntax.statements import name_of
from ontolake.sql.types import oids
from ontolake.sql.types.kinds import JSONB_ARROW, NUMERIC_ARROW, RECORD_ARROW

DIGITS = 38
"""Digits that a number of DuckDB holds."""
QUOTIENT_SCALES = (20, 16, 8)
"""Digits behind the point of a quotient or mean: the most at first, fewer where it then is too large."""
_quotient_scale: ContextVar[int] = ContextVar("quotient_scale", default=QUOTIENT_SCALES[0])


def quotient_scale() -> int:
    """Digits behind the point of a quotient or mean in the statement that is compiled."""
    return _quotient_scale.get()


@contextmanager
def with_quotient_scale(scale: int) -> Iterator[None]:
    """Compile a statement with fewer digits behind the points of quotients."""
    token = _quotient_scale.set(scale)
    try:
        yield
    finally:
        _quotient_scale.reset(token)


_wide: ContextVar[bool] = ContextVar("wide", default=False)


def is_wide() -> bool:
    """Whether the statement that is compiled has numerics of any size, as texts."""
    return _wide.get()


@contextmanager
def with_wide_numbers() -> Iterator[None]:
    """Compile a statement with numerics of any size."""
    token = _wide.set(True)
    try:
        yield
    finally:
        _wide.reset(token)


class PgType(NamedTuple):
    """A type. `scale` is that of a numeric in DuckDB, `length` that of varchar(n) and char(n).

    A timestamp that is `fine` has nanoseconds. An array's name ends with [].
    """

    name: str
    precision: int = 0
    scale: int = 0
    length: int = 0
    fine: bool = False
    labels: tuple[tuple[str, float], ...] = ()
    """The values of an enum, in their order: DuckDB has the place of a value among them."""
    fields: tuple[tuple[str, PgType], ...] = ()
    """The names and types of a row's fields."""
    arrow: pa.DataType | None = None
    """The Arrow type of a numeric column without digits, as which it is handed out again."""
    wide: bool = False
    """Whether a numeric is a text, of any size and with its own scale."""
    modifier: int = -1
    """What PostgreSQL keeps of the numbers in parentheses, of a column as it is; -1 if there are none."""

    @property
    def family(self) -> str:
        """N for numbers, S for text, D for dates and times, T for intervals, B, A for arrays, U for others."""
        return "A" if self.is_array else _FAMILIES.get(self.name, "U")

    @property
    def is_array(self) -> bool:
        return self.name.endswith("[]") or self.name in VECTORS

    @property
    def element(self) -> PgType:
        """The type of an array's elements."""
        if self.name in VECTORS:
            return PgType(VECTORS[self.name])
        return self._replace(name=self.name[:-2])

    @property
    def array(self) -> PgType:
        """The type of an array of this type."""
        return self._replace(name=f"{self.name}[]")

    @property
    def duck(self) -> str:
        """The type in DuckDB."""
        if self.is_array:
            return f"{self.element.duck}[]"
        if self.name == "numeric" and self.wide:
            return "VARCHAR"
        if self.name == "numeric":
            return f"DECIMAL({self.precision or DIGITS}, {self.scale})"
        if self.fine:
            return "TIMESTAMP_NS"
        if self.labels:
            return "INTEGER"
        if self.fields:
            return f"STRUCT({', '.join(f'c{n} {type.duck}' for n, (_, type) in enumerate(self.fields))})"
        return _DUCK.get(self.name, "VARCHAR")

    @property
    def shown(self) -> str:
        """The name that messages have."""
        return f"{self.element.shown}[]" if self.name.endswith("[]") else SHOWN.get(self.name, self.name)


REGS = ("regclass", "regtype", "regproc", "regprocedure", "regnamespace", "regrole", "regoper", "regoperator",
        "regconfig", "regdictionary", "regcollation")  # fmt: skip
"""Numbers of objects that are shown as the names of these."""
OIDS = ("oid", "xid", "cid", *REGS)
VECTORS = {"int2vector": "int2", "oidvector": "oid"}
"""Arrays of system tables, whose elements are counted from 0."""
_FAMILIES = {
    **dict.fromkeys(("int2", "int4", "int8", "numeric", "float4", "float8", *OIDS), "N"),
    **dict.fromkeys(("text", "varchar", "bpchar", "name", "char"), "S"), "bool": "B", "interval": "T",
    **dict.fromkeys(("date", "time", "timestamp", "timestamptz"), "D"), "unknown": "X",
}  # fmt: skip
_DUCK = {
    "int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT", "float4": "FLOAT", "float8": "DOUBLE", "bool": "BOOLEAN",
    "date": "DATE", "time": "TIME", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMP", "interval": "INTERVAL",
    "uuid": "UUID", "bytea": "BLOB", **dict.fromkeys(OIDS, "BIGINT"),
}  # fmt: skip
SHOWN = {
    "int2": "smallint", "int4": "integer", "int8": "bigint", "float4": "real", "float8": "double precision",
    "bool": "boolean", "varchar": "character varying", "bpchar": "character", "time": "time without time zone",
    "timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone", "char": '"char"',
}  # fmt: skip

UNKNOWN, BOOL, TEXT = PgType("unknown"), PgType("bool"), PgType("text")
INT2, INT4, INT8, FLOAT4, FLOAT8 = (PgType(name) for name in ("int2", "int4", "int8", "float4", "float8"))
DATE, TIME, TIMESTAMP, TIMESTAMPTZ = (PgType(name) for name in ("date", "time", "timestamp", "timestamptz"))
INTERVAL, BYTEA, UUID, JSON, JSONB = (PgType(name) for name in ("interval", "bytea", "uuid", "json", "jsonb"))
RECORD, VOID = PgType("record"), PgType("void")
OID, NAME = PgType("oid"), PgType("name")
INTEGERS = ("int2", "int4", "int8")
NUMBERS = (*INTEGERS, "numeric", "float4", "float8")
_LADDER = {**{name: place for place, name in enumerate(NUMBERS)}, **dict.fromkeys(REGS, 1.25), "oid": 1.5, "xid": 1.5,
           "cid": 1.5}  # fmt: skip
_MOMENTS = {"date": 0, "timestamp": 1, "timestamptz": 2}
PREFERRED = {"float8", "text", "timestamptz", "bool", "interval"}


def numeric(scale: int, precision: int = 0) -> PgType:
    return PgType("numeric", wide=True) if _wide.get() else PgType("numeric", precision, scale)


def as_numeric(type: PgType) -> PgType:
    """The numeric that holds a number exactly."""
    return type if type.name == "numeric" else numeric(0, {"int2": 5, "int4": 10, "int8": 19}.get(type.name, 0))


class WideNumber(Exception):
    """A statement needs numerics that DuckDB does not have; it is compiled again with those of ours."""


def is_implicit(given: PgType, wanted: PgType) -> bool:
    """Whether a value becomes one of another type without a cast."""
    if given.name == wanted.name or given.name == "unknown":
        return True
    if given.name in _LADDER and wanted.name in _LADDER:
        return _LADDER[given.name] < _LADDER[wanted.name]
    if given.family == wanted.family == "S":
        return True
    if given.name in _MOMENTS and wanted.name in _MOMENTS:
        return _MOMENTS[given.name] < _MOMENTS[wanted.name]
    return (given.name, wanted.name) == ("time", "interval")


def common(types: list[PgType]) -> PgType | None:
    """The type that CASE, UNION and the like give to values of these; None if there is none."""
    known = [each for each in types if each.name != "unknown"]
    if not known:
        return TEXT
    found = known[0]
    for each in known[1:]:
        if each.name == found.name:
            found = _wider(found, each)
        elif each.family != found.family and not (each.is_array or found.is_array):
            return None
        elif is_implicit(found, each):
            found = _wider(each, found)
        elif is_implicit(each, found):
            found = _wider(found, each)
        else:
            return None
    return found if found.family != "S" or len({each.name for each in known}) == 1 else TEXT


def _wider(found: PgType, other: PgType) -> PgType:
    """A type that also holds the digits of another of the same name, or of a number."""
    if found.name == "numeric":
        other = as_numeric(other)
        scale = max(found.scale, other.scale)
        whole = max((found.precision or DIGITS) - found.scale, (other.precision or DIGITS) - other.scale)
        return numeric(scale, min(whole + scale, DIGITS))
    if found.length != other.length:
        found = found._replace(length=0)
    return found._replace(fine=found.fine and other.fine) if found.fine != other.fine else found


_SQL_NAMES = {
    "BOOLEAN": BOOL, "SMALLINT": INT2, "INT": INT4, "BIGINT": INT8, "TEXT": TEXT, "VARCHAR": PgType("varchar"),
    "CHAR": PgType("bpchar"), "BPCHAR": PgType("bpchar"), "NAME": PgType("name"), "FLOAT": FLOAT4, "DOUBLE": FLOAT8,
    "DATE": DATE, "TIME": TIME, "TIMESTAMP": TIMESTAMP, "TIMESTAMPNTZ": TIMESTAMP, "TIMESTAMPTZ": TIMESTAMPTZ,
    "INTERVAL": INTERVAL, "UUID": UUID, "JSON": JSON, "JSONB": JSONB, "VARBINARY": BYTEA, "BINARY": BYTEA,
    "NCHAR": PgType("bpchar"), "NVARCHAR": PgType("varchar"),
}  # fmt: skip


def from_node(node: exp.Expr, enums: Mapping[str, PgType] | None = None) -> PgType:
    """The type that a cast names. Raises `UnsupportedError` and, for a name that is not a type's, `UnknownNameError`."""  # noqa: E501
    name = str(getattr(node.this, "name", node.this)).upper()
    if name == "ARRAY" or name == "LIST":
        return from_node(node.expressions[0], enums).array
    if isinstance(node, exp.Interval) or name.startswith("INTERVAL") or isinstance(node.this, exp.Interval):
        return INTERVAL
    numbers = [int(each.name) for each in node.expressions if each.name.isdigit()]
    if name == "DECIMAL":
        if not numbers:
            return PgType("numeric", 0, -1, wide=_wide.get())
        precision, scale = numbers[0], numbers[1] if len(numbers) > 1 else 0
        if not 1 <= precision <= 1000 or scale > precision:
            raise UnsupportedError(f"numeric({precision}, {scale}) is not supported", hint="1000 digits at most")
        if precision > DIGITS and not _wide.get():
            raise WideNumber
        return PgType("numeric", precision, scale, wide=_wide.get())
    if name == "FLOAT" and numbers:
        return FLOAT4 if numbers[0] <= 24 else FLOAT8
    found = _SQL_NAMES.get(name)
    if (system := _system_type(node)) is not None:
        return system
    if name == "USERDEFINED" and name_of(node.args["kind"]) == "jsonpath":
        return PgType("jsonpath")
    if name == "USERDEFINED" and enums:
        named = node.args["kind"]
        found = enums.get(name_of(named.expression if isinstance(named, exp.Dot) else named))
    if found is None:
        if name == "USERDEFINED" or isinstance(node.this, exp.Identifier | str):
            raise UnknownNameError(f"there is no type {node.sql('postgres')}", sqlstate="42704")
        raise UnsupportedError(f"values of the type {node.sql('postgres')} are not supported")
    if found.name in ("varchar", "bpchar"):
        return found._replace(length=numbers[0] if numbers else 1 if name in ("CHAR", "NCHAR") else 0)
    return found


def _system_type(node: exp.Expr) -> PgType | None:
    """The type of system tables that a cast names, if it is one."""
    named = node.args.get("kind") if node.this == exp.DType.USERDEFINED else node.this
    named = named.expression if isinstance(named, exp.Dot) else named
    name = name_of(named) if isinstance(named, exp.Expr) else named if isinstance(named, str) else ""
    name = _ALIASES.get(name.lower(), name.lower())
    return PgType(name) if name in OIDS or name in VECTORS or name in ("char", "text", "varchar") else None


_ALIASES = {"pg_node_tree": "text", "aclitem": "text", "cstring": "text", "inet": "text", "sql_identifier": "varchar",
            "character_data": "varchar", "yes_or_no": "varchar", "pg_lsn": "text"}  # fmt: skip


def from_arrow(type: pa.DataType) -> PgType:
    """The type of a column of Arrow. Raises `UnsupportedError`."""
    if isinstance(type, pa.BaseExtensionType):
        if isinstance(type, pa.OpaqueType) and type.type_name in types.SYSTEM_ARROW:
            return PgType(type.type_name)
        column = types.from_arrow(type)
        if column is not None and column.kind == types.Kind.ENUM:
            return PgType(column.name, labels=column.labels)
        if column is not None and column.padded:
            return PgType("bpchar", length=column.length)
        for known, found in ((pa.uuid(), UUID), (JSONB_ARROW, JSONB), (NUMERIC_ARROW, PgType("numeric", 0, -1))):
            if known.equals(type):
                return found
        return JSON if isinstance(type, pa.JsonType) else from_arrow(type.storage_type)
    if pa.types.is_dictionary(type):
        return from_arrow(type.value_type)
    if pa.types.is_decimal(type):
        return numeric(type.scale, type.precision)
    if pa.types.is_timestamp(type):
        return PgType("timestamptz" if type.tz else "timestamp", fine=type.unit == "ns")
    if pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type):
        return from_arrow(type.value_type).array
    for found, tests in _ARROW:
        if any(test(type) for test in tests):
            return found
    raise UnsupportedError(f"columns of the Arrow type {type} are not supported")


_ARROW = (
    (BOOL, (pa.types.is_boolean,)), (INT2, (pa.types.is_int8, pa.types.is_uint8, pa.types.is_int16)),
    (INT4, (pa.types.is_uint16, pa.types.is_int32)), (INT8, (pa.types.is_uint32, pa.types.is_int64)),
    (numeric(0, 20), (pa.types.is_uint64,)), (FLOAT4, (pa.types.is_float32, pa.types.is_float16)),
    (FLOAT8, (pa.types.is_float64,)), (DATE, (pa.types.is_date,)), (TIME, (pa.types.is_time,)),
    (INTERVAL, (pa.types.is_interval, pa.types.is_duration)), (UNKNOWN, (pa.types.is_null,)),
    (TEXT, (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)),
    (BYTEA, (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)),
)  # fmt: skip


def of_column(type: types.Type) -> PgType:
    """The type of a column as statements are described with it: with its length, and its digits as a `modifier`."""
    if type.item is not None:
        return of_column(type.item).array
    if type.kind == types.Kind.ENUM:
        return PgType(type.name, labels=type.labels)
    name, modifier = oids.builtin_name(type), oids.type_modifier(type)
    fine = type.kind == types.Kind.TIMESTAMP_NS
    if type.kind == types.Kind.DECIMAL:
        return PgType(name, type.precision, type.scale, modifier=modifier)
    return PgType(name, length=type.length, fine=fine, modifier=modifier)


def to_arrow(type: PgType, given: pa.DataType) -> pa.DataType:
    """The Arrow type that a column of this type is handed out with; `given` is the one from DuckDB."""
    if type.is_array and pa.types.is_list(given):
        return pa.list_(to_arrow(type.element, given.value_type))
    if type.wide:
        return NUMERIC_ARROW
    if type.arrow is not None:
        return type.arrow
    if type.labels:
        return types.Type(types.Kind.ENUM, name=type.name, labels=type.labels).arrow
    if type.name == "timestamptz":
        return pa.timestamp(given.unit if pa.types.is_timestamp(given) else "us", "UTC")
    return _OUT.get(type.name, given)


_OUT = {
    "uuid": pa.uuid(), "json": pa.json_(pa.string()), "jsonb": JSONB_ARROW, "text": pa.string(), "varchar": pa.string(),
    "bpchar": pa.string(), "unknown": pa.string(), "bytea": pa.binary(), "record": RECORD_ARROW,
    **types.SYSTEM_ARROW,
}  # fmt: skip
