"""One watcher a space for all sockets: it reads every commit once, and keeps the newest changes, encoded, for all.

A socket that has fallen behind what is kept reads the rest from the store, a page at a time. What waits for a slow
reader is its position alone.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake.documents.names import check_branch_text
from ontolake.server.handles import ServedStore
from ontolake.server.sync.messages import Large, encode
from ontolake.server.sync.sessions import OpenSessions

if TYPE_CHECKING:
    from ontolake.documents import Space

INLINE = 256 * 2**10
"""Documents of more bytes are named in frames, not carried."""
FRAME = 64 * 2**10
"""Bytes after which a frame ends, if a document or a commit does."""
KEPT = 4 * 2**20
"""Bytes of encoded changes that are kept for a branch."""
_LOOK = 1.0
"""Seconds after which the watcher looks whether anybody still watches."""
_log = logging.getLogger(__name__)

Wanted = Callable[[str], bool] | None
Run = Callable[..., Awaitable[Any]]


class FeedEntry(NamedTuple):
    """What a commit made of a document, encoded."""

    seq: int
    id: str
    data: bytes


class FeedPage(NamedTuple):
    """Entries up to a commit, all of them for what is watched."""

    to: int
    entries: list[FeedEntry]


def entry(seq: int, id: str, document: Any) -> FeedEntry:
    """A document as frames carry it; null if it was deleted."""
    data = encode({"id": id, "seq": seq, "document": document})
    return FeedEntry(seq, id, data if len(data) <= INLINE else encode(Large(id, seq, len(data))))


def read_page(space: Space, branch: str, since: int, until: int, wanted: Wanted, limit: int) -> FeedPage:
    """What the first commits after `since` did: whole commits, until their entries take `limit` bytes."""
    entries: list[FeedEntry] = []
    size = 0
    for change in space.changes(since, until, branch=branch):
        if size > limit and change.commit != entries[-1].seq:
            return FeedPage(entries[-1].seq, entries)
        if wanted is None or wanted(str(change.key)):
            entries.append(entry(change.commit, str(change.key), change.after))
            size += len(entries[-1].data)
    return FeedPage(until, entries)


class BranchFeed:
    """The newest changes of a branch: all in `(start, head]`. The event loop alone changes it."""

    def __init__(self, head: int) -> None:
        self.start = self.head = head
        self.watchers: set[asyncio.Event] = set()
        self._entries: list[FeedEntry] = []
        self._seqs: list[int] = []
        self._size = 0

    def extend(self, page: FeedPage | None, head: int) -> None:
        """Add what commits up to `head` did; None if that is more than is kept."""
        if page is None:
            self.start, self._entries, self._seqs, self._size = head, [], [], 0
        else:
            self._entries += page.entries
            self._seqs += [one.seq for one in page.entries]
            self._size += sum(len(one.data) for one in page.entries)
            self._trim()
        self.head = head
        for watcher in self.watchers:
            watcher.set()

    def _trim(self) -> None:
        """Forget the oldest commits when there is twice as much as is kept: seldom, and then many."""
        if self._size <= 2 * KEPT:
            return
        place = 0
        while self._size > KEPT:
            self._size -= len(self._entries[place].data)
            place += 1
        self.start = self._seqs[place - 1]
        place = bisect_right(self._seqs, self.start)
        self._size = sum(len(one.data) for one in self._entries[place:])
        del self._entries[:place], self._seqs[:place]

    def page(self, since: int, wanted: Wanted) -> FeedPage | None:
        """What commits after `since` did, from what is kept; None if that does not reach back so far."""
        if since < self.start:
            return None
        found: list[FeedEntry] = []
        size, last = 0, since
        for place in range(bisect_right(self._seqs, since), len(self._seqs)):
            one = self._entries[place]
            if size > FRAME and one.seq != last:
                return FeedPage(last, found)
            last = one.seq
            if wanted is None or wanted(one.id):
                found.append(one)
                size += len(one.data)
        return FeedPage(self.head, found)


class SpaceFeeds:
    """All feeds of one space, its watcher, and its open sessions."""

    def __init__(self, store: ServedStore, run: Run) -> None:
        self.store = store
        self.sessions = OpenSessions()
        self._run_blocking = run
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[str, BranchFeed] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake: Callable[[], None] = lambda: None
        self._catching_up = asyncio.Semaphore(4)

    async def watch(self, branch: str, watcher: asyncio.Event) -> BranchFeed:
        """The feed of a branch, which sets `watcher` when there is more. Raises `UnknownBranchError`."""
        feed = self._feeds.get(branch)
        if feed is None:
            head = await self._run_blocking(self._head, branch)
            with self._lock:
                feed = self._feeds.setdefault(branch, BranchFeed(head))
        feed.watchers.add(watcher)
        self._start()
        return feed

    def leave(self, branch: str, watcher: asyncio.Event) -> None:
        """Watch no longer. The watcher of the space ends when nobody does."""
        feed = self._feeds.get(branch)
        if feed is None:
            return
        feed.watchers.discard(watcher)
        if not feed.watchers:
            with self._lock:
                del self._feeds[branch]

    def _head(self, branch: str) -> int:
        with self.store.reading() as space:
            check_branch_text(branch)
            head: int = space.last_seq()
            space.changes(head, branch=branch)
            return head

    def committed(self) -> None:
        """Look for commits now: this process has made one."""
        self._wake()

    async def catch_up(self, branch: str, since: int, until: int, wanted: Wanted) -> FeedPage:
        """What commits after `since` did, from the store; a few sockets at a time."""

        def read() -> FeedPage:
            with self.store.reading() as space:
                return read_page(space, branch, since, until, wanted, FRAME)

        async with self._catching_up:
            page: FeedPage = await self._run_blocking(read)
            return page

    # the watcher

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"watch {self.store.name}", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        """Follow the space until nobody watches."""
        pause = threading.Event()
        while True:
            try:
                with self.store.reading() as space:
                    self._wake = space.wake
                    self._follow(space)
            except Exception:
                _log.exception("the watcher of %s failed, and begins again", self.store.name)
            self._wake = pause.set
            with self._lock:
                if not self._feeds:
                    self._thread = None
                    return
            pause.wait(_LOOK)
            pause.clear()

    def _follow(self, space: Space) -> None:
        read: dict[str, int] = {}
        while True:
            with self._lock:
                feeds = dict(self._feeds)
            if not feeds:
                return
            last = min(read.get(branch, feed.head) for branch, feed in feeds.items())
            newest = space.wait(last, _LOOK)
            if newest is None:
                return
            if newest > last:
                self._read(space, feeds, read, newest)
            read = {branch: read[branch] for branch in feeds if branch in read}

    def _read(self, space: Space, feeds: dict[str, BranchFeed], read: dict[str, int], newest: int) -> None:
        for branch, feed in feeds.items():
            since = read.get(branch, feed.head)
            if since >= newest:
                continue
            page = read_page(space, branch, since, newest, None, KEPT)
            self._loop.call_soon_threadsafe(feed.extend, page if page.to == newest else None, newest)
            read[branch] = newest


class Watchers:
    """The feeds of all spaces of a server. `run` runs what may block in a thread."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._spaces: dict[str, SpaceFeeds] = {}

    def of(self, store: ServedStore) -> SpaceFeeds:
        """The feeds of a space. Within the event loop."""
        found = self._spaces.get(store.name)
        if found is None:
            found = self._spaces[store.name] = SpaceFeeds(store, self._run)
        return found

    def committed(self, store: ServedStore) -> None:
        """Look for commits of a store now. Any thread may say so."""
        found = self._spaces.get(store.name)
        if found is not None:
            found.committed()
