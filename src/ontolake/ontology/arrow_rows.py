"""Rows from Arrow tables: cast, checked and encoded column by column, never value by value where Arrow can do it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import TypeAdapter, ValidationError

from ontolake.model.codecs import NAN, failure
from ontolake.model.columns import Column
from ontolake.model.field import UNSET, value_type
from ontolake.model.portable import portable
from ontolake.model.types import TypeInfo
from ontolake.model.typespec import Spec
from ontolake.ontology.errors import SchemaValidationError

if TYPE_CHECKING:
    import pyarrow as pa

_DIRECT = ("str", "int", "bool", "bytes")


def rows_from_arrow(info: TypeInfo, table: pa.Table) -> tuple[list[tuple[Any, ...]], bool]:
    """Encoded rows, and whether no key repeats. Columns may be called by the stored name or by the attribute's.

    Raises `SchemaValidationError` for unknown or missing columns and for values that do not fit.
    """
    import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise SchemaValidationError(f"an Arrow table is needed, not {type(table).__name__}", type_name=info.name)
    places = {column.name: column for column in info.all_columns}
    places.update({column.stored: column for column in info.all_columns})
    given: dict[str, Any] = {}
    for name, values in zip(table.column_names, table.columns, strict=True):
        column = places.get(name)
        if column is None:
            raise SchemaValidationError("there is no such field", type_name=info.name, field=name)
        if column.name in given:
            raise SchemaValidationError("the table has this column twice", type_name=info.name, field=name)
        given[column.name] = values
    if _validates_itself(info):
        rows = [info.encode(_object(info, values)) for values in _by_attribute(table, places)]
        return rows, len({info.key_of(row) for row in rows}) == len(rows)
    parts = [_encoded(info, column, given.get(column.name), table.num_rows) for column in (*info.keys, *info.columns)]
    for column, values in zip(info.keys, parts, strict=False):
        if "" in values:
            raise SchemaValidationError("a key must not be empty", type_name=info.name, field=column.name)
    rows = list(zip(*parts, strict=True))
    return rows, _unique(parts[: len(info.keys)], len(rows))


def _validates_itself(info: TypeInfo) -> bool:
    """Whether the type has validators of its own, which only objects go through."""
    own = info.cls.__pydantic_decorators__
    return bool(own.validators or own.field_validators or own.root_validators or own.model_validators)


def _by_attribute(table: pa.Table, places: dict[str, Column]) -> Iterator[dict[str, Any]]:
    for row in table.to_pylist():
        yield {places[name].name: value for name, value in row.items()}


def _object(info: TypeInfo, values: dict[str, Any]) -> Any:
    return info.cls(**values)


def _unique(keys: list[list[Any]], size: int) -> bool:
    return len(set(keys[0] if len(keys) == 1 else zip(*keys, strict=True))) == size


def _encoded(info: TypeInfo, column: Column, values: pa.ChunkedArray | None, size: int) -> list[Any]:
    import pyarrow as pa

    if values is None:
        return [column.encode(_default(info, column), info.name) for _ in range(size)]
    if values.null_count and not column.nullable:
        raise SchemaValidationError(f"{values.null_count} values are missing", type_name=info.name, field=column.name)
    wanted = column.arrow_type
    if column.scalar == "str" and not _is_text(values.type):
        raise SchemaValidationError(f"{values.type} is not text", type_name=info.name, field=column.name)
    try:
        cast = values if values.type == wanted else values.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if column.scalar is not None:
            raise SchemaValidationError(f"{values.type} does not fit: {error}", type_name=info.name,
                                        field=column.name) from error
        return _json_texts(info, column, values.to_pylist())
    try:
        encoded = _columnwise(info, column, cast)
    except UnicodeDecodeError as error:
        raise SchemaValidationError(f"the text is not UTF-8: {error.reason}", type_name=info.name,
                                    field=column.name) from error
    _check_constraints(info, column, encoded)
    return encoded


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_null(inner) or pa.types.is_string(inner) or pa.types.is_large_string(inner)
                or pa.types.is_string_view(inner))


def _json_texts(info: TypeInfo, column: Column, values: list[Any]) -> list[Any]:
    """Lists and structs as JSON, validated as the field's type."""
    of_all: Any = list[portable(value_type(info.cls.model_fields[column.name].annotation))]  # type: ignore[misc]
    adapter: TypeAdapter[Any] = TypeAdapter(of_all)
    try:
        checked = adapter.validate_python(values)
    except ValidationError as error:
        raise SchemaValidationError(failure(error), type_name=info.name, field=column.name) from error
    return [column.encode(value, info.name) for value in checked]


def _check_constraints(info: TypeInfo, column: Column, encoded: list[Any]) -> None:
    """What the field asks of its values beside their type: bounds, lengths, patterns."""
    field = info.cls.model_fields[column.name]
    if not field.metadata:
        return
    constrained: Any = Annotated[(value_type(field.annotation), *field.metadata)]
    of_all: Any = list[constrained]
    adapter: TypeAdapter[Any] = TypeAdapter(of_all)
    try:
        adapter.validate_python([column.decode(value) for value in encoded])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise SchemaValidationError(f"row {first['loc'][0]}: {first['msg']}", type_name=info.name,
                                    field=column.name) from error


def _columnwise(info: TypeInfo, column: Column, values: pa.ChunkedArray) -> list[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.scalar == "datetime":
        text = pc.strftime(values, format="%Y-%m-%dT%H:%M:%S+00:00")
        found: list[Any] = text.to_pylist()
        return found
    if column.scalar == "date":
        dates: list[Any] = values.cast(pa.string()).to_pylist()
        return dates
    plain: list[Any] = values.to_pylist()
    if column.scalar == "float":
        has_nan = pc.any(pc.is_nan(values)).as_py()
        return [NAN if value != value else value for value in plain] if has_nan else plain
    if column.scalar in _DIRECT and all(part["kind"] == "primitive" for part in _parts(column.spec)):
        return plain
    _check_literal(info, column, plain)
    return [None if value is None else _again(info, column, value) for value in plain]


def _parts(spec: Spec) -> list[Spec]:
    return spec["members"] if spec["kind"] == "union" else [spec]


def _check_literal(info: TypeInfo, column: Column, values: list[Any]) -> None:
    allowed = [value for part in _parts(column.spec) if part["kind"] == "literal" for value in part["values"]]
    wrong = set(values) - {*allowed, None} if allowed else set()
    if wrong:
        raise SchemaValidationError(f"{min(wrong, key=repr)!r} is not one of the values", type_name=info.name,
                                    field=column.name)


def _again(info: TypeInfo, column: Column, value: Any) -> Any:
    """A value in its stored form, checked by going through the field's type."""
    try:
        decoded = column.decode(value)
    except (ValueError, KeyError, TypeError) as error:
        raise SchemaValidationError(f"{value!r} does not fit: {failure(error)}", type_name=info.name,
                                    field=column.name) from error
    return column.encode(decoded, info.name)


def _default(info: TypeInfo, column: Column) -> Any:
    value = column.default_value()
    if value is UNSET:
        raise SchemaValidationError("the table has no such column, and there is no default", type_name=info.name,
                                    field=column.name)
    return value
