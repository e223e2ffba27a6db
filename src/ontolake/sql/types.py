"""The types of columns: how values are checked, kept and handed out again.

A value has a *stored form*, which keys and rows are made of: bool, int, str, bytes or float; a timestamp is its
nanoseconds and a date its days since 1970, a decimal its digits as an integer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from ontolake.sql.errors import DataError, DefinitionError, TypeMismatchError, UnsupportedError

if TYPE_CHECKING:
    from sqlglot import exp

Stored = bool | int | str | bytes | float | None

EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_INT64 = (-(2**63), 2**63 - 1)


class Kind(IntEnum):
    """A logical type; the number is its tag in keys."""

    BOOLEAN = 1
    INT64 = 2
    UTF8 = 3
    TIMESTAMP_NS = 4
    DECIMAL = 5
    DOUBLE = 6
    DATE = 7
    BYTES = 8


WIDTHS = {Kind.BOOLEAN: 1, Kind.INT64: 8, Kind.TIMESTAMP_NS: 8, Kind.DECIMAL: 16, Kind.DOUBLE: 8, Kind.DATE: 4}
"""Bytes of a payload, for the types whose payloads all have as many."""


class Type(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """A column type. `bits` bounds integers, `length` text and bytes; decimals have `precision` and `scale`.

    A `zoned` timestamp is a moment, kept in UTC; the others are what a clock shows somewhere.
    """

    kind: int
    precision: int = 0
    scale: int = 0
    length: int = 0
    bits: int = 64
    zoned: bool = False

    @cached_property
    def arrow(self) -> pa.DataType:
        """The Arrow type of a column."""
        if self.kind == Kind.DECIMAL:
            return pa.decimal128(self.precision, self.scale)
        if self.zoned:
            return pa.timestamp("ns", "UTC")
        return _ARROW[Kind(self.kind)]

    @cached_property
    def store(self) -> Callable[[Any], Stored]:
        """Turns a Python value into its stored form. Raises `TypeMismatchError` or `DataError`."""
        convert = _STORE[Kind(self.kind)]
        return lambda value: None if value is None else convert(self, value)

    @cached_property
    def load(self) -> Callable[[Any], Any]:
        """Turns a stored form into the Python value that callers get."""
        convert = _LOAD.get(Kind(self.kind))
        if convert is None:
            return lambda stored: stored
        return lambda stored: None if stored is None else convert(self, stored)

    @cached_property
    def loads_as_stored(self) -> bool:
        """Whether the stored form is what callers get."""
        return Kind(self.kind) not in _LOAD

    def __str__(self) -> str:
        if self.kind == Kind.INT64:
            return {16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}[self.bits]
        if self.kind == Kind.DECIMAL:
            return f"DECIMAL({self.precision}, {self.scale})"
        if self.kind == Kind.UTF8:
            return f"VARCHAR({self.length})" if self.length else "TEXT"
        if self.kind == Kind.TIMESTAMP_NS:
            return "TIMESTAMPTZ" if self.zoned else "TIMESTAMP"
        names = {Kind.BYTES: "BYTEA", Kind.DOUBLE: "DOUBLE PRECISION"}
        return names.get(Kind(self.kind)) or str(Kind(self.kind).name)


_ARROW = {
    Kind.BOOLEAN: pa.bool_(), Kind.INT64: pa.int64(), Kind.UTF8: pa.string(), Kind.TIMESTAMP_NS: pa.timestamp("ns"),
    Kind.DOUBLE: pa.float64(), Kind.DATE: pa.date32(), Kind.BYTES: pa.binary(),
}  # fmt: skip


def _wrong(type: Type, value: Any) -> TypeMismatchError:
    return TypeMismatchError(f"{value!r} is a {builtin_name(value)}, not a {type}",
                             hint=f"give a {type}, or convert it with CAST")


def builtin_name(value: Any) -> str:
    return str(value.__class__.__name__)


def _unreadable(type: Type, value: Any) -> DataError:
    return DataError(f"{value!r} cannot be read as {type}", sqlstate="22P02")


def _boolean(type: Type, value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, str):
        known = {"t": True, "true": True, "yes": True, "on": True, "1": True,
                 "f": False, "false": False, "no": False, "off": False, "0": False}  # fmt: skip
        if (found := known.get(value.strip().lower())) is not None:
            return found
        raise _unreadable(type, value)
    raise _wrong(type, value)


def _integer(type: Type, value: Any) -> int:
    if value.__class__ is not int:
        value = _to_integer(type, value)
    low, high = _INT64 if type.bits == 64 else (-(1 << type.bits - 1), (1 << type.bits - 1) - 1)
    if not low <= value <= high:
        raise DataError(f"{value} is out of range for {type}", sqlstate="22003", hint=f"from {low} to {high}")
    return int(value)


def _to_integer(type: Type, value: Any) -> int:
    if isinstance(value, bool | np.bool_):
        raise _wrong(type, value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | Decimal):
        number = Decimal(value)
        if not number.is_finite() or number.adjusted() > 20:
            raise DataError(f"{value!r} is out of range for {type}", sqlstate="22003")
        return round(value) if isinstance(value, float) else int(number.quantize(Decimal(1), ROUND_HALF_UP))
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            raise _unreadable(type, value) from None
    raise _wrong(type, value)


def _text(type: Type, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(type, value)
    if type.length and len(value) > type.length:
        raise DataError(f"a value of {len(value)} characters is too long for {type}", sqlstate="22001")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError(f"{value!r} is not text that UTF-8 can hold", sqlstate="22021") from None
    return value


def _timestamp(type: Type, value: Any) -> int:
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[ns]").astype(np.int64))
    if isinstance(value, str):
        value = _parse_timestamp(type, value)
        if isinstance(value, int):
            return value
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        since = value - EPOCH
        nanoseconds = ((since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
    elif isinstance(value, date):
        nanoseconds = (value.toordinal() - _EPOCH_DAY) * 86_400_000_000_000
    else:
        raise _wrong(type, value)
    if not _INT64[0] <= nanoseconds <= _INT64[1]:
        raise DataError(f"{value} is out of range for TIMESTAMP", sqlstate="22008", hint="from 1677 to 2262")
    return int(nanoseconds)


def _parse_timestamp(type: Type, text: str) -> datetime | int:
    parts = re.fullmatch(r"(.*[0-9])\.([0-9]{7,9})(|Z|[+-][0-9:]+)", text.strip())
    try:
        if parts is not None:
            return _timestamp(type, datetime.fromisoformat(parts[1] + parts[3])) + int(parts[2].ljust(9, "0"))
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise DataError(f"{text!r} cannot be read as {type}", sqlstate="22007",
                        hint="write 2026-02-11 10:00:00") from None


def _decimal(type: Type, value: Any) -> int:
    if isinstance(value, bool):
        raise _wrong(type, value)
    if isinstance(value, float):
        value = repr(value)
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise _unreadable(type, value) from None
    except (TypeError, ValueError):
        raise _wrong(type, value) from None
    if not number.is_finite():
        raise DataError(f"{number} is out of range for {type}", sqlstate="22003")
    if number.adjusted() > 60:
        raise DataError(f"{value} is out of range for {type}", sqlstate="22003")
    with localcontext() as context:
        context.prec = 120
        digits = int(number.scaleb(type.scale).quantize(Decimal(1), ROUND_HALF_UP))
    if abs(digits) >= 10**type.precision:
        raise DataError(f"{value} is out of range for {type}", sqlstate="22003")
    return digits


def _double(type: Type, value: Any) -> float:
    if isinstance(value, bool | np.bool_):
        raise _wrong(type, value)
    try:
        return float(value) + 0.0  # there is one zero
    except ValueError:
        raise _unreadable(type, value) from None
    except OverflowError:
        raise DataError(f"{value} is out of range for {type}", sqlstate="22003") from None
    except TypeError:
        raise _wrong(type, value) from None


def _date(type: Type, value: Any) -> int:
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value.strip())
        except ValueError:
            raise DataError(f"{value!r} cannot be read as DATE", sqlstate="22007", hint="write 2026-02-11") from None
    if isinstance(value, date):
        return value.toordinal() - _EPOCH_DAY
    raise _wrong(type, value)


def _bytes(type: Type, value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str) and value.startswith("\\x"):
        try:
            return bytes.fromhex(value[2:])
        except ValueError:
            raise _unreadable(type, value) from None
    raise _wrong(type, value)


_STORE: dict[Kind, Callable[[Type, Any], Stored]] = {
    Kind.BOOLEAN: _boolean, Kind.INT64: _integer, Kind.UTF8: _text, Kind.TIMESTAMP_NS: _timestamp,
    Kind.DECIMAL: _decimal, Kind.DOUBLE: _double, Kind.DATE: _date, Kind.BYTES: _bytes,
}  # fmt: skip


def _load_timestamp(type: Type, stored: int) -> datetime:
    """A `datetime` has no nanoseconds: what is finer is cut off. Arrow keeps it."""
    found = EPOCH + timedelta(microseconds=stored // 1000)
    return found.replace(tzinfo=UTC) if type.zoned else found


def _load_decimal(type: Type, stored: int) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return Decimal(stored).scaleb(-type.scale)


_LOAD: dict[Kind, Callable[[Type, Any], Any]] = {
    Kind.TIMESTAMP_NS: _load_timestamp, Kind.DECIMAL: _load_decimal,
    Kind.DATE: lambda type, stored: date.fromordinal(stored + _EPOCH_DAY),
}  # fmt: skip


BOOLEAN, BIGINT, TEXT = Type(Kind.BOOLEAN), Type(Kind.INT64), Type(Kind.UTF8)
TIMESTAMPTZ = Type(Kind.TIMESTAMP_NS, zoned=True)
TIMESTAMP, DOUBLE, DATE, BYTES = Type(Kind.TIMESTAMP_NS), Type(Kind.DOUBLE), Type(Kind.DATE), Type(Kind.BYTES)

_NAMES = {
    "BOOLEAN": BOOLEAN, "SMALLINT": Type(Kind.INT64, bits=16), "INT": Type(Kind.INT64, bits=32), "BIGINT": BIGINT,
    "TEXT": TEXT, "VARCHAR": TEXT, "TIMESTAMP": TIMESTAMP, "TIMESTAMPNTZ": TIMESTAMP,
    "TIMESTAMPTZ": TIMESTAMPTZ, "DOUBLE": DOUBLE, "FLOAT": DOUBLE, "DATE": DATE,
    "VARBINARY": BYTES, "BINARY": BYTES, "BLOB": BYTES, "DECIMAL": Type(Kind.DECIMAL),
}  # fmt: skip


IDS = "give every row its id, or let it have one with TEXT DEFAULT gen_random_uuid()"
"""What to do where PostgreSQL would count."""


def decimal(precision: int, scale: int = 0) -> Type:
    """DECIMAL(precision, scale). Raises `DefinitionError` for what no column can have."""
    if not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise DefinitionError(f"DECIMAL({precision}, {scale}) is out of range", sqlstate="22023",
                              hint="a precision from 1 to 38, and a scale up to it")
    return Type(Kind.DECIMAL, precision, scale)


def from_sql(node: exp.DataType) -> Type:
    """The type that a statement names. Raises `UnsupportedError` or `DefinitionError`."""
    name = node.this.name if hasattr(node.this, "name") else str(node.this)
    found = _NAMES.get(name)
    if found is None or node.args.get("nested"):
        written = node.sql("postgres")
        if name.endswith("SERIAL"):
            raise UnsupportedError(f"columns of the type {written} are not supported", hint=IDS)
        raise UnsupportedError(f"columns of the type {written} are not supported",
                               hint="there are BOOLEAN, SMALLINT, INTEGER, BIGINT, DECIMAL(p, s), DOUBLE PRECISION, "
                                    "TEXT, VARCHAR(n), BYTEA, DATE, TIMESTAMP and TIMESTAMPTZ")  # fmt: skip
    numbers = [int(each.name) for each in node.expressions if each.name.isdigit()]
    if found.kind == Kind.DECIMAL:
        return decimal(*(numbers[:2] or (38, 9)))
    if found.kind == Kind.UTF8 and numbers:
        if not 1 <= numbers[0] <= 10_485_760:
            raise DefinitionError(f"VARCHAR({numbers[0]}) is out of range", sqlstate="22023")
        return Type(Kind.UTF8, length=numbers[0])
    return found


@lru_cache(maxsize=256)
def from_arrow(arrow: pa.DataType) -> Type | None:
    """The column type that holds an Arrow type, or None."""
    if pa.types.is_decimal(arrow):
        return Type(Kind.DECIMAL, arrow.precision, arrow.scale) if arrow.precision <= 38 else None
    if pa.types.is_timestamp(arrow):
        return TIMESTAMPTZ if arrow.tz else TIMESTAMP
    tests: tuple[tuple[Callable[[pa.DataType], bool], Type], ...] = (
        (pa.types.is_boolean, BOOLEAN), (pa.types.is_integer, BIGINT), (pa.types.is_floating, DOUBLE),
        (pa.types.is_string, TEXT), (pa.types.is_large_string, TEXT), (pa.types.is_string_view, TEXT),
        (pa.types.is_date, DATE), (pa.types.is_binary, BYTES),
        (pa.types.is_large_binary, BYTES), (pa.types.is_binary_view, BYTES), (pa.types.is_fixed_size_binary, BYTES),
    )  # fmt: skip
    return next((type for test, type in tests if test(arrow)), None)
