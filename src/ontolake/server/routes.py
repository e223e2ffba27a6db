"""How routes are declared: what a route takes, answers and touches. The app, the OpenAPI document and the tests of
rights all read these declarations.

A route of a store has to say what it `touches`, so that none can forget a right:

    class BranchIn(msgspec.Struct):
        name: str
        at: str | None = None

    @route("POST", "/stores/{store}/branches", touches=lambda call: [Touch(TokenScope.WRITE, call.body.name)],
           body=BranchIn, answers={201: BranchOut})
    def create_branch(call: Call) -> Reply:
        with call.store.writing() as store:
            ...

A handler is a plain function, which runs in a thread of its own, or a coroutine function.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

from ontolake.server.rights import Principal, TokenScope, Touch

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection, Request
    from starlette.websockets import WebSocket

    from ontolake.server.app import StoreServer
    from ontolake.server.exchanges import Exchange
    from ontolake.server.handles import ServedStore

API = "/api/v1"
"""Where every route is, unless it is declared with `root=True`."""

EXCHANGE = "ontolake.exchange"
"""Where the exchange of a request is in its ASGI scope."""

ABORT = "ontolake.abort"
"""Where the function that drops the connection of a request is in its ASGI scope."""

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass
class Call:
    """One request: who asks, for which store, with which input, decoded and checked."""

    server: StoreServer
    connection: HTTPConnection
    principal: Principal
    path: Mapping[str, str]
    query: Any = None
    """An instance of the route's `query`."""
    body: Any = None
    """An instance of the route's `body`; None for a route that reads `request.stream()` itself."""
    served: ServedStore | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    """What `touches` worked out, for the handler."""

    @property
    def request(self) -> Request:
        """The request, for what is not decoded."""
        return cast("Request", self.connection)

    @property
    def exchange(self) -> Exchange:
        """What is noted of the request, with its headers as they came."""
        return cast("Exchange", self.connection.scope[EXCHANGE])

    @property
    def socket(self) -> WebSocket:
        """The socket, for a handler that `socket` declares."""
        return cast("WebSocket", self.connection)

    def follow(self) -> None:
        """Give back the slot among the requests that are answered at a time, before waiting for long."""
        self.exchange.give_back()

    def page_size(self, wanted: int) -> int:
        """How many rows a page has: what is asked for, or fewer if the server's limit is lower."""
        return min(wanted, self.server.limits.rows)

    @property
    def store(self) -> ServedStore:
        """The store in the path."""
        assert self.served is not None
        return self.served


class Reply(NamedTuple):
    """An answer that is not simply 200 with a value as JSON. `value` is encoded unless it is bytes."""

    value: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}
    media_type: str = "application/json"


Handler = Callable[[Call], Any] | Callable[[Call], Awaitable[Any]]
Touches = Callable[[Call], Iterable[Touch]]
Inline = Callable[[Call], Any]
"""Answers a request on the event loop, without waiting for anything; None if its handler has to."""


@dataclass(frozen=True)
class Route:
    """A declared route."""

    method: Method
    path: str
    handler: Handler
    touches: Touches
    query: type[Any] | None = None
    """A msgspec struct whose fields are the parameters of the query; those without default are required."""
    body: type[Any] | None = None
    """A msgspec struct, or any type that msgspec decodes, for a body of JSON."""
    takes: tuple[str, ...] = ("application/json",)
    """Media types of the body, for the document."""
    answers: Mapping[int, Any] = field(default_factory=dict)
    """By status: the type that is encoded as JSON, None for no body, or types by media type, None for raw bytes."""
    forms: tuple[str, ...] = ("application/json",)
    """Media types in which types of `answers` are encoded."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Request headers that it reads, with what they say, for the document."""
    changes: bool = False
    """Whether it may change state: then its `Origin` is checked and it is audited."""
    keeps_keys: bool = False
    """Whether its handler keeps the `Idempotency-Key` of requests with what they have changed."""
    root: bool = False
    open: bool = False
    """Whether it needs no token: health and documents about the API alone."""
    inline: Inline | None = None
    """How its quick requests are answered on the event loop."""
    looks_up: Callable[[Call], bool] = lambda call: True
    """Whether `touches` has to read the store to answer for a request; then it runs in a thread."""
    streams: bool = False
    """Whether it reads a body piece by piece, which may then be much larger."""
    tag: str = ""

    @property
    def address(self) -> str:
        return self.path if self.root else API + self.path

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return (self.handler.__doc__ or "").strip().partition("\n")[0]

    @property
    def name(self) -> str:
        return self.handler.__name__


ROUTES: list[Route] = []
"""All declared routes; `ontolake.server.api` imports the modules that declare them."""
SOCKETS: list[Route] = []
"""All declared WebSockets."""

H = TypeVar("H", bound=Callable[..., Any])


def route(method: Method, path: str, *, touches: Touches, changes: bool | None = None, **rest: Any) -> Callable[[H], H]:
    """Declare a route. It changes state unless its method is GET or `changes` says otherwise."""

    def declare(handler: H) -> H:
        ROUTES.append(Route(method, path, handler, touches,
                            changes=method != "GET" if changes is None else changes, **rest))  # fmt: skip
        return handler

    return declare


def socket(path: str, *, touches: Touches, **rest: Any) -> Callable[[H], H]:
    """Declare a WebSocket: its handler is a coroutine function that accepts `call.socket` and serves it."""

    def declare(handler: H) -> H:
        SOCKETS.append(Route("GET", path, handler, touches, changes=True, **rest))
        return handler

    return declare


def nothing(call: Call) -> Iterable[Touch]:
    """For routes that touch no store; any token may use them."""
    return ()


def reads_ref(call: Call) -> Iterable[Touch]:
    """For routes that read at `ref` of the query, or at the head of the first branch."""
    return [Touch(TokenScope.READ, call.store.branch_of(call.query.ref, call.principal))]


def looks_up_ref(call: Call) -> bool:
    """Whether `reads_ref` has to read the store: who sees some branches may name a commit of any."""
    return call.query.ref is not None and not call.principal.sees_all_branches


def looks_up_nothing(call: Call) -> bool:
    """For routes whose requests say themselves what they touch."""
    return False


def administers(call: Call) -> Iterable[Touch]:
    """For routes of administrators."""
    return [Touch(TokenScope.ADMIN, None)]


def administers_server(call: Call) -> Iterable[Touch]:
    """For routes of administrators of the whole server: a token for some stores does not suffice."""
    return [Touch(TokenScope.ADMIN, None, server=True)]


def reads_server(call: Call) -> Iterable[Touch]:
    """For routes that read what concerns all stores."""
    return [Touch(TokenScope.READ, None, server=True)]
