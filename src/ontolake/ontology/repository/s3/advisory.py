"""What is written beside the truth: indices, the layout catalog and the schema files, for people, tools and repair.

They follow from the head alone and can be made anew at any time; no read of ours depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ontolake.ontology.repository.s3 import layout
from ontolake.ontology.repository.s3.layout import Manifest, Schemas, TypeEntry, TypeState

if TYPE_CHECKING:
    from ontolake.ontology.repository.s3.base import S3Repository
    from ontolake.ontology.repository.s3.moment import Moment


def write_advisory(
    repository: S3Repository, manifest: Manifest, schemas: Schemas | None, changed: Sequence[str]
) -> None:  # fmt: skip
    """After a commit: the indices of types whose files were merged or whose version is new, and the catalog if so."""
    objects: dict[str, bytes] = {}
    if schemas is not None:
        objects |= catalog_objects(manifest, schemas)
    known = schemas or (repository.records.schemas(manifest.schemas) if manifest.schemas else Schemas())
    for key in changed:
        if key in manifest.types and key in manifest.states:
            objects |= index_object(key, manifest.types[key], manifest.states[key], known, manifest.commit_id)
    if objects:
        repository.access.write_advisory(objects)


def all_advisory(moment: Moment) -> dict[str, bytes]:
    """All of it, as it should be at a moment."""
    if moment.manifest is None:
        return {}
    objects = catalog_objects(moment.manifest, moment.schemas)
    for key, entry in moment.manifest.types.items():
        state = moment.state(*layout.split_key(key))
        if state is not None:
            objects |= index_object(key, entry, state, moment.schemas, moment.commit_id)
    for key, records in moment.schemas.types.items():
        kind, name = layout.split_key(key)
        objects[layout.versions_path(kind, name)] = layout.encode(
            {"type_kind": kind, "type_name": name, "versions": records})
    return objects


def index_object(
    key: str, entry: TypeEntry, state: TypeState, schemas: Schemas, commit_id: int
) -> dict[str, bytes]:  # fmt: skip
    """The index of one type: which files have rows of which commits."""
    kind, name = layout.split_key(key)
    entries = [
        {"min_commit_id": file.min_commit_id, "max_commit_id": file.max_commit_id,
         "schema_version_id": file.schema_version_id, "path": file.path, "row_count": file.row_count}
        for file in (*state.past, *state.runs)
    ]  # fmt: skip
    index: dict[str, Any] = {
        "type_name": name, "max_indexed_commit": commit_id, "current_schema_version_id": entry.schema_version_id,
        "activation_commit_id": entry.activation_commit_id, "entries": entries,
        "historical_versions": _historical(schemas.types.get(key, ()), entry.schema_version_id),
    }  # fmt: skip
    return {layout.index_path(kind, name): layout.encode(index)}


def _historical(records: Sequence[layout.SchemaRecord], current: int) -> list[dict[str, int]]:
    found = []
    for record, following in pairwise(records):
        if record.schema_version_id != current:
            found.append({"schema_version_id": record.schema_version_id,
                          "activation_commit_id": record.activation_commit_id,
                          "superseded_at_commit_id": following.activation_commit_id})
    return found


def catalog_objects(manifest: Manifest, schemas: Schemas) -> dict[str, bytes]:
    """The layout catalog and the lists of types."""
    layouts = []
    for key, records in sorted(schemas.types.items()):
        kind, name = layout.split_key(key)
        entry = manifest.types.get(key)
        layouts += [
            {"type_kind": kind, "type_name": name, "schema_version_id": record.schema_version_id,
             "activation_commit_id": record.activation_commit_id,
             "is_current": entry is not None and entry.schema_version_id == record.schema_version_id}
            for record in records
        ]  # fmt: skip
    current = {key: records[-1] for key, records in schemas.types.items() if key in manifest.types}
    return {
        layout.CATALOG: layout.encode({"layouts": layouts}),
        layout.REGISTRY: layout.encode({"schemas": [{"type_kind": layout.split_key(key)[0],
                                                     "type_name": layout.split_key(key)[1],
                                                     "schema_version_id": record.schema_version_id,
                                                     "schema": record.schema} for key, record in sorted(
                                                         current.items())]}),
    } | ({layout.DROPPED: layout.encode({"dropped": _named(schemas.dropped)})} if schemas.dropped else {})  # fmt: skip


def _named(keys: Iterable[str]) -> list[dict[str, str]]:
    return [{"type_kind": kind, "type_name": name} for kind, name in map(layout.split_key, sorted(keys))]
