"""A client of PostgreSQL's protocol for tests: any message in any order, and what came back, in short.

    client = RawClient.connect(("127.0.0.1", 5433), "shop", "admin", "admin-secret")
    client.send(query("SELECT 1"))
    assert client.until_ready() == ["T ?column?", "D 1", "C SELECT 1", "Z I"]
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import struct
from collections.abc import Sequence
from typing import Any

SYNC, FLUSH, TERMINATE, COPY_DONE = b"S\0\0\0\4", b"H\0\0\0\4", b"X\0\0\0\4", b"c\0\0\0\4"


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def query(sql: str) -> bytes:
    return message(b"Q", text(sql))


def parse(sql: str, name: str = "", oids: Sequence[int] = ()) -> bytes:
    return message(b"P", text(name) + text(sql) + struct.pack(f">H{len(oids)}I", len(oids), *oids))


def bind(statement: str = "", portal: str = "", values: Sequence[bytes | None] = (), formats: Sequence[int] = (),
         results: Sequence[int] = ()) -> bytes:  # fmt: skip
    parts = [text(portal), text(statement), _shorts(formats), struct.pack(">H", len(values))]
    parts += [struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value for value in values]
    return message(b"B", b"".join([*parts, _shorts(results)]))


def _shorts(values: Sequence[int]) -> bytes:
    return struct.pack(f">H{len(values)}H", len(values), *values)


def describe(kind: str, name: str = "") -> bytes:
    return message(b"D", kind.encode() + text(name))


def execute(portal: str = "", limit: int = 0) -> bytes:
    return message(b"E", text(portal) + struct.pack(">i", limit))


def close(kind: str, name: str = "") -> bytes:
    return message(b"C", kind.encode() + text(name))


def copy_data(data: bytes) -> bytes:
    return message(b"d", data)


def copy_fail(reason: str) -> bytes:
    return message(b"f", text(reason))


def startup(parameters: dict[str, str], version: int = 3 << 16) -> bytes:
    body = struct.pack(">i", version) + b"".join(text(name) + text(value) for name, value in parameters.items()) + b"\0"
    return struct.pack(">i", len(body) + 4) + body


class Closed(Exception):
    """The server has closed the connection."""


class RawClient:
    """A connection. `process` and `secret` are what a CancelRequest names."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.socket.settimeout(30)
        self._data = b""
        self.process = self.secret = 0
        self.parameters: dict[str, str] = {}

    @classmethod
    def open(cls, address: Any) -> RawClient:
        """A connection to a host and port, or to a socket in the file system, that has said nothing yet."""
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        connected = socket.socket(family, socket.SOCK_STREAM)
        connected.connect(address)
        return cls(connected)

    @classmethod
    def connect(cls, address: Any, database: str, user: str, password: str = "", **options: str) -> RawClient:
        """A client that is ready. Raises `AssertionError` with the errors that it met instead."""
        client = cls.open(address)
        client.send(startup({"user": user, "database": database, **options}))
        said = client.login(password)
        assert said[-1] == "Z I", said
        return client

    def login(self, password: str) -> list[str]:
        """Answer what the server asks for after the start-up message. Returns the rest that it says."""
        said: list[str] = []
        first = ""
        while not said or said[-1][0] not in "ZE":
            kind, body = self.receive()
            code = struct.unpack_from(">i", body)[0] if kind == "R" else None
            if code == 10:
                first = f"n=,r={base64.b64encode(b'a' * 18).decode()}"
                sent = f"n,,{first}".encode()
                self.send(message(b"p", text("SCRAM-SHA-256") + struct.pack(">i", len(sent)) + sent))
            elif code == 11:
                self.send(message(b"p", _proof(first, body[4:].decode(), password)))
            elif code is None:
                self._note(kind, body)
                said.append(summary(kind, body))
        return said

    def _note(self, kind: str, body: bytes) -> None:
        if kind == "K":
            self.process, self.secret = struct.unpack(">iI", body)
        elif kind == "S":
            name, value = body.decode().split("\0")[:2]
            self.parameters[name] = value

    def send(self, *messages: bytes) -> None:
        self.socket.sendall(b"".join(messages))

    def receive(self) -> tuple[str, bytes]:
        """The next message. Raises `Closed`."""
        while len(self._data) < 5 or len(self._data) < 1 + struct.unpack_from(">i", self._data, 1)[0]:
            try:
                more = self.socket.recv(1 << 16)
            except ConnectionError as error:
                raise Closed from error
            if not more:
                raise Closed
            self._data += more
        end = 1 + struct.unpack_from(">i", self._data, 1)[0]
        kind, body, self._data = self._data[:1].decode(), self._data[5:end], self._data[end:]
        self._note(kind, body)
        return kind, body

    def next(self) -> str:
        """The next message, in short; `closed` at the end."""
        try:
            return summary(*self.receive())
        except Closed:
            return "closed"

    def until_ready(self, count: int = 1) -> list[str]:
        """All that is said up to ReadyForQuery, or to the last of several; notices and settings are left out."""
        said: list[str] = []
        while count:
            found = self.next()
            if found[0] not in "NS" or found.startswith("N WARNING"):
                said.append(found)
            count -= found.startswith("Z")
            if found == "closed":
                break
        return said

    def ask(self, *messages: bytes) -> list[str]:
        """Send messages that end with one ReadyForQuery. Returns all that comes back."""
        self.send(*messages)
        return self.until_ready()

    def cancel(self, address: Any) -> bytes:
        """Send a CancelRequest. Returns what comes back on its connection."""
        with socket.create_connection(address, timeout=30) as another:
            another.sendall(struct.pack(">iiiI", 16, (1234 << 16) | 5678, self.process, self.secret))
            return another.recv(100)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def summary(kind: str, body: bytes) -> str:
    """A message in short: its kind, and what the test goes by."""
    if kind in "EN":
        fields = {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}
        return f"{kind} {fields['V']} {fields['C']}"
    if kind == "C":
        return f"C {body[:-1].decode()}"
    if kind == "Z":
        return f"Z {body.decode()}"
    if kind == "T":
        return " ".join(["T", *_columns(body)])
    if kind == "D":
        return " ".join(["D", *_values(body)])
    if kind == "t":
        return " ".join(["t", *map(str, struct.unpack(f">{(len(body) - 2) // 4}I", body[2:]))])
    if kind == "A":
        channel, payload = body[4:].decode().split("\0")[:2]
        return f"A {channel} {payload}"
    if kind == "d":
        return f"d {body.decode('latin-1')}"
    if kind in "GH":
        return f"{kind} {body[0]} {struct.unpack_from('>h', body, 1)[0]}"
    return kind


def _columns(body: bytes) -> list[str]:
    found, at = [], 2
    for _ in range(struct.unpack_from(">h", body)[0]):
        end = body.index(b"\0", at)
        found.append(body[at:end].decode())
        at = end + 19
    return found


def _values(body: bytes) -> list[str]:
    found, at = [], 2
    for _ in range(struct.unpack_from(">h", body)[0]):
        size = struct.unpack_from(">i", body, at)[0]
        at += 4
        found.append("NULL" if size < 0 else body[at : at + size].decode("latin-1"))
        at += max(size, 0)
    return found


def _proof(first: str, challenge: str, password: str) -> bytes:
    """The client's second message of SCRAM."""
    nonce, salt, rounds = (part[2:] for part in challenge.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(salt), int(rounds))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    final = f"c=biws,r={nonce}"
    signature = hmac.digest(hashlib.sha256(client_key).digest(), f"{first},{challenge},{final}".encode(), "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return f"{final},p={base64.b64encode(proof).decode()}".encode()
