"""Columns of the rows of engine v1, whose fields are one JSON text and whose keys are all text, in SQL."""

from __future__ import annotations

from ontolake.model.columns import Column
from ontolake.model.stored import StoredType
from ontolake.model.types import TypeInfo
from ontolake.ontology.query.compiler.conditions import json_path
from ontolake.ontology.query.compiler.latest import literal


def key_column(info: TypeInfo | StoredType, key: str) -> str:
    """A key column, as the type that the field has: v1 holds all keys as text."""
    whole = any(column.column == key and column.sqlite_type == "INTEGER" for column in info.keys)
    return f"CAST({key} AS INTEGER) AS {key}" if whole else key


def field_value(column: Column) -> str:
    """A field out of the JSON, as a typed column would hold it."""
    path = literal(json_path((column.stored,)))
    if column.scalar is None:
        # `->` keeps JSON as it is, but for what JSON lacks; a JSON null is a missing value.
        odd = "instr(fields_json, 'NaN') OR instr(fields_json, 'Infinity')"
        return (f"nullif(CASE WHEN {odd} THEN ontolake_member(fields_json, {literal(column.stored)}) "
                f"ELSE fields_json -> {path} END, 'null')")
    return column.type.fields_sql(f"fields_json ->> {path}", f"json_type(fields_json, {path})")
