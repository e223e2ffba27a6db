"""Keys as callers give them, and as rows have them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ontolake.model.types import TypeInfo
from ontolake.ontology.errors import QueryError, SchemaValidationError
from ontolake.ontology.query.compiler.conditions import Encode, comparand


def encoded_key(info: TypeInfo, key: Any) -> tuple[Any, ...]:
    """A key as rows have it. Raises `SchemaValidationError` if it cannot be the key of a type."""
    return encoded_keys(info, (key,))[0]


def encoded_keys(info: TypeInfo, keys: Collection[Any]) -> list[tuple[Any, ...]]:
    """Keys as rows have them. Raises `SchemaValidationError` for the first one that cannot be the key of a type."""
    encoders = [comparand(column) for column in info.keys]  # once, for it takes longer than encoding a value
    if info.kind == "entity" and len(encoders) == 1:
        encode = encoders[0]
        try:
            return [(encode(key),) for key in keys]
        except QueryError:
            pass  # below it is told with its key
    return [_encoded(info, encoders, key) for key in keys]


def _encoded(info: TypeInfo, encoders: Sequence[Encode], key: Any) -> tuple[Any, ...]:
    given = (key,) if info.kind == "entity" else tuple(key) if isinstance(key, list) else key
    if not isinstance(given, tuple) or len(given) != len(info.keys):
        what = ", ".join(column.name for column in info.keys)
        raise SchemaValidationError(f"{key!r} is not a key: it has {what}", type_name=info.name)
    if info.parts and not isinstance(key, str) and not (isinstance(key, tuple | list) and len(key) == len(info.parts)):
        raise _not_parts(info, key)
    try:
        return tuple(encode(value) for encode, value in zip(encoders, given, strict=True))
    except QueryError as error:
        if info.parts and isinstance(key, str):
            raise _not_parts(info, key) from error
        raise SchemaValidationError(f"{key!r} is not a key: {error.message}", type_name=info.name) from error


def _not_parts(info: TypeInfo, key: Any) -> SchemaValidationError:
    names = ", ".join(column.name for column in info.parts)
    return SchemaValidationError(f"{key!r} is not a key: it has {len(info.parts)} parts, {names}", type_name=info.name,
                                 hint=f"write ({names})")


def decoded_key(info: TypeInfo, key: tuple[Any, ...]) -> Any:
    """A key of a row as callers have it: a value for an entity, a tuple for a relation."""
    found = tuple(column.decode(value) for column, value in zip(info.keys, key, strict=True))
    return found[0] if info.kind == "entity" else found
