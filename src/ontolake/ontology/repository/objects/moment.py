"""One moment of a store: the head as it was read, and everything that follows from it, none of which ever changes."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import cached_property

import msgspec
from msgspec import UNSET, UnsetType

from ontolake.errors import Contended
from ontolake.history import Commit
from ontolake.history.metadata import AUTHOR, MESSAGE
from ontolake.model.types import Kind
from ontolake.ontology.errors import HeadMismatchError, StorageBackendError
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.access import StoreObjects
from ontolake.ontology.repository.objects.layout import (
    BranchEntry,
    CommitManifest,
    DataFile,
    Erasures,
    Head,
    Schemas,
    TypeEntry,
    TypeState,
    type_key,
)
from ontolake.ontology.repository.protocol import SchemaVersion
from ontolake.ontology.repository.times import parse_time
from ontolake.ontology.sizes import DEFAULT


class Records:
    """Manifests and schemas by path, kept once they were read."""

    def __init__(self, access: StoreObjects, most: int = DEFAULT.kept_manifests) -> None:
        self.access = access
        self._most = most
        self._kept: OrderedDict[str, msgspec.Struct] = OrderedDict()
        self._erased: str | UnsetType = UNSET
        self._files: Mapping[str, DataFile | None] = {}

    def manifest(self, path: str, why: str = "the head") -> CommitManifest:
        found = self._kept.get(path)
        if isinstance(found, CommitManifest):
            return found
        read = layout.decode(self.access.need(path, why), CommitManifest, path, self.access.url)
        read = layout.redirected(read, self._files) if self._files else read
        self.remember(path, read)
        return read

    def redirect(self, path: str | UnsetType) -> None:
        """Name files as the erasures of the head say, if they are not those that were known before."""
        if path == self._erased:
            return
        known = Erasures() if path is UNSET else layout.decode(
            self.access.need(path, "the head"), Erasures, path, self.access.url)
        self._kept.clear()
        self._erased, self._files = path, known.files

    def schemas(self, path: str) -> Schemas:
        found = self._kept.get(path)
        if not isinstance(found, Schemas):
            found = layout.decode(self.access.need(path, "a manifest"), Schemas, path, self.access.url)
            self.remember(path, found)
        return found

    def remember(self, path: str, record: msgspec.Struct) -> None:
        self._kept[path] = record
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


class Sight:
    """The head as the readers of one store see it, on whichever branches: as it is, or as it was when they began."""

    def __init__(self, access: StoreObjects, records: Records) -> None:
        self._access = access
        self._records = records
        self._pinned: tuple[Head, str] | None = None
        self._last: tuple[Head, str] | None = None
        self._closed = False

    def close(self) -> None:
        """Show nothing any more."""
        self._closed = True

    def look(self) -> tuple[Head, str]:
        """The head and its tag. Raises `StorageBackendError` if there is none, and once it is closed."""
        if self._closed:
            raise StorageBackendError(f"{self._access.url} is closed", hint="open it again")
        if self._pinned is not None:
            return self._pinned
        found = self._access.find(layout.HEAD)
        if found is None:
            raise StorageBackendError(f"the object {layout.HEAD!r} is missing in {self._access.url}",
                                      hint="restore it from a copy; nothing was changed")
        if self._last is None or self._last[1] != found.tag:
            self._last = layout.decode(found.data, Head, layout.HEAD, self._access.url), found.tag
        return self._last

    @contextlib.contextmanager
    def pinned(self) -> Iterator[None]:
        """A block in which the head stays as it is now.

        Raises `Contended` if a file was missing in it because a row was erased meanwhile.
        """
        outer = self._pinned
        if outer is None:
            self._pinned = self.look()
        try:
            yield
        except StorageBackendError as error:
            self._check_erasures(error)
            raise
        finally:
            self._pinned = outer

    def _check_erasures(self, error: StorageBackendError) -> None:
        """Raise `Contended` if the head knows of an erasure that came after the pinned one."""
        found = None if self._pinned is None else self._access.find(layout.HEAD)
        if found is not None and self._pinned is not None:
            head = layout.decode(found.data, Head, layout.HEAD, self._access.url)
            if head.erased != self._pinned[0].erased:
                raise Contended(f"a row was erased at {self._access.url} while it was read",
                                hint="read again, from the beginning") from error

    @contextlib.contextmanager
    def at(self, moment: HeadSnapshot) -> Iterator[None]:
        """A block in which the head is as it was at a moment."""
        before, self._pinned = self._pinned, (moment.head, moment.tag)
        try:
            yield
        finally:
            self._pinned = before


class OtherBranchMoved(HeadMismatchError):
    """Others committed, but not to the branch that is written: the commit takes another id, and differs as before."""

    def __init__(self, uri: str, now: HeadSnapshot) -> None:
        super().__init__(f"another commit came first at {uri!r}", hint="try again")
        self.now = now


class HeadSnapshot:
    """What a reader sees for as long as it reads: the head, and the line of commits of one branch of it."""

    def __init__(self, head: Head, tag: str, records: Records, branch: BranchEntry | None = None) -> None:
        self.head = head
        self.tag = tag
        self.branch = branch
        self._records = records

    @property
    def commit_id(self) -> int:
        """The newest commit of the branch."""
        return self.head.commit_id if self.branch is None else self.branch.head_commit_id

    @property
    def next_commit(self) -> int:
        """The id of the next commit, on whichever branch it will be."""
        return self.head.commit_id + 1

    @property
    def manifest_path(self) -> str | None:
        """The manifest of the newest commit of the branch."""
        return self.head.manifest_path if self.branch is None else self.branch.manifest_path

    @cached_property
    def manifest(self) -> CommitManifest | None:
        path = self.manifest_path
        return None if path is None else self._records.manifest(path)

    @cached_property
    def newest(self) -> CommitManifest | None:
        """The manifest of the newest commit of all branches."""
        path = self.head.manifest_path
        return None if path is None else self._records.manifest(path)

    @cached_property
    def schemas(self) -> Schemas:
        manifest = self.manifest
        return Schemas() if manifest is None or manifest.schemas is None else self._records.schemas(manifest.schemas)

    @cached_property
    def current(self) -> dict[tuple[Kind, str], SchemaVersion]:
        """The current version of every type that was not dropped."""
        found = {}
        for key, entry in (self.manifest.types if self.manifest else {}).items():
            kind, name = layout.split_key(key)
            if (kind, name) in self.dropped:
                continue
            version = [one for one in self.versions(kind, name) if one.schema_version_id == entry.schema_version_id]
            if not version:
                raise self._broken(f"there is no schema for version {entry.schema_version_id} of {name}")
            found[kind, name] = version[0]
        return found

    def _broken(self, what: str) -> StorageBackendError:
        return StorageBackendError(f"{what}, which the manifest {self.manifest_path!r} names",
                                   hint="restore it from a copy; onto verify looks at all objects")

    def versions(self, kind: Kind, name: str) -> list[SchemaVersion]:
        return [SchemaVersion(kind, name, one.schema_version_id, one.schema, one.schema_hash, one.created_at,
                              one.runtime_id, one.reason)
                for one in self.schemas.types.get(type_key(kind, name), ())]

    @cached_property
    def dropped(self) -> set[tuple[Kind, str]]:
        """The types that were dropped. The first branch knows of those that went after the commit of this one."""
        first = None if self.branch is None or not self.branch.id else self.head.branch(0)
        known = {*self.schemas.dropped}
        if first is not None and first.schemas is not None:
            known.update(self._records.schemas(first.schemas).dropped)
        return {layout.split_key(key) for key in known}

    def state(self, kind: Kind, name: str) -> TypeState | None:
        """The files of a current type."""
        if self.manifest is None:
            return None
        key = type_key(kind, name)
        entry = self.manifest.types.get(key)
        if entry is None:
            return None
        own = self.manifest.states.get(key)
        if own is not None:
            return own
        found = self._records.manifest(entry.manifest_path, "a manifest").states.get(key)
        if found is None:
            raise self._broken(f"{entry.manifest_path!r} does not have the files of {name}")
        return found

    def commit_of(self, entry: TypeEntry) -> int:
        """The commit that wrote the files of a type last, or merged them."""
        if entry.manifest_path == self.manifest_path:
            return self.commit_id
        return self._records.manifest(entry.manifest_path, "a manifest").commit_id

    # the chain
    def at(self, commit_id: int) -> CommitManifest | None:
        """The manifest of a commit that the branch has, found in few steps; None if there is no such commit."""
        found = self.find(commit_id)
        return found if found is not None and self.has(found) else None

    def find(self, commit_id: int) -> CommitManifest | None:
        """The same of a commit on whichever branch."""
        found = self.newest
        if found is None or not 0 < commit_id <= found.commit_id:
            return None
        while found.commit_id != commit_id:
            ways = [one for one in found.ancestors if one[0] >= commit_id]
            if not ways:
                raise self._broken(f"nothing leads to commit {commit_id}")
            path = min(ways, key=lambda one: one[0])[1]
            found = self._records.manifest(path, "a manifest")
        return found

    def has(self, manifest: CommitManifest) -> bool:
        """Whether the branch has a commit."""
        return self.branch is None or self.branch.sees(manifest.branch, manifest.commit_id)

    def before(self, manifest: CommitManifest) -> CommitManifest | None:
        """The manifest of the first parent."""
        path = manifest.parent_manifest_path
        return None if path is None else self._records.manifest(path, "a manifest")

    def line(self, until: int | None = None) -> Iterator[CommitManifest]:
        """The manifests of the commits of the branch up to a commit, newest first."""
        found = self.manifest
        if until is not None and until < self.commit_id:
            found = None
            for commit_id in range(until, 0, -1):
                found = self.at(commit_id)
                if found is not None:
                    break
        while found is not None:
            yield found
            found = self.before(found)

    def commits(self, since: int, until: int | None, limit: int | None) -> Iterator[Commit[int]]:
        """Commits in `(since, until]`, newest first."""
        for found in self.line(until):
            if found.commit_id <= since or (limit is not None and limit <= 0):
                return
            yield self.commit_from(found)
            limit = None if limit is None else limit - 1

    def commit_from(self, manifest: CommitManifest) -> Commit[int]:
        """What a manifest says of its commit."""
        metadata = manifest.metadata
        message = None if self.branch is None else metadata.get(MESSAGE)
        return Commit(manifest.commit_id, manifest.parents, parse_time(manifest.created_at), metadata.get(AUTHOR),
                      metadata, message if isinstance(message, str) else None)
