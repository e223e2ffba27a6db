"""Queues of events in copies and exports: read at the moment of the rows, and written as lines of JSON.

A line is `{"kind": "event", "event": {…}}` or `{"kind": "schedule", "schedule": {…}}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from ontolake.decoders import learn
from ontolake.model.codecs import json_text
from ontolake.model.errors import SchemaValidationError
from ontolake.ontology.errors import HeadMismatchError
from ontolake.ontology.events.records import KeptEvent, KeptLetter, KeptQueue, KeptSchedule, QueuedEvent
from ontolake.ontology.events.rules import check_text

if TYPE_CHECKING:
    from ontolake.ontology.repository.protocol import Repository

S = TypeVar("S", bound=msgspec.Struct)
_TRIES = 5


@contextmanager
def reading_with_queue(repository: Repository, *, done: bool = True) -> Iterator[KeptQueue]:
    """`repository.reading()`, with the queue as it is at that moment.

    Raises `HeadMismatchError` if runners keep changing it.
    """
    for attempt in range(_TRIES):
        with repository.reading():
            try:
                queue = repository.events.kept(done=done)
            except HeadMismatchError:  # it went on after the moment that is read
                if attempt + 1 == _TRIES:
                    raise
                continue
            yield queue
            return


class _Letter(msgspec.Struct, forbid_unknown_fields=True):
    handler: str | None
    attempts: int
    error: str
    failed_at: str


class _Event(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An event as a line has it. `commit_id` is that of the store that it comes from."""

    id: str
    type: str
    payload: dict[str, Any]
    created_at: str
    available_at: str
    root_id: str
    namespace: str = ""
    depth: int = 0
    commit_id: int | None = None
    state: Literal["open", "dead"] = "open"
    attempts: int = 0
    handled: tuple[str, ...] = ()
    error: str | None = None
    dead_letter: _Letter | None = None


class _Schedule(msgspec.Struct, forbid_unknown_fields=True):
    schedule_id: str
    last_tick: str
    namespace: str = ""


learn(_Event, _Schedule)


def queue_lines(queue: KeptQueue) -> Iterator[str]:
    """What waits in a queue, or could not be handled, as lines; what is done is left out."""
    for one in queue.events:
        if one.state != "done":
            event = one.event
            line = _Event(event.id, event.event_type, json.loads(event.payload_json), event.created_at,
                          one.available_at, event.root_id, event.namespace, event.depth, one.commit_id, one.state,
                          one.attempts, one.handled, one.error, None if one.letter is None else _Letter(*one.letter))
            yield f'{{"kind":"event","event":{msgspec.json.encode(line).decode()}}}'
    for schedule in queue.schedules:
        told = _Schedule(schedule.schedule_id, schedule.last_tick, schedule.namespace)
        yield f'{{"kind":"schedule","schedule":{msgspec.json.encode(told).decode()}}}'


def event_of(found: Any) -> KeptEvent:
    """The event of a line. Raises `SchemaValidationError` for anything else."""
    line = _converted(found, _Event)
    if (line.state == "dead") != (line.dead_letter is not None):
        raise SchemaValidationError(f"the event {line.id!r} is dead without a letter, or has one and is not")
    event = QueuedEvent(line.id, line.namespace, line.type, json_text(line.payload), line.created_at, line.root_id,
                        line.depth)
    check_text(event)
    letter = line.dead_letter
    return KeptEvent(event, None, line.state, line.attempts, line.available_at, line.handled, line.error,
                     None if letter is None else letter.failed_at,
                     None if letter is None else KeptLetter(letter.handler, letter.attempts, letter.error,
                                                            letter.failed_at))


def schedule_of(found: Any) -> KeptSchedule:
    """The schedule of a line. Raises `SchemaValidationError` for anything else."""
    line = _converted(found, _Schedule)
    return KeptSchedule(line.namespace, line.schedule_id, line.last_tick)


def _converted(found: Any, kind: type[S]) -> S:
    try:
        line = msgspec.convert(found, kind)
        for name in ("created_at", "available_at", "last_tick"):
            if hasattr(line, name):
                datetime.fromisoformat(getattr(line, name))
    except (msgspec.ValidationError, ValueError) as error:
        raise SchemaValidationError(f"this is not {'an event' if kind is _Event else 'a schedule'}: {error}") from None
    return line
