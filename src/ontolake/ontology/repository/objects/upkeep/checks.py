"""Reading all that a store on objects is made of, to find what cannot be right."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ontolake.errors import OntolakeError
from ontolake.history import Damage
from ontolake.model.stored import StoredType
from ontolake.ontology.arrow.physical import rows_of
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.layout import CommitManifest
from ontolake.ontology.repository.objects.queue.checks import check_queue
from ontolake.ontology.repository.objects.read.scan import Span
from ontolake.ontology.repository.objects.states import live_states, only_version, state_of
from ontolake.ontology.repository.objects.upkeep.phantoms import phantom_rows
from ontolake.ontology.repository.protocol import Row, SchemaVersion

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.base import S3Repository
    from ontolake.ontology.repository.objects.moment import HeadSnapshot


def manifests(repository: S3Repository, moment: HeadSnapshot) -> Iterator[tuple[str, CommitManifest]]:
    """The chain of manifests with their paths, newest first. Raises what reading one raises."""
    path = moment.head.manifest_path
    while path is not None:
        found = repository.records.manifest(path, "the manifest after it")
        yield path, found
        path = found.parent_manifest_path


def check(repository: S3Repository) -> Iterator[Damage]:
    """What is missing, cut short, or has other bytes than it was written with; manifests that do not fit."""
    try:
        moment = repository.moment()
        yield from check_chain(repository, moment)
        seen: set[str] = set()
        for _, manifest in manifests(repository, moment):
            for file in manifest.files:
                yield from _bytes(repository, file.path, file.content_sha256, seen)
        for state in live_states(repository, moment):
            for one in (*state.runs, *state.past):
                yield from _bytes(repository, one.path, one.content_sha256, seen)
        yield from phantom_rows(repository, moment)
    except OntolakeError as error:
        yield Damage(layout.HEAD, str(error))


def _bytes(repository: S3Repository, path: str, digest: str, seen: set[str]) -> Iterator[Damage]:
    if path in seen:
        return
    seen.add(path)
    found = repository.access.find(path)
    if found is None:
        yield Damage(path, "a manifest names it, and it is missing")
    elif digest and hashlib.sha256(found.data).hexdigest() != digest:
        yield Damage(path, f"its {len(found.data)} bytes are not those that were written")


def check_chain(repository: S3Repository, moment: HeadSnapshot) -> Iterator[Damage]:
    """Manifests, types and the queue of events where they do not fit to each other, without files of rows."""
    below = moment.commit_id + 1
    for path, manifest in manifests(repository, moment):
        if manifest.commit_id != below - 1:
            yield Damage(path, f"it is of commit {manifest.commit_id}, where {below - 1} should be")
        below = manifest.commit_id
    if below not in (0, 1):
        yield Damage(moment.head.manifest_path or layout.HEAD, f"the chain ends at commit {below}, not at 1")
    yield from _types(repository, moment)
    yield from check_queue(repository, moment)


def _types(repository: S3Repository, moment: HeadSnapshot) -> Iterator[Damage]:
    for key, entry in (moment.manifest.types if moment.manifest else {}).items():
        kind, name = layout.split_key(key)
        known = {one.schema_version_id for one in moment.versions(kind, name)}
        if entry.schema_version_id not in known:
            yield Damage(key, f"version {entry.schema_version_id} is current, and there is no schema for it")
        state = moment.state(kind, name)
        if state is not None and state.schema_version_id != entry.schema_version_id:
            yield Damage(key, f"its files are of version {state.schema_version_id}, not {entry.schema_version_id}")


def stored_history(repository: S3Repository, version: SchemaVersion) -> Iterator[Row]:
    """All rows that were written under a version of a schema."""
    moment = repository.moment()
    stored = StoredType(version.schema)
    state = state_of(repository, moment, version)
    if state is not None and not repository.versions_apart:
        state = only_version(state, state.schema_version_id, version.schema_version_id)
    return rows_of(stored.all_columns, repository.scanner.scan(stored, state, Span(history=True)))
