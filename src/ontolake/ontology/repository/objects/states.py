"""The files of every version of a type: those that are current, and those of the past, which stay where they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ontolake.ontology.arrow.physical import Type
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.layout import TypeState, type_key
from ontolake.ontology.repository.protocol import SchemaVersion

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.base import S3Repository
    from ontolake.ontology.repository.objects.moment import HeadSnapshot


def live_states(repository: S3Repository, moment: HeadSnapshot) -> Iterator[TypeState]:
    """The files that reads can come to: those of every version of every type, dropped or not."""
    for key in moment.schemas.types:
        for version in moment.versions(*layout.split_key(key)):
            state = state_of(repository, moment, version)
            if state is not None:
                yield state


def state_of(repository: S3Repository, moment: HeadSnapshot, version: SchemaVersion) -> TypeState | None:
    """The files of a version of a type as they were when it was last current."""
    key = type_key(version.type_kind, version.type_name)
    manifest = moment.manifest
    records = moment.schemas.types.get(key, ())
    # On a branch a merge may have brought a version that has a lower number than those before it.
    since = [one.activation_commit_id for one in records if one.schema_version_id == version.schema_version_id]
    if not since and repository.versions_apart:
        return None  # only other branches have it
    later = [one.activation_commit_id for one in records if since and one.activation_commit_id > since[-1]]
    if later and repository.versions_apart:
        following = moment.at(min(later))
        manifest = None if following is None else moment.before(following)
    if manifest is None:
        return None
    entry = manifest.types.get(key) or manifest.dropped.get(key)
    if entry is None:
        return None
    own = manifest.states.get(key)
    return own or repository.records.manifest(entry.manifest_path, "a manifest").states.get(key)


def past_state(repository: S3Repository, info: Type) -> TypeState | None:
    """The files of the version that `info` stands for, as if it were the current one."""
    moment = repository.moment()
    for version in moment.versions(info.kind, info.name):
        if version.schema_version_id == info.version:
            state = state_of(repository, moment, version)
            return None if state is None else only_version(state, info.version, info.version)
    return None


def only_version(state: TypeState, current: int, version: int) -> TypeState:
    """The files of one version out of a state, told to be those of `current`."""
    runs, past = (tuple(file for file in files if file.schema_version_id == version)
                  for files in (state.runs, state.past))
    return TypeState(current, state.activation_commit_id, state.next_row, runs, past)
