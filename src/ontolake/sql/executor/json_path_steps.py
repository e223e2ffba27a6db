"""What the parts of a JSON path do: steps give items one by one, tests are true, false or unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, NamedTuple

from ontolake.sql.errors import SqlError

Items = Iterable[Any]
DEEPEST = 1 << 30
"""The level that `last` means for `**`."""
COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<>": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


class Context(NamedTuple):
    """What a path is evaluated in."""

    root: Any
    current: Any
    variables: dict[str, Any]
    lax: bool
    last: int = -1
    """The last place of the array whose elements are being named."""


Step = Callable[[Context], Items]
Test = Callable[[Context], "bool | None"]



def kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names: dict[type, str] = {dict: "object", list: "array", str: "string"}
    return names.get(type(value), "number")


def _unwrapped(context: Context, items: Items) -> Iterator[Any]:
    for each in items:
        if context.lax and isinstance(each, list):
            yield from each
        else:
            yield each


def member(name: str) -> Callable[[Context, Items], Items]:
    def apply(context: Context, items: Items) -> Items:
        for each in _unwrapped(context, items):
            if isinstance(each, dict) and name in each:
                yield each[name]
            elif not context.lax:
                what = (f'JSON object does not contain key "{name}"' if isinstance(each, dict) else
                        "jsonpath member accessor can only be applied to an object")  # fmt: skip
                raise SqlError(what, sqlstate="2203A")

    return apply


def all_members(context: Context, items: Items) -> Items:
    for each in _unwrapped(context, items):
        if isinstance(each, dict):
            yield from each.values()
        elif not context.lax:
            raise SqlError("jsonpath wildcard member accessor can only be applied to an object", sqlstate="2203C")


def all_elements(context: Context, items: Items) -> Items:
    for each in items:
        if isinstance(each, list):
            yield from each
        elif context.lax:
            yield each
        else:
            raise SqlError("jsonpath wildcard array accessor can only be applied to an array", sqlstate="22039")


def elements(places: list[tuple[Step, Step | None]]) -> Callable[[Context, Items], Items]:
    def place(step: Step, context: Context) -> int:
        found = list(step(context))
        if len(found) != 1 or kind(found[0]) != "number":
            raise SqlError("jsonpath array subscript is not a single numeric value", sqlstate="22033")
        if abs(found[0]) >= 2**31:
            raise SqlError("jsonpath array subscript is out of integer range", sqlstate="22033")
        return int(found[0])

    def apply(context: Context, items: Items) -> Items:
        for each in items:
            if not isinstance(each, list):
                if not context.lax:
                    raise SqlError("jsonpath array accessor can only be applied to an array", sqlstate="22039")
                each = [each]
            inner = context._replace(last=len(each) - 1)
            for low, high in places:
                start = place(low, inner)
                end = start if high is None else place(high, inner)
                if not context.lax and (start < 0 or start > end or end >= len(each)):
                    raise SqlError("jsonpath array subscript is out of bounds", sqlstate="22033")
                yield from each[max(start, 0) : max(end + 1, 0)]

    return apply


def deep(low: int, high: int) -> Callable[[Context, Items], Items]:
    def walk(value: Any, level: int) -> Iterator[Any]:
        if level >= low or (low == DEEPEST and not isinstance(value, dict | list)):
            yield value
        if level < high:
            for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
                yield from walk(each, level + 1)

    def apply(context: Context, items: Items) -> Items:
        for each in items:
            yield from walk(each, 0)

    return apply


def filtered(test: Test) -> Callable[[Context, Items], Items]:
    return lambda context, items: (each for each in _unwrapped(context, items)
                                   if test(context._replace(current=each)) is True)  # fmt: skip


def method(name: str) -> Callable[[Context, Items], Items]:
    def apply(context: Context, items: Items) -> Items:
        for each in items if name in ("type", "size") else _unwrapped(context, items):
            if name == "type":
                yield kind(each)
            elif name == "size":
                if not context.lax and not isinstance(each, list):
                    raise SqlError("jsonpath item method .size() can only be applied to an array", sqlstate="22039")
                yield len(each) if isinstance(each, list) else 1
            else:
                yield from _computed(name, each)

    return apply


def _computed(name: str, value: Any) -> Items:
    if name == "keyvalue":
        if not isinstance(value, dict):
            raise SqlError("jsonpath item method .keyvalue() can only be applied to an object", sqlstate="2203C")
        return [{"id": 0, "key": key, "value": each} for key, each in value.items()]
    if name == "double" and isinstance(value, str):
        try:
            number = Decimal(value)
        except ArithmeticError:
            raise SqlError("argument of jsonpath item method .double() is not a number", sqlstate="22036") from None
        if not number.is_finite():
            raise SqlError("NaN or Infinity is not allowed for jsonpath item method .double()", sqlstate="22036")
        return [number]
    if kind(value) != "number":
        state = "22036" if name == "double" else "22038"
        raise SqlError(f"jsonpath item method .{name}() can only be applied to a numeric value", sqlstate=state)
    value = Decimal(value)
    if name == "ceiling":
        return [value.to_integral_value(ROUND_CEILING)]
    if name == "floor":
        return [value.to_integral_value(ROUND_FLOOR)]
    return [abs(value) if name == "abs" else value]


def arithmetic(mark: str, left: Step, right: Step) -> Step:
    def number(step: Step, context: Context, side: str) -> Decimal:
        found = list(_unwrapped(context, step(context)))
        if len(found) != 1 or kind(found[0]) != "number":
            what = f"{side} operand of jsonpath operator {mark} is not a single numeric value"
            raise SqlError(what, sqlstate="22038")
        return Decimal(found[0])

    def apply(context: Context) -> Items:
        a, b = number(left, context, "left"), number(right, context, "right")
        if mark in "/%" and b == 0:
            raise SqlError("division by zero", sqlstate="22012")
        return [{"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b,
                 "%": lambda: a % b}[mark]()]  # fmt: skip

    return apply


def signed(sign: int, step: Step) -> Step:
    def apply(context: Context) -> Items:
        for each in _unwrapped(context, step(context)):
            if kind(each) != "number":
                raise SqlError("operand of unary jsonpath operator is not a numeric value", sqlstate="2203B")
            yield sign * each

    return apply


def pairs(left: Step, right: Step, check: Callable[[Any, Any], bool | None]) -> Test:
    """A predicate that holds for one of the pairs of two sequences."""

    def apply(context: Context) -> bool | None:
        try:
            ones, others = (list(_unwrapped(context, step(context))) for step in (left, right))
        except SqlError:
            return None
        found = [check(one, other) for one in ones for other in others]
        return None if None in found and (not context.lax or True not in found) else True in found

    return apply


def compared(mark: str) -> Callable[[Any, Any], bool | None]:
    def apply(one: Any, other: Any) -> bool | None:
        if kind(one) != kind(other):
            if one is None or other is None:
                return mark in ("!=", "<>")
            return None
        if isinstance(one, dict | list):
            return None
        if one is None:
            return mark in ("==", "<=", ">=")
        return COMPARED[mark](one, other)

    return apply


def as_item(test: Test) -> Step:
    return lambda context: [test(context)]


def both(left: Test, right: Test) -> Test:
    def apply(context: Context) -> bool | None:
        one = left(context)
        if one is False:
            return False
        other = right(context)
        return other if one or other is False else None

    return apply


def negated(test: Test) -> Test:
    def apply(context: Context) -> bool | None:
        found = test(context)
        return None if found is None else not found

    return apply


def exists_item(items: Items, lax: bool) -> bool:
    """Whether there is an item. A strict path is followed to its end, where it may fail."""
    return any(True for _ in items) if lax else bool(list(items))


def exists(step: Step) -> Test:
    def apply(context: Context) -> bool | None:
        try:
            return exists_item(step(context), context.lax)
        except SqlError:
            return None

    return apply


def variable(name: str) -> Step:
    def apply(context: Context) -> Items:
        if name not in context.variables:
            raise SqlError(f'could not find jsonpath variable "{name}"', sqlstate="42704")
        return [context.variables[name]]

    return apply
