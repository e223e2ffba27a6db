"""One moment of a store: the head as it was read, and everything that follows from it, none of which ever changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property
from typing import TypeVar

import msgspec

from ontolake.history import Commit
from ontolake.history.metadata import AUTHOR
from ontolake.model.types import Kind
from ontolake.ontology.errors import StorageBackendError
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.access import StoreObjects
from ontolake.ontology.repository.objects.layout import CommitManifest, Head, Schemas, TypeEntry, TypeState, type_key
from ontolake.ontology.repository.protocol import SchemaVersion
from ontolake.ontology.repository.times import parse_time
from ontolake.ontology.sizes import DEFAULT

S = TypeVar("S", bound=msgspec.Struct)


class Records:
    """Manifests and schemas by path, kept once they were read."""

    def __init__(self, access: StoreObjects, most: int = DEFAULT.kept_manifests) -> None:
        self.access = access
        self._most = most
        self._kept: OrderedDict[str, msgspec.Struct] = OrderedDict()

    def manifest(self, path: str, why: str = "the head") -> CommitManifest:
        return self._read(path, CommitManifest, why)

    def schemas(self, path: str) -> Schemas:
        return self._read(path, Schemas, "a manifest")

    def _read(self, path: str, kind: type[S], why: str) -> S:
        found = self._kept.get(path)
        if not isinstance(found, kind):
            found = layout.decode(self.access.need(path, why), kind, path, self.access.url)
            self.remember(path, found)
        return found

    def remember(self, path: str, record: msgspec.Struct) -> None:
        self._kept[path] = record
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


class HeadSnapshot:
    """What a reader sees for as long as it reads."""

    def __init__(self, head: Head, tag: str, records: Records) -> None:
        self.head = head
        self.tag = tag
        self._records = records

    @property
    def commit_id(self) -> int:
        return self.head.commit_id

    @cached_property
    def manifest(self) -> CommitManifest | None:
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
            version = [one for one in self.versions(kind, name) if one.schema_version_id == entry.schema_version_id]
            if not version:
                raise self._broken(f"there is no schema for version {entry.schema_version_id} of {name}")
            found[kind, name] = version[0]
        return found

    def _broken(self, what: str) -> StorageBackendError:
        return StorageBackendError(f"{what}, which the manifest {self.head.manifest_path!r} names",
                                   hint="restore it from a copy; onto verify looks at all objects")

    def versions(self, kind: Kind, name: str) -> list[SchemaVersion]:
        return [SchemaVersion(kind, name, one.schema_version_id, one.schema, one.schema_hash, one.created_at,
                              one.runtime_id, one.reason)
                for one in self.schemas.types.get(type_key(kind, name), ())]

    @cached_property
    def dropped(self) -> set[tuple[Kind, str]]:
        return {layout.split_key(key) for key in self.schemas.dropped}

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
        if entry.manifest_path == self.head.manifest_path:
            return self.commit_id
        return self._records.manifest(entry.manifest_path, "a manifest").commit_id

    # the chain
    def at(self, commit_id: int) -> CommitManifest | None:
        """The manifest of a commit, found in few steps; None if there is no such commit."""
        found = self.manifest
        if found is None or not 0 < commit_id <= found.commit_id:
            return None
        while found.commit_id != commit_id:
            ways = [one for one in found.ancestors if one[0] >= commit_id]
            if not ways:
                raise self._broken(f"nothing leads to commit {commit_id}")
            path = min(ways, key=lambda one: one[0])[1]
            found = self._records.manifest(path, "a manifest")
        return found

    def commits(self, since: int, until: int | None, limit: int | None) -> Iterator[Commit[int]]:
        """Commits in `(since, until]`, newest first."""
        found = self.at(self.commit_id if until is None else min(until, self.commit_id))
        while found is not None and found.commit_id > since and (limit is None or limit > 0):
            parent = found.parent_commit_id
            yield Commit(found.commit_id, () if parent is None else (parent,), parse_time(found.created_at),
                         found.metadata.get(AUTHOR), found.metadata)
            limit = None if limit is None else limit - 1
            path = found.parent_manifest_path
            found = None if path is None else self._records.manifest(path, "a manifest")
