"""`HandlerContext`: what a handler sees and does. All of it becomes one commit, together with the event being done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ontolake.errors import Invalid
from ontolake.history.metadata import EVENT
from ontolake.ontology.commit import commit_difference
from ontolake.ontology.errors import EventLoopLimitError, HandlerError
from ontolake.ontology.events.event import Event, queued
from ontolake.ontology.events.records import Claim, Handled, QueueChange, QueuedEvent

if TYPE_CHECKING:
    from ontolake.model.entity import Entity, Relation
    from ontolake.ontology.declarations import Objects, TypeClass
    from ontolake.ontology.query.builder import QueryStart
    from ontolake.ontology.session import Session

E = TypeVar("E", bound=Event)
T = TypeVar("T")


class HandlerContext(Generic[E]):
    """One call of a handler.

    What it declares and emits is written when it returns, in one commit with the note that it is through with the
    event; if it raises, nothing is. If another commit came after its first query, it is called again with a new
    context, so that what it writes always follows from what is there.
    """

    def __init__(self, session: Session, event: E, claim: Claim, handler: str, last: bool) -> None:
        self._session = session
        self._claim = claim
        self._handler = handler
        self._last = last
        self._declared = session.declarations()
        self._emitted: list[QueuedEvent] = []
        self._metadata: dict[str, Any] = {}
        self._seen_head: int | None = None
        self._room: int | None = None
        self.event = event
        """The event that is handled."""
        self.committed = False
        """Whether `commit` was called, and what was done is there for good."""
        self.refused: Exception | None = None
        """What was raised by `commit`, or by `emit` beyond the limits; a handler cannot overlook it."""

    @property
    def attempt(self) -> int:
        """Which attempt to handle the event this is, from 1 on."""
        return self._claim.attempt

    @property
    def namespace(self) -> str | None:
        return self._claim.event.namespace or None

    def query(self) -> QueryStart:
        """Begin a query. What was declared here is not there yet."""
        self._look()
        return self._declared.query()

    def get(self, cls: type[T], key: Any) -> T | None:
        """The object of a key as it is stored, a tuple for a relation; None if there is none."""
        self._look()
        return self._declared.get(cls, key)

    def ensure(self, objects: Objects) -> None:
        """Declare that these objects are to be as they are now. Raises `SchemaValidationError`."""
        self._check_open("ensure")
        self._declared.ensure(objects)

    def ensure_all(
        self, cls: TypeClass, objects: Iterable[Entity | Relation[Any, Any]], *, cascade: bool = False
    ) -> None:  # fmt: skip
        """Declare the complete state of a type, as `Session.ensure_all` does, and raise what it raises."""
        self._check_open("ensure_all")
        self._declared.ensure_all(cls, objects, cascade)

    def delete(self, what: Any, key: Any = None, *, cascade: bool = False) -> None:
        """Declare that rows are to go, as `Session.delete` does, and raise what it raises.

        An entity to which relations lead is refused when the handler returns: it fails with a `LiveRelationsError`.
        """
        self._check_open("delete")
        self._declared.delete(what, key, cascade=cascade)

    def update(self, cls: type[T], key: Any, **fields: Any) -> T:
        """Declare that some fields of a row are to change, as `Session.update` does, and raise what it raises."""
        self._check_open("update")
        self._look()
        return self._declared.update(cls, key, fields)

    def _look(self) -> None:
        """Remember the newest commit at the first read: what is written must follow from it."""
        if self._seen_head is None:
            self._seen_head = self._session.repository.head()

    def emit(self, events: Event | Iterable[Event]) -> None:
        """Queue events when this handler is through, for the same namespace.

        Raises `EventLoopLimitError` if events have caused events for too long, or too many of them.
        """
        self._check_open("emit")
        config, cause = self._session.config, self._claim.event
        depth = cause.depth + 1
        found = [queued(one, cause.namespace, root_id=cause.root_id, depth=depth)
                 for one in ((events,) if isinstance(events, Event) else events)]
        if not found:
            return
        if depth > config.max_event_depth:
            raise self._limited(f"it is the {depth}th of a chain of events, and max_event_depth is "
                                f"{config.max_event_depth}", found[0])
        if self._room is None:
            limit = config.max_chain_events
            self._room = limit - self._session.repository.events.chain_size(cause.root_id, limit)
        self._room -= len(found)
        if self._room < 0:
            raise self._limited(f"the event {cause.root_id} has led to max_chain_events = {config.max_chain_events} "
                                "others already", found[0])
        self._emitted += found

    def add_commit_meta(self, given: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Add to the metadata of the commit. Without a difference there is no commit, and so no metadata."""
        self._check_open("add_commit_meta")
        for part in (given or {}, more):
            self._metadata.update(part)

    def commit(self) -> int | None:
        """Write everything now, and be through with the event; returns the commit, None if nothing differed.

        Nothing more can be declared after it. Called by itself when the handler returns.
        """
        self._check_open("commit")
        done = QueueChange(tuple(self._emitted), Handled(self._claim, self._handler, self._last))
        event = self._claim.event
        about = {EVENT: {"id": event.id, "type": event.event_type, "handler": self._handler}}
        session = self._session
        intents = self._declared.intents
        head = self._seen_head if intents.has_any or self._emitted else None  # else nothing follows from it
        try:
            found = commit_difference(
                session.repository, session.session_id, session.config, intents,
                {**session.instance_metadata, **about, **self._metadata}, done, expected_head=head)
        except Exception as error:
            self.refused = error
            raise
        self.committed = True
        return found

    def _limited(self, why: str, event: QueuedEvent) -> EventLoopLimitError:
        self.refused = EventLoopLimitError(
            f"the handler {self._handler} must not emit {event.event_type}: {why}",
            hint="look for handlers that cause each other's events, or raise the limit in Config")
        return self.refused

    def _check_open(self, what: str) -> None:
        if self.committed:
            raise HandlerError(f"the handler {self._handler} called {what} after commit",
                               hint="commit is the last thing that a handler does")
        if self.refused is not None:
            raise Invalid(f"the handler {self._handler} cannot go on after {type(self.refused).__name__}")
