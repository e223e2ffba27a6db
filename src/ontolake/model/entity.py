"""`Entity` and `Relation`: the classes that users derive their types from."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar, dataclass_transform, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic import Field as PydanticField
from pydantic._internal._model_construction import ModelMetaclass

from ontolake.model.composite import KEY, OWN_KEY, follow, key_annotation
from ontolake.model.errors import EndUnavailableError, MetadataUnavailableError, SchemaValidationError
from ontolake.model.field import Field, value_type
from ontolake.model.filters import FieldRef, ValueRef

if TYPE_CHECKING:
    from ontolake.model.types import Kind

COMMIT = "~commit_id"
"""Where an object from a store keeps the commit that it was read from, beside its fields."""

DELETED = "~deleted"
"""Set in an object from a history that shows the end of a row: its last state."""

ENDS = "~ends"
"""Where a relation from a store keeps what loads the entities at its ends."""

_building = threading.local()


class Meta(NamedTuple):
    """Where an object comes from: the commit that wrote this state, its type, its keys by name.

    In a history, `deleted` says that the commit ended the row, whose last state this is.
    """

    commit_id: int
    type_name: str
    keys: Mapping[str, Any]
    deleted: bool = False


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class TypeMeta(ModelMetaclass):
    """Turns `Field` declarations into pydantic's, and class attributes into filters."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> TypeMeta:  # fmt: skip
        declared = _declared(bases, namespace)
        primary = [field for field, option in declared.items() if option.primary_key]
        parts = tuple(primary) if len(primary) > 1 else ()
        if parts:
            _add_key(name, namespace)
        _building.depth = getattr(_building, "depth", 0) + 1
        try:
            with warnings.catch_warnings():
                # A field of a mixin is an attribute of it too; that a type takes it over is the point.
                warnings.filterwarnings("ignore", "Field name .* shadows an attribute", UserWarning)
                cls: TypeMeta = super().__new__(mcs, name, bases, namespace, **options)  # type: ignore[assignment]
            if not cls.__pydantic_complete__:  # type: ignore[attr-defined]
                # Annotations may be text that only whoever runs this code can make sense of.
                cls.model_rebuild(raise_errors=False, _types_namespace=_names_around())  # type: ignore[attr-defined]
        finally:
            _building.depth -= 1
        cls.__ontolake_options__ = declared
        cls.__ontolake_parts__ = parts
        return cls

    __ontolake_options__: dict[str, Field[Any]]
    __ontolake_parts__: tuple[str, ...]

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            if not name.startswith("_") and not getattr(_building, "depth", 0):
                fields = cls.__dict__.get("__pydantic_fields__")
                if fields and name in fields:
                    return FieldRef(ValueRef(cls, name))
            return super().__getattr__(name)


def _names_around() -> dict[str, Any]:
    """What is known where a class is being defined."""
    frame: Any = sys._getframe(2)  # documented in spite of its name
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith((__name__, "pydantic", "typing")):
        frame = frame.f_back
    return {**frame.f_globals, **frame.f_locals}


def _declared(bases: tuple[type, ...], namespace: dict[str, Any]) -> dict[str, Field[Any]]:
    """The `Field`s of a new class and of those it derives from, which `namespace` then has in pydantic's words."""
    found: dict[str, Field[Any]] = {}
    mixed_in: set[str] = set()
    annotations = namespace.setdefault("__annotations__", {})
    for base in reversed([ancestor for given in bases for ancestor in given.__mro__]):
        inherited = base.__dict__.get("__ontolake_options__")
        if inherited is not None:
            found.update(inherited)
        elif not issubclass(base, BaseModel):  # a mixin that is no type of its own
            for field, option in list(vars(base).items()):
                if isinstance(option, Field) and field not in namespace:
                    found[field] = option
                    mixed_in.add(field)
                    namespace[field] = option.for_pydantic()
                    annotations.setdefault(field, get_type_hints(base, include_extras=True)[field])
    for field, option in list(namespace.items()):
        if isinstance(option, Field):
            if field not in annotations:
                raise SchemaValidationError("a field needs a type", type_name=namespace.get("__qualname__"),
                                            field=field, hint=f"write {field}: Field[str] = Field(…)")
            found[field] = option
            namespace[field] = option.for_pydantic()
        elif field in annotations and field in found and field not in mixed_in:
            found[field] = Field(default=option)
    for field in annotations:
        if field in found and field not in namespace:
            del found[field]  # declared anew, without options
        _refuse_reserved(field, namespace.get("__qualname__"))
    return found


def _add_key(type_name: str, namespace: dict[str, Any]) -> None:
    """Give an entity of several key fields the one that has them all."""
    annotations = namespace["__annotations__"]
    if KEY in annotations or KEY in namespace:
        raise SchemaValidationError("the name is reserved: it is the whole key of an entity with several key fields",
                                    type_name=type_name, field=KEY)
    annotations[KEY] = OWN_KEY
    namespace[KEY] = PydanticField(default=(), exclude=True, repr=False)


def _refuse_reserved(field: str, type_name: Any) -> None:
    if hasattr(BaseModel, field) or field in ("meta",):
        raise SchemaValidationError("the name is reserved", type_name=type_name, field=field,
                                    hint=f"call the attribute differently and store it with Field(name={field!r})")


class Typed(BaseModel, metaclass=TypeMeta):
    """What entities, relations and events have in common: fields that are checked, and errors that name them."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, protected_namespaces=(),
                              ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")
    __ontolake_kind__: ClassVar[Kind | None] = None

    if not TYPE_CHECKING:

        def __init__(self, /, **data: Any) -> None:
            try:
                self.__pydantic_validator__.validate_python(data, self_instance=self)
            except ValidationError as error:
                raise _refused(type(self), error, data) from error
            parts = type(self).__ontolake_parts__
            if parts:
                follow(self, parts)

        __init__.__pydantic_base_init__ = True  # not one that pydantic must go through

        def __setattr__(self, name: str, value: Any) -> None:
            try:
                super().__setattr__(name, value)
            except ValidationError as error:
                raise _refused(type(self), error, self.__dict__) from error
            except ValueError as error:
                raise SchemaValidationError(str(error), type_name=type(self).__name__, field=name) from error
            parts = type(self).__ontolake_parts__
            if parts and (name in parts or name == KEY):
                follow(self, parts)

        @classmethod
        def model_validate(cls, obj: Any, **options: Any) -> Self:
            try:
                found = super().model_validate(obj, **options)
            except ValidationError as error:
                raise _refused(cls, error, obj if isinstance(obj, Mapping) else {}) from error
            if cls.__ontolake_parts__:
                follow(found, cls.__ontolake_parts__)
            return found

    def meta(self) -> Meta:
        """Where this object comes from. Raises `MetadataUnavailableError` unless it is a result of a query."""
        from ontolake.model.types import type_info

        commit = self.__dict__.get(COMMIT)
        if commit is None:
            raise MetadataUnavailableError(type(self).__name__)
        info = type_info(type(self))
        keys = {column.name: self.__dict__[column.name] for column in info.parts or info.keys}
        return Meta(commit, type(self).__name__, keys, DELETED in self.__dict__)


def _refused(cls: Any, error: ValidationError, data: Mapping[str, Any]) -> SchemaValidationError:
    marked = [name for name, option in cls.__ontolake_options__.items() if option.primary_key]
    key: Any = data.get(marked[0]) if marked else None
    if len(marked) > 1:
        key = tuple(data.get(name) for name in marked)
    if "left_key" in cls.model_fields:
        key = (data.get("left_key"), data.get("right_key"))
    return SchemaValidationError.of(error, cls.__name__, key)


class Entity(Typed):
    """A thing with a key. Derive your types from it and declare fields, one or several of them the primary key."""

    __ontolake_kind__ = "entity"


L = TypeVar("L", bound=Entity)
R = TypeVar("R", bound=Entity)


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class RelationMeta(TypeMeta):
    """Gives a relation between two types the keys of those two."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> RelationMeta:  # fmt: skip
        ends = _ends(bases)
        if ends is not None:
            annotations = namespace.setdefault("__annotations__", {})
            for field, end in zip(("left_key", "right_key"), ends, strict=True):
                if field in annotations or field in namespace:
                    raise SchemaValidationError("the name is reserved: it is the key of an endpoint", type_name=name,
                                                field=field)
                annotations[field] = _key_type(end)
        cls: RelationMeta = super().__new__(mcs, name, bases, namespace, **options)  # type: ignore[assignment]
        if ends is not None:
            cls.__ontolake_ends__ = ends
        return cls

    __ontolake_ends__: tuple[type[Entity], type[Entity]]


def _ends(bases: tuple[type, ...]) -> tuple[type[Entity], type[Entity]] | None:
    for base in bases:
        generic = getattr(base, "__pydantic_generic_metadata__", None) or {}
        ends = tuple(end for end in generic.get("args", ()) if isinstance(end, TypeMeta))
        if len(ends) == 2:
            return ends[0], ends[1]  # type: ignore[return-value]
    return None


def _key_type(end: type[Entity]) -> Any:
    marked = [name for name, option in end.__ontolake_options__.items() if option.primary_key]
    if not marked:
        raise SchemaValidationError("the entity has no primary key, so no relation can lead to it",
                                    type_name=end.__name__, hint="mark a field with Field(primary_key=True)")
    if len(marked) > 1:
        return key_annotation(end)
    return value_type(end.model_fields[marked[0]].annotation)


class Relation(Typed, Generic[L, R], metaclass=RelationMeta):
    """A link from an entity of one type to one of another, with fields of its own.

    Two endpoints are linked once, unless a field is marked as the `instance_key`: then once for each value of it.
    Results of queries have the entities at their ends as `left` and `right`; a field of that name comes first.
    """

    __ontolake_kind__ = "relation"
    left_key: Field[Any]
    right_key: Field[Any]

    if TYPE_CHECKING:

        @property
        def left(self) -> L: ...
        @property
        def right(self) -> R: ...


class RelationEnd:
    """The entity at one end of a relation, as of the moment that was asked about.

    Raises `EndUnavailableError` for a relation that is not the result of a query, and `DanglingRelationError` if there
    is no such entity.
    """

    def __init__(self, side: str) -> None:
        self._side = side

    # There is no __set__, so that the value of a field of the same name is what an object has.
    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            raise AttributeError(self._side)  # then it is looked for among the fields
        loader = instance.__dict__.get(ENDS)
        if loader is None:
            raise EndUnavailableError(type(instance).__name__, self._side)
        return loader.end(instance, self._side)


type.__setattr__(Relation, "left", RelationEnd("left"))
type.__setattr__(Relation, "right", RelationEnd("right"))
