"""What a queue is made of: events as they are stored, claims on them, and what a commit does to the queue."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, NamedTuple

State = Literal["open", "done", "dead"]
Status = Literal["ready", "waiting", "claimed", "done", "dead"]
STATUSES: tuple[Status, ...] = ("ready", "waiting", "claimed", "done", "dead")


class QueuedEvent(NamedTuple):
    """An event to be queued. `root_id` is the event that started the chain, `depth` how far down it this one is."""

    id: str
    namespace: str
    event_type: str
    payload_json: str
    created_at: str
    root_id: str
    depth: int = 0


class Claim(NamedTuple):
    """An event that one runner may handle, for as long as the claim is renewed.

    `attempt` counts from 1; `handled` names the handlers that are through with it.
    """

    event: QueuedEvent
    claim_id: str
    attempt: int
    handled: tuple[str, ...]


class Handled(NamedTuple):
    """A handler is through with a claimed event; with the `last` one the event is done.

    `handler` is None where no handler was left to do anything.
    """

    claim: Claim
    handler: str | None
    last: bool


class QueueChange(NamedTuple):
    """What happens to the queue together with a commit: all of both, or nothing."""

    queued: tuple[QueuedEvent, ...] = ()
    handled: Handled | None = None


class StoredEvent(NamedTuple):
    """An event of the queue and how it stands.

    `ready` events wait for a runner and `waiting` ones for their next attempt; `claimed` ones are being handled.
    """

    id: str
    namespace: str
    event_type: str
    payload: dict[str, Any]
    status: Status
    created_at: datetime
    commit_id: int | None
    root_id: str
    depth: int
    attempts: int
    available_at: datetime
    handled: tuple[str, ...]
    error: str | None
    done_at: datetime | None
    claimed_by: str | None
    claimed_until: datetime | None


class EventSelection(NamedTuple):
    """Which events are meant: those that fit everything that is given. `before` is about when they were created."""

    namespace: str | None = None
    status: Status | None = None
    event_type: str | None = None
    before: datetime | None = None
    id: str | None = None


class RunnerInfo(NamedTuple):
    """A session that handles events, and when it last said so."""

    session_id: str
    namespace: str
    started_at: datetime
    last_heartbeat: datetime
    metadata: dict[str, Any]


class KeptLetter(NamedTuple):
    """Why an event is dead, as it is stored."""

    handler: str | None
    attempts: int
    error: str
    failed_at: str


class KeptEvent(NamedTuple):
    """All that a queue keeps of an event, but for who is handling it: what copies are made of."""

    event: QueuedEvent
    commit_id: int | None
    state: State
    attempts: int
    available_at: str
    handled: tuple[str, ...]
    error: str | None
    done_at: str | None
    letter: KeptLetter | None


class KeptSchedule(NamedTuple):
    """The last tick of a schedule that was dealt with."""

    namespace: str
    schedule_id: str
    last_tick: str


class KeptQueue(NamedTuple):
    """A whole queue: its events in their order, and its schedules."""

    events: tuple[KeptEvent, ...] = ()
    schedules: tuple[KeptSchedule, ...] = ()
