"""Expressions of the catalog as PostgreSQL writes them back: constants with their types, each operator in parentheses.

What is not known here is written as our own dialect has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sqlglot import exp

from ontolake.sql.executor.formats import quote_ident
from ontolake.sql.syntax.dialect import DIALECT
from ontolake.sql.syntax.statements import name_of

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.GT: ">", exp.LTE: "<=", exp.GTE: ">="}  # fmt: skip
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.DPipe: "||"}  # fmt: skip
_PRECEDENCE = {"*": 3, "/": 3, "%": 3, "+": 2, "-": 2, "||": 1}
_NUMBERS = ("smallint", "integer", "bigint", "numeric", "real", "double precision")
_TEXT_FUNCTIONS = {"lower", "upper", "length", "char_length", "btrim", "ltrim", "rtrim", "trim", "md5", "initcap",
                   "replace", "left", "right", "reverse", "substr", "strpos", "split_part"}  # fmt: skip
_GIVES = {"lower": "text", "upper": "text", "md5": "text", "initcap": "text", "replace": "text", "length": "integer",
          "char_length": "integer", "now": "timestamp with time zone", "btrim": "text"}  # fmt: skip


class _Written(NamedTuple):
    """An expression as text, its type if it is known, and whether it needs no parentheses within another."""

    text: str
    type: str = ""
    simple: bool = False
    rank: int = 0


class ExpressionWriter:
    """Writes expressions over columns of which the types are known."""

    def __init__(
        self, types: Mapping[str, str], *, pretty: bool = False, prefix: Callable[[str, str], str] | None = None,
        sequence: Callable[[int], str] | None = None,
    ) -> None:  # fmt: skip
        """`types` are those of columns by name; `prefix` gives what stands before a column, `sequence` names one."""
        self._types, self._pretty, self._prefix, self._sequence = types, pretty, prefix, sequence

    def write(self, node: exp.Expr, type: str = "") -> str:
        """An expression; `type` is what its value becomes."""
        return self._as(self._any(node), type).text

    def default(self, node: exp.Expr, type: str) -> str:
        """The default of a column: a number keeps the form that it has."""
        found = self._any(node)
        inner = found.text.lstrip("-")
        if type == "numeric" or (type in _NUMBERS and inner.replace(".", "").isdigit()):
            return found.text
        return self._as(found, type).text

    def _any(self, node: exp.Expr) -> _Written:
        if isinstance(node, exp.Paren):
            return self._any(node.this)
        if isinstance(node, exp.Column):
            name = name_of(node.this)
            before = "" if self._prefix is None else self._prefix(name_of(node.args.get("table")), name)
            return _Written(before + quote_ident(name), self._types.get(name, ""), simple=True)
        if isinstance(node, exp.Literal):
            return self._literal(node)
        if isinstance(node, exp.Boolean):
            return _Written("true" if node.this else "false", "boolean", simple=True)
        if isinstance(node, exp.Null):
            return _Written("NULL", "unknown", simple=True)
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
            return _Written(f"-{node.this.this}", self._literal(node.this).type)
        if isinstance(node, exp.And | exp.Or):
            return self._connected(node)
        if isinstance(node, exp.Not):
            inner = self._any(node.this)
            return _Written(self._wrapped(f"NOT {inner.text}"), "boolean")
        if isinstance(node, exp.Is):
            return self._is(node)
        if type(node) in _COMPARISONS:
            return self._compared(node)
        if type(node) in _ARITHMETIC:
            return self._arithmetic(node)
        if isinstance(node, exp.Anonymous | exp.Func) and not isinstance(node, exp.Cast | exp.Case):
            return self._call(node)
        if isinstance(node, exp.Cast):
            return self._cast(node)
        if isinstance(node, exp.In) and node.expressions:
            return self._in(node)
        if isinstance(node, exp.Between):
            both = exp.and_(exp.GTE(this=node.this.copy(), expression=node.args["low"].copy()),
                            exp.LTE(this=node.this.copy(), expression=node.args["high"].copy()))  # fmt: skip
            return self._any(both)
        return _Written(node.sql(DIALECT), simple=True)

    def _wrapped(self, text: str) -> str:
        return text if self._pretty else f"({text})"

    def _literal(self, node: exp.Literal) -> _Written:
        if node.is_string:
            return _Written("'" + node.this.replace("'", "''") + "'", "unknown", simple=True)
        if not node.this.isdigit():
            return _Written(node.this, "numeric", simple=True)
        return _Written(node.this, "integer" if int(node.this) < 2**31 else "bigint", simple=True)

    def _as(self, given: _Written, type: str) -> _Written:
        """An expression as one of another type, with a cast where PostgreSQL has to make one."""
        if not type or given.type == type or given.type == "":
            return given
        if given.type == "unknown":
            return _Written(f"{given.text}::{type}", type, simple=True)
        if given.type in ("smallint", "integer", "bigint") and type in ("smallint", "integer", "bigint"):
            return given
        inner = given.text if self._pretty and given.simple else f"({given.text})"
        return _Written(f"{inner}::{type}", type, simple=True)

    def _connected(self, node: exp.Connector) -> _Written:
        word = "AND" if isinstance(node, exp.And) else "OR"
        parts: list[exp.Expr] = []
        pending: list[exp.Expr] = [node]
        while pending:
            each = pending.pop()
            inner = each.unnest()
            if type(inner) is type(node):
                pending += [inner.args["expression"], inner.this]
            else:
                parts.append(inner)
        texts = []
        for each in parts:
            text = self._any(each).text
            texts.append(f"({text})" if self._pretty and isinstance(each, exp.Connector) else text)
        return _Written(self._wrapped(f" {word} ".join(texts)), "boolean")

    def _is(self, node: exp.Is) -> _Written:
        wanted, no = node.expression, "NOT " if node.args.get("negate") else ""
        if isinstance(wanted, exp.Not):
            wanted, no = wanted.this, "NOT "
        word = "NULL" if isinstance(wanted, exp.Null) else "TRUE" if wanted.this else "FALSE"
        return _Written(self._wrapped(f"{self._any(node.this).text} IS {no}{word}"), "boolean")

    def _pair(self, node: exp.Expr) -> tuple[_Written, _Written]:
        left, right = self._any(node.this), self._any(node.expression)
        for text in ("character varying", "name"):
            left = self._as(left, "text") if left.type == text else left
            right = self._as(right, "text") if right.type == text else right
        if left.type == "unknown" or right.type == "unknown":
            other = right.type if left.type == "unknown" else left.type
            return self._as(left, other or "text"), self._as(right, other or "text")
        if left.type in _NUMBERS and right.type in _NUMBERS:
            wide = max(left.type, right.type, key=_NUMBERS.index)
            if wide in ("numeric", "real", "double precision"):
                wide = "double precision" if wide == "real" and left.type != right.type else wide
                return self._as(left, wide), self._as(right, wide)
        return left, right

    def _compared(self, node: exp.Expr) -> _Written:
        left, right = self._pair(node)
        return _Written(self._wrapped(f"{left.text} {_COMPARISONS[type(node)]} {right.text}"), "boolean")

    def _arithmetic(self, node: exp.Expr) -> _Written:
        sign = _ARITHMETIC[type(node)]
        left, right = self._pair(node)
        rank = _PRECEDENCE[sign]
        texts = [f"({each.text})" if self._pretty and each.rank and (each.rank < rank or n) else each.text
                 for n, each in enumerate((left, right))]  # fmt: skip
        known = left.type or right.type
        if left.type in _NUMBERS and right.type in _NUMBERS:
            known = max(left.type, right.type, key=_NUMBERS.index)
        return _Written(self._wrapped(f"{texts[0]} {sign} {texts[1]}"), known, rank=rank)

    def _call(self, node: exp.Expr) -> _Written:
        if isinstance(node, exp.CurrentTimestamp | exp.CurrentDate):
            return _Written(node.sql(DIALECT).upper(), simple=True)
        named = node.this if isinstance(node, exp.Anonymous) else node.key
        name = str(named if isinstance(named, str) else name_of(named)).lower()
        arguments = list(node.expressions) if isinstance(node, exp.Anonymous) else [
            each for each in node.args.values() if isinstance(each, exp.Expr)]
        if name == "nextval" and self._sequence is not None and isinstance(arguments[0], exp.Literal) and not (
                arguments[0].is_string):
            return _Written(f"nextval('{self._sequence(int(arguments[0].this))}'::regclass)", "bigint", simple=True)
        parts = []
        for each in arguments:
            found = self._any(each)
            if name in _TEXT_FUNCTIONS and found.type in ("character varying", "character", "unknown"):
                found = self._as(found, "text")
            parts.append(found.text)
        return _Written(f"{name}({', '.join(parts)})", _GIVES.get(name, ""), simple=True)

    def _cast(self, node: exp.Cast) -> _Written:
        type = _type_text(node.to)
        given = self._any(node.this)
        if given.type == "unknown":
            return _Written(f"{given.text}::{type}", type, simple=True)
        inner = given.text if self._pretty and given.simple else f"({given.text})"
        return _Written(f"{inner}::{type}", type, simple=True)

    def _in(self, node: exp.In) -> _Written:
        value = self._any(node.this)
        is_text = value.type == "character varying"
        value = self._as(value, "text") if is_text else value
        items = [self._as(self._any(each), "text" if is_text else value.type).text for each in node.expressions]
        return _Written(self._wrapped(f"{value.text} = ANY (ARRAY[{', '.join(items)}])"), "boolean")


_TYPE_TEXTS = {"INT": "integer", "DECIMAL": "numeric", "VARCHAR": "character varying", "DOUBLE": "double precision",
               "FLOAT": "real", "TIMESTAMPTZ": "timestamp with time zone", "BOOLEAN": "boolean",
               "TIMESTAMP": "timestamp without time zone", "CHAR": "character"}  # fmt: skip


def _type_text(node: exp.Expr) -> str:
    name = str(getattr(node.this, "name", node.this)).upper()
    return _TYPE_TEXTS[name] if name in _TYPE_TEXTS and not node.expressions else node.sql("postgres").lower()
