"""JSON path expressions of PostgreSQL: read once, shown as PostgreSQL shows them, and evaluated over values of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from ontolake.sql.errors import SqlError, SqlSyntaxError, UnsupportedError
from ontolake.sql.executor import json_path_steps as steps
from ontolake.sql.executor.json_path_steps import COMPARED, DEEPEST, Context, Items, Step, Test
from ontolake.sql.executor.literals import load_json, shown_json
from ontolake.sql.executor.patterns import compiled

_TOKEN = re.compile(r"""\s+|/\*.*?\*/|(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)
    |(?P<variable>\$(?:"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*))|(?P<word>[A-Za-z_]\w*)
    |(?P<mark>\*\*|==|!=|<>|<=|>=|&&|\|\||[$@.\[\](){}?,*+\-/%<>!])""", re.VERBOSE | re.DOTALL)
_METHODS = ("type", "size", "double", "ceiling", "floor", "abs", "keyvalue")
_OR, _AND, _COMPARISON, _SUM, _PRODUCT, _SIGN, _VALUE = range(7)
"""How tightly operators bind."""


class JsonPath(NamedTuple):
    """A path that was read."""

    lax: bool
    step: Step
    text: str

    def items(self, root: Any, variables: dict[str, Any]) -> Items:
        """What the path leads to, one by one. Raises `SqlError`."""
        return self.step(Context(root, root, variables, self.lax))


@lru_cache(maxsize=256)
def read_path(text: str) -> JsonPath:
    """Read a path. Raises `SqlSyntaxError`."""
    return _Reader(text).path()


def query(document: str, path: str, variables: str, mode: str) -> list[str]:
    """The texts of what a path leads to; what comes before it fails, if the mode is `silent`."""
    found: list[str] = []
    try:
        for each in read_path(path).items(load_json(document), load_json(variables)):
            found.append(shown_json(each))  # noqa: PERF401 - what was found stays when it fails
    except SqlError as error:
        if mode != "silent" or error.sqlstate in ("42601", "42704"):
            raise
    return found


def is_there(document: str, path: str, variables: str, mode: str) -> bool | None:
    """Whether a path leads to anything; NULL if it fails and the mode is `silent`."""
    found = read_path(path)
    try:
        return steps.exists_item(found.items(load_json(document), load_json(variables)), found.lax)
    except SqlError as error:
        if mode != "silent" or error.sqlstate in ("42601", "42704"):
            raise
        return None


def match(document: str, path: str, variables: str, mode: str) -> bool | None:
    """The truth value that a path gives."""
    try:
        found = list(read_path(path).items(load_json(document), load_json(variables)))
    except SqlError as error:
        if mode != "silent" or error.sqlstate in ("42601", "42704"):
            raise
        return None
    if len(found) == 1 and (isinstance(found[0], bool) or found[0] is None):
        return found[0]
    if mode == "silent":
        return None
    raise SqlError("single boolean result is expected", sqlstate="22038")


class _Part(NamedTuple):
    """A part of a path: a step or a test, its text, and how tightly its operator binds."""

    run: Any
    text: str
    binds: int = _VALUE
    is_test: bool = False

    def within(self, binds: int) -> str:
        """The text as an operand of an operator."""
        return self.whole if self.binds <= binds else self.text

    @property
    def whole(self) -> str:
        """The text with parentheses around an operator."""
        return f"({self.text})" if self.binds < _VALUE or self.text.startswith("-") else self.text


class _Reader:
    """Reads a path."""

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
        part = self._either()
        if self._place < len(self._tokens):
            raise self._wrong(self._next()[1])
        return JsonPath(lax, self._step_of(part), f"{'' if lax else 'strict '}{part.whole}")

    def _step_of(self, part: _Part) -> Step:
        found: Step = steps.as_item(part.run) if part.is_test else part.run
        return found

    def _test_of(self, part: _Part) -> Test:
        if not part.is_test:
            raise self._wrong(self._next()[1] or "end")
        found: Test = part.run
        return found

    def _either(self) -> _Part:
        left = self._both()
        while self._take("||"):
            right = self._both()
            one, other = steps.negated(self._test_of(left)), steps.negated(self._test_of(right))
            text = f"{left.within(_OR)} || {right.within(_OR)}"
            left = _Part(steps.negated(steps.both(one, other)), text, _OR, True)
        return left

    def _both(self) -> _Part:
        left = self._not()
        while self._take("&&"):
            right = self._not()
            run = steps.both(self._test_of(left), self._test_of(right))
            left = _Part(run, f"{left.within(_AND)} && {right.within(_AND)}", _AND, True)
        return left

    def _not(self) -> _Part:
        if self._take("!"):
            inner = self._not()
            return _Part(steps.negated(self._test_of(inner)), f"!({inner.text})", _VALUE, True)
        if self._take("exists"):
            self._expect("(")
            inner = self._sum()
            self._expect(")")
            return _Part(steps.exists(self._step_of(inner)), f"exists ({inner.text})", _VALUE, True)
        return self._comparison()

    def _comparison(self) -> _Part:
        left = self._sum()
        if mark := self._take(*COMPARED):
            right = self._sum()
            run = steps.pairs(self._step_of(left), self._step_of(right), steps.compared(mark))
            shown = "!=" if mark == "<>" else mark
            return _Part(run, f"{left.within(_COMPARISON)} {shown} {right.within(_COMPARISON)}", _COMPARISON, True)
        if self._take("starts"):
            self._expect("with")
            right = self._value()
            run = steps.pairs(self._step_of(left), self._step_of(right), lambda one, other: one.startswith(
                other) if isinstance(one, str) and isinstance(other, str) else None)  # fmt: skip
            text = f"{left.within(_COMPARISON)} starts with {right.within(_COMPARISON)}"
            return _Part(run, text, _COMPARISON, True)
        if self._take("like_regex"):
            return self._regex(left)
        if left.is_test and self._take("is"):
            self._expect("unknown")
            inner = self._test_of(left)
            return _Part(lambda context: inner(context) is None, f"({left.text}) is unknown", _VALUE, True)
        return left

    def _regex(self, left: _Part) -> _Part:
        pattern = self._string()
        flags = self._string() if self._take("flag") else ""
        if unknown := next((each for each in flags if each not in "ismxq"), None):
            raise SqlSyntaxError(f'unrecognized flag character "{unknown}" in LIKE_REGEX predicate')
        if "x" in flags and "q" not in flags:
            raise UnsupportedError('XQuery "x" flag (expanded regular expressions) is not implemented')
        newlines = ("w" if "s" in flags else "n") if "m" in flags else "" if "s" in flags else "p"
        known = compiled(pattern, newlines + "".join(each for each in flags if each in "iq"))
        run = steps.pairs(self._step_of(left), lambda context: [None],
                          lambda one, _: known.search(one) is not None if isinstance(one, str) else None)  # fmt: skip
        kept = "".join(each for each in "ismxq" if each in flags)
        text = f"{left.whole} like_regex {_quoted(pattern)}" + (f" flag {_quoted(kept)}" if kept else "")
        return _Part(run, text, _COMPARISON, True)

    def _string(self) -> str:
        kind, text = self._next()
        if kind != "string":
            raise self._wrong(text or "end")
        self._place += 1
        return _read_string(text)

    def _sum(self) -> _Part:
        left = self._product()
        while mark := self._take("+", "-"):
            left = self._operation(mark, left, self._product(), _SUM)
        return left

    def _product(self) -> _Part:
        left = self._sign()
        while mark := self._take("*", "/", "%"):
            left = self._operation(mark, left, self._sign(), _PRODUCT)
        return left

    def _operation(self, mark: str, left: _Part, right: _Part, binds: int) -> _Part:
        run = steps.arithmetic(mark, self._step_of(left), self._step_of(right))
        return _Part(run, f"{left.within(binds)} {mark} {right.within(binds)}", binds)

    def _sign(self) -> _Part:
        if mark := self._take("+", "-"):
            inner = self._sign()
            run = steps.signed(-1 if mark == "-" else 1, self._step_of(inner))
            if re.fullmatch(r"-?[\d.]+", inner.text):  # a number with its sign
                text = inner.text if mark == "+" else inner.text[1:] if inner.text[0] == "-" else f"-{inner.text}"
                return _Part(run, text)
            return _Part(run, f"{mark}{inner.within(_SIGN)}", _SIGN)
        return self._value()

    def _value(self) -> _Part:
        if self._take("("):
            inner = self._either()
            self._expect(")")
            if self._next()[1] in (".", "[", "?"):
                return self._accessors(self._step_of(inner), inner.whole, inner.binds)
            return inner
        kind, text = self._next()
        self._place += 1
        start: Step
        shown = text
        if kind == "variable":
            name = _read_string(text[1:]) if text[1] == '"' else text[1:]
            start, shown = steps.variable(name), f"${_quoted(name)}"
        elif text == "$":
            start = lambda context: [context.root]  # noqa: E731
        elif text == "@":
            start = lambda context: [context.current]  # noqa: E731
        elif text == "last" and kind == "word":
            start = lambda context: [context.last]  # noqa: E731
        elif kind in ("string", "number") or text in ("true", "false", "null"):
            readers: dict[str, Callable[[str], Any]] = {"number": Decimal, "string": _read_string}
            constant = readers.get(kind, load_json)(text)
            start = lambda context: [constant]  # noqa: E731
            shown = f"{constant:f}" if kind == "number" else _quoted(constant) if kind == "string" else text
            if kind == "number" and self._next()[1] in (".", "[", "?"):
                shown = f"({shown})"
        else:
            raise self._wrong(text or "end")
        return self._accessors(start, shown, _VALUE)

    def _accessors(self, start: Step, text: str, binds: int) -> _Part:
        parts: list[Callable[[Context, Items], Items]] = []
        while True:
            if self._take("["):
                part, shown = self._subscripts()
            elif self._take("?"):
                self._expect("(")
                inner = self._either()
                part, shown = steps.filtered(self._test_of(inner)), f"?({inner.text})"
                self._expect(")")
            elif self._take("."):
                part, shown = self._named()
            else:
                break
            parts.append(part)
            text += shown

        def apply(context: Context) -> Items:
            items = start(context)
            for part in parts:
                items = part(context, items)
            return items

        return _Part(apply, text) if parts else _Part(start, text, binds)

    def _subscripts(self) -> tuple[Callable[[Context, Items], Items], str]:
        if self._take("*"):
            self._expect("]")
            return steps.all_elements, "[*]"
        places: list[tuple[Step, Step | None]] = []
        texts = []
        while True:
            low = self._sum()
            high = self._sum() if self._take("to") else None
            places.append((self._step_of(low), None if high is None else self._step_of(high)))
            texts.append(low.text if high is None else f"{low.text} to {high.text}")
            if not self._take(","):
                break
        self._expect("]")
        return steps.elements(places), f"[{','.join(texts)}]"

    def _named(self) -> tuple[Callable[[Context, Items], Items], str]:
        if self._take("*"):
            return steps.all_members, ".*"
        if self._take("**"):
            low, high, shown = self._levels()
            return steps.deep(low, high), f".**{shown}"
        kind, text = self._next()
        if kind not in ("word", "string"):
            raise self._wrong(text or "end")
        self._place += 1
        if kind == "word" and self._next()[1] == "(":
            self._place += 1
            self._expect(")")
            if text not in _METHODS:
                raise self._wrong(text)
            return steps.method(text), f".{text}()"
        name = text if kind == "word" else _read_string(text)
        return steps.member(name), f".{_quoted(name)}"

    def _levels(self) -> tuple[int, int, str]:
        if not self._take("{"):
            return 0, DEEPEST, ""
        levels = []
        while True:
            kind, text = self._next()
            self._place += 1
            levels.append(DEEPEST if text == "last" else int(text) if kind == "number" and text.isdigit() else -1)
            if levels[-1] < 0:
                raise self._wrong(text or "end")
            if not self._take("to"):
                break
        self._expect("}")
        names = ["last" if each == DEEPEST else str(each) for each in levels]
        shown = names[0] if levels[0] == levels[-1] else f"{names[0]} to {names[-1]}"
        return levels[0], levels[-1], f"{{{shown}}}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _read_string(text: str) -> str:
    """A text in quotes, with escapes of JavaScript. Raises `SqlSyntaxError`."""

    def one(found: re.Match[str]) -> str:
        mark = found[1]
        if mark[0] in "ux" and len(mark) > 1:
            return chr(int(mark[1:].strip("{}"), 16))
        if mark in ("u", "x"):
            raise SqlSyntaxError("invalid escape sequence of jsonpath input")
        return {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}.get(mark, mark)

    pattern = r"\\(u[0-9a-fA-F]{4}|u\{[0-9a-fA-F]{1,6}\}|x[0-9a-fA-F]{2}|.)"
    read = re.sub(pattern, one, text[1:-1], flags=re.DOTALL)
    try:
        return read.encode("utf-16", "surrogatepass").decode("utf-16")
    except (UnicodeError, ValueError):
        raise SqlSyntaxError("invalid Unicode surrogate pair of jsonpath input") from None
