"""Dead letters: what is told of an event that could not be handled."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime

from ontolake.model.codecs import encode_datetime
from ontolake.ontology.events.event import EventDeadLetter
from ontolake.ontology.events.records import QueuedEvent


def dead_letter(
    event: QueuedEvent, handler: str | None, attempts: int, error: str, failed_at: datetime
) -> EventDeadLetter:  # fmt: skip
    """The letter about an event, of which there is one for each time that it fails for good."""
    letter_id = hashlib.sha256(f"{event.id}\0{encode_datetime(failed_at)}".encode()).hexdigest()[:32]
    return EventDeadLetter(
        event_id=letter_id, created_at=failed_at,
        failed_event_id=event.id, failed_event_type=event.event_type, payload=json.loads(event.payload_json),
        namespace=event.namespace or None, handler=handler, attempts=attempts, error=error, failed_at=failed_at)
