"""Types of data, declared once: entities, relations, fields, and how they are stored.

`entity` and `field` are what users derive from and declare, `types` what a store knows of a class. `typespec` is an
annotation as data, `schema` a type as JSON, `widening` says which types take all values of others, `composite` has
keys of several fields; `columns`, `codecs` and `scalars` say how values are stored; `filters` is what comparing a field
gives. `stored`, `restoration` and `source` make types of stored schemas, `imports` finds classes in modules, `portable`
is for old Pythons, `errors` is what can be wrong.
"""

from ontolake.model.columns import Column, arrow_type, column_kind, parquet_type, sqlite_type
from ontolake.model.entity import Entity, Meta, Relation
from ontolake.model.errors import EndUnavailableError, MetadataUnavailableError, ModelError, SchemaValidationError
from ontolake.model.field import Field
from ontolake.model.filters import Condition, FieldRef, Order
from ontolake.model.schema import FieldChange, SchemaDiff, canonical_json, diff, schema_hash, schema_of
from ontolake.model.types import TypeInfo, type_info
from ontolake.model.typespec import build_type_spec

__all__ = [
    "Column", "Condition", "EndUnavailableError", "Entity", "Field", "FieldChange", "FieldRef", "Meta",
    "MetadataUnavailableError", "ModelError", "Order", "Relation", "SchemaDiff", "SchemaValidationError", "TypeInfo",
    "arrow_type", "build_type_spec", "canonical_json", "column_kind", "diff", "parquet_type", "schema_hash",
    "schema_of", "sqlite_type", "type_info",
]  # fmt: skip
