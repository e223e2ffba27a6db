"""`--handlers`: the handlers, schedules and types of a module or of a file."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import ModuleType
from typing import Any, NamedTuple

from ontolake.model import Entity, Relation
from ontolake.model.imports import ModelsError, imported
from ontolake.ontology.events import Event, Handler, Schedule


class HandlerModule(NamedTuple):
    """What a module offers to a runner. `types` are the entity and relation types that it mentions by name."""

    handlers: list[Handler[Any]]
    schedules: list[Schedule]
    types: list[Any]


def load_handlers(text: str) -> HandlerModule:
    """The handlers and schedules of `module`, `path/file.py` or `module:name,other`, where names may be lists.

    Raises `ModelsError` if it cannot be imported, lacks a name, or has no handlers in it.
    """
    where, names = text, ""
    if not text.endswith(".py") and ":" in text:
        where, _, names = text.rpartition(":")
    module = imported(where)
    if names:
        values = [one for name in names.split(",") for one in _flat(_named(module, name.strip()))]
    else:
        values = [value for value in vars(module).values() if isinstance(value, Handler | Schedule)]
    found: dict[int, Any] = {id(one): one for one in values}
    handlers = [one for one in found.values() if isinstance(one, Handler)]
    schedules = [one for one in found.values() if isinstance(one, Schedule)]
    if not handlers and not schedules:
        raise ModelsError(f"{text} has no handlers in it", hint="functions marked with @on_event(EventType) are "
                          "looked for, and schedules")
    types = [value for value in vars(module).values() if inspect.isclass(value)
             and issubclass(value, Entity | Relation) and "__ontolake_options__" in vars(value)
             and value.__module__ != "ontolake.model.entity"]
    return HandlerModule(handlers, schedules, types)


def event_class(where: str, name: str) -> type[Event]:
    """The event type of a module that has this name. Raises `ModelsError`."""
    module = imported(where)
    classes = {value.type_name(): value for value in vars(module).values()
               if inspect.isclass(value) and issubclass(value, Event) and value is not Event}
    if name not in classes:
        raise ModelsError(f"{where} has no type of events called {name!r}",
                          hint=f"it has {', '.join(sorted(classes)) or 'none'}")
    return classes[name]


def _named(module: ModuleType, name: str) -> Any:
    found = getattr(module, name, None)
    if not isinstance(found, Handler | Schedule | Iterable):
        raise ModelsError(f"{module.__name__} has no handler, schedule or list of them called {name!r}",
                          hint="mark functions with @on_event(EventType)")
    return found


def _flat(value: Any) -> list[Any]:
    return [value] if isinstance(value, Handler | Schedule) else list(value)
