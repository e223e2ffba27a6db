"""The events that tests use, and handlers whose effects can be counted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from waiting import wait_for

from ontolake.model import Entity, Field
from ontolake.ontology import Event, EventSelection, HandlerContext, Session, on_event

QUICK: dict[str, Any] = {"event_poll": 0.01, "event_backoff": 0.0, "lock_timeout": 30.0}


class Stock(Entity):
    id: Field[str] = Field(primary_key=True)
    count: Field[int] = Field(default=0)


class Parcel(Entity):
    """One for every shipped order: its events leave a trace of how often they were handled."""

    id: Field[str] = Field(primary_key=True)
    times: Field[int] = Field(default=0)


TYPES: list[type[Entity]] = [Stock, Parcel]


class Ordered(Event):
    item: str
    count: Field[int] = Field(default=1)


class Shipped(Event):
    order: str


@on_event(Ordered)
def take_from_stock(context: HandlerContext[Ordered]) -> None:
    """Reads and writes the same row, so that two of these in the same moment would lose one."""
    event = context.event
    found = context.query().entities(Stock).where(Stock.id == event.item).first()
    context.ensure(Stock(id=event.item, count=(found.count if found else 0) + event.count))


@on_event(Ordered, priority=200)
def ship(context: HandlerContext[Ordered]) -> None:
    context.emit(Shipped(order=context.event.event_id))


@on_event(Shipped)
def note_parcel(context: HandlerContext[Shipped]) -> None:
    order = context.event.order
    found = context.query().entities(Parcel).where(Parcel.id == order).first()
    context.ensure(Parcel(id=order, times=(found.times if found else 0) + 1))
    context.add_commit_meta(order=order)


HANDLERS = [take_from_stock, ship, note_parcel]


def opened(url: str, engine: str | None = None, namespace: str | None = None, **config: Any) -> Session:
    return Session(url, namespace, entity_types=TYPES, engine_version=engine, config={**QUICK, **config})


@contextlib.contextmanager
def session_at(url: str, engine: str | None = None, namespace: str | None = None, **config: Any) -> Iterator[Session]:
    session = opened(url, engine, namespace, **config)
    try:
        yield session
    finally:
        session.close()


def statuses(session: Session) -> dict[str, str]:
    return {event.id: event.status for event in session.events.select(EventSelection())}


def finish(session: Session, handlers: list[Any] | None = None, seconds: float = 120) -> None:
    """Handle events until all are done or dead, also those that others have claimed and will not finish."""
    def done() -> bool:
        if {"ready", "waiting", "claimed"}.isdisjoint(statuses(session).values()):
            return True
        if session.run(HANDLERS if handlers is None else handlers, until_idle=True).iterations == 1:
            session.run(HANDLERS if handlers is None else handlers, max_iterations=5)  # wait for what others have
        return False

    wait_for(done, seconds)


def stock(session: Session) -> dict[str, int]:
    return {one.id: one.count for one in session.query().entities(Stock).collect()}


def parcels(session: Session) -> dict[str, int]:
    return {one.id: one.times for one in session.query().entities(Parcel).collect()}
