"""A queue on objects as it is at one moment, in memory: to be looked at, and to be changed before it is written."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from ontolake.ontology.events.records import QueuedEvent
from ontolake.ontology.repository.objects.queue.layout import (
    CommitEvents,
    EventState,
    Item,
    PageRef,
    Queue,
    Through,
    due_at,
    kind_of,
)


class LoadedPage:
    """A page in memory, and where its events are."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items

    @cached_property
    def by_seq(self) -> Mapping[int, Item]:
        return {item.seq: item for item in self.items}

    @cached_property
    def by_id(self) -> Mapping[str, Item]:
        return {item.event.id: item for item in self.items}

    @cached_property
    def chains(self) -> Mapping[str, int]:
        """How many events each first one has led to."""
        return Counter(item.event.root_id for item in self.items if item.event.root_id != item.event.id)


Load = Callable[[Sequence[PageRef]], list[LoadedPage]]


class QueueView:
    """A queue at one moment. `load` gives pages as they were written."""

    def __init__(self, queue: Queue, tag: str | None, load: Load) -> None:
        self.queue = queue
        self.tag = tag
        self._load = load
        self.commit_id = queue.commit_id
        self.next_seq = queue.next_seq
        self.fresh = {item.seq: item for item in queue.fresh}
        self.changed = dict(queue.changed)
        self.pages = queue.pages
        self.schedules = dict(queue.schedules)
        self.behind = 0
        """How many changes of commits are not written into the queue yet."""
        self.dirty = False
        """Whether something differs from what is written, other than those."""

    # looking
    def items(self, wanted: Callable[[PageRef], bool] = lambda page: True) -> Iterator[Item]:
        """Events in their order; those of pages that are not wanted are left out."""
        for ref in self.pages:
            if wanted(ref):
                yield from self.page_items(ref)
        yield from self.fresh.values()

    def page_items(self, ref: PageRef) -> Iterator[Item]:
        """The events of a page as they stand now."""
        (page,) = self._load([ref])
        for item in page.items:
            now = self._now(item)
            if now is not None:
                yield now

    def _now(self, item: Item) -> Item | None:
        state = self.changed.get(item.seq)
        if state is None:
            return item
        return None if state.what == "gone" else msgspec.structs.replace(item, state=state)

    def of(self, seq: int) -> Item | None:
        """The event of a number."""
        if seq in self.fresh:
            return self.fresh[seq]
        at = bisect_left(self.pages, seq, key=lambda ref: ref.last)
        if at == len(self.pages) or self.pages[at].first > seq:
            return None
        (page,) = self._load([self.pages[at]])
        found = page.by_seq.get(seq)
        return None if found is None else self._now(found)

    def find(self, ids: Collection[str]) -> dict[str, Item]:
        """Events by their ids, as far as they are not past."""
        found = {item.event.id: item for item in self.fresh.values() if item.event.id in ids}
        if self.pages and len(found) < len(ids):
            wanted = {*ids}
            for page in self._load(self.pages):
                for event_id in page.by_id.keys() & wanted:
                    now = self._now(page.by_id[event_id])
                    if now is not None:
                        found[event_id] = now
        return found

    def due(self, namespace: str, event_types: Iterable[str], now: str) -> Item | None:
        """The oldest event of these types that may be claimed."""
        types = set(event_types)
        kinds = {kind_of(namespace, one) for one in types}
        released = [seq for seq, state in self.changed.items() if state.what == "open" and due_at(state) <= now]

        def may_be_due(ref: PageRef) -> bool:
            return any(kind in kinds and since <= now for kind, since in ref.due.items()) or any(
                ref.first <= seq <= ref.last for seq in released)

        for item in self.items(may_be_due):
            event, state = item.event, item.state
            if (state.what == "open" and event.event_type in types and event.namespace == namespace
                    and due_at(state) <= now):
                return item
        return None

    def chain_size(self, root_id: str) -> int:
        """How many events a first one has led to, those that are past left out."""
        here = sum(item.event.root_id == root_id != item.event.id for item in self.fresh.values())
        return here + (sum(page.chains.get(root_id, 0) for page in self._load(self.pages)) if self.pages else 0)

    # changing
    def put(self, item: Item, state: EventState) -> None:
        """Let an event stand differently."""
        self.dirty = True
        self._put(item, state)

    def _put(self, item: Item, state: EventState) -> None:
        if item.seq not in self.fresh:
            self.changed[item.seq] = state
        elif state.what == "gone":
            del self.fresh[item.seq]
        else:
            self.fresh[item.seq] = msgspec.structs.replace(item, state=state)

    def add(self, event: QueuedEvent, commit_id: int | None, state: EventState) -> None:
        """Queue an event, of whose id there is none."""
        self.dirty = True
        self._add(event, commit_id, state)

    def _add(self, event: QueuedEvent, commit_id: int | None, state: EventState) -> None:
        self.fresh[self.next_seq] = Item(self.next_seq, event, state, commit_id)
        self.next_seq += 1

    def catch_up(self, change: CommitEvents, known: Collection[str]) -> None:
        """Do what a commit does to the queue. Of `known` ids there are events already."""
        if change.commit_id <= self.commit_id:
            return
        self.commit_id = change.commit_id
        self.behind += 1
        if change.through is not None:
            item = self.of(change.through.seq)
            if item is not None and item.event.id == change.through.event_id and item.state.what == "open":
                self._put(item, state_through(item.state, change.through, change.created_at))
        there = {*known}
        for event in change.queued:
            if event.id not in there:
                there.add(event.id)
                self._add(event, change.commit_id, EventState(change.created_at))


def state_through(state: EventState, through: Through, at: str) -> EventState:
    """How an event stands after a handler is through with it."""
    handled = state.handled
    if through.handler is not None and through.handler not in handled:
        handled = (*handled, through.handler)
    if not through.last:
        return msgspec.structs.replace(state, handled=handled)
    return EventState(state.available_at, "done", state.attempts, handled, done_at=at)
