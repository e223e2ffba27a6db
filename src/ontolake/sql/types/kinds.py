"""Kinds and column types: what a column is, its name in SQL and its type in Arrow."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from ontolake.sql.errors import DataError


class Items(NamedTuple):
    """The stored form of an array: the kind of its elements, and their stored forms."""

    kind: int
    values: tuple[Any, ...]


class IntervalParts(NamedTuple):
    """The stored form of an interval."""

    months: int
    days: int
    microseconds: int


Stored = bool | int | str | bytes | float | Items | IntervalParts | None


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
    TIMESTAMP_US = 9
    REAL = 10
    NUMERIC = 11
    UUID = 12
    TIME = 13
    INTERVAL = 14
    JSONB = 15
    ARRAY = 16
    ENUM = 17
    JSON = 18


WIDTHS = {
    Kind.BOOLEAN: 1, Kind.INT64: 8, Kind.TIMESTAMP_NS: 8, Kind.DECIMAL: 16, Kind.DOUBLE: 8, Kind.DATE: 4,
    Kind.TIMESTAMP_US: 8, Kind.REAL: 4, Kind.UUID: 16, Kind.TIME: 8, Kind.INTERVAL: 16, Kind.ENUM: 8,
}  # fmt: skip
"""Bytes of a payload, for the types whose payloads all have as many."""

TIMESTAMPS = frozenset({Kind.TIMESTAMP_NS, Kind.TIMESTAMP_US})
TEXTS = frozenset({Kind.NUMERIC, Kind.JSON, Kind.JSONB})
"""Kinds other than UTF8 whose stored form is text."""
ORIGINAL = frozenset(range(Kind.BOOLEAN, Kind.BYTES + 1))
"""Kinds that every version knows."""

VENDOR, ENUM = "PostgreSQL", "enum"
NUMERIC_ARROW = pa.opaque(pa.string(), "numeric", VENDOR)
JSONB_ARROW = pa.opaque(pa.string(), "jsonb", VENDOR)
RECORD_ARROW = pa.opaque(pa.string(), "record", VENDOR)
"""A row within a row, as its text. Columns of tables cannot be of it."""
_OIDS = ("oid", "xid", "cid")
_NAMES = ("name", "char", "int2vector", "oidvector", "regclass", "regtype", "regproc", "regprocedure", "regnamespace",
          "regrole", "regoper", "regoperator", "regconfig", "regdictionary", "regcollation")  # fmt: skip
SYSTEM_ARROW = {**{name: pa.opaque(pa.int64(), name, VENDOR) for name in _OIDS},
                **{name: pa.opaque(pa.string(), name, VENDOR) for name in _NAMES}}  # fmt: skip
"""The types that only columns of system tables have, as answers hand them out: numbers of objects, and text."""


class Type(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """A column type. `bits` bounds integers, `length` text and bytes; decimals have `precision` and `scale`.

    A `zoned` timestamp is a moment, kept in UTC; the others are what a clock shows somewhere. `padded` text is CHAR(n).
    Of times, timestamps and intervals `scale` is how many of the six digits of a second are rounded off. An array has
    `item`, the type of its elements. An enum has `type_id`, under which the catalog keeps it; `name` and `labels`,
    each with its place in the order, are filled in from there.
    """

    kind: int
    precision: int = 0
    scale: int = 0
    length: int = 0
    bits: int = 64
    zoned: bool = False
    padded: bool = False
    item: Type | None = None
    type_id: int = 0
    name: str = ""
    labels: tuple[tuple[str, float], ...] = ()

    @cached_property
    def arrow(self) -> pa.DataType:
        """The Arrow type of a column."""
        if self.kind == Kind.DECIMAL:
            return pa.decimal128(self.precision, self.scale)
        if self.kind == Kind.INT64:
            return _INTEGERS[self.bits]
        if self.kind in TIMESTAMPS:
            return pa.timestamp("us" if self.kind == Kind.TIMESTAMP_US else "ns", "UTC" if self.zoned else None)
        if self.item is not None:
            return pa.list_(self.item.arrow)
        if self.padded:
            return pa.opaque(pa.string(), f"bpchar({self.length})", VENDOR)
        if self.kind == Kind.ENUM:
            return pa.opaque(pa.int32(), json.dumps([ENUM, self.name, self.labels]), VENDOR)
        return _ARROW[Kind(self.kind)]

    @cached_property
    def store(self) -> Callable[[Any], Stored]:
        """Turns a Python value into its stored form. Raises `TypeMismatchError` or `DataError`."""
        from ontolake.sql.types.storing import STORE

        convert = STORE[Kind(self.kind)]
        return lambda value: None if value is None else convert(self, value)

    @cached_property
    def load(self) -> Callable[[Any], Any]:
        """Turns a stored form into the Python value that callers get. Raises `DataError` if Python has none for it."""
        from ontolake.sql.types.loading import loader

        convert = loader(self)
        if convert is None:
            return lambda stored: stored
        return lambda stored: None if stored is None else convert(self, stored)

    def show(self, stored: Any) -> Any:
        """The Python value of a stored form, or its text where Python has none for it."""
        try:
            return self.load(stored)
        except DataError:
            return self.text(stored)

    @cached_property
    def text(self) -> Callable[[Any], str]:
        """Turns a stored form that is not NULL into the text that PostgreSQL writes for it."""
        from ontolake.sql.types.loading import TEXT_OF

        convert = TEXT_OF[Kind(self.kind)]
        return lambda stored: convert(self, stored)

    @cached_property
    def loads_as_stored(self) -> bool:
        """Whether the stored form is what callers get."""
        from ontolake.sql.types.loading import loader

        return loader(self) is None

    @cached_property
    def is_exact_in_keys(self) -> bool:
        """Whether a key gives back the value, not just an equal one: keys have no scale of 1.50, nor months of days."""
        if self.item is not None:
            return self.item.is_exact_in_keys
        return self.kind not in (Kind.NUMERIC, Kind.INTERVAL, Kind.JSONB)

    @cached_property
    def has_order(self) -> bool:
        """Whether values can be compared, and so be in keys and indexes."""
        return self.kind != Kind.JSON and (self.item is None or self.item.has_order)

    @property
    def is_original(self) -> bool:
        """Whether versions of Ontolake up to layout 4 know the type."""
        return self.kind in ORIGINAL and not self.padded

    @cached_property
    def orders(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The places of an enum's labels, ascending."""
        return np.array([order for _, order in self.labels], np.float64)

    @cached_property
    def order_of(self) -> dict[str, float]:
        """The place of each label of an enum."""
        return dict(self.labels)

    @cached_property
    def label_of(self) -> dict[float, str]:
        """The label at each place of an enum."""
        return {order: label for label, order in self.labels}

    @cached_property
    def plain(self) -> Type:
        """The type as the catalog keeps it in a column: what is said of an enum elsewhere is left out."""
        if self.item is not None:
            return msgspec.structs.replace(self, item=self.item.plain)
        return msgspec.structs.replace(self, name="", labels=()) if self.kind == Kind.ENUM else self

    def __str__(self) -> str:
        kind = Kind(self.kind)
        if self.item is not None:
            return f"{self.item}[]"
        if kind == Kind.ENUM:
            return self.name
        if kind == Kind.INT64:
            return {16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}[self.bits]
        if kind == Kind.DECIMAL:
            return f"DECIMAL({self.precision}, {self.scale})"
        if kind == Kind.UTF8:
            name = "CHAR" if self.padded else "VARCHAR"
            return f"{name}({self.length})" if self.length else "TEXT"
        if kind == Kind.NUMERIC:
            return f"NUMERIC({self.precision}, {self.scale})" if self.precision else "NUMERIC"
        digits = f"({6 - self.scale})" if self.scale else ""
        if kind == Kind.TIMESTAMP_US:
            return ("TIMESTAMPTZ" if self.zoned else "TIMESTAMP") + digits
        if kind == Kind.TIMESTAMP_NS:
            return "TIMESTAMPTZ_NS" if self.zoned else "TIMESTAMP_NS"
        names = {Kind.BYTES: "BYTEA", Kind.DOUBLE: "DOUBLE PRECISION"}
        return (names.get(kind) or str(kind.name)) + digits


_INTEGERS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_ARROW = {
    Kind.BOOLEAN: pa.bool_(), Kind.UTF8: pa.string(), Kind.DOUBLE: pa.float64(), Kind.REAL: pa.float32(),
    Kind.DATE: pa.date32(), Kind.BYTES: pa.binary(), Kind.NUMERIC: NUMERIC_ARROW, Kind.UUID: pa.uuid(),
    Kind.TIME: pa.time64("us"), Kind.INTERVAL: pa.month_day_nano_interval(), Kind.JSON: pa.json_(pa.string()),
    Kind.JSONB: JSONB_ARROW,
}  # fmt: skip


BOOLEAN, SMALLINT, INTEGER, BIGINT = Type(Kind.BOOLEAN), *(Type(Kind.INT64, bits=bits) for bits in (16, 32, 64))
REAL, DOUBLE, NUMERIC = Type(Kind.REAL), Type(Kind.DOUBLE), Type(Kind.NUMERIC)
TEXT, BYTES, UUID = Type(Kind.UTF8), Type(Kind.BYTES), Type(Kind.UUID)
DATE, TIME, INTERVAL = Type(Kind.DATE), Type(Kind.TIME), Type(Kind.INTERVAL)
TIMESTAMP, TIMESTAMPTZ = Type(Kind.TIMESTAMP_US), Type(Kind.TIMESTAMP_US, zoned=True)
TIMESTAMP_NS, TIMESTAMPTZ_NS = Type(Kind.TIMESTAMP_NS), Type(Kind.TIMESTAMP_NS, zoned=True)
JSON, JSONB = Type(Kind.JSON), Type(Kind.JSONB)
