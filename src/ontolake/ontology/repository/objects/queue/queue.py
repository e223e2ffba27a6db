"""The objects of a queue: read, brought up to date from commits, and changed by one swap of `events/queue.json`.

A commit says in an object of its own what it does to the queue, and its manifest leads there: so the swap of the head
is the moment for both. Whoever reads the queue adds what commits have done since it was written; whoever changes it
writes that down too. Nothing that is read or written here grows with the number of events that are done.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ontolake import faults
from ontolake.errors import AlreadyExists, DurabilityUnconfirmed, NotFound, PreconditionFailed, StorageError
from ontolake.history.contention import Beaten, Pace, commit_optimistically
from ontolake.objects import Range, create, new_nonce, replace
from ontolake.ontology.config import Config
from ontolake.ontology.errors import LockContentionError
from ontolake.ontology.events.records import QueuedEvent
from ontolake.ontology.events.rules import same_event
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.access import THREADS, StoreObjects, again
from ontolake.ontology.repository.objects.layout import CommitManifest, Head
from ontolake.ontology.repository.objects.moment import HeadSnapshot, Records
from ontolake.ontology.repository.objects.queue import layout as names
from ontolake.ontology.repository.objects.queue.layout import (
    CommitEvents,
    EventPage,
    Item,
    PageRef,
    PastEvent,
    Pointer,
    Queue,
)
from ontolake.ontology.repository.objects.queue.retention import Tidied, heavy, tidy
from ontolake.ontology.repository.objects.queue.view import LoadedPage, QueueView

_KEPT = 256
_PAUSE = 0.02
_LONG = 1 << 20
_STEP = 512
_log = logging.getLogger("ontolake.ontology.events")

T = TypeVar("T")


class QueueObjects:
    """The queue of one store. Not to be shared by threads."""

    def __init__(self, access: StoreObjects, records: Records, config: Config) -> None:
        self.access = access
        self._records = records
        self._config = config
        self._pages: dict[str, LoadedPage] = {}
        self._changes: OrderedDict[str, CommitEvents] = OrderedDict()

    # reading
    def read(self, moment: HeadSnapshot | None = None) -> QueueView:
        """The queue with all that commits have done to it, those up to a moment, or else up to now."""
        manifest = self._newest() if moment is None else moment.newest
        found = self.access.find(names.QUEUE)
        queue = Queue() if found is None else layout.decode(found.data, Queue, names.QUEUE, self.access.url)
        view = QueueView(queue, None if found is None else found.tag, self.load)
        self._pages = {ref.path: self._pages[ref.path] for ref in queue.pages if ref.path in self._pages}
        if manifest is not None:
            self._catch_up(view, manifest)
        return view

    def _newest(self) -> CommitManifest | None:
        found = self.access.find(layout.HEAD)
        if found is None:
            raise self.access.missing(layout.HEAD, "meta/engine.json")
        head = layout.decode(found.data, Head, layout.HEAD, self.access.url)
        return None if head.manifest_path is None else self._records.manifest(head.manifest_path)

    def _catch_up(self, view: QueueView, manifest: CommitManifest) -> None:
        changes = [*self.changes(manifest.queue, view.commit_id)]
        if changes:
            queued = [event for change in changes for event in change.queued]
            known = self.known(view, queued)
            for event in queued:
                if event.id in known and not same_event(event, known[event.id].event):
                    _log.error("the %s %s of a commit is left out, as another event came first under its id",
                               event.event_type, event.id)
            for change in reversed(changes):
                view.catch_up(change, known)
                known |= {item.event.id: item for item in view.fresh.values()}
        view.commit_id = max(view.commit_id, manifest.commit_id)

    def changes(self, pointer: Pointer | None, since: int) -> Iterator[CommitEvents]:
        """What commits after `since` do to the queue, newest first."""
        while pointer is not None and pointer[0] > since:
            found = self._changes.get(pointer[1])
            if found is None:
                data = self.access.need(pointer[1], "a manifest")
                found = layout.decode(data, CommitEvents, pointer[1], self.access.url)
                self.remember(pointer[1], found)
            yield found
            pointer = found.before

    def remember(self, path: str, change: CommitEvents) -> None:
        """Keep what stands in an object that is written once, or is about to be."""
        self._changes[path] = change
        while len(self._changes) > _KEPT:
            self._changes.popitem(last=False)

    def load(self, refs: Sequence[PageRef]) -> list[LoadedPage]:
        """Pages, which are kept for as long as the queue names them."""
        missing = [ref for ref in refs if ref.path not in self._pages]
        if missing:
            for ref, data in zip(missing, self.access.whole([(ref.path, ref.size) for ref in missing]), strict=True):
                self._pages[ref.path] = LoadedPage(layout.decode(data, EventPage, ref.path, self.access.url).items)
        return [self._pages[ref.path] for ref in refs]

    def known(self, view: QueueView, events: Collection[QueuedEvent]) -> dict[str, Item]:
        """Those events of the queue, past ones too, that have the ids of these."""
        ids = {event.id for event in events}
        if not ids:
            return {}
        found = view.find(ids)
        past = self.past([names.past_path(event_id) for event_id in ids - found.keys()])
        return found | {one.item.event.id: one.item for one in past if one.item is not None}

    def past(self, paths: Sequence[str]) -> list[PastEvent]:
        """What is at these paths, as far as there is anything."""
        done: list[PastEvent] = []
        for start in range(0, len(paths), _STEP):
            some = paths[start : start + _STEP]
            found = again(lambda some=some: self.access.store.get_ranges(  # type: ignore[misc]
                [Range(path, 0, _LONG) for path in some]))
            for path, data in zip(some, found, strict=True):
                if isinstance(data, NotFound):
                    continue
                if isinstance(data, StorageError) or len(data) == _LONG:
                    whole = self.access.find(path)
                    if whole is None:
                        continue
                    data = whole.data
                done.append(layout.decode(data, PastEvent, path, self.access.url))
        return done

    def all_past(self) -> list[PastEvent]:
        """All events that are done and no longer in the queue itself."""
        return self.past([info.key for info in again(lambda: [*self.access.store.list(names.PAST)])])

    # changing
    def change(self, what: str, work: Callable[[QueueView], T], *, tidied: bool = False) -> T:
        """Let `work` change the queue, and make that durable in one swap; again if another process came first.

        With `tidied` pages are written anew in which something changed, however few these are.

        Raises what `work` raises, and then nothing was changed; `LockContentionError` if others are always first.
        """

        def once() -> T:
            view = self.read()
            done = {item.seq for item in view.fresh.values() if item.state.what == "done"}
            done |= {seq for seq, state in view.changed.items() if state.what == "done"}
            result = work(view)
            if view.dirty:
                faults.reach(f"ontology: {what}, not yet durable")
                if not self._swap(view, done, tidied):
                    raise Beaten(f"the queue of {self.access.url} was changed")
                faults.reach(f"ontology: {what}")
            return result

        def too_busy(error: Exception) -> LockContentionError:
            return LockContentionError(f"others keep changing the queue of {self.access.url}", hint="try again")

        pace = Pace(math.inf, _PAUSE, _PAUSE, max(self._config.lock_timeout, 1.0))
        return commit_optimistically(once, Beaten, pace, exhausted=too_busy)

    def settle(self) -> None:
        """Write down what commits have done. Nothing depends on it."""
        try:
            self.change("queue brought up to date", write_down)
        except Exception as error:
            _log.warning("the queue of %s is behind: %s", self.access.url, error)

    def _swap(self, view: QueueView, done: Collection[int], always: bool = False) -> bool:
        """Make a view the queue. False if it was made from a queue that is no more.

        Events are made past ones only if they were `done` before, for good, whatever becomes of this swap.
        """
        queue = view.queue
        sizes = self._config.sizes
        tidied = (tidy(view, done, sizes) if always or heavy(view, sizes)
                  else Tidied(view.fresh.values(), view.pages, view.changed))  # fmt: skip
        if tidied.objects:
            self.access.write(tidied.objects)
        self._archive(tidied.past)
        nonce = new_nonce()
        data = layout.compact(Queue(
            queue.version + 1, view.commit_id, view.next_seq, tuple(tidied.fresh), tuple(tidied.pages),
            dict(tidied.changed), view.schedules, (nonce.decode(), *queue.nonces[: names.REMEMBERED - 1])))
        try:
            if view.tag is None:
                create(self.access.store, names.QUEUE, data, nonce)
            else:
                replace(self.access.store, names.QUEUE, data, view.tag, nonce)
        except (AlreadyExists, PreconditionFailed):
            return False
        except DurabilityUnconfirmed as error:
            if not self._settled(view, nonce, error):
                return False
        return True

    def _settled(self, view: QueueView, nonce: bytes, doubt: DurabilityUnconfirmed) -> bool:
        """Whether a swap happened whose response was lost. Raises what was in doubt if it may yet happen."""
        try:
            found = self.access.find(names.QUEUE)
        except StorageError:
            raise doubt from None
        if found is not None and found.tag != view.tag:
            queue = layout.decode(found.data, Queue, names.QUEUE, self.access.url)
            if nonce.decode() in queue.nonces:
                return True
            if queue.version <= view.queue.version + names.REMEMBERED:
                return False
        raise doubt

    # what is past
    def _archive(self, items: Collection[Item]) -> None:
        if items:
            with ThreadPoolExecutor(THREADS, thread_name_prefix="ontolake-events") as pool:
                for _ in pool.map(lambda item: self._keep(item.event, PastEvent(item.seq, item)), items):
                    pass

    def bury(self, items: Iterable[Item]) -> None:
        """Remove past events for good. What is left of them keeps late writers from bringing them back."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix="ontolake-events") as pool:
            for _ in pool.map(lambda item: self._keep(item.event, PastEvent(item.seq)), items):
                pass

    def _keep(self, event: QueuedEvent, past: PastEvent) -> None:
        """Write about a past event, unless something later is there."""
        path, data, store = names.past_path(event.id), layout.compact(past), self.access.store
        tag: str | None = None
        while True:
            try:
                if tag is None:
                    again(lambda: store.put_if_absent(path, data))
                else:
                    again(lambda tag=tag: store.put_if_match(path, data, tag))  # type: ignore[misc]
                break
            except (AlreadyExists, PreconditionFailed):  # somebody else wrote, or we did and did not hear of it
                found = self.access.find(path)
                tag = None if found is None else found.tag
                if found is not None:
                    there = layout.decode(found.data, PastEvent, path, self.access.url)
                    if (there.seq, there.item is None) >= (past.seq, past.item is None):
                        break
        if event.root_id != event.id:
            if past.item is None:
                again(lambda: store.delete([names.chain_path(event)]))
            else:
                again(lambda: store.put(names.chain_path(event), b"{}"))


def write_down(view: QueueView) -> None:
    """Let a view be written if commits have changed it."""
    view.dirty = view.dirty or view.behind > 0
