"""One column of an Arrow table as values of a field: the same values as objects would have, the same ones refused.

Where Arrow can tell by itself that every value is one of the field's, the column stays a column; else its values go
through the field's type, as those of objects do, all in one call.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import FailFast, TypeAdapter, ValidationError

from ontolake.model.codecs import failure
from ontolake.model.columns import Column
from ontolake.model.composite import is_composite
from ontolake.model.entity import Entity
from ontolake.model.field import value_type
from ontolake.model.portable import portable
from ontolake.model.types import TypeInfo
from ontolake.ontology.errors import SchemaValidationError

if TYPE_CHECKING:
    import pyarrow as pa


def validates_itself(info: TypeInfo) -> bool:
    """Whether only objects can tell what fits: the type has validators, a configuration of its own, keys of several
    parts or defaults that depend on other fields."""
    own = info.cls.__pydantic_decorators__
    if own.validators or own.field_validators or own.root_validators or own.model_validators:
        return True
    if info.cls.model_config != Entity.model_config or any(is_composite(column) for column in info.keys):
        return True
    return any(field.default_factory_takes_validated_data for field in info.cls.model_fields.values())


def is_plain(info: TypeInfo, column: Column) -> bool:
    """Whether the field takes every value of its scalar type, and nothing is done to them but what the codec does."""
    parts = column.spec["members"] if column.spec["kind"] == "union" else [column.spec]
    if not column.type.arrow_checked or column.codec.types != column.type.codec.types:
        return False
    return all(part["kind"] == "primitive" for part in parts) and not _metadata(info, column)


def _metadata(info: TypeInfo, column: Column) -> list[Any]:
    return info.cls.model_fields[column.name].metadata


def typed(info: TypeInfo, column: Column, values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The values in the field's Arrow type, checked; None if they have to be looked at one by one.

    Moments without a zone are a column without one.
    """
    import pyarrow as pa

    if not is_plain(info, column) or (values.null_count and not column.nullable):
        return None
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    wanted = _target(column, values.type)
    if wanted is None:
        return None
    try:
        found = values if values.type == wanted else values.cast(wanted)
        return found if column.type.arrow_valid(found) else None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _target(column: Column, kind: pa.DataType) -> pa.DataType | None:
    """The type that a column is cast to if no value becomes another one by that; else None."""
    import pyarrow as pa

    is_ = pa.types
    if is_.is_null(kind):
        return column.arrow_type
    if not column.type.arrow_fits(kind):
        return None
    return pa.timestamp("us") if is_.is_timestamp(kind) and kind.tz is None else column.arrow_type


def encoded(column: Column, values: pa.ChunkedArray) -> list[Any]:
    """What `typed` found, as rows have it."""
    return column.type.from_arrow(values)


def by_value(info: TypeInfo, column: Column, values: pa.ChunkedArray) -> list[Any]:
    """The values as rows have them, each validated as the field's type. Raises `SchemaValidationError` with the row."""
    if column.scalar is None and is_text(values.type):
        return [None if text is None and column.nullable else _json(info, column, row, text)
                for row, text in enumerate(python_values(info, column, values))]
    given = python_values(info, column, values)
    try:
        checked = _adapter(info, column.name).validate_python(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        row, path = int(first["loc"][0]), ".".join(str(step) for step in first["loc"][1:])
        reason = "a value is missing" if given[row] is None else first["msg"]
        raise refused(info, column, row, f"{path}: {reason}" if path else reason) from error
    return [_encode(info, column, row, value) for row, value in enumerate(checked)]


@lru_cache(maxsize=1024)
def _adapter(info: TypeInfo, name: str) -> TypeAdapter[Any]:
    field = info.cls.model_fields[name]
    one: Any = portable(value_type(field.annotation))
    if field.metadata:
        one = Annotated[(one, *field.metadata)]
    every: Any = Annotated[list[one], FailFast()]
    return TypeAdapter(every, config=info.cls.model_config)


def _encode(info: TypeInfo, column: Column, row: int, value: Any) -> Any:
    try:
        return column.encode(value, info.name)
    except SchemaValidationError as error:
        raise refused(info, column, row, error.reason) from error


def _json(info: TypeInfo, column: Column, row: int, text: str | None) -> Any:
    """Text in a column of JSON: what it says, validated and in the form in which it is stored."""
    if text is None:
        raise refused(info, column, row, "a value is missing")
    try:
        value = column.decode(text)
    except (ValueError, KeyError, TypeError) as error:
        raise refused(info, column, row, f"{text!r} does not fit: {failure(error)}") from error
    return _encode(info, column, row, value)


def python_values(info: TypeInfo, column: Column, values: pa.ChunkedArray) -> list[Any]:
    """The values as Python has them. Raises `SchemaValidationError` for one that it has not."""
    import pyarrow as pa

    is_ = pa.types
    if is_.is_temporal(values.type) and getattr(values.type, "unit", "") == "ns":
        # Python has microseconds; of pandas, if it is there, pyarrow would make other objects.
        what, kind = (("moment", pa.timestamp("us", tz=values.type.tz)) if is_.is_timestamp(values.type) else
                      ("time", pa.time64("us")) if is_.is_time(values.type) else ("duration", pa.duration("us")))
        try:
            values = values.cast(kind)
        except pa.ArrowInvalid:
            wrong = next(row for row, value in enumerate(values.cast(pa.int64()).to_pylist())
                         if value is not None and value % 1000)
            raise refused(info, column, wrong, f"the {what} has nanoseconds, which cannot be kept") from None
    if is_.is_time(values.type):  # pyarrow would take the rest of a division by a day
        plain = enumerate(values.cast(pa.time64("us")).cast(pa.int64()).to_pylist())
        outside = next((row for row, one in plain if one is not None and not 0 <= one < 86_400_000_000), None)
        if outside is not None:
            raise refused(info, column, outside, "the time of day is not within a day")
    try:
        found: list[Any] = values.to_pylist()
        return found
    except (ValueError, OverflowError, KeyError) as error:
        for row, value in enumerate(values):
            try:
                value.as_py()
            except (ValueError, OverflowError, KeyError) as wrong:
                reason = str(wrong)
                if isinstance(wrong, UnicodeDecodeError):
                    reason = f"the text is not UTF-8: {wrong.reason}"
                raise refused(info, column, row, reason) from wrong
        raise refused(info, column, None, str(error)) from error


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is one of text."""
    import pyarrow as pa

    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner))


def refused(info: TypeInfo, column: Column, row: int | None, reason: str) -> SchemaValidationError:
    """What to raise for a value of a table."""
    return SchemaValidationError(reason if row is None else f"row {row}: {reason}", type_name=info.name,
                                 field=column.name)
