"""A store behind a server: `ontolake.open("http://host:8400/shop", token=…)`, in the words of `ontolake.history`.

`opening` finds out what is behind a URL and opens it. `store` is what all models have: history, with `branches` (and
tags), `snapshots` and `jobs`. `address` reads URLs, `credentials` finds tokens, `connection` asks the routes of one
store, `transport` sends requests and tries them again, `problems` turns answers into the errors that the server met,
`errors` has those of the way there. `documents`, `graph`, `sql` and `typed` are what models have besides; `repository`
and `session` are for sessions. `testing` is a network that fails.
"""

from ontolake.client.errors import (
    AccessDeniedError,
    BusyServerError,
    HeadMovedError,
    NotServedError,
    PositionGoneError,
    RefusedRequestError,
    ServerError,
    UnauthorizedError,
    UnknownOutcomeError,
    UnreachableError,
)

__all__ = [
    "AccessDeniedError",
    "BusyServerError",
    "HeadMovedError",
    "NotServedError",
    "PositionGoneError",
    "RefusedRequestError",
    "ServerError",
    "UnauthorizedError",
    "UnknownOutcomeError",
    "UnreachableError",
]
