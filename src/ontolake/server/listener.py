"""The process around the application: the socket that it listens on, how it starts and how it ends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from ontolake.errors import Invalid, StorageError


class Listener:
    """An application on a socket. Port 0 takes a free one; `address` says which."""

    def __init__(self, app: ASGIApp, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Bind the socket; nothing is answered until `run`. Raises `Invalid` if the address cannot be had."""
        self._socket = _bind(host, port)
        config = uvicorn.Config(app, loop="uvloop", http="httptools", ws="websockets-sansio", lifespan="off",
                                log_config=None, access_log=False, server_header=False,
                                timeout_graceful_shutdown=None)  # fmt: skip
        self._server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        """The URL that it listens at."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def run(self) -> None:
        """Answer requests until `stop`, SIGTERM or SIGINT. What is under way is finished."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True

    @contextmanager
    def running(self) -> Iterator[str]:
        """Answer requests in a thread for a block, and give the address. Raises `StorageError` if it cannot start."""
        thread = threading.Thread(target=self.run, name="ontolake-server")
        thread.start()
        try:
            while not self._server.started:
                if not thread.is_alive():
                    raise StorageError("the server did not start")
                thread.join(0.01)
            yield self.address
        finally:
            self.stop()
            thread.join()


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise Invalid(f"cannot listen on {host} port {port}: {error.strerror or error}",
                      hint="choose another --host or --port, or 0 for any free port") from error
    listening.listen(1024)
    return listening
