"""The ASGI application: one way for every request, from its route to its answer."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import anyio
import msgspec
from anyio import to_thread
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from ontolake.errors import OntolakeError
from ontolake.history import wire
from ontolake.server import api, repeats, telemetry
from ontolake.server.audit import AuditLog
from ontolake.server.exchanges import Exchange, Exchanges
from ontolake.server.feeds import BranchWatches
from ontolake.server.handles import ServedStores
from ontolake.server.jobs import Jobs
from ontolake.server.limits import Limits, Slots
from ontolake.server.metrics import Metrics
from ontolake.server.origins import Origins
from ontolake.server.problems import MEDIA_TYPE, RefusedError, problem_of
from ontolake.server.rights import NOBODY, Principal, check, check_store
from ontolake.server.routes import EXCHANGE, ROUTES, SOCKETS, Call, Reply, Route
from ontolake.server.routing import RouteTree
from ontolake.server.sync import endpoint
from ontolake.server.sync.feeds import Watchers
from ontolake.server.tokens import TokenFile
from ontolake.server.writes.queues import WriteQueues

Authenticate = Callable[[str], Principal | None]
"""Finds who has a token; None for an unknown, expired or revoked one."""

BEARER_PROTOCOL = "ontolake.bearer."
"""A subprotocol of a WebSocket that begins so has the token behind it, for browsers, which send no other headers."""


@dataclass(frozen=True)
class ServerOptions:
    """What a server may be configured with."""

    limits: Limits = field(default_factory=Limits)
    origins: Iterable[str] = ()
    """The origins whose pages may use it."""
    audit: AuditLog | None = None
    tokens: TokenFile | None = None
    """The tokens that administrators manage over HTTP."""


class StoreServer:
    """What all requests share: the stores, who may ask, limits and counters."""

    def __init__(self, stores: ServedStores, authenticate: Authenticate, options: ServerOptions | None = None) -> None:
        options = ServerOptions() if options is None else options
        self.stores = stores
        self.authenticate = authenticate
        self.limits = options.limits
        self.origins = Origins(options.origins)
        self.audit = options.audit
        self.tokens = options.tokens
        self.metrics = Metrics(stores)
        for store in stores:
            store.on_write = self.metrics.committed
        self.watchers = Watchers(self.run)
        self.closing = asyncio.Event()
        """Set when the server ends: whoever follows something stops then."""
        self.slots = Slots(self.limits)
        self.repeats = repeats.Repeats()
        self.jobs = Jobs()
        self._readers = anyio.CapacityLimiter(self.limits.readers)
        self._writers = anyio.CapacityLimiter(self.limits.writers)
        self.writes = WriteQueues(partial(self.run, changes=True))
        self.watches = BranchWatches(self.run)
        assert api  # importing it declares the routes
        assert endpoint

    def app(self) -> ASGIApp:
        """The ASGI application."""
        return Exchanges(self, _Routed(self))

    async def run(self, function: Callable[..., Any], *arguments: Any, changes: bool = False) -> Any:
        """The result of a function that may block, from a thread. Those that change something have threads of their
        own, so that no number of them keeps readers waiting."""
        limiter = self._writers if changes else self._readers
        return await to_thread.run_sync(function, *arguments, limiter=limiter)

    async def answer(self, route: Route, request: Request) -> Response:
        """What a route answers to a request, be it an error."""
        exchange: Exchange = request.scope[EXCHANGE]
        exchange.route = route
        exchange.store = request.path_params.get("store")
        with telemetry.spanned(route.name, request, exchange.store) as span:
            try:
                call = await self._call(route, request, exchange)
                key = request.headers.get(repeats.HEADER) if route.changes and not route.keeps_keys else None
                if key is None:
                    response = _response(await self._handled(route, call))
                else:
                    body = None if route.body is None else await request.body()
                    response = await self.repeats.once(repeats.RepeatKey(call.principal.name, key),
                                                       repeats.described(request, body),
                                                       partial(self._settled, route, call, exchange))
            except Exception as error:
                response = _failed(error, exchange, request.headers.get("accept", ""))
            telemetry.note_result(span, response.status_code, exchange.problem)
        return response

    async def _settled(self, route: Route, call: Call, exchange: Exchange) -> Response:
        """What a route answers, or the problem that it met."""
        try:
            return _response(await self._handled(route, call))
        except Exception as error:
            return _failed(error, exchange, call.request.headers.get("accept", ""))

    async def _handled(self, route: Route, call: Call) -> Any:
        if inspect.iscoroutinefunction(route.handler):
            if route.looks_up(call):
                await self._check_touches(route, call)
            else:
                _check_touches(route.touches, call)
                if route.inline is not None and (found := route.inline(call)) is not None:
                    return found
            return await route.handler(call)
        if route.changes:  # no time limit: what may be committed by now is waited for
            return await self.run(_checked, route, call, changes=True)
        try:
            with anyio.fail_after(self.limits.seconds):
                return await to_thread.run_sync(_checked, route, call, limiter=self._readers, abandon_on_cancel=True)
        except TimeoutError:
            raise RefusedError(503, f"this takes longer than {self.limits.seconds:g} seconds",
                               hint="ask for less at a time", headers={"retry-after": "5"}) from None

    async def _check_touches(self, route: Route, call: Call) -> None:
        await self.run(_check_touches, route.touches, call)

    async def _call(self, route: Route, request: Request, exchange: Exchange) -> Call:
        """Everything that is checked before a handler runs, but for what it touches. Raises `RefusedError`,
        `ForbiddenError`."""
        if route.changes:
            self.origins.check(exchange.headers, exchange.scheme)
        principal = NOBODY if route.open else self._principal(request)
        exchange.principal = principal
        exchange.give_back = self.slots.take(principal.name)
        exchange.body.check(self.limits.stream if route.streams else self.limits.body)
        call = self._addressed(request, principal)
        if route.query is not None:
            call.query = _query(request, route.query)
        if route.body is not None:
            call.body = _decoded(partial(msgspec.json.decode, await request.body(), type=route.body))
        return call

    def _addressed(self, connection: HTTPConnection, principal: Principal) -> Call:
        """A call for the store in the path. Whoever has no right to it does not learn whether it is there."""
        path: Mapping[str, str] = connection.path_params
        call = Call(self, connection, principal, path)
        if "store" in path:
            check_store(principal, path["store"])
            call.served = self.stores.get(path["store"])
        return call

    def _principal(self, connection: HTTPConnection) -> Principal:
        """Who has the token of a request. Raises `RefusedError` with 401."""
        principal = self.identify(connection)
        if principal is None:
            raise RefusedError(401, "this needs a valid token", hint="send Authorization: Bearer TOKEN",
                               headers={"www-authenticate": 'Bearer realm="ontolake"'})
        return principal

    def identify(self, connection: HTTPConnection) -> Principal | None:
        """Who has the token of a request; None without a valid one."""
        token = sent_token(connection)
        return self.authenticate(token) if token else None

    async def talk(self, route: Route, socket: WebSocket) -> None:
        """Serve a WebSocket. One that is refused is answered with the status and the problem that HTTP would have."""
        exchange: Exchange = socket.scope[EXCHANGE]
        exchange.route = route
        exchange.store = socket.path_params.get("store")
        try:
            exchange.principal = self._principal(socket)
            call = self._addressed(socket, exchange.principal)
            if route.query is not None:
                call.query = _query(socket, route.query)
            await self._check_touches(route, call)
        except Exception as error:
            response = _failed(error, exchange, "")
            exchange.status = response.status_code
            await socket.send_denial_response(response)
            return
        with telemetry.spanned(route.name, socket, exchange.store):
            await route.handler(call)


class _Routed:
    """An ASGI application that has every request answered by its route."""

    def __init__(self, server: StoreServer) -> None:
        self._server = server
        self._routes, self._sockets = RouteTree(ROUTES), RouteTree(SOCKETS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope[EXCHANGE]
        if scope["type"] == "websocket":
            found = self._sockets.find(scope["path"], "GET")
            if found is None or found.route is None:
                await send({"type": "websocket.close", "code": 1000, "reason": "there is nothing here"})
                return
            scope["path_params"] = found.path
            await self._server.talk(found.route, WebSocket(scope, receive, send))
            return
        found = self._routes.find(scope["path"], scope["method"])
        if found is None or found.route is None:
            response = _no_route(exchange, () if found is None else found.methods)
        else:
            scope["path_params"] = found.path
            response = await self._server.answer(found.route, Request(scope, receive))
        await response(scope, receive, send)


def sent_token(connection: HTTPConnection) -> str:
    """The token that a request sends, as text; empty if it sends none."""
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" and connection.scope["type"] == "websocket":
        offered = (one.strip() for one in connection.headers.get("sec-websocket-protocol", "").split(","))
        scheme, token = "bearer", next((one.removeprefix(BEARER_PROTOCOL) for one in offered
                                        if one.startswith(BEARER_PROTOCOL)), "")  # fmt: skip
    return token.strip() if scheme.lower() == "bearer" else ""


def _checked(route: Route, call: Call) -> Any:
    _check_touches(route.touches, call)
    return route.handler(call)


def _check_touches(touches: Callable[[Call], Iterable[Any]], call: Call) -> None:
    for touch in touches(call):
        check(call.principal, call.path.get("store"), touch)


def _failed(error: Exception, exchange: Exchange, accept: str) -> Response:
    problem = problem_of(error, exchange.request_id, tagged=wire.MEDIA_TYPE in accept)
    exchange.problem = problem.type
    if problem.status >= 500 and not isinstance(error, OntolakeError):
        telemetry.failures.error("a request failed", exc_info=error, extra={"fields": {
            "request_id": exchange.request_id, "operation": exchange.operation}})  # fmt: skip
    return Response(msgspec.json.encode(problem), problem.status, media_type=MEDIA_TYPE,
                    headers=error.headers if isinstance(error, RefusedError) else None)


def _no_route(exchange: Exchange, methods: Sequence[str]) -> Response:
    """The answer to an address that is none, or to a method that it does not take: it takes `methods`."""
    hint = "/openapi.json lists all routes"
    if not methods:
        return _failed(RefusedError(404, f"there is nothing at {exchange.path!r}", hint=hint), exchange, "")
    return _failed(RefusedError(405, f"{exchange.method} is not for {exchange.path!r}", hint=hint,
                                headers={"allow": ", ".join(methods)}), exchange, "")  # fmt: skip


def _query(connection: HTTPConnection, kind: type[Any]) -> Any:
    """The parameters of a request. The last one of a name counts."""
    sent = dict(parse_qsl(connection.scope["query_string"].decode("latin-1"), keep_blank_values=True))
    return _decoded(partial(msgspec.convert, sent, kind, strict=False))


def _decoded(decode: Callable[[], Any]) -> Any:
    try:
        return decode()
    except msgspec.ValidationError as error:
        raise RefusedError(422, str(error)) from error
    except msgspec.DecodeError as error:
        raise RefusedError(400, f"the body is not JSON: {error}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(400, f"the body cannot be read: {error}") from error


def _response(value: Any) -> Response:
    if isinstance(value, Response):
        return value
    reply = value if isinstance(value, Reply) else Reply(value)
    body = reply.value if isinstance(reply.value, bytes) else msgspec.json.encode(reply.value)
    return Response(body, reply.status, dict(reply.headers), media_type=reply.media_type)
