"""What Parse and Bind keep: statements with the types of their parameters, and portals with their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ontolake.errors import OntolakeError
from ontolake.server.pg.messages import BindMessage, check_formats
from ontolake.server.pg.values import decode_parameter, result_columns, row_description
from ontolake.sql import SqlConnection
from ontolake.sql.descriptions import ColumnDescription, StatementDescription
from ontolake.sql.errors import DuplicateNameError, SqlError, UnknownNameError, UnsupportedError
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import ParsedStatement

ROWS = frozenset({"select", "explain", "show", "fetch", "call", "execute"})
"""Statements that give rows."""
_RETURNING = frozenset({"insert", "update", "delete", "merge"})


class WireStatement:
    """A statement that a client has parsed. `statement` is None for an empty one."""

    def __init__(self, statement: ParsedStatement | None, sql: str, oids: Sequence[int]) -> None:
        self.statement = statement
        self.sql = sql
        self.oids = tuple(oids)
        """The types of parameters that the client has named; 0 for one that it has not."""
        self.is_allowed = False
        """Whether it is known to be allowed, whatever its parameters are."""
        self.writes = False
        """Whether it writes, if that is so."""
        self._description: StatementDescription | None = None
        self._row_description: tuple[object, Sequence[int], bytes] | None = None

    @property
    def kind(self) -> str:
        return "" if self.statement is None else self.statement.kind

    @property
    def gives_rows(self) -> bool | None:
        """Whether it gives rows; None if only its description tells."""
        if self.kind in ROWS:
            return self.kind not in ("call", "execute") or None
        if self.kind in _RETURNING or self.kind == "chain":
            tree = self.statement.tree if self.statement is not None else None
            return None if tree is not None and (tree.args.get("returning") or self.kind == "chain") else False
        return False

    @property
    def knows_types(self) -> bool:
        """Whether the types of all parameters are known."""
        count = 0 if self.statement is None else self.statement.parameter_count
        return self._description is not None or (len(self.oids) >= count and all(self.oids[:count]))

    def described(self, connection: SqlConnection) -> StatementDescription:
        """What it takes and gives. Raises `SqlError`."""
        if self._description is None:
            if self.statement is None:
                self._description = StatementDescription((), None)
            else:
                self._description = connection.describe(self.statement, self.oids)
        return self._description

    @property
    def columns(self) -> Sequence[ColumnDescription] | None:
        """The columns that the client was told of, if it was."""
        return None if self._description is None else self._description.columns

    @property
    def is_described(self) -> bool:
        return self._description is not None

    def parameter_types(self, connection: SqlConnection) -> Sequence[int]:
        """The types of all parameters; 0 for one that nothing tells."""
        if self._description is None and self.knows_types:
            return self.oids
        try:
            return self.described(connection).parameters
        except OntolakeError as error:  # what reads history cannot be described before its parameters are known
            if isinstance(error, SqlError) and not isinstance(error, UnsupportedError):
                raise
            count = 0 if self.statement is None else self.statement.parameter_count
            return (*self.oids, *[0] * (count - len(self.oids)))

    def row_description(self, result: Result, formats: Sequence[int]) -> bytes:
        """The RowDescription of a result, which is worked out once for answers of the same plan."""
        check_formats(formats)
        known = self._row_description
        if known is not None and known[0] is result.columns and known[1] == formats:
            return known[2]
        told = self.columns  # what rows are written as, too
        if told is None or len(told) != len(result.columns):
            told = result_columns(result)
        found = row_description(told, formats)
        self._row_description = (result.columns, formats, found)
        return found


class Portal:
    """A statement with its parameters, and how far its rows were read."""

    def __init__(self, statement: WireStatement, params: tuple[Any, ...], formats: Sequence[int]) -> None:
        self.statement = statement
        self.params = params
        self.formats = formats
        self.result: Result | None = None
        self.at = 0
        self.is_done = False


class Portals:
    """The statements and portals of a client, by name; the empty name is for the one that the next replaces."""

    def __init__(self) -> None:
        self.statements: dict[str, WireStatement] = {}
        self.portals: dict[str, Portal] = {}

    def keep(self, name: str, statement: WireStatement) -> None:
        """Raises `DuplicateNameError` (42P05)."""
        if name and name in self.statements:
            raise DuplicateNameError(f"prepared statement \"{name}\" already exists", sqlstate="42P05")
        self.statements[name] = statement

    def statement(self, name: str) -> WireStatement:
        """Raises `UnknownNameError` (26000)."""
        if name not in self.statements:
            what = f"prepared statement \"{name}\"" if name else "unnamed prepared statement"
            raise UnknownNameError(f"{what} does not exist", sqlstate="26000")
        return self.statements[name]

    def bind(self, message: BindMessage, connection: SqlConnection) -> None:
        """Open a portal. Raises `SqlError`."""
        statement = self.statement(message.statement)
        if message.portal and message.portal in self.portals:
            raise DuplicateNameError(f"portal \"{message.portal}\" already exists", sqlstate="42P03")
        self.portals[message.portal] = Portal(statement, parameters(statement, message, connection),
                                              message.result_formats)

    def portal(self, name: str) -> Portal:
        """Raises `UnknownNameError` (34000)."""
        if name not in self.portals:
            raise UnknownNameError(f"portal \"{name}\" does not exist", sqlstate="34000")
        return self.portals[name]

    def close(self, kind: str, name: str) -> None:
        """Forget a statement or a portal, if there is one of this name."""
        if kind == "P":
            self.portals.pop(name, None)
        elif (found := self.statements.pop(name, None)) is not None:
            self.portals = {each: portal for each, portal in self.portals.items() if portal.statement is not found}

    def end_transaction(self) -> None:
        """Portals live as long as their transaction."""
        self.portals.clear()


def parameters(statement: WireStatement, message: BindMessage, connection: SqlConnection) -> tuple[Any, ...]:
    """The values of parameters. Raises `SqlError`."""
    values, formats = message.values, message.formats
    count = 0 if statement.statement is None else statement.statement.parameter_count
    wanted = max(count, len(statement.oids))
    if len(values) != wanted:
        raise SqlError(f"bind message supplies {len(values)} parameters, but prepared statement "
                       f"\"{message.statement}\" requires {wanted}", sqlstate="08P01")
    if len(formats) > 1 and len(formats) != len(values):
        raise SqlError(f"bind message has {len(formats)} parameter formats but {len(values)} parameters",
                       sqlstate="08P01")
    if not values:
        return ()
    check_formats(formats)
    types = statement.parameter_types(connection)
    if len(formats) <= 1:
        format = formats[0] if formats else 0
        return tuple([decode_parameter(oid, format, value)
                      for oid, value in zip(types, values, strict=False)])[:count]  # fmt: skip
    return tuple([decode_parameter(oid, format, value)
                  for oid, format, value in zip(types, formats, values, strict=False)])[:count]  # fmt: skip
