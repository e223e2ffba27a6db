"""Test doubles: a proxy between client and server on which requests and answers are lost, delayed and cut.

    with FaultyProxy(server_url, faults=[NetworkFault.LOSE]) as proxy:
        ontolake.open(f"{proxy.url}/shop")      # the first request is done, and its answer never comes
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit


class NetworkFault(Enum):
    """What happens to a request."""

    PASS = "pass"
    """Nothing: it is answered."""
    DROP = "drop"
    """It never reaches the server; the connection is reset."""
    LOSE = "lose"
    """The server does it; the connection is reset before the answer."""
    CUT = "cut"
    """The server does it; the connection is reset in the midst of the answer."""
    STALL = "stall"
    """The server does it; nothing comes back for as long as the client waits."""
    BUSY = "busy"
    """It never reaches the server: 503 with `Retry-After: 0`."""


Schedule = Callable[[str, str], NetworkFault]
"""Chooses the fault of a request by its method and path."""


class FaultyProxy:
    """A proxy in front of a server at `url`. Faults are taken one a request; then everything passes.

    `seen` has the requests that came in, with their faults, `forwarded` those that reached the server.
    """

    def __init__(self, url: str, faults: Iterable[NetworkFault] = (), schedule: Schedule | None = None) -> None:
        target = urlsplit(url)
        self._host, self._port = target.hostname or "", target.port or 80
        self._faults = iter(list(faults))
        self._schedule = schedule
        self._lock = threading.Lock()
        self.seen: list[tuple[str, str, NetworkFault]] = []
        self.forwarded: list[tuple[str, str]] = []
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02},
                                        name="faulty-proxy")  # fmt: skip
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.end()
        self._thread.join()
        self._server.server_close()

    def choose(self, method: str, path: str) -> NetworkFault:
        """The fault of the next request."""
        with self._lock:
            fault = next(self._faults, NetworkFault.PASS) if self._schedule is None else self._schedule(method, path)
            self.seen.append((method, path, fault))
            return fault

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> http.client.HTTPResponse:
        """Send a request on to the server, and return its answer."""
        with self._lock:
            self.forwarded.append((method, path))
        connection = http.client.HTTPConnection(self._host, self._port, timeout=60)
        connection.request(method, path, body or None, headers)
        return connection.getresponse()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    proxy: FaultyProxy

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections break: that is what this is for."""

    def end(self) -> None:
        """Break all connections that are still there."""
        for one in list(self._open):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    _DROPPED: ClassVar[tuple[str, ...]] = ("transfer-encoding", "connection", "content-length", "date", "server")

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""

    def _any(self) -> None:
        proxy = self.server.proxy
        body = self._body()
        fault = proxy.choose(self.command, self.path)
        if fault is NetworkFault.DROP:
            return self._reset()
        if fault is NetworkFault.BUSY:
            return self._answer(503, {"retry-after": "0", "content-type": "text/plain"}, b"busy")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("connection", "host",
                                                                                              "transfer-encoding")}
        answer = proxy.forward(self.command, self.path, headers, body)
        data = answer.read()
        if fault is NetworkFault.LOSE:
            return self._reset()
        if fault is NetworkFault.STALL:
            self.close_connection = True
            self.connection.settimeout(30)
            self.connection.recv(1)  # ends when the client gives up
            return None
        return self._answer(answer.status, dict(answer.getheaders()), data, cut=fault is NetworkFault.CUT)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _answer(self, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in self._DROPPED:
                self.send_header(name, value)
        if status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.wfile.flush()
        if cut:
            self._reset()

    def _reset(self) -> None:
        """Close the connection so that the client sees a reset."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
