"""s3/v1: one file per type in every commit, with the fields as JSON beside their columns; reads see rows of every
schema version."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from ontolake.model.columns import Column
from ontolake.model.field import UNSET
from ontolake.model.stored import StoredType
from ontolake.model.types import Kind, TypeInfo
from ontolake.ontology.arrow.physical import (
    COMMIT,
    ROW,
    SUPERSEDED,
    Type,
    encoded,
    physical_type,
    place,
    table_of,
)
from ontolake.ontology.errors import StorageBackendError
from ontolake.ontology.repository.fields_json import encoded_default, fields_text
from ontolake.ontology.repository.objects.base import S3Repository
from ontolake.ontology.repository.objects.layout import PLURAL, TypeState
from ontolake.ontology.repository.objects.moment import HeadSnapshot
from ontolake.ontology.repository.objects.read.scan import Adapt


class S3RepositoryV1(S3Repository):
    """A typed store on objects in which versions of a type lie side by side."""

    engine_version = "v1"
    versions_apart = False

    def data_path(self, folder: str, kind: Kind, name: str, version: int) -> str:
        return f"{folder}/{PLURAL[kind]}/{name}.parquet"

    def physical(self, info: Type, version: int, rows: pa.Table) -> pa.Table:
        columns = (*info.keys, *info.columns)
        parts = [encoded(column, rows) for column in columns]
        marks = [(column.stored, column.type.name) for column in columns]
        texts = [fields_text(*(item for (name, scalar), value in zip(marks, row, strict=True)
                               for item in (name, scalar, value))) for row in zip(*parts, strict=True)]
        rows = rows.append_column(_own(info, "type"), pa.array([info.name] * len(rows), pa.string()))
        return rows.append_column(_own(info, "fields_json"), pa.array(texts, pa.string()))

    def adapting(self) -> Adapt:
        return self._adapt

    def _adapt(self, info: Type, rows: pa.Table, version: int) -> pa.Table:
        # A name that an older version left free may be taken by now, and the other way round.
        names = [name for name in ("$fields_json", "fields_json") if name in rows.column_names]
        values = [json.loads(text) for text in rows.column(names[0]).to_pylist()]
        columns = (*info.keys, *info.columns)
        # A key stays in its column whatever its field is called.
        before = self._written_as(info, version).keys
        parts = [[_key(new, value) for value in encoded(old, rows)] for new, old in zip(info.keys, before, strict=True)]
        for column in info.columns:
            default = encoded_default(column)
            parts.append([(None if default is UNSET else default) if (value := row.get(column.stored)) is None
                          else column.type.from_fields(value) for row in values])
        found = table_of(info, list(zip(*parts, strict=True)))
        for column in columns:
            if found.column(place(column)).type != physical_type(column):
                at = found.column_names.index(place(column))
                found = found.set_column(at, place(column), found.column(place(column)).cast(physical_type(column)))
        for name in (COMMIT, ROW, SUPERSEDED):
            if name in rows.column_names:
                found = found.append_column(name, rows.column(name))
        return found

    def _written_as(self, info: Type, version: int) -> StoredType:
        """The type as it was in a version."""
        found = [one for one in self.moment().versions(info.kind, info.name) if one.schema_version_id == version]
        if not found:
            raise StorageBackendError(f"rows of {info.name} in {self.uri!r} are of version {version}, which has no "
                                      "schema", hint="onto verify tells what is damaged; restore it from a copy")
        return StoredType(found[0].schema)

    def state_to_extend(
        self, info: Type, moment: HeadSnapshot, version: int, commit_id: int, rewritten: bool
    ) -> TypeState:  # fmt: skip
        state = moment.state(info.kind, info.name)
        if state is None:
            return TypeState(version, commit_id)
        return TypeState(version, state.activation_commit_id, state.next_row, state.runs, state.past)

    def activation(self, info: TypeInfo) -> int:
        return 0


def _own(info: Type, name: str) -> str:
    """The name of a column of ours, which a field may have taken."""
    taken = {place(column) for column in (*info.keys, *info.columns)}
    return name if name not in taken else f"${name}"


def _key(column: Column, value: Any) -> Any:
    """A key, which stays the same text whatever its type was."""
    return int(value) if column.sqlite_type == "INTEGER" else str(value)


