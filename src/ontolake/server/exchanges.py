"""The way of every request before and after its route: limits, origins, headers, and what is noted of it."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ontolake.server import telemetry
from ontolake.server.audit import AuditEntry
from ontolake.server.limits import LimitedBody
from ontolake.server.memory import RestWatch
from ontolake.server.origins import security_headers
from ontolake.server.problems import MEDIA_TYPE, Problem, RefusedError, problem_of
from ontolake.server.routes import ABORT, EXCHANGE

if TYPE_CHECKING:
    from ontolake.server.app import StoreServer
    from ontolake.server.rights import Principal
    from ontolake.server.routes import Route

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_REFUSED_SOCKET = 1008
_FULL = 1013


def _nothing() -> None:
    pass


@dataclass
class Exchange:
    """One request and its answer: what is known of it so far."""

    request_id: str
    method: str
    path: str
    address: str
    scheme: str
    headers: dict[bytes, bytes]
    body: LimitedBody
    started: float = field(default_factory=time.perf_counter)
    route: Route | None = None
    principal: Principal | None = None
    store: str | None = None
    status: int = 0
    problem: str | None = None
    give_back: Callable[[], None] = _nothing
    """Gives back the slot of the request."""

    @property
    def operation(self) -> str:
        return "" if self.route is None else self.route.name

    def entry(self) -> AuditEntry:
        """What the audit log keeps of it."""
        return AuditEntry(datetime.now(UTC).isoformat(timespec="milliseconds"), self.request_id,
                          "" if self.principal is None else self.principal.name, self.address, self.method, self.path,
                          self.operation, self.status, self.store, self.problem)  # fmt: skip


class Exchanges:
    """An ASGI application around the routes of a server."""

    def __init__(self, server: StoreServer, app: ASGIApp) -> None:
        self._server = server
        self._app = app
        self._open = 0
        self._entries: list[AuditEntry] = []
        self._rest = RestWatch()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _begun(self, scope: Scope, receive: Receive) -> Exchange:
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given.decode() if given and _REQUEST_ID.fullmatch(given) else f"{random.getrandbits(128):032x}"
        client = scope.get("client")
        exchange = Exchange(request_id, scope.get("method", "GET"), scope["path"], client[0] if client else "",
                            scope["scheme"], headers,
                            LimitedBody(receive, self._server.limits, headers.get(b"content-length")))  # fmt: skip
        scope[EXCHANGE] = exchange
        return exchange

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = self._begun(scope, receive)
        metrics, limits = self._server.metrics, self._server.limits
        follows = False

        async def answer(message: Message) -> None:
            nonlocal follows
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                headers = message["headers"] = self._with_headers(exchange, message.get("headers", []))
                if any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers):
                    follows = True
                    self._follow(exchange)
            try:
                async with asyncio.timeout(limits.idle_seconds):
                    await send(message)
            except TimeoutError:  # the client takes no more of the answer: what it still lacks is not kept for it
                scope.get(ABORT, _nothing)()
                raise

        metrics.in_flight.inc()
        try:
            if exchange.method == "OPTIONS" and b"access-control-request-method" in exchange.headers:
                await self._preflight(exchange, answer)
            elif self._server.closing.is_set() and exchange.path != "/healthz":
                await refuse(exchange, RefusedError(503, "the server is going down", headers={
                    "retry-after": "5", "connection": "close"}), answer)
            else:
                await self._app(scope, exchange.body, answer)
        except TimeoutError:  # the client takes no more of the answer: the connection is of no use
            exchange.problem = "TimeoutError"
            raise ConnectionResetError(f"{exchange.address} takes no more of its answer") from None
        except RefusedError as error:
            if exchange.status:
                raise
            await refuse(exchange, error, answer)
        finally:
            exchange.give_back()
            metrics.in_flight.dec()
            if follows:
                self._followed("events")
            self._note(exchange)
            self._rest.worked()

    def _with_headers(self, exchange: Exchange, headers: Any) -> list[tuple[bytes, bytes]]:
        granted = self._server.origins.granted(exchange.headers)
        present = {name.lower(): value for name, value in (*headers, *granted)}
        present[b"x-request-id"] = exchange.request_id.encode()
        present.pop(b"set-cookie", None)
        return list((security_headers(exchange.scheme) | present).items())

    async def _preflight(self, exchange: Exchange, send: Send) -> None:
        headers = self._server.origins.preflight(exchange.headers)
        if headers is None:
            await refuse(exchange, RefusedError(403, "pages of other origins may not use this server",
                                                hint="an administrator can name them in [cors]"), send)
            return
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = self._begun(scope, receive)
        exchange.method = "WEBSOCKET"
        try:
            self._server.origins.check(exchange.headers, exchange.scheme)
        except RefusedError:
            exchange.status, exchange.problem = 403, "RefusedError"
            self._note(exchange)
            await send({"type": "websocket.close", "code": _REFUSED_SOCKET, "reason": "this origin may not"})
            return
        if self._server.closing.is_set() or self._open >= self._server.limits.sessions:
            await send({"type": "websocket.close", "code": _FULL, "reason": "try again later"})
            return
        self._follow(exchange, "websocket")
        exchange.status = 101
        try:
            await self._app(scope, receive, send)
        finally:
            self._followed("websocket")
            self._note(exchange)

    def _follow(self, exchange: Exchange, kind: str = "events") -> None:
        """A request that lasts takes no slot from others."""
        exchange.give_back()
        self._open += 1
        self._server.metrics.sessions.labels(kind).inc()

    def _followed(self, kind: str) -> None:
        self._open -= 1
        self._server.metrics.sessions.labels(kind).dec()

    def _note(self, exchange: Exchange) -> None:
        """Count, log and audit what has ended."""
        server, route = self._server, exchange.route
        seconds = time.perf_counter() - exchange.started
        where = "" if route is None else route.address
        server.metrics.answered(exchange.method, where, exchange.status, seconds)
        if exchange.status == 409 and exchange.store is not None:
            server.metrics.conflicted(exchange.store)
        telemetry.note_request(exchange.method, exchange.path, {
            "request_id": exchange.request_id, "status": exchange.status, "seconds": round(seconds, 6),
            "token": "" if exchange.principal is None else exchange.principal.name, "address": exchange.address,
            "operation": exchange.operation, "store": exchange.store, "problem": exchange.problem})  # fmt: skip
        changes = route is not None and (route.changes or exchange.method == "WEBSOCKET")
        if server.audit is not None and (changes or exchange.status in (401, 403)):
            self._audit(exchange.entry())

    def _audit(self, entry: AuditEntry) -> None:
        """Entries of one turn of the event loop are written at once."""
        if not self._entries:
            asyncio.get_running_loop().call_soon(self._write_audit)
        self._entries.append(entry)

    def _write_audit(self) -> None:
        entries, self._entries = self._entries, []
        assert self._server.audit is not None
        self._server.audit.append(*entries)


async def refuse(exchange: Exchange, error: RefusedError, send: Send) -> None:
    """Answer with an error, where no route is there to do it."""
    problem: Problem = problem_of(error, exchange.request_id)
    exchange.problem = problem.type
    headers = [(name.encode(), value.encode()) for name, value in error.headers.items()]
    await send({"type": "http.response.start", "status": problem.status,
                "headers": [(b"content-type", MEDIA_TYPE.encode()), *headers]})
    await send({"type": "http.response.body", "body": msgspec.json.encode(problem)})
