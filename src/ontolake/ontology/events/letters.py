"""Dead letters: what is told of an event that could not be handled."""

from __future__ import annotations

import json
from datetime import datetime

from ontolake.ontology.events.event import EventDeadLetter
from ontolake.ontology.events.records import QueuedEvent


def dead_letter(
    event: QueuedEvent, handler: str | None, attempts: int, error: str, failed_at: datetime
) -> EventDeadLetter:  # fmt: skip
    """The letter about an event."""
    return EventDeadLetter(
        failed_event_id=event.id, failed_event_type=event.event_type, payload=json.loads(event.payload_json),
        namespace=event.namespace or None, handler=handler, attempts=attempts, error=error, failed_at=failed_at)
