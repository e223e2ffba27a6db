"""What is written beside the truth: indices, the layout catalog and the schema files, for people, tools and repair.

They follow from the head alone and can be made anew at any time; no read of ours depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.layout import CommitManifest, Schemas

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.base import S3Repository
    from ontolake.ontology.repository.objects.moment import HeadSnapshot


Standing = Literal["ok", "behind", "missing", "damaged"]

_STEPS = 8
"""How many commits without rows are looked back over before everything is compared."""


def write_advisory(
    repository: S3Repository, before: HeadSnapshot, after: HeadSnapshot, schemas: Schemas | None, settled: bool
) -> None:  # fmt: skip
    """After a commit: the indices of its types, and the catalog if `schemas` are new. Unless it was `settled` before,
    all that earlier commits did not bring up to date.

    One index, that of `_last`, is written behind everything else: as long as it names the newest manifest, all is up
    to date.
    """
    manifest = after.manifest
    assert manifest is not None
    objects: dict[str, bytes] = {}
    for key in manifest.states:
        objects |= _index_at(after, key)
    if schemas is not None:
        objects |= catalog_objects(manifest, schemas)
        unsettled = None if before.manifest is None else _last(before.manifest)
        if unsettled is not None and unsettled in manifest.types:
            objects |= _index_at(after, unsettled)
    if not settled:
        objects = {key: data for key, data in all_advisory(after).items() if compared(repository, key, data) != "ok"}
    last = _last(manifest)
    latest = {key: objects.pop(key) for key in [layout.index_path(*layout.split_key(last))] if key in objects} if (
        last is not None) else {}  # fmt: skip
    for some in (objects, latest):
        if some:
            repository.access.write_advisory(some)
    repository.advised = after.manifest_path


def _last(manifest: CommitManifest) -> str | None:
    """The type whose index is written last."""
    return max(manifest.states, default=None)


def settled(repository: S3Repository, moment: HeadSnapshot) -> bool:
    """Whether what is advisory has followed the newest commit: known, or told by one object."""
    if repository.advised is not None and repository.advised == moment.manifest_path:
        return True
    manifest, path = moment.manifest, moment.manifest_path
    for _ in range(_STEPS):  # to the newest commit that has an index
        if manifest is None or path is None:
            return True
        key, parent = _last(manifest), manifest.parent_manifest_path
        if key is not None or parent is None:
            break
        schemas, path, manifest = manifest.schemas, parent, repository.records.manifest(parent, "a manifest")
        if manifest.schemas != schemas:
            return False
    if key is None:
        return False
    found = repository.access.find(layout.index_path(*layout.split_key(key)))
    try:
        index = None if found is None else msgspec.json.decode(found.data)
    except msgspec.MsgspecError:
        return False
    return isinstance(index, dict) and index.get("manifest_path") == path


def unsettle(repository: S3Repository, moment: HeadSnapshot) -> None:
    """Before schema files are written for a commit that may yet fail: have the next one look at everything."""
    repository.advised = None
    key = None if moment.manifest is None else _last(moment.manifest)
    if key is not None:
        for path, data in _index_at(moment, key).items():
            index = {**msgspec.json.decode(data), "manifest_path": None}
            repository.access.write_advisory({path: layout.encode(index)})


def compared(repository: S3Repository, key: str, wanted: bytes) -> Standing:
    """How an advisory object stands."""
    found = repository.access.find(key)
    if found is None:
        return "missing"
    try:
        return "ok" if msgspec.json.decode(found.data) == msgspec.json.decode(wanted) else "behind"
    except msgspec.MsgspecError:
        return "damaged"


def all_advisory(moment: HeadSnapshot) -> dict[str, bytes]:
    """All of it, as it should be at a moment."""
    if moment.manifest is None:
        return {}
    objects = catalog_objects(moment.manifest, moment.schemas)
    for key in moment.manifest.types:
        objects |= _index_at(moment, key)
    for key, records in moment.schemas.types.items():
        kind, name = layout.split_key(key)
        objects[layout.versions_path(kind, name)] = layout.encode(
            {"type_kind": kind, "type_name": name, "versions": records})
    return objects


def _index_at(moment: HeadSnapshot, key: str) -> dict[str, bytes]:
    """The index of one type: which files have rows of which commits, and the manifest that says so."""
    kind, name = layout.split_key(key)
    state = moment.state(kind, name)
    if state is None or moment.manifest is None:
        return {}
    entry, schemas = moment.manifest.types[key], moment.schemas
    entries = [
        {"min_commit_id": file.min_commit_id, "max_commit_id": file.max_commit_id,
         "schema_version_id": file.schema_version_id, "path": file.path, "row_count": file.row_count}
        for file in (*state.past, *state.runs)
    ]  # fmt: skip
    index: dict[str, Any] = {
        "type_name": name, "max_indexed_commit": moment.commit_of(entry), "manifest_path": entry.manifest_path,
        "current_schema_version_id": entry.schema_version_id, "activation_commit_id": entry.activation_commit_id,
        "entries": entries,
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


def catalog_objects(manifest: CommitManifest, schemas: Schemas) -> dict[str, bytes]:
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
