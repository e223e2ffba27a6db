"""Statements: text into what is to be done, in PostgreSQL's dialect."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from ontolake.sql.errors import SqlError, SqlSyntaxError, TypeMismatchError, UnsupportedError
from ontolake.sql.syntax import commands, definitions
from ontolake.sql.syntax.dialect import DIALECT as DIALECT
from ontolake.sql.types import INTERVAL, JSONB, TIMESTAMPS, Kind, from_sql, spans

logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # what it cannot read is told with an error, by us

DATES = tuple(day.toordinal() - date(1970, 1, 1).toordinal() for day in (date.min, date.max))
"""The days that Python has a date for."""
Parameters = Sequence[Any] | Mapping[str, Any]

_NAME = r'("(?:[^"]|"")+"|[A-Za-z_][\w$]*)'
_LEVEL = (r"(?:\s*,?\s+ISOLATION\s+LEVEL\s+"
          r"(?:SERIALIZABLE|REPEATABLE\s+READ|READ\s+COMMITTED|READ\s+UNCOMMITTED)\s*,?)?")  # fmt: skip
_CONTROL: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern + r"\s*\Z", re.IGNORECASE | re.DOTALL)) for kind, pattern in (
        ("begin", rf"(?:BEGIN(?:\s+WORK|\s+TRANSACTION)?|START\s+TRANSACTION){_LEVEL}(?:\s+READ\s+WRITE)?{_LEVEL}"),
        ("begin read only",
         rf"(?:BEGIN(?:\s+WORK|\s+TRANSACTION)?|START\s+TRANSACTION){_LEVEL}\s+READ\s+ONLY{_LEVEL}"),
        ("commit", r"(?:COMMIT|END)(?:\s+WORK|\s+TRANSACTION)?"),
        ("rollback", r"(?:ROLLBACK|ABORT)(?:\s+WORK|\s+TRANSACTION)?"),
        ("savepoint", rf"SAVEPOINT\s+{_NAME}"),
        ("rollback to", rf"ROLLBACK\s+(?:WORK\s+|TRANSACTION\s+)?TO\s+(?:SAVEPOINT\s+)?{_NAME}"),
        ("release", rf"RELEASE\s+(?:SAVEPOINT\s+)?{_NAME}"),
        ("call", r"CALL\s+(onto_\w+)\s*\(.*\)"),
        ("use", rf"USE\s+{_NAME}(?:\s*\.\s*{_NAME})?"),
    )
)  # fmt: skip
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[^\W\d]")
_ADD_CHECK = re.compile(r"\b(ADD)\s+CHECK\b", re.IGNORECASE)
_RENAME = re.compile(r"\bRENAME\s+(CONSTRAINT)\b", re.IGNORECASE)
_DROP = re.compile(r"DROP\s+(INDEX|SCHEMA|SEQUENCE)\b.*,", re.IGNORECASE | re.DOTALL)
_INTO = re.compile(r"\bINTO\b", re.IGNORECASE)
CONSTRAINT = "constraint"
"""Marks a node that renames a constraint, not a column."""
_EXPLAIN = re.compile(r"EXPLAIN(?:\s*\((?!\s*(?:SELECT|WITH|VALUES|TABLE)\b)(?P<options>[\w\s,]*)\)\s*"
                      r"|\s+(?P<analyze>ANALYZE\b)?(?:\s*VERBOSE\b)?\s*)(?=\S)", re.IGNORECASE)
_EXPLAIN_FLAGS = ("analyze", "verbose", "costs", "settings", "buffers", "wal", "timing", "summary")
_TRUE, _FALSE = ("", "true", "on", "1"), ("false", "off", "0")


_INSTEAD = {
    "GRANT": "tables have no owners here; users of the server have rights", "REVOKE": "users of the server have rights",
    "DO": "run the statements from Python, in one transaction",
    "REFRESH": "a view is always fresh; CREATE TABLE AS keeps rows", "SECURITY": "users of the server have rights",
    "REASSIGN": "tables have no owners here", "IMPORT": "COPY and Database.copy_from take files",
    "LOAD": "COPY and Database.copy_from take files",
}  # fmt: skip
"""What does the work of statements that people bring along."""
_FORMS = {"ALTER", "CREATE", "DROP", "BEGIN", "START", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "USE"}


T = TypeVar("T")


class ParameterSets(list[Any]):
    """Sets of parameters, for each of which a statement that changes rows is run."""


class ParsedStatement:
    """One statement. `begins` is where it stands in the text that was given."""

    def __init__(
        self, kind: str, sql: str, begins: int, tree: exp.Expr | None, names: Sequence[str] = (),
        shifts: Sequence[tuple[int, int]] = (),
    ) -> None:  # fmt: skip
        self.kind = kind
        self.sql = sql
        self.begins = begins
        self.tree = tree
        self.names = list(names)
        self.options: dict[str, Any] = {}
        """What else a command says."""
        self.inner: ParsedStatement | None = None
        self.defining: definitions.Defining | None = None
        """A definition that the parser does not read."""
        self.marks = marks_of(tree) if tree is not None else []
        self.given: Mapping[str, Any] = {}
        """Arrow tables that names without a schema mean before any table is looked up."""
        self.system: Any = None
        """What answers functions about the catalog, in a statement that reads system tables."""
        self.prepared: tuple[Any, Any] | None = None
        """What was worked out for this statement, and the catalog that it holds for."""
        self._parts: tuple[object, dict[tuple[int, str], Any]] = (None, {})
        self._is_versioned: bool | None = None
        self._is_system: bool | None = None
        self._shifts = shifts
        places = [mark_place(mark) for mark in self.marks]
        self._count = max((place + 1 for place in places if isinstance(place, int)), default=0)
        self._named = [place for place in places if isinstance(place, str)]

    def changed(self, tree: exp.Expr, given: Mapping[str, Any], kind: str | None = None) -> ParsedStatement:
        """The same statement with another tree, and Arrow tables that names in it mean."""
        found = ParsedStatement(kind or self.kind, self.sql, self.begins, tree, self.names, self._shifts)
        found.given = given
        return found

    def once(self, catalog: object, node: exp.Expr, name: str, make: Callable[[], T]) -> T:
        """What a node of the statement says whatever the parameters are, worked out once for a catalog."""
        if node.root() is not self.tree:
            return make()
        parts = self._parts  # which another thread may replace
        if parts[0] != catalog:
            parts = self._parts = (catalog, {})
        known, place = parts[1], (id(node), name)
        if place not in known:
            known[place] = make()
        found: T = known[place]
        return found

    @property
    def is_system(self) -> bool:
        """Whether it names a system table, type or function."""
        if self._is_system is None:
            from ontolake.sql.pg_catalog.statements import is_system

            self._is_system = is_system(self)
        return self._is_system

    @property
    def is_versioned(self) -> bool:
        """Whether a table of it is read as it was."""
        if self._is_versioned is None:
            self._is_versioned = self.tree is not None and self.tree.find(exp.Version) is not None
        return self._is_versioned

    @property
    def parameter_count(self) -> int:
        """How many parameters by number there are."""
        return self._count

    def position(self, offset: int) -> int:
        """The character of the given text, from 1, that a place in the parsed statement came from."""
        return _unshifted(self.begins + offset, self._shifts) + 1

    def check_parameters(self, parameters: Parameters) -> Parameters:
        """The parameters, if they are as many as there are places. Raises `SqlError`."""
        if parameters.__class__ is tuple and len(parameters) == self._count and not self._named and self.inner is None:
            return parameters
        if isinstance(parameters, ParameterSets):
            for each in parameters:
                self.check_parameters(each)
            return parameters
        if self.inner is not None:
            return self.inner.check_parameters(parameters)
        if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence | Mapping):
            raise SqlError("parameters are a sequence or a mapping of values", sqlstate="07001", hint="write (value,)")
        named = self._named
        if isinstance(parameters, Mapping):
            missing = next((name for name in named if name not in parameters), None)
            if missing is not None or self._count:
                what = f"there is no value for the parameter :{missing}" if missing else "values are needed by number"
                raise SqlError(what, sqlstate="07001")
        elif named:
            raise SqlError(f"the parameter :{named[0]} is named", sqlstate="07001", hint="give a mapping of values")
        elif len(parameters) != self._count:
            known, given = self._count, len(parameters)
            raise SqlError(f"the statement has {known} parameter{'' if known == 1 else 's'}, and {given} "
                           f"value{' was' if given == 1 else 's were'} given", sqlstate="07001")
        return parameters


def marks_of(tree: exp.Expr) -> list[exp.Expr]:
    """The places of parameters in a tree."""
    found: list[exp.Expr] = list(tree.find_all(exp.Placeholder))
    for node in (*found, *tree.find_all(exp.Parameter)):
        if isinstance(node, exp.Parameter) or not node.name:
            raise UnsupportedError(f"{node.sql(DIALECT)} is no parameter that is known", hint="use ?, $1 or :name")
    return found


def mark_place(mark: exp.Expr) -> int | str:
    """Where the value of a parameter stands among those that are given: a number from 0, or a name."""
    name = mark.name
    return int(name[1:]) - 1 if name[:1] == "_" and name[1:].isdigit() else name


def given_value(mark: exp.Expr, parameters: Parameters) -> Any:
    """The value for the place of a parameter."""
    return parameters[mark_place(mark)]  # type: ignore[index]


def bound(tree: exp.Expr, parameters: Parameters) -> exp.Expr:
    """A copy of a tree with values for parameters."""
    copy = tree.copy()
    for mark in marks_of(copy):
        mark.replace(literal(given_value(mark, parameters)))
    return copy


_MARK = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | \$([A-Za-z_]\w*)?\$.*?\$\1\$
    | \$(?P<n>\d+) | \?(?:\|(?!\|)|&|(?=\s*')) | (?P<q>\?)""",
    re.DOTALL | re.VERBOSE)


def _numbered(sql: str) -> tuple[str, list[tuple[int, int]]]:
    """The text with `:_n` for each `?` and `$n`, and by how much what stands behind each was moved.

    Beside `$n` a `?` is the operator of jsonb.
    """
    marks = [found for found in _MARK.finditer(sql) if found["n"] or found["q"]]
    if any(found["n"] for found in marks):
        marks = [found for found in marks if found["n"]]
    parts: list[str] = []
    shifts: list[tuple[int, int]] = []
    last = moved = 0
    for count, found in enumerate(marks, 1):
        mark = f":_{found['n'] or count}"
        parts += [sql[last : found.start()], mark]
        last = found.end()
        moved += len(mark) - len(found[0])
        shifts.append((last + moved, moved))
    return "".join([*parts, sql[last:]]), shifts


def _unshifted(offset: int, shifts: Sequence[tuple[int, int]]) -> int:
    moved = 0
    for begin, amount in shifts:
        if offset >= begin:
            moved = amount
    return offset - moved


@lru_cache(maxsize=512)
def parse(sql: str) -> tuple[ParsedStatement, ...]:
    """The statements of a text. Raises `SqlSyntaxError` or `UnsupportedError`."""
    if not isinstance(sql, str):
        raise SqlSyntaxError(f"a statement is text, not {sql!r}")
    numbered, shifts = _numbered(sql)
    return tuple(_statement(piece, begins, sql, shifts) for piece, begins in _pieces(numbered))


def is_whole(sql: str) -> bool:
    """Whether a text ends with a semicolon that ends a statement, not one of a string, name or comment."""
    try:
        tokens = sqlglot.tokenize(sql, dialect=DIALECT)
    except TokenError:
        return False
    return bool(tokens) and tokens[-1].token_type == TokenType.SEMICOLON


def parse_one(sql: str) -> ParsedStatement:
    """The one statement of a text. Raises `SqlSyntaxError` or `UnsupportedError`."""
    found = parse(sql)
    if len(found) != 1:
        what = "there is no statement" if not found else "there is more than one statement"
        raise SqlSyntaxError(what, hint="give one at a time" if found else None)
    return found[0]


def parse_expression(sql: str) -> exp.Expr:
    """An expression that is kept in the catalog."""
    tree = _with_fields(sqlglot.parse_one(f"SELECT {sql}", dialect=DIALECT))
    assert isinstance(tree, exp.Select)
    found: exp.Expr = tree.expressions[0]
    return found


def _pieces(sql: str) -> Iterator[tuple[str, int]]:
    """The statements of a text and where they begin, split at semicolons outside strings and comments."""
    try:
        tokens = sqlglot.tokenize(sql, dialect=DIALECT)
    except TokenError as error:
        raise SqlSyntaxError(f"the statement cannot be read: {_short(str(error))}",
                             position=_open_quote(sql), hint="a quote may not be closed") from error
    begin: int | None = None
    end = 0
    before = None
    for token in tokens:
        if before is not None and before.token_type == TokenType.NUMBER:
            _check_number(before, token, sql)
        before = token
        if token.token_type == TokenType.SEMICOLON:
            if begin is not None:
                yield sql[begin:end], begin
            begin = None
            continue
        begin = token.start if begin is None else begin
        end = token.end + 1
    if before is not None and before.token_type == TokenType.NUMBER:
        _check_number(before, None, sql)
    if begin is not None:
        yield sql[begin:end], begin


def _check_number(token: Token, following: Token | None, sql: str) -> None:
    """Raise `SqlSyntaxError` for a number whose exponent is missing, or that a letter follows at once."""
    end = following.start if following is not None else len(sql)
    behind = sql[token.end + 1 : end] == "" and following is not None and _WORD.match(sql, following.start) is not None
    if behind or not _NUMBER.fullmatch(token.text):
        shown = sql[token.start : following.end + 1 if behind and following is not None else token.end + 1]
        raise SqlSyntaxError(f'trailing junk after numeric literal at or near "{shown}"', position=token.start + 1)


def _open_quote(sql: str) -> int | None:
    return next((sql.rindex(quote) + 1 for quote in "'\"" if sql.count(quote) % 2), None)


def _statement(sql: str, begins: int, text: str, shifts: Sequence[tuple[int, int]]) -> ParsedStatement:
    """The statement that stands at `begins` in a text whose parameters were numbered."""
    written = text[_unshifted(begins, shifts) : _unshifted(begins + len(sql), shifts)]
    for kind, pattern in _CONTROL:
        if matched := pattern.match(sql):
            if kind == "call":
                tree = _parsed(f"SELECT {sql[matched.start(1):]}", begins, shifts)
                return ParsedStatement(kind, written, begins, tree, [matched[1].lower()], shifts)
            names = [identifier_text(each) for each in matched.groups() if each]
            return ParsedStatement(kind, written, begins, None, names, shifts)
    if explained := _EXPLAIN.match(sql):
        found = ParsedStatement("explain", written, begins, None, shifts=shifts)
        found.inner = _statement(sql[explained.end() :], begins + explained.end(), text, shifts)
        found.options = _explain_options(explained["options"], _unshifted(begins, shifts) + 1)
        found.options["analyze"] = found.options.get("analyze", False) or explained["analyze"] is not None
        return found
    if (defining := definitions.read(sql)) is not None:
        found = ParsedStatement("define", written, begins, None, shifts=shifts)
        found.defining = defining
        return found
    if (command := _command(sql, begins, text, shifts, written)) is not None:
        return command
    tree = _parsed(sql, begins, shifts)
    if _INTO.search(sql):
        tree = definitions.query_table(tree)
    kinds: dict[type[exp.Expr], str] = {
        exp.Insert: "insert", exp.Update: "update", exp.Delete: "delete", exp.Create: "create", exp.Drop: "drop",
        exp.Alter: "alter", exp.TruncateTable: "truncate", exp.Merge: "merge",
    }  # fmt: skip
    found_kind = kinds.get(type(tree))
    if found_kind is None:
        if not isinstance(tree, exp.Query | exp.Values):
            word = sql.split(None, 1)[0].upper()
            if word in _INSTEAD or not isinstance(tree, exp.Condition | exp.Alias | exp.Identifier | exp.Tuple):
                what = f"this form of {word}" if word in _FORMS else word
                raise UnsupportedError(f"{what} is not supported", position=_unshifted(begins, shifts) + 1,
                                       hint=_INSTEAD.get(word))  # fmt: skip
            raise SqlSyntaxError(f"{sql.split(None, 1)[0]!r} begins no statement",
                                 position=_unshifted(begins, shifts) + 1)
        found_kind = "select"
    held = tree.args.get("with_")
    if held is not None and any(isinstance(each.this, exp.DML) for each in held.expressions):
        found_kind = "chain"
    for node in tree.find_all(exp.Subquery, exp.Paren):
        if isinstance(node.this, exp.Table) and not node.this.args.get("joins"):
            raise SqlSyntaxError(f"{node.sql(DIALECT)} is neither a query nor a join",
                                 hint="name a table without parentheses")  # fmt: skip
    return ParsedStatement(found_kind, written, begins, tree, shifts=shifts)


def _command(
    sql: str, begins: int, text: str, shifts: Sequence[tuple[int, int]], written: str
) -> ParsedStatement | None:
    """The statement, if it is a command of the session."""
    try:
        command = commands.read_command(sql)
    except SqlError as error:
        if error.position is not None:
            error.position = _unshifted(begins + error.position - 1, shifts) + 1
        raise
    if command is None:
        return None
    tree = None
    if command.values is not None:
        begin, end = command.values
        tree = _parsed(f"SELECT {sql[begin:end]}", begins, shifts)
    found = ParsedStatement(command.kind, written, begins, tree, command.names, shifts)
    found.options = command.details
    if command.inner is not None:
        begin, end = command.inner
        inner = _statement(sql[begin:end], begins + begin, text, shifts)
        if command.kind == "prepare":  # whose parameters are not those of the command
            found.options["statement"] = inner
        else:
            found.inner = inner
    return found


def _explain_options(options: str | None, position: int) -> dict[str, Any]:
    """The options of EXPLAIN. Raises `SqlSyntaxError` and `UnsupportedError`."""
    found: dict[str, Any] = {}
    for option in options.split(",") if options else ():
        name, _, value = option.strip().lower().partition(" ")
        value = value.strip()
        if name == "format":
            if value not in ("text", "json"):
                raise UnsupportedError(f"EXPLAIN (FORMAT {value.upper()}) is not supported", position=position,
                                       hint="use FORMAT TEXT or JSON")  # fmt: skip
            found[name] = value
        elif name not in _EXPLAIN_FLAGS:
            raise SqlSyntaxError(f"EXPLAIN has no option {name.upper()}", position=position)
        elif value not in (*_TRUE, *_FALSE):
            raise SqlSyntaxError(f"EXPLAIN's {name.upper()} is true or false, not {value}", position=position)
        else:
            found[name] = value in _TRUE
    return found


def _parsed(sql: str, begins: int, shifts: Sequence[tuple[int, int]]) -> exp.Expr:
    sql, notes = definitions.masked(sql)
    tree = _with_fields(_tree(sql, begins, shifts))
    if notes:
        definitions.annotate(tree, notes)
    return tree


def _with_fields(tree: exp.Expr) -> exp.Expr:
    """A tree in which `f(a -> 'b')` takes a field of JSON: the parser takes it for a function without a name."""
    for node in list(tree.find_all(exp.Lambda)):
        if len(node.expressions) != 1:
            continue
        chain = first = node.this.copy()
        while isinstance(first, exp.JSONExtract | exp.JSONExtractScalar | exp.JSONBExtract | exp.JSONBExtractScalar):
            first = first.this
        field = exp.JSONExtract(this=exp.column(node.expressions[0].copy()), expression=first.copy())
        if first is chain:
            chain = field
        else:
            first.replace(field)
        node.replace(chain)
    return tree


def _tree(sql: str, begins: int, shifts: Sequence[tuple[int, int]]) -> exp.Expr:
    try:
        if several := _DROP.match(sql):  # of which it reads several only for tables
            table = "TABLE".ljust(len(several[1]))
            tree = sqlglot.parse_one(sql[: several.start(1)] + table + sql[several.end(1) :], dialect=DIALECT)
            tree.set("kind", several[1].upper())
            return tree
        tree = sqlglot.parse_one(sql, dialect=DIALECT)
        if isinstance(tree, exp.Command) and _ADD_CHECK.search(sql):  # which it reads only with a name
            tree = sqlglot.parse_one(_ADD_CHECK.sub(r'\1 CONSTRAINT "" CHECK', sql), dialect=DIALECT)
        if isinstance(tree, exp.Command) and (found := _RENAME.search(sql)):  # which it does not read at all
            column = "COLUMN".ljust(len(found[1]))  # so that all stays where it is
            tree = sqlglot.parse_one(sql[: found.start(1)] + column + sql[found.end(1) :], dialect=DIALECT)
            for node in tree.find_all(exp.RenameColumn):
                node.meta[CONSTRAINT] = True
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        mark = first.get("highlight") or ""
        position = _offset(sql, first.get("line") or 1, first.get("col") or 1) - len(mark)
        position = _unshifted(begins + max(position, 0), shifts) + 1
        what = _short(str(first.get("description") or error))
        raise SqlSyntaxError(f"syntax error at or near {mark!r}: {what}", position=position) from error
    except RecursionError as error:
        raise SqlError("the statement is nested too deeply", sqlstate="54001") from error
    return tree


def _short(text: str) -> str:
    text = re.sub(r"^Required keyword: .*", "something is missing", text)
    return re.sub(r" but got <Token.*", "", text.splitlines()[0] if text else text)


def _offset(sql: str, line: int, column: int) -> int:
    """The character, from 1, at a line and column."""
    lines = sql.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + column


def position_of(node: exp.Expr, statement: ParsedStatement) -> int | None:
    """Where a node stands in the text, from 1."""
    for each in (node, *node.find_all(exp.Identifier)):
        if "start" in each.meta:
            return statement.position(int(each.meta["start"]))
    return None


def identifier_text(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text.lower()


def name_of(node: exp.Expr | None) -> str:
    """An identifier as PostgreSQL takes it: in small letters, unless it is quoted."""
    if node is None:
        return ""
    if isinstance(node, exp.Identifier):
        return str(node.this) if node.args.get("quoted") else str(node.this).lower()
    this = node.args.get("this")
    return name_of(this) if isinstance(this, exp.Expr) else str(this).lower()


class NotConstant(Exception):
    """An expression whose value depends on more than its own text."""


def constant(node: exp.Expr) -> Any:
    """The Python value of a literal. Raises `NotConstant`, and `SqlError` for a literal that cannot be read."""
    if isinstance(node, exp.Literal):
        if node.is_string:
            return node.this
        return int(node.this) if node.this.isdigit() else Decimal(node.this)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Neg):
        value = constant(node.this)
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            return -value
        raise NotConstant
    if isinstance(node, exp.Paren):
        return constant(node.this)
    if isinstance(node, exp.HexString):
        return bytes.fromhex(node.this)
    if isinstance(node, exp.Cast):
        value = constant(node.this)
        kinds = [each.this for each in (node.to, *node.to.expressions) if isinstance(each, exp.DataType)]
        if kinds[-1] == exp.DType.USERDEFINED and isinstance(value, str):
            return value  # a label of an enum
        try:
            type = from_sql(node.to)
        except UnsupportedError:
            raise NotConstant from None
        if value is None:
            return None
        if type.length:
            raise NotConstant  # a cast cuts what is too long, which a column refuses
        try:
            stored: Any = type.store(value)
        except TypeMismatchError:
            raise NotConstant from None  # only a query converts numbers to text, and the like
        if type.kind in TIMESTAMPS:
            return np.datetime64(stored, "ns" if type.kind == Kind.TIMESTAMP_NS else "us")
        if type.kind in (Kind.INT64, Kind.DECIMAL, Kind.NUMERIC, Kind.DOUBLE, Kind.BOOLEAN, Kind.UTF8, Kind.BYTES):
            return type.load(stored)
        if type.kind == Kind.DATE and DATES[0] <= stored <= DATES[1]:
            return type.load(stored)
        return type.text(stored) if type.kind != Kind.REAL else stored
    if isinstance(node, exp.Array):
        return [constant(each) for each in node.expressions]
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        unit = node.args.get("unit")
        fields, digits = spans.type_fields("" if unit is None else unit.name)
        return INTERVAL.text(INTERVAL.store(spans.interval(node.this.name, fields, digits)))
    raise NotConstant


def literal(value: Any) -> exp.Expr:
    """A value as a node of a statement. Raises `SqlError` for what SQL has no literal for."""
    if isinstance(value, np.datetime64):
        return exp.cast(exp.Literal.string(str(value).replace("T", " ")), "TIMESTAMP", dialect=DIALECT)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, int):
        return exp.Literal.number(value) if value >= 0 else exp.Neg(this=exp.Literal.number(-value))
    if isinstance(value, float):
        return exp.cast(exp.Literal.string(repr(value)), "DOUBLE PRECISION", dialect=DIALECT)
    if isinstance(value, Decimal):
        if not value.is_finite():
            return exp.cast(exp.Literal.string(str(value)), "DOUBLE PRECISION", dialect=DIALECT)
        text = exp.Literal.number(f"{abs(value):f}")
        return exp.Neg(this=text) if value < 0 else text
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return exp.HexString(this=bytes(value).hex())
    if isinstance(value, datetime):
        kind = "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
        return exp.cast(exp.Literal.string(value.isoformat(" ")), kind, dialect=DIALECT)
    if isinstance(value, date):
        return exp.cast(exp.Literal.string(value.isoformat()), "DATE", dialect=DIALECT)
    if isinstance(value, UUID | time):
        return exp.cast(exp.Literal.string(str(value)), "UUID" if isinstance(value, UUID) else "TIME", dialect=DIALECT)
    if isinstance(value, timedelta):
        return exp.cast(exp.Literal.string(INTERVAL.text(INTERVAL.store(value))), "INTERVAL", dialect=DIALECT)
    if isinstance(value, dict):
        return exp.cast(exp.Literal.string(str(JSONB.store(value))), "JSONB", dialect=DIALECT)
    if isinstance(value, list | tuple | set | frozenset):
        return exp.Array(expressions=[literal(each) for each in value])
    raise SqlError(f"a parameter cannot be a {type(value).__name__}: {value!r}", sqlstate="42804",
                   hint="use None, bool, int, float, Decimal, str, bytes, UUID, date, time, datetime, timedelta, "
                        "dict, or a list of them")
