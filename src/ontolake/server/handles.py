"""The stores that a server serves, by name, and the open handles that requests share."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ontolake import stores
from ontolake.history.refs import Ref
from ontolake.server.problems import RefusedError


class ServedStore:
    """One store behind a name. Handles are opened at first use and shared by threads; those of a branch by its name
    where the model opens stores at a branch."""

    def __init__(self, name: str, url: str, *, writes: bool = True) -> None:
        """Raises what `stores.find` raises."""
        self.name = name
        self.url = url
        self.writes = writes
        self.found = stores.find(url)
        self._handles: dict[tuple[bool, str | None], Any] = {}
        self._lock = threading.Lock()
        self.turn = threading.RLock()
        """Whoever changes the store holds it, where its model cannot do that for several threads."""

    @property
    def model(self) -> stores.Model:
        assert self.found.model is not None
        return self.found.model

    @property
    def first_branch(self) -> str:
        """The branch that is meant where none is named."""
        return "main"

    def branch_of(self, ref: str | None) -> str | None:
        """The branch whose history a reference reads: None if only the store could tell, so that it counts as any."""
        if ref is None:
            return self.first_branch
        parsed = Ref.parse(ref)
        with self.reading() as store:
            names = {branch.name for branch in store.branches.list()} if hasattr(store, "branches") else set()
        if parsed.branch is None:
            return self.first_branch if parsed.commit is None or parsed.time is not None else None
        return parsed.branch if parsed.branch in names or not names else None

    @contextmanager
    def reading(self, branch: str | None = None) -> Iterator[Any]:
        """The store for reading, shared with other threads."""
        yield self._handle(False, branch)

    @contextmanager
    def writing(self, branch: str | None = None) -> Iterator[Any]:
        """The store for writing. Writers of one store take turns. Raises `RefusedError` if the server only reads it."""
        if not self.writes:
            raise RefusedError(403, f"the store {self.name!r} is served for reading only")
        with self.turn:
            yield self._handle(True, branch)

    def _handle(self, write: bool, branch: str | None) -> Any:
        at = branch if self.model.opens_branch else None
        with self._lock:
            found = self._handles.get((write, at))
            if found is None:
                found = self._handles[write, at] = self.found.open(write=write, branch=at)
            return found

    def close(self) -> None:
        """Close every handle, and with it give leases back."""
        with self._lock:
            handles, self._handles = list(self._handles.values()), {}
        for handle in handles:
            handle.close()


class ServedStores:
    """All stores of a server."""

    def __init__(self, urls: Mapping[str, str]) -> None:
        self._stores = {name: ServedStore(name, url) for name, url in urls.items()}

    def __iter__(self) -> Iterator[ServedStore]:
        return iter(self._stores.values())

    def get(self, name: str) -> ServedStore:
        """The store of a name. Raises `RefusedError` with 404 if there is none."""
        found = self._stores.get(name)
        if found is None:
            raise RefusedError(404, f"there is no store {name!r} here", hint="GET /api/v1/stores lists what there is")
        return found

    def close(self) -> None:
        for store in self:
            store.close()
