"""What the queue of events is made of on objects: where each object is, and what stands in it.

`events/queue.json` is the queue, swapped with every change of it. It holds the newest events itself; older ones that
are still waiting are in pages, which are written once, and what became of those since is kept beside. Events that are
done have an object each, under a name made from their id, so that the queue is as small as what is left to do.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from ontolake.decoders import learn
from ontolake.ontology.events.event import EventDeadLetter
from ontolake.ontology.events.letters import dead_letter
from ontolake.ontology.events.records import QueuedEvent, Status
from ontolake.ontology.repository.times import parse_time

FOLDER = "events/"
QUEUE = "events/queue.json"
PAGES, PAST, CHAINS, RUNNERS = "events/pages/", "events/past/", "events/chains/", "events/runners/"
CHANGE = "events.json"
"""How a commit calls what it does to the queue."""
REMEMBERED = 32
"""How many swaps of the queue can be recognized afterwards."""

Pointer = tuple[int, str]
"""A commit, and the object that says what it does to the queue."""


class Held(msgspec.Struct, frozen=True):
    """A claim: whose it is, and until when."""

    claim_id: str
    session_id: str
    expires_at: str


class Letter(msgspec.Struct, frozen=True):
    """Why an event is dead."""

    handler: str | None
    attempts: int
    error: str
    failed_at: str


class EventState(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an event stands. One that is `gone` was removed.

    `unsure` is set while a commit of an earlier claim may yet come through.
    """

    available_at: str
    what: Literal["open", "done", "dead", "gone"] = "open"
    attempts: int = 0
    handled: tuple[str, ...] = ()
    error: str | None = None
    done_at: str | None = None
    held: Held | None = None
    letter: Letter | None = None
    unsure: bool = False


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event of the queue. Numbers are given in the order in which events come, and never twice."""

    seq: int
    event: QueuedEvent
    state: EventState
    commit_id: int | None = None


class EventPage(msgspec.Struct, frozen=True):
    """Events in their order."""

    items: tuple[Item, ...]


class PageRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A page: its numbers, how many events it holds and how many of them are done, and for each kind of event since
    when one can be due."""

    path: str
    size: int
    first: int
    last: int
    count: int
    done: int = 0
    dead: int = 0
    due: dict[str, str] = {}


class Queue(msgspec.Struct, frozen=True, omit_defaults=True):
    """`events/queue.json`. What commits up to `commit_id` do to the queue is done."""

    version: int = 0
    commit_id: int = 0
    next_seq: int = 1
    fresh: tuple[Item, ...] = ()
    pages: tuple[PageRef, ...] = ()
    changed: dict[int, EventState] = {}
    schedules: dict[str, str] = {}
    nonces: tuple[str, ...] = ()


class Through(msgspec.Struct, frozen=True):
    """A handler is through with an event; with the `last` one the event is done."""

    seq: int
    event_id: str
    handler: str | None
    last: bool


class CommitEvents(msgspec.Struct, frozen=True, omit_defaults=True):
    """`commits/N-…/events.json`: what a commit does to the queue. `before` leads to the last one that did anything."""

    commit_id: int
    created_at: str
    before: Pointer | None = None
    queued: tuple[QueuedEvent, ...] = ()
    through: Through | None = None


class PastEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event that is done. Without an item it was removed, and so was every earlier one of its id."""

    seq: int
    item: Item | None = None


class RunnerNote(msgspec.Struct, frozen=True):
    """A runner that is alive."""

    session_id: str
    namespace: str
    started_at: str
    last_heartbeat: str
    metadata_json: str


learn(Queue, EventPage, CommitEvents, PastEvent, RunnerNote)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def past_path(event_id: str) -> str:
    name = digest(event_id)
    return f"{PAST}{name[:2]}/{name[2:]}.json"


def chain_folder(root_id: str) -> str:
    return f"{CHAINS}{digest(root_id)[:32]}/"


def chain_path(event: QueuedEvent) -> str:
    return chain_folder(event.root_id) + digest(event.id)[:32]


def runner_path(session_id: str) -> str:
    return f"{RUNNERS}{digest(session_id)[:32]}.json"


def kind_of(namespace: str, event_type: str) -> str:
    """How a page calls events of a type in a namespace."""
    return f"{event_type}/{namespace}"  # the name of a class has no slash


def schedule_key(namespace: str, schedule_id: str) -> str:
    return msgspec.json.encode((namespace, schedule_id)).decode()


def schedule_names(key: str) -> tuple[str, str]:
    return msgspec.json.decode(key, type=tuple[str, str])


def status_of(state: EventState, now: str) -> Status:
    if state.what == "done" or state.what == "dead":
        return state.what
    if state.held is not None and state.held.expires_at > now:
        return "claimed"
    return "waiting" if state.available_at > now else "ready"


def due_at(state: EventState) -> str:
    """Since when an open event can be claimed."""
    return max(state.available_at, state.held.expires_at) if state.held else state.available_at


def page_ref(path: str, data: bytes, items: tuple[Item, ...]) -> PageRef:
    due: dict[str, str] = {}
    for item in items:
        if item.state.what == "open":
            kind, since = kind_of(item.event.namespace, item.event.event_type), due_at(item.state)
            due[kind] = min(due.get(kind, since), since)
    return PageRef(path, len(data), items[0].seq, items[-1].seq, len(items),
                   sum(item.state.what == "done" for item in items),
                   sum(item.state.what == "dead" for item in items), due)


def letter_of(item: Item) -> EventDeadLetter | None:
    """The letter about a dead event."""
    found = item.state.letter
    if found is None:
        return None
    return dead_letter(item.event, found.handler, found.attempts, found.error, parse_time(found.failed_at))
