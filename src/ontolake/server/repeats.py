"""Requests that come again: with one `Idempotency-Key` something is done once, and every try gets the same answer.

A client that lost an answer sends the request again with its key. While the first one is under way the second waits for
it; afterwards it gets the answer that was given. Answers are kept in memory, the newest ones, for a day.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from ontolake.server.problems import RefusedError

HEADER = "idempotency-key"
REPLAYED = "idempotent-replayed"
"""Set in an answer that was given before."""
_SECONDS = 24 * 3600.0
_MOST = 10_000
_LONGEST = 200
"""Characters of a key."""
_PASSING = (401, 403, 408, 429)
"""Statuses of requests that were not looked at: the next try may fare better."""


class RepeatKey(NamedTuple):
    """Whose key it is, and which."""

    principal: str
    key: str


class _Kept(NamedTuple):
    what: str
    since: float
    answer: asyncio.Task[Response]


class Repeats:
    """The answers to requests with a key. Belongs to one event loop."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._kept: OrderedDict[RepeatKey, _Kept] = OrderedDict()

    async def once(self, key: RepeatKey, what: str, run: Callable[[], Awaitable[Response]]) -> Response:
        """The answer of `run`, or the one that was given to the same request. `what` describes the request.

        It goes on to its end even if the client is gone. Raises `RefusedError` for a key that another request had.
        """
        if not key.key.isascii() or not key.key.isprintable() or len(key.key) > _LONGEST:
            raise RefusedError(400, f"an Idempotency-Key is at most {_LONGEST} ASCII characters")
        self._forget()
        known = self._kept.get(key)
        if known is not None:
            if known.what != what:
                raise RefusedError(422, "this Idempotency-Key was used for another request", hint="use a new one")
            answer = await asyncio.shield(known.answer)
            if not _is_whole(answer):
                raise RefusedError(409, "the answer to this request is on its way to somebody else")
            response = _copy(answer)
            response.headers[REPLAYED] = "true"
            return response
        task = asyncio.ensure_future(_run(run))
        self._kept[key] = _Kept(what, time.monotonic(), task)
        task.add_done_callback(lambda done: self._settle(key, done))
        answer = await asyncio.shield(task)
        return _copy(answer) if _is_whole(answer) else answer

    def _settle(self, key: RepeatKey, done: asyncio.Task[Response]) -> None:
        """Forget what was not really answered."""
        if done.cancelled() or done.exception() is not None or not _is_whole(done.result()) \
                or done.result().status_code >= 500 or done.result().status_code in _PASSING:
            self._kept.pop(key, None)

    def _forget(self) -> None:
        limit = time.monotonic() - _SECONDS
        while self._kept:
            key, kept = next(iter(self._kept.items()))
            if not kept.answer.done() or (len(self._kept) < self._most and kept.since > limit):
                return
            del self._kept[key]


def described(request: Request, body: bytes | None) -> str:
    """What a request is: the same for every try of one. Without a body, which is then read piece by piece, as far as
    its head tells."""
    length, kind = request.headers.get("content-length", ""), request.headers.get("content-type", "")
    content = "" if body is None else hashlib.sha256(body).hexdigest()
    return f"{request.method} {request.url.path}?{request.url.query} {kind} {length} {content}"


async def _run(run: Callable[[], Awaitable[Response]]) -> Response:
    return await run()


def _is_whole(response: Response) -> bool:
    """Whether an answer is there as a whole; a stream is gone once it was sent."""
    return hasattr(response, "body")


def _copy(response: Response) -> Response:
    """The same answer, for another request: headers may be added to it."""
    copied = Response(response.body, response.status_code)
    copied.raw_headers = list(response.raw_headers)
    return copied
