"""Rows on their way in: from Arrow, files, dicts and objects to an Arrow table of a type, checked column by column."""

from __future__ import annotations

import binascii
import enum
import json
import os
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.arrow_keys import are_distinct, repeated
from ontolake.graph.errors import ConstraintError, DuplicateKeyError, RowError, in_short
from ontolake.graph.tables.types import GraphField, GraphType
from ontolake.model import scalars
from ontolake.model.codecs import failure
from ontolake.model.columns import Column, Factory
from ontolake.model.scalars import Scalar

Declared = Mapping[str, Column]


def to_table(kind: GraphType, data: Any, columns: Declared = MappingProxyType({})) -> pa.Table:
    """The rows as a table of the type's schema. Takes Arrow, a JSONL or Parquet file, and iterables of dicts or
    objects; `columns` of a class say what is made anew for each row, and which JSON fits.

    Raises `RowError`, and `ConstraintError` for values that a column forbids."""
    table = _arrow(kind, data, columns)
    known = kind.by_name
    for name in table.column_names:
        if name not in known:
            raise RowError(kind.table, "there is no such column", column=name,
                           hint=f"there are {', '.join(known)}")
    if len(set(table.column_names)) != len(table.column_names):
        raise RowError(kind.table, "a column is given twice")
    arrays = [column_of(kind, field, table.column(field.name)) if field.name in table.column_names
              else _missing(kind, field, table.num_rows, _factory(columns, field.name)) for field in kind.fields]
    made = pa.Table.from_arrays(arrays, schema=kind.schema)
    check_values(kind, made)
    return made


def _arrow(kind: GraphType, data: Any, columns: Declared) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if isinstance(data, str | os.PathLike):
        return _file(kind, Path(data), columns)
    if isinstance(data, Mapping) or not isinstance(data, Iterable):
        data = [data]
    return _from_rows(kind, list(data), columns)


def _file(kind: GraphType, path: Path, columns: Declared) -> pa.Table:
    if not path.is_file():
        raise RowError(kind.table, f"there is no file {str(path)!r}", hint="check the path")
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        try:
            return pq.read_table(path)
        except pa.ArrowException as error:
            raise RowError(kind.table, f"{path.name} is not a Parquet file: {error}") from error
    rows: list[Any] = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines):
            if line.strip():
                try:
                    rows.append(json.loads(line))
                except ValueError as error:
                    raise RowError(kind.table, f"line {number + 1} of {path.name} is not JSON: {error}",
                                   row=len(rows)) from None
    return _from_rows(kind, rows, columns)


def _from_rows(kind: GraphType, rows: list[Any], columns: Declared) -> pa.Table:
    names: dict[str, None] = {}
    plain: list[Mapping[str, Any]] = []
    for number, row in enumerate(rows):
        if hasattr(row, "__ontolake_kind__"):
            row = _from_object(kind, row, number)
        if not isinstance(row, Mapping):
            raise RowError(kind.table, f"a row must be an object with fields, not {type(row).__name__}", row=number)
        plain.append(row)
        names.update(dict.fromkeys(row))
    known = kind.by_name
    for name in names:
        if name not in known:
            row_number = next(n for n, row in enumerate(plain) if name in row)
            raise RowError(kind.table, "there is no such column", row=row_number, column=str(name),
                           hint=f"there are {', '.join(known)}")
    missing = object()
    arrays = []
    for name in names:
        field = known[name]
        fill = field.default if field.has_default else None
        if field.type == "json" and fill is not None:
            fill = json.loads(fill)  # it is kept as text
        make = _factory(columns, name) or partial(_same, fill)
        values = [make() if (value := row.get(name, missing)) is missing else value for row in plain]
        if field.type == "json" and name in columns:
            _check_json(kind, field, columns[name], values)
        arrays.append(array_of(kind, field, values))
    return pa.Table.from_arrays(arrays, names=list(names)) if names else pa.table({})


def _same(value: Any) -> Any:
    return value


def _factory(columns: Declared, name: str) -> Callable[[], Any] | None:
    default = columns[name].default if name in columns else None
    return default.make if isinstance(default, Factory) else None


def _check_json(kind: GraphType, field: GraphField, column: Column, values: list[Any]) -> None:
    """That values are of the type that a class declares for a field, as those of its objects are."""
    for number, value in enumerate(values):
        if value is not None:
            try:
                column.decode(_json(value))
            except ValueError as error:
                raise RowError(kind.table, f"{value!r} does not fit: {failure(error)}", row=number,
                               column=field.name) from None


def _from_object(kind: GraphType, row: Any, number: int) -> Mapping[str, Any]:
    from ontolake.model import type_info

    info = type_info(type(row))
    if info.name != kind.name:
        raise RowError(kind.table, f"this is a {info.name}, not a {kind.name}", row=number)
    return {column.stored: row.__dict__[column.name] for column in info.all_columns}


def array_of(kind: GraphType, field: GraphField, values: list[Any]) -> pa.Array:
    """Plain values as a column. Raises `RowError` for one that does not fit."""
    scalar, wanted = field.scalar, field.arrow_type
    if field.digits is not None:
        values = _converted(kind, field, values, _decimal)
    elif scalar is None or not {*map(type, values)} <= {*scalar.lance_exact, type(None)}:
        values = _converted(kind, field, values, _enum if scalar is None else scalar.lance_value)
        for number, value in enumerate(values if scalar is not None and scalar.lance_exact else ()):
            if value is not None and type(value) not in scalar.lance_exact:  # type: ignore[union-attr]
                raise RowError(kind.table, f"{value!r} is not of the type {field.type}", row=number, column=field.name)
        _check_form(kind, field, values)
    try:
        return pa.array(values, wanted)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for number, value in enumerate(values):
            try:
                pa.array([value], wanted)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise RowError(kind.table, f"{value!r} does not fit {_said(field)}: {in_short(error)}", row=number,
                               column=field.name) from None
        raise


def _converted(kind: GraphType, field: GraphField, values: list[Any], step: Callable[[Any], Any]) -> list[Any]:
    """Values as Arrow takes them. Raises `RowError` for one that cannot be converted."""
    try:
        return [None if value is None else step(value) for value in values]
    except (TypeError, ValueError, ArithmeticError):
        for number, value in enumerate(values):
            try:
                _ = None if value is None else step(value)
            except (TypeError, ValueError, ArithmeticError) as error:
                if isinstance(error, binascii.Error):
                    raise RowError(kind.table, f"{value[:40]!r} is no base64", row=number, column=field.name,
                                   hint="give bytes, or text in base64") from None
                raise RowError(kind.table, f"{value!r} does not fit {_said(field)}: {in_short(error)}", row=number,
                               column=field.name) from None
        raise


def _check_form(kind: GraphType, field: GraphField, values: Iterable[Any]) -> None:
    """That text which stands for a value looks like one. Raises `RowError`."""
    form = field.scalar.lance_form if field.scalar is not None and field.digits is None else None
    for number, value in enumerate(values if form is not None else ()):
        if value is not None and not (isinstance(value, str) and form.fullmatch(value)):  # type: ignore[union-attr]
            raise RowError(kind.table, f"{value!r} is not of the type {field.type}", row=number, column=field.name)


def _said(field: GraphField) -> str:
    return f"a vector of {field.length} floats" if field.type == "vector" else f"the type {field.type}"


def _enum(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def _decimal(value: Any) -> Any:
    return Decimal(value) if isinstance(value, str) else value


def _json(value: Any) -> str:
    return str(scalars.JSON.lance_value(value))


def _missing(kind: GraphType, field: GraphField, size: int, make: Callable[[], Any] | None) -> pa.Array:
    if make is not None:
        return array_of(kind, field, [make() for _ in range(size)])
    if size and not field.has_default and not field.nullable:
        raise RowError(kind.table, "the column is missing, and there is no default", column=field.name,
                       hint="give it; if its class has a default_factory, load with the class")
    return defaults(kind, field, size)


def column_of(kind: GraphType, field: GraphField, values: pa.ChunkedArray) -> Any:
    """A column of Arrow as the column of a field. Raises `RowError` for one that does not fit."""
    wanted = field.arrow_type
    scalar = field.scalar
    if _textual(values.type) and scalar is not None and scalar.lance_form is not None:
        _check_form(kind, field, values.to_pylist())
    if values.type == wanted:
        return _valid(kind, field, values)
    if field.type == "json" and not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return pa.array([None if value is None else _json(value) for value in values.to_pylist()], wanted)
    if scalar is not None and not _castable(scalar, values.type):
        raise RowError(kind.table, f"{values.type} does not fit {_said(field)}", column=field.name)
    given = values.type
    by_value = scalar is not None and not (scalar.lance_reads if _textual(given) else scalar.lance_takes(given))
    if by_value and not pa.types.is_null(given):
        return array_of(kind, field, values.to_pylist())
    try:
        return _valid(kind, field, values.cast(wanted))
    except pa.ArrowException as error:
        raise RowError(kind.table, f"{values.type} does not fit {_said(field)}: {in_short(error)}",
                       column=field.name) from error


def _valid(kind: GraphType, field: GraphField, values: Any) -> Any:
    """Return the column. Raises `RowError` if it has values that are not of the field's type."""
    if field.scalar is not None and not field.scalar.lance_reads and not field.scalar.arrow_valid(values):
        raise RowError(kind.table, f"the column has values that are not of {_said(field)}", column=field.name)
    return values


def _castable(scalar: Scalar, kind: pa.DataType) -> bool:
    """Whether a column may be cast: no truth becomes a number, no number text, no text a number."""
    if pa.types.is_boolean(kind) != scalar.truth and not pa.types.is_null(kind):
        return False
    return not (scalar.textual and not _textual(kind)) and not (scalar.family == "number" and _textual(kind))


def defaults(kind: GraphType, field: GraphField, size: int) -> pa.Array:
    """What a field holds where nothing is given, for so many rows."""
    if field.default is None or size == 0:
        return pa.nulls(size, field.arrow_type)
    one = pa.array([field.default]) if field.type == "json" else array_of(kind, field, [field.default])
    return pa.repeat(one[0], size)


def _textual(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)
                or pa.types.is_string_view(kind))


def check_values(kind: GraphType, table: pa.Table) -> None:
    """Missing values, ranges, lengths, patterns and enums. Raises `ConstraintError` with the first row that fails."""
    for field in kind.fields:
        values = table.column(field.name)
        if values.null_count and not field.nullable:
            _refuse(kind, table, field, "required", pc.is_null(values), "a value is missing")
        if field.name in kind.keys and field.arrow_type == pa.string():
            _refuse(kind, table, field, "key", pc.equal(values, ""), "a key must not be empty")
        if field.shape is not None:
            null = r"|null\s*$" if field.nullable else ""
            wrong = pc.invert(pc.match_substring_regex(values, rf"^\s*({_OPENINGS[field.shape]}{null})"))
            _refuse(kind, table, field, "type", wrong, f"the value must be a JSON {_SHAPES[field.shape]}")
        for name, compare, words in _RANGES:
            bound = getattr(field, name)
            if bound is not None and field.type not in ("json", "vector"):
                numbers = _numbers(values) if field.scalar is not None and field.scalar.fixed_point else values
                wrong = compare(numbers, _limit(field, bound, numbers.type))
                _refuse(kind, table, field, "range", wrong, f"the value must be {words} {bound}")
        if field.min_length is not None or field.max_length is not None:
            _check_length(kind, table, field, values)
        if field.pattern is not None and field.scalar is not None and field.scalar.textual:
            wrong = pc.invert(pc.match_substring_regex(values, field.pattern))
            _refuse(kind, table, field, "pattern", wrong, f"the value must match {field.pattern}")
        if field.values is not None:
            wrong = pc.and_(pc.is_valid(values), pc.invert(pc.is_in(values, pa.array(field.values, values.type))))
            _refuse(kind, table, field, "enum", wrong, f"the value must be one of {', '.join(map(str, field.values))}")


_OPENINGS = {"list": r"\[", "dict": r"\{"}
_SHAPES = {"list": "array", "dict": "object"}
_RANGES: tuple[tuple[str, Callable[..., Any], str], ...] = (
    ("ge", pc.less, "at least"), ("gt", pc.less_equal, "greater than"), ("le", pc.greater, "at most"),
    ("lt", pc.greater_equal, "less than"),
)  # fmt: skip


_WIDE = pa.decimal256(76, 38)


def as_decimals(values: Any) -> Any:
    """Decimals that are stored as text as a column of numbers, with as many places as they need; text if that is more
    than 38 digits."""
    if pc.any(pc.match_substring(values, "e", ignore_case=True)).as_py():
        plain = [None if value is None else format(Decimal(value), "f") for value in values.to_pylist()]
        values = pa.chunked_array([pa.array(plain, pa.string())])
    places = pc.max(pc.utf8_length(pc.replace_substring_regex(values, r"^[^.]*\.?", ""))).as_py()
    try:
        return values.cast(pa.decimal128(38, places or 0))
    except pa.ArrowException:
        return values


def _numbers(values: Any) -> Any:
    """Decimals as numbers: those without digits are stored as text, and beyond 38 digits they count as floats."""
    if not pa.types.is_string(values.type):
        return values
    try:
        return values.cast(_WIDE)
    except pa.ArrowException:
        return pa.array([None if value is None else float(value) for value in values.to_pylist()], pa.float64())


def _limit(field: GraphField, bound: Any, kind: pa.DataType) -> pa.Scalar:
    """A bound that values of a type can be compared with, whatever number it was written as."""
    if field.scalar is not None and not field.scalar.lance_casts:
        return pa.scalar(field.scalar.lance_value(bound), kind)
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(str(bound)))
    if isinstance(bound, int | float):
        return pa.scalar(bound)
    return pa.scalar(bound if field.scalar is None else field.scalar.lance_value(bound), kind)


def _check_length(kind: GraphType, table: pa.Table, field: GraphField, values: Any) -> None:
    if field.type in ("json", "vector"):
        return
    lengths = pc.utf8_length(values) if pa.types.is_string(values.type) else pc.binary_length(values)
    if field.min_length is not None:
        _refuse(kind, table, field, "length", pc.less(lengths, field.min_length),
                f"the value must have at least {field.min_length} characters")
    if field.max_length is not None:
        _refuse(kind, table, field, "length", pc.greater(lengths, field.max_length),
                f"the value must have at most {field.max_length} characters")


def _refuse(kind: GraphType, table: pa.Table, field: GraphField, rule: str, wrong: Any, reason: str) -> None:
    row = pc.index(wrong, pa.scalar(True)).as_py() if len(wrong) else -1
    if row >= 0:
        value = table.column(field.name)[row].as_py()
        said = reason if value is None else f"{reason}, not {value!r}"
        raise ConstraintError(kind.table, rule, said, row=row, key=key_at(kind, table, row), column=field.name)


def key_at(kind: GraphType, table: pa.Table, row: int) -> Any:
    """The key of one row: a value for a node, a tuple for an edge."""
    values = tuple(table.column(name)[row].as_py() for name in kind.keys)
    return values[0] if kind.kind == "node" else values


def refuse_duplicates(kind: GraphType, table: pa.Table) -> None:
    """Raise `DuplicateKeyError` if a key is there twice."""
    keys = [table.column(name) for name in kind.keys]
    if are_distinct(*keys):
        return
    row, again = repeated(*keys)[0]
    raise DuplicateKeyError(kind.table, f"the key is given twice, in rows {row} and {again}", row=again,
                            key=key_at(kind, table, again), column=kind.keys[0],
                            hint="give every key once in one load")


def keys_table(kind: GraphType, keys: Any) -> pa.Table:
    """Keys as a table of the key columns: a value or a list of values for nodes, tuples for edges."""
    if isinstance(keys, pa.Table):
        missing = [name for name in kind.keys if keys.column_names.count(name) != 1]
        if missing:
            raise RowError(kind.table, "a table of keys must have the column once", column=missing[0])
        return pa.table({name: column_of(kind, kind.by_name[name], keys.column(name)) for name in kind.keys})
    if isinstance(keys, Mapping):
        raise RowError(kind.table, f"keys are values, not {keys!r}", hint="pass a key or a list of keys")
    given = [keys] if isinstance(keys, str | bytes | int | tuple) or not hasattr(keys, "__iter__") else list(keys)
    rows: list[tuple[Any, ...]] = []
    for number, key in enumerate(given):
        parts = key if isinstance(key, tuple) else (key,)
        if len(parts) != len(kind.keys):
            raise RowError(kind.table, f"a key has {len(kind.keys)} parts ({', '.join(kind.keys)}), not {key!r}",
                           row=number)
        rows.append(parts)
    columns = zip(*rows, strict=True) if rows else ([] for _ in kind.keys)
    return pa.table({name: array_of(kind, kind.by_name[name], list(values))
                     for name, values in zip(kind.keys, columns, strict=True)})
