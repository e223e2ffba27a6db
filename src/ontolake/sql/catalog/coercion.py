"""Fitting computed columns and given Arrow data to the types of a table's columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.catalog.records import ColumnMeta
from ontolake.sql.errors import DataError, TypeMismatchError
from ontolake.sql.types import Kind, Type, from_arrow

_ASSIGNABLE = {
    Kind.BOOLEAN: {Kind.BOOLEAN}, Kind.INT64: {Kind.INT64, Kind.DOUBLE, Kind.DECIMAL}, Kind.UTF8: {Kind.UTF8},
    Kind.TIMESTAMP_NS: {Kind.TIMESTAMP_NS, Kind.DATE}, Kind.DECIMAL: {Kind.INT64, Kind.DECIMAL, Kind.DOUBLE},
    Kind.DOUBLE: {Kind.INT64, Kind.DECIMAL, Kind.DOUBLE}, Kind.DATE: {Kind.DATE, Kind.TIMESTAMP_NS},
    Kind.BYTES: {Kind.BYTES},
}  # fmt: skip


def is_assignable(to: Type, found: Type) -> bool:
    """Whether values of a type become those of another by themselves where they are stored."""
    return found.kind in _ASSIGNABLE[Kind(to.kind)]


def coerced(column: ColumnMeta, given: pa.Array | pa.ChunkedArray, *, lenient: bool = False) -> pa.Array:
    """An Arrow column as the type of a table's column. With `lenient`, text is read as the type, as literals are.

    Raises `TypeMismatchError` for another type, `DataError` for values that do not fit.
    """
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    type = column.type
    if pa.types.is_dictionary(given.type):
        given = given.cast(given.type.value_type)
    if pa.types.is_null(given.type):
        return pa.nulls(len(given), type.arrow)
    found = from_arrow(given.type)
    if found is None or not is_assignable(type, found):
        if lenient and found is not None and found.kind == Kind.UTF8:
            return _read(column, given)
        raise TypeMismatchError(f"the column {column.name} is {type}, and a value is {found or given.type}",
                                hint="convert it with CAST")
    try:
        fitted = _cast(type, found, given)
    except pa.ArrowInvalid as error:
        raise DataError(f"a value does not fit {column.name}, which is {type}: {error}", sqlstate="22003") from error
    _check(column, type, fitted)
    return fitted


def _cast(type: Type, found: Type, given: Any) -> pa.Array:
    if type.kind == Kind.INT64 and found.kind in (Kind.DOUBLE, Kind.DECIMAL):
        nearest = "half_to_even" if found.kind == Kind.DOUBLE else "half_towards_infinity"
        return pc.round(given, 0, round_mode=nearest).cast(pa.int64())
    if type.kind == Kind.DECIMAL and found.kind == Kind.DECIMAL and found.scale > type.scale:
        given = pc.round(given, type.scale, round_mode="half_towards_infinity")
        return given.cast(type.arrow)
    if type.kind == Kind.DECIMAL and found.kind == Kind.INT64:
        return given.cast(pa.decimal256(19 + type.scale, type.scale)).cast(type.arrow)
    if type.kind == Kind.DOUBLE:
        return pc.add(given.cast(pa.float64(), safe=False), 0.0)
    if type.kind == Kind.TIMESTAMP_NS:  # what has no zone is UTC
        zone = given.type.tz if pa.types.is_timestamp(given.type) else None
        given = given.cast(pa.timestamp(given.type.unit)) if zone else given
        return given.cast(pa.timestamp("ns")).cast(type.arrow)
    if type.kind == Kind.DATE and found.kind == Kind.TIMESTAMP_NS:
        return given.cast(pa.timestamp("s"), safe=False).cast(pa.date32(), safe=False)
    return given.cast(type.arrow)


def _check(column: ColumnMeta, type: Type, fitted: pa.Array) -> None:
    if type.kind == Kind.INT64 and type.bits < 64 and len(fitted):
        limits = pc.min_max(fitted).as_py()
        for value in limits.values():
            type.store(value)  # raises if it is out of range
    if type.kind == Kind.UTF8 and type.length and len(fitted):
        longest = pc.max(pc.utf8_length(fitted)).as_py() or 0
        if longest > type.length:
            raise DataError(f"a value of {longest} characters is too long for {column.name}, which is {type}",
                            sqlstate="22001")


def _read(column: ColumnMeta, given: pa.Array) -> pa.Array:
    from ontolake.sql.keyspace.vectors import stored_array

    return stored_array(column.type, [column.type.store(value) for value in given.to_pylist()])
