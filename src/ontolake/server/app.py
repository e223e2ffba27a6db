"""The ASGI application: one way for every request, from its route to its answer."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from ontolake.history import wire
from ontolake.server import api
from ontolake.server.handles import ServedStores
from ontolake.server.problems import MEDIA_TYPE, RefusedError, problem_of
from ontolake.server.rights import Principal, TokenScope, check
from ontolake.server.routes import ROUTES, Call, Reply, Route

Authenticate = Callable[[str], Principal | None]
"""Finds who has a token; None for an unknown, expired or revoked one."""

NOBODY = Principal("", TokenScope.READ, (), ())
"""Who asks for what needs no token."""


class StoreServer:
    """What all requests share: the stores and who may ask."""

    def __init__(self, stores: ServedStores, authenticate: Authenticate) -> None:
        self.stores = stores
        self.authenticate = authenticate
        assert api  # importing it declares the routes

    def app(self) -> Starlette:
        """The ASGI application."""
        routes = [StarletteRoute(one.address, partial(self._answer, one), methods=[one.method]) for one in ROUTES]
        return Starlette(routes=routes)

    async def _answer(self, route: Route, request: Request) -> Response:
        request_id = request.headers.get("x-request-id") or uuid.uuid4().hex
        try:
            call = await self._call(route, request)
            if inspect.iscoroutinefunction(route.handler):
                value = await route.handler(call)
            else:
                value = await to_thread.run_sync(route.handler, call)
            response = _response(value)
        except Exception as error:
            tagged = wire.MEDIA_TYPE in request.headers.get("accept", "")
            problem = problem_of(error, request_id, tagged=tagged)
            response = Response(msgspec.json.encode(problem), problem.status, media_type=MEDIA_TYPE,
                                headers=error.headers if isinstance(error, RefusedError) else None)
        response.headers["x-request-id"] = request_id
        return response

    async def _call(self, route: Route, request: Request) -> Call:
        """Everything that is checked before a handler runs. Raises `RefusedError`, `ForbiddenError`, `Invalid`."""
        principal = NOBODY if route.open else self._principal(request)
        path: Mapping[str, str] = request.path_params
        call = Call(self, request, principal, path)
        if "store" in path:
            call.served = self.stores.get(path["store"])
        if route.query is not None:
            call.query = _decoded(partial(msgspec.convert, dict(request.query_params), route.query, strict=False))
        if route.body is not None:
            call.body = _decoded(partial(msgspec.json.decode, await request.body(), type=route.body))
        for touch in await to_thread.run_sync(lambda: list(route.touches(call))):
            check(principal, path.get("store"), touch)
        return call

    def _principal(self, request: Request) -> Principal:
        """Who has the token of a request. Raises `RefusedError` with 401."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        principal = self.authenticate(token.strip()) if scheme.lower() == "bearer" and token else None
        if principal is None:
            raise RefusedError(401, "this needs a valid token", hint="send Authorization: Bearer TOKEN",
                               headers={"www-authenticate": 'Bearer realm="ontolake"'})
        return principal


def _decoded(decode: Callable[[], Any]) -> Any:
    try:
        return decode()
    except msgspec.ValidationError as error:
        raise RefusedError(422, str(error)) from error
    except msgspec.DecodeError as error:
        raise RefusedError(400, f"the body is not JSON: {error}") from error


def _response(value: Any) -> Response:
    if isinstance(value, Response):
        return value
    reply = value if isinstance(value, Reply) else Reply(value)
    body = reply.value if isinstance(reply.value, bytes) else msgspec.json.encode(reply.value)
    return Response(body, reply.status, dict(reply.headers), media_type=reply.media_type)
