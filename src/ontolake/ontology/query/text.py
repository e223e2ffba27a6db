"""Filters and orders as people type them: `tier=gold`, `total>=10.5`, `name startswith A`, `born is null`.

A field may go on into JSON (`extra.address.city=Rome`, `lines[0].sku=x`), through all elements of a list
(`tags[]=vip`, `lines[].sku=x`), and from a relation to its ends (`left.tier=gold`). A name with other characters than
letters, digits and _ - stands in quotes. Values are read as what the field is; quotes around text are optional.
"""

from __future__ import annotations

import csv
import difflib
import json
import re
from typing import Any, assert_never, get_args

from ontolake.model.columns import Column
from ontolake.model.errors import SchemaValidationError
from ontolake.model.filters import (
    CompareOp,
    Condition,
    FieldRef,
    MatchOp,
    MemberOp,
    Order,
    Side,
    TestOp,
    ValueRef,
)
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.errors import QueryError

_FIELD = re.compile(r'\s*(?:"(?P<quoted>[^"]+)"|(?P<name>[\w-]+))(?P<path>(?:\.[\w-]+|\[\d*\])*)')
HINT = ("write FIELD=VALUE with one of = != < <= > >= ~ !~, FIELD startswith|endswith|contains TEXT, FIELD in A,B, "
        "or FIELD is [not] null, is true, is false")


def _written(op: CompareOp | MatchOp | MemberOp | TestOp) -> str:
    """How people type an operator."""
    match op:
        case "==":
            return "="
        case "!=" | "<" | "<=" | ">" | ">=" | "startswith" | "endswith" | "contains" | "in":
            return op
        case "is_null":
            return "is null"
        case "is_not_null":
            return "is not null"
        case "is_true":
            return "is true"
        case "is_false":
            return "is false"
        case _:
            assert_never(op)


_COMPARISONS: dict[str, CompareOp] = {_written(op): op for op in get_args(CompareOp)}
_MATCHES: dict[str, MatchOp] = {_written(op): op for op in get_args(MatchOp)}
_TESTS: dict[str, TestOp] = {_written(op): op for op in get_args(TestOp)}
_SIGNS = sorted([*_COMPARISONS, "~", "!~"], key=len, reverse=True)  # `<=` before `<`
_SIGN = re.compile(rf"\s*({'|'.join(map(re.escape, _SIGNS))})\s*(.*)", re.DOTALL)
_WORD = re.compile(rf"\s+({'|'.join(_MATCHES)}|not\s+in|in|is)\s+(.*)", re.DOTALL | re.IGNORECASE)


def parse_where(text: str, info: TypeInfo) -> Condition:
    """The filter that a text means for rows of a type. Raises `QueryError`, which says what is wrong with it."""
    field, column, rest = _field(text, info)
    sign = _SIGN.fullmatch(rest)
    if sign is not None:
        return _compared(text, field, column, sign[1], sign[2].strip())
    word = _WORD.fullmatch(rest)
    if word is None:
        raise QueryError(f"{text!r} is not a filter", hint=HINT)
    verb, value = " ".join(word[1].lower().split()), word[2].strip()
    if verb == "is":
        return _is(text, field, value.lower())
    if verb in ("in", "not in"):
        values = [_value(text, column, one.strip()) for one in _list(value)]
        if any(one is None for one in values):
            raise QueryError(f"{text!r}: nothing compares with null", hint="write FIELD is null")
        found = field.in_(values)
        return ~found if verb == "not in" else found
    return _matching(field, _MATCHES[verb], _unquoted(value))


def parse_order(text: str, info: TypeInfo) -> Order:
    """What to order by: `name`, or `name:desc`. Raises `QueryError`."""
    name, colon, way = text.rpartition(":")
    if colon and way.lower() not in ("asc", "desc"):
        raise QueryError(f"{text!r} is not an order", hint="write FIELD, FIELD:asc or FIELD:desc")
    field, _, rest = _field(name if colon else text, info)
    if rest.strip() or field.ref.any_path is not None:
        raise QueryError(f"{text!r} is not an order", hint="write FIELD, FIELD:asc or FIELD:desc")
    return Order(field.ref, way.lower() == "desc" if colon else False)


def parse_field(text: str, info: TypeInfo) -> FieldRef[Any]:
    """The field that a text names, for aggregates and groups. Raises `QueryError`."""
    field, _, rest = _field(text, info)
    if rest.strip():
        raise QueryError(f"{text!r} is not a field", hint="write FIELD, or FIELD.inside.it")
    return field


def _field(text: str, info: TypeInfo) -> tuple[FieldRef[Any], Column | None, str]:
    """The field that a text begins with, its column unless it is something inside it, and the rest of the text."""
    found = _FIELD.match(text)
    if found is None:
        raise QueryError(f"{text!r} does not begin with a field", hint=HINT)
    steps = re.findall(r"\.([\w-]+)|(\[\d*\])", found["path"])
    path = [name or position for name, position in steps]
    name, side, owner = found["quoted"] or found["name"], None, info
    if info.kind == "relation" and name in ("left", "right") and path and _column(info, name) is None:
        owner = type_info(info.left if name == "left" else info.right)
        side, name = name, path.pop(0)
    column = _column(owner, name)
    if column is None:
        known = [one.stored for one in owner.all_columns]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        raise QueryError(f"{owner.name} has no field {name!r}",
                         hint=f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}")
    place: Side | None = "left" if side == "left" else "right" if side else None
    field: FieldRef[Any] = FieldRef(ValueRef(info.cls, column.name, place))
    if not path:
        return field, column, text[found.end() :]
    try:
        return _inside(field, path), None, text[found.end() :]
    except (SchemaValidationError, TypeError) as error:
        raise QueryError(f"{text!r} is not a filter: {error}", hint=HINT) from None


def _column(info: TypeInfo, name: str) -> Column | None:
    return next((column for column in info.all_columns if column.stored == name), None)


def _inside(field: FieldRef[Any], path: list[str]) -> FieldRef[Any]:
    if "[]" not in path:
        return field.path(_joined(path))
    place = path.index("[]")
    if place:
        field = field.path(_joined(path[:place]))
    return field.any_path(".".join(step for step in path[place + 1 :] if step != "[]"))


def _joined(path: list[str]) -> str:
    return ".".join(path).replace(".[", "[")


def _compared(text: str, field: FieldRef[Any], column: Column | None, sign: str, given: str) -> Condition:
    if sign in ("~", "!~"):
        found = field.contains(_unquoted(given))
        return ~found if sign == "!~" else found
    value = _value(text, column, given)
    if value is None:
        raise QueryError(f"{text!r}: nothing compares with null", hint="write FIELD is null, or FIELD is not null")
    if isinstance(value, bool):
        if sign not in ("=", "!="):
            raise QueryError(f"{text!r}: true and false have no order", hint="write = or !=")
        return field.is_true() if value == (sign == "=") else field.is_false()
    return field.compare(_COMPARISONS[sign], value)


def _matching(field: FieldRef[Any], op: MatchOp, text: str) -> Condition:
    match op:
        case "startswith":
            return field.startswith(text)
        case "endswith":
            return field.endswith(text)
        case "contains":
            return field.contains(text)
        case _:
            assert_never(op)


def _testing(field: FieldRef[Any], op: TestOp) -> Condition:
    match op:
        case "is_null":
            return field.is_null()
        case "is_not_null":
            return field.is_not_null()
        case "is_true":
            return field.is_true()
        case "is_false":
            return field.is_false()
        case _:
            assert_never(op)


def _is(text: str, field: FieldRef[Any], value: str) -> Condition:
    test = _TESTS.get(f"is {' '.join(value.split())}")
    if test is None:
        raise QueryError(f"{text!r}: a field is null, not null, true or false, not {value!r}", hint=HINT)
    return _testing(field, test)


def read_value(column: Column, text: str) -> Any:
    """A value of a column as somebody typed it. Raises `QueryError` if it cannot be one."""
    return _value(text, column, text)


def _value(text: str, column: Column | None, given: str) -> Any:
    if column is None or column.scalar is None:
        try:
            return json.loads(given)
        except ValueError:
            return given
    if column.type.truth:
        if given.lower() not in ("true", "false"):
            raise QueryError(f"{text!r}: {column.stored} is true or false, not {given!r}")
        return given.lower() == "true"
    try:
        return column.type.parse(_unquoted(given))
    except (ValueError, ArithmeticError):
        raise QueryError(f"{text!r}: {column.stored} is a {column.scalar}, and {given!r} cannot be one") from None


def _unquoted(given: str) -> str:
    if len(given) > 1 and given[0] == given[-1] == '"':
        try:
            return str(json.loads(given))
        except ValueError:
            return given[1:-1]
    return given


def _list(given: str) -> list[str]:
    """Values between commas; one in quotes may have commas in it."""
    return next(csv.reader([given], skipinitialspace=True), [])
