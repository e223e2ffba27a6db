"""Errors as problem documents (RFC 9457): the status that a class of errors has, and the body that describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ontolake import errors
from ontolake.history import errors as history_errors
from ontolake.history import wire_errors
from ontolake.history.conflicts import Conflict
from ontolake.server.rights import ForbiddenError
from ontolake.server.writes.requests import StaleHeadError
from ontolake.server.writes.retries import KeyReusedError

MEDIA_TYPE = "application/problem+json"


class Problem(msgspec.Struct, omit_defaults=True):
    """The body of every answer that is an error."""

    type: str
    """The name of the class of the error, which clients raise again."""
    title: str
    status: int
    detail: str = ""
    hint: str | None = None
    fields: dict[str, Any] = {}
    """What the error carries, by the names of its attributes."""
    conflicts: list[Any] | None = None
    request_id: str | None = None
    classes: list[str] = []
    """For a client that accepts JSON with tags: the class and its bases by their full names. `fields` has tags then."""


class RefusedError(errors.OntolakeError):
    """A request that the server refuses before any store is asked. `status` is the status of the answer."""

    def __init__(self, status: int, message: str, *, hint: str | None = None,
                 headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.headers = dict(headers or {})


_STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (ForbiddenError, 403),
    (history_errors.ProtectedBranchError, 403),
    (history_errors.MergeConflictError, 409),
    (StaleHeadError, 412),
    (KeyReusedError, 422),
    (errors.MissingExtra, 501),
    (errors.NotFound, 404),
    (errors.Corruption, 500),
    (errors.Transient, 503),
    (errors.DurabilityUnconfirmed, 503),
    (errors.Conflict, 409),
    (errors.ConflictFailure, 409),
    (errors.SafetyRefusal, 403),
    (errors.SchemaFailure, 422),
    (errors.UsageFailure, 400),
    (errors.ExecutionFailure, 422),
)


def status_of(error: BaseException) -> int:
    """The status of the answer that an error becomes."""
    if isinstance(error, RefusedError):
        return error.status
    return next((status for cls, status in _STATUS if isinstance(error, cls)), 500)


def problem_of(error: BaseException, request_id: str | None = None, *, tagged: bool = False) -> Problem:
    """An error as a problem document. An error that is not one of ours shows nothing of itself.

    With `tagged` it has all that a client of ours needs to raise it again.
    """
    if isinstance(error, RecursionError):
        error = RefusedError(400, "the request has values that are nested too deeply", hint="send flatter values")
    status = status_of(error)
    if not isinstance(error, errors.OntolakeError):
        return Problem("InternalError", "the server failed", status, request_id=request_id,
                       hint="the server's log has the cause, by request_id")
    if tagged:
        return Problem(type(error).__name__, error.message, status, hint=error.hint, request_id=request_id,
                       fields=wire_errors.fields_of(error), classes=wire_errors.classes_of(error))
    fields = {name: value for name, value in vars(error).items() if name not in _SHOWN and _is_plain(value)}
    conflicts = getattr(error, "conflicts", None)
    return Problem(type(error).__name__, error.message, status, hint=error.hint, fields=fields, request_id=request_id,
                   conflicts=None if conflicts is None else [_conflict(one) for one in conflicts])  # fmt: skip


_SHOWN = {"message", "hint", "conflicts", "status", "headers"}


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _conflict(conflict: Any) -> Any:
    from ontolake.server.values import plain

    return plain(conflict._asdict()) if isinstance(conflict, Conflict) else str(conflict)
