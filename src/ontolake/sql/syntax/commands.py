"""Commands of a session, which are words rather than expressions: PREPARE, DECLARE, FETCH, SET, COPY and others."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlglot
from sqlglot.tokenizer_core import Token, TokenType

from ontolake.sql.errors import SqlSyntaxError, UnsupportedError
from ontolake.sql.syntax.dialect import DIALECT

_QUOTED = (TokenType.STRING, TokenType.BYTE_STRING)
_WORD = re.compile(r"\s*([A-Za-z]+)")


@dataclass
class Command:
    """A command as it was read. `inner` is where the statement in it begins and ends, `values` an expression list."""

    kind: str
    names: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    inner: tuple[int, int] | None = None
    values: tuple[int, int] | None = None


class TokenReader:
    """Reads the tokens of a statement one by one. Raises `SqlSyntaxError` where something else is expected."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self._tokens: Sequence[Token] = sqlglot.tokenize(sql, dialect=DIALECT)
        self._at = 0

    @classmethod
    def after(cls, word: str, sql: str) -> TokenReader:
        """The tokens behind the first word, which may be one that the tokenizer would take the rest for."""
        begin = len(sql) - len(sql.lstrip())
        found = cls(sql[:begin] + "_".ljust(len(word)) + sql[begin + len(word) :])
        found.sql, found._at = sql, 1
        return found

    @property
    def ended(self) -> bool:
        return self._at >= len(self._tokens)

    @property
    def is_last(self) -> bool:
        """Whether one token is left."""
        return self._at == len(self._tokens) - 1

    @property
    def place(self) -> int:
        """Where the next token begins."""
        return len(self.sql) if self.ended else int(self._tokens[self._at].start)

    def peek(self, ahead: int = 0) -> str:
        """The next token in capitals, or an empty text for a quoted one or the end."""
        at = self._at + ahead
        if at >= len(self._tokens) or self._tokens[at].token_type in (*_QUOTED, TokenType.IDENTIFIER):
            return ""
        return str(self._tokens[at].text).upper()

    def accept(self, *words: str) -> str:
        """The next word, if it is one of these; otherwise an empty text, and the word stays."""
        found = self.peek()
        if found and found in words:
            self._at += 1
            return found
        return ""

    def expect(self, *words: str) -> str:
        return self.accept(*words) or self.fail(f"{' or '.join(words)} is expected")

    def fail(self, why: str) -> Any:
        near = "the end" if self.ended else repr(str(self._tokens[self._at].text))
        raise SqlSyntaxError(f"syntax error at or near {near}: {why}", position=self.place + 1)

    def name(self) -> str:
        """A name: in small letters, unless it is quoted."""
        if self.ended:
            self.fail("a name is expected")
        token = self._tokens[self._at]
        text = str(token.text)
        if token.token_type == TokenType.IDENTIFIER:
            self._at += 1
            return text
        if token.token_type in _QUOTED or not (text[:1].isalpha() or text[:1] == "_"):
            self.fail("a name is expected")
        self._at += 1
        return text.lower()

    def names(self) -> list[str]:
        """Names with dots in between."""
        found = [self.name()]
        while self.accept("."):
            found.append(self.name())
        return found

    def text(self) -> str:
        """A string in quotes."""
        if self.ended or self._tokens[self._at].token_type not in _QUOTED:
            self.fail("a text in quotes is expected")
        self._at += 1
        return str(self._tokens[self._at - 1].text)

    def is_text(self) -> bool:
        return not self.ended and self._tokens[self._at].token_type in _QUOTED

    def value(self) -> str:
        """A word, number or string."""
        if self.ended:
            self.fail("a value is expected")
        sign = self.accept("-", "+")
        token = self._tokens[self._at]
        if not sign and token.token_type in (*_QUOTED, TokenType.VAR, TokenType.IDENTIFIER):
            self._at += 1
            return str(token.text)
        text = str(token.text)
        if not text or not (text[0].isalnum() or text[0] in "_.:"):
            self.fail("a value is expected")
        self._at += 1
        return ("-" if sign == "-" else "") + text

    def number(self) -> int | None:
        """A whole number, if one is next."""
        ahead = 1 if self.peek() in ("-", "+") else 0
        digits = self.peek(ahead)
        if not digits.isdigit():
            return None
        negative = self.peek() == "-"
        self._at += ahead + 1
        return -int(digits) if negative else int(digits)

    def parens(self) -> tuple[int, int]:
        """What stands between parentheses that open here: where it begins and ends."""
        self.expect("(")
        begin, depth = self.place, 1
        while not self.ended:
            word = self.peek()
            depth += (word == "(") - (word == ")")
            end = self.place
            self._at += 1
            if not depth:
                return begin, end
        return self.fail(") is expected")  # type: ignore[no-any-return]

    def rest(self) -> tuple[int, int]:
        """All that follows."""
        if self.ended:
            self.fail("a statement is expected")
        begin, self._at = self.place, len(self._tokens)
        return begin, len(self.sql)

    def end(self) -> None:
        if not self.ended:
            self.fail("the end of the statement is expected")


def read_command(sql: str) -> Command | None:
    """The command that a statement is; None for a statement of another kind. Raises `SqlSyntaxError`."""
    matched = _WORD.match(sql)
    word = matched[1].upper() if matched else ""
    reader = _READERS.get(word)
    if reader is None:
        return None
    tokens = TokenReader.after(word, sql)
    found = reader(tokens)
    if found is not None:
        tokens.end()
    return found


def _prepare(tokens: TokenReader) -> Command | None:
    if tokens.peek() == "TRANSACTION":
        raise UnsupportedError("PREPARE TRANSACTION is not supported", hint="COMMIT it: a commit is one step")
    name = tokens.name()
    types: list[str] = []
    if tokens.peek() == "(":
        begin, end = tokens.parens()
        types = _split(tokens.sql[begin:end])
    tokens.expect("AS")
    return Command("prepare", [name], {"types": types}, inner=tokens.rest())


def _split(text: str) -> list[str]:
    """Parts between commas outside parentheses."""
    found, depth, last = [], 0, 0
    for at, each in enumerate(text):
        depth += (each in "([") - (each in ")]")
        if each == "," and not depth:
            found.append(text[last:at].strip())
            last = at + 1
    return [*found, text[last:].strip()]


def _execute(tokens: TokenReader) -> Command:
    name = tokens.name()
    values = tokens.parens() if tokens.peek() == "(" else None
    return Command("execute", [name], values=values)


def _deallocate(tokens: TokenReader) -> Command:
    tokens.accept("PREPARE")
    return Command("deallocate", _name_or_all(tokens))


def _name_or_all(tokens: TokenReader) -> list[str]:
    """A name, or no names for ALL."""
    return [] if tokens.accept("ALL") else [tokens.name()]


def _declare(tokens: TokenReader) -> Command:
    name = tokens.name()
    scroll: bool | None = None
    while word := tokens.accept("BINARY", "INSENSITIVE", "ASENSITIVE", "SCROLL", "NO"):
        if word == "BINARY":
            raise UnsupportedError("a BINARY cursor is not supported", hint="leave BINARY out")
        if word == "NO":
            tokens.expect("SCROLL")
        if word in ("SCROLL", "NO"):
            scroll = word == "SCROLL"
    tokens.expect("CURSOR")
    hold = False
    if word := tokens.accept("WITH", "WITHOUT"):
        tokens.expect("HOLD")
        hold = word == "WITH"
    tokens.expect("FOR")
    return Command("declare", [name], {"scroll": scroll, "hold": hold}, inner=tokens.rest())


_WAYS = ("NEXT", "PRIOR", "FIRST", "LAST", "ABSOLUTE", "RELATIVE", "ALL", "FORWARD", "BACKWARD")


def _fetch(kind: str) -> Callable[[TokenReader], Command]:
    def read(tokens: TokenReader) -> Command:
        way, count = "FORWARD", 1
        if (number := tokens.number()) is not None:
            count = number
        elif tokens.peek() in _WAYS and not tokens.is_last:
            way = tokens.accept(*_WAYS)
            if way in ("ABSOLUTE", "RELATIVE"):
                number = tokens.number()
                count = tokens.fail("a number is expected") if number is None else number
            elif way in ("FORWARD", "BACKWARD"):
                if tokens.peek() == "ALL" and not tokens.is_last:
                    tokens.accept("ALL")
                    way = f"{way} ALL"
                elif (number := tokens.number()) is not None:
                    count = number
            elif way == "ALL":
                way = "FORWARD ALL"
        tokens.accept("FROM", "IN")
        return Command(kind, [tokens.name()], {"way": way, "count": count})

    return read


def _close(tokens: TokenReader) -> Command:
    return Command("close", _name_or_all(tokens))


def _set(tokens: TokenReader) -> Command | None:
    scope = tokens.accept("SESSION", "LOCAL")
    local = scope == "LOCAL"
    if tokens.accept("TIME"):
        tokens.expect("ZONE")
        tokens.accept("INTERVAL")
        word = tokens.value()
        return Command("set", ["timezone"], {"values": None if word.upper() in ("DEFAULT", "LOCAL") else [word],
                                             "local": local})  # fmt: skip
    if tokens.peek() in ("CONSTRAINTS", "TRANSACTION", "CHARACTERISTICS", "ROLE", "AUTHORIZATION"):
        return _set_others(tokens)
    name = ".".join(tokens.names())
    tokens.expect("TO", "=")
    if tokens.accept("DEFAULT"):
        return Command("set", [name], {"values": None, "local": local})
    values = [tokens.value()]
    while tokens.accept(","):
        values.append(tokens.value())
    return Command("set", [name], {"values": values, "local": local})


def _set_others(tokens: TokenReader) -> Command | None:
    word = tokens.peek()
    if word in ("ROLE", "AUTHORIZATION"):
        raise UnsupportedError(f"SET {word} is not supported: tables have no owners here",
                               hint="users of the server have rights")
    if word == "CONSTRAINTS":
        return None
    tokens.accept("CHARACTERISTICS")
    tokens.accept("AS")
    tokens.expect("TRANSACTION")
    begin, end = tokens.rest()
    kind = "set characteristics" if word == "CHARACTERISTICS" else "set transaction"
    return Command(kind, details={"modes": " ".join(tokens.sql[begin:end].upper().replace(",", " ").split())})


def _show(tokens: TokenReader) -> Command:
    if tokens.accept("TIME"):
        tokens.expect("ZONE")
        return Command("show", ["timezone"])
    if tokens.accept("TRANSACTION"):
        tokens.expect("ISOLATION")
        tokens.expect("LEVEL")
        return Command("show", ["transaction_isolation"])
    return Command("show", [] if tokens.accept("ALL") else [".".join(tokens.names())])


def _reset(tokens: TokenReader) -> Command:
    if tokens.accept("TIME"):
        tokens.expect("ZONE")
        return Command("reset", ["timezone"])
    return Command("reset", [] if tokens.accept("ALL") else [".".join(tokens.names())])


def _discard(tokens: TokenReader) -> Command:
    return Command("discard", [tokens.expect("ALL", "PLANS", "SEQUENCES", "TEMP", "TEMPORARY").lower()])


def _upkeep(kind: str) -> Callable[[TokenReader], Command]:
    """Commands of upkeep, which name tables and have options that are not looked at."""

    def read(tokens: TokenReader) -> Command:
        tables: list[list[str]] = []
        if tokens.peek() == "(":
            tokens.parens()
        words = ("FULL", "FREEZE", "VERBOSE", "ANALYZE", "TABLE", "INDEX", "SCHEMA", "DATABASE", "SYSTEM",
                 "CONCURRENTLY", "ONLY")  # fmt: skip
        while tokens.accept(*words):
            pass
        while not tokens.ended:
            tables.append(tokens.names())
            if tokens.peek() == "(":
                tokens.parens()
            if not tokens.accept(","):
                break
        return Command("upkeep", [kind], {"tables": tables})

    return read


def _lock(tokens: TokenReader) -> Command:
    tokens.accept("TABLE")
    tokens.accept("ONLY")
    tables = [tokens.names()]
    while tokens.accept(","):
        tables.append(tokens.names())
    if tokens.accept("IN"):
        while tokens.peek() and tokens.peek() != "NOWAIT" and not tokens.ended:
            tokens.name()
    tokens.accept("NOWAIT")
    return Command("lock", details={"tables": tables})


def _copy(tokens: TokenReader) -> Command:
    details: dict[str, Any] = {"columns": [], "table": None}
    inner = None
    if tokens.peek() == "(":
        inner = tokens.parens()
    else:
        details["table"] = tokens.names()
        if tokens.peek() == "(":
            begin, end = tokens.parens()
            inside = TokenReader(tokens.sql[begin:end])
            details["columns"] = [inside.name()]
            while inside.accept(","):
                details["columns"].append(inside.name())
            inside.end()
    details["into"] = tokens.expect("FROM", "TO") == "FROM"
    if details["into"] and inner is not None:
        tokens.fail("COPY of a query goes TO a file")
    if tokens.accept("PROGRAM"):
        raise UnsupportedError("COPY … PROGRAM is not supported", hint="give Database.copy_from its output")
    details["file"] = tokens.text() if tokens.is_text() else None
    if details["file"] is None:
        tokens.expect("STDIN" if details["into"] else "STDOUT")
    tokens.accept("WITH")
    details["options"] = _copy_options(tokens) if tokens.peek() == "(" else _old_copy_options(tokens)
    where = tokens.rest() if details["into"] and tokens.accept("WHERE") else None
    return Command("copy", details=details, inner=inner, values=where)


def _copy_options(tokens: TokenReader) -> dict[str, Any]:
    tokens.expect("(")
    found: dict[str, Any] = {}
    while True:
        name = tokens.name()
        value: Any = True
        if name in found:
            tokens.fail(f"the option {name} is given twice")
        if tokens.peek() == "(":
            begin, end = tokens.parens()
            inside = TokenReader(tokens.sql[begin:end])
            value = [inside.name()]
            while inside.accept(","):
                value.append(inside.name())
        elif tokens.accept("*"):
            value = "*"
        elif tokens.peek() not in (",", ")") or tokens.is_text():
            value = tokens.value()
        found[name] = value
        if not tokens.accept(","):
            tokens.expect(")")
            return found


def _old_copy_options(tokens: TokenReader) -> dict[str, Any]:
    """The options as PostgreSQL wrote them before version 9."""
    found: dict[str, Any] = {}
    while not tokens.ended and tokens.peek() != "WHERE":
        word = tokens.expect("BINARY", "CSV", "HEADER", "DELIMITER", "DELIMITERS", "NULL", "QUOTE", "ESCAPE", "FORCE",
                             "ENCODING", "FREEZE")  # fmt: skip
        if word in ("BINARY", "CSV"):
            found["format"] = word.lower()
        elif word in ("HEADER", "FREEZE"):
            found[word.lower()] = True
        elif word == "FORCE":
            kind = tokens.expect("QUOTE", "NOT", "NULL")
            if kind == "NOT":
                tokens.expect("NULL")
            name = "force_quote" if kind == "QUOTE" else "force_null" if kind == "NULL" else "force_not_null"
            if tokens.accept("*"):
                found[name] = "*"
            else:
                found[name] = [tokens.name()]
                while tokens.accept(","):
                    found[name].append(tokens.name())
        else:
            tokens.accept("AS")
            found["delimiter" if word == "DELIMITERS" else word.lower()] = tokens.text()
    return found


def _channel(kind: str) -> Callable[[TokenReader], Command]:
    """LISTEN, UNLISTEN and NOTIFY, with the name of a channel."""

    def read(tokens: TokenReader) -> Command:
        name = "*" if kind == "unlisten" and tokens.accept("*") else tokens.name()
        payload = tokens.text() if kind == "notify" and tokens.accept(",") else ""
        return Command(kind, [name], {"payload": payload})

    return read


_READERS: dict[str, Callable[[TokenReader], Command | None]] = {
    "PREPARE": _prepare, "EXECUTE": _execute, "DEALLOCATE": _deallocate, "DECLARE": _declare,
    "FETCH": _fetch("fetch"), "MOVE": _fetch("move"), "CLOSE": _close, "SET": _set, "SHOW": _show, "RESET": _reset,
    "DISCARD": _discard, "VACUUM": _upkeep("VACUUM"), "ANALYZE": _upkeep("ANALYZE"), "ANALYSE": _upkeep("ANALYZE"),
    "CLUSTER": _upkeep("CLUSTER"), "REINDEX": _upkeep("REINDEX"), "CHECKPOINT": _upkeep("CHECKPOINT"),
    "LOCK": _lock, "COPY": _copy, "LISTEN": _channel("listen"), "UNLISTEN": _channel("unlisten"),
    "NOTIFY": _channel("notify"),
}  # fmt: skip
