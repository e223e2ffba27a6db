"""Filters as SQL. Values never become part of the text: each becomes a slot, which says how it is encoded."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, assert_never

from ontolake.model import scalars
from ontolake.model.codecs import encode_float, failure, inside_json
from ontolake.model.columns import Column
from ontolake.model.filters import (
    Compare,
    CompareOp,
    Junction,
    JunctionOp,
    Leaf,
    Match,
    MatchOp,
    Measure,
    Member,
    Negation,
    Shape,
    TestOp,
    UnaryTest,
    ValueRef,
    balanced,
)
from ontolake.model.scalars import UNFIT
from ontolake.ontology.errors import QueryError
from ontolake.ontology.query.compiler.functions import VALUES
from ontolake.ontology.query.compiler.latest import literal, quoted

Encode = Callable[[Any], Any]
_SORTS = ("WHEN 'text' THEN 'text' WHEN 'integer' THEN 'number' WHEN 'real' THEN 'number' WHEN 'array' THEN 'many' "
          "WHEN 'object' THEN 'many' ELSE 'truth'")
LISTED = 250
"""More values of a list than these are bound as one value; SQLite allows for 32,766 in a statement."""


class Operand(NamedTuple):
    """A value in SQL: its text, its column if it is a whole one, and its JSON type if it lies inside one."""

    sql: str
    column: Column | None
    json_type: str | None = None

    @property
    def value(self) -> str:
        """The text of a value out of JSON: text and numbers as SQL has them, lists and objects as their JSON."""
        return self.sql if self.column is None or self.json_type is None else f"json_extract({self.sql}, '$')"

    @property
    def sort(self) -> str:
        """What the value is: only what is of one sort can be equal or has an order."""
        if self.json_type is not None:
            return f"CASE {self.json_type} {_SORTS} END"
        assert self.column is not None
        found = self.column.type.json_sort
        if found is None:
            raise QueryError(f"{self.column.name} is a {self.column.scalar}: JSON has no such values")
        return f"'{found}'"

    @property
    def sortable(self) -> str:
        """The text for putting values in order."""
        return self.ordered if self.json_type is None else self.value

    @property
    def ordered(self) -> str:
        """The text for comparing and grouping."""
        collation = None if self.column is None else self.column.type.collation
        return self.sql if collation is None else f"{self.sql} COLLATE {collation}"


class Resolver(Protocol):
    """What knows where a plan has its types, and gives out slots."""

    def locate(self, ref: ValueRef) -> tuple[str, Column]:
        """The alias of the row that a field belongs to, and its column."""
        ...

    def slot(self, encode: Encode | None) -> str:
        """A placeholder for the next value of the part of the plan that is being written."""
        ...

    def many(self, size: int, encode: Encode) -> str:
        """A placeholder for a list of the next so many values, for `VALUES`."""
        ...

    def again(self, encode: Encode) -> str:
        """A placeholder for the value of the last slot, encoded in another way."""
        ...

    def exact(self, ref: ValueRef) -> str | None:
        """SQL of a key's text, where only that is indexed; None where the column itself is."""
        ...

    def measure(self, measure: Measure) -> tuple[str, Encode | None]:
        """SQL of an aggregate, and how a value to compare with it is encoded."""
        ...


def condition(shape: Shape, to: Resolver) -> str:
    """SQL for a filter."""
    match shape:
        case Junction():
            return balanced(_word(shape.op), [condition(part, to) for part in shape.parts])
        case Negation():
            return f"(NOT {condition(shape.part, to)})"
        case Compare():
            if isinstance(shape.ref, Measure):
                sql, encode = to.measure(shape.ref)
                return f"({sql} {_sign(shape.op)} {to.slot(encode)})"
            return _leaf(shape, shape.ref, to)
        case Match() | Member() | UnaryTest():
            return _leaf(shape, shape.ref, to)
        case _:
            assert_never(shape)


def _word(op: JunctionOp) -> str:
    match op:
        case "and":
            return "AND"
        case "or":
            return "OR"
        case _:
            assert_never(op)


def _sign(op: CompareOp) -> str:
    match op:
        case "==":
            return "="
        case "!=":
            return "<>"
        case "<" | "<=" | ">" | ">=":
            return op
        case _:
            assert_never(op)


def _leaf(shape: Leaf, ref: ValueRef, to: Resolver) -> str:
    if ref.any_path is None:
        text = to.exact(ref) if not ref.path else None
        return _simple(shape, operand(ref, to), to) if text is None else _by_text(shape, ref, text, to)
    source, value = _any_of(ref, to)
    return f"EXISTS (SELECT 1 FROM {source} WHERE {_simple(shape, value, to)})"


def _simple(shape: Leaf, left: Operand, to: Resolver) -> str:
    match shape:
        case Compare():
            return _compare(shape, left, to)
        case Match():
            return _match(shape.op, left, to)
        case Member():
            return _listed(shape.size, left, to)
        case UnaryTest():
            return _test(shape.op, left)
        case _:
            assert_never(shape)


def _listed(size: int, left: Operand, to: Resolver) -> str:
    """That a value is one of the next `size` values."""
    if not size:
        return "(0)"
    encode = comparand(left.column)
    if size > LISTED:
        if left.json_type is None:
            return f"({left.ordered} IN (SELECT value FROM {VALUES}({to.many(size, encode)})))"
        sort = _sort_of(encode)
        slot = to.many(size, lambda value: (encode(value), sort(value)))
        return f"(({left.value}, {left.sort}) IN (SELECT value, sort FROM {VALUES}({slot})))"
    if left.json_type is not None:
        pairs = ", ".join(f"({to.slot(encode)}, {to.again(_sort_of(encode))})" for _ in range(size))
        return f"(({left.value}, {left.sort}) IN (VALUES {pairs}))"
    return f"({left.ordered} IN ({', '.join(to.slot(encode) for _ in range(size))}))"


def _test(op: TestOp, left: Operand) -> str:
    match op:
        case "is_null":
            return f"({left.sql} IS NULL)"
        case "is_not_null":
            return f"({left.sql} IS NOT NULL)"
        case "is_true":
            return _truth(True, left)
        case "is_false":
            return _truth(False, left)
        case _:
            assert_never(op)


def _truth(truth: bool, left: Operand) -> str:
    if left.json_type is not None:
        return f"({left.json_type} = '{'true' if truth else 'false'}')"
    if left.column is None or not left.column.type.truth:
        raise QueryError(f"{_name(left)} is not a bool", hint="is_true() and is_false() are for bools")
    return f"({left.sql} = {int(truth)})"


def _by_text(shape: Leaf, ref: ValueRef, text: str, to: Resolver) -> str:
    """A condition on a number that is indexed as text: what asks for equal numbers asks for equal texts."""
    _, column = to.locate(ref)
    if isinstance(shape, Compare) and shape.op == "==" and shape.other is None:
        return f"({text} = {to.slot(lambda value: _digits(value, column))})"
    if isinstance(shape, Member) and shape.size > LISTED:
        slot = to.many(shape.size, lambda value: _digits(value, column))
        return f"({text} IN (SELECT value FROM {VALUES}({slot})))"
    if isinstance(shape, Member) and shape.size:
        return f"({text} IN ({', '.join(to.slot(lambda value: _digits(value, column)) for _ in range(shape.size))}))"
    return _simple(shape, operand(ref, to), to)


def _digits(value: Any, column: Column) -> str:
    """The text of an equal integer; no text of any integer if there is none."""
    number = comparand(column)(value)
    if isinstance(number, str):  # not a number
        return ""
    return str(int(number)) if isinstance(number, int) or number.is_integer() else ""


def operand(ref: ValueRef, to: Resolver) -> Operand:
    """SQL for a field, or for the value at a path inside it."""
    alias, column = to.locate(ref)
    sql = f"{alias}.{quoted(column.column)}"
    if not ref.path:
        if column.scalar is None:
            return Operand(sql, column, f"json_type({sql})")
        return Operand(sql, column)
    if column.scalar is not None:
        raise QueryError(f"{column.name} is a {column.scalar}: there is no path into it")
    path = literal(json_path(ref.path))
    return Operand(f"json_extract({sql}, {path})", None, f"json_type({sql}, {path})")


def json_path(steps: tuple[str | int, ...]) -> str:
    """A path as SQLite's JSON functions take it. Quotes in keys are written as JSON escapes them."""
    found = "$"
    for step in steps:
        found += _position(step) if isinstance(step, int) else _member_step(step)
    return found


def _member_step(key: str) -> str:
    if "\0" in key:
        raise QueryError(f"a path cannot go through the key {key!r}, which has a NUL in it")
    return '."' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _position(step: int) -> str:
    return f"[{step}]" if step >= 0 else f"[#{step}]"


def _any_of(ref: ValueRef, to: Resolver) -> tuple[str, Operand]:
    """A source of all values at a path that goes through lists, and the value of its rows."""
    alias, column = to.locate(ref)
    if column.scalar is not None:
        raise QueryError(f"{column.name} is a {column.scalar}: there is no path into it")
    start = f"{alias}.{quoted(column.column)}"
    if ref.path:
        start = f"({start} -> {literal(json_path(ref.path))})"
    sources = [f"json_each({_spread(start)}) AS any0"]
    for depth, step in enumerate(ref.any_path or ()):
        path = literal(json_path((step,)))
        within = f"(CASE any{depth}.type WHEN 'object' THEN any{depth}.value ELSE '{{}}' END -> {path})"
        sources.append(f"json_each({_spread(within)}) AS any{depth + 1}")
    last = f"any{len(sources) - 1}"
    return ", ".join(sources), Operand(f"{last}.value", None, f"{last}.type")


def _spread(json: str) -> str:
    """A list as it is, anything else as a list of one."""
    return (f"CASE WHEN {json} IS NULL THEN NULL WHEN json_type({json}) = 'array' THEN {json} "
            f"ELSE json_array(json({json})) END")


def _compare(shape: Compare, left: Operand, to: Resolver) -> str:
    if shape.other is not None:
        return _fields(shape.op, left, operand(shape.other, to))
    encode = comparand(left.column)
    if left.json_type is None:
        return f"({left.ordered} {_sign(shape.op)} {to.slot(encode)})"
    slot = to.slot(encode if shape.op in ("==", "!=") else _in_order(encode))
    return _alike(shape.op, left.value, left.sort, slot, to.again(_sort_of(encode)))


def _alike(op: CompareOp, left: str, left_sort: str, right: str, right_sort: str) -> str:
    """A comparison of values of which at least one lies in JSON, and may be of any sort."""
    return (f"(CASE WHEN {left} IS NULL OR {right} IS NULL THEN NULL WHEN {left_sort} = {right_sort} "
            f"THEN {left} {_sign(op)} {right} ELSE {int(op == '!=')} END)")


def _fields(op: CompareOp, left: Operand, right: Operand) -> str:
    """A comparison of two fields. Raises `QueryError` for types that cannot be compared."""
    if left.json_type is not None or right.json_type is not None:
        return _alike(op, left.value, left.sort, right.value, right.sort)
    assert left.column is not None
    assert right.column is not None
    one, two = left.column.type, right.column.type
    if one is two or (one.family is not None and one.family == two.family):
        return f"({left.ordered} {_sign(op)} {right.ordered})"
    for scalar, other in ((one, two), (two, one)):
        if other.name in scalar.compares_with:
            texts = [f"CAST({side.sql} AS TEXT) COLLATE {scalar.collation}" for side in (left, right)]
            return f"({texts[0]} {_sign(op)} {texts[1]})"
    raise QueryError(f"{left.column.name} is a {one.name} and {right.column.name} a {two.name}: "
                     "they cannot be compared")


def _match(op: MatchOp, left: Operand, to: Resolver) -> str:
    if left.json_type is None:
        if left.column is None or not left.column.type.textual:
            raise QueryError(f"{_name(left)} is not text", hint=f"{op}() is for str, or for a path inside JSON")
        return f"({_matched(op, left.sql, to)})"
    matched = _matched(op, left.value, to)
    return f"(CASE WHEN {left.value} IS NULL THEN NULL WHEN {left.json_type} = 'text' THEN {matched} ELSE 0 END)"


def _matched(op: MatchOp, text: str, to: Resolver) -> str:
    match op:
        case "startswith":
            # A range with two ends, so that an index is used.
            low, high = to.slot(None), to.again(_successor)
            return f"{text} >= {low} AND {text} < {high}"
        case "contains":
            raw, slot = f"CAST({text} AS BLOB)", to.slot(str.encode)
            return _of_bytes(text, slot, f"instr({raw}, {slot}) > 0")
        case "endswith":
            raw, slot = f"CAST({text} AS BLOB)", to.slot(str.encode)
            return _of_bytes(text, slot, f"substr({raw}, -length({slot})) = {slot}")
        case _:
            assert_never(op)


def _of_bytes(text: str, slot: str, matched: str) -> str:
    """A match of bytes of UTF-8: they match where characters do, and neither wildcards nor NULs mean anything."""
    # Both are NULL for empty bytes.
    return f"CASE WHEN {text} IS NULL THEN NULL WHEN length({slot}) = 0 THEN 1 ELSE coalesce({matched}, 0) END"


def _successor(prefix: str) -> str | bytes:
    """The first text behind all that start with this; bytes, which are behind all text, if there is none."""
    while prefix:
        last = ord(prefix[-1])
        if last < 0x10FFFF:
            return prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)
        prefix = prefix[:-1]
    return b""


def comparand(column: Column | None) -> Encode:
    """How a value to compare with a column is encoded. Raises `QueryError` for one of another type."""
    if column is None:
        return _inside
    if column.scalar is None:
        return lambda value: _inside(json.loads(_value(value, column)))
    if column.type.family == "number" and column.codec.types == column.type.codec.types:
        return lambda value: _number(value, column)
    return lambda value: _value(value, column)


def _number(value: Any, column: Column) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QueryError(f"{column.name} is a number and cannot be compared with {value!r}")
    return _bound(value) if isinstance(value, int) else encode_float(value)


def _bound(number: int) -> int | float:
    """An integer that SQLite takes; one that no column holds as a float, which is less or more than all of them."""
    if -(2**63) <= number < 2**63:
        return number
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def number(value: Any) -> int | float:
    """A value to compare with an aggregate that is a number. Raises `QueryError` for any other."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QueryError(f"a number cannot be compared with {value!r}")
    return _bound(value) if isinstance(value, int) else value


def _inside(value: Any) -> Any:
    try:
        plain = inside_json(value)
    except ValueError as error:
        raise QueryError(f"a value inside JSON cannot be compared with {value!r}: {failure(error)}") from error
    return _bound(plain) if isinstance(plain, int) else plain


def _in_order(encode: Encode) -> Encode:
    """The same for values to be less or more than. Raises `QueryError` for those whose text in JSON sorts otherwise."""
    def ordered(value: Any) -> Any:
        scalar = scalars.of_value(value)
        if scalar is not None and not scalar.json_ordered:
            raise QueryError(f"{value!r} is text inside JSON, which sorts otherwise than a {scalar.name}",
                             hint="ask with == or in_(), or declare a field of this type")
        return encode(value)

    return ordered


def _sort_of(encode: Encode) -> Encode:
    """Of which sort a value is that `encode` makes ready for comparing with JSON."""
    def sort(value: Any) -> str:
        if isinstance(value, list | tuple | dict | set | frozenset):
            return "many"
        return "text" if isinstance(encode(value), str) else "number"

    return sort


def _value(value: Any, column: Column) -> Any:
    types = column.codec.types
    if types is not None and type(value) not in types:
        if any(issubclass(kind, enum.Enum) for kind in types) and not isinstance(value, enum.Enum):
            return _member(value, column)
        try:
            found = column.type.comparand(value)
        except (ValueError, TypeError) as error:
            raise QueryError(f"{column.name} cannot be compared with {value!r}: {failure(error)}") from error
        if found is not UNFIT:
            return found
        wrong = f"{column.name} is a {column.scalar} and cannot be compared with {value!r}"
        raise QueryError(wrong, hint="compare it with text" if column.type.textual else None)
    try:
        return value if column.codec.encode is None else column.codec.encode(value)
    except (ValueError, KeyError, TypeError) as error:
        raise QueryError(f"{column.name} cannot be compared with {value!r}: {failure(error)}") from error


def _member(value: Any, column: Column) -> Any:
    """The value of a member stands for the member."""
    try:
        column.decode(value)
    except (ValueError, KeyError, TypeError) as error:
        raise QueryError(f"{column.name} cannot be compared with {value!r}: {failure(error)}") from error
    return value


def _name(left: Operand) -> str:
    return left.column.name if left.column is not None else "the value"
