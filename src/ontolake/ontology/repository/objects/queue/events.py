"""The queue of events of a typed store on objects."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ontolake import faults
from ontolake.model.codecs import encode_datetime, json_text
from ontolake.ontology.errors import StorageBackendError, UnknownEventError
from ontolake.ontology.events.event import EventDeadLetter
from ontolake.ontology.events.records import (
    Claim,
    EventSelection,
    Handled,
    KeptQueue,
    QueueChange,
    QueuedEvent,
    RunnerInfo,
    StoredEvent,
)
from ontolake.ontology.events.rules import STALE, check_text, claim_lost, id_taken, in_seconds, same_event
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.access import StoreObjects, again
from ontolake.ontology.repository.objects.lease import fence
from ontolake.ontology.repository.objects.moment import HeadSnapshot, Records
from ontolake.ontology.repository.objects.queue import layout as names
from ontolake.ontology.repository.objects.queue.copies import kept_queue, restore_queue, state_of
from ontolake.ontology.repository.objects.queue.layout import (
    CommitEvents,
    EventState,
    Held,
    Item,
    Letter,
    Pointer,
    RunnerNote,
    Through,
    letter_of,
    status_of,
)
from ontolake.ontology.repository.objects.queue.queue import QueueObjects, write_down
from ontolake.ontology.repository.objects.queue.view import QueueView, state_through
from ontolake.ontology.repository.times import now_text, parse_time

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.base import S3Repository

_CLAIMS = 64
"""How many claims are remembered with the number of their event."""


class QueueCommit(NamedTuple):
    """What a commit does to the queue: where its manifest has to lead, and what is written with it."""

    pointer: Pointer | None
    objects: Mapping[str, bytes]
    lag: int
    """How many commits the queue is behind then."""
    check: Callable[[], None]
    """Raises `LeaseExpiredError` if the claim was taken over since."""


class Claims:
    """Claims by the events that they are on, as the threads of one session see them."""

    def __init__(self) -> None:
        self._seqs: dict[str, int] = {}

    def remember(self, claim_id: str, seq: int) -> None:
        if len(self._seqs) >= _CLAIMS:
            self._seqs.clear()  # they are found by their events too
        self._seqs[claim_id] = seq

    def held(self, view: QueueView, claim: Claim, at: str | None = None) -> Item | None:
        """The event of a claim that is good, now or at a moment; None if it is not."""
        seq = self._seqs.get(claim.claim_id)
        item = view.find([claim.event.id]).get(claim.event.id) if seq is None else view.of(seq)
        held = None if item is None else item.state.held
        good = held is not None and held.claim_id == claim.claim_id and held.expires_at > (at or now_text())
        return item if good and item is not None and item.state.what == "open" else None


class S3EventStore:
    """The queue of a typed store on objects, whichever engine version it has."""

    def __init__(self, repository: S3Repository) -> None:
        self._repository = repository
        self._access = repository.access
        self._config = repository.config
        self._claims = Claims()
        self.queue = QueueObjects(self._access, repository.records, self._config)

    def _check_writable(self) -> None:
        if self._config.readonly:
            raise StorageBackendError(f"{self._repository.uri!r} is open for reading only",
                                      hint="open it without readonly")

    # queueing
    def enqueue(self, events: Sequence[QueuedEvent]) -> int:
        self._check_writable()
        for event in events:
            check_text(event)
        return self.queue.change("events queued", lambda view: self._add(view, events))

    def _new(self, view: QueueView, events: Collection[QueuedEvent]) -> list[QueuedEvent]:
        """Those that are not queued yet, each once. Raises `Invalid` if another event has the id of one."""
        known = {one: item.event for one, item in self.queue.known(view, events).items()}
        new = []
        for event in events:
            check_text(event)
            if not same_event(known.setdefault(event.id, event), event):
                raise id_taken(event)
            if known[event.id] is event:
                new.append(event)
        return [*dict.fromkeys(new)]

    def _add(self, view: QueueView, events: Collection[QueuedEvent]) -> int:
        new, now = self._new(view, events), now_text()
        for event in new:
            view.add(event, None, EventState(now))
        return len(new)

    def chain_size(self, root_id: str, limit: int) -> int:
        size = self.queue.read().chain_size(root_id)
        if size < limit:
            folder = names.chain_folder(root_id)
            size += len(again(lambda: [*self._access.store.list(folder)]))
        return size

    # handling
    def claim(self, namespace: str, event_types: Sequence[str], session_id: str, ttl: float) -> Claim | None:
        self._check_writable()
        while True:
            found = self.queue.change(
                "event claimed", lambda view: _take(view, namespace, event_types, session_id, ttl))
            if found is None:
                return None
            item, claim = found
            self._claims.remember(claim.claim_id, item.seq)
            if not item.state.unsure:
                return claim
            # A commit of whoever had it before is stopped now, or is there and says what was done.
            fence(self._access, claims=True)
            faults.reach("ontology: earlier claims fenced off")
            now = self._claims.held(self.queue.read(), claim)
            if now is not None:
                return claim._replace(handled=now.state.handled)

    def keeper(self) -> S3Keeper:
        self._check_writable()
        return S3Keeper(self._repository, self._claims)

    def release(self, claim: Claim, *, delay: float = 0.0, counted: bool = True) -> None:
        def give_back(view: QueueView) -> None:
            item = self._claims.held(view, claim)
            if item is not None:
                attempts = item.state.attempts - (not counted)
                view.put(item, replace(item.state, held=None, attempts=attempts, available_at=in_seconds(delay)))

        self.queue.change("claim released", give_back)

    def fail(self, claim: Claim, *, error: str, delay: float) -> None:
        def failed(view: QueueView) -> None:
            item = self._held(view, claim)
            view.put(item, replace(item.state, held=None, error=error, available_at=in_seconds(delay), unsure=False))

        self.queue.change("failure noted", failed)

    def bury(self, claim: Claim, letter: EventDeadLetter, told: Sequence[QueuedEvent] = ()) -> None:
        failed_at = encode_datetime(letter.failed_at)

        def dead(view: QueueView) -> None:
            item = self._held(view, claim)
            view.put(item, replace(
                item.state, what="dead", held=None, error=letter.error, done_at=failed_at, unsure=False,
                letter=Letter(letter.handler, letter.attempts, letter.error, failed_at)))
            self._add(view, told)

        self.queue.change("dead letter written", dead)

    def _held(self, view: QueueView, claim: Claim, at: str | None = None) -> Item:
        item = self._claims.held(view, claim, at)
        if item is None:
            raise claim_lost(claim)
        return item

    # together with commits
    def join(self, change: QueueChange, moment: HeadSnapshot, commit_id: int, folder: str, began: str) -> QueueCommit:
        """What a commit after `moment` does to the queue, to be written with it.

        Raises `LeaseExpiredError` if the claim was not good any more when the commit `began`, and `Invalid` if another
        event has the id of one that is queued. Who takes the claim over later moves the head, which stops the commit.
        """
        before = moment.newest
        view = self.queue.read(moment)
        through = None if change.handled is None else self._through(view, change.handled, began)
        new = self._new(view, change.queued)
        pointer = None if before is None else before.queue
        if through is None and not new:
            return QueueCommit(pointer, {}, 0, lambda: None)
        path = f"{folder}/{names.CHANGE}"
        told = CommitEvents(commit_id, now_text(), pointer, tuple(new), through)
        self.queue.remember(path, told)

        def check() -> None:
            if change.handled is not None:
                self._through(self.queue.read(), change.handled, began)

        return QueueCommit((commit_id, path), {path: layout.compact(told)}, view.behind + 1, check)

    def joined(self, done: QueueCommit) -> None:
        """After the commit: write down what commits have done, if there is much of it."""
        if done.lag >= self._config.sizes.queue_lag:
            self.queue.settle()

    def alone(self, change: QueueChange, began: str) -> None:
        """The same where there is no commit: one swap of the queue. Raises what `join` raises."""

        def apply(view: QueueView) -> None:
            if change.handled is not None:
                through = self._through(view, change.handled, began)
                item = self._held(view, change.handled.claim, began)
                view.put(item, state_through(item.state, through, now_text()))
            self._add(view, change.queued)

        self.queue.change("queue changed", apply)

    def _through(self, view: QueueView, handled: Handled, began: str) -> Through:
        item = self._held(view, handled.claim, began)
        if handled.handler is not None and handled.handler in item.state.handled:
            raise claim_lost(handled.claim)
        return Through(item.seq, item.event.id, handled.handler, handled.last)

    # schedules
    def last_tick(self, namespace: str, schedule_id: str) -> datetime | None:
        found = self.queue.read().schedules.get(names.schedule_key(namespace, schedule_id))
        return None if found is None else parse_time(found)

    def advance(
        self, namespace: str, schedule_id: str, seen: datetime | None, tick: datetime, event: QueuedEvent | None
    ) -> bool:  # fmt: skip
        self._check_writable()
        key = names.schedule_key(namespace, schedule_id)

        def move(view: QueueView) -> bool:
            last = view.schedules.get(key)
            if (None if last is None else parse_time(last)) != seen:
                return False
            view.schedules[key] = tick.astimezone(UTC).isoformat(timespec="microseconds")
            view.dirty = True
            if event is not None:
                self._add(view, [event])
            return True

        return self.queue.change("schedule advanced", move)

    # looking and looking after
    def select(self, selection: EventSelection, *, limit: int | None = None) -> list[StoredEvent]:
        now = now_text()
        return [_stored(item, now) for item in self._chosen(self.queue.read(), selection, now)[:limit]]

    def _chosen(self, view: QueueView, selection: EventSelection, now: str) -> list[Item]:
        """The events that are meant, in their order."""
        if selection.id is not None:
            wanted = QueuedEvent(selection.id, "", "", "", "", "")
            found = {item.seq: item for item in self.queue.known(view, [wanted]).values()}
        else:
            found = {item.seq: item for item in view.items()}
            if selection.status in (None, "done"):
                for past in self.queue.all_past():
                    if past.item is not None:
                        found.setdefault(past.seq, past.item)
        before = None if selection.before is None else encode_datetime(selection.before.astimezone(UTC))
        return [
            item for _, item in sorted(found.items())
            if (selection.namespace is None or item.event.namespace == selection.namespace)
            and (selection.event_type is None or item.event.event_type == selection.event_type)
            and (before is None or item.event.created_at < before)
            and (selection.status is None or status_of(item.state, now) == selection.status)
        ]  # fmt: skip

    def count(self, selection: EventSelection) -> int:
        return len(self._chosen(self.queue.read(), selection, now_text()))

    def get(self, event_id: str) -> StoredEvent:
        for found in self.select(EventSelection(id=event_id)):
            return found
        raise UnknownEventError(event_id)

    def dead_letters(self, namespace: str | None = None, *, limit: int | None = None) -> list[EventDeadLetter]:
        view = self.queue.read()
        changed = {seq for seq, state in view.changed.items() if state.what == "dead"}
        dead = [item for item in view.items(lambda page: page.dead > 0 or any(
            page.first <= seq <= page.last for seq in changed)) if item.state.what == "dead"]
        dead.sort(key=lambda item: (item.state.done_at or "", item.seq))
        letters = [letter_of(item) for item in dead if namespace in (None, item.event.namespace)]
        return [letter for letter in letters if letter is not None][:limit]

    def requeue(self, event_ids: Sequence[str]) -> int:
        self._check_writable()

        def again_open(view: QueueView) -> None:
            found = view.find(event_ids)
            for event_id in event_ids:
                item = found.get(event_id)
                if item is None or item.state.what != "dead":
                    raise UnknownEventError(event_id, "dead event")
            for item in found.values():
                view.put(item, replace(item.state, what="open", attempts=0, available_at=now_text(), done_at=None,
                                       letter=None))

        self.queue.change("dead letters queued again", again_open)
        return len(event_ids)

    def purge(self, selection: EventSelection) -> int:
        self._check_writable()

        def remove(view: QueueView) -> list[Item]:
            now = now_text()
            chosen = [item for item in self._chosen(view, selection, now) if status_of(item.state, now) != "claimed"]
            self.queue.bury(item for item in chosen if item.state.what == "done")
            for item in chosen:
                if view.of(item.seq) is not None:
                    view.put(item, replace(item.state, what="gone"))
            return chosen

        removed = self.queue.change("events purged", remove)
        if any(item.state.unsure for item in removed):
            fence(self._access, claims=True)  # so that no commit of a claim that ran out comes after
        return len(removed)

    # who is there
    def runners(self) -> list[RunnerInfo]:
        since, found = in_seconds(-STALE * self._config.event_lease), []
        for info in again(lambda: [*self._access.store.list(names.RUNNERS)]):
            there = self._access.find(info.key)
            if there is not None:
                note = layout.decode(there.data, RunnerNote, info.key, self._access.url)
                if note.last_heartbeat >= since:
                    found.append(note)
        return [RunnerInfo(note.session_id, note.namespace, parse_time(note.started_at),
                           parse_time(note.last_heartbeat), json.loads(note.metadata_json))
                for note in sorted(found, key=lambda note: note.started_at)]

    # copies
    def kept(self, *, done: bool = True) -> KeptQueue:
        return kept_queue(self.queue, self._repository.moment(), done)

    def restore(self, kept: KeptQueue) -> None:
        self._check_writable()
        restore_queue(self.queue, kept)

    def adopt(self, kept: KeptQueue, *, dry_run: bool = False) -> int:
        by_id = {one.event.id: one for one in kept.events}
        events = [one.event for one in kept.events]
        if dry_run:
            return len(self._new(self.queue.read(), events))
        self._check_writable()

        def add(view: QueueView) -> int:
            new = self._new(view, events)
            for event in new:
                view.add(event, by_id[event.id].commit_id, state_of(by_id[event.id]))
            for one in kept.schedules:
                key = names.schedule_key(one.namespace, one.schedule_id)
                if key not in view.schedules:
                    view.schedules[key], view.dirty = one.last_tick, True
            return len(new)

        return self.queue.change("events queued", add)


class S3Keeper:
    """Renews claims from a thread of its own, with an eye of its own on the queue."""

    def __init__(self, repository: S3Repository, claims: Claims) -> None:
        access = StoreObjects(repository.access.store)
        self._store = access.store
        self._claims = claims
        self._queue = QueueObjects(access, Records(access), repository.config)
        self._started: dict[str, str] = {}

    def renew(self, claim: Claim, ttl: float) -> bool:
        def keep(view: QueueView) -> bool:
            item = self._claims.held(view, claim)
            if item is None or item.state.held is None:
                return False
            view.put(item, replace(item.state, held=replace(item.state.held, expires_at=in_seconds(ttl))))
            return True

        return self._queue.change("claim renewed", keep)

    def heartbeat(self, session_id: str, namespace: str, metadata: Mapping[str, Any]) -> None:
        now = now_text()
        note = RunnerNote(session_id, namespace, self._started.setdefault(session_id, now), now,
                          json_text(dict(metadata)))
        again(lambda: self._store.put(names.runner_path(session_id), layout.encode(note)))

    def leave(self, session_id: str) -> None:
        again(lambda: self._store.delete([names.runner_path(session_id)]))

    def close(self) -> None:
        """Nothing to let go of: the store belongs to the repository."""


def _take(
    view: QueueView, namespace: str, event_types: Sequence[str], session_id: str, ttl: float
) -> tuple[Item, Claim] | None:  # fmt: skip
    """Claim the oldest event that is due. Returns it as it was, with the claim."""
    item = view.due(namespace, event_types, now_text())
    if item is None:
        write_down(view)
        return None
    state = item.state
    claim = Claim(item.event, uuid.uuid4().hex, state.attempts + 1, state.handled)
    view.put(item, replace(state, attempts=claim.attempt, held=Held(claim.claim_id, session_id, in_seconds(ttl)),
                           unsure=True))
    return item, claim


def _stored(item: Item, now: str) -> StoredEvent:
    event, state = item.event, item.state
    status = status_of(state, now)
    held = state.held if status == "claimed" else None
    return StoredEvent(
        event.id, event.namespace, event.event_type, json.loads(event.payload_json), status,
        parse_time(event.created_at), item.commit_id, event.root_id, event.depth, state.attempts,
        parse_time(state.available_at), state.handled, state.error,
        None if state.done_at is None else parse_time(state.done_at), None if held is None else held.session_id,
        None if held is None else parse_time(held.expires_at))
