"""Type specs: what an annotation means, as plain data that can be stored, hashed and compared.

A spec says of a field's type no more than what matters for stored values, so that a renamed alias or a moved
module changes nothing. `column_kind` says whether a field has a column of its type or one of JSON.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, ForwardRef, Literal, NotRequired, Required, Union, get_args, get_origin

from pydantic import BaseModel
from typing_extensions import TypeAliasType, is_typeddict

from ontolake.model import scalars
from ontolake.model.errors import SchemaValidationError

Spec = dict[str, Any]

_LISTS: dict[Any, str] = {
    list: "list", Sequence: "list", tuple: "tuple", set: "set", frozenset: "frozenset", AbstractSet: "set"
}  # fmt: skip
_ALIASES: Any = (TypeAliasType, getattr(typing, "TypeAliasType", TypeAliasType))


def build_type_spec(annotation: Any) -> Spec:
    """The spec of a type: a dict with a `kind` and what belongs to it.

    Raises `SchemaValidationError` for a type that cannot be stored.
    """
    return _spec(annotation, ())


def _spec(annotation: Any, inside: tuple[Any, ...]) -> Spec:
    if annotation is None or annotation is type(None):
        return {"kind": "primitive", "name": "NoneType"}
    if annotation is Any or annotation is object or isinstance(annotation, str | ForwardRef | typing.TypeVar):
        return {"kind": "primitive", "name": "Any"}
    if isinstance(annotation, _ALIASES):
        if any(annotation is outer for outer in inside):
            return {"kind": "ref", "name": annotation.__name__}
        return _spec(annotation.__value__, (*inside, annotation))
    origin = get_origin(annotation)
    if origin in (Annotated, Required, NotRequired):
        return _spec(get_args(annotation)[0], inside)
    if origin in (Union, types.UnionType):
        return _union(get_args(annotation), inside)
    if origin is Literal:
        return {"kind": "literal", "values": [_plain(value, annotation) for value in get_args(annotation)]}
    if annotation in _LISTS or origin in _LISTS:
        return _list(annotation, origin or annotation, inside)
    if annotation in (dict, Mapping) or origin in (dict, Mapping):
        of_key, of_value = get_args(annotation) or (str, Any)
        return {"kind": "dict", "key": _spec(of_key, inside), "value": _spec(of_value, inside)}
    if isinstance(annotation, type):
        return _class(annotation, inside)
    raise SchemaValidationError(f"{annotation!r} cannot be stored", hint="use scalars, lists, dicts or TypedDicts")


def _union(members: Sequence[Any], inside: tuple[Any, ...]) -> Spec:
    """Members in a fixed order, so that `str | None` and `None | str` are one type."""
    specs: list[Spec] = []
    for member in members:
        spec = _spec(member, inside)
        for part in spec["members"] if spec["kind"] == "union" else [spec]:
            if part not in specs:
                specs.append(part)
    if len(specs) == 1:
        return specs[0]
    return {"kind": "union", "members": sorted(specs, key=repr)}


def _list(annotation: Any, origin: Any, inside: tuple[Any, ...]) -> Spec:
    items = get_args(annotation)
    container = _LISTS[origin]
    if container == "tuple" and items and not (len(items) == 2 and items[1] is Ellipsis):
        return {"kind": "list", "container": "tuple", "items": [_spec(item, inside) for item in items]}
    spec: Spec = {"kind": "list", "item": _spec(items[0] if items else Any, inside)}
    return spec if container == "list" else {**spec, "container": container}


def _class(cls: type, inside: tuple[Any, ...]) -> Spec:
    scalar = scalars.of(cls)
    if scalar is not None and scalar.python is cls:
        return {"kind": "primitive", "name": scalar.name}
    if issubclass(cls, enum.Enum):
        return {"kind": "enum", "name": cls.__name__, "values": [_plain(member.value, cls) for member in cls]}
    if any(cls is outer for outer in inside):
        return {"kind": "ref", "name": cls.__name__}
    if is_typeddict(cls):
        hints = typing.get_type_hints(cls, include_extras=True)
        required = sorted(getattr(cls, "__required_keys__", hints))
        fields = {name: _spec(hint, (*inside, cls)) for name, hint in sorted(hints.items())}
        return {"kind": "typed_dict", "name": cls.__name__, "fields": fields, "required": required}
    if issubclass(cls, BaseModel):
        fields = {name: _spec(info.annotation, (*inside, cls)) for name, info in sorted(cls.model_fields.items())}
        return {"kind": "typed_dict", "name": cls.__name__, "fields": fields, "required": sorted(fields)}
    if scalar is not None:
        return {"kind": "primitive", "name": scalar.name}
    raise SchemaValidationError(f"the type {cls.__qualname__} cannot be stored",
                                hint="use scalars, enums, lists, dicts, TypedDicts or pydantic models")


def _plain(value: Any, of: Any) -> Any:
    """A value of an enum or a literal as it stands in a spec."""
    if isinstance(value, enum.Enum):
        return _plain(value.value, of)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise SchemaValidationError(f"{value!r} of {of!r} cannot be stored", hint="use text, numbers, True, False, None")


def scalar_of(spec: Spec) -> tuple[str | None, bool]:
    """The scalar that every value of the type is, or None if there is no such scalar; and whether it may be None."""
    kind = spec["kind"]
    if kind == "primitive":
        name = spec["name"]
        return (None, True) if name in ("NoneType", "Any") else (name, False)
    if kind in ("enum", "literal"):
        found = {None if value is None else type(value).__name__ for value in spec["values"]}
        names = found - {None}
        return (names.pop() if len(names) == 1 else None), None in found
    if kind == "union":
        parts = [scalar_of(member) for member in spec["members"] if member.get("name") != "NoneType"]
        nullable = len(parts) < len(spec["members"]) or any(null for _, null in parts)
        names = {name for name, _ in parts}
        same = len(parts) == 1 or all(m["kind"] != "enum" for m in spec["members"])
        return (names.pop() if len(names) == 1 and same else None), nullable
    return None, False


def column_kind(spec: Spec) -> Literal["typed", "json"]:
    """Whether a field of this type has a column of its own type, or one that holds JSON."""
    return "json" if scalar_of(spec)[0] is None else "typed"
