"""Reading all that a store on objects is made of, to find what cannot be right."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from msgspec import UNSET

from ontolake.errors import OntolakeError
from ontolake.history import Damage
from ontolake.model.stored import StoredType
from ontolake.ontology.arrow.physical import rows_of
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.layout import CommitManifest
from ontolake.ontology.repository.objects.queue.checks import check_queue
from ontolake.ontology.repository.objects.read.scan import Span
from ontolake.ontology.repository.objects.states import live_states, only_version, state_of
from ontolake.ontology.repository.objects.upkeep.links import check_links
from ontolake.ontology.repository.objects.upkeep.phantoms import phantom_rows
from ontolake.ontology.repository.protocol import Row, SchemaVersion

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.base import S3Repository
    from ontolake.ontology.repository.objects.moment import HeadSnapshot


def manifests(repository: S3Repository, moment: HeadSnapshot) -> Iterator[tuple[str, CommitManifest]]:
    """The manifests of all commits with their paths, newest first. Raises what reading one raises.

    Where there are branches, a commit can have several, that differ in how files are merged.
    """
    known = () if moment.head.branches is UNSET else moment.head.branches
    starts = {moment.head.manifest_path, *(one.manifest_path for one in known)} - {None}
    waiting = [(-_read(repository, path).commit_id, path) for path in starts if path is not None]
    heapify(waiting)
    seen = {path for _, path in waiting}
    while waiting:
        _, path = heappop(waiting)
        found = _read(repository, path)
        yield path, found
        for one in (found.parent_manifest_path, *(path for _, path in found.ancestors[:1])):
            if one is not None and one not in seen:
                seen.add(one)
                heappush(waiting, (-_read(repository, one).commit_id, one))


def _read(repository: S3Repository, path: str) -> CommitManifest:
    return repository.records.manifest(path, "the manifest after it")


def check(repository: S3Repository) -> Iterator[Damage]:
    """What is missing, cut short, or has other bytes than it was written with; manifests that do not fit."""
    try:
        moment = repository.moment()
        yield from check_chain(repository, moment)
        seen: set[str] = set()
        damaged = False
        kept = repository.kept_branches()
        for _, manifest in manifests(repository, moment):
            for file in manifest.files if manifest.branch in kept else ():
                for damage in _bytes(repository, file.path, file.content_sha256, seen):
                    damaged = True
                    yield damage
        for line in repository.lines():
            for state in live_states(line, line.moment()):
                for one in (*state.runs, *state.past):
                    for damage in _bytes(repository, one.path, one.content_sha256, seen):
                        damaged = True
                        yield damage
        if not damaged:  # else rows cannot be read, or are not those that were written
            yield from check_links(repository)
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
    below = moment.head.commit_id + 1
    for path, manifest in manifests(repository, moment):
        if manifest.commit_id != below - 1 and not (repository.keeps_branches and manifest.commit_id == below):
            yield Damage(path, f"it is of commit {manifest.commit_id}, where {below - 1} should be")
        below = manifest.commit_id
    if below not in (0, 1):
        yield Damage(moment.manifest_path or layout.HEAD, f"the chain ends at commit {below}, not at 1")
    for line in repository.lines():
        yield from _types(line, line.moment())
        yield from _branch(line.moment())
    for name, tag in ({} if moment.head.tags is UNSET else moment.head.tags).items():
        if moment.find(tag.commit_id) is None:
            yield Damage(f"tag {name}", "its commit is not there")
    yield from check_queue(repository, moment)


def _branch(moment: HeadSnapshot) -> Iterator[Damage]:
    """A branch whose head, beginning or line of commits is not what the head says."""
    entry, manifest = moment.branch, moment.manifest
    if entry is None:
        return
    where = f"branch {entry.name}"
    if (0 if manifest is None else manifest.commit_id) != entry.head_commit_id:
        yield Damage(where, f"its head is not commit {entry.head_commit_id}, which it should be")
    if entry.base_commit_id and moment.find(entry.base_commit_id) is None:
        yield Damage(where, "it begins at a commit that is not there")
    following: CommitManifest | None = None
    for one in moment.line():
        if not moment.has(one):
            yield Damage(where, f"commit {one.commit_id} is in its line, and of another branch")
        if following is not None and (one.commit_id >= following.commit_id
                                      or following.parent_commit_id != one.commit_id):
            yield Damage(where, f"the parent of commit {following.commit_id} is not there or came later")
        following = one


def _types(repository: S3Repository, moment: HeadSnapshot) -> Iterator[Damage]:
    for key, entry in (moment.manifest.types if moment.manifest else {}).items():
        kind, name = layout.split_key(key)
        known = {one.schema_version_id for one in moment.versions(kind, name)}
        if entry.schema_version_id not in known:
            yield Damage(key, f"version {entry.schema_version_id} is current, and there is no schema for it")
        state = moment.state(kind, name)
        if state is not None and state.schema_version_id != entry.schema_version_id:
            yield Damage(key, f"its files are of version {state.schema_version_id}, not {entry.schema_version_id}")


def stored_history(repository: S3Repository, version: SchemaVersion, since: int | None = None) -> Iterator[Row]:
    """All rows that were written under a version of a schema, by commits of the branch after `since` if it is given."""
    moment = repository.moment()
    stored = StoredType(version.schema)
    state = state_of(repository, moment, version)
    if state is not None and not repository.versions_apart:
        state = only_version(state, state.schema_version_id, version.schema_version_id)
    span = Span(None, since, history=True, deletions=True)
    return rows_of(stored.all_columns, repository.scanner.scan(stored, state, span))
