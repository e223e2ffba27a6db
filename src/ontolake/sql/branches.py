"""Branches of a database: copy-on-write branches of the storage below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ontolake import engine, urls
from ontolake.errors import Invalid, NotFound
from ontolake.history import Branch
from ontolake.sql.errors import UnsupportedError
from ontolake.storage import Storage, open_storage

MAIN = "main"


class Branches:
    """The branches of a database: a `history.Branches`. A native file has none but `main`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._native = urls.parse(url).place is urls.Place.SQLITE

    def list(self) -> Sequence[Branch[int]]:
        """All that live, the first one first; commits are versions."""
        if self._native:
            return [Branch(MAIN, self._version(MAIN))]
        with open_storage(self._url) as storage:
            found = storage.list_branches()
            names = {ref.id: ref.name for ref in found}
            return [Branch(ref.name, self._version(ref.name),
                           None if ref.parent is None else self._version(names[ref.parent], ref.base_lsn),
                           None if ref.parent is None else names[ref.parent]) for ref in found]  # fmt: skip

    def create(self, name: str, *, at: int | None = None, parent: str = MAIN) -> Branch[int]:
        """A branch of `parent` as it was at a version, else at its head. Copies nothing.

        Raises `UnsupportedError` on a native file, `AlreadyExists`, `Invalid` for a name that cannot be one,
        `NotFound` for a version or parent that is not there.
        """
        self._check()
        self._check_ranges(parent)
        with open_storage(self._url) as storage:
            lsn = self._lsn(storage, parent, at)
            storage.create_branch(name, lsn, parent=parent)
        version = self._version(name)
        return Branch(name, version, version, parent)

    def delete(self, name: str) -> None:
        """Give a branch up. Raises `NotFound`, or `Invalid` for `main`."""
        self._check()
        if name == MAIN:
            raise Invalid("main must stay", hint="delete another branch")
        with open_storage(self._url) as storage:
            storage.delete_branch(name)

    def _check(self) -> None:
        if self._native:
            raise UnsupportedError(f"{self._url} is a native SQLite file, which has no branches",
                                   hint="use file:///absolute/path.db or object storage")

    def _check_ranges(self, parent: str) -> None:
        connection = engine.connect(self._url, branch=parent, readonly=True)
        try:
            if connection.execute("SELECT 1 FROM range WHERE url <> ''").fetchone():
                raise UnsupportedError("a database with ranges in databases of their own cannot be branched",
                                       hint="move the ranges back first")
        finally:
            connection.close(True)

    def _version(self, branch: str, lsn: int | None = None) -> int:
        options: dict[str, Any] = {} if self._native else {"branch": branch, "at": lsn}
        connection = engine.connect(self._url, readonly=True, **options)
        try:
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'state'").fetchone():
                return 0
            found: Any = connection.execute("SELECT version FROM state").get
            return int(found)
        finally:
            connection.close(True)

    def _lsn(self, storage: Storage, parent: str, version: int | None) -> int:
        """The LSN at which a version was the newest: found by halving, since versions grow with LSNs."""
        ref = storage.resolve_branch(parent)
        high = ref.head_lsn
        newest = self._version(parent, high)
        if version is None or version == newest:
            return self._commit_lsn(storage, parent, high)
        if not 0 <= version < newest:
            raise NotFound(f"{parent} has no version {version}", hint=f"its newest is {newest}")
        low = 0
        while high - low > 1:
            middle = (low + high) // 2
            try:
                before = self._version(parent, middle)
            except NotFound:
                before = -1
            low, high = (middle, high) if before <= version else (low, middle)
        if self._version(parent, low) != version:
            raise NotFound(f"version {version} of {parent} is no longer kept")
        return self._commit_lsn(storage, parent, low)

    def _commit_lsn(self, storage: Storage, parent: str, lsn: int) -> int:
        from ontolake.engine.moments import commit_at

        return commit_at(storage, storage.resolve_branch(parent), lsn)
