"""`EventStore`: the queue of a typed store, whichever engine it has.

What every engine promises: an event that was queued with a commit is there if the commit is, and not there if it is
not. An event is handed to one runner at a time. What a handler did counts if and only if its part of the event is
done, and a runner whose claim ran out, or was taken by another, cannot make it so.

How they keep it:

- SQLite writes commit and queue in one transaction. While it is open nobody else writes, so a claim that is good when
  it begins is good when it ends.
- Object storage has no transaction over several objects. There a commit says in an object of its own what it does to
  the queue, and its manifest leads there, so that the swap of the head is the moment for both. The queue itself is an
  object that is swapped whenever it changes on its own: claims, failures, schedules, and what is queued or handled
  where nothing differs and so no commit is made. Whoever reads it adds what commits did since it was written, and
  whoever changes it writes that down. A commit is refused before the head is swapped if the claim was not this runner's
  when it began. Who claims an event that was claimed before moves the head's fence afterwards: a commit under the
  earlier claim has come before that and is seen, or cannot come any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from ontolake.ontology.events.records import Claim, EventSelection, KeptQueue, QueuedEvent, RunnerInfo, StoredEvent

if TYPE_CHECKING:
    from ontolake.ontology.events.event import EventDeadLetter


class Keeper(Protocol):
    """Renews claims, from a thread of its own."""

    def renew(self, claim: Claim, ttl: float) -> bool:
        """Keep a claim for `ttl` seconds from now on; False if it is lost."""
        ...

    def heartbeat(self, session_id: str, namespace: str, metadata: Mapping[str, Any]) -> None:
        """Tell that a runner is alive."""
        ...

    def leave(self, session_id: str) -> None:
        """Tell that a runner has ended."""
        ...

    def close(self) -> None: ...


class EventStore(Protocol):
    """A queue of events. What happens to it together with a commit goes through `Transaction`.

    All methods raise `LockContentionError` if the store is kept busy by another writer for too long.
    """

    # queueing
    def enqueue(self, events: Sequence[QueuedEvent]) -> int:
        """Queue events on their own, and return how many were not there before.

        Raises `Invalid` if another event has the id of one of them; then none is queued.
        """
        ...

    def chain_size(self, root_id: str, limit: int) -> int:
        """How many events a first one has led to, as far as they are kept; counting may stop at `limit`."""
        ...

    # handling
    def claim(self, namespace: str, event_types: Sequence[str], session_id: str, ttl: float) -> Claim | None:
        """The oldest event of these types that nobody is handling and that is due; None if there is none.

        It counts as an attempt, and is nobody else's for `ttl` seconds.
        """
        ...

    def keeper(self) -> Keeper:
        """What keeps claims from another thread, also while the claiming one is amid a transaction."""
        ...

    def release(self, claim: Claim, *, delay: float = 0.0, counted: bool = True) -> None:
        """Give a claim back: the event is due after `delay` seconds. Not `counted` takes the attempt back too."""
        ...

    def fail(self, claim: Claim, *, error: str, delay: float) -> None:
        """The same after an attempt that failed; the error is kept with the event."""
        ...

    def bury(self, claim: Claim, letter: EventDeadLetter, told: Sequence[QueuedEvent] = ()) -> None:
        """Make a claimed event a dead one, keep the letter about it, and queue what is to tell of it.

        This and `fail` raise `LeaseExpiredError` if the claim is lost.
        """
        ...

    # schedules
    def last_tick(self, namespace: str, schedule_id: str) -> datetime | None:
        """The last tick of a schedule that was dealt with."""
        ...

    def advance(
        self, namespace: str, schedule_id: str, seen: datetime | None, tick: datetime, event: QueuedEvent | None
    ) -> bool:
        """Move a schedule from the tick that was `seen` to a later one, and queue its event.

        Returns False, and does nothing, if another process has moved it meanwhile.
        """
        ...

    # looking and looking after
    def select(self, selection: EventSelection, *, limit: int | None = None) -> list[StoredEvent]:
        """Events in the order in which they were queued."""
        ...

    def count(self, selection: EventSelection) -> int: ...

    def get(self, event_id: str) -> StoredEvent:
        """One event. Raises `UnknownEventError`."""
        ...

    def dead_letters(self, namespace: str | None = None, *, limit: int | None = None) -> list[EventDeadLetter]:
        """Events that could not be handled, oldest first; of all namespaces if none is named."""
        ...

    def requeue(self, event_ids: Sequence[str]) -> int:
        """Let dead events be tried again, from the first attempt, by the handlers that are not through with them.

        Raises `UnknownEventError` if one of them is not dead; then none is.
        """
        ...

    def purge(self, selection: EventSelection) -> int:
        """Remove events for good, dead letters with them, and return how many. Claimed ones stay."""
        ...

    # copies
    def kept(self, *, done: bool = True) -> KeptQueue:
        """All that the queue keeps, as it is with the commits that `reading` sees, with or without what is `done`.

        Raises `HeadMismatchError` if it went on with later ones.
        """
        ...

    def restore(self, kept: KeptQueue) -> None:
        """Let the queue hold what was kept of another one. Its claims are not copied: who handles there cannot here.

        Raises `StorageBackendError`, and changes nothing, if there are events that were not kept.
        """
        ...

    def adopt(self, kept: KeptQueue, *, dry_run: bool = False) -> int:
        """Add events and schedules of another queue, but those that are there; returns how many events are new, or
        would be.

        Raises `Invalid` if another event has the id of one of them; then nothing is added.
        """
        ...

    # who is there
    def runners(self) -> list[RunnerInfo]:
        """The runners that have not told that they ended."""
        ...
