"""Rows by key and commit on objects: what merges, differences and histories are made of.

Every manifest has the files of its commit, so that rows of keys at a commit are looked up as those of now are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ontolake.model.columns import Column
from ontolake.model.types import TypeInfo
from ontolake.ontology.arrow.physical import COMMIT, encoded, flags, places
from ontolake.ontology.repository.branched import KeyState
from ontolake.ontology.repository.objects import deletions
from ontolake.ontology.repository.objects.deletions import SIDES, keys_of
from ontolake.ontology.repository.objects.layout import CommitFile, DataFile, TypeState, type_key
from ontolake.ontology.repository.objects.read.scan import Span
from ontolake.ontology.repository.objects.states import state_of
from ontolake.ontology.repository.protocol import Row

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.ontology.repository.objects.v3 import S3RepositoryV3


class ObjectStates:
    """Reads rows of one version of a type: a `branched.StateReader`."""

    def __init__(self, repository: S3RepositoryV3) -> None:
        self._repository = repository

    def touched(self, info: TypeInfo, version: int, commits: Collection[int]) -> list[Row]:
        repository = self._repository
        with repository.reading():
            moment = repository.moment()
            manifests = [one for one in map(moment.find, sorted(commits)) if one is not None]
        files = [data_file(file, manifest.commit_id) for manifest in manifests for file in manifest.files
                 if (file.kind, file.type_name, file.schema_version_id) == (info.kind, info.name, version)]
        repository.files.load(files)
        names = places(info.keys)
        return sorted({key for file in files for key in keys_of(info, repository.files.table(file, names))})

    def rows(self, info: TypeInfo, version: int, keys: Sequence[Row], commit: int) -> list[Row]:
        if not keys or not commit:
            return []
        with self._repository.reading():
            state = self._state(info, version, commit)
        return rows_of_keys(info, deletions.find_rows(self._repository.scanner, info, state, keys))

    def written(self, info: TypeInfo, version: int, key: Row, commit: int) -> list[KeyState]:
        there = self._repository.holding(commit)
        with there.reading():
            moment = there.moment()
            known = [one for one in moment.versions(info.kind, info.name) if one.schema_version_id == version]
            state = state_of(there, moment, known[0]) if known else None
        found = there.scanner.scan(info, state, Span(commit, None, history=True, deletions=True), keys=[key[0]])
        rows = zip(rows_of_keys(info, found), found.column(COMMIT).to_pylist(), flags(found).tolist(), strict=True)
        return [KeyState(at, None if is_end else row) for row, at, is_end in rows if row[: len(key)] == tuple(key)]

    def live_relations(self, info: TypeInfo, version: int, side: str, keys: Collection[Row], commit: int) -> list[Row]:
        with self._repository.reading():
            state = self._state(info, version, commit)
        wanted = [key[0] for key in keys]
        return list(deletions.relations(self._repository.scanner, info, state, [SIDES.index(side)], wanted))

    def holders(
        self, info: TypeInfo, version: int, column: Column, values: Iterable[Any], commit: int
    ) -> list[tuple[Row, Any]]:  # fmt: skip
        from ontolake.ontology.repository.objects.uniqueness import holders

        with self._repository.reading():
            state = self._state(info, version, commit)
        return holders(self._repository.scanner, info, state, column, values)

    def _state(self, info: TypeInfo, version: int, commit: int) -> TypeState | None:
        """The files of a type as they were at a commit, if they were of this version then."""
        key = type_key(info.kind, info.name)
        manifest = self._repository.manifest_of(commit)
        entry = manifest.types.get(key) or manifest.dropped.get(key)
        if entry is None or entry.schema_version_id != version:
            return None
        own = manifest.states.get(key)
        return own or self._repository.records.manifest(entry.manifest_path, "a manifest").states.get(key)


def rows_of_keys(info: TypeInfo, table: pa.Table) -> list[Row]:
    """Encoded rows, keys first, truth values as the numbers that they are elsewhere."""
    parts = []
    for column in (*info.keys, *info.columns):
        values = encoded(column, table)
        parts.append([None if one is None else int(one) for one in values] if column.type.truth else values)
    return list(zip(*parts, strict=True))


def data_file(file: CommitFile, commit: int) -> DataFile:
    """A file that a commit wrote, as states have it."""
    assert file.size is not msgspec.UNSET
    low, high = (None if one is msgspec.UNSET else one for one in (file.low, file.high))
    deleted = 0 if file.deleted is msgspec.UNSET else file.deleted
    return DataFile(file.path, file.row_count, file.size, file.schema_version_id, commit, commit, file.content_sha256,
                    low=low, high=high, deleted=deleted)
