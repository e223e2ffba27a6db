"""`StoredType`: a type of which only its schema is known, as tools and migrations meet it."""

from __future__ import annotations

from ontolake.model.codecs import codec_for_spec
from ontolake.model.columns import ENTITY_COLUMNS, RELATION_COLUMNS, Column, physical_names
from ontolake.model.schema import Schema, schema_hash
from ontolake.model.types import Kind
from ontolake.model.typespec import scalar_of


class StoredType:
    """The columns and keys of a schema, under the same names as `TypeInfo` has them. Fields come by name, sorted."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.version: int | None = None
        self.kind: Kind = schema["kind"]
        self.name: str = schema["name"]
        self.schema_hash = schema_hash(schema)
        reserved = ENTITY_COLUMNS if self.kind == "entity" else RELATION_COLUMNS
        at = dict(zip(schema["keys"], reserved, strict=False))
        at |= physical_names(sorted(name for name in schema["fields"] if name not in at), reserved)
        self.by_name = {}
        for name, spec in sorted(schema["fields"].items()):
            scalar, nullable = scalar_of(spec)
            self.by_name[name] = Column(name, name, at[name], spec, scalar, nullable, codec_for_spec(spec),
                                        unique=name in schema.get("unique", ()))
        self.all_columns = tuple(self.by_name.values())
        self.keys = tuple(self.by_name[name] for name in schema["keys"])
        self.columns = tuple(column for column in self.all_columns if column.name not in schema["keys"])
        self.unique = tuple(column for column in self.columns if column.unique)
