"""`TypeInfo`: what a store needs to know of an entity or relation type, worked out once per class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from ontolake.model import scalars
from ontolake.model.columns import ENTITY_COLUMNS, RELATION_COLUMNS, Column, build_column, physical_names
from ontolake.model.composite import KEY, composite_codec, follow
from ontolake.model.errors import SchemaValidationError, names
from ontolake.model.field import Field, value_type
from ontolake.model.typespec import Spec, scalar_of

if TYPE_CHECKING:
    from ontolake.model.entity import Entity, Relation

Kind = Literal["entity", "relation"]


class TypeInfo:
    """The columns and keys of a type.

    `columns` are the fields beside the keys of a relation; `keys` the columns that name a row: `(key,)` of an entity,
    `(left_key, right_key, instance_key?)` of a relation. `parts` are the columns that a key is made of, if these are
    several.
    """

    def __init__(self, cls: type[Entity] | type[Relation[Any, Any]], kind: Kind) -> None:
        self.cls = cls
        self.version: int | None = None
        """The schema version whose rows are read, for a class made of a schema of the past; None is the current one."""
        self.kind: Kind = kind
        self.name = cls.__name__
        options = cls.__ontolake_options__
        fields = {name: value_type(info.annotation) for name, info in cls.model_fields.items()}
        stored = {name: options[name].name or name if name in options else name for name in fields}
        self._check_names(stored)
        keys = self._key_names(options, fields)
        rest = [name for name in fields if name not in keys]
        physical = physical_names(
            sorted(stored[name] for name in rest), ENTITY_COLUMNS if kind == "entity" else RELATION_COLUMNS
        )
        at = dict(zip(keys, ENTITY_COLUMNS if kind == "entity" else RELATION_COLUMNS, strict=False))
        built = {name: build_column(name, fields[name], options.get(name), at.get(name) or physical[stored[name]],
                                    cls.model_fields[name]) for name in fields}  # fmt: skip
        self._part_names = cls.__ontolake_parts__
        for name, parts in self._composite_keys(built):
            for part in parts:
                self._check_key(part)
            built[name] = built[name]._replace(codec=composite_codec(parts, self.name), nullable=False)
        self.keys = tuple(built[name] for name in keys)
        self.columns = tuple(built[name] for name in rest)
        self.all_columns = tuple(built.values())
        self.by_name = built
        for column in self.keys:
            self._check_key(column)
        if len(self.keys) == 3 and not self.keys[2].type.textual:
            raise SchemaValidationError("an instance key must be a str", type_name=self.name, field=self.keys[2].name)
        self.unique = self._unique_columns()
        self.parts = tuple(self.by_name[name] for name in self._part_names)
        self._values: Callable[[Any], Any] = itemgetter(*keys, *rest)
        self._encoders = self.keys + self.columns
        self._width = len(self._encoders)
        self._plain = tuple((i, c.codec.encode) for i, c in enumerate(self._encoders) if c.codec.encode is not None)
        self._good: set[tuple[type, ...]] = set()
        self._one = self._width == 1

    def _composite_keys(self, built: Mapping[str, Column]) -> list[tuple[str, tuple[Column, ...]]]:
        """The fields that hold keys of several parts, each with these: its own, or the ends of a relation."""
        if self._part_names:
            return [(KEY, tuple(built[name] for name in self._part_names))]
        if self.kind == "entity":
            return []
        ends = zip(("left_key", "right_key"), self._ends(), strict=True)
        return [(side, found) for side, end in ends if (found := type_info(end).parts)]

    def _check_key(self, column: Column) -> None:
        if column.nullable or not column.type.key:
            known = ", ".join(one.name for one in scalars.every() if one.key)
            raise SchemaValidationError(f"a key must be one of {known} and never None", type_name=self.name,
                                        field=column.name)

    def adopt(self, specs: Mapping[str, Spec]) -> None:
        """Give the columns these specs, by field: those of a stored schema, which annotations cannot always express."""
        if all(column.spec == specs[column.name] for column in self.all_columns):
            return
        for name, column in self.by_name.items():
            spec = specs[name]
            self.by_name[name] = column._replace(spec=spec, nullable=scalar_of(spec)[1])
        self.keys = tuple(self.by_name[column.name] for column in self.keys)
        self.columns = tuple(self.by_name[column.name] for column in self.columns)
        self.all_columns = tuple(self.by_name.values())
        self.unique = self._unique_columns()
        self.parts = tuple(self.by_name[name] for name in self._part_names)
        self._encoders = self.keys + self.columns

    def _unique_columns(self) -> tuple[Column, ...]:
        """The columns in which no two rows have one value. Raises `SchemaValidationError` for what cannot be one."""
        for column in self.all_columns:
            if column.unique and column in self.keys:
                raise SchemaValidationError("a key is unique anyway", type_name=self.name, field=column.name)
            if column.unique and (column.scalar is None or column.type.compare is not None):
                raise SchemaValidationError(f"values of {'JSON' if column.scalar is None else column.scalar} cannot be "
                                            "unique", type_name=self.name, field=column.name,
                                            hint="equal values may be stored in different forms; store a text instead")
        return tuple(column for column in self.columns if column.unique)

    @cached_property
    def schema_hash(self) -> str:
        """The hash of the type's schema."""
        from ontolake.model.schema import schema_hash, schema_of  # schemas are made of what is found out here

        return schema_hash(schema_of(self.cls))

    @property
    def left(self) -> type[Entity]:
        return self._ends()[0]

    @property
    def right(self) -> type[Entity]:
        return self._ends()[1]

    def _ends(self) -> tuple[type[Entity], type[Entity]]:
        ends = getattr(self.cls, "__ontolake_ends__", None)
        if ends is None:
            raise SchemaValidationError("a relation is declared between two types", type_name=self.name,
                                        hint=f"write class {self.name}(Relation[Left, Right])")
        return ends[0], ends[1]

    def _check_names(self, stored: dict[str, str]) -> None:
        twice = sorted({name for name in stored.values() if list(stored.values()).count(name) > 1})
        if twice:
            raise SchemaValidationError(f"two fields are stored as {names(twice)}", type_name=self.name, field=twice[0])

    def _key_names(self, options: dict[str, Field[Any]], fields: dict[str, Any]) -> list[str]:
        primary = [name for name, option in options.items() if option.primary_key and name in fields]
        instance = [name for name, option in options.items() if option.instance_key and name in fields]
        if self.kind == "entity":
            if not primary:
                raise SchemaValidationError("the entity has no primary key", type_name=self.name,
                                            hint="mark a field with Field(primary_key=True)")
            if instance:
                raise SchemaValidationError("only a relation has an instance key", type_name=self.name,
                                            field=instance[0])
            return primary if len(primary) == 1 else [KEY]
        if primary:
            raise SchemaValidationError("a relation has no primary key: its endpoints are its key",
                                        type_name=self.name, field=primary[0], hint="use Field(instance_key=True)")
        if len(instance) > 1:
            raise SchemaValidationError(f"the relation has {len(instance)} instance keys: {names(instance)}",
                                        type_name=self.name)
        self._ends()
        return ["left_key", "right_key", *instance]

    def key_of(self, row: tuple[Any, ...]) -> Any:
        """The key of an encoded row: a value for an entity, a tuple for a relation."""
        return row[0] if self.kind == "entity" else row[: len(self.keys)]

    def encode(self, obj: Any) -> tuple[Any, ...]:
        """An object as a row: encoded keys, then the other columns in order.

        Raises `SchemaValidationError`, naming type, key and field, for values that do not fit.
        """
        if self.parts:
            follow(obj, self._part_names)
        values = (self._values(obj.__dict__),) if self._one else self._values(obj.__dict__)
        seen = tuple(map(type, values))
        if seen not in self._good:
            return self._encode_slowly(values, seen)
        row = list(values)
        try:
            for position, encode in self._plain:
                value = row[position]
                if value is not None:
                    row[position] = encode(value)
        except (ValueError, KeyError, TypeError):
            return self._encode_slowly(values, None)
        for key in row[: len(self.keys)]:
            if key == "":
                return self._encode_slowly(values, None)
        return tuple(row)

    def _encode_slowly(self, values: tuple[Any, ...], seen: tuple[type, ...] | None) -> tuple[Any, ...]:
        """The same with every check, to find the field that is wrong. Types that pass are remembered."""
        row: list[Any] = []
        for column, value in zip(self._encoders, values, strict=True):
            key = values[0] if self.kind == "entity" else values[: len(self.keys)]
            row.append(column.encode(value, self.name, key))
            if len(row) <= len(self.keys) and row[-1] == "":
                raise SchemaValidationError("a key must not be empty", type_name=self.name, field=column.name)
        if seen is not None:
            self._good.add(seen)
        return tuple(row)


def unstorable(info: TypeInfo, rows: Iterable[tuple[Any, ...]]) -> SchemaValidationError:
    """What to raise for rows of which one has text that is not Unicode: half of a pair of surrogates."""
    for row in rows:
        for column, value in zip(info.keys + info.columns, row, strict=True):
            try:
                if isinstance(value, str):
                    value.encode()
            except UnicodeEncodeError as error:
                return SchemaValidationError(f"the text is not Unicode: {error.reason}", type_name=info.name,
                                             key=info.key_of(row), field=column.name)
    raise AssertionError("every text can be stored")


def type_info(cls: Any) -> TypeInfo:
    """What a store needs to know of a type. Raises `SchemaValidationError` if it is not a well-formed one."""
    found: TypeInfo | None = cls.__dict__.get("__ontolake_info__") if isinstance(cls, type) else None
    if found is None:
        kind = getattr(cls, "__ontolake_kind__", None)
        if kind is None or not isinstance(cls, type):
            raise SchemaValidationError(f"{cls!r} is not an entity or relation type",
                                        hint="derive it from Entity or Relation[Left, Right]")
        model: Any = cls
        if not model.__pydantic_complete__ and not model.model_rebuild(raise_errors=False):
            raise SchemaValidationError("a type that it mentions is not defined", type_name=cls.__name__,
                                        hint="define it before it is used, or import it")
        found = TypeInfo(cls, kind)
        type.__setattr__(cls, "__ontolake_info__", found)
    return found
