"""Columns: where and as what the fields of a type are stored, in SQLite, Arrow and Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ontolake.model import scalars
from ontolake.model.codecs import Codec, codec_for, failure
from ontolake.model.errors import SchemaValidationError
from ontolake.model.field import UNSET, Field
from ontolake.model.scalars import Scalar
from ontolake.model.typespec import Spec, build_type_spec, column_kind, scalar_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pydantic.fields import FieldInfo

ENTITY_COLUMNS = ("entity_key", "commit_id", "schema_version_id")
RELATION_COLUMNS = ("left_key", "right_key", "instance_key", "commit_id", "schema_version_id")
ROWID_NAMES = ("rowid", "oid", "_rowid_", "row_id")
"""What SQLite and we call the place of a row; a column of that name would hide it."""



class Column(NamedTuple):
    """One field as it is stored.

    `name` is the attribute, `stored` its name in schemas, `column` that of the physical column, which differs where
    `stored` is taken. `scalar` is None for a column of JSON.
    """

    name: str
    stored: str
    column: str
    spec: Spec
    scalar: str | None
    nullable: bool
    codec: Codec
    indexed: bool = False
    default: Any = UNSET
    decimal: tuple[int, int] | None = None
    was: tuple[str, ...] | None = None
    """Stored names of the same field in earlier schemas, newest first; None if nobody said."""
    unique: bool = False
    """Whether no two rows may have one value."""

    @property
    def kind(self) -> Literal["typed", "json"]:
        return "json" if self.scalar is None else "typed"

    @property
    def type(self) -> Scalar:
        """The scalar of the values; `scalars.JSON` for a column of JSON."""
        return scalars.get(self.scalar)

    @property
    def sqlite_type(self) -> str:
        return self.type.sqlite

    @property
    def parquet_type(self) -> str:
        return self.type.parquet_type(self.decimal)

    @property
    def arrow_type(self) -> pa.DataType:
        return self.type.arrow_type(self.decimal)

    def encode(self, value: Any, type_name: str, key: Any = None) -> Any:
        """The value as SQLite holds it. Raises `SchemaValidationError` for one that is not of the field's type."""
        if value is None:
            if self.nullable:
                return None
            raise SchemaValidationError("a value is missing", type_name=type_name, key=key, field=self.name)
        types = self.codec.types
        if types is not None and type(value) not in types:
            raise SchemaValidationError(f"{value!r} is not of the type {self.scalar}", type_name=type_name, key=key,
                                        field=self.name)
        if self.codec.encode is None:
            return value
        try:
            return self.codec.encode(value)
        except (ValueError, KeyError, TypeError) as error:
            raise SchemaValidationError(failure(error), type_name=type_name, key=key, field=self.name) from error

    def decode(self, value: Any) -> Any:
        if value is None or self.codec.decode is None:
            return value
        return self.codec.decode(value)

    def default_value(self) -> Any:
        """What stands where no value was given; `UNSET` if there is nothing."""
        return self.default.make() if isinstance(self.default, Factory) else self.default


class Factory(NamedTuple):
    """A default that is made anew for every object."""

    make: Callable[[], Any]


def build_column(name: str, annotation: Any, option: Field[Any] | None, column: str, declared: FieldInfo) -> Column:
    """The column of a field that was declared like this. Its default is the one that objects get."""
    spec = build_type_spec(annotation)
    scalar, nullable = scalar_of(spec)
    given: Field[Any] = option if option is not None else Field()
    make: Any = declared.default_factory
    default = Factory(make) if make is not None else declared.default
    digits, places = given.constraints.get("max_digits"), given.constraints.get("decimal_places")
    fixed = scalars.get(scalar).fixed_point and digits is not None and places is not None
    decimal = (int(digits), int(places)) if fixed else None  # type: ignore[arg-type]
    return Column(name, given.name or name, column, spec, scalar, nullable, codec_for(annotation, spec),
                  given.index, default, decimal, given.was, given.unique)


def physical_names(stored: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """The column of each stored name: the name itself, unless it is taken. SQLite does not tell case apart."""
    used = {name.lower() for name in (*taken, *ROWID_NAMES)}
    found: dict[str, str] = {}
    late: list[str] = []
    for name in stored:
        if name.lower() in used:
            late.append(name)
        else:
            used.add(name.lower())
            found[name] = name
    for name in late:
        column = f"field_{name}"
        while column.lower() in used:
            column += "_"
        used.add(column.lower())
        found[name] = column
    return found


def sqlite_type(spec: Spec) -> str:
    """The type of a SQLite column for a field: `TEXT`, `INTEGER`, `REAL` or `BLOB`."""
    return scalars.get(scalar_of(spec)[0]).sqlite


def parquet_type(spec: Spec) -> str:
    """The type of a Parquet column for a field, in the words of the format."""
    return scalars.get(scalar_of(spec)[0]).parquet_type()


def arrow_type(spec: Spec) -> pa.DataType:
    """The Arrow type of a field. JSON, UUIDs and decimals without declared digits are text."""
    return scalars.get(scalar_of(spec)[0]).arrow_type()


__all__ = [
    "ENTITY_COLUMNS", "RELATION_COLUMNS", "Column", "Factory", "arrow_type", "build_column", "column_kind",
    "parquet_type", "physical_names", "sqlite_type",
]  # fmt: skip
