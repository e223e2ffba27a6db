"""`typing.TypedDict` for pydantic on Python 3.11, which takes only those of `typing_extensions`."""

from __future__ import annotations

import sys
import types
import typing
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, get_args, get_origin

from typing_extensions import TypedDict, is_typeddict

_known: dict[type, Any] = {}


def portable(annotation: Any) -> Any:
    """The annotation with every `typing.TypedDict` in it replaced by its like; itself where nothing is to be done."""
    if sys.version_info >= (3, 12):
        return annotation
    if is_typeddict(annotation) and type(annotation).__module__ == "typing":
        return _replaced(annotation)
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is None or origin is Literal or not parts:
        return annotation
    if origin is Annotated:
        return Annotated[(portable(parts[0]), *annotation.__metadata__)]
    changed = tuple(portable(part) for part in parts)
    if all(new is old for new, old in zip(changed, parts, strict=True)):
        return annotation
    if origin in (typing.Union, types.UnionType):
        return reduce(or_, changed)
    return annotation.copy_with(changed) if hasattr(annotation, "copy_with") else origin[changed]


def _replaced(cls: Any) -> Any:
    found = _known.get(cls)
    if found is None:
        found = _known[cls] = TypedDict(cls.__name__, {})  # type: ignore[operator]
        found.__required_keys__ = cls.__required_keys__
        found.__optional_keys__ = cls.__optional_keys__
        found.__annotations__ = {}
        hints = typing.get_type_hints(cls, include_extras=True)
        found.__annotations__ = {name: portable(hint) for name, hint in hints.items()}
    return found
