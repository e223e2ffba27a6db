"""Node and edge types as a graph stores them: columns with Arrow types, keys, and the rules that rows keep.

A `GraphType` is plain data. It is made from an `Entity` or `Relation` class, or read back from what is stored, so that
a graph can be used where the classes are not at hand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, get_args

from ontolake.graph.errors import GraphSchemaError, UnknownTableError
from ontolake.model import scalars, type_info
from ontolake.model.columns import Column, Factory
from ontolake.model.field import UNSET, value_type
from ontolake.model.scalars import Scalar

if TYPE_CHECKING:
    import pyarrow as pa

CARDINALITIES = ("n:m", "1:n", "n:1", "1:1")
_BOUNDS = ("ge", "gt", "le", "lt", "min_length", "max_length", "pattern")
_RESERVED = ("_rowid", "_rowaddr", "_rowoffset", "_distance", "_score", "_relevance_score", "left_key", "right_key")
LEFT, RIGHT = "left_key", "right_key"


class Dimension:
    """Marks a list of floats as a vector of fixed length."""

    def __init__(self, length: int) -> None:
        self.length = length


class _Marker:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


Unique = _Marker("Unique")
"""`email: Field[Annotated[str, Unique]]`: no two rows have the same value; missing ones do not count."""

_BLOB = _Marker("Blob")
Blob = Annotated[bytes, _BLOB]
"""The type of a field with big binary values, which are read only when their column is asked for."""


def Vector(length: int) -> Any:
    """The type of a field with vectors of `length` floats: `embedding: Field[Vector(384)]`."""
    if not 1 <= length <= 65536:
        raise GraphSchemaError(f"a vector has from 1 to 65536 dimensions, not {length}")
    return Annotated[list[float], Dimension(length)]


@dataclass(frozen=True)
class GraphField:
    """A column: `type` is a scalar's name, `json`, `vector` or `blob`. What is None or False asks for nothing."""

    name: str
    type: str
    nullable: bool = False
    length: int | None = None
    digits: tuple[int, int] | None = None
    unique: bool = False
    index: bool = False
    default: Any = None
    has_default: bool = False
    values: tuple[Any, ...] | None = None
    ge: Any = None
    gt: Any = None
    le: Any = None
    lt: Any = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    id: str | None = None
    """What tells the column from others that had its name; see `columns`."""
    shape: str | None = None
    """What JSON must be: `list`, `dict`, or None for anything, and for columns of older releases."""

    @property
    def scalar(self) -> Scalar | None:
        """The scalar of the values, which is bytes for blobs and `scalars.JSON` for JSON; None for vectors."""
        return None if self.type == "vector" else scalars.of(bytes) if self.type == "blob" else scalars.get(self.type)

    @property
    def arrow_type(self) -> pa.DataType:
        import pyarrow as pa

        if self.digits is not None:
            return pa.decimal128(*self.digits)
        if self.scalar is None:
            return pa.list_(pa.float32(), self.length)
        return pa.large_binary() if self.type == "blob" else self.scalar.lance_type()

    def to_arrow(self) -> pa.Field:
        import pyarrow as pa

        # Whether values may be missing is checked by us: Lance cannot relax a column that was declared without.
        return pa.field(self.name, self.arrow_type, True)

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()
                if value is not None and value is not False}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GraphField:
        given = {field.name: data[field.name] for field in fields(cls) if field.name in data}
        for name in ("digits", "values"):
            if given.get(name) is not None:
                given[name] = tuple(given[name])
        return cls(**given)


@dataclass(frozen=True)
class GraphType:
    """A node or edge type. `keys` are the names of the columns that name a row."""

    kind: str
    name: str
    keys: tuple[str, ...]
    fields: tuple[GraphField, ...]
    left: str | None = None
    right: str | None = None
    cardinality: str = "n:m"

    @property
    def key(self) -> str:
        """What manifests call the table: `node:Customer`, `edge:Placed`."""
        return f"{self.kind}:{self.name}"

    @property
    def table(self) -> str:
        """What people call the table: `node/Customer`."""
        return f"{self.kind}/{self.name}"

    @property
    def location(self) -> str:
        return f"{self.kind}s/{fnv1a64(self.name):016x}"

    @cached_property
    def by_name(self) -> dict[str, GraphField]:
        return {field.name: field for field in self.fields}

    @property
    def ends(self) -> tuple[tuple[str, str], ...]:
        """The key columns of an edge with the tables they lead to; nothing for a node."""
        return ((LEFT, f"node:{self.left}"), (RIGHT, f"node:{self.right}")) if self.kind == "edge" else ()

    @cached_property
    def schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([field.to_arrow() for field in self.fields])

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"kind": self.kind, "name": self.name, "keys": list(self.keys),
                                "fields": [field.to_json() for field in self.fields]}
        if self.kind == "edge":
            data |= {"left": self.left, "right": self.right, "cardinality": self.cardinality}
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> GraphType:
        return cls(data["kind"], data["name"], tuple(data["keys"]),
                   tuple(GraphField.from_json(field) for field in data["fields"]),
                   data.get("left"), data.get("right"), data.get("cardinality", "n:m"))

    @cached_property
    def hash(self) -> str:
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def with_fields(self, fields: Iterable[GraphField]) -> GraphType:
        return replace(self, fields=tuple(fields))


def fnv1a64(text: str) -> int:
    """The hash that names a type's directory: of fixed length, and safe where case is not told apart."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def graph_type(cls: Any) -> GraphType:
    """The type that a class declares; a `GraphType` as it is. Raises `SchemaValidationError`, `GraphSchemaError`."""
    if isinstance(cls, GraphType):
        return cls
    info = type_info(cls)
    columns = [_field(cls, info.name, column) for column in (*info.keys, *info.columns)]
    kind = "node" if info.kind == "entity" else "edge"
    for field in columns:
        if field.name in _RESERVED and not (kind == "edge" and field.name in (LEFT, RIGHT)):
            raise GraphSchemaError(f"{info.name}: the name {field.name!r} is reserved",
                                   hint="give the field another stored name with Field(name=…)")
        if field.name.startswith("_") or "." in field.name:
            raise GraphSchemaError(f"{info.name}: a column cannot be called {field.name!r}",
                                   hint="no leading underscore and no dot; use Field(name=…)")
    if kind == "node":
        return GraphType(kind, info.name, (info.keys[0].stored,), tuple(columns))
    cardinality = getattr(cls, "cardinality", "n:m")
    if cardinality not in CARDINALITIES:
        raise GraphSchemaError(f"{info.name}: the cardinality {cardinality!r} is not known",
                               hint=f"choose one of {', '.join(CARDINALITIES)}")
    return GraphType(kind, info.name, tuple(column.stored for column in info.keys), tuple(columns),
                     info.left.__name__, info.right.__name__, cardinality)


def declared(table: Any) -> dict[str, Column]:
    """The columns that a class declares, by name; nothing for a name of a table.

    Graphs store neither what makes a default anew for every row nor the types of values inside JSON: only a class can
    tell.
    """
    if not isinstance(table, type) or not hasattr(table, "__ontolake_kind__"):
        return {}
    return {column.stored: column for column in type_info(table).all_columns}


def check_types(types: Iterable[GraphType]) -> dict[str, GraphType]:
    """Types by table key, which must make a graph together. Raises `GraphSchemaError`."""
    found: dict[str, GraphType] = {}
    for one in types:
        if found.setdefault(one.key, one) != one:
            raise GraphSchemaError(f"two types are called {one.name!r}", hint="rename one of them")
    names = [one.name.lower() for one in found.values()]
    for one in found.values():
        if names.count(one.name.lower()) > 1:
            raise GraphSchemaError(f"a node type and an edge type are called {one.name!r}", hint="rename one of them")
        for _, end in one.ends:
            if end not in found:
                raise GraphSchemaError(f"{one.name} leads to {end.partition(':')[2]!r}, which is not among the types",
                                       hint="add it to types=")
    return found


def _marks(annotation: Any) -> Iterator[Any]:
    yield from getattr(annotation, "__metadata__", ())
    for part in get_args(annotation):
        if not isinstance(part, str):
            yield from _marks(part)


def _field(cls: Any, type_name: str, column: Column) -> GraphField:
    info = cls.model_fields[column.name]
    marks = list(_marks(value_type(info.annotation))) + list(info.metadata)
    kind, length = column.type.name, None
    for mark in marks:
        if isinstance(mark, Dimension):
            kind, length = "vector", mark.length
        elif mark is _BLOB:
            kind = "blob"
    bounds: dict[str, Any] = {}
    for mark in marks:
        for name in _BOUNDS:
            value = getattr(mark, name, None)
            if value is not None:
                bounds[name] = _plain(value)
    parts = column.spec["members"] if column.spec["kind"] == "union" else [column.spec]
    values = [value for part in parts if part["kind"] in ("enum", "literal") for value in part["values"]]
    nullable = column.nullable or (column.scalar is None and _nullable(column))
    default = UNSET if isinstance(column.default, Factory) else column.default
    given = default is not UNSET
    plain = _plain(default) if given else None
    if given and kind == "json" and plain is not None:
        from ontolake.model.codecs import json_text

        plain = json_text(plain)
    return GraphField(
        column.stored, kind, nullable, length, column.decimal if kind == column.scalar else None, Unique in marks,
        column.indexed, plain, given and (plain is not None or nullable),
        tuple(value for value in values if value is not None) if values and column.scalar else None,
        shape=_shape(column) if kind == "json" else None, **bounds,
    )  # fmt: skip


def _shape(column: Column) -> str | None:
    """`list` or `dict` if every value of a column is that, or None."""
    spec = column.spec
    members = spec["members"] if spec["kind"] == "union" else [spec]
    kinds = {member["kind"] for member in members if member.get("name") != "NoneType"}
    kind: str = kinds.pop() if len(kinds) == 1 else ""
    return kind if kind in ("list", "dict") else None


def _nullable(column: Column) -> bool:
    spec = column.spec
    members = spec["members"] if spec["kind"] == "union" else [spec]
    return any(member.get("name") in ("NoneType", "Any") for member in members)


def _plain(value: Any) -> Any:
    """A bound or a default as JSON can hold it."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, bytes_mode="base64", fallback=scalars.jsonable)


def resolve_table(name: Any, keys: Iterable[str]) -> str:
    """The table key that is meant by `node:T`, `node/T`, `T` or a class. Raises `UnknownTableError`."""
    known = list(keys)
    text = name.name if isinstance(name, GraphType) else getattr(name, "__name__", name)
    wanted = str(text).replace("/", ":", 1)
    if wanted in known:
        return wanted
    found = [key for key in known if key.partition(":")[2] == wanted]
    if len(found) != 1:
        raise UnknownTableError(str(text), [key.replace(":", "/", 1) for key in sorted(known)])
    return found[0]
