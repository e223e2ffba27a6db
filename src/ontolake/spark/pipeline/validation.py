"""Rows checked against a type by Spark's own expressions, generated from the type: no row goes through Python.

Every field gets an expression for its value and one for what is wrong with it. Text is read as what the field is, and
never rounded or cut to fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from pyspark.sql import Column as Expression
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType

from ontolake.model import scalars
from ontolake.model.columns import Column, Factory
from ontolake.model.field import UNSET
from ontolake.model.types import TypeInfo
from ontolake.model.typespec import Spec
from ontolake.spark.pipeline.reasons import about

_SHAPES = {"dict": "OBJECT", "typed_dict": "OBJECT", "list": "ARRAY"}


class CheckedField(NamedTuple):
    """A field of a row: what it is called, its value, and what is wrong with it (null if nothing is)."""

    column: Column
    value: Expression
    problem: Expression


def field_of(info: TypeInfo, column: Column, given: Expression | None, kind: DataType | None) -> CheckedField | None:
    """How a field is made of what a source gives; None if it gives nothing and there is no default."""
    default = default_of(column)
    if given is None or kind is None:
        if default is None and not (column.nullable and column.default is not UNSET):
            return None
        return CheckedField(column, _literal(column, default), F.lit(None).cast("string"))
    value, fits = _typed(column, given, kind)
    absent = given.isNull() if kind.typeName() != "void" else F.lit(True)
    problem = F.when(~absent & ~F.coalesce(fits, F.lit(False)), _told(given, kind, _wanted(column)))
    if default is not None:
        value = F.when(absent, _literal(column, default)).otherwise(value)
    elif not column.nullable:
        problem = F.when(absent, F.lit("a value is missing")).otherwise(problem)
    for text, holds in _constraints(info, column, value):
        problem = F.coalesce(problem, F.when(value.isNotNull() & ~F.coalesce(holds, F.lit(False)),
                                             _told(given, kind, text)))
    if column in info.keys and column.type.textual:
        problem = F.coalesce(problem, F.when(value == "", F.lit("a key must not be empty")))
    # The text is null where nothing is wrong.
    return CheckedField(column, value, F.concat(F.lit(f"{column.stored}: "), problem))


def default_of(column: Column) -> Any:
    """The default of a field, if it is a value that is the same for all rows; else None."""
    if column.default is UNSET:
        return None
    if isinstance(column.default, Factory):
        return column.default.make() if column.scalar is None else None
    return column.default


def _literal(column: Column, value: Any) -> Expression:
    kind = spark_type(column)
    if value is None:
        return F.lit(None).cast(kind)
    if column.scalar is None:
        return F.lit(json.dumps(json.loads(column.encode(value, ""))))
    if isinstance(value, Enum):
        value = value.value
    return F.lit(column.type.spark_literal(value)).cast(kind)


def spark_type(column: Column) -> str:
    """The Spark type of a field."""
    return column.type.spark_type(column.decimal)


def _wanted(column: Column) -> str:
    if column.decimal is not None:
        return "is not a number with up to {} digits, {} of them behind the point".format(*column.decimal)
    if column.scalar is not None:
        return column.type.wanted
    kinds = {_SHAPES.get(part["kind"], "") for part in _parts(column.spec) if part.get("name") != "NoneType"}
    return {frozenset({"OBJECT"}): "is not a JSON object", frozenset({"ARRAY"}): "is not a JSON list"}.get(
        frozenset(kinds), "is not JSON")


def _told(given: Expression, kind: DataType, what: str) -> Expression:
    shown = F.base64(given) if isinstance(kind, BinaryType) else given.cast("string")
    return about(shown, what)


def _typed(column: Column, given: Expression, kind: DataType) -> tuple[Expression, Expression]:
    """The value of a field, and whether it can be one."""
    if column.scalar is None:
        return _json(column, given, kind)
    if isinstance(kind, StringType):
        return column.type.spark_parse(given, column.decimal)
    found = column.type.spark_value(given, kind, column.decimal)
    return (F.lit(None).cast(spark_type(column)), F.lit(False)) if found is None else found


def _json(column: Column, given: Expression, kind: DataType) -> tuple[Expression, Expression]:
    """JSON, and whether it is an object or a list where that is wanted. What is inside, the store itself checks."""
    if isinstance(kind, StringType):
        parsed = F.try_parse_json(given)
        kinds = {_SHAPES.get(part["kind"], "") for part in _parts(column.spec) if part.get("name") != "NoneType"}
        fits = parsed.isNotNull()
        if "" not in kinds:
            fits = fits & F.schema_of_variant(parsed).rlike(f"^({'|'.join(sorted(kinds))})")
        return F.to_json(parsed), fits
    if kind.typeName() in ("struct", "array", "map"):
        return F.to_json(given), F.lit(True)
    return F.to_json(F.array(given)).substr(F.lit(2), F.length(F.to_json(F.array(given))) - 2), F.lit(True)


def _constraints(info: TypeInfo, column: Column, value: Expression) -> Iterable[tuple[str, Expression]]:
    """What a field asks of its values beside their type. What is not known here, the store itself checks."""
    parts = [part for part in _parts(column.spec) if part.get("name") != "NoneType"]
    allowed = [one for part in parts if part["kind"] in ("literal", "enum") for one in part["values"]]
    if column.scalar is not None and all(part["kind"] in ("literal", "enum") for part in parts):
        shown = ", ".join(map(str, allowed))
        yield f"is not one of {shown}", value.isin([one.value if isinstance(one, Enum) else one for one in allowed])
    option = info.cls.__ontolake_options__.get(column.name)
    limits: Mapping[str, Any] = option.constraints if option is not None else {}
    if "ge" in limits:
        yield f"is less than {limits['ge']}", value >= _limit(limits["ge"])
    if "gt" in limits:
        yield f"is not more than {limits['gt']}", value > _limit(limits["gt"])
    if "le" in limits:
        yield f"is more than {limits['le']}", value <= _limit(limits["le"])
    if "lt" in limits:
        yield f"is not less than {limits['lt']}", value < _limit(limits["lt"])
    if column.type.textual:
        if limits.get("min_length") is not None:
            yield f"is shorter than {limits['min_length']}", F.length(value) >= limits["min_length"]
        if limits.get("max_length") is not None:
            yield f"is longer than {limits['max_length']}", F.length(value) <= limits["max_length"]
        if isinstance(limits.get("pattern"), str):
            yield f"does not match {limits['pattern']}", value.rlike(limits["pattern"])


def _limit(value: Any) -> Any:
    scalar = scalars.of_value(value)
    return value if scalar is None else F.lit(scalar.spark_bound(value))


def _parts(spec: Spec) -> list[Spec]:
    return spec["members"] if spec["kind"] == "union" else [spec]


def same(column: Column, one: Expression, two: Expression) -> Expression:
    """Whether two values of a field are the same."""
    if column.scalar is None:
        return F.to_json(F.try_parse_json(one)).eqNullSafe(F.to_json(F.try_parse_json(two)))
    if column.type.fixed_point and column.decimal is None:
        return one.eqNullSafe(two) | F.coalesce(
            one.try_cast("decimal(38, 18)") == two.try_cast("decimal(38, 18)"), F.lit(False))
    return one.eqNullSafe(two)
