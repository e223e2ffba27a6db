"""Keys of several fields: a tuple for users, the JSON array of its encoded parts where it is stored.

Such an entity has one more field, `entity_key`, which follows its parts; they are columns like any other. Relations
that lead to it have the same as their end. Two keys are equal if and only if their texts are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainValidator

from ontolake.model.scalars.base import Codec, json_text

if TYPE_CHECKING:
    from ontolake.model.columns import Column

KEY = "entity_key"
"""What the field of the whole key is called, and its column."""


def composite_codec(parts: Sequence[Column], type_name: str) -> Codec:
    """The codec of a key of these columns. Texts of keys are taken too, and brought into their one form."""

    def encode(value: Any) -> str:
        if isinstance(value, str):
            value = decode(value)
        if len(value) != len(parts):
            names = ", ".join(part.name for part in parts)
            raise ValueError(f"the key has {len(parts)} parts, {names}, not {len(value)}")
        return json_text([part.encode(one, type_name) for part, one in zip(parts, value, strict=True)])

    def decode(text: str) -> tuple[Any, ...]:
        found = json.loads(text)
        if not isinstance(found, list) or len(found) != len(parts):
            raise ValueError(f"{text!r} is not the JSON array of a key")
        return tuple(part.decode(one) for part, one in zip(parts, found, strict=True))

    return Codec(encode, decode, frozenset({tuple, str}))


def is_composite(column: Column) -> bool:
    """Whether a column has keys of several parts."""
    return column.codec.types is not None and tuple in column.codec.types


def key_annotation(cls: Any) -> Any:
    """What pydantic knows of the key of an entity type, or of an end that leads to it: a text that is a tuple here."""

    def checked(value: Any) -> Any:
        from ontolake.model.types import type_info  # which is made of classes

        (column,) = type_info(cls).keys
        given = tuple(value) if isinstance(value, list) else value
        if type(given) not in (tuple, str):
            raise ValueError(f"a key of {cls.__name__} is a tuple, not {value!r}")
        return column.decode(column.encode(given, cls.__name__))

    return Annotated[str, PlainValidator(checked)]


OWN_KEY: Any = Annotated[str, PlainValidator(lambda value: value)]
"""The same for the field of the entity itself, whose value is worked out of the parts whatever was given."""


def follow(obj: Any, parts: Sequence[str]) -> None:
    """Give an object the key that its parts say."""
    values = obj.__dict__
    values[KEY] = tuple(values[part] for part in parts)
