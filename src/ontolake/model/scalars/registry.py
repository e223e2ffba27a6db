"""The table of scalars, by name and by Python type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any

from ontolake.model.errors import SchemaValidationError
from ontolake.model.scalars.base import Scalar
from ontolake.model.scalars.numbers import BoolScalar, DecimalScalar, FloatScalar, IntScalar
from ontolake.model.scalars.texts import BytesScalar, JsonScalar, StrScalar, UuidScalar
from ontolake.model.scalars.times import DateScalar, DatetimeScalar, TimedeltaScalar, TimeScalar

GROUP = "ontolake.scalars"
"""The group of entry points that are loaded when a schema has a scalar that is not registered."""

JSON = JsonScalar()
_RESERVED = ("Any", "NoneType", "blob", "json", "ref", "vector")
_lock = Lock()
_named: dict[str, Scalar] = {}
_typed: dict[type, Scalar] = {}


def register(scalar: Scalar) -> Scalar:
    """Add a scalar to the table and return it. One of the same class may be registered again: the first one stays.

    A scalar whose class was defined anew, as by a cell of a notebook that is run again, takes the place of the one
    before; values of the type of that one keep it.

    Raises `SchemaValidationError` if its name or its Python type is taken, or it cannot be what it says.
    """
    with _lock:
        before = _named.get(scalar.name)
        if before is not None and type(before) is type(scalar):
            return before
        taken = before is not None and not _is_anew(before, scalar)
        if taken or scalar.name in _RESERVED or not scalar.name.isidentifier():
            raise SchemaValidationError(f"a scalar cannot be called {scalar.name!r}",
                                        hint="choose an identifier that no other scalar has")
        if _typed.get(scalar.python, before) is not before:
            other = _typed[scalar.python].name
            raise SchemaValidationError(f"{scalar.python.__qualname__} is the scalar {other} already",
                                        hint="register a type of its own, for instance a subclass")
        if scalar.key and scalar.sqlite not in ("TEXT", "INTEGER"):
            raise SchemaValidationError(f"the scalar {scalar.name} cannot be a key: it is stored as {scalar.sqlite}",
                                        hint="encode it as text or an integer, or leave key = False")
        if scalar.compare is not None and scalar.sqlite != "TEXT":
            raise SchemaValidationError(f"the scalar {scalar.name} has an order of its own, but is stored as "
                                        f"{scalar.sqlite}", hint="compare is for scalars that are encoded as text")
        _named[scalar.name] = scalar
        _typed[scalar.python] = scalar
    return scalar


def _is_anew(before: Scalar, scalar: Scalar) -> bool:
    """Whether the classes of two scalars come from one definition that was run twice."""
    one, two = type(before), type(scalar)
    return (one.__module__, one.__qualname__) == (two.__module__, two.__qualname__)


def known(kind: type[Scalar]) -> Scalar:
    """The registered scalar of a class, registered now if it is not yet."""
    found = _named.get(kind.name) if kind.name != JSON.name else JSON
    return found if type(found) is kind else register(kind())


def others() -> tuple[Scalar, ...]:
    """Those that are not the library's own: other processes have to be told of them."""
    own = __name__.partition(".")[0]
    return tuple(one for one in every() if type(one).__module__.partition(".")[0] != own)


def carried(part: Any) -> tuple[Scalar, ...]:
    """Those of them that are in a schema or a part of one: work for other processes takes them along."""
    names = set(names_in(part))
    return tuple(one for one in others() if one.name in names)


def names_in(part: Any) -> Iterator[str]:
    """The names of all scalars in a schema or a part of one."""
    if isinstance(part, dict):
        if part.get("kind") == "primitive" and part["name"] not in ("NoneType", "Any"):
            yield part["name"]
        for one in part.values():
            yield from names_in(one)
    elif isinstance(part, list):
        for one in part:
            yield from names_in(one)


def get(name: str | None) -> Scalar:
    """The scalar of a name; the one of JSON columns for None and `json`.

    Raises `SchemaValidationError` if there is none, after loading the entry points of the group `ontolake.scalars`.
    """
    if name is None or name == JSON.name:
        return JSON
    found = _named.get(name)
    if found is None:
        _load(name)
        found = _named.get(name)
    if found is None:
        raise SchemaValidationError(f"the scalar {name!r} is not registered",
                                    hint="import the module that registers it, or name the module in an entry point of "
                                    f"the group {GROUP}")  # fmt: skip
    return found


def _load(name: str) -> None:
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        if name not in _named:
            point.load()


def of(python: type) -> Scalar | None:
    """The scalar of a Python type, or of the nearest of its bases; None if there is none."""
    return next((_typed[base] for base in python.__mro__ if base in _typed), None)


def of_value(value: Any) -> Scalar | None:
    """The scalar that a Python value is of; None if there is none."""
    return of(type(value))


def jsonable(value: Any) -> Any:
    """A Python value as JSON has it. Raises `ValueError` if it is not of a scalar, or cannot be stored."""
    found = of_value(value)
    if found is None:
        raise ValueError(f"{value!r} is not a scalar")
    return found.to_json(found.encode(value))


def every() -> Iterable[Scalar]:
    """All that are registered, in the order of registration."""
    return tuple(_named.values())


for _one in (StrScalar(), IntScalar(), FloatScalar(), BoolScalar(), DatetimeScalar(), DateScalar(), TimeScalar(),
             TimedeltaScalar(), BytesScalar(), DecimalScalar(), UuidScalar()):  # fmt: skip
    register(_one)
