"""Events: queued with commits, handled once each, by as many processes as you like.

`event` is the type that users derive from, `handlers` and `schedule` say what happens when, `runner` makes it happen
and gives each handler a `context`. `store` is the queue of any engine, in the words of `records`, by the rules of
`rules`. `letters` are dead ones, `copies` are queues in exports, `facts` events as JSON.
"""

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
