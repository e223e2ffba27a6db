"""Branches on pages: copy-on-write branches of the storage below a database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ontolake import engine, faults, urls
from ontolake.engine.moments import commit_at, last_lsn
from ontolake.errors import NotFound
from ontolake.sql.errors import UnsupportedError
from ontolake.sql.history.lines import LineRef, base_counter, version_of
from ontolake.sql.keyspace import homes
from ontolake.sql.keyspace.layout import NEWEST
from ontolake.sql.keyspace.pages import open_pages
from ontolake.storage import BranchRef, Storage


class PageBranches:
    """The branches of the storage below a database, internal ones too: a `BranchKeeper`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def check(self) -> None:
        """Raise `UnsupportedError` if ranges are in a native file, which the storage cannot branch."""
        if urls.parse(self.url).place is urls.Place.SQLITE:
            raise UnsupportedError(f"{self.url} is a native SQLite file with a range of a database on pages, which "
                                   "cannot be branched with it", hint="move the range to pages first")

    def refs(self) -> list[LineRef]:
        """All branches, the first one first. At which version each left its parent is not known yet."""
        with open_pages(self.url) as storage:
            found = storage.list_branches()
        return [LineRef(int(ref.id), ref.name, None if ref.parent is None else int(ref.parent)) for ref in found]

    def head(self, ref: LineRef) -> int:
        """The newest version of a branch."""
        return version_of(self.url, ref.name)

    def base(self, ref: LineRef, parent: LineRef) -> int:
        """The version at which a branch left its parent."""
        with open_pages(self.url) as storage:
            lsn = storage.resolve_branch(ref.name).base_lsn
        return version_of(self.url, parent.name, lsn, base_counter(ref.id))

    def is_used(self, ref: LineRef) -> bool:
        """Whether a branch has commits of its own, or others have history from it."""
        with open_pages(self.url) as storage:
            known = storage.list_branches()
        own = next(each for each in known if int(each.id) == ref.id)
        # An erasure may have moved the base behind all that was written to the branch.
        return own.head_lsn != own.base_lsn or any(each.parent == own.id for each in known)

    def create(self, name: str, at: int | None, parent: str) -> int:
        """A branch at a version of its parent, with the databases that ranges have moved to. Returns the version."""
        with open_pages(self.url) as storage:
            lsn = self._lsn(storage, parent, at)
            version, homes_then = self._state(parent, lsn)
            for home in homes_then:  # before the branch itself: it is there once they are
                home._create_with(name, parent, version)
                faults.reach("sql: range branched")
            storage.create_branch(name, lsn, parent=parent)
        return version

    def _create_with(self, name: str, parent: str, version: int) -> None:
        """Branch a database that holds ranges, at what it had of a version of the whole."""
        with open_pages(self.url) as storage:
            if name in _names(storage):
                storage.delete_branch(name)  # left behind by an attempt that did not come to its end
            storage.create_branch(name, self._lsn(storage, parent, version, whole=False), parent=parent)

    def delete(self, ref: LineRef) -> None:
        """Delete a branch with those of the databases that ranges have moved to."""
        with open_pages(self.url) as storage:
            found = self._all_homes(storage.resolve_branch(ref.name))
            storage.delete_branch(ref.name)
        for url in found:
            with open_pages(url) as other:
                if ref.name in _names(other):
                    other.delete_branch(ref.name)

    def rename(self, ref: LineRef, new: str) -> None:
        """Rename a branch, and first those of the databases that ranges have moved to."""
        with open_pages(self.url) as storage:
            for url in self._all_homes(storage.resolve_branch(ref.name)):
                with open_pages(url) as other:
                    if ref.name in _names(other):
                        other.rename_branch(ref.name, new)
                        faults.reach("sql: branch of a range renamed")
            storage.rename_branch(ref.name, new)

    def _all_homes(self, ref: BranchRef) -> list[str]:
        """The databases that ranges have moved to, also those from which they have come home since."""
        return list(dict.fromkeys(home.url for lsn in (ref.base_lsn, None) for home in self._homes(ref.name, lsn)))

    def _homes(self, branch: str, lsn: int | None) -> Sequence[PageBranches]:
        """The databases that ranges have moved to. Raises `UnsupportedError` for one that cannot be branched."""
        return self._state(branch, lsn)[1]

    def _state(self, branch: str, lsn: int | None) -> tuple[int, Sequence[PageBranches]]:
        """The newest version of a branch, now or at an LSN, and where its ranges have moved to: from one connection,
        since opening one costs more than all that is asked of it. Raises `UnsupportedError`."""
        connection = engine.connect(self.url, branch=branch, at=lsn, readonly=True)
        try:
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'range'").fetchone():
                return 0, []
            version: Any = connection.execute(f"SELECT {NEWEST}").get
            urls_found: Any = connection.execute("SELECT DISTINCT url FROM range WHERE url <> ''").fetchall()
        finally:
            connection.close(True)
        found = [PageBranches(homes.resolved(self.url, url)) for (url,) in urls_found]
        for each in found:
            each.check()
        return int(version), found

    def _lsn(self, storage: Storage, parent: str, version: int | None, *, whole: bool = True) -> int:
        """The LSN at which a version was the newest: found by halving, since versions grow with LSNs.

        Unless it is the whole that has to have this version, an older one may have been the newest.
        """
        ref = storage.resolve_branch(parent)
        high = ref.head_lsn
        if version is None:
            return commit_at(storage, ref, high)
        newest = version_of(self.url, parent, high)
        if version == newest or (version > newest and not whole):
            return commit_at(storage, ref, high)
        if not 0 <= version < newest:
            raise NotFound(f"{parent} has no version {version}", hint=f"its newest is {newest}")
        low = last_lsn(high, lambda lsn: version_of(self.url, parent, lsn) <= version)
        if version_of(self.url, parent, low) != version and whole:
            raise NotFound(f"version {version} of {parent} is no longer kept")
        return commit_at(storage, storage.resolve_branch(parent), low)


def _names(storage: Storage) -> set[str]:
    return {ref.name for ref in storage.list_branches()}
