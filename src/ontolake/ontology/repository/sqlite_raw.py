"""Rows of a type of which only the stored schema is known: for tools, and for writing without classes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from ontolake.model.codecs import encode_datetime, encode_float, json_text
from ontolake.model.schema import Schema
from ontolake.model.stored import StoredType
from ontolake.model.typespec import Spec, scalar_of
from ontolake.ontology.errors import SchemaValidationError


def raw_columns(schema: Schema, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Columns and encoded values of the fields beside the keys. Raises `SchemaValidationError`, naming the field."""
    specs: dict[str, Spec] = schema["fields"]
    unknown = sorted(set(fields) - set(specs))
    if unknown:
        raise SchemaValidationError("there is no such field", type_name=schema["name"], field=unknown[0])
    places = {column.name: column.column for column in StoredType(schema).all_columns}
    found = {}
    for name, spec in specs.items():
        if name not in schema["keys"]:
            found[places[name]] = _encoded(spec, fields.get(name), schema["name"], name)
    return found


def _encoded(spec: Spec, value: Any, type_name: str, field: str) -> Any:
    scalar, nullable = scalar_of(spec)
    if value is None:
        if nullable:
            return None
        raise SchemaValidationError("a value is missing", type_name=type_name, field=field)
    if scalar is None:
        return json_text(value)
    if isinstance(value, datetime):
        return encode_datetime(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        return encode_float(value)
    if scalar == "bytes" and isinstance(value, str):
        return base64.b64decode(value)
    return value if isinstance(value, str | int | bytes) else str(value)
