"""Branches of a database: copy-on-write branches of the storage below it."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from ontolake import engine, faults, urls
from ontolake.engine.moments import commit_at, last_lsn
from ontolake.errors import NotFound
from ontolake.history import Branch, BranchError, BranchExistsError, ProtectedBranchError, UnknownBranchError
from ontolake.history.names import MAIN, check_branch_name
from ontolake.sql.errors import UnsupportedError
from ontolake.sql.history.lines import DELETED, is_hidden, version_of
from ontolake.sql.keyspace import homes
from ontolake.sql.keyspace.pages import open_pages
from ontolake.storage import BranchRef, Storage

Protect = Callable[[str, bool | None], bool]
"""Whether a branch is protected, after that was changed unless None was given."""


class PageBranches:
    """The branches of the storage below a database, hidden ones too."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.native = urls.parse(url).place is urls.Place.SQLITE

    def check(self) -> None:
        """Raise `UnsupportedError` where there are no branches."""
        if self.native:
            raise UnsupportedError(f"{self.url} is a native SQLite file, which has no branches",
                                   hint="use file:///absolute/path.db or object storage")

    def create(self, storage: Storage, name: str, at: int | None, parent: str) -> int:
        """A branch at a version of its parent, with the databases that ranges have moved to. Returns the version."""
        lsn = self._lsn(storage, parent, at)
        version = version_of(self.url, parent, lsn)
        for home in self.homes(parent, lsn):  # before the branch itself: it is there once they are
            home._create_with(name, parent, version)
            faults.reach("sql: range branched")
        storage.create_branch(name, lsn, parent=parent)
        return version

    def _create_with(self, name: str, parent: str, version: int) -> None:
        """Branch a database that holds ranges, at what it had of a version of the whole."""
        with open_pages(self.url) as storage:
            if name in names(storage):
                storage.delete_branch(name)  # left behind by an attempt that did not come to its end
            storage.create_branch(name, self._lsn(storage, parent, version, whole=False), parent=parent)

    def delete(self, storage: Storage, ref: BranchRef) -> None:
        """Delete a branch with those of the databases that ranges have moved to."""
        found = self._all_homes(ref)
        storage.delete_branch(ref.name)
        for url in found:
            with open_pages(url) as other:
                if ref.name in names(other):
                    other.delete_branch(ref.name)

    def rename(self, storage: Storage, ref: BranchRef, new: str) -> None:
        """Rename a branch, and first those of the databases that ranges have moved to."""
        for url in self._all_homes(ref):
            with open_pages(url) as other:
                if ref.name in names(other):
                    other.rename_branch(ref.name, new)
                    faults.reach("sql: branch of a range renamed")
        storage.rename_branch(ref.name, new)

    def _all_homes(self, ref: BranchRef) -> list[str]:
        """The databases that ranges have moved to, also those from which they have come home since."""
        return list(dict.fromkeys(home.url for lsn in (ref.base_lsn, None) for home in self.homes(ref.name, lsn)))

    def homes(self, branch: str, lsn: int | None) -> Sequence[PageBranches]:
        """The databases that ranges have moved to. Raises `UnsupportedError` for one that cannot be branched."""
        connection = engine.connect(self.url, branch=branch, at=lsn, readonly=True)
        try:
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'range'").fetchone():
                return []
            urls_found: Any = connection.execute("SELECT DISTINCT url FROM range WHERE url <> ''").fetchall()
        finally:
            connection.close(True)
        found = [PageBranches(homes.resolved(self.url, url)) for (url,) in urls_found]
        for each in found:
            each.check()
        return found

    def _lsn(self, storage: Storage, parent: str, version: int | None, *, whole: bool = True) -> int:
        """The LSN at which a version was the newest: found by halving, since versions grow with LSNs.

        Unless it is the whole that has to have this version, an older one may have been the newest.
        """
        ref = storage.resolve_branch(parent)
        high = ref.head_lsn
        newest = version_of(self.url, parent, high)
        if version is None or version == newest or (version > newest and not whole):
            return commit_at(storage, ref, high)
        if not 0 <= version < newest:
            raise NotFound(f"{parent} has no version {version}", hint=f"its newest is {newest}")
        low = last_lsn(high, lambda lsn: version_of(self.url, parent, lsn) <= version)
        if version_of(self.url, parent, low) != version and whole:
            raise NotFound(f"version {version} of {parent} is no longer kept")
        return commit_at(storage, storage.resolve_branch(parent), low)


def names(storage: Storage) -> set[str]:
    return {ref.name for ref in storage.list_branches()}


class SqlBranches:
    """The branches of a database: a `history.Branches`. A native file has none but `main`."""

    def __init__(
        self, url: str, tagged: Callable[[str], bool], protect: Protect, check_writable: Callable[[], None]
    ) -> None:
        """`tagged` tells whether there is a tag of a name, `protect` reads and changes protection, `check_writable`
        raises for a handle that only reads."""
        self._pages = PageBranches(url)
        self._tagged, self._protect, self._check_writable = tagged, protect, check_writable

    @property
    def is_native(self) -> bool:
        """Whether there can be none but the first."""
        return self._pages.native

    def list(self) -> Sequence[Branch[int]]:
        """All that live, the first one first; commits are versions."""
        url = self._pages.url
        if self._pages.native:
            return [Branch(MAIN, version_of(url, MAIN), protected=self._protect(MAIN, None))]
        with open_pages(url) as storage:
            refs = {ref.id: ref for ref in storage.list_branches()}
            return [self._branch(refs, ref) for ref in refs.values() if not is_hidden(ref.name)]

    def _branch(self, refs: dict[Any, BranchRef], ref: BranchRef) -> Branch[int]:
        url, protected = self._pages.url, self._protect(ref.name, None)
        head = version_of(url, ref.name)
        if ref.parent is None:
            return Branch(ref.name, head, protected=protected)
        parent = refs[ref.parent]
        base = version_of(url, parent.name, ref.base_lsn)
        while is_hidden(parent.name) and parent.parent is not None:  # where it would be if that had never been made
            base = min(base, version_of(url, refs[parent.parent].name, parent.base_lsn))
            parent = refs[parent.parent]
        return Branch(ref.name, head, base, parent.name, protected)

    def create(self, name: str, *, at: int | None = None, parent: str = MAIN) -> Branch[int]:
        """A branch of `parent` as it was at a version, else at its head. Copies nothing.

        The databases that ranges have moved to are branched with it. Raises `UnsupportedError` on a native file, or if
        a range is in one, `BranchExistsError`, `BranchError` for a name that cannot be one, `UnknownBranchError`,
        `NotFound` for a version that is not there.
        """
        check_branch_name(name)
        self._check_writable()
        self._pages.check()
        with open_pages(self._pages.url) as storage:
            self._find(storage, parent)
            self._check_free(storage, name)
            version = self._pages.create(storage, name, at, parent)
        return Branch(name, version, version, parent)

    def delete(self, name: str) -> None:
        """Give a branch up; what others have from it stays until `gc`. Raises `UnknownBranchError`, `BranchError` for
        `main`, `ProtectedBranchError`."""
        self._check_writable()
        self._pages.check()
        with open_pages(self._pages.url) as storage:
            ref = self._movable(storage, name, "deleted")
            if ref.head_lsn > ref.base_lsn or any(other.parent == ref.id for other in storage.list_branches()):
                self._pages.rename(storage, ref, f"{DELETED}{ref.id}")
            else:
                self._pages.delete(storage, ref)

    def rename(self, name: str, new: str) -> Branch[int]:
        """Give a branch another name; its history stays. Raises what `create` and `delete` raise."""
        check_branch_name(new)
        self._check_writable()
        self._pages.check()
        with open_pages(self._pages.url) as storage:
            ref = self._movable(storage, name, "renamed")
            self._check_free(storage, new)
            self._pages.rename(storage, ref, new)
        return next(branch for branch in self.list() if branch.name == new)

    def protect(self, name: str, protected: bool = True) -> Branch[int]:
        """Let a branch change by merges alone, or end that. Raises `UnknownBranchError`."""
        if self._pages.native:
            if name != MAIN:
                raise UnknownBranchError(name)
        else:
            with open_pages(self._pages.url) as storage:
                self._find(storage, name)
        self._protect(name, protected)
        return next(branch for branch in self.list() if branch.name == name)

    def purge(self, merged: Container[int]) -> None:
        """Remove deleted branches that nothing has history from: no branch, no tag, and none of `merged`."""
        with open_pages(self._pages.url) as storage:
            for ref in reversed(storage.list_branches()):
                if ref.name.startswith(DELETED) and ref.id not in merged and all(
                    other.parent != ref.id for other in storage.list_branches()
                ):
                    self._pages.delete(storage, ref)

    def _movable(self, storage: Storage, name: str, what: str) -> BranchRef:
        ref = self._find(storage, name)
        if name == MAIN:
            raise BranchError(name, f"is the first one, and cannot be {what}", hint="name another branch")
        if self._protect(name, None):
            raise ProtectedBranchError(name, what)
        return ref

    def _find(self, storage: Storage, name: str) -> BranchRef:
        for ref in storage.list_branches():
            if ref.name == name and not is_hidden(name):
                return ref
        raise UnknownBranchError(name)

    def _check_free(self, storage: Storage, name: str) -> None:
        if name in names(storage):
            raise BranchExistsError(name, "is there already", hint="use another name")
        if self._tagged(name):
            raise BranchExistsError(name, "cannot be called that: there is a tag of this name", hint="use another name")
