"""Typed stores of the same layout that another program wrote: they are refused by name of what they lack.

The layouts of v1 and v2 are public, and other programs write them without what Ontolake adds: its form of schemas, and
which row replaced which.
"""

from __future__ import annotations

import json
from collections.abc import Collection

import apsw

from ontolake.model.schema import is_schema
from ontolake.ontology.errors import StorageBackendError

_CONTROL: dict[str, tuple[str, ...]] = {
    "commits": ("id", "created_at", "metadata_json"),
    "schema_registry": ("type_kind", "type_name", "schema_json"),
    "schema_versions": ("id", "type_kind", "type_name", "schema_version_id", "schema_json", "schema_hash",
                        "created_at", "runtime_id", "reason"),
    "locks": ("lock_name", "owner_id", "acquired_at", "expires_at"),
}  # fmt: skip
_OF_ENGINE: dict[str, dict[str, tuple[str, ...]]] = {
    "v1": {
        "entity_history": ("id", "entity_type", "entity_key", "fields_json", "commit_id", "schema_version_id"),
        "relation_history": ("id", "relation_type", "left_key", "right_key", "instance_key", "fields_json",
                             "commit_id", "schema_version_id"),
    },
    "v2": {"type_layout_catalog": ("type_kind", "type_name", "schema_version_id", "table_name",
                                   "activation_commit_id", "is_current")},
    "v3": {
        "type_layout_catalog": ("type_kind", "type_name", "schema_version_id", "table_name", "activation_commit_id",
                                "is_current", "branch_id"),
        "branches": ("id", "name", "parent_id", "base_commit_id", "head_commit_id", "protected", "deleted_at"),
        "tags": ("name", "commit_id"),
        "erasures": ("erased_at", "reason", "key_hash"),
    },
}  # fmt: skip
_LOOKED_AT = 20
"""How many schemas are looked at: one of ours is enough."""


def stranger(uri: str, what: str) -> StorageBackendError:
    """The error for a store of another program, or one of ours that lost something without which nothing is read."""
    return StorageBackendError(
        f"{uri!r} has the layout of a typed store, but {what}: another program wrote it, or it is damaged",
        hint="export its rows with the program that wrote it, and load them with onto import; nothing was changed")


def refuse_strangers(db: apsw.Connection, uri: str, engine_version: str) -> None:
    """Raise `StorageBackendError`, naming what is missing, if a database is not one of ours."""
    with db:  # one snapshot: another process may be creating the first tables of a type
        _refuse_strangers(db, uri, engine_version, table_names(db))


def table_names(db: apsw.Connection) -> set[str]:
    """The tables of a database, without those of SQLite itself."""
    names = {str(name) for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return {name for name in names if not name.startswith("sqlite_")}


def _refuse_strangers(db: apsw.Connection, uri: str, engine_version: str, tables: Collection[str]) -> None:
    wanted = {**_CONTROL, **_OF_ENGINE[engine_version]}
    for table in wanted:
        if table not in tables:
            raise stranger(uri, f"it has no table {table}")
    names = ", ".join(f"'{table}'" for table in wanted)
    there = set(db.execute(f"SELECT m.name, c.name FROM sqlite_schema AS m JOIN pragma_table_info(m.name) AS c "
                           f"WHERE m.type = 'table' AND m.name IN ({names})"))
    for table, columns in wanted.items():
        for column in columns:
            if (table, column) not in there:
                raise stranger(uri, f"its table {table} has no column {column}")
    schemas = [text for (text,) in db.execute(f"SELECT schema_json FROM schema_versions LIMIT {_LOOKED_AT}")]
    if schemas and not any(_ours(text) for text in schemas):
        raise stranger(uri, "none of its schemas is one of Ontolake's")
    if engine_version != "v1":
        named = [str(name) for (name,) in db.execute("SELECT table_name FROM type_layout_catalog")]
        if named and not any(f"{name}_superseded" in tables for name in named):
            raise stranger(uri, f"it has no table {named[0]}_superseded")


def _ours(text: object) -> bool:
    try:
        return is_schema(json.loads(str(text)))
    except ValueError:
        return False
