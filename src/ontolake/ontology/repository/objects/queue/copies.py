"""A whole queue on objects as records that every engine knows, and back."""

from __future__ import annotations

from ontolake.ontology.errors import HeadMismatchError
from ontolake.ontology.events.records import KeptEvent, KeptLetter, KeptQueue, KeptSchedule
from ontolake.ontology.events.rules import check_copy
from ontolake.ontology.repository.objects.moment import HeadSnapshot
from ontolake.ontology.repository.objects.queue import layout as names
from ontolake.ontology.repository.objects.queue.layout import EventState, Item, Letter
from ontolake.ontology.repository.objects.queue.queue import QueueObjects
from ontolake.ontology.repository.objects.queue.view import QueueView


def kept_queue(queue: QueueObjects, moment: HeadSnapshot, done: bool) -> KeptQueue:
    """All that the queue keeps, as it is with the commits up to a moment, with or without what is done.

    Raises `HeadMismatchError` if later commits have changed it already.
    """
    view = queue.read(moment)
    if view.commit_id > moment.head.commit_id:
        raise HeadMismatchError(f"the queue of {queue.access.url} is at commit {view.commit_id}, and commit "
                                f"{moment.head.commit_id} is being read", hint="read again")
    found = _all(queue, view) if done else {item.seq: item for item in view.items() if item.state.what != "done"}
    events = [_kept(item) for _, item in sorted(found.items())]
    schedules = [KeptSchedule(*names.schedule_names(key), tick) for key, tick in sorted(view.schedules.items())]
    return KeptQueue(tuple(events), tuple(schedules))


def _all(queue: QueueObjects, view: QueueView) -> dict[int, Item]:
    found = {item.seq: item for item in view.items()}
    for past in queue.all_past():
        if past.item is not None:
            found.setdefault(past.seq, past.item)
    return found


def _kept(item: Item) -> KeptEvent:
    state, letter = item.state, item.state.letter
    assert state.what != "gone"
    return KeptEvent(
        item.event, item.commit_id, state.what, state.attempts, state.available_at, state.handled, state.error,
        state.done_at,
        None if letter is None else KeptLetter(letter.handler, letter.attempts, letter.error, letter.failed_at))


def state_of(kept: KeptEvent) -> EventState:
    """How an event of another queue stands here: nobody has claimed it."""
    return EventState(kept.available_at, kept.state, kept.attempts, kept.handled, kept.error, kept.done_at,
                 letter=None if kept.letter is None else Letter(*kept.letter))


def restore_queue(queue: QueueObjects, kept: KeptQueue) -> None:
    """Let a queue hold just what was kept of another one.

    Raises `StorageBackendError` if there are events that were not.
    """

    def copy(view: QueueView) -> None:
        there = {item.event.id: item for item in _all(queue, view).values()}
        check_copy(queue.access.url, there, kept)
        for one in kept.events:
            state = state_of(one)
            item = there.get(one.event.id)
            if item is None:
                view.add(one.event, one.commit_id, state)
            elif item.state != state and view.of(item.seq) is not None:
                view.put(item, state)
        schedules = {names.schedule_key(one.namespace, one.schedule_id): one.last_tick for one in kept.schedules}
        if schedules != view.schedules:
            view.schedules, view.dirty = schedules, True

    queue.change("queue copied", copy)
