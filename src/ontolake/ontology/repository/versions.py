"""Versions that must be the expected ones, on every backend: of the engine of a store, and of the schema of a type."""

from __future__ import annotations

from ontolake.model.schema import diff, is_schema, schema_of
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo
from ontolake.ontology.errors import SchemaOutdatedError, StorageBackendError
from ontolake.ontology.repository.protocol import SchemaVersion


def check_engine(uri: str, found: str, wanted: str | None) -> None:
    """Raise `StorageBackendError` if another engine version is wanted than the one found."""
    if wanted is not None and found != wanted:
        raise StorageBackendError(f"{uri!r} has the engine {found}, not {wanted}",
                                  hint=f"open it without engine_version or with {found!r}; "
                                       "onto convert makes a copy with another engine")


def version_for(info: TypeInfo | StoredType, known: SchemaVersion | None) -> int | None:
    """The version `known` of a type if its schema is that of `info`; None if there is none.

    What stands for a version of the past has that one. Raises `SchemaOutdatedError` if the store has another schema.
    """
    if known is None or info.version is not None:
        return None if known is None else info.version
    if known.schema_hash != info.schema_hash:
        if not is_schema(known.schema):
            raise StorageBackendError(f"the schema of the {info.kind} type {info.name} is not one of Ontolake's",
                                      hint="onto verify tells what is damaged; restore it from a copy")
        wanted = info.schema if isinstance(info, StoredType) else schema_of(info.cls)
        raise SchemaOutdatedError([diff(known.schema, wanted)])
    return known.schema_version_id
