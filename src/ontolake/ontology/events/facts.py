"""Events as JSON, as commands print and servers send them, and events from JSON whose class is not at hand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ontolake.model.codecs import encode_datetime, json_text
from ontolake.model.errors import SchemaValidationError
from ontolake.ontology.events.event import EventDeadLetter, new_id
from ontolake.ontology.events.records import QueuedEvent, StoredEvent


def untyped_event(type: str, fields: Mapping[str, Any], *, id: str | None = None, namespace: str = "") -> QueuedEvent:
    """An event of a class that is not at hand; its fields are checked when it is handled.

    Raises `SchemaValidationError` if the type cannot be a class, the id is empty, or JSON cannot hold the fields.
    """
    if not type.isidentifier():
        raise SchemaValidationError(f"{type!r} cannot be the name of a class", field="type")
    if id == "":
        raise SchemaValidationError("an id must not be empty", type_name=type, field="id")
    event_id = id or new_id()
    try:
        payload = json_text(dict(fields))
    except (ValueError, TypeError) as error:
        raise SchemaValidationError(str(error), type_name=type, key=event_id) from None
    return QueuedEvent(event_id, namespace, type, payload, encode_datetime(datetime.now(UTC)), event_id)


def event_facts(event: StoredEvent) -> dict[str, Any]:
    """All that is known of an event."""
    return {
        "id": event.id, "namespace": event.namespace or None, "type": event.event_type, "status": event.status,
        "payload": event.payload, "created_at": event.created_at.isoformat(), "commit_id": event.commit_id,
        "root_id": event.root_id, "depth": event.depth, "attempts": event.attempts,
        "available_at": event.available_at.isoformat(), "handled_by": list(event.handled), "error": event.error,
        "done_at": event.done_at and event.done_at.isoformat(), "claimed_by": event.claimed_by,
        "claimed_until": event.claimed_until and event.claimed_until.isoformat(),
    }  # fmt: skip


def letter_facts(letter: EventDeadLetter) -> dict[str, Any]:
    """What became of an event that could not be handled."""
    return {
        "id": letter.failed_event_id, "namespace": letter.namespace, "type": letter.failed_event_type,
        "payload": letter.payload, "handler": letter.handler, "attempts": letter.attempts, "error": letter.error,
        "failed_at": letter.failed_at.isoformat(),
    }  # fmt: skip
