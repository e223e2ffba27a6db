"""The stores that a server serves, by name, and the open handles that requests share.

| model | for reading | for writing |
|---|---|---|
| SQL tables | one a branch, shared: it has a session for each thread | one a branch, shared; groups commits |
| documents | several, each for one request at a time | one, shared; it takes turns itself |
| graph | one, shared | one, shared |
| typed | several a branch, each for one request at a time | one a branch, one request at a time |

What reads has connections of its own, so that it never waits for a writer. A handle that failed, or whose branch was
deleted or renamed, is left to those who use it and opened anew for all others.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import apsw

from ontolake import stores
from ontolake.errors import Corruption, Fenced, NotFound, OntolakeError, StorageError
from ontolake.history import UnknownBranchError
from ontolake.history.names import MAIN
from ontolake.history.refs import Ref
from ontolake.server.problems import RefusedError
from ontolake.server.rights import Principal
from ontolake.urls import Location, Place

T = TypeVar("T")
_IDLE = 32
"""Handles that one request at a time may use: how many stay open while nobody uses them."""
_SHARED_READERS = frozenset({stores.SQL.name, stores.GRAPH.name})
_SHARED_WRITERS = frozenset({stores.SQL.name, stores.GRAPH.name, stores.DOCUMENTS.name})


_SLOW = 0.1
"""Seconds that a read on the event loop may take; after a longer one threads read for a while."""
_WHILE = 1.0


class _Use(NamedTuple):
    """What handles are kept by."""

    write: bool
    branch: str | None
    inline: bool = False
    """Whether the event loop reads with it: then it never waits for a lock."""


_INLINE = _Use(False, None, True)


class OutdatedHandleError(Exception):
    """Types or branches have changed since a store was opened."""


class _Handle:
    """An open store, and how many requests use it."""

    def __init__(self, store: Any, use: _Use, epoch: int) -> None:
        self.store = store
        self.use = use
        self.epoch = epoch
        self.users = 0
        self.spent = False
        """Whether it is closed when its last user is done."""


class HeldStore(NamedTuple):
    """An open store that a client holds. `release` gives it back, once; with True if it has failed."""

    store: Any
    release: Callable[[bool], None]


class ServedStore:
    """One store behind a name."""

    def __init__(self, name: str, url: str, *, writes: bool = True) -> None:
        """Raises what `stores.find` raises, and `Invalid` if no model of ours is there."""
        self.name = name
        self.url = url
        self.writes = writes
        self.found = stores.find(url)
        self.found.check_model()
        self._places = _places(self.found.site.location)
        self._kept: dict[_Use, list[_Handle]] = {}
        self._lock = threading.Lock()
        self._epoch = 0
        self._opening: dict[_Use, threading.Lock] = {}
        self._turn = threading.RLock()
        self._inline_from = 0.0
        """When the event loop may read again."""
        self.on_write: Callable[[str, int], None] = lambda name, requests: None
        """Called after something was written, with the name of the store and how many requests share it."""

    @property
    def model(self) -> stores.Model:
        assert self.found.model is not None
        return self.found.model

    @property
    def first_branch(self) -> str:
        """The branch that is meant where none is named."""
        return MAIN

    # rights

    def branch_of(self, ref: str | None, principal: Principal | None = None) -> str | None:
        """The branch whose readers may read what a reference names; None if only readers of all branches may.

        A reference that names a branch, alone or with a commit, is read with the right to that branch. A tag, the id
        of a commit or a time is read with the right to the branch that it is on, or to any other branch of
        `principal` that has the commit in its history. Raises `Invalid`, `NotFound` if it names nothing.
        """
        if ref is None:
            return self.first_branch
        parsed = Ref.parse(ref)
        if principal is not None and principal.sees_all_branches:
            return parsed.branch or self.first_branch
        with self.reading() as store:
            names = _branch_names(store)
            if not names:
                return self.first_branch
            if parsed.branch in names:
                return parsed.branch
            if parsed.branch is not None and parsed.commit is not None:
                return parsed.branch  # only what is called like a branch can come before a commit
            try:
                point = store.at(parsed)
            except NotFound:
                return None  # who sees some branches does not learn what there is on others
            branch = str(point.branch) or self.first_branch
            if principal is None or principal.sees_branch(branch) or self.model.name == stores.SQL.name:
                return branch  # versions of SQL tables are numbered on each branch
            return self._seen_from(store, point.commit, filter(principal.sees_branch, names)) or branch

    def _seen_from(self, store: Any, commit: Any, branches: Iterable[str]) -> str | None:
        """The first of some branches that has a commit in its history."""
        for branch in branches:
            with suppress(NotFound):
                store.at(Ref(branch, str(commit)))
                return branch
        return None

    # handles

    @contextmanager
    def reading(self, branch: str | None = None) -> Iterator[Any]:
        """The store for reading, for one thread. Whatever is lazy in it has to be read within the block."""
        with self._using(_Use(False, self._at(branch))) as store:
            yield store

    @contextmanager
    def writing(self, branch: str | None = None, *, requests: int = 1) -> Iterator[Any]:
        """The store for writing, for one thread; where the model wants that, writers of a branch take turns. `requests`
        is how many requests share what is written.

        Raises `RefusedError` if the server only reads it, `Contended` if another process writes to it.
        """
        if not self.writes:
            raise RefusedError(403, f"the store {self.name!r} is served for reading only")
        use = _Use(True, self._at(branch))
        if self.model.name in _SHARED_WRITERS:
            with self._using(use) as store:
                yield store
        else:
            with self._turn, self._using(use) as store:
                yield store
        self.on_write(self.name, requests)

    # reading on the event loop

    def read_inline(self, read: Callable[[Any], T]) -> T | None:
        """What a quick function reads from the head of the first branch of an open store, on the event loop; None if a
        thread has to read it: because no store is open for this, reading failed, or the last read took long.

        A function that finds the store outdated raises `OutdatedHandleError`: another one is opened then.
        """
        begun = time.perf_counter()
        if begun < self._inline_from:
            return None
        handle = self._kept_one(_INLINE)
        if handle is None:
            return None
        try:
            found = read(handle.store)
        except Exception:  # a thread may fare better, and says what is wrong
            self._give_back(handle, failed=True)
            return None
        self._give_back(handle, failed=False)
        ended = time.perf_counter()
        if ended - begun > _SLOW:
            self._inline_from = ended + _WHILE
        return found

    def open_inline(self) -> None:
        """Have a store open for `read_inline` from now on, if it is one that can be read so quickly: a typed store in a
        native file. For a thread: opening takes a while."""
        if self.model is not stores.TYPED or self.found.site.location.place is not Place.SQLITE:
            return
        with self._lock:
            if self._kept.get(_INLINE):
                return
        with self._opening_of(_INLINE):
            if not self._kept.get(_INLINE):
                self._give_back(self._opened(_INLINE), failed=False)

    def hold(self, branch: str | None = None, *, write: bool) -> HeldStore:
        """The store for a client that stays: for SQL tables, whose handles all share. Release it when the client goes.

        Raises `RefusedError` if it is to be written to and the server only reads it, `Contended`.
        """
        if write and not self.writes:
            raise RefusedError(403, f"the store {self.name!r} is served for reading only")
        handle = self._take(_Use(write, self._at(branch)))
        return HeldStore(handle.store, lambda failed: self._give_back(handle, failed))

    def _at(self, branch: str | None) -> str | None:
        """The branch as handles are kept by it: None for the first one, and where handles have all branches."""
        return None if branch == self.first_branch or not self.model.opens_branch else branch

    def is_shared(self, *, write: bool) -> bool:
        """Whether a handle is used by several requests at a time."""
        return self.model.name in (_SHARED_WRITERS if write else _SHARED_READERS)

    @contextmanager
    def _using(self, use: _Use) -> Iterator[Any]:
        with self._unplaced(), self._held(use) as store:
            yield store

    @contextmanager
    def _unplaced(self) -> Iterator[None]:
        """Errors name the store as clients know it, not where the server has it."""
        try:
            yield
        except OntolakeError as error:
            for name, value in vars(error).items():
                if isinstance(value, str):
                    setattr(error, name, self._without_places(value))
            error.args = tuple(self._without_places(one) if isinstance(one, str) else one for one in error.args)
            raise

    def _without_places(self, text: str) -> str:
        for place in self._places:
            text = text.replace(place, self.name)
        return text

    @contextmanager
    def _held(self, use: _Use) -> Iterator[Any]:
        handle = self._take(use)
        failed = False
        try:
            with stores.reported(self.url):
                yield handle.store
        except (apsw.Error, Fenced, Corruption, UnknownBranchError):
            failed = True
            raise
        finally:
            self._give_back(handle, failed)

    def _take(self, use: _Use) -> _Handle:
        while True:
            handle = self._kept_one(use)
            if handle is None:
                with self._opening_of(use):  # one opens, the others share it
                    handle = self._kept_one(use) if self.is_shared(write=use.write) else None
                    handle = handle or self._opened(use)
            if self._is_current(handle):
                return handle
            self._give_back(handle, failed=True)

    def _is_current(self, handle: _Handle) -> bool:
        """Whether a handle still has the types and the branch that it was opened with. A branch may have been renamed,
        and another may have its name now."""
        if self.model.name == stores.TYPED.name or handle.use.branch is not None:
            with stores.reported(self.url):
                return bool(handle.store.is_current())
        return True

    def _opening_of(self, use: _Use) -> threading.Lock:
        with self._lock:
            return self._opening.setdefault(use, threading.Lock())

    def _kept_one(self, use: _Use) -> _Handle | None:
        with self._lock:
            kept = self._kept.get(use)
            if not kept:
                return None
            handle = kept[0] if self.is_shared(write=use.write) else kept.pop()
            handle.users += 1
            return handle

    def _opened(self, use: _Use) -> _Handle:
        with self._lock:
            epoch = self._epoch
        handle = _Handle(self.found.open(write=use.write, branch=use.branch), use, epoch)
        if use.inline:
            handle.store.repository.db.set_busy_timeout(0)
        handle.users = 1
        with self._lock:
            if self.is_shared(write=use.write):
                self._kept.setdefault(use, []).append(handle)
        return handle

    def _give_back(self, handle: _Handle, failed: bool) -> None:
        with self._lock:
            handle.users -= 1
            kept = self._kept.setdefault(handle.use, [])
            shared = self.is_shared(write=handle.use.write)
            handle.spent = handle.spent or failed or handle.epoch != self._epoch
            if handle.spent and handle in kept:
                kept.remove(handle)
            elif not handle.spent and not shared:
                if len(kept) < (1 if handle.use.inline else _IDLE):
                    kept.append(handle)
                else:
                    handle.spent = True
            if not handle.spent or handle.users:
                return
        with suppress(OntolakeError, apsw.Error, OSError):
            handle.store.close()

    def refresh(self) -> None:
        """Open handles anew for whoever comes next: types or branches have changed."""
        self._forget()

    def _forget(self) -> None:
        with self._lock:
            self._epoch += 1
            idle = []
            for kept in self._kept.values():
                for handle in kept:
                    handle.spent = True
                idle += [handle for handle in kept if not handle.users]
            self._kept.clear()
        for handle in idle:
            with suppress(OntolakeError, apsw.Error, OSError):
                handle.store.close()

    def close(self) -> None:
        """Close every handle that nobody uses, the others when their users are done. That gives leases back."""
        self._forget()

    def handle_count(self) -> int:
        """How many handles are kept open."""
        with self._lock:
            return sum(map(len, self._kept.values()))

    def cached(self) -> tuple[int, int]:
        """The bytes of columns that handles of SQL tables keep in memory, and the rows that they had to decode."""
        if self.model.name != stores.SQL.name:
            return 0, 0
        with self._lock:
            caches = {id(one): one for kept in self._kept.values() for handle in kept
                      for one in [handle.store.session.columns]}
        return sum(one.size for one in caches.values()), sum(one.decoded for one in caches.values())

    # who writes

    def state(self) -> tuple[bool, bool, str | None]:
        """Whether it can be read, whether it can be written to, and what is in the way: who else writes, for one."""
        try:
            with self.reading() as store:
                store.snapshot()
        except StorageError as error:
            return False, False, error.message
        if not self.writes:
            return True, False, None
        try:
            with self._using(_Use(True, None)):
                return True, True, None
        except StorageError as error:  # `Contended` says who writes
            return True, False, error.message


class ServedStores:
    """All stores of a server."""

    def __init__(self, urls: Mapping[str, str], *, readonly: Iterable[str] = ()) -> None:
        """Find the stores at URLs, by name; those in `readonly` are not written to. Raises what `stores.find` does."""
        kept = frozenset(readonly)
        self._stores = {name: ServedStore(name, url, writes=name not in kept) for name, url in urls.items()}

    def __iter__(self) -> Iterator[ServedStore]:
        return iter(self._stores.values())

    def add(self, store: ServedStore) -> None:
        """Serve one more store, under its name."""
        self._stores = {**self._stores, store.name: store}

    def get(self, name: str) -> ServedStore:
        """The store of a name. Raises `RefusedError` with 404 if there is none."""
        found = self._stores.get(name)
        if found is None:
            raise RefusedError(404, f"there is no store {name!r} here", hint="GET /api/v1/stores lists what there is")
        return found

    def close(self) -> None:
        for store in self:
            store.close()


def _places(location: Location) -> list[str]:
    """The ways in which errors may say where a store is, longest first."""
    found = {location.url, location.base_url}
    if location.place in (Place.SQLITE, Place.PAGE_FILE, Place.DIRECTORY):
        found |= {location.path, os.path.abspath(location.path), os.path.realpath(location.path)}
    return sorted({one.rstrip("/") for one in found if "/" in one.rstrip("/") or "." in one}, key=len, reverse=True)


def _branch_names(store: Any) -> list[str]:
    """The branches of a store; none if its layout has no branches."""
    try:
        return [branch.name for branch in store.branches.list()]
    except (AttributeError, OntolakeError):
        return []
