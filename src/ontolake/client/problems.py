"""Answers that are errors, as the errors that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ontolake.client.errors import (
    AccessDeniedError,
    BusyServerError,
    HeadMovedError,
    NotServedError,
    PositionGoneError,
    RefusedRequestError,
    ServerError,
    UnauthorizedError,
)
from ontolake.errors import Conflict, Invalid, OntolakeError
from ontolake.history.wire_errors import rebuild

_SHOWN = 200
"""How many characters of an answer that is not ours are shown."""


class _Problem(msgspec.Struct):
    title: str = ""
    type: str = ""
    hint: str | None = None
    fields: dict[str, Any] = {}
    classes: list[str] = []
    request_id: str | None = None


_BY_STATUS: Mapping[int, type[ServerError]] = {
    **dict.fromkeys((400, 405, 406, 411, 413, 414, 415, 422, 431, 501), RefusedRequestError),
    **dict.fromkeys((408, 429, 502, 503, 504), BusyServerError),
    401: UnauthorizedError, 403: AccessDeniedError, 404: NotServedError, 410: PositionGoneError, 412: HeadMovedError,
}  # fmt: skip


def error_of(status: int, body: bytes, headers: Mapping[str, str]) -> OntolakeError:
    """The error that an answer stands for: of the class that the server met, else of what the status means."""
    try:
        problem = msgspec.json.decode(body, type=_Problem)
        known = rebuild(problem.classes, problem.title, problem.fields) if problem.title else None
    except (msgspec.MsgspecError, Invalid):
        text = body[:_SHOWN].decode("utf-8", "replace").strip()
        problem, known = _Problem(f"the server answered {status}" + (f": {text}" if text else "")), None
    if known is not None:
        return known
    message = problem.title or f"the server answered {status}"
    hint = problem.hint
    if status >= 500 and problem.request_id is not None:
        hint = f"the server's log has the cause, by the request id {problem.request_id}"
    if status == 409:
        return Conflict(message, hint=hint)
    error = _BY_STATUS.get(status, ServerError)(message, status, hint=hint)
    if isinstance(error, BusyServerError):
        error.retry_after = seconds_to_wait(headers)
    for name in ("needs", "start"):
        if isinstance(problem.fields.get(name), str) and hasattr(type(error), name):
            setattr(error, name, problem.fields[name])
    return error


def seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """What `Retry-After` says, in seconds; None if it says nothing that can be understood."""
    try:
        return max(0.0, float(headers.get("retry-after", "")))
    except ValueError:
        return None
