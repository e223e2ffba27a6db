"""What a statement takes and gives, worked out without running it: the types of its parameters and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ontolake.sql.errors import UnsupportedError
from ontolake.sql.syntax.statements import ParsedStatement, parse_one

if TYPE_CHECKING:
    from ontolake.sql.database import Database


class ColumnDescription(NamedTuple):
    """A column of an answer: its name, and its type as PostgreSQL numbers it."""

    name: str
    oid: int
    size: int
    modifier: int


class StatementDescription(NamedTuple):
    """What a statement takes and gives. `columns` is None for one that gives no rows."""

    parameters: tuple[int, ...]
    """The oids of the types of parameters."""
    columns: tuple[ColumnDescription, ...] | None


def describe(
    self: Database, statement: str | ParsedStatement, parameter_oids: Sequence[int] = ()
) -> StatementDescription:
    """What a statement takes and gives, without running it. `parameter_oids` are types of parameters that are known
    already, 0 for one that is not. Raises `SqlError`."""
    found = parse_one(statement) if isinstance(statement, str) else statement
    raise UnsupportedError(f"{found.kind.upper()} cannot be described yet")
