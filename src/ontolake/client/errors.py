"""What can go wrong between a client and a server, beside what stores themselves raise."""

from __future__ import annotations

from ontolake.errors import (
    DurabilityUnconfirmed,
    Invalid,
    NotFound,
    PreconditionFailed,
    SafetyRefusal,
    StorageError,
    Transient,
    UsageFailure,
)


class ServerError(StorageError):
    """The server failed, or answered something that is not of our API. `status` is the status of its answer."""

    def __init__(self, message: str, status: int, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class UnauthorizedError(UsageFailure, ServerError):
    """The server knows no such token, or none was sent."""


class AccessDeniedError(SafetyRefusal, ServerError):
    """The token does not allow this. `needs` is the scope that would, where the server says so."""

    needs: str | None = None


class RefusedRequestError(Invalid, ServerError):
    """The server refuses the request as it is: a wrong field, a body that is too large, something it does not do."""


class NotServedError(NotFound, ServerError):
    """There is no store of this name, or the server's API has no such route."""


class PositionGoneError(NotFound, ServerError):
    """A position in a feed of changes that is no longer kept. `start` is where to start again, if the server says."""

    start: str | None = None


class HeadMovedError(PreconditionFailed, ServerError):
    """The head of the branch is not the one that was named: somebody else has committed. Read it again."""


class BusyServerError(Transient, ServerError):
    """The server takes no more requests just now. `retry_after` is how many seconds it wants to be left alone."""

    retry_after: float | None = None


class UnreachableError(Transient):
    """The server cannot be reached, and nothing was sent that could have changed anything."""


class UnknownOutcomeError(DurabilityUnconfirmed):
    """A request that changes something was sent, and no answer came: it may or may not have happened."""
