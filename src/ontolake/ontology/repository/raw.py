"""Rows of a type of which only the stored schema is known: for tools, and for writing without classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ontolake.model.codecs import failure
from ontolake.model.columns import Column
from ontolake.model.schema import Schema
from ontolake.model.stored import StoredType
from ontolake.ontology.errors import SchemaValidationError


def raw_columns(schema: Schema, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Columns and encoded values of the fields beside the keys. Raises `SchemaValidationError`, naming the field."""
    stored = StoredType(schema)
    unknown = sorted(set(fields) - set(stored.by_name))
    if unknown:
        raise SchemaValidationError("there is no such field", type_name=stored.name, field=unknown[0])
    return {column.column: _encoded(column, fields.get(column.name), stored.name) for column in stored.columns}


def raw_keys(schema: Schema, given: Mapping[str, Any]) -> dict[str, Any]:
    """Encoded keys, by their columns. Raises `SchemaValidationError` for one that is empty or of another type."""
    stored = StoredType(schema)
    columns = {column.column: column for column in stored.keys}
    found = {}
    for place, value in given.items():
        column = columns.get(place)
        if column is None:  # an instance key that the type does not have
            if value:
                raise SchemaValidationError("the relation has no instance key", type_name=stored.name)
            found[place] = ""
            continue
        found[place] = _encoded(column, value, stored.name)
        if found[place] == "":
            raise SchemaValidationError("a key must not be empty", type_name=stored.name, field=column.name)
    return found


def written_twice(type_name: str, keys: Mapping[str, Any], commit_id: int) -> SchemaValidationError:
    """What to raise for a key that a commit has a row of already."""
    return SchemaValidationError(f"commit {commit_id} has a row of this key already", type_name=type_name,
                                 key=tuple(keys.values()))


def _encoded(column: Column, value: Any, type_name: str) -> Any:
    try:
        value = column.type.from_json(value)
    except (ValueError, ArithmeticError) as error:
        raise SchemaValidationError(f"{value!r} is not a {column.scalar}: {failure(error)}", type_name=type_name,
                                    field=column.name) from error
    return column.encode(value, type_name)
