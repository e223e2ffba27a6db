"""A client of the sync protocol for tests: a real socket, one message at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from serving import Served
from websockets.sync.client import ClientConnection, connect


class SyncClient:
    """A socket on which hello was said. Frames that come before a response are kept in `frames`."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.frames: list[dict[str, Any]] = []
        self._ids = count(1)

    def receive(self, timeout: float = 30) -> Any:
        return json.loads(self.socket.recv(timeout=timeout))

    def send(self, type: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": type, **fields}))

    def ask(self, type: str, **fields: Any) -> Any:
        """Send a request and wait for its response, whole."""
        id = next(self._ids)
        self.send(type, id=id, **fields)
        while (message := self.receive())["type"] != "response":
            self.frames.append(message)
        assert message["id"] == id
        return message

    def ok(self, type: str, **fields: Any) -> Any:
        answer = self.ask(type, **fields)
        assert "error" not in answer, answer
        return answer["ok"]

    def put(self, local_seq: int, id: str, value: Any, **more: Any) -> Any:
        """A transaction that sets one document; its response, whole."""
        return self.ask("transact", commit={
            "localSeq": local_seq, "operations": [{"op": "set", "id": id, "value": {"value": value}}], **more})

    def frame(self) -> dict[str, Any]:
        """The next frame."""
        found: dict[str, Any] = self.frames.pop(0) if self.frames else self.receive()
        assert found["type"] == "sync", found
        return found

    def upserts(self, to: int) -> list[tuple[int, str, Any]]:
        """Documents of all frames until one reaches a seq, as seq, id and value."""
        found: list[tuple[int, str, Any]] = []
        while True:
            frame = self.frame()
            found += [(one["seq"], one["id"], one["document"] and one["document"]["value"]) for one in frame["upserts"]]
            if frame["to"] >= to:
                return found


def address(served: Served, store: str = "notes", query: str = "") -> str:
    return f"{served.url.replace('http', 'ws', 1)}/api/v1/stores/{store}/sync{query}"


@contextmanager
def syncing(served: Served, token: str = "writer", *, hello: bool = True, **options: Any) -> Iterator[SyncClient]:
    """A client with a token, after hello."""
    headers = {"authorization": f"Bearer {served.tokens[token]}", **options.pop("headers", {})}
    with connect(address(served), additional_headers=headers, proxy=None, **options) as socket:
        client = SyncClient(socket)
        if hello:
            client.send("hello", version=1)
            assert client.receive()["type"] == "hello.ok"
        yield client
