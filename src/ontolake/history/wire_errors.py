"""Errors as JSON that loses nothing, so that a client raises the very class that a server met, with its fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from ontolake.errors import Invalid, OntolakeError
from ontolake.history import wire

_ROOT = "ontolake."


def classes_of(error: OntolakeError) -> list[str]:
    """The names of an error's class and of its bases, the nearest first."""
    return [f"{cls.__module__}.{cls.__qualname__}" for cls in type(error).__mro__ if issubclass(cls, OntolakeError)]


def fields_of(error: OntolakeError) -> dict[str, Any]:
    """What an error carries, encoded. What has no form is left out."""
    found = {}
    for name, value in vars(error).items():
        try:
            found[name] = wire.encode(value)
        except Invalid:
            continue
    return found


def rebuild(classes: Iterable[str], message: str, fields: Mapping[str, Any]) -> OntolakeError | None:
    """The error of the first of some classes that this installation knows, with encoded fields; None if it knows none
    but the root of all errors."""
    for name in classes:
        cls = _class(name)
        if cls is not None and cls is not OntolakeError:
            error: OntolakeError = cls.__new__(cls, message)
            OntolakeError.__init__(error, message)
            error.__dict__.update({field: wire.decode(value) for field, value in fields.items()})
            return error
    return None


def _class(name: str) -> type[OntolakeError] | None:
    """The class of errors of a name; None for anything else, or if a package that it needs is missing."""
    module, _, cls = name.rpartition(".")
    if not module.startswith(_ROOT) or not module.endswith("errors"):
        return None
    try:
        found = getattr(import_module(module), cls, None)
    except ImportError:
        return None
    return found if isinstance(found, type) and issubclass(found, OntolakeError) else None
