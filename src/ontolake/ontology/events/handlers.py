"""`@on_event`: says which function handles which events."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ontolake.errors import Invalid
from ontolake.ontology.events.event import Event

if TYPE_CHECKING:
    from ontolake.ontology.events.context import HandlerContext

E = TypeVar("E", bound=Event)


class Handler(Generic[E]):
    """What `@on_event` makes of a function. It can still be called."""

    def __init__(
        self, function: Callable[[HandlerContext[E]], object], event_type: type[E], priority: int, name: str
    ) -> None:  # fmt: skip
        self.function = function
        self.event_type = event_type
        self.priority = priority
        self.name = name

    def __call__(self, context: HandlerContext[E]) -> object:
        return self.function(context)

    def __repr__(self) -> str:
        return f"<handler {self.name} of {self.event_type.type_name()}, priority {self.priority}>"


def on_event(
    event_type: type[E], *, priority: int = 100, name: str | None = None
) -> Callable[[Callable[[HandlerContext[E]], object]], Handler[E]]:  # fmt: skip
    """Make a function, which takes a `HandlerContext`, a handler of events of just this type.

    Of several handlers of an event the one with the lowest `priority` goes first; where it is the same, in the order
    in which they are given to `run`. `name` is how the queue remembers that the handler is through with an event: by
    default the function's module and name. Raises `Invalid` for what cannot be a handler.
    """
    if not (isinstance(event_type, type) and issubclass(event_type, Event)) or event_type is Event:
        raise Invalid(f"{event_type!r} is not a type of events", hint="derive it from Event")
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise Invalid(f"a priority is a whole number, not {priority!r}")

    def mark(function: Callable[[HandlerContext[E]], object]) -> Handler[E]:
        called = name or f"{function.__module__}.{getattr(function, '__qualname__', repr(function))}"
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise Invalid(f"the handler {called} is not a plain function", hint="use def, without await and yield")
        try:
            inspect.signature(function).bind(None)
        except TypeError:
            raise Invalid(f"the handler {called} must take one argument, the context",
                          hint=f"write def {getattr(function, '__name__', 'handle')}(context): …") from None
        return Handler(function, event_type, priority, called)

    return mark


def by_type(handlers: Iterable[Any]) -> dict[str, list[Handler[Any]]]:
    """Handlers by the name of their event type, first one first. Raises `Invalid` for what are none, or alike."""
    found: dict[str, list[Handler[Any]]] = {}
    names: set[str] = set()
    for handler in handlers:
        if not isinstance(handler, Handler):
            raise Invalid(f"{handler!r} is not a handler", hint="mark it with @on_event(EventType)")
        if handler.name in names:
            raise Invalid(f"two handlers are called {handler.name}", hint="give one of them a name=")
        names.add(handler.name)
        same = found.setdefault(handler.event_type.type_name(), [])
        if same and same[0].event_type is not handler.event_type:
            raise Invalid(f"two types of events are called {handler.event_type.type_name()}")
        same.append(handler)
    for same in found.values():
        same.sort(key=lambda handler: handler.priority)
    return found
