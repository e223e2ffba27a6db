"""A real server for tests: in a thread of the test, on a free port of loopback, with stores and tokens.

    with serving({"shop": "sqlite:////tmp/shop.db"}) as served:
        assert served.call("GET", "/stores", token="reader").status == 200

Every server has the tokens `reader`, `writer`, `merger` and `admin`, of the scope that they are named for and good for
all stores and branches; `principals` adds more. The names of tokens are also their secrets, with `-secret` after them.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
import urllib3
from urllib3.util import Timeout

from ontolake.server.app import ServerOptions, StoreServer
from ontolake.server.handles import ServedStores
from ontolake.server.listener import Listener
from ontolake.server.rights import Principal, TokenScope

PRINCIPALS = (
    Principal("reader", TokenScope.READ), Principal("writer", TokenScope.WRITE), Principal("merger", TokenScope.MERGE),
    Principal("admin", TokenScope.ADMIN))  # fmt: skip


class Answer(NamedTuple):
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Served(NamedTuple):
    """A running server. `url` is its address without a path, `tokens` has the secrets by name."""

    url: str
    tokens: Mapping[str, str]
    server: StoreServer
    pool: urllib3.PoolManager

    def call(self, method: str, path: str, *, token: str | None = "admin", json: Any = None, body: bytes | None = None,
             headers: Mapping[str, str] | None = None, **query: Any) -> Answer:  # fmt: skip
        """Send a request to a path below `/api/v1`, or to one of the server's own such as `/healthz` if it is named
        with two slashes (`//healthz`). `token` is the name of a token, None sends none."""
        sent = dict(headers or {})
        if token is not None:
            sent["authorization"] = f"Bearer {self.tokens.get(token, token)}"
        if json is not None:
            body, sent["content-type"] = msgspec.json.encode(json), "application/json"
        address = self.url + (path[1:] if path.startswith("//") else f"/api/v1{path}")
        fields = {name: value for name, value in query.items() if value is not None}
        if fields:
            address += "?" + urlencode(fields)
        answer = self.pool.request(method, address, body=body, headers=sent, retries=False,
                                   timeout=Timeout(60))  # fmt: skip
        return Answer(answer.status, answer.headers, answer.data)


@contextmanager
def serving(
    stores: Mapping[str, str], principals: tuple[Principal, ...] = (), options: ServerOptions | None = None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[Served]:
    """A server of the stores at URLs, by the names that it serves them under."""
    everyone = {f"{one.name}-secret": one for one in (*PRINCIPALS, *principals)}
    served = ServedStores(stores)
    server = StoreServer(served, everyone.get, options)
    listener = Listener(server.app(), limits=server.limits, closing=server.closing, tls=tls)
    try:
        with listener.running() as url, urllib3.PoolManager(maxsize=64) as pool:
            yield Served(url, {one.name: secret for secret, one in everyone.items()}, server, pool)
    finally:
        served.close()


class ServerProcess:
    """`onto serve` in a process of its own, which can be killed. Its output is in files of `folder`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        """Start it and wait for its address; its tokens, state and logs are in `folder`. Raises `AssertionError` with
        what it said if it ended instead."""
        self.errors = folder / "server.log"
        settings = {"ONTO_TOKENS": str(folder / "tokens.json"), "XDG_STATE_HOME": str(folder)}
        command = [sys.executable, "-m", "ontolake", "serve", "--port", "0", *arguments]
        with self.errors.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=folder,
                                            env={**os.environ, **settings})  # fmt: skip
        assert self.process.stdout is not None
        said = [self.process.stdout.readline().decode() for _ in range(2)]
        assert all(said), self.errors.read_text()
        self.url, self.token = said[0].split()[-1], said[1].split()[-1]
        self.pool = urllib3.PoolManager(maxsize=64, cert_reqs="CERT_NONE")

    def call(self, method: str, path: str, *, token: str | None = None, **rest: Any) -> Answer:
        """As `Served.call`, with the token of the server itself unless another is named."""
        served = Served(self.url, {}, None, self.pool)  # type: ignore[arg-type]
        return served.call(method, path, token=token or self.token, **rest)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Ask it to end, and wait until it has. Returns its exit code."""
        self.process.terminate()
        return self.process.wait(60)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.pool.clear()
