"""Keys as callers give them, and as rows have them."""

from __future__ import annotations

from typing import Any

from ontolake.model.types import TypeInfo
from ontolake.ontology.errors import QueryError, SchemaValidationError
from ontolake.ontology.query.compiler.conditions import comparand


def encoded_key(info: TypeInfo, key: Any) -> tuple[Any, ...]:
    """A key as rows have it. Raises `SchemaValidationError` if it cannot be the key of a type."""
    given = (key,) if info.kind == "entity" else tuple(key) if isinstance(key, list) else key
    if not isinstance(given, tuple) or len(given) != len(info.keys):
        what = ", ".join(column.name for column in info.keys)
        raise SchemaValidationError(f"{key!r} is not a key: it has {what}", type_name=info.name)
    try:
        return tuple(comparand(column)(value) for column, value in zip(info.keys, given, strict=True))
    except QueryError as error:
        raise SchemaValidationError(f"{key!r} is not a key: {error.message}", type_name=info.name) from error


def decoded_key(info: TypeInfo, key: tuple[Any, ...]) -> Any:
    """A key of a row as callers have it: a value for an entity, a tuple for a relation."""
    found = tuple(column.decode(value) for column, value in zip(info.keys, key, strict=True))
    return found[0] if info.kind == "entity" else found
