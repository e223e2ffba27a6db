"""The schema of a type as canonical JSON, its hash, and what turns one schema into another.

A schema has what matters for stored rows: fields with their types, which of them are keys and which unique. Indexes
and defaults may change without a migration, so they are no part of it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

from ontolake.model.types import Kind, type_info

Schema = dict[str, Any]


def schema_of(cls: Any) -> Schema:
    """The schema of an entity or relation type, as plain data."""
    info = type_info(cls)
    schema: Schema = {
        "kind": info.kind,
        "name": info.name,
        "keys": [column.stored for column in info.keys],
        "fields": {column.stored: column.spec for column in info.all_columns},
    }
    if info.parts:
        schema["key_parts"] = [column.stored for column in info.parts]
    if info.unique:  # left out otherwise, so that schemas from before stay as they are
        schema["unique"] = sorted(column.stored for column in info.unique)
    if info.kind == "relation":
        schema["left"], schema["right"] = info.left.__name__, info.right.__name__
    return schema


def is_schema(value: Any) -> bool:
    """Whether plain data has the form of a schema."""
    return (isinstance(value, dict) and {"kind", "name", "keys", "fields"} <= value.keys()
            and isinstance(value["keys"], list) and isinstance(value["fields"], dict))  # fmt: skip


def canonical_json(schema: Schema) -> str:
    """The schema as text: the same text for the same schema, whatever the order in which fields were declared."""
    return json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def schema_hash(schema: Schema) -> str:
    """SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(schema).encode()).hexdigest()


def key_fields(schema: Schema) -> tuple[str, ...]:
    """The fields that make up the key of a type."""
    return tuple(schema.get("key_parts") or schema["keys"])


class FieldChange(NamedTuple):
    """One field before and after: `before` is None for one that was added, `after` for one that was removed."""

    field: str
    before: Any
    after: Any

    @property
    def what(self) -> str:
        return "added" if self.before is None else "removed" if self.after is None else "changed"


class SchemaDiff(NamedTuple):
    """What turns one schema of a type into another."""

    type_kind: Kind
    type_name: str
    fields: tuple[FieldChange, ...] = ()
    keys: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    ends: tuple[tuple[str, str], tuple[str, str]] | None = None
    unique: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    def __bool__(self) -> bool:
        return bool(self.fields or self.keys or self.ends or self.unique)

    def __str__(self) -> str:
        told = [f"{change.field} {change.what}" for change in self.fields]
        if self.keys:
            told.append(f"keys {', '.join(self.keys[0])} → {', '.join(self.keys[1])}")
        if self.ends:
            told.append(f"endpoints {' → '.join(self.ends[0])} become {' → '.join(self.ends[1])}")
        if self.unique:
            told.append(f"unique fields {', '.join(self.unique[0]) or 'none'} → {', '.join(self.unique[1]) or 'none'}")
        return f"{self.type_name}: {'; '.join(told) or 'no difference'}"


def diff(before: Schema, after: Schema) -> SchemaDiff:
    """What turns one schema into another; false if nothing."""
    old, new = before["fields"], after["fields"]
    fields = tuple(
        FieldChange(name, old.get(name), new.get(name))
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    )
    keys = (key_fields(before), key_fields(after))
    ends = ((before.get("left", ""), before.get("right", "")), (after.get("left", ""), after.get("right", "")))
    unique = (tuple(before.get("unique", ())), tuple(after.get("unique", ())))
    return SchemaDiff(
        after["kind"], after["name"], fields, keys if keys[0] != keys[1] else None,
        ends if ends[0] != ends[1] else None, unique if unique[0] != unique[1] else None,
    )  # fmt: skip
