"""Values, keys and the words of history as JSON that loses nothing, for our own client and server.

JSON's own values stand for themselves. Anything else is an object with one key, a tag: `{"$bytes": "aGk="}`,
`{"$decimal": "1.50"}`, `{"$tuple": [1, "a"]}`, `{"$change": […]}`. A mapping that would look like one of these, or
whose keys are not all text, goes as `{"$map": [[key, value], …]}`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from ontolake.errors import Invalid
from ontolake.history.conflicts import Conflict, ConflictKind, Resolution, Value
from ontolake.history.refs import Point, Ref
from ontolake.history.results import Counts, MergeResult, MergeStatus
from ontolake.history.words import Branch, Change, ChangeKind, Commit, Damage, Garbage, RowVersion, Tag

MEDIA_TYPE = "application/vnd.ontolake+json"
"""What a client accepts, and sends, for this form."""

_INT64 = 1 << 63

Form = Callable[[Any], Any]


def dump(value: Any) -> bytes:
    """A value as JSON. Raises `Invalid` for a value that has no form."""
    try:
        return msgspec.json.encode(encode(value))
    except (UnicodeEncodeError, RecursionError) as error:
        raise Invalid(f"a value cannot be sent: {error}") from error


def load(data: bytes | str) -> Any:
    """The value that `dump` wrote. Raises `Invalid` for anything else."""
    try:
        return decode(msgspec.json.decode(data))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Invalid(f"this is not JSON of ours: {error}") from error


def encode(value: Any) -> Any:
    """A value as JSON has it, with tags. Raises `Invalid` for a value that has no form."""
    form = _FORMS.get(type(value))
    return form(value) if form is not None else _encode_other(value)


def decode(data: Any) -> Any:
    """The value that `encode` turned into `data`. Raises `Invalid` for an unknown tag or a wrong content."""
    if type(data) is list:
        return [decode(one) for one in data]
    if type(data) is not dict:
        return data
    if len(data) == 1:
        ((tag, content),) = data.items()
        if tag.startswith("$"):
            return _tagged(tag, content)
    return {name: decode(one) for name, one in data.items()}


def _tagged(tag: str, content: Any) -> Any:
    read = TAGS.get(tag)
    if read is None:
        raise Invalid(f"the tag {tag!r} is unknown", hint="use a client and a server of one version")
    try:
        return read(content)
    except Invalid:
        raise
    except (ValueError, TypeError, KeyError, OverflowError, ArithmeticError, AttributeError) as error:
        raise Invalid(f"{tag!r} cannot hold {content!r}: {error}") from error


def _encode_other(value: Any) -> Any:
    """Values of subclasses and of abstract types."""
    if isinstance(value, str):  # enumerations are their texts
        return str.__str__(value)
    for word in type(value).__mro__[1:]:
        if word in _WORDS:
            return _FORMS[word](value)
    for kind in (int, float, datetime, date, time, timedelta, bytes, Decimal, UUID, ZoneInfo):
        if isinstance(value, kind):
            if getattr(value, "nanosecond", 0):
                raise Invalid(f"{value!r} is finer than a microsecond and cannot be sent")
            return _FORMS[kind](value)
    if isinstance(value, Mapping):
        return _mapping(value)
    for kind, _ in _RECORDS.values():  # a model's own commits go as what every model has
        if isinstance(value, kind):
            return _FORMS[kind](value)
    if isinstance(value, bytearray | memoryview):
        return _FORMS[bytes](bytes(value))
    for shape in (tuple, list, frozenset, set):
        if isinstance(value, shape):
            return _FORMS[shape](value)
    raise Invalid(f"a value of type {type(value).__name__} cannot be sent: {value!r}")


def _same(value: Any) -> Any:
    return value


def _integer(value: int) -> Any:
    return int(value) if -_INT64 <= value < _INT64 else {"$int": hex(value)}


def _number(value: float) -> Any:
    return float(value) if math.isfinite(value) else {"$float": str(float(value))}


def _mapping(value: Mapping[Any, Any]) -> Any:
    if all(type(name) is str for name in value) and not (len(value) == 1 and next(iter(value)).startswith("$")):
        return {name: encode(one) for name, one in value.items()}
    return {"$map": [[encode(name), encode(one)] for name, one in value.items()]}


def _zone(zone: tzinfo | None) -> str | None:
    return zone.key if isinstance(zone, ZoneInfo) else None


def _moment(value: datetime | time) -> Any:
    zone = _zone(value.tzinfo)
    if zone is None:
        return [value.isoformat(), None, 1] if value.fold else value.isoformat()
    return [value.replace(tzinfo=None).isoformat(), zone, value.fold]


def _read_moment(read: Callable[[str], Any]) -> Form:
    def parse(content: Any) -> Any:
        if isinstance(content, str):
            return read(content)
        text, zone, fold = content
        found = read(text).replace(fold=fold)
        return found if zone is None else found.replace(tzinfo=ZoneInfo(zone))

    return parse


def _read_bytes(content: str) -> bytes:
    return base64.b64decode(content, validate=True)


def _read_integer(content: str) -> int:
    return int(content, 16)  # in linear time, whatever is sent


def _read_map(content: Any) -> dict[Any, Any]:
    return {decode(name): decode(one) for name, one in content}


def _listed(tag: str) -> Form:
    return lambda value: {tag: [encode(one) for one in value]}


def _record(kind: type[Any], reads: Mapping[str, Form]) -> Form:
    """Reads the fields of a named tuple from their list; `reads` turns some of them into what the class wants."""

    def read(content: Any) -> Any:
        values = _decoded(content)
        if len(values) > len(kind._fields):
            raise ValueError(f"{kind.__name__} has {len(kind._fields)} fields")
        fields = dict(zip(kind._fields, values, strict=False))
        return kind(**{name: reads[name](one) if name in reads else one for name, one in fields.items()})

    return read


def _decoded(content: Any) -> list[Any]:
    """The values of a list. Raises `TypeError` if it is not one."""
    if type(content) is not list:
        raise TypeError("it is not a list")
    return [decode(one) for one in content]


def _result(value: MergeResult[Any]) -> Any:
    fields = (value.status, value.source, value.into, value.commit, dict(value.tables), list(value.conflicts),
              value.base)  # fmt: skip
    return {"$result": [encode(one) for one in fields]}


def _read_result(content: Any) -> MergeResult[Any]:
    status, source, into, commit, tables, conflicts, base = _decoded(content)
    return MergeResult(MergeStatus(status), source, into, commit, tables, tuple(conflicts), base)


_RECORDS: dict[str, tuple[type[Any], dict[str, Form]]] = {
    "$commit": (Commit, {"parents": tuple}),
    "$branch": (Branch, {}),
    "$tag": (Tag, {}),
    "$version": (RowVersion, {}),
    "$change": (Change, {"kind": ChangeKind}),
    "$conflict": (Conflict, {"kind": ConflictKind, "rows": tuple}),
    "$resolution": (Resolution, {}),
    "$value": (Value, {}),
    "$counts": (Counts, {}),
    "$damage": (Damage, {}),
    "$garbage": (Garbage, {}),
    "$ref": (Ref, {}),
    "$point": (Point, {}),
}
"""The words of history that are named tuples, by tag, with what turns decoded fields into those of the class."""

_FORMS: dict[type[Any], Form] = {
    type(None): _same,
    bool: _same,
    str: _same,
    int: _integer,
    float: _number,
    bytes: lambda value: {"$bytes": base64.b64encode(value).decode()},
    Decimal: lambda value: {"$decimal": str(value)},
    datetime: lambda value: {"$datetime": _moment(value)},
    date: lambda value: {"$date": value.isoformat()},
    time: lambda value: {"$time": _moment(value)},
    timedelta: lambda value: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    UUID: lambda value: {"$uuid": str(value)},
    ZoneInfo: lambda value: {"$zone": value.key},
    dict: _mapping,
    list: lambda value: [encode(one) for one in value],
    tuple: _listed("$tuple"),
    set: _listed("$set"),
    frozenset: _listed("$frozenset"),
    MergeResult: _result,
    **{kind: _listed(tag) for tag, (kind, _) in _RECORDS.items()},
}

_WORDS = frozenset(kind for kind, _ in _RECORDS.values())

TAGS: dict[str, Form] = {
    "$int": _read_integer,
    "$float": float,
    "$bytes": _read_bytes,
    "$decimal": Decimal,
    "$datetime": _read_moment(datetime.fromisoformat),
    "$date": date.fromisoformat,
    "$time": _read_moment(time.fromisoformat),
    "$timedelta": lambda content: timedelta(*content),
    "$uuid": UUID,
    "$zone": ZoneInfo,
    "$map": _read_map,
    "$tuple": lambda content: tuple(_decoded(content)),
    "$set": lambda content: set(_decoded(content)),
    "$frozenset": lambda content: frozenset(_decoded(content)),
    "$result": _read_result,
    **{tag: _record(kind, reads) for tag, (kind, reads) in _RECORDS.items()},
}
"""What reads the content of each tag."""
