"""Fitting computed columns and given Arrow data to the types of a table's columns."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ontolake.sql.catalog.records import ColumnMeta
from ontolake.sql.errors import DataError, TypeMismatchError
from ontolake.sql.keyspace.columns import list_array, of_storage, storage_of, stored_array, stored_list
from ontolake.sql.types import TIMESTAMPS, Kind, Type, from_arrow, moments

_NUMBERS = frozenset({Kind.INT64, Kind.DECIMAL, Kind.DOUBLE, Kind.REAL, Kind.NUMERIC})
_MOMENTS = TIMESTAMPS | {Kind.DATE}
_DOCUMENTS = frozenset({Kind.JSON, Kind.JSONB})
_ASSIGNABLE: dict[int, frozenset[int]] = {
    Kind.BOOLEAN: frozenset({Kind.BOOLEAN}), **dict.fromkeys(_NUMBERS, _NUMBERS),
    **dict.fromkeys(_MOMENTS, _MOMENTS), **dict.fromkeys(_DOCUMENTS, _DOCUMENTS),
    Kind.UTF8: frozenset(Kind),
    Kind.BYTES: frozenset({Kind.BYTES}), Kind.UUID: frozenset({Kind.UUID}),
    Kind.TIME: TIMESTAMPS | {Kind.TIME}, Kind.INTERVAL: frozenset({Kind.INTERVAL, Kind.TIME}),
    Kind.ENUM: frozenset({Kind.ENUM, Kind.UTF8}), Kind.ARRAY: frozenset({Kind.ARRAY}),
}  # fmt: skip
READ_FROM_TEXT = frozenset({
    Kind.UUID, Kind.NUMERIC, Kind.TIME, Kind.INTERVAL, Kind.JSON, Kind.JSONB, Kind.ENUM, Kind.ARRAY})
"""Kinds that Arrow data often has as text, which a bulk load reads."""
_PLAIN_SCALE = 6
"""Digits behind the point up to which Arrow writes decimals without an exponent."""


def is_comparable(one: Type, other: Type) -> bool:
    """Whether values of two types can be equal, so that one may refer to the other."""
    return one.kind == other.kind or (Kind.UTF8 not in (one.kind, other.kind)
                                      and is_assignable(one, other) and is_assignable(other, one))  # fmt: skip


def is_assignable(to: Type, found: Type) -> bool:
    """Whether values of a type become those of another by themselves where they are stored. All become text."""
    if to.item is not None and found.item is not None:
        return is_assignable(to.item, found.item)
    return found.kind in _ASSIGNABLE[to.kind]


def coerced(column: ColumnMeta, given: pa.Array | pa.ChunkedArray, *, lenient: bool = False) -> pa.Array:
    """An Arrow column as the type of a table's column. With `lenient`, text is read as the type, as literals are.

    Raises `TypeMismatchError` for another type, `DataError` for values that do not fit.
    """
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if isinstance(given, pa.ChunkedArray):  # of an extension type
        given = pa.concat_arrays(given.chunks) if given.num_chunks else pa.nulls(0, given.type)
    type = column.type
    if pa.types.is_dictionary(given.type):
        given = given.cast(given.type.value_type)
    if pa.types.is_null(given.type):
        return stored_array(type, [None] * len(given))
    given = _computable(given)
    found = from_arrow(given.type)
    if pa.types.is_decimal256(given.type) and type.kind in _NUMBERS:
        return read_texts(type, given)
    if type.item is not None and pa.types.is_list(given.type) and pa.types.is_null(given.type.value_type):
        return stored_array(type, [type.store(value) for value in given.to_pylist()])
    if found is None or not is_assignable(type, found):
        if lenient and found is not None and found.kind == Kind.UTF8:
            return read_texts(type, given)
        if lenient and type.item is not None and found is not None and found.item is not None:
            return _fitted_items(column, type, given, lenient)
        raise TypeMismatchError(f"the column {column.name} is {type}, and a value is {found or given.type}",
                                hint="convert it with CAST")
    try:
        if type.item is not None:
            return _fitted_items(column, type, given, lenient)
        fitted = _fitted(type, found, given)
    except pa.ArrowInvalid as error:
        state = "22008" if type.kind in _MOMENTS else "22003"
        raise DataError(f"a value does not fit {column.name}, which is {type}: {error}", sqlstate=state) from error
    return _checked(column, type, fitted)


def _computable(given: pa.Array) -> pa.Array:
    """Numbers of types that Arrow can hold but hardly compute with, as those of a wider type."""
    if pa.types.is_float16(given.type):
        return given.cast(pa.float32())
    if pa.types.is_decimal32(given.type) or pa.types.is_decimal64(given.type):
        return given.cast(pa.decimal128(given.type.precision, given.type.scale))
    return given


def _fitted_items(column: ColumnMeta, type: Type, given: pa.Array, lenient: bool) -> pa.Array:
    """Arrays whose elements are fitted to their type."""
    assert type.item is not None
    if not pa.types.is_list(given.type):
        given = given.cast(pa.list_(given.type.value_type))
    offsets = np.asarray(given.offsets)
    items = given.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    fitted = coerced(msgspec.structs.replace(column, logical_type=type.item), items, lenient=lenient)
    missing = np.asarray(given.is_null()) if given.null_count else None
    return list_array(type, (offsets - offsets[0]).astype(np.int32), fitted, missing)


def _fitted(type: Type, found: Type, given: pa.Array) -> pa.Array:
    kind = type.kind
    if kind == found.kind and kind in (Kind.BOOLEAN, Kind.BYTES, Kind.UUID, Kind.NUMERIC) and not type.precision:
        return given.cast(type.arrow) if kind in (Kind.BOOLEAN, Kind.BYTES) else given
    if kind in _DOCUMENTS:
        if kind == Kind.JSONB and found.kind == Kind.JSON:
            return read_texts(type, storage_of(given))
        return of_storage(type, storage_of(given).cast(pa.string()))
    if kind in _NUMBERS:
        return _number(type, found, given)
    if kind in TIMESTAMPS:
        return _timestamp(type, given)
    if kind == Kind.DATE:
        return _date(given)
    if kind == Kind.TIME:
        return _time(type, given)
    if kind == Kind.INTERVAL:
        return _interval(type, found, given)
    if kind == Kind.ENUM:
        return given if given.type == type.arrow else read_texts(type, as_text(found, given))
    if kind == Kind.UTF8:
        return storage_of(given).cast(pa.string()) if found.kind == Kind.UTF8 else as_text(found, given)
    return given.cast(type.arrow)


def read_texts(type: Type, given: pa.Array) -> pa.Array:
    """Text, or values that Arrow gives to Python, as values of a type. Each different text is read once."""
    if pa.types.is_string(given.type) or pa.types.is_large_string(given.type):
        coded = given.dictionary_encode()
        known = stored_array(type, [type.store(value) for value in coded.dictionary.to_pylist()])
        return known.take(coded.indices)
    return stored_array(type, [type.store(value) for value in given.to_pylist()])


def _number(type: Type, found: Type, given: pa.Array) -> pa.Array:
    kind = type.kind
    if found.kind == Kind.NUMERIC:
        if kind in (Kind.DOUBLE, Kind.REAL):
            return pc.add(storage_of(given).cast(pa.float64()).cast(type.arrow), pa.scalar(0.0, type.arrow))
        return stored_array(type, [None if one is None else type.store(Decimal(one))
                                   for one in storage_of(given).to_pylist()])  # fmt: skip
    if kind == Kind.INT64 and found.kind != Kind.INT64:
        nearest = "half_towards_infinity" if found.kind == Kind.DECIMAL else "half_to_even"
        return pc.round(given, 0, round_mode=nearest).cast(type.arrow)
    if kind == Kind.NUMERIC:
        is_plain = found.kind == Kind.INT64 or (found.kind == Kind.DECIMAL and found.scale <= _PLAIN_SCALE)
        if is_plain and not type.precision:
            return of_storage(type, given.cast(pa.string()))
        return stored_array(type, [type.store(value) for value in given.to_pylist()])
    if kind == Kind.DECIMAL and found.kind == Kind.DECIMAL and found.scale > type.scale:
        return pc.round(given, type.scale, round_mode="half_towards_infinity").cast(type.arrow)
    if kind == Kind.DECIMAL and found.kind == Kind.INT64:
        return given.cast(pa.int64()).cast(pa.decimal256(19 + type.scale, type.scale)).cast(type.arrow)
    if kind == Kind.DECIMAL and found.kind in (Kind.DOUBLE, Kind.REAL):
        return given.cast(pa.float64()).cast(type.arrow)
    if kind == Kind.DOUBLE:
        return pc.add(given.cast(pa.float64(), safe=False), 0.0)
    if kind == Kind.REAL:
        return _real(given)
    return given.cast(type.arrow)


def _real(given: pa.Array) -> pa.Array:
    wide = given.cast(pa.float64(), safe=False)
    single = pc.add(wide.cast(pa.float32(), safe=False), pa.scalar(0.0, pa.float32()))
    lost = pc.or_(pc.and_(pc.is_inf(single), pc.is_finite(wide)),
                  pc.and_(pc.equal(single, pa.scalar(0.0, pa.float32())), pc.not_equal(wide, 0.0)))  # fmt: skip
    if pc.any(lost).as_py():
        raise DataError("a value is out of range for REAL", sqlstate="22003", hint="use DOUBLE PRECISION")
    return single


def _timestamp(type: Type, given: pa.Array) -> pa.Array:
    """What has no zone is UTC."""
    if pa.types.is_date(given.type):
        days = np.asarray(pc.fill_null(given.cast(pa.date32()).cast(pa.int32()), 0))
        ends = np.abs(days) == moments.LAST_DAY
        if type.kind == Kind.TIMESTAMP_US and ends.any():
            found = np.where(ends, np.sign(days) * moments.FOREVER, np.where(ends, 0, days) * np.int64(moments.DAY))
            return pa.array(found, mask=np.asarray(given.is_null())).view(type.arrow)
    elif given.type.tz:
        given = given.cast(pa.timestamp(given.type.unit))
    unit = type.arrow.unit
    if pa.types.is_timestamp(given.type) and unit == "us" and given.type.unit == "ns":
        given = pc.floor_temporal(given, unit="microsecond")
    found = given.cast(pa.timestamp(unit))
    if unit == "us":
        found = _rounded(type, found)
        numbers = found.cast(pa.int64())
        ends = pc.equal(pc.abs(numbers), moments.FOREVER)
        outside = pc.or_(pc.less(numbers, moments.FIRST_MOMENT), pc.greater(numbers, moments.LAST_MOMENT))
        if pc.any(pc.and_not(outside, ends)).as_py():
            raise DataError(f"a value is out of range for {type}", sqlstate="22008")
    return found.cast(type.arrow)


def _rounded(type: Type, given: pa.Array) -> pa.Array:
    if not type.scale:
        return given
    return stored_array(type, [None if one is None else type.store(np.datetime64(one, "us"))
                               for one in given.cast(pa.int64()).to_pylist()]).cast(given.type)  # fmt: skip


def _date(given: pa.Array) -> pa.Array:
    if pa.types.is_date(given.type):
        found = given.cast(pa.date32())
        _check_days(pc.fill_null(found.cast(pa.int32()), 0).to_numpy(zero_copy_only=False))
        return found
    unit = given.type.unit
    numbers = pc.fill_null(given.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    days = numbers // (86_400 * {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[unit])
    if unit == "us":
        days = np.where(np.abs(numbers) == moments.FOREVER, np.sign(numbers) * moments.LAST_DAY, days)
    _check_days(days)
    return pa.array(days.astype(np.int32), mask=np.asarray(given.is_null())).view(pa.date32())


def _check_days(days: np.ndarray[Any, Any]) -> None:
    """Raises `DataError` for a day that is neither in PostgreSQL's calendar nor infinity."""
    outside = ((days < moments.FIRST_DATE) | (days > moments.LAST_DATE)) & (np.abs(days) != moments.LAST_DAY)
    if outside.any():
        raise DataError(f"a value is out of range for DATE: day {days[outside][0]} since 1970", sqlstate="22008")


def _time(type: Type, given: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(given.type):
        numbers = given.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        numbers = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False) % moments.DAY
        found = pa.array(numbers, mask=np.asarray(given.is_null())).view(pa.time64("us"))
    else:
        found = given.cast(pa.time64("us"), safe=False)
    if not type.scale:
        return found
    return stored_array(type, [type.store(value) for value in found.to_pylist()])


def _interval(type: Type, found: Type, given: pa.Array) -> pa.Array:
    if pa.types.is_interval(given.type) and not type.scale:
        return given
    if pa.types.is_time(given.type):
        given = given.cast(pa.time64("us"), safe=False).cast(pa.int64()).view(pa.duration("us"))
    return stored_array(type, [type.store(value) for value in given.to_pylist()])


def as_text(found: Type, given: pa.Array) -> pa.Array:
    """Values as the text that stands for them in PostgreSQL."""
    if found.kind == Kind.INT64:
        return given.cast(pa.string())
    if found.kind == Kind.BOOLEAN:
        return pc.if_else(given, "true", "false")
    if found.kind == Kind.UTF8:
        return storage_of(given).cast(pa.string())
    if found.kind in (Kind.TIME, Kind.INTERVAL):  # which come in other units too
        given = _fitted(found, found, given)
    return pa.array([None if one is None else found.text(one) for one in stored_list(found, given)], pa.string())


def _checked(column: ColumnMeta, type: Type, fitted: pa.Array) -> pa.Array:
    if type.kind != Kind.UTF8 or not type.length:
        return fitted
    if type.padded:
        if pc.any(pc.match_substring(fitted, "\x00")).as_py():
            raise DataError(f"{column.name}, which is {type}, cannot hold the character 0", sqlstate="22021")
        plain = msgspec.structs.replace(type, padded=False)
        return of_storage(type, _checked(column, plain, pc.utf8_rtrim(fitted, " ")))
    longest = pc.max(pc.utf8_length(fitted)).as_py() or 0
    if longest <= type.length:
        return fitted
    rest = pc.utf8_rtrim(pc.utf8_slice_codeunits(fitted, type.length), " ")
    if pc.any(pc.not_equal(rest, "")).as_py():
        raise DataError(f"a value of {longest} characters is too long for {column.name}, which is {type}",
                        sqlstate="22001")
    return pc.utf8_slice_codeunits(fitted, 0, type.length)
