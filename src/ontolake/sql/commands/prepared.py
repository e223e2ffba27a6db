"""Statements that a session has prepared under names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlglot import exp
from sqlglot.errors import ParseError

from ontolake.sql.errors import DuplicateNameError, SqlSyntaxError, UnknownNameError, UnsupportedError, nearest
from ontolake.sql.syntax.statements import DIALECT, ParsedStatement
from ontolake.sql.types import Type, from_sql

_KINDS = ("select", "insert", "update", "delete", "merge")


class Prepared(NamedTuple):
    """A statement and the types that its first parameters were declared with."""

    statement: ParsedStatement
    types: list[Type | None]

    def bound(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The values as the declared types. Raises `SqlError` for a wrong number of them or one that does not fit."""
        if len(values) != (count := max(self.statement.parameter_count, len(self.types))):
            raise SqlSyntaxError(f"the prepared statement has {count} parameters, and {len(values)} values were given")
        types = [*self.types, *[None] * (count - len(self.types))]
        fitted = [value if type is None or value is None else type.load(type.store(value))
                  for value, type in zip(values, types, strict=True)]  # fmt: skip
        return tuple(fitted[: self.statement.parameter_count])


class PreparedStatements:
    """The prepared statements of a session, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Prepared] = {}

    def prepare(self, name: str, statement: ParsedStatement, types: Sequence[str]) -> None:
        """Keep a statement. Raises `DuplicateNameError`, and `SqlSyntaxError` for a kind that cannot be prepared."""
        if statement.kind not in _KINDS:
            raise SqlSyntaxError(f"{statement.kind.upper()} cannot be prepared",
                                 hint="prepare SELECT, INSERT, UPDATE, DELETE, MERGE or VALUES")
        if name in self._known:
            raise DuplicateNameError(f"the prepared statement {name} exists already", sqlstate="42P05",
                                     hint="DEALLOCATE it, or use another name")
        self._known[name] = Prepared(statement, [_type(each) for each in types])

    def find(self, name: str) -> Prepared:
        """The statement of this name. Raises `UnknownNameError`."""
        if name not in self._known:
            raise UnknownNameError(f"there is no prepared statement {name}", sqlstate="26000",
                                   hint=nearest(name, self._known))
        return self._known[name]

    def deallocate(self, name: str | None) -> None:
        """Forget a statement, or all. Raises `UnknownNameError`."""
        if name is None:
            self._known.clear()
        else:
            self.find(name)
            del self._known[name]


def _type(text: str) -> Type | None:
    """The type of a parameter; None for one that is left open."""
    if text.lower() == "unknown":
        return None
    try:
        return from_sql(exp.DataType.build(text, dialect=DIALECT))
    except (ParseError, ValueError) as error:
        raise UnsupportedError(f"a parameter cannot be of the type {text}") from error
