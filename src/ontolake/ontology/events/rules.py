"""What holds for the queue of every engine: which text it takes, when a claim is lost, when an id is taken."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from ontolake.errors import Invalid
from ontolake.ontology.errors import LeaseExpiredError, StorageBackendError
from ontolake.ontology.events.records import Claim, KeptQueue, QueuedEvent

STALE = 10
"""Runners that were silent for so many leases are no longer listed."""


def in_seconds(seconds: float) -> str:
    """A moment that many seconds from now, as it is stored."""
    return (datetime.fromtimestamp(time.time(), UTC) + timedelta(seconds=seconds)).isoformat(timespec="microseconds")


def check_text(event: QueuedEvent) -> None:
    """Raise `Invalid` for text that no encoding has."""
    try:
        "".join(event[:6]).encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"the {event.event_type} {event.id!r} holds text that is not Unicode: {error.reason}",
                      hint="lone surrogates cannot be stored") from None


def same_event(one: QueuedEvent, two: QueuedEvent) -> bool:
    """Whether two events under one id are one event, queued again."""
    return one[1:4] == two[1:4]


def id_taken(event: QueuedEvent) -> Invalid:
    """What to raise if another event has the id of this one."""
    return Invalid(f"another event is queued under the id {event.id!r} of this {event.event_type}",
                   hint="leave event_id out, so that each event has its own")


def claim_lost(claim: Claim) -> LeaseExpiredError:
    """What to raise if a claim is not good any more."""
    return LeaseExpiredError(f"the claim on {claim.event.event_type} {claim.event.id} ran out before it was handled",
                             hint="another runner handles it now; raise Config.event_lease if this happens often")


def check_copy(uri: str, there: Iterable[str], kept: KeptQueue) -> None:
    """Raise `StorageBackendError` if a queue that is to hold a copy has events that are not in it."""
    foreign = sorted({*there} - {one.event.id for one in kept.events})
    if foreign:
        raise StorageBackendError(f"the queue at {uri!r} has events that the source does not have, such as "
                                  f"{foreign[0]!r}", hint="choose an empty place")
