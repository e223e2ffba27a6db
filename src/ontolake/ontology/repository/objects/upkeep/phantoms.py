"""Rows that no commit declared: earlier releases on s3/v1 read rows from before a renamed key under the key `None`.

Reads no longer do. A migration that followed wrote such rows down, and `verify` names them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.history import Damage
from ontolake.model.stored import StoredType
from ontolake.ontology.arrow.physical import COMMIT, concat, encoded, place
from ontolake.ontology.repository.objects import layout
from ontolake.ontology.repository.objects.layout import SchemaRecord, TypeState

if TYPE_CHECKING:
    from ontolake.ontology.repository.objects.base import S3Repository
    from ontolake.ontology.repository.objects.moment import HeadSnapshot

NO_KEY = "None"
"""What a key became whose field an older version did not have."""


def phantom_rows(repository: S3Repository, moment: HeadSnapshot) -> Iterator[Damage]:
    """Rows written by a migration whose key is `None` where a key was renamed before, and which no row had before."""
    if repository.versions_apart or moment.manifest is None:
        return
    for key, records in moment.schemas.types.items():
        renamed = {tuple(record.schema["keys"]) for record in records[:-1]}
        state = moment.state(*layout.split_key(key))
        if state is not None and len(renamed) > 1:
            yield from _of_type(repository, state, records)


def _of_type(repository: S3Repository, state: TypeState, records: tuple[SchemaRecord, ...]) -> Iterator[Damage]:
    declared: set[tuple[Any, ...]] = set()
    reported: set[tuple[Any, ...]] = set()
    for number, record in enumerate(records):
        info = StoredType(record.schema)
        before = records[number - 1].schema["keys"]  # the names under which the migration read older rows
        renamed = {at for one in records[: max(0, number - 1)] for at, name in enumerate(one.schema["keys"])
                   if before[at : at + 1] != [name]}  # fmt: skip
        for keys, commit in _without_key(repository, state, info, record.schema_version_id):
            if keys in declared or keys in reported:
                continue
            if commit == record.activation_commit_id and NO_KEY in [keys[at] for at in renamed]:
                reported.add(keys)
                yield Damage(f"{info.kind} {info.name}, version {record.schema_version_id}: "
                             f"{', '.join(map(str, keys))} at commit {commit}",
                             "no commit declared this key: a migration made it up after a key had been renamed")
            else:
                declared.add(keys)


def _without_key(
    repository: S3Repository, state: TypeState, info: StoredType, version: int
) -> list[tuple[tuple[Any, ...], int]]:  # fmt: skip
    """The keys with `None` as a part among the rows of a version, with their commits, oldest first."""
    texts = [column for column in info.keys if column.type.textual]
    names = [*(place(column) for column in info.keys), COMMIT]
    files = [file for file in (*state.past, *state.runs) if file.schema_version_id == version]
    if not files or not texts:
        return []
    repository.files.load(files)
    table: pa.Table = concat([repository.files.table(file, names) for file in files])
    table = table.filter(reduce(pc.or_, (pc.equal(table.column(place(column)), NO_KEY) for column in texts)))
    table = table.sort_by(COMMIT)
    keys = zip(*(encoded(column, table) for column in info.keys), strict=True)
    return list(zip(keys, table.column(COMMIT).to_pylist(), strict=True))
