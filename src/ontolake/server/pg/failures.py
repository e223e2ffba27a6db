"""Errors as PostgreSQL reports them: with a SQLSTATE, and the place, hint and names that are known."""

from __future__ import annotations

from typing import Any

import apsw

from ontolake import errors
from ontolake.history import errors as history_errors
from ontolake.server.pg.messages import report
from ontolake.server.problems import RefusedError
from ontolake.server.rights import ForbiddenError
from ontolake.sql.errors import SqlError

_STATES: tuple[tuple[type[BaseException], str], ...] = (
    (ForbiddenError, "42501"),
    (history_errors.ProtectedBranchError, "42501"),
    (history_errors.MergeConflictError, "40001"),
    (errors.MissingExtra, "0A000"),
    (errors.NotFound, "42704"),
    (errors.AlreadyExists, "42710"),
    (errors.Contended, "55006"),
    (errors.Fenced, "57P01"),
    (errors.Conflict, "40001"),
    (errors.Corruption, "XX001"),
    (errors.Transient, "57P03"),
    (errors.SafetyRefusal, "42501"),
    (errors.Invalid, "22023"),
    (errors.StorageError, "58030"),
    (apsw.Error, "58030"),
    (RecursionError, "54001"),
    (MemoryError, "53200"),
)  # fmt: skip
"""What errors of ours are that SQL has no word for; the first class that fits."""
_REFUSALS = {403: "25006", 404: "3D000", 429: "53300"}


def sqlstate_of(error: BaseException) -> str:
    """The SQLSTATE of an error."""
    if isinstance(error, SqlError):
        return error.sqlstate
    if isinstance(error, RefusedError):
        return _REFUSALS.get(error.status, "58000")
    return next((state for kind, state in _STATES if isinstance(error, kind)), "XX000")


def is_expected(error: BaseException) -> bool:
    """Whether an error is one that a client can cause, not a fault of ours."""
    return isinstance(error, errors.OntolakeError | RecursionError | MemoryError)


def error_response(error: BaseException, *, fatal: bool = False) -> bytes:
    """The ErrorResponse of an error; a fatal one ends the connection."""
    severity = "FATAL" if fatal else "ERROR"
    fields = {"S": severity, "V": severity, "C": sqlstate_of(error)}
    if isinstance(error, errors.OntolakeError):
        fields["M"] = error.message
        if error.hint:
            fields["H"] = error.hint
    else:
        fields["M"] = f"internal error: {error}" if is_expected(error) else "internal error"
    fields |= _known_fields(error)
    return report(b"E", fields)


def _known_fields(error: Any) -> dict[str, str]:
    """The place in the statement, and the names that a broken rule has."""
    found = {}
    if (position := getattr(error, "position", None)) is not None:
        found["P"] = str(position)
    if isinstance(context := getattr(error, "context", None), str):
        found["W"] = context
    if isinstance(table := getattr(error, "table", None), str):
        *schema, name = table.split(".")
        found["t"] = name
        if schema:
            found["s"] = schema[-1]
    if isinstance(constraint := getattr(error, "constraint", None), str):
        found["n"] = constraint
    return found


def fatal(sqlstate: str, message: str, hint: str | None = None) -> bytes:
    """An ErrorResponse that ends the connection."""
    return error_response(SqlError(message, sqlstate=sqlstate, hint=hint), fatal=True)


def notice(message: str, *, severity: str = "NOTICE", sqlstate: str = "00000") -> bytes:
    """A NoticeResponse."""
    return report(b"N", {"S": severity, "V": severity, "C": sqlstate, "M": message})
