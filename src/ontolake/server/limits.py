"""What a server lets clients take: bytes, rows, seconds, and requests at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ontolake.server.problems import RefusedError

Receive = Callable[[], Awaitable[Any]]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section `[limits]` of a configuration. Times are in seconds, sizes in bytes."""

    body: int = 64 * 2**20
    """The size of a body."""
    stream: int = 256 * 2**20
    """The size of a body of rows or of a blob. The server holds it in memory, so a load of more is sent in parts."""
    rows: int = 10_000
    """Rows on one page of an answer."""
    seconds: float = 60.0
    """How long a request that only reads may take."""
    requests: int = 512
    """Requests that are answered at a time."""
    token_requests: int = 256
    """Requests of one token that are answered at a time."""
    sessions: int = 8192
    """Sockets and streams of events that are open at a time."""
    connections: int = 16384
    header_seconds: float = 10.0
    """How long the headers of a request may take."""
    idle_seconds: float = 30.0
    """How long a connection may rest: between requests, within a body, and before it takes more of an answer."""
    grace_seconds: int = 30
    """How long what is under way may take when the server ends."""
    readers: int = 32
    """Threads for requests that only read."""
    writers: int = 32
    """Threads for all other requests."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0, not {getattr(self, name)}")


class Slots:
    """Who is being answered: a slot for each request, until it ends or begins to follow. For the event loop alone."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_token: Counter[str] = Counter()
        self.taken = 0

    def take(self, token: str) -> Callable[[], None]:
        """Take a slot for a request of a token. Returns what gives it back; calling that twice does no harm.

        Raises `RefusedError` with 429.
        """
        if self.taken >= self._limits.requests:
            raise _busy("the server is answering as many requests as it may")
        if self._by_token[token] >= self._limits.token_requests:
            raise _busy("as many requests of this token are being answered as may be")
        self.taken += 1
        self._by_token[token] += 1
        held = True

        def give_back() -> None:
            nonlocal held
            if held:
                held = False
                self.taken -= 1
                self._by_token[token] -= 1
                if not self._by_token[token]:
                    del self._by_token[token]

        return give_back


def _busy(message: str) -> RefusedError:
    return RefusedError(429, message, hint="try again in a moment", headers={"retry-after": "1"})


class LimitedBody:
    """The body of a request: no larger than it may be, and never waited for too long. An ASGI `receive`."""

    def __init__(self, receive: Receive, limits: Limits, announced: bytes | None) -> None:
        """`announced` is the header Content-Length."""
        self._receive = receive
        self._limits = limits
        self._announced = int(announced) if announced is not None and announced.isdigit() else 0
        self._size = 0
        self._complete = False
        self.most = limits.body

    def check(self, most: int) -> None:
        """Set how large the body may be. Raises `RefusedError` with 413 if it says that it is larger."""
        self.most = most
        self._check(self._announced)

    def _check(self, size: int) -> None:
        if size > self.most:
            raise RefusedError(413, f"the body has more than {self.most} bytes", hint="send it in several requests",
                               headers={"connection": "close"})

    async def __call__(self) -> Any:
        if self._complete:
            return await self._receive()
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                message = await self._receive()
        except TimeoutError:
            raise RefusedError(408, f"the body did not go on for {self._limits.idle_seconds:g} seconds",
                               headers={"connection": "close"}) from None
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._complete = not message.get("more_body", False)
            self._check(self._size)
        return message
