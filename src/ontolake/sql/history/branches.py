"""Branches of a database: copy-on-write branches of the storage below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ontolake import engine, faults, urls
from ontolake.engine.moments import commit_at, last_lsn
from ontolake.errors import Invalid, NotFound
from ontolake.history import Branch
from ontolake.sql.errors import UnsupportedError
from ontolake.sql.keyspace import homes
from ontolake.sql.keyspace.layout import NEWEST
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

        The databases that ranges have moved to are branched with it. Raises `UnsupportedError` on a native file, or if
        a range is in one, `AlreadyExists`, `Invalid` for a name that cannot be one, `NotFound` for a version or parent
        that is not there.
        """
        self._check()
        with open_storage(self._url) as storage:
            lsn = self._lsn(storage, parent, at)
            version = self._version(parent, lsn)
            homes = self._homes(parent, lsn)
            if homes and name not in {ref.name for ref in storage.list_branches()}:
                for home in homes:  # before the branch itself: it is there once they are
                    home._create_with(name, parent, version)
                    faults.reach("sql: range branched")
            storage.create_branch(name, lsn, parent=parent)
        return Branch(name, version, version, parent)

    def _create_with(self, name: str, parent: str, version: int) -> None:
        """Branch a database that holds ranges, at what it had of a version of the whole."""
        with open_storage(self._url) as storage:
            if name in {ref.name for ref in storage.list_branches()}:
                storage.delete_branch(name)  # left behind by an attempt that did not come to its end
            storage.create_branch(name, self._lsn(storage, parent, version, whole=False), parent=parent)

    def delete(self, name: str) -> None:
        """Give a branch up. Raises `NotFound`, or `Invalid` for `main`."""
        self._check()
        if name == MAIN:
            raise Invalid("main must stay", hint="delete another branch")
        with open_storage(self._url) as storage:
            known = {ref.name: ref for ref in storage.list_branches()}
            homes: dict[str, Branches] = {}
            if name in known:  # ranges may have come home since
                for lsn in (known[name].base_lsn, None):
                    homes |= {home._url: home for home in self._homes(name, lsn)}
            storage.delete_branch(name)
        for url in homes:
            with open_storage(url) as storage:
                if name in {ref.name for ref in storage.list_branches()}:
                    storage.delete_branch(name)

    def _check(self) -> None:
        if self._native:
            raise UnsupportedError(f"{self._url} is a native SQLite file, which has no branches",
                                   hint="use file:///absolute/path.db or object storage")

    def _homes(self, branch: str, lsn: int | None) -> Sequence[Branches]:
        """The databases that ranges have moved to. Raises `UnsupportedError` for one that cannot be branched."""
        connection = engine.connect(self._url, branch=branch, at=lsn, readonly=True)
        try:
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'range'").fetchone():
                return []
            urls_found: Any = connection.execute("SELECT DISTINCT url FROM range WHERE url <> ''").fetchall()
        finally:
            connection.close(True)
        found = [Branches(homes.resolved(self._url, url)) for (url,) in urls_found]
        for each in found:
            each._check()
        return found

    def _version(self, branch: str, lsn: int | None = None) -> int:
        options: dict[str, Any] = {} if self._native else {"branch": branch, "at": lsn}
        connection = engine.connect(self._url, readonly=True, **options)
        try:
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'state'").fetchone():
                return 0
            found: Any = connection.execute(f"SELECT {NEWEST}").get
            return int(found)
        finally:
            connection.close(True)

    def _lsn(self, storage: Storage, parent: str, version: int | None, *, whole: bool = True) -> int:
        """The LSN at which a version was the newest: found by halving, since versions grow with LSNs.

        Unless it is the whole that has to have this version, an older one may have been the newest.
        """
        ref = storage.resolve_branch(parent)
        high = ref.head_lsn
        newest = self._version(parent, high)
        if version is None or version == newest or (version > newest and not whole):
            return self._commit_lsn(storage, parent, high)
        if not 0 <= version < newest:
            raise NotFound(f"{parent} has no version {version}", hint=f"its newest is {newest}")
        low = last_lsn(high, lambda lsn: self._version(parent, lsn) <= version)
        if self._version(parent, low) != version and whole:
            raise NotFound(f"version {version} of {parent} is no longer kept")
        return self._commit_lsn(storage, parent, low)

    def _commit_lsn(self, storage: Storage, parent: str, lsn: int) -> int:
        return commit_at(storage, storage.resolve_branch(parent), lsn)
