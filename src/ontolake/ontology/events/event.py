"""`Event`: something that happened, as a typed object that waits in a queue until it was handled."""

from __future__ import annotations

import inspect
import uuid
from datetime import UTC, datetime
from typing import Any

from pydantic import ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError

from ontolake.model.codecs import encode_datetime, json_text
from ontolake.model.entity import Typed
from ontolake.model.errors import SchemaValidationError
from ontolake.model.field import Field
from ontolake.ontology.events.records import QueuedEvent

ENVELOPE = ("event_id", "created_at")
"""The fields that every event has beside its payload."""


def _now() -> datetime:
    return datetime.now(UTC)


def new_id() -> str:
    """An id that no other event has."""
    return uuid.uuid4().hex


class Event(Typed):
    """Derive your events from it and declare their fields, as `name: str` or `name: Field[str]`.

    An event is known by the name of its class. Its `event_id` makes queueing safe to repeat: an id is queued once.
    """

    model_config = ConfigDict(frozen=True)
    event_id: Field[str] = Field(default_factory=new_id, min_length=1)
    created_at: Field[datetime] = Field(default_factory=_now)

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        declared = inspect.get_annotations(cls)
        for field in ENVELOPE:
            if field in declared:
                raise SchemaValidationError("the name is reserved: every event has it", type_name=cls.__name__,
                                            field=field, hint="call the field differently")

    @classmethod
    def type_name(cls) -> str:
        """The name under which events of this class are queued."""
        return cls.__name__

    def payload_json(self) -> str:
        """The fields of the event as JSON. Raises `SchemaValidationError` for what JSON cannot hold."""
        try:
            plain = self.model_dump(mode="json", exclude=set(ENVELOPE), warnings="error")
            return json_text(plain)
        except (PydanticSerializationError, ValueError) as error:
            raise SchemaValidationError(str(error), type_name=self.type_name(), key=self.event_id) from None

    @classmethod
    def restored(cls, stored: QueuedEvent) -> Any:
        """The event that was queued. Raises `SchemaValidationError` if its payload does not fit this class."""
        envelope = {"event_id": stored.id, "created_at": stored.created_at}
        text = json_text(envelope)
        payload = stored.payload_json
        joined = text if payload == "{}" else f"{text[:-1]},{payload[1:]}"
        try:
            return cls.__pydantic_validator__.validate_json(joined)
        except ValidationError as error:
            raise SchemaValidationError.of(error, cls.type_name(), stored.id) from error


class EventDeadLetter(Event):
    """What became of an event that could not be handled. Handlers of this type are told of every such event.

    `session.dead_letters()` lists those that wait to be looked at.
    """

    failed_event_id: Field[str]
    failed_event_type: Field[str]
    payload: Field[dict[str, Any]]
    namespace: Field[str | None]
    handler: Field[str | None]
    attempts: Field[int]
    error: Field[str]
    failed_at: Field[datetime]


def queued(event: Event, namespace: str, *, root_id: str | None = None, depth: int = 0) -> QueuedEvent:
    """An event as a store queues it. Raises `SchemaValidationError` if it is none, or JSON cannot hold it."""
    if not isinstance(event, Event) or type(event) is Event:
        raise SchemaValidationError(f"{event!r} is not an event", hint="derive its class from Event")
    return QueuedEvent(event.event_id, namespace, event.type_name(), event.payload_json(),
                       encode_datetime(event.created_at), root_id or event.event_id, depth)
