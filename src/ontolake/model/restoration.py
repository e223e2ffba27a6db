"""Classes from stored schemas: what tools use where the user's own classes are not at hand.

A restored class has the schema it was made from, to the hash, so it can be given to sessions, queries and commits.
It knows neither defaults nor validators; enums have the stored values, and what a type says of itself by recursion
(`ref`) is any JSON.
"""

from __future__ import annotations

import enum
import keyword
import re
from collections.abc import Iterable, Mapping
from functools import cache, reduce
from operator import or_
from types import new_class
from typing import Any, Literal, NotRequired

from pydantic import BaseModel
from typing_extensions import TypedDict

from ontolake.model import scalars
from ontolake.model.composite import KEY
from ontolake.model.entity import Entity, Relation
from ontolake.model.field import Field
from ontolake.model.schema import Schema
from ontolake.model.types import Kind, type_info
from ontolake.model.typespec import Spec

_TYPES: dict[str, Any] = {"NoneType": None, "Any": Any}
_CONTAINERS: dict[str, Any] = {"set": set, "frozenset": frozenset, "list": list}


def restore(
    schemas: Iterable[Schema], given: Mapping[tuple[Kind, str], Any] | None = None
) -> dict[tuple[Kind, str], Any]:  # fmt: skip
    """A class for every schema, by kind and name. Classes that are `given` stand for those of their names.

    An end of a relation for which there is neither a schema nor a class becomes an entity with nothing but a key,
    and is not among the results.
    """
    wanted = {(schema["kind"], schema["name"]): schema for schema in schemas}
    found: dict[tuple[Kind, str], Any] = dict(given or {})
    ends: dict[str, Any] = {}
    for (kind, name), schema in sorted(wanted.items()):  # entities come before relations
        if (kind, name) in found:
            continue
        if kind == "entity":
            found[kind, name] = _restored(schema, Entity, {})
        else:
            pair = tuple(found.get(("entity", schema[side])) or _end(schema, side, ends) for side in ("left", "right"))
            found[kind, name] = _restored(schema, Relation, {"__ontolake_ends__": pair})
    return found


def _end(schema: Schema, side: str, known: dict[str, Any]) -> Any:
    name = schema[side]
    if name not in known:
        spec = schema["fields"][f"{side}_key"]
        known[name] = _restored({"kind": "entity", "name": name, "keys": ["key"], "fields": {"key": spec}}, Entity, {})
    return known[name]


def _restored(schema: Schema, base: Any, extra: dict[str, Any]) -> Any:
    parts = schema.get("key_parts", [])
    keys = parts or schema["keys"]
    annotations: dict[str, Any] = {}
    namespace: dict[str, Any] = {"__annotations__": annotations, "__module__": __name__}
    specs: dict[str, Spec] = {}
    for stored in [*keys, *(name for name in schema["fields"] if name not in keys)]:
        spec = schema["fields"][stored]
        if parts and stored == KEY:
            specs[KEY] = spec
            continue
        end = schema["kind"] == "relation" and stored in keys[:2]
        name = stored if end else attribute(stored, annotations)
        annotations[name] = annotation_of(spec)
        specs[name] = spec
        if not end:
            marked = {"primary_key": schema["kind"] == "entity", "instance_key": schema["kind"] == "relation"}
            namespace[name] = Field(name=stored, unique=stored in schema.get("unique", ()),
                                    **(marked if stored in keys else {}))
    cls = new_class(schema["name"], (base,), exec_body=lambda body: body.update(namespace))
    for name, value in extra.items():
        type.__setattr__(cls, name, value)
    type_info(cls).adopt(specs)
    return cls


def attribute(stored: str, taken: Mapping[str, Any]) -> str:
    """A name that an attribute can have: the stored one, if that is possible."""
    name = re.sub(r"\W", "_", stored).lstrip("_") or "field"
    name = f"field_{name}" if name[0].isdigit() else name
    reserved = ("meta", "left_key", "right_key")
    while name in taken or hasattr(BaseModel, name) or keyword.iskeyword(name) or name in reserved:
        name += "_"
    return name


def annotation_of(spec: Spec) -> Any:
    """A type that a spec could have been made of."""
    kind = spec["kind"]
    if kind == "primitive":
        name = spec["name"]
        return _TYPES[name] if name in _TYPES else scalars.get(name).python
    if kind == "union":
        return reduce(or_, [_member(part) for part in spec["members"]])
    if kind == "literal":
        return Literal[tuple(spec["values"])]
    if kind == "enum":
        return _enum(spec["name"], tuple((type(value), value) for value in spec["values"]))
    if kind == "list":
        return _list(spec)
    if kind == "dict":
        return dict[annotation_of(spec["key"]), annotation_of(spec["value"])]  # type: ignore[misc]
    if kind == "typed_dict":
        fields = {name: annotation_of(part) for name, part in spec["fields"].items()}
        optional = fields.keys() - set(spec["required"])
        return TypedDict(spec["name"], {name: NotRequired[part] if name in optional else part  # type: ignore[operator]
                                        for name, part in fields.items()})  # fmt: skip
    return Any


@cache
def _enum(name: str, values: tuple[tuple[type, Any], ...]) -> Any:
    """One class for the same enum of several stores, so that its members are the same too."""
    return enum.Enum(name, {_member_name(number, value): value for number, (_, value) in enumerate(values)})


def _member(spec: Spec) -> Any:
    """A member of a union, in a form that `|` takes."""
    found = annotation_of(spec)
    return type(None) if found is None else found


def _list(spec: Spec) -> Any:
    if "items" in spec:
        return tuple.__class_getitem__(tuple(annotation_of(item) for item in spec["items"]))
    item = annotation_of(spec["item"])
    if spec.get("container") == "tuple":
        return tuple.__class_getitem__((item, ...))
    return _CONTAINERS[spec.get("container", "list")][item]


def _member_name(number: int, value: Any) -> str:
    """A member's name: it is not stored, so it is made of the value."""
    text = re.sub(r"\W", "_", str(value)).strip("_").upper()
    return f"{text}_{number}" if text and not text[0].isdigit() else f"VALUE_{number}"
