"""Statements and clauses of definitions that the parser does not read: sequences, identity columns, comments, …

`read` takes whole statements; `masked` blanks clauses within others, and `annotate` puts them on the parsed tree;
`query_table` makes SELECT … INTO a CREATE TABLE.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from ontolake.sql.errors import SqlSyntaxError, UnsupportedError
from ontolake.sql.syntax.dialect import DIALECT

OPTIONS, OVERRIDING, SET_COLUMNS, ON_COMMIT = "identity options", "overriding", "set columns", "on commit"
"""What `annotate` puts on a tree: options of identity columns, OVERRIDING, the columns of SET NULL (…), and DROP of
ON COMMIT."""

_MASKED = re.compile(r"\b(?:IDENTITY|OVERRIDING|DEFERRABLE|ON\s+COMMIT|LOCAL|SET\s+(?:NULL|DEFAULT)\s*\()",
                     re.IGNORECASE)  # fmt: skip
_FIRST = re.compile(r"\s*(CREATE\s+(?:TEMP\w*\s+|UNLOGGED\s+)?SEQUENCE|ALTER\s+SEQUENCE|COMMENT\s+ON|SET\s+CONSTRAINTS"
                    r"|(?:CREATE|ALTER|DROP)\s+TYPE"
                    r"|ALTER\s+TABLE)\b", re.IGNORECASE)
_ALTERED = re.compile(
    r"\bSET\s+SCHEMA\b|\bSET\s+GENERATED\b|\bADD\s+GENERATED\b|\bDROP\s+IDENTITY\b|\bDROP\s+EXPRESSION\b"
    r"|\bALTER\s+(?:COLUMN\s+)?(?:\w+|\"[^\"]+\")\s+(?:SET\s+(?:INCREMENT|START|MINVALUE|MAXVALUE|NO|CACHE|CYCLE)"
    r"|RESTART)\b|\bVALIDATE\s+CONSTRAINT\b|\bALTER\s+CONSTRAINT\b", re.IGNORECASE)  # fmt: skip


@dataclass
class Defining:
    """A statement that was read here. `details` are by kind."""

    kind: str
    name: list[str]
    exists: bool = False
    details: dict[str, Any] = field(default_factory=dict)


class Reader:
    """Reads the tokens of a definition one by one. Raises `SqlSyntaxError` where something else is expected."""

    def __init__(self, sql: str, tokens: Sequence[Token] | None = None) -> None:
        self.sql = sql
        self.tokens = tokens if tokens is not None else tokens_of(sql)
        self.at = 0

    def word(self, ahead: int = 0) -> str:
        """The next word in capitals; an empty text for strings and at the end."""
        if self.at + ahead >= len(self.tokens) or self.tokens[self.at + ahead].token_type == TokenType.STRING:
            return ""
        return self.tokens[self.at + ahead].text.upper()

    def take(self, *words: str) -> bool:
        """Go on behind these words, if they are the next. Two words may be one token."""
        at = self.at
        for word in words:
            if self.word() != word:
                if " ".join(words) == self.word():
                    self.at += 1
                    return True
                self.at = at
                return False
            self.at += 1
        return True

    def need(self, *words: str) -> None:
        if not self.take(*words):
            raise self.error()

    def error(self) -> SqlSyntaxError:
        if self.at >= len(self.tokens):
            return SqlSyntaxError("syntax error at the end of the statement", position=len(self.sql))
        token = self.tokens[self.at]
        return SqlSyntaxError(f"syntax error at or near {token.text!r}", position=token.start + 1)

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise self.error()

    def identifier(self) -> str:
        if self.at >= len(self.tokens) or not (self.tokens[self.at].text[:1].isalpha()
                                               or self.tokens[self.at].text[:1] == "_"
                                               or self.tokens[self.at].token_type == TokenType.IDENTIFIER):
            raise self.error()
        token = self.tokens[self.at]
        self.at += 1
        return str(token.text) if token.token_type == TokenType.IDENTIFIER else str(token.text).lower()

    def name(self) -> list[str]:
        """A name with what stands before its dots."""
        found = [self.identifier()]
        while self.take("."):
            found.append(self.identifier())
        return found

    def number(self) -> int:
        negative = self.take("-")
        if not negative:
            self.take("+")
        text = self.word()
        if not text.isdigit():
            raise self.error()
        self.at += 1
        return -int(text) if negative else int(text)

    def text(self) -> str | None:
        if self.take("NULL"):
            return None
        if self.at >= len(self.tokens) or self.tokens[self.at].token_type != TokenType.STRING:
            raise self.error()
        self.at += 1
        return str(self.tokens[self.at - 1].text)


def tokens_of(sql: str) -> list[Token]:
    """The tokens of a text. COMMENT and SET begin commands of which the tokenizer would take the rest for a string."""
    body = re.sub(r"^(\s*)(COMMENT|SET)\b", lambda found: found[1] + "_".ljust(len(found[2])), sql, flags=re.IGNORECASE)
    try:
        return list(sqlglot.tokenize(body, dialect=DIALECT))
    except TokenError as error:
        raise SqlSyntaxError("the statement cannot be read", hint="a quote may not be closed") from error


def sequence_options(reader: Reader) -> dict[str, Any]:
    """The options of a sequence, up to the end or a parenthesis. Raises `SqlSyntaxError` for one that comes twice."""
    found: dict[str, Any] = {}

    def put(name: str, value: Any) -> None:
        if name in found:
            raise SqlSyntaxError(f"the option {name.upper()} is given twice")
        found[name] = value

    while reader.word() not in ("", ")", ","):
        if reader.take("AS"):
            put("as", reader.identifier())
        elif reader.take("INCREMENT"):
            reader.take("BY")
            put("increment", reader.number())
        elif reader.take("NO", "MINVALUE"):
            put("minvalue", None)
        elif reader.take("NO", "MAXVALUE"):
            put("maxvalue", None)
        elif reader.take("NO", "CYCLE"):
            put("cycle", False)
        elif reader.take("MINVALUE"):
            put("minvalue", reader.number())
        elif reader.take("MAXVALUE"):
            put("maxvalue", reader.number())
        elif reader.take("START"):
            reader.take("WITH")
            put("start", reader.number())
        elif reader.take("RESTART"):
            reader.take("WITH")
            put("restart", reader.number() if reader.word().lstrip("+-").isdigit() or reader.word() == "-" else None)
        elif reader.take("CACHE"):
            put("cache", reader.number())
        elif reader.take("CYCLE"):
            put("cycle", True)
        elif reader.take("OWNED", "BY"):
            put("owned", None if reader.take("NONE") else reader.name())
        elif reader.take("SEQUENCE", "NAME"):
            put("name", reader.name())
        else:
            raise reader.error()
    return found


def read(sql: str) -> Defining | None:
    """A statement that is read here, or None."""
    first = _FIRST.match(sql)
    if first is None:
        return None
    word = " ".join(first[1].upper().split())
    if word == "ALTER TABLE" and not _ALTERED.search(sql):
        return None
    reader = Reader(sql)
    if word.endswith(" TYPE"):
        return _type(reader)
    if word.startswith("CREATE"):
        return _create_sequence(reader)
    if word == "ALTER SEQUENCE":
        return _alter_sequence(reader)
    if word == "COMMENT ON":
        return _comment(reader)
    if word == "SET CONSTRAINTS":
        return _set_constraints(reader)
    return _alter_table(reader)


def _create_sequence(reader: Reader) -> Defining:
    reader.need("CREATE")
    temporary = reader.take("TEMP") or reader.take("TEMPORARY")
    reader.take("UNLOGGED")
    reader.need("SEQUENCE")
    exists = reader.take("IF", "NOT", "EXISTS")
    found = Defining("create sequence", reader.name(), exists, {"temporary": temporary})
    found.details["options"] = sequence_options(reader)
    reader.end()
    return found


def _type(reader: Reader) -> Defining:
    """CREATE, ALTER and DROP TYPE."""
    verb = reader.identifier()
    reader.need("TYPE")
    if verb == "create":
        found = Defining("create type", reader.name())
        if not reader.take("AS") or not reader.take("ENUM"):
            raise UnsupportedError("types other than enums are not supported", hint="use CREATE TYPE … AS ENUM")
        reader.need("(")
        labels: list[str] = []
        while not reader.take(")"):
            if labels:
                reader.need(",")
            labels.append(_label(reader))
        found.details["labels"] = labels
    elif verb == "drop":
        exists = reader.take("IF", "EXISTS")
        names = [reader.name()]
        while reader.take(","):
            names.append(reader.name())
        found = Defining("drop type", names[0], exists, {"names": names, "cascade": reader.take("CASCADE")})
        reader.take("RESTRICT")
    else:
        found = Defining("alter type", reader.name())
        if reader.take("ADD", "VALUE"):
            found.exists = reader.take("IF", "NOT", "EXISTS")
            found.details["add"] = _label(reader)
            if reader.take("BEFORE"):
                found.details["before"] = _label(reader)
            elif reader.take("AFTER"):
                found.details["after"] = _label(reader)
        elif reader.take("RENAME", "VALUE"):
            old = _label(reader)
            reader.need("TO")
            found.details["relabel"] = (old, _label(reader))
        elif reader.take("RENAME", "TO"):
            found.details["rename"] = reader.identifier()
        else:
            raise UnsupportedError("ALTER TYPE adds and renames values, and renames the type",
                                   hint="make another type, and convert the columns with ALTER COLUMN … TYPE")
    reader.end()
    return found


def _label(reader: Reader) -> str:
    found = reader.text()
    if found is None:
        raise reader.error()
    return found


def _alter_sequence(reader: Reader) -> Defining:
    reader.need("ALTER")
    reader.need("SEQUENCE")
    exists = reader.take("IF", "EXISTS")
    found = Defining("alter sequence", reader.name(), exists)
    if reader.take("RENAME", "TO"):
        found.details["rename"] = reader.identifier()
    elif reader.take("SET", "SCHEMA"):
        found.details["schema"] = reader.identifier()
    elif reader.take("OWNER", "TO"):
        found.details["owner"] = reader.identifier()
    else:
        found.details["options"] = sequence_options(reader)
        if not found.details["options"]:
            raise reader.error()
    reader.end()
    return found


_COMMENTED = ("TABLE", "COLUMN", "INDEX", "SEQUENCE", "VIEW", "CONSTRAINT", "SCHEMA", "DATABASE", "TYPE")


def _comment(reader: Reader) -> Defining:
    reader.at += 1
    reader.need("ON")
    kind = reader.word()
    if kind not in _COMMENTED:
        raise reader.error()
    reader.at += 1
    found = Defining("comment", reader.name(), details={"kind": kind.lower()})
    if kind == "CONSTRAINT":
        reader.need("ON")
        found.details["table"] = reader.name()
    reader.need("IS")
    found.details["text"] = reader.text()
    reader.end()
    return found


def _set_constraints(reader: Reader) -> Defining:
    reader.at += 1
    reader.need("CONSTRAINTS")
    names: list[str] = []
    if not reader.take("ALL"):
        names.append(reader.name()[-1])
        while reader.take(","):
            names.append(reader.name()[-1])
    found = Defining("set constraints", names, details={"deferred": reader.take("DEFERRED")})
    if not found.details["deferred"]:
        reader.need("IMMEDIATE")
    reader.end()
    return found


def _alter_table(reader: Reader) -> Defining:
    """ALTER TABLE with actions that are read here, and those that are left to the parser as text."""
    reader.need("ALTER")
    reader.need("TABLE")
    exists = reader.take("IF", "EXISTS")
    reader.take("ONLY")
    found = Defining("alter table", reader.name(), exists, {"actions": []})
    while True:
        found.details["actions"].append(_action(reader))
        if not reader.take(","):
            break
    reader.end()
    return found


def _action(reader: Reader) -> dict[str, Any]:
    begin = reader.at
    if reader.take("SET", "SCHEMA"):
        return {"do": "set schema", "schema": reader.identifier()}
    if reader.take("VALIDATE", "CONSTRAINT"):
        return {"do": "validate", "name": reader.identifier()}
    if reader.take("ALTER", "CONSTRAINT"):
        return {"do": "alter constraint", "name": reader.identifier(), **_deferring(reader)}
    if reader.take("ALTER"):
        reader.take("COLUMN")
        column = reader.identifier()
        if reader.take("ADD", "GENERATED"):
            always = _always(reader)
            reader.need("AS")
            reader.need("IDENTITY")
            options = _parenthesised(reader)
            return {"do": "add identity", "column": column, "always": always, "options": options}
        if reader.take("DROP", "IDENTITY"):
            return {"do": "drop identity", "column": column, "exists": reader.take("IF", "EXISTS")}
        if reader.take("DROP", "EXPRESSION"):
            return {"do": "drop expression", "column": column, "exists": reader.take("IF", "EXISTS")}
        changes: dict[str, Any] = {"do": "set identity", "column": column, "options": {}}
        while reader.word() in ("SET", "RESTART"):
            if reader.take("SET", "GENERATED"):
                changes["always"] = _always(reader)
                continue
            if reader.word() == "SET":
                if reader.word(1) not in ("INCREMENT", "START", "MINVALUE", "MAXVALUE", "NO", "CACHE", "CYCLE"):
                    break
                reader.at += 1
            changes["options"] |= _one_option(reader)
        if reader.word() in ("", ",") and (len(changes) > 3 or changes["options"]):
            return changes
    reader.at = begin
    depth = 0
    while reader.at < len(reader.tokens) and (depth or reader.word() != ","):
        depth += (reader.word() == "(") - (reader.word() == ")")
        reader.at += 1
    if begin == reader.at:
        raise reader.error()
    return {"do": "parse", "sql": reader.sql[reader.tokens[begin].start : reader.tokens[reader.at - 1].end + 1]}


def _one_option(reader: Reader) -> dict[str, Any]:
    """One option of a sequence: those behind a second SET are others."""
    end = reader.at + 1
    while end < len(reader.tokens) and reader.tokens[end].text.upper() not in ("SET", ",", "RESTART"):
        end += 1
    part = Reader(reader.sql, reader.tokens[reader.at : end])
    found = sequence_options(part)
    reader.at = end
    return found


def _always(reader: Reader) -> bool:
    if reader.take("ALWAYS"):
        return True
    reader.need("BY")
    reader.need("DEFAULT")
    return False


def _parenthesised(reader: Reader) -> dict[str, Any]:
    if not reader.take("("):
        return {}
    found = sequence_options(reader)
    reader.need(")")
    return found


def _deferring(reader: Reader) -> dict[str, bool]:
    found: dict[str, bool] = {}
    while reader.word() not in ("", ","):
        if reader.take("NOT", "DEFERRABLE"):
            found |= {"deferrable": False, "deferred": False}
        elif reader.take("DEFERRABLE"):
            found["deferrable"] = True
        elif reader.take("INITIALLY", "DEFERRED"):
            found |= {"deferrable": True, "deferred": True}
        elif reader.take("INITIALLY", "IMMEDIATE"):
            found["deferred"] = False
        else:
            raise reader.error()
    return found


# clauses within other statements


def masked(sql: str) -> tuple[str, list[tuple[str, Any]]]:
    """A statement with blanks where the parser would stumble, and what stood there, in its order."""
    if not _MASKED.search(sql):
        return sql, []
    reader = Reader(sql)
    notes: list[tuple[str, Any]] = []
    spans: list[tuple[int, int]] = []

    def blank(begin: int) -> None:
        spans.append((reader.tokens[begin].start, reader.tokens[reader.at - 1].end + 1))

    while reader.at < len(reader.tokens):
        begin = reader.at
        if reader.take("AS", "IDENTITY"):
            begin = reader.at
            options = _parenthesised(reader)
            notes.append((OPTIONS, options))
            if reader.at > begin:
                blank(begin)
        elif reader.take("OVERRIDING"):
            if reader.word() not in ("SYSTEM", "USER"):
                continue
            notes.append((OVERRIDING, reader.word()))
            reader.at += 1
            reader.need("VALUE")
            blank(begin)
        elif reader.take("NOT", "DEFERRABLE"):
            blank(begin)
        elif reader.take("ON", "COMMIT", "DROP"):
            notes.append((ON_COMMIT, "drop"))
            blank(begin)
        elif begin == 1 and reader.word(1) in ("TEMP", "TEMPORARY") and reader.take("LOCAL"):
            blank(begin)
        elif (reader.take("SET", "NULL") or reader.take("SET", "DEFAULT")) and reader.word() == "(":
            begin = reader.at
            reader.at += 1
            names = [reader.identifier()]
            while reader.take(","):
                names.append(reader.identifier())
            reader.need(")")
            notes.append((SET_COLUMNS, names))
            blank(begin)
        elif reader.at == begin:
            reader.at += 1
    for start, end in spans:
        sql = sql[:start] + " " * (end - start) + sql[end:]
    return sql, notes


def annotate(tree: exp.Expr, notes: Sequence[tuple[str, Any]]) -> None:
    """Put what `masked` has found on the nodes that it belongs to."""
    options = [value for kind, value in notes if kind == OPTIONS]
    for node, value in zip((each for each in tree.walk(bfs=False)
                            if isinstance(each, exp.GeneratedAsIdentityColumnConstraint)), options, strict=False):
        node.meta[OPTIONS] = value
    columns = [value for kind, value in notes if kind == SET_COLUMNS]
    setting = [node for node in tree.walk(bfs=False) if isinstance(node, exp.Reference | exp.ForeignKey)
               and any("SET" in str(each) for each in node.args.get("options") or ())]  # fmt: skip
    for reference, value in zip(setting, columns, strict=False):
        reference.meta[SET_COLUMNS] = value
    for kind, value in notes:
        if kind == OVERRIDING:
            tree.meta[OVERRIDING] = value
        elif kind == ON_COMMIT and isinstance(tree, exp.Create):
            dropped = exp.OnCommitProperty()
            dropped.meta[ON_COMMIT] = value
            properties = tree.args.get("properties") or exp.Properties(expressions=[])
            properties.append("expressions", dropped)
            tree.set("properties", properties)


def query_table(tree: exp.Expr) -> exp.Expr:
    """SELECT … INTO as the CREATE TABLE … AS that it means; other statements as they are.

    Raises `SqlSyntaxError` if INTO stands in a query within the statement.
    """
    first = tree
    while isinstance(first, exp.SetOperation):
        first = first.this
    into = first.args.get("into") if isinstance(first, exp.Select) else None
    if into is not None:
        first.set("into", None)
    if tree.find(exp.Into) is not None:
        raise SqlSyntaxError("INTO makes a table only in the first SELECT of a statement of its own")
    if into is None:
        return tree
    kept: list[exp.Expr] = [exp.TemporaryProperty()] if into.args.get("temporary") else []
    if into.args.get("unlogged"):
        kept.append(exp.UnloggedProperty())
    properties = exp.Properties(expressions=kept) if kept else None
    return exp.Create(this=into.this, kind="TABLE", expression=tree, properties=properties)
