"""Whole numbers, floats, truths and decimals."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

from ontolake.model.scalars.base import UNFIT, Codec, Digits, Scalar, dump, sql_literal
from ontolake.model.scalars.texts import WHOLE, plain_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as Expression
    from pyspark.sql.types import DataType

_INT64 = 2**63
_SAFE = 2**53
# Not by lower(): before Spark makes the first text of a session small, it works seconds on tables for all languages.
_TRUE, _FALSE = r"^(?i:true|t|1|yes|y|on)\z", r"^(?i:false|f|0|no|n|off)\z"
_DECIMAL = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"
_NUMBER = rf"{_DECIMAL}|^[+-]?(?i:nan|inf|infinity)$"
NAN = "NaN"
"""How a float column holds what is not a number: SQLite has no NaN, it would store NULL."""
_FEW = 64
"""Below this number of values, a look at each costs less than a call of Arrow."""


def encode_int(value: int) -> int:
    if -_INT64 <= value < _INT64:
        return value
    raise ValueError("the number does not fit into 64 bits")


def encode_float(value: float) -> float | str:
    return value if value == value else NAN


def encode_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError("a decimal must be finite")
    return str(value)


def _value(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


class NumberScalar(Scalar):
    """What int and float share: values go to Spark and Lance as they are."""

    def spark_literal(self, value: Any) -> Any:
        return value

    def lance_json(self, value: Any) -> Any:
        return value

    def lance_literal(self, value: Any) -> str:
        return sql_literal(value)


class IntScalar(NumberScalar):
    name, python, codec = "int", int, Codec(encode_int, None, frozenset({int}))
    wanted = "is not a whole number of 64 bits"
    sqlite, spark = "INTEGER", "bigint"
    key = numeric = statistics = prunes = ranged = planned = arrow_checked = True
    family = json_sort = "number"
    json_ordered = True
    sums = "number"
    widens = ("float",)
    filter_types = (int,)
    lance_exact = (int,)
    lance_casts = lance_reads = True

    def parse(self, text: str) -> Any:
        return int(text)

    def json_writer(self) -> Callable[[Any], str]:
        return lambda value: "null" if value is None else str(value)

    def arrow_fits(self, kind: pa.DataType) -> bool:
        import pyarrow.types as is_

        return bool(is_.is_integer(kind))

    def arrow_comparand(self, value: Any) -> Any:
        if isinstance(value, float) and value.is_integer() and abs(value) <= _SAFE:
            return int(value)
        return UNFIT if isinstance(value, float | str) else value

    def spark_value(self, given: Expression, kind: DataType, digits: Digits) -> tuple[Expression, Expression] | None:
        from pyspark.sql import functions as F

        if kind.typeName() in WHOLE:
            return given.cast("bigint"), F.lit(True)
        if kind.typeName() in ("decimal", "double", "float"):
            whole = given.try_cast("bigint")
            return whole, whole.isNotNull() & (whole.cast("double") == given.cast("double"))
        return None

    def spark_parse(self, text: Expression, digits: Digits) -> tuple[Expression, Expression]:
        from pyspark.sql import functions as F

        plain = F.trim(text)
        value = plain.try_cast("bigint")
        return value, plain.rlike(r"^[+-]?\d{1,19}$") & value.isNotNull()

    def lance_value(self, value: Any) -> Any:
        return _value(value)


class FloatScalar(NumberScalar):
    name, python, codec = "float", float, Codec(encode_float, float, frozenset({float}))
    wanted = "is not a number"
    sqlite, spark = "REAL", "double"
    numeric = planned = arrow_checked = True
    family = json_sort = "number"
    json_ordered = True
    sums = "number"
    filter_types = (int, float)
    lance_exact = (float,)
    lance_casts = lance_reads = True

    def measured(self, op: str, value: Any) -> Any:
        return float(value)

    def measure_sql(self, op: str, value: str) -> str:  # NaN is stored as text, and makes every sum NaN
        return f"CASE WHEN max(typeof({value}) = 'text') THEN 'NaN' ELSE {op}({value}) END"

    def parse(self, text: str) -> Any:
        return float(text)

    def to_json(self, value: Any) -> Any:
        return float(value)

    def from_json(self, value: Any) -> Any:
        return float(value) if type(value) is int else value

    def json_writer(self) -> Callable[[Any], str]:
        return lambda value: "NaN" if value == NAN else dump(value)

    def from_fields(self, value: Any) -> Any:
        return float(value) if type(value) in (int, float) else NAN if value == NAN else None

    def fields_sql(self, value: str, kind: str) -> str:
        return f"CASE {kind} WHEN 'integer' THEN CAST({value} AS REAL) ELSE {value} END"

    def to_arrow(self, values: Sequence[Any], digits: Digits = None) -> pa.Array:
        import pyarrow as pa

        try:
            return pa.array(values, pa.float64())
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # NaN is stored as text
            return pa.array([None if value is None else float(value) for value in values], pa.float64())

    def from_arrow(self, values: Any) -> list[Any]:
        import pyarrow.compute as pc

        plain: list[Any] = values.to_pylist()
        if len(plain) < _FEW or pc.any(pc.is_nan(values)).as_py():
            return [NAN if value != value else value for value in plain]
        return plain

    def arrow_fits(self, kind: pa.DataType) -> bool:
        import pyarrow as pa

        small = pa.types.is_integer(kind) and kind != pa.int64() and kind != pa.uint64()
        return bool(kind in (pa.float32(), pa.float64()) or small)

    def arrow_equal(self, one: Any, two: Any) -> Any:
        import pyarrow.compute as pc

        same = pc.fill_null(pc.equal(one, two), False)
        return pc.or_(same, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(two)), False))

    def arrow_comparand(self, value: Any) -> Any:
        return UNFIT if isinstance(value, int) and abs(value) > _SAFE else float(value) + 0.0

    def spark_value(self, given: Expression, kind: DataType, digits: Digits) -> tuple[Expression, Expression] | None:
        from pyspark.sql import functions as F

        return (given.cast("double"), F.lit(True)) if kind.typeName() in ("float", "double", *WHOLE) else None

    def spark_parse(self, text: Expression, digits: Digits) -> tuple[Expression, Expression]:
        from pyspark.sql import functions as F

        plain = F.trim(text)
        value = plain.try_cast("double")
        return value, value.isNotNull() & plain.rlike(_NUMBER)

    def lance_value(self, value: Any) -> Any:
        return float(value) if type(value) is int else _value(value)


class BoolScalar(Scalar):
    name, python, codec = "bool", bool, Codec(None, bool, frozenset({bool}))
    wanted = "is not true or false"
    sqlite, spark = "INTEGER", "boolean"
    truth = planned = arrow_checked = True
    json_sort = "truth"
    json_ordered = True
    sums = "number"
    filter_types = (bool,)
    lance_exact = (bool,)

    lance_casts = lance_reads = True

    @property
    def stored(self) -> tuple[type, ...]:
        return (int, bool)

    def parse(self, text: str) -> Any:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{text!r} is not true or false")
        return text.lower() == "true"

    def to_json(self, value: Any) -> Any:
        return bool(value)

    def json_writer(self) -> Callable[[Any], str]:
        return lambda value: "null" if value is None else "true" if value else "false"

    def fields_writer(self) -> Callable[[Any], str]:
        return lambda value: "true" if value else "false"

    def from_fields(self, value: Any) -> Any:
        return value if isinstance(value, bool) else None

    def arrow_type(self, digits: Digits = None) -> pa.DataType:
        import pyarrow as pa

        return pa.bool_()

    def parquet_type(self, digits: Digits = None) -> str:
        return "BOOLEAN"

    def to_arrow(self, values: Sequence[Any], digits: Digits = None) -> pa.Array:
        import pyarrow as pa

        try:
            return pa.array(values, pa.bool_())
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # SQLite has numbers for them
            try:
                return pa.array(values, pa.int64()).cast(pa.bool_())
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                return pa.array([None if value is None else bool(value) for value in values], pa.bool_())

    def spark_value(self, given: Expression, kind: DataType, digits: Digits) -> tuple[Expression, Expression] | None:
        from pyspark.sql import functions as F

        return (given, F.lit(True)) if kind.typeName() == "boolean" else None

    def spark_parse(self, text: Expression, digits: Digits) -> tuple[Expression, Expression]:
        from pyspark.sql import functions as F

        plain = F.trim(text)
        value = F.when(plain.rlike(_TRUE), F.lit(True)).when(plain.rlike(_FALSE), F.lit(False))
        return value, value.isNotNull()

    def spark_literal(self, value: Any) -> Any:
        return value

    def lance_value(self, value: Any) -> Any:
        return _value(value)

    def lance_json(self, value: Any) -> Any:
        return value

    def lance_literal(self, value: Any) -> str:
        return str(value).lower()


def _compare(left: str, right: str) -> int:
    try:
        one, two = Decimal(left), Decimal(right)
    except ArithmeticError:
        return (left > right) - (left < right)
    return (one > two) - (one < two)


class DecimalScalar(Scalar):
    name, python, codec = "Decimal", Decimal, Codec(encode_decimal, Decimal, frozenset({Decimal}))
    wanted = "is not a decimal number"
    numeric = fixed_point = True
    sums = "value"
    compare = staticmethod(_compare)
    compares_with = ("int",)
    filter_types = (Decimal, int)
    lance_form = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
    lance_casts = lance_reads = True

    def comparand(self, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else UNFIT

    def json_writer(self) -> Callable[[Any], str]:
        return dump

    def aggregate(self, op: str) -> str | None:
        return f"ontolake_decimal_{op}"

    def measure_sql(self, op: str, value: str) -> str:
        return f"{self.aggregate(op)}({value})"

    def total(self, op: str, values: list[Any]) -> Any:
        with localcontext(prec=60):
            total = sum(map(Decimal, values), Decimal(0))
        return str(total if op == "sum" else total / len(values)) if values else None

    def arrow_type(self, digits: Digits = None) -> pa.DataType:
        import pyarrow as pa

        return pa.string() if digits is None else pa.decimal128(*digits)

    def parquet_type(self, digits: Digits = None) -> str:
        return "UTF8" if digits is None else "DECIMAL({}, {})".format(*digits)

    def to_arrow(self, values: Sequence[Any], digits: Digits = None) -> pa.Array:
        import pyarrow as pa

        if digits is not None:
            values = [None if value is None else Decimal(value) for value in values]
        return pa.array(values, self.arrow_type(digits))

    def spark_type(self, digits: Digits = None) -> str:
        return "string" if digits is None else "decimal({}, {})".format(*digits)

    def spark_value(self, given: Expression, kind: DataType, digits: Digits) -> tuple[Expression, Expression] | None:
        from pyspark.sql import functions as F

        if kind.typeName() not in ("decimal", *WHOLE):
            return None
        if digits is None:
            return given.cast("string"), F.lit(True)
        value = given.try_cast(self.spark_type(digits))
        if kind.typeName() != "decimal" or kind.scale <= digits[1]:  # type: ignore[attr-defined]
            return value, value.isNotNull()
        return value, value.try_cast(kind) == given  # nothing may be rounded away

    def spark_parse(self, text: Expression, digits: Digits) -> tuple[Expression, Expression]:
        from pyspark.sql import functions as F

        plain = F.trim(text)
        if digits is None:
            return plain, plain.rlike(_DECIMAL)
        size, places = digits
        exact = rf"^[+-]?0*\d{{0,{size - places}}}(\.\d{{0,{places}}}0*)?$"
        value = plain.try_cast(self.spark_type(digits))
        return value, value.isNotNull() & plain.rlike(exact) & plain.rlike(r"\d")

    def spark_literal(self, value: Any) -> Any:
        return str(value)

    def spark_bound(self, value: Any) -> Any:
        return value

    def lance_value(self, value: Any) -> Any:
        return plain_text(value)

    def lance_json(self, value: Any) -> Any:
        return str(value)

    def lance_literal(self, value: Any) -> str:
        return sql_literal(str(value))
