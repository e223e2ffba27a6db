"""What can go wrong with SQL, each with the SQLSTATE that PostgreSQL gives it.

`position` is the character of the statement, from 1, at which something is wrong, where that is known.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

from ontolake.errors import (
    AlreadyExists,
    Conflict,
    ConflictFailure,
    ExecutionFailure,
    Invalid,
    LayoutError,
    NotFound,
    UsageFailure,
)

LISTING = "\\d in onto sql lists the tables; in Python Database.catalog() has them"
"""What to do where PostgreSQL has tables of tables."""


class SqlError(ExecutionFailure):
    """The root of all errors of SQL."""

    default_state: ClassVar[str] = "XX000"

    def __init__(
        self, message: str, *, sqlstate: str | None = None, position: int | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.sqlstate = sqlstate or self.default_state
        self.position = position
        self.context: str | None = None
        """Where in data that is read something is wrong, as PostgreSQL says it: `COPY t, line 3, column a`."""


class SqlSyntaxError(UsageFailure, SqlError, ValueError):
    """The statement cannot be read."""

    default_state = "42601"


class UnsupportedError(SqlError):
    """The statement can be read, but nothing here can do it."""

    default_state = "0A000"


class UnknownNameError(SqlError, NotFound):
    """A database, schema, table, column or index is not there."""

    default_state = "42P01"


class DuplicateNameError(SqlError, AlreadyExists):
    """A database, schema, table, column or index of this name is there already."""

    default_state = "42P07"


class DefinitionError(SqlError, ValueError):
    """What is to be defined contradicts itself or what is there."""

    default_state = "42P16"


class TypeMismatchError(SqlError, TypeError):
    """A value or expression is of another type than the place that it is put in."""

    default_state = "42804"


class DataError(SqlError, ValueError):
    """A value does not fit: out of range, too long, not readable as its type, divided by zero."""

    default_state = "22000"


class ConstraintViolation(SqlError):
    """A row breaks a rule of its table. `table` and `constraint` name both."""

    default_state = "23000"

    def __init__(
        self, message: str, *, table: str, constraint: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.table = table
        self.constraint = constraint


class NotNullError(ConstraintViolation):
    default_state = "23502"


class UniqueError(ConflictFailure, ConstraintViolation):
    """A row of this key is there already. `key` is how the key of the row, or of its index entry, begins."""

    default_state = "23505"
    key: bytes = b""


class CheckError(ConstraintViolation):
    default_state = "23514"


class ForeignKeyError(ConstraintViolation):
    """A row refers to one that is not there, or is referred to by another."""

    default_state = "23503"


class SerializationError(Conflict, SqlError):
    """Somebody else has committed in between: roll back, read again, try again."""

    default_state = "40001"


class TransactionError(SqlError, Invalid):
    """The statement does not fit the state of the transaction."""

    default_state = "25000"


class SqlLayoutError(LayoutError, SqlError):
    """The database does not hold SQL tables, or in a layout that this version does not know."""

    default_state = "58P01"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint that names what was probably meant, or what there is."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name.lower(), [each.lower() for each in names], n=1, cutoff=0.5)
    if close:
        meant = next(each for each in names if each.lower() == close[0])
        return f"did you mean {meant}?"
    return f"there are {', '.join(names[:10])}" if names else None
