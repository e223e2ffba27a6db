"""How a value of a field becomes what a SQLite column or a JSON text holds, and comes back.

Encoded values are text, integers, floats, bytes or None, and equal values have equal encodings, so that a store can
find out by comparing whether anything changed. A missing encoder or decoder means that nothing is to be done.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ontolake.model import scalars
from ontolake.model.errors import SchemaValidationError
from ontolake.model.portable import portable
from ontolake.model.scalars.base import Codec, json_text
from ontolake.model.scalars.numbers import NAN, encode_float
from ontolake.model.scalars.times import encode_datetime
from ontolake.model.typespec import Spec, scalar_of

_JSON_CONFIG = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")


def codec_for(annotation: Any, spec: Spec) -> Codec:
    """The codec of a field of this type."""
    scalar, _ = scalar_of(spec)
    if scalar is None:
        return _json_codec(annotation, spec)
    base = scalars.get(scalar).python
    plain = scalars.get(scalar).codec
    special = [cls for cls in _classes(annotation) if not _is_exact(cls)]
    if not special:
        return plain
    cls = special[0]
    if issubclass(cls, enum.Enum):
        return _enum_codec(cls, plain)
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    encode = plain.encode or base
    return Codec(lambda value: encode(base(value)), lambda value: adapter.validate_python(
        value if plain.decode is None else plain.decode(value)), frozenset({cls, base}))  # fmt: skip


def codec_for_spec(spec: Spec) -> Codec:
    """The codec of a field of which only the spec is known: values of enums are plain, and JSON is as it was parsed."""
    scalar, _ = scalar_of(spec)
    return scalars.get(scalar).codec


def _is_exact(cls: type) -> bool:
    """Whether a class is the Python type of a scalar, not one that is derived from it."""
    found = scalars.of(cls)
    return found is not None and found.python is cls


def _classes(annotation: Any) -> Iterator[type]:
    """The classes that an annotation is made of, None left out."""
    if isinstance(annotation, type) and not get_args(annotation):
        if annotation is not type(None):
            yield annotation
    else:
        for part in get_args(annotation):
            if isinstance(part, type) or get_args(part):
                yield from _classes(part)


def _enum_codec(cls: type[enum.Enum], plain: Codec) -> Codec:
    inner = plain.encode
    encoded = {m: (m.value if inner is None else inner(m.value)) for m in cls}
    members = {value: member for member, value in encoded.items()}
    return Codec(encoded.__getitem__, members.__getitem__, frozenset({cls}))


def _json_codec(annotation: Any, spec: Spec) -> Codec:
    annotation = portable(annotation)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation, config=_JSON_CONFIG)
    except PydanticUserError:  # the type brings a configuration of its own
        adapter = TypeAdapter(annotation)
    unordered = spec.get("container") in ("set", "frozenset")

    def encode(value: Any) -> str:
        try:
            plain = adapter.dump_python(value, mode="json", warnings="error", fallback=scalars.jsonable)
        except PydanticSerializationError as error:
            raise ValueError(str(error)) from None
        if "\ufffd" in repr(plain) and _has_surrogates(value):  # keys that are not Unicode come out as this sign
            raise ValueError("the text is not Unicode: surrogates not allowed")
        if unordered:
            plain = sorted(plain, key=lambda item: json.dumps(item, sort_keys=True))
        return json_text(plain)

    def decode(text: str) -> Any:
        return adapter.validate_json(text)

    return Codec(encode, decode, None)


def _has_surrogates(value: Any) -> bool:
    """Whether half of a pair of surrogates stands anywhere in a value."""
    if isinstance(value, str):
        return any("\ud800" <= sign <= "\udfff" for sign in value)
    if isinstance(value, dict):
        return any(map(_has_surrogates, value)) or any(map(_has_surrogates, value.values()))
    return isinstance(value, list | tuple | set | frozenset) and any(map(_has_surrogates, value))


def inside_json(value: Any) -> Any:
    """A value to compare with what stands inside a JSON column. Raises `ValueError` if JSON has no such values."""
    plain = to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="constants", fallback=scalars.jsonable)
    if isinstance(plain, str | int | float) or plain is None:
        return plain
    return json_text(plain)


def failure(error: Exception) -> str:
    """What is wrong with a value, in the words of whoever refused it."""
    if isinstance(error, ValidationError):
        return SchemaValidationError.of(error, "").reason
    if isinstance(error, UnicodeEncodeError):
        return f"the text is not Unicode: {error.reason}"
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is not one of the values"
    return str(error)


__all__ = [
    "NAN", "Codec", "codec_for", "codec_for_spec", "encode_datetime", "encode_float", "failure", "inside_json",
    "json_text",
]  # fmt: skip
