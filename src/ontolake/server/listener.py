"""The process around the application: the socket that it listens on, how it starts and how it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ontolake.errors import Invalid, StorageError
from ontolake.server.limits import Limits
from ontolake.server.routes import ABORT
from ontolake.server.sync.transport import DroppableWebSocket

_HEADERS = 64 * 1024
"""Bytes that the headers of a request may have."""


class SecondProtocol(Protocol):
    """Another protocol of the same server."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class Listener:
    """An application on a socket. Port 0 takes a free one; `address` says which."""

    def __init__(
        self, app: ASGIApp, *, host: str = "127.0.0.1", port: int = 0, limits: Limits | None = None,
        closing: asyncio.Event | None = None, tls: ssl.SSLContext | None = None, beside: SecondProtocol | None = None,
    ) -> None:  # fmt: skip
        """Bind the socket; nothing is answered until `run`. `closing` is set when the server ends. `beside` starts and
        ends with it, on the same event loop.

        Raises `Invalid` if the address cannot be had.
        """
        limits = Limits() if limits is None else limits
        self._socket = bind(host, port)
        self._host, self._tls = host, tls
        self._ended: BaseException | None = None
        config = uvicorn.Config(
            app, loop="uvloop", http=_patient(limits.header_seconds), ws=DroppableWebSocket, lifespan="off",
            ws_per_message_deflate=False, log_config=None, access_log=False, server_header=False, proxy_headers=False,
            limit_concurrency=limits.connections, timeout_keep_alive=max(1, int(limits.idle_seconds)),
            timeout_graceful_shutdown=limits.grace_seconds, ssl_context_factory=None if tls is None else
            lambda *_: tls, ws_max_size=limits.body)  # fmt: skip
        self._server = _Server(config, closing, beside)

    @property
    def address(self) -> str:
        """The URL that it listens at."""
        host, port = self._socket.getsockname()[:2]
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def run(self) -> None:
        """Answer requests until `stop`, SIGTERM or SIGINT. What is under way is finished."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True

    @contextmanager
    def running(self) -> Iterator[str]:
        """Answer requests in a thread for a block, and give the address. Raises `StorageError` if it cannot start."""
        address = self.address
        thread = threading.Thread(target=self.run, name="ontolake-server")
        thread.start()
        try:
            while not self._server.started:
                if not thread.is_alive():
                    raise StorageError("the server did not start")
                thread.join(0.01)
            yield address
        finally:
            self.stop()
            thread.join()


class _Server(uvicorn.Server):
    """uvicorn, which tells followers when it ends, and returns after a signal instead of raising it again."""

    def __init__(self, config: uvicorn.Config, closing: asyncio.Event | None, beside: SecondProtocol | None) -> None:
        super().__init__(config)
        self._closing = closing
        self._beside = beside

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._beside is not None:
            await self._beside.start()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._closing is not None:
            self._closing.set()
        if self._beside is None:
            await super().shutdown(sockets)
        else:
            await asyncio.gather(super().shutdown(sockets), self._beside.stop())

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


class _PatientProtocol(HttpToolsProtocol):
    """A connection whose headers have to come within some time, and within some bytes."""

    patience: float

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._in_headers = True
        self._await_headers()

    def _await_headers(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.patience, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > _HEADERS and not self.transport.is_closing():
            self.send_400_response("The headers are too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[literal-required]
        self._in_headers, self._header_bytes = True, 0
        self._await_headers()

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._cancel()
        super().on_headers_complete()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def shutdown(self) -> None:
        """End the connection when its answer is sent. An idle one over TLS ends at once: closing it
        would wait for the client to agree."""
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self.transport.get_extra_info("sslcontext") and not self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)


def _patient(seconds: float) -> type[_PatientProtocol]:
    return type("PatientProtocol", (_PatientProtocol,), {"patience": seconds})


def bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise Invalid(f"cannot listen on {host} port {port}: {reason}",
                      hint="choose another --host or --port, or 0 for any free port") from error
    listening.listen(1024)
    return listening
