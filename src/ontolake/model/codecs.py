"""How a value of a field becomes what a SQLite column or a JSON text holds, and comes back.

Encoded values are text, integers, floats, bytes or None, and equal values have equal encodings, so that a store can
find out by comparing whether anything changed. A missing encoder or decoder means that nothing is to be done.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple, get_args
from uuid import UUID

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ontolake.model.errors import SchemaValidationError
from ontolake.model.portable import portable
from ontolake.model.typespec import Spec, scalar_of

_INT64 = 2**63
_JSON_CONFIG = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
NAN = "NaN"
"""How a float column holds what is not a number: SQLite has no NaN, it would store NULL."""


class Codec(NamedTuple):
    """Encoder, decoder, and the exact Python types that the encoder takes (None where it checks for itself)."""

    encode: Callable[[Any], Any] | None
    decode: Callable[[Any], Any] | None
    types: frozenset[type] | None


def encode_int(value: int) -> int:
    if -_INT64 <= value < _INT64:
        return value
    raise ValueError("the number does not fit into 64 bits")


def encode_float(value: float) -> float | str:
    return value if value == value else NAN


def encode_datetime(value: datetime) -> str:
    """With a zone: the moment in UTC. Without: as it is, which sorts as if it were UTC."""
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    try:
        moment = value if value.tzinfo is UTC else value.astimezone(UTC)
    except OverflowError:
        raise ValueError("the moment lies outside of years 1 to 9999 in UTC") from None
    # Without its zone a moment becomes text ten times as fast.
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "+00:00"


def encode_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError("a decimal must be finite")
    return str(value)


_SCALARS: dict[str, Codec] = {
    "str": Codec(None, None, frozenset({str})),
    "int": Codec(encode_int, None, frozenset({int})),
    "float": Codec(encode_float, float, frozenset({float})),
    "bool": Codec(None, bool, frozenset({bool})),
    "datetime": Codec(encode_datetime, datetime.fromisoformat, frozenset({datetime})),
    "date": Codec(date.isoformat, date.fromisoformat, frozenset({date})),
    "bytes": Codec(None, None, frozenset({bytes})),
    "Decimal": Codec(encode_decimal, Decimal, frozenset({Decimal})),
    "UUID": Codec(str, UUID, frozenset({UUID})),
}


def codec_for(annotation: Any, spec: Spec) -> Codec:
    """The codec of a field of this type."""
    scalar, _ = scalar_of(spec)
    if scalar is None:
        return _json_codec(annotation, spec)
    plain = _SCALARS[scalar]
    special = [cls for cls in _classes(annotation) if cls not in _EXACT]
    if not special:
        return plain
    cls = special[0]
    if issubclass(cls, enum.Enum):
        return _enum_codec(cls, plain)
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    base = next(exact for exact in _EXACT if issubclass(cls, exact) and _NAMES[exact] == scalar)
    encode = plain.encode or base
    return Codec(lambda value: encode(base(value)), lambda value: adapter.validate_python(
        value if plain.decode is None else plain.decode(value)), frozenset({cls, base}))  # fmt: skip


def codec_for_spec(spec: Spec) -> Codec:
    """The codec of a field of which only the spec is known: values of enums are plain, and JSON is as it was parsed."""
    scalar, _ = scalar_of(spec)
    return Codec(json_text, json.loads, None) if scalar is None else _SCALARS[scalar]


_NAMES: dict[type, str] = {
    str: "str", bool: "bool", int: "int", float: "float", datetime: "datetime", date: "date", bytes: "bytes",
    Decimal: "Decimal", UUID: "UUID",
}  # fmt: skip
_EXACT = tuple(_NAMES)


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
            plain = adapter.dump_python(value, mode="json", warnings="error")
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


def json_text(value: Any) -> str:
    """JSON in the one form in which it is stored: sorted keys, no spaces, text as it is."""
    try:
        return _canonical.encode(value)
    except TypeError as error:
        raise ValueError(str(error)) from None


def inside_json(value: Any) -> Any:
    """A value to compare with what stands inside a JSON column."""
    plain = to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="constants")
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
