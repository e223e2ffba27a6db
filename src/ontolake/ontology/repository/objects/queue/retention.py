"""Keeping a queue small: events that are done leave it, and what waits for long goes into pages. Pure rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.queue import layout as names
from ontolake.ontology.repository.objects.queue.layout import EventPage, EventState, Item, PageRef, page_ref
from ontolake.ontology.repository.objects.queue.view import QueueView
from ontolake.ontology.sizes import Sizes


@dataclass(frozen=True)
class Tidied:
    """A queue that was made smaller: what it holds now, objects to write before, and events that are past."""

    fresh: Collection[Item]
    pages: Collection[PageRef]
    changed: Mapping[int, EventState] = field(default_factory=dict)
    objects: Mapping[str, bytes] = field(default_factory=dict)
    past: Collection[Item] = ()


def heavy(view: QueueView, sizes: Sizes) -> bool:
    """Whether there is too much in the queue itself."""
    return len(view.fresh) + len(view.changed) > sizes.queue_items or _bytes(view.fresh.values()) > sizes.queue_bytes


def _bytes(items: Iterable[Item]) -> int:
    return sum(300 + len(item.event.payload_json) + len(item.state.error or "") for item in items)


def tidy(view: QueueView, done: Collection[int], sizes: Sizes) -> Tidied:
    """Make the queue small: write pages anew in which something changed, together with small ones beside them.

    Only those in `done` are past; what is done since may yet be taken back.
    """
    past: list[Item] = []

    def left(items: Iterable[Item]) -> list[Item]:
        kept: list[Item] = []
        for item in items:
            (past if item.state.what == "done" and item.seq in done else kept).append(item)
        return kept

    fresh = left(view.fresh.values())
    stays = len(fresh) <= sizes.queue_staying and _bytes(fresh) <= sizes.queue_bytes // 2
    parts: list[PageRef | list[Item]] = []
    for ref in view.pages:
        settled = {item.seq for item in view.page_items(ref)
                   if item.state.what == "done" and item.seq not in view.changed} if ref.done else set()
        if settled or any(ref.first <= seq <= ref.last for seq in view.changed):
            done = {*done, *settled}
            parts.append(left(view.page_items(ref)))
        elif ref.count <= sizes.page_items // 4 and parts and isinstance(parts[-1], list):
            parts.append([*view.page_items(ref)])
        else:
            parts.append(ref)
    if not stays:
        if parts and isinstance(last := parts[-1], PageRef) and last.count <= sizes.page_items // 2:
            parts[-1] = [*view.page_items(last)]
        parts.append(fresh)
    pages: list[PageRef] = []
    objects: dict[str, bytes] = {}
    for items in _joined(parts, sizes):
        if isinstance(items, PageRef):
            pages.append(items)
            continue
        path = f"{names.PAGES}{items[0].seq}-{layout.new_attempt()}.json"
        objects[path] = layout.compact(EventPage(tuple(items)))
        pages.append(page_ref(path, objects[path], tuple(items)))
    return Tidied(fresh if stays else (), pages, {}, objects, past)


def _joined(parts: Iterable[PageRef | list[Item]], sizes: Sizes) -> list[PageRef | list[Item]]:
    """The same with neighbours together, as many as a page holds."""
    found: list[PageRef | list[Item]] = []
    room = 0
    for part in parts:
        if isinstance(part, PageRef):
            found.append(part)
            room = 0
            continue
        for item in part:
            size = _bytes([item])
            last = found[-1] if found else None
            if not isinstance(last, list) or len(last) >= sizes.page_items or size > room:
                last, room = [], sizes.page_bytes
                found.append(last)
            last.append(item)
            room -= size
    return found
