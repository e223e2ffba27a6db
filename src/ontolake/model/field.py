"""`Field`: declares a field of a type, and gives filters on the class and values on objects.

`Customer.tier == "gold"` is a filter and `customer.tier` a value, for Python and for type checkers alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, overload

from pydantic import Field as PydanticField
from pydantic_core import PydanticUndefined

from ontolake.model.errors import SchemaValidationError
from ontolake.model.portable import portable

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

    from ontolake.model.filters import FieldRef

T = TypeVar("T")
UNSET: Any = PydanticUndefined


class Field(Generic[T]):
    """A field of an entity or a relation.

    `primary_key` marks the key of an entity, or each of its parts, and `instance_key` the optional one of a relation;
    `index` asks for an index on the column; `unique` refuses a value that another row has; `name` is the stored name,
    if it is not the attribute's; `was` has the stored names of the same field in earlier schemas, newest first, `()` if
    there were none; `default` and `default_factory` give a value where none is given; what is left (`ge`, `max_length`,
    `pattern`, …) goes to pydantic.
    """

    def __init__(
        self, *, default: T = UNSET, default_factory: Callable[[], T] | None = None, primary_key: bool = False,
        instance_key: bool = False, index: bool = False, unique: bool = False, name: str | None = None,
        was: str | Iterable[str] | None = None, description: str | None = None, **constraints: Any,
    ) -> None:  # fmt: skip
        if default is not UNSET and default_factory is not None:
            raise SchemaValidationError("a field has a default or a default_factory, not both")
        if name is not None and not (isinstance(name, str) and name.isprintable() and name and name[0] != "~"):
            raise SchemaValidationError(f"a stored name must be printable and must not begin with ~: {name!r}")
        self.default = default
        self.default_factory = default_factory
        self.primary_key = primary_key
        self.instance_key = instance_key
        self.index = index
        self.unique = unique
        self.name = name
        self.was = _names_before(was)
        self.description = description
        self.constraints = constraints

    def for_pydantic(self) -> Any:
        """The same declaration in pydantic's words."""
        given: dict[str, Any] = {"description": self.description, **self.constraints}
        if self.default_factory is not None:
            return PydanticField(default_factory=self.default_factory, **given)
        return PydanticField(default=... if self.default is UNSET else self.default, **given)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """`Field[T]` is validated as `T`."""
        return handler.generate_schema(portable(value_type(source)))

    def __set_name__(self, owner: type, name: str) -> None:
        self._attribute = name

    if TYPE_CHECKING:

        @overload
        def __get__(self, instance: None, owner: Any) -> FieldRef[T]: ...
        @overload
        def __get__(self, instance: object, owner: Any) -> T: ...
        def __get__(self, instance: object | None, owner: Any) -> FieldRef[T] | T: ...
        def __set__(self, instance: object, value: T) -> None: ...


def _names_before(was: Any) -> tuple[str, ...] | None:
    found = (was,) if isinstance(was, str) else None if was is None else tuple(was)
    if found is not None and not all(isinstance(name, str) and name for name in found):
        raise SchemaValidationError(f"was takes the names that a field had, not {was!r}",
                                    hint='write was="name", was=("name", "older") or, for a new field, was=()')
    return found


def _get(field: Field[Any], instance: object | None, owner: Any) -> Any:
    """A field that a type has from a mixin: the mixin keeps the declaration as an attribute, which is found first."""
    name = field._attribute
    if name not in (owner.__dict__.get("__pydantic_fields__") or ()):
        return field
    if instance is not None:
        raise AttributeError(name)
    from ontolake.model.filters import FieldRef, ValueRef

    return FieldRef(ValueRef(owner, name))


type.__setattr__(Field, "__get__", _get)


def value_type(annotation: Any) -> Any:
    """The `T` of `Field[T]`; anything else as it is."""
    if getattr(annotation, "__origin__", None) is Field:
        return get_args(annotation)[0]
    return Any if annotation is Field else annotation
