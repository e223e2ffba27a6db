"""Functions of JSON as PostgreSQL has them, on texts."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from ontolake.sql.errors import SqlError
from ontolake.sql.executor.literals import load_json, shown_json

_MISSING = object()
_PLACE = "\x00"
"""Stands before a number that is a place in an array, not a key."""


def _step(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return value.get(key, _MISSING)
    if isinstance(value, list):
        try:
            place = int(key)
        except ValueError:
            return _MISSING
        return value[place] if -len(value) <= place < len(value) else _MISSING
    return _MISSING


def written(value: Any, kind: str) -> str | None:
    """A value of JSON as text: `jsonb`, `json`, or `text` where strings have no quotes and null is NULL."""
    if kind == "text":
        if value is None:
            return None
        return value if isinstance(value, str) else shown_json(value)
    return shown_json(value) if kind == "jsonb" else plain_json(value)


def plain_json(value: Any) -> str:
    """JSON without spaces, keys in the order that they have."""
    if isinstance(value, dict):
        return (
            "{"
            + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{plain_json(each)}" for key, each in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(plain_json, value)) + "]"
    return shown_json(value)


_DECODER = json.JSONDecoder()


def _spans_of(text: str) -> list[tuple[str | int, str]]:
    """The keys or places of a JSON text's parts, and their texts as they stand there."""
    found: list[tuple[str | int, str]] = []
    at, is_object = _skipped(text, 0) + 1, text.lstrip()[:1] == "{"
    while text[at := _skipped(text, at)] not in "]}":
        key: str | int = len(found)
        if is_object:
            key, at = _DECODER.raw_decode(text, at)
            at = _skipped(text, _skipped(text, at) + 1)
        _, end = _DECODER.raw_decode(text, at)
        found.append((key, text[at:end]))
        at = _skipped(text, end)
        at += text[at] == ","
    return found


def _skipped(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\n", "\r"):
        at += 1
    return at


def _raw_get(text: str, path: list[str | None], kind: str) -> str | None:
    """What stands at a path of a `json`, in the text that it has there."""
    form, _, step = kind.partition(":")
    for key in path:
        first = text.lstrip()[:1]
        if key is None or first not in ("{", "[") or (step and (step == "key") == (first == "[")):
            return None
        parts = _spans_of(text)
        if first == "[":
            place = int(key) if key.lstrip("+-").isdigit() else len(parts)
            if not -len(parts) <= place < len(parts):
                return None
            text = parts[place][1]
        else:
            texts = [part for name, part in parts if name == key]
            if not texts:
                return None
            text = texts[-1]
    return _raw_text(text) if form == "raw" else text


def _raw_text(text: str) -> str | None:
    """A JSON text as text: strings have no quotes, and null is NULL."""
    word = text.strip()
    return None if word == "null" else load_json(word) if word.startswith('"') else word


def get(text: str, path: list[str | None], kind: str) -> str | None:
    """What stands at a path. A single key of the form `#n` counts from the kind `index`."""
    value = load_json(text)
    if kind.partition(":")[0] in ("json", "raw"):
        return _raw_get(text, path, kind)
    kind, _, step = kind.partition(":")
    for key in path:
        if key is None:
            return None
        if (step == "key" and isinstance(value, list)) or (step == "index" and not isinstance(value, list)):
            return None
        value = _step(value, key)
        if value is _MISSING:
            return None
    return written(value, kind)


def contains(text: str, other: str) -> bool:
    """Whether a value of JSON holds another (`@>`)."""
    return _holds(load_json(text), load_json(other), True)


def _holds(value: Any, other: Any, top: bool = False) -> bool:
    if isinstance(other, dict):
        return isinstance(value, dict) and all(key in value and _holds(value[key], each) for key, each in other.items())
    if isinstance(other, list):
        return isinstance(value, list) and all(any(_holds(each, wanted) for each in value) for wanted in other)
    if isinstance(value, list) and top:
        return any(_same(each, other) for each in value)
    return _same(value, other)


def _same(value: Any, other: Any) -> bool:
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def exists(text: str, keys: list[str | None], kind: str) -> bool:
    """Whether keys or elements are there: all or any of them."""
    value = load_json(text)
    there = [(isinstance(value, dict | list) and key in value) or value == key for key in keys]
    return all(there) if kind == "all" else any(there)


def edit(text: str, kind: str, path: list[str | None], new: str) -> str | None:
    """A value of JSON that is changed at a path."""
    value = load_json(text)
    if kind == "minus":
        return shown_json(_without(value, [str(key) for key in path]))
    if kind == "concat":
        return shown_json(_joined(value, load_json(new)))
    if kind == "strip_nulls:json":
        return plain_json(_stripped(value))
    if kind == "strip_nulls":
        return shown_json(_stripped(value))
    keys = [str(key) for key in path]
    if kind == "delete":
        return shown_json(_deleted(value, keys))
    return shown_json(_changed(value, keys, load_json(new), kind))


def _without(value: Any, keys: list[str]) -> Any:
    if isinstance(value, dict):
        if len(keys) == 1 and keys[0].startswith(_PLACE):
            raise SqlError("cannot delete from object using integer index", sqlstate="22023")
        return {key: each for key, each in value.items() if key not in keys}
    if isinstance(value, list):
        if len(keys) == 1 and keys[0].startswith(_PLACE):
            place = int(keys[0][1:])
            return [each for n, each in enumerate(value) if n != (place if place >= 0 else len(value) + place)]
        return [each for each in value if not (isinstance(each, str) and each in keys)]
    raise SqlError("cannot delete from scalar", sqlstate="22023")


def _joined(value: Any, other: Any) -> Any:
    if isinstance(value, dict) and isinstance(other, dict):
        return {**value, **other}
    return [*(value if isinstance(value, list) else [value]), *(other if isinstance(other, list) else [other])]


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stripped(each) for key, each in value.items() if each is not None}
    return [_stripped(each) for each in value] if isinstance(value, list) else value


def _deleted(value: Any, keys: list[str]) -> Any:
    if len(keys) == 1:
        if isinstance(value, list) and keys[0].lstrip("-").isdigit():
            return _without(value, [f"{_PLACE}{keys[0]}"])
        return _without(value, keys) if isinstance(value, dict) else value
    inner = _step(value, keys[0])
    return value if inner is _MISSING else _put(value, keys[0], _deleted(inner, keys[1:]))


def _put(value: Any, key: str, new: Any) -> Any:
    if isinstance(value, dict):
        return {**value, key: new}
    copy = list(value)
    copy[int(key)] = new
    return copy


def _changed(value: Any, keys: list[str], new: Any, kind: str) -> Any:
    """`set` changes what is there, `create` also makes what is not, `insert` and `after` put an element in an array."""
    inner = _step(value, keys[0])
    if len(keys) > 1:
        return value if inner is _MISSING else _put(value, keys[0], _changed(inner, keys[1:], new, kind))
    if isinstance(value, list):
        place = int(keys[0]) if keys[0].lstrip("-").isdigit() else len(value)
        place = max(place + len(value), 0) if place < 0 else place
        if kind in ("insert", "after"):
            place += kind == "after"
            return [*value[:place], new, *value[place:]]
        if inner is _MISSING:
            return value if kind == "set" else [*value, new] if int(keys[0]) >= 0 else [new, *value]
        return _put(value, keys[0], new)
    if not isinstance(value, dict):
        return value
    if kind in ("insert", "after"):
        if inner is not _MISSING:
            raise SqlError("cannot replace existing key", sqlstate="22023")
        return {**value, keys[0]: new}
    return value if inner is _MISSING and kind == "set" else {**value, keys[0]: new}


def listed(text: str, kind: str) -> list[str | None]:
    """The elements, keys, or values of a JSON text."""
    value = load_json(text)
    what, _, form = kind.partition(":")
    if what == "elements":
        if not isinstance(value, list):
            raise SqlError(
                "cannot extract elements from " + ("an object" if isinstance(value, dict) else "a scalar"),
                sqlstate="22023",
            )
        if form in ("json", "raw"):
            return [part if form == "json" else _raw_text(part) for _, part in _spans_of(text)]
        return [written(each, form) for each in value]
    if not isinstance(value, dict):
        raise SqlError("cannot call json_each on a non-object", sqlstate="22023")
    order = sorted(value, key=lambda key: (len(key.encode()), key.encode())) if form != "json" else list(value)
    return list(order) if what == "keys" else [written(value[key], form) for key in order]


def kind_of(text: str, what: str) -> str:
    """The type of a JSON text, its length, or itself with lines."""
    value = load_json(text)
    if what == "length":
        if not isinstance(value, list):
            raise SqlError(
                "cannot get array length of a " + ("non-array" if isinstance(value, dict) else "scalar"),
                sqlstate="22023",
            )
        return str(len(value))
    if what == "pretty":
        return _pretty(value, 0)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names: dict[type, str] = {dict: "object", list: "array", str: "string", int: "number", Decimal: "number"}
    return names[type(value)]


def _pretty(value: Any, depth: int) -> str:
    pad, end = "    " * (depth + 1), "    " * depth
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        inner = ",\n".join(
            f"{pad}{json.dumps(key, ensure_ascii=False)}: {_pretty(value[key], depth + 1)}" for key in keys
        )
        return "{\n" + inner + f"\n{end}}}" if keys else "{\n}"
    if isinstance(value, list):
        inner = ",\n".join(f"{pad}{_pretty(each, depth + 1)}" for each in value)
        return "[\n" + inner + f"\n{end}]" if value else "[\n]"
    return shown_json(value)


def made(parts: list[str | None], kind: str) -> str:
    """A JSON text of the texts of its parts: an object of keys and values in turn, or an array."""
    what, _, form = kind.partition(":")
    values = ["null" if part is None else part for part in parts]
    if what == "array":
        return shown_json([load_json(each) for each in values]) if form == "jsonb" else "[" + ", ".join(values) + "]"
    keys = [load_json(each) for each in values[::2]]
    if any(key is None for key in keys):
        raise SqlError("null value not allowed for object key", sqlstate="22023")
    named = [key if isinstance(key, str) else shown_json(key) for key in keys]
    if form == "jsonb":
        return shown_json(dict(zip(named, map(load_json, values[1::2]), strict=True)))
    pairs = (f"{json.dumps(key, ensure_ascii=False)} : {each}" for key, each in zip(named, values[1::2], strict=True))
    return "{" + ", ".join(pairs) + "}"
