"""JSON path expressions of PostgreSQL: read once, evaluated over values of JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from ontolake.sql.errors import SqlError, SqlSyntaxError
from ontolake.sql.executor.literals import load_json, shown_json

Items = list[Any]
_TOKEN = re.compile(r"""\s+|/\*.*?\*/|(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)
    |(?P<variable>\$(?:"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*))|(?P<word>[A-Za-z_]\w*)
    |(?P<mark>\*\*|==|!=|<>|<=|>=|&&|\|\||[$@.\[\](){}?,*+\-/%<>!])""", re.VERBOSE | re.DOTALL)
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<>": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


class _Context(NamedTuple):
    """What a path is evaluated in."""

    root: Any
    current: Any
    variables: dict[str, Any]
    lax: bool
    last: int = -1
    """The last place of the array whose elements are being named."""


_Step = Callable[[_Context], Items]
_Test = Callable[[_Context], "bool | None"]


class JsonPath(NamedTuple):
    """A path that was read."""

    lax: bool
    step: _Step

    def items(self, root: Any, variables: dict[str, Any]) -> Items:
        """What the path leads to. Raises `SqlError`."""
        return self.step(_Context(root, root, variables, self.lax))


@lru_cache(maxsize=256)
def read_path(text: str) -> JsonPath:
    """Read a path. Raises `SqlSyntaxError`."""
    return _Reader(text).path()


def query(document: str, path: str, variables: str, mode: str) -> list[str]:
    """The texts of what a path leads to; nothing, if it fails and the mode is `silent`."""
    try:
        return [shown_json(each) for each in read_path(path).items(load_json(document), load_json(variables))]
    except SqlError as error:
        if mode != "silent" or error.sqlstate == "42601":
            raise
        return []


def match(document: str, path: str, variables: str, mode: str) -> bool | None:
    """The truth value that a path gives."""
    try:
        found = read_path(path).items(load_json(document), load_json(variables))
    except SqlError as error:
        if mode != "silent" or error.sqlstate == "42601":
            raise
        return None
    if len(found) == 1 and (isinstance(found[0], bool) or found[0] is None):
        return found[0]
    if mode == "silent":
        return None
    raise SqlError("single boolean result is expected", sqlstate="22038")


# evaluation


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names: dict[type, str] = {dict: "object", list: "array", str: "string"}
    return names.get(type(value), "number")


def _unwrapped(context: _Context, items: Items) -> Iterator[Any]:
    for each in items:
        if context.lax and isinstance(each, list):
            yield from each
        else:
            yield each


def _member(name: str) -> Callable[[_Context, Items], Items]:
    def apply(context: _Context, items: Items) -> Items:
        found = []
        for each in _unwrapped(context, items):
            if isinstance(each, dict) and name in each:
                found.append(each[name])
            elif not context.lax:
                what = (f'JSON object does not contain key "{name}"' if isinstance(each, dict) else
                        "jsonpath member accessor can only be applied to an object")  # fmt: skip
                raise SqlError(what, sqlstate="2203A")
        return found

    return apply


def _all_members(context: _Context, items: Items) -> Items:
    found: Items = []
    for each in _unwrapped(context, items):
        if isinstance(each, dict):
            found += each.values()
        elif not context.lax:
            raise SqlError("jsonpath wildcard member accessor can only be applied to an object", sqlstate="2203C")
    return found


def _all_elements(context: _Context, items: Items) -> Items:
    found: Items = []
    for each in items:
        if isinstance(each, list):
            found += each
        elif context.lax:
            found.append(each)
        else:
            raise SqlError("jsonpath wildcard array accessor can only be applied to an array", sqlstate="22039")
    return found


def _elements(places: list[tuple[_Step, _Step | None]]) -> Callable[[_Context, Items], Items]:
    def place(step: _Step, context: _Context) -> int:
        found = step(context)
        if len(found) != 1 or _kind(found[0]) != "number":
            raise SqlError("jsonpath array subscript is not a single numeric value", sqlstate="22033")
        return int(found[0])

    def apply(context: _Context, items: Items) -> Items:
        found = []
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
                found += each[max(start, 0) : max(end + 1, 0)]
        return found

    return apply


def _deep(low: int, high: int) -> Callable[[_Context, Items], Items]:
    def walk(value: Any, level: int, found: Items) -> None:
        if level >= low:
            found.append(value)
        if level < high:
            for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
                walk(each, level + 1, found)

    def apply(context: _Context, items: Items) -> Items:
        found: Items = []
        for each in items:
            walk(each, 0, found)
        return found

    return apply


def _filtered(test: _Test) -> Callable[[_Context, Items], Items]:
    return lambda context, items: [each for each in _unwrapped(context, items)
                                   if test(context._replace(current=each)) is True]  # fmt: skip


def _method(name: str) -> Callable[[_Context, Items], Items]:
    def apply(context: _Context, items: Items) -> Items:
        if name == "type":
            return [_kind(each) for each in items]
        if name == "size":
            if not context.lax and any(not isinstance(each, list) for each in items):
                raise SqlError("jsonpath item method .size() can only be applied to an array", sqlstate="22039")
            return [len(each) if isinstance(each, list) else 1 for each in items]
        return [found for each in _unwrapped(context, items) for found in _computed(name, each)]

    return apply


def _computed(name: str, value: Any) -> Items:
    if name == "keyvalue":
        if not isinstance(value, dict):
            raise SqlError("jsonpath item method .keyvalue() can only be applied to an object", sqlstate="2203C")
        return [{"id": 0, "key": key, "value": each} for key, each in value.items()]
    if name == "double" and isinstance(value, str):
        try:
            return [Decimal(value)]
        except ArithmeticError:
            raise SqlError("argument of jsonpath item method .double() is not a number", sqlstate="22036") from None
    if _kind(value) != "number":
        state = "22036" if name == "double" else "22038"
        raise SqlError(f"jsonpath item method .{name}() can only be applied to a numeric value", sqlstate=state)
    number = Decimal(value)
    if name == "ceiling":
        return [number.to_integral_value(ROUND_CEILING)]
    if name == "floor":
        return [number.to_integral_value(ROUND_FLOOR)]
    return [abs(number) if name == "abs" else number]


def _arithmetic(mark: str, left: _Step, right: _Step) -> _Step:
    def number(step: _Step, context: _Context, side: str) -> Decimal:
        found = list(_unwrapped(context, step(context)))
        if len(found) != 1 or _kind(found[0]) != "number":
            what = f"{side} operand of jsonpath operator {mark} is not a single numeric value"
            raise SqlError(what, sqlstate="22038")
        return Decimal(found[0])

    def apply(context: _Context) -> Items:
        a, b = number(left, context, "left"), number(right, context, "right")
        if mark in "/%" and b == 0:
            raise SqlError("division by zero", sqlstate="22012")
        return [{"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b,
                 "%": lambda: a % b}[mark]()]  # fmt: skip

    return apply


def _signed(sign: int, step: _Step) -> _Step:
    def apply(context: _Context) -> Items:
        found = list(_unwrapped(context, step(context)))
        if any(_kind(each) != "number" for each in found):
            raise SqlError("operand of unary jsonpath operator is not a numeric value", sqlstate="2203B")
        return [sign * each for each in found]

    return apply


def _pairs(left: _Step, right: _Step, check: Callable[[Any, Any], bool | None]) -> _Test:
    """A predicate that holds for one of the pairs of two sequences."""

    def apply(context: _Context) -> bool | None:
        try:
            ones, others = (list(_unwrapped(context, step(context))) for step in (left, right))
        except SqlError:
            return None
        found = [check(one, other) for one in ones for other in others]
        return None if None in found and (not context.lax or True not in found) else True in found

    return apply


def _compared(mark: str) -> Callable[[Any, Any], bool | None]:
    def apply(one: Any, other: Any) -> bool | None:
        if _kind(one) != _kind(other):
            if one is None or other is None:
                return mark in ("!=", "<>")
            return None
        if isinstance(one, dict | list):
            return None
        if one is None:
            return mark in ("==", "<=", ">=")
        return _COMPARED[mark](one, other)

    return apply


def _as_item(test: _Test) -> _Step:
    return lambda context: [test(context)]


def _both(left: _Test, right: _Test) -> _Test:
    def apply(context: _Context) -> bool | None:
        one = left(context)
        if one is False:
            return False
        other = right(context)
        return other if one or other is False else None

    return apply


def _negated(test: _Test) -> _Test:
    def apply(context: _Context) -> bool | None:
        found = test(context)
        return None if found is None else not found

    return apply


def _exists(step: _Step) -> _Test:
    def apply(context: _Context) -> bool | None:
        try:
            return bool(step(context))
        except SqlError:
            return None

    return apply


# reading


class _Reader:
    """Reads a path. A part is a step, which gives items, or a test, which is true, false or unknown."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        place = 0
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise self._wrong(text[place])
            place = found.end()
            if found.lastgroup:
                self._tokens.append((found.lastgroup, found[0]))
        self._place = 0

    def _wrong(self, near: str) -> SqlSyntaxError:
        return SqlSyntaxError(f'syntax error at or near "{near}" of jsonpath input')

    def _next(self) -> tuple[str, str]:
        return self._tokens[self._place] if self._place < len(self._tokens) else ("end", "")

    def _take(self, *texts: str) -> str | None:
        kind, text = self._next()
        if text in texts and kind in ("mark", "word"):
            self._place += 1
            return text
        return None

    def _expect(self, text: str) -> None:
        if self._take(text) is None:
            raise self._wrong(self._next()[1] or "end")

    def path(self) -> JsonPath:
        lax = self._take("strict", "lax") != "strict"
        step = self._step_of(self._either())
        if self._place < len(self._tokens):
            raise self._wrong(self._next()[1])
        return JsonPath(lax, step)

    def _step_of(self, part: tuple[str, Any]) -> _Step:
        found: _Step = _as_item(part[1]) if part[0] == "test" else part[1]
        return found

    def _test_of(self, part: tuple[str, Any]) -> _Test:
        if part[0] != "test":
            raise self._wrong(self._next()[1] or "end")
        found: _Test = part[1]
        return found

    def _either(self) -> tuple[str, Any]:
        left = self._both()
        while self._take("||"):
            one, other = _negated(self._test_of(left)), _negated(self._test_of(self._both()))
            left = ("test", _negated(_both(one, other)))
        return left

    def _both(self) -> tuple[str, Any]:
        left = self._not()
        while self._take("&&"):
            left = ("test", _both(self._test_of(left), self._test_of(self._not())))
        return left

    def _not(self) -> tuple[str, Any]:
        if self._take("!"):
            return "test", _negated(self._test_of(self._not()))
        if self._take("exists"):
            self._expect("(")
            step = self._step_of(self._sum())
            self._expect(")")
            return "test", _exists(step)
        return self._comparison()

    def _comparison(self) -> tuple[str, Any]:
        left = self._sum()
        if mark := self._take(*_COMPARED):
            return "test", _pairs(self._step_of(left), self._step_of(self._sum()), _compared(mark))
        if self._take("starts"):
            self._expect("with")
            return "test", _pairs(self._step_of(left), self._step_of(self._value()), lambda one, other: one.startswith(
                other) if isinstance(one, str) and isinstance(other, str) else None)  # fmt: skip
        if self._take("like_regex"):
            return "test", self._regex(self._step_of(left))
        if left[0] == "test" and self._take("is"):
            self._expect("unknown")
            inner = left[1]
            return "test", lambda context: inner(context) is None
        return left

    def _regex(self, step: _Step) -> _Test:
        from ontolake.sql.executor.patterns import compiled

        pattern = self._string()
        flags = self._string() if self._take("flag") else ""
        known = compiled(pattern, flags.replace("s", ""))
        return _pairs(step, lambda context: [None],
                      lambda one, _: known.search(one) is not None if isinstance(one, str) else None)  # fmt: skip

    def _string(self) -> str:
        kind, text = self._next()
        if kind != "string":
            raise self._wrong(text or "end")
        self._place += 1
        return str(load_json(text))

    def _sum(self) -> tuple[str, Any]:
        left = self._product()
        while mark := self._take("+", "-"):
            left = ("step", _arithmetic(mark, self._step_of(left), self._step_of(self._product())))
        return left

    def _product(self) -> tuple[str, Any]:
        left = self._sign()
        while mark := self._take("*", "/", "%"):
            left = ("step", _arithmetic(mark, self._step_of(left), self._step_of(self._sign())))
        return left

    def _sign(self) -> tuple[str, Any]:
        if mark := self._take("+", "-"):
            return "step", _signed(-1 if mark == "-" else 1, self._step_of(self._sign()))
        return self._value()

    def _value(self) -> tuple[str, Any]:
        if self._take("("):
            inner = self._either()
            self._expect(")")
            if self._next()[1] in (".", "[", "?"):
                return "step", self._accessors(self._step_of(inner))
            return inner
        kind, text = self._next()
        self._place += 1
        start: _Step
        if kind == "variable":
            name = str(load_json(text[1:])) if text[1] == '"' else text[1:]
            start = _variable(name)
        elif text == "$":
            start = lambda context: [context.root]  # noqa: E731
        elif text == "@":
            start = lambda context: [context.current]  # noqa: E731
        elif text == "last" and kind == "word":
            start = lambda context: [context.last]  # noqa: E731
        elif kind in ("string", "number") or text in ("true", "false", "null"):
            constant = Decimal(text) if kind == "number" else load_json(text)
            start = lambda context: [constant]  # noqa: E731
        else:
            raise self._wrong(text or "end")
        return "step", self._accessors(start)

    def _accessors(self, start: _Step) -> _Step:
        parts: list[Callable[[_Context, Items], Items]] = []
        while True:
            if self._take("["):
                parts.append(self._subscripts())
            elif self._take("?"):
                self._expect("(")
                parts.append(_filtered(self._test_of(self._either())))
                self._expect(")")
            elif self._take("."):
                parts.append(self._named())
            else:
                break

        def apply(context: _Context) -> Items:
            items = start(context)
            for part in parts:
                items = part(context, items)
            return items

        return apply

    def _subscripts(self) -> Callable[[_Context, Items], Items]:
        if self._take("*"):
            self._expect("]")
            return _all_elements
        places: list[tuple[_Step, _Step | None]] = []
        while True:
            low = self._step_of(self._sum())
            places.append((low, self._step_of(self._sum()) if self._take("to") else None))
            if not self._take(","):
                break
        self._expect("]")
        return _elements(places)

    def _named(self) -> Callable[[_Context, Items], Items]:
        if self._take("*"):
            return _all_members
        if self._take("**"):
            return _deep(*self._levels())
        kind, text = self._next()
        if kind not in ("word", "string"):
            raise self._wrong(text or "end")
        self._place += 1
        if kind == "word" and self._next()[1] == "(":
            self._place += 1
            self._expect(")")
            if text not in ("type", "size", "double", "ceiling", "floor", "abs", "keyvalue"):
                raise self._wrong(text)
            return _method(text)
        return _member(text if kind == "word" else str(load_json(text)))

    def _levels(self) -> tuple[int, int]:
        deepest = 1 << 30
        if not self._take("{"):
            return 0, deepest
        levels = []
        while True:
            kind, text = self._next()
            self._place += 1
            levels.append(deepest if text == "last" else int(text) if kind == "number" else -1)
            if levels[-1] < 0:
                raise self._wrong(text or "end")
            if not self._take("to"):
                break
        self._expect("}")
        return levels[0], levels[-1]


def _variable(name: str) -> _Step:
    def apply(context: _Context) -> Items:
        if name not in context.variables:
            raise SqlError(f'could not find jsonpath variable "{name}"', sqlstate="42704")
        return [context.variables[name]]

    return apply
