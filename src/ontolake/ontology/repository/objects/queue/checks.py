"""Looking after the objects of a queue: what of them is damaged, what is needed, and what can go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ontolake.errors import OntolakeError
from ontolake.history import Damage
from ontolake.objects import ObjectInfo
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.queue import layout as names
from ontolake.ontology.repository.objects.queue.layout import EventPage, Item, PageRef, PastEvent, Queue

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.base import S3Repository
    from ontolake.ontology.repository.objects.moment import HeadSnapshot

_SMALL = 64
"""What is left of an event that was removed has fewer bytes."""


def needed_changes(repository: S3Repository, moment: HeadSnapshot) -> set[str]:
    """The objects that tell what commits do to the queue, as far as it is not written into the queue."""
    pointer = None if moment.newest is None else moment.newest.queue
    found: set[str] = set()
    for change in repository.events.queue.changes(pointer, _queue(repository).commit_id):
        assert pointer is not None
        found.add(pointer[1])
        pointer = change.before
    return found


def _queue(repository: S3Repository) -> Queue:
    found = repository.access.find(names.QUEUE)
    return Queue() if found is None else layout.decode(found.data, Queue, names.QUEUE, repository.access.url)


def queue_garbage(repository: S3Repository, limit: float) -> Iterator[ObjectInfo]:
    """Objects from before `limit` that no queue needs: pages written anew, events that were removed, dead runners."""
    store = repository.access.store
    old = [info for info in store.list(names.FOLDER) if info.modified <= limit]
    pages = {ref.path for ref in _queue(repository).pages}
    past = []
    for info in old:
        if info.key.startswith((names.PAGES, names.RUNNERS)) and info.key not in pages:
            yield info
        elif info.key.startswith(names.PAST) and info.size < _SMALL:
            past.append(info)
    for info in past:
        found = repository.access.find(info.key)
        if found is not None and layout.decode(found.data, PastEvent, info.key, repository.access.url).item is None:
            yield info


def check_queue(repository: S3Repository, moment: HeadSnapshot) -> Iterator[Damage]:
    """What of the queue is missing or cannot be right."""
    try:
        queue = _queue(repository)
        if queue.commit_id > repository.highest():
            yield Damage(names.QUEUE, f"it knows of commit {queue.commit_id}, which is not there")
        needed_changes(repository, moment)
    except OntolakeError as error:
        yield Damage(names.QUEUE, str(error))
        return
    seen: dict[str, str] = {}
    yield from _items(names.QUEUE, queue.fresh, queue, seen)
    for ref in queue.pages:
        yield from _page(repository, ref, queue, seen)
    for info in repository.access.store.list(names.PAST):
        yield from _past(repository, info.key)


def _page(repository: S3Repository, ref: PageRef, queue: Queue, seen: dict[str, str]) -> Iterator[Damage]:
    try:
        data = repository.access.need(ref.path, names.QUEUE)
        items = layout.decode(data, EventPage, ref.path, repository.access.url).items
    except OntolakeError as error:
        yield Damage(ref.path, str(error))
        return
    numbers = [item.seq for item in items]
    if (len(data), numbers[:1], numbers[-1:], len(numbers)) != (ref.size, [ref.first], [ref.last], ref.count):
        yield Damage(ref.path, "it does not hold the events that the queue says it holds")
    yield from _items(ref.path, items, queue, seen)


def _items(where: str, items: tuple[Item, ...], queue: Queue, seen: dict[str, str]) -> Iterator[Damage]:
    last = 0
    for item in items:
        if not last < item.seq < queue.next_seq:
            yield Damage(where, f"event {item.event.id!r} is out of order")
        last = item.seq
        if item.event.id in seen:
            yield Damage(where, f"event {item.event.id!r} is in {seen[item.event.id]!r} too")
        seen[item.event.id] = where
        yield from _payload(where, item)


def _payload(where: str, item: Item) -> Iterator[Damage]:
    try:
        good = isinstance(json.loads(item.event.payload_json), dict)
    except ValueError:
        good = False
    if not good:
        yield Damage(where, f"the payload of event {item.event.id!r} is not a JSON object")


def _past(repository: S3Repository, key: str) -> Iterator[Damage]:
    try:
        data = repository.access.need(key, "a listing")
        past = layout.decode(data, PastEvent, key, repository.access.url)
    except OntolakeError as error:
        yield Damage(key, str(error))
        return
    if past.item is not None:
        if names.past_path(past.item.event.id) != key or past.item.state.what != "done":
            yield Damage(key, f"event {past.item.event.id!r} does not belong there")
        yield from _payload(key, past.item)
