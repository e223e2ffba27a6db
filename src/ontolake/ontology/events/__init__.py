"""Events: queued with commits, handled once each, by as many processes as you like."""

from ontolake.ontology.events.context import HandlerContext
from ontolake.ontology.events.event import Event, EventDeadLetter
from ontolake.ontology.events.handlers import Handler, on_event
from ontolake.ontology.events.records import (
    Claim,
    EventSelection,
    Handled,
    QueueChange,
    QueuedEvent,
    RunnerInfo,
    StoredEvent,
)
from ontolake.ontology.events.runner import RunReport
from ontolake.ontology.events.schedule import Schedule
from ontolake.ontology.events.store import EventStore

__all__ = [
    "Claim", "Event", "EventDeadLetter", "EventSelection", "EventStore", "Handled", "Handler", "HandlerContext",
    "QueueChange", "QueuedEvent", "RunReport", "RunnerInfo", "Schedule", "StoredEvent", "on_event",
]  # fmt: skip
