"""`Scalar`: everything that depends on one type of single values, wherever the values go.

A value has three forms. The *Python value* is what objects have. The *encoded value* is what SQLite, JSON layouts and
rows in memory have: text, an integer, a float or bytes. The *Arrow value* is what Parquet, Lance, DataFusion and Spark
have.
The defaults here follow from `sqlite` and `codec` alone, so a new scalar overrides only what differs.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from ontolake.model.errors import SchemaValidationError

if TYPE_CHECKING:
    import re

    import pyarrow as pa
    from pyspark.sql import Column as Expression
    from pyspark.sql.types import DataType

Digits = tuple[int, int] | None
"""Precision and scale of a fixed-point number, where a field declares them."""

UNFIT: Any = object()
"""Returned by hooks for a value that they cannot take."""

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_STORED: dict[str, tuple[type, ...]] = {"TEXT": (str,), "INTEGER": (int,), "REAL": (float,), "BLOB": (bytes,)}
_PARQUET = {"TEXT": "UTF8", "INTEGER": "INT64", "REAL": "DOUBLE", "BLOB": "BYTE_ARRAY"}


class Codec(NamedTuple):
    """Encoder, decoder, and the exact Python types that the encoder takes (None where it checks for itself).

    Encoders raise `ValueError` for a value that cannot be stored. A missing encoder or decoder means that nothing is to
    be done. Equal values have equal encodings, unless the scalar has a `compare`.
    """

    encode: Callable[[Any], Any] | None
    decode: Callable[[Any], Any] | None
    types: frozenset[type] | None


def json_text(value: Any) -> str:
    """JSON in the one form in which it is stored: sorted keys, no spaces, text as it is."""
    try:
        return _canonical.encode(value)
    except TypeError as error:
        raise ValueError(str(error)) from None


class Scalar:
    """One scalar type. Register an instance with `ontolake.model.scalars.register` before opening a store that has it.

    The Python type must be one that pydantic can validate, and its values must be hashable. Subclasses take no
    arguments: an instance is pickled as its class.
    """

    # what it is
    name: str
    """What schemas call it."""
    python: type
    """The type of Python values."""
    codec: Codec
    wanted: str = "does not fit"
    """What a report says of a value that is not one: `is not a number`."""

    # what may be done with it
    key: bool = False
    """Whether it may be a key. Encoded keys are text or integers, and sort as the values do."""
    textual: bool = False
    """Whether values are any text, which has prefixes, patterns and a length."""
    truth: bool = False
    """Whether values are true and false."""
    sized: bool = False
    """Whether values have a length."""
    numeric: bool = False
    """Whether values are numbers, which tables align to the right."""
    family: str | None = None
    """Scalars of one family compare with each other by their encoded values."""
    json_sort: str | None = None
    """Of which sort equal values inside JSON are: `text`, `number`, `truth`; None if JSON has no such values."""
    json_ordered: bool = False
    """Whether what JSON has for values sorts as they do."""
    sums: Literal["number", "value"] | None = None
    """Whether sums and averages are plain numbers or values of the scalar; None if there are none."""
    widens: tuple[str, ...] = ()
    """Scalars that a column of this one may become."""
    fixed_point: bool = False
    """Whether `max_digits` and `decimal_places` of a field choose the Arrow type; without them it is text."""
    zoned: bool = False
    """Whether values with and without a time zone are told apart, for which Parquet files have one more column."""

    # how it is stored
    sqlite: Literal["TEXT", "INTEGER", "REAL", "BLOB"] = "TEXT"
    """The type of a SQLite column."""
    compare: Callable[[Any, Any], int] | None = None
    """The order of encoded texts, where it is not that of their characters: less than 0, 0 or more than 0."""
    compares_with: tuple[str, ...] = ()
    """Other scalars whose encoded values, written as text, `compare` takes as well."""

    # who may work with columns of it
    statistics: bool = False
    """Whether Parquet files keep the least and greatest value of every row group."""
    prunes: bool = False
    """Whether filters may skip row groups by these: they must be encoded values, in the order of the values."""
    ranged: bool = False
    """Whether parallel readers may do so: they must be Python values or text, in the same order."""
    planned: bool = False
    """Whether DataFusion's filters, order, groups and aggregates of Arrow values mean the same as SQLite's."""
    arrow_checked: bool = False
    """Whether Arrow alone can tell that a column has valid values: see `arrow_fits` and `arrow_valid`."""
    filter_types: tuple[type, ...] = ()
    """Python types of values that parallel readers may filter by; others are compared by the reader alone."""

    def __repr__(self) -> str:
        return f"<scalar {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Whoever unpickles a scalar has it registered: work for other processes carries the scalars that it needs."""
        from ontolake.model.scalars.registry import known

        return known, (type(self),)

    # Python values and encoded values
    def encode(self, value: Any) -> Any:
        """A Python value, encoded. Raises `ValueError`."""
        return value if self.codec.encode is None else self.codec.encode(value)

    def decode(self, value: Any) -> Any:
        """An encoded value as Python has it. Raises `ValueError`."""
        return value if self.codec.decode is None else self.codec.decode(value)

    def comparand(self, value: Any) -> Any:
        """The encoded form of a value of another Python type to compare with; `UNFIT` if there is none. Raises
        `ValueError`."""
        return UNFIT

    def measured(self, op: str, value: Any) -> Any:
        """A sum or an average, as SQLite worked it out, as Python has it."""
        return self.decode(value) if self.sums == "value" else value

    def parse(self, text: str) -> Any:
        """The Python value that a text means. Raises `ValueError` or `ArithmeticError`."""
        return self.from_json(text)

    # JSON
    def to_json(self, value: Any) -> Any:
        """An encoded value as a JSON document has it."""
        return value

    def from_json(self, value: Any) -> Any:
        """The Python value for what a JSON document has; other values are returned unchanged. Raises `ValueError` or
        `ArithmeticError`."""
        return self.decode(value) if isinstance(value, str) and self.sqlite == "TEXT" else value

    def json_writer(self) -> Callable[[Any], str]:
        """A function that writes encoded values, or None, as JSON."""
        return lambda value: "null" if value is None else _dump(self.to_json(value))

    # SQLite
    @property
    def stored(self) -> tuple[type, ...]:
        """The Python types that SQLite gives for encoded values."""
        return _STORED[self.sqlite]

    @property
    def collation(self) -> str | None:
        """The name of the SQLite collation of `compare`."""
        return None if self.compare is None else f"ontolake_{self.name.lower()}"

    def same(self, one: Any, two: Any) -> bool:
        """Whether two encoded values, or None, are equal."""
        if one == two:
            return True
        return self.compare is not None and None not in (one, two) and self.compare(one, two) == 0

    def measure_sql(self, op: str, value: str) -> str:
        """SQL of the `sum` or `avg` of encoded values."""
        return f"{op}({value})"

    def total(self, op: str, values: list[Any]) -> Any:
        """The same in Python, for a scalar whose `measure_sql` calls `aggregate`.

        Raises `SchemaValidationError` if the scalar names an aggregate and does not say what it works out.
        """
        raise SchemaValidationError(f"the scalar {self.name} names an aggregate, but has no total",
                                    hint="define total(op, values), or leave aggregate alone")  # fmt: skip

    def aggregate(self, op: str) -> str | None:
        """The name of a SQLite function that `total` works out; None if SQLite's own will do."""
        return None

    # layouts that hold fields as JSON (v1)
    def fields_writer(self) -> Callable[[Any], str]:
        """A function that writes encoded values as the JSON of a row has them."""
        return _canonical.encode

    def from_fields(self, value: Any) -> Any:
        """What the JSON of a row has as an encoded value; None for a value of another type."""
        return value if type(value) in self.stored else None

    def fields_sql(self, value: str, kind: str) -> str:
        """SQL for an encoded value, from SQL of the value in the JSON and of its JSON type."""
        return value

    # Arrow
    def arrow_type(self, digits: Digits = None) -> pa.DataType:
        """The type of Arrow columns that users see."""
        import pyarrow as pa

        return {"TEXT": pa.string, "INTEGER": pa.int64, "REAL": pa.float64, "BLOB": pa.binary}[self.sqlite]()

    def physical_type(self) -> pa.DataType:
        """The type of columns in Parquet files of typed stores. Columns of it and of `arrow_type()` cast into each
        other."""
        return self.arrow_type()

    def parquet_type(self, digits: Digits = None) -> str:
        """The same in the words of the format."""
        return _PARQUET[self.sqlite]

    def to_arrow(self, values: Sequence[Any], digits: Digits = None) -> pa.Array:
        """Encoded values as an array of the type `arrow_type(digits)`."""
        import pyarrow as pa

        return pa.array(values, self.arrow_type(digits))

    def from_arrow(self, values: Any) -> list[Any]:
        """Arrow values, of `arrow_type()` or `physical_type()`, as encoded ones."""
        return list(values.to_pylist())

    def encodes_arrow(self) -> bool:
        """Whether encoded values are other than those in columns of `physical_type()`."""
        import pyarrow as pa

        return self.physical_type() not in (pa.string(), pa.int64())

    def arrow_fits(self, kind: pa.DataType) -> bool:
        """Whether columns of another Arrow type can be cast to `arrow_type()` without turning a value into another."""
        return bool(kind == self.arrow_type())

    def arrow_valid(self, values: Any) -> bool:
        """Whether all values of a column of `arrow_type()` are valid."""
        return True

    def arrow_equal(self, one: Any, two: Any) -> Any:
        """Whether values of two columns of `physical_type()` are equal, where neither is missing."""
        import pyarrow.compute as pc

        return pc.equal(one, two)

    def arrow_comparand(self, value: Any) -> Any:
        """An encoded value as a Python value for an Arrow scalar; `UNFIT` if DataFusion would compare it otherwise."""
        return value if type(value) in self.stored else UNFIT

    # parallel readers: Spark
    spark: ClassVar[str] = "string"
    """The type of Spark columns that pipelines load."""

    def parallel_type(self, digits: Digits = None) -> pa.DataType:
        """The Arrow type that parallel readers get, which Spark must have a type for."""
        return self.arrow_type(digits)

    def native_type(self) -> pa.DataType | None:
        """The Arrow type as which Spark reads Parquet files of typed stores itself; None if only Python can."""
        return self.physical_type() if self.parallel_type() == self.physical_type() else None

    def spark_type(self, digits: Digits = None) -> str:
        return self.spark

    def spark_value(self, given: Expression, kind: DataType, digits: Digits) -> tuple[Expression, Expression] | None:
        """A value for a field from a Spark column that is not text, and whether it can be one; None for another
        type."""
        from pyspark.sql import functions as F

        return (given, F.lit(True)) if kind.simpleString() == self.spark_type(digits) else None

    def spark_parse(self, text: Expression, digits: Digits) -> tuple[Expression, Expression]:
        """The same from text. What Spark does not refuse, the store checks when it loads."""
        value = text.try_cast(self.spark_type(digits))
        return value, value.isNotNull()

    def spark_literal(self, value: Any) -> Any:
        """A Python value that Spark makes a literal of."""
        return self.to_json(self.encode(value))

    def spark_bound(self, value: Any) -> Any:
        """The same for a value that columns of Spark are compared with."""
        return self.spark_literal(value)

    # Lance: columns of graphs
    lance_exact: tuple[type, ...] = ()
    """The Python types that values must have; nothing if Arrow may tell."""
    lance_form: re.Pattern[str] | None = None
    """What text must look like that stands for a value."""
    lance_casts: bool = False
    """Whether Arrow casts columns of other types to `lance_type`; else their values go through `lance_value`."""
    lance_reads: bool = False
    """Whether that cast also reads text."""

    def lance_type(self) -> pa.DataType:
        """The type of columns of a graph."""
        return self.arrow_type()

    def lance_takes(self, kind: pa.DataType) -> bool:
        """Whether Arrow casts columns of a type, and no value becomes another by that."""
        return self.lance_casts

    def lance_value(self, value: Any) -> Any:
        """A Python value, or its JSON form, as an Arrow array of `lance_type` takes it. Raises `ValueError`."""
        import pyarrow as pa

        if isinstance(value, enum.Enum):
            value = value.value
        found = self.from_json(value)
        if not isinstance(found, self.python):
            raise ValueError(f"{value!r} is not of the type {self.name}")
        array = self.to_arrow([self.encode(found)])
        return pa.array(array).cast(self.lance_type())[0].as_py()

    def lance_json(self, value: Any) -> Any:
        """A value of a column of a graph as JSON has it."""
        import pyarrow as pa

        return self.to_json(self.from_arrow(pa.array([value], self.lance_type()))[0])

    def lance_literal(self, value: Any) -> str:
        """A Python value as SQL of Lance and DataFusion has it."""
        return sql_literal(self.lance_value(value))


def sql_literal(value: Any) -> str:
    """An Arrow value as SQL text."""
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, Decimal):
        places = -int(value.as_tuple().exponent)
        return f"CAST('{value:f}' AS DECIMAL(38, {max(places, 0)}))"
    text = str(value).replace("'", "''")
    return f"'{text}'"


def dump(value: Any) -> str:
    """A value, or None, as JSON without spaces."""
    return _dump(value)
