"""s3/v2: every version of a type has Parquet files of its own with typed columns; typed reads see the current one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ontolake.model.types import Kind, TypeInfo
from ontolake.ontology.arrow.physical import Type
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.base import S3Repository
from ontolake.ontology.repository.objects.layout import PLURAL, TypeState, type_key
from ontolake.ontology.repository.objects.moment import HeadSnapshot


class S3RepositoryV2(S3Repository):
    """A typed store on objects with files for each version of each type."""

    engine_version = "v2"
    versions_apart = True

    def data_path(self, folder: str, kind: Kind, name: str, version: int) -> str:
        return f"{folder}/{PLURAL[kind]}/{name}/v{version}.parquet"

    def physical(self, info: Type, version: int, rows: pa.Table) -> pa.Table:
        return rows

    def state_to_extend(
        self, info: Type, moment: HeadSnapshot, version: int, commit_id: int, rewritten: bool
    ) -> TypeState:  # fmt: skip
        state = None if rewritten else moment.state(info.kind, info.name)
        return state or TypeState(version, commit_id)

    def activation(self, info: TypeInfo) -> int:
        moment = self._last or self.moment()
        entry = moment.manifest.types.get(type_key(info.kind, info.name)) if moment.manifest else None
        return entry.activation_commit_id if entry else 0

    def storage_info(self) -> dict[str, Any]:
        with self.reading():
            moment = self.moment()
            layouts: dict[str, Any] = {}
            for key, entry in sorted((moment.manifest.types if moment.manifest else {}).items()):
                kind, name = layout.split_key(key)
                older = [one.schema_version_id for one in moment.versions(kind, name)
                         if one.schema_version_id != entry.schema_version_id]
                layouts[name] = {
                    "type_kind": kind, "current_schema_version_id": entry.schema_version_id,
                    "activation_commit_id": entry.activation_commit_id, "historical_versions": older,
                }  # fmt: skip
            return {**super().storage_info(), "type_layouts": layouts}
