"""Which files the commits of a store on objects wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ontolake.ontology.arrow.physical import concat
from ontolake.ontology.repository.objects.files import parquet_table
from ontolake.ontology.repository.objects.layout import type_key
from ontolake.ontology.repository.objects.upkeep.checks import manifests
from ontolake.ontology.repository.protocol import SchemaVersion

if TYPE_CHECKING:
    import pyarrow as pa

    from ontolake.ontology.repository.objects.base import S3Repository


class WrittenFile(NamedTuple):
    """A file that a commit wrote."""

    commit: int
    path: str
    rows: int


class CommitFiles(NamedTuple):
    """The files that some commits wrote under a version of a type, oldest first."""

    files: tuple[WrittenFile, ...]

    def table(self, repository: S3Repository) -> pa.Table | None:
        tables = [parquet_table(repository.access.need(file.path, "a manifest")) for file in self.files]
        return concat(tables) if tables else None


class ObjectCommits:
    """`CommitLog` of a store on objects: manifests are read once."""

    def __init__(self, repository: S3Repository) -> None:
        found: dict[tuple[str, int], list[WrittenFile]] = {}
        seen: set[str] = set()
        for _, manifest in manifests(repository, repository.moment()):
            for file in manifest.files:
                if file.path in seen:  # of another manifest of the same commit
                    continue
                seen.add(file.path)
                key = type_key(file.kind, file.type_name), file.schema_version_id
                found.setdefault(key, []).append(WrittenFile(manifest.commit_id, file.path, file.row_count))
        self._files = {key: tuple(reversed(files)) for key, files in found.items()}

    def counts(self, version: SchemaVersion) -> Mapping[int, int]:
        counts: dict[int, int] = {}
        for file in self._of(version):
            counts[file.commit] = counts.get(file.commit, 0) + file.rows
        return counts

    def rows(self, version: SchemaVersion, since: int, until: int) -> CommitFiles:
        return CommitFiles(tuple(file for file in self._of(version) if since < file.commit <= until))

    def _of(self, version: SchemaVersion) -> tuple[WrittenFile, ...]:
        key = type_key(version.type_kind, version.type_name), version.schema_version_id
        return self._files.get(key, ())
