"""Events of a typed store over HTTP: the queue, what is put into it, and dead letters.

Events belong to the store, not to a branch: the right to its first branch is the right to its queue.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ontolake.server.models import check_model
from ontolake.server.problems import RefusedError
from ontolake.server.rights import TokenScope, Touch
from ontolake.server.routes import Call, Reply, route
from ontolake.stores import TYPED

MOST = 1000
"""How many events a page has at most."""


class EventQuery(msgspec.Struct):
    """Which events, and how many at most."""

    status: Literal["ready", "waiting", "claimed", "done", "dead"] | None = None
    type: str | None = None
    namespace: str | None = None
    limit: int = 100


class DeadQuery(msgspec.Struct):
    """Which dead letters, and how many at most."""

    namespace: str | None = None
    limit: int = 100


class NewEvent(msgspec.Struct, forbid_unknown_fields=True):
    """An event to queue. An id that is queued already is not queued again."""

    type: str
    payload: dict[str, Any] = {}
    id: str | None = None
    namespace: str | None = None


class RetryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Dead events to try again, by id."""

    ids: list[str]


class EventsAnswer(msgspec.Struct):
    """Events in the order in which they were queued."""

    events: list[dict[str, Any]]


class DeadAnswer(msgspec.Struct):
    """Events that could not be handled, oldest first."""

    dead_letters: list[dict[str, Any]]


class QueuedAnswer(msgspec.Struct):
    """The id of an event, and whether it is new."""

    id: str
    queued: bool


class RetryAnswer(msgspec.Struct):
    """The events that will be tried again."""

    queued: list[str]


def _reads(call: Call) -> Iterable[Touch]:
    check_model(call.store, TYPED)
    return [Touch(TokenScope.READ, call.store.first_branch)]


def _writes(call: Call) -> Iterable[Touch]:
    check_model(call.store, TYPED)
    return [Touch(TokenScope.WRITE, call.store.first_branch)]


def _limit(query: EventQuery | DeadQuery) -> int:
    if not 1 <= query.limit <= MOST:
        raise RefusedError(422, f"limit is from 1 to {MOST}, not {query.limit}")
    return query.limit


@route("GET", "/stores/{store}/events", query=EventQuery, touches=_reads, answers={200: EventsAnswer}, tag="events")
def list_events(call: Call) -> Any:
    """Events in the order in which they were queued."""
    from ontolake.ontology.events import EventSelection
    from ontolake.ontology.events.facts import event_facts

    query: EventQuery = call.query
    chosen = EventSelection(query.namespace, query.status, query.type)
    with call.store.reading() as store:
        return EventsAnswer([event_facts(one) for one in store.repository.events.select(chosen, limit=_limit(query))])


@route("POST", "/stores/{store}/events", body=NewEvent, touches=_writes, answers={200: QueuedAnswer, 201: QueuedAnswer},
       tag="events")
def enqueue_event(call: Call) -> Any:
    """Queue an event; its fields are checked when it is handled."""
    from ontolake.ontology.events.facts import untyped_event

    body: NewEvent = call.body
    event = untyped_event(body.type, body.payload, id=body.id, namespace=body.namespace or "")
    with call.store.writing() as store:
        new = bool(store.repository.events.enqueue([event]))
    return Reply(QueuedAnswer(event.id, new), 201 if new else 200)


@route("GET", "/stores/{store}/events/dead", query=DeadQuery, touches=_reads, answers={200: DeadAnswer}, tag="events")
def list_dead_letters(call: Call) -> Any:
    """Events that could not be handled, and why."""
    from ontolake.ontology.events.facts import letter_facts

    query: DeadQuery = call.query
    with call.store.reading() as store:
        letters = store.repository.events.dead_letters(query.namespace, limit=_limit(query))
        return DeadAnswer([letter_facts(one) for one in letters])


@route("POST", "/stores/{store}/events/dead/retry", body=RetryRequest, touches=_writes, answers={200: RetryAnswer},
       tag="events")
def retry_dead_letters(call: Call) -> Any:
    """Let dead events be tried again, by the handlers that are not through with them."""
    with call.store.writing() as store:
        store.repository.events.requeue(call.body.ids)
    return RetryAnswer(call.body.ids)
