"""The messages of PostgreSQL's protocol, version 3: bytes of clients into what they ask, and answers into bytes."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ontolake.sql.errors import SqlError

PROTOCOL = 3 << 16
CANCEL_REQUEST = (1234 << 16) | 5678
SSL_REQUEST = (1234 << 16) | 5679
GSS_REQUEST = (1234 << 16) | 5680
LONGEST_STARTUP = 10_000
"""Bytes that the first message of a client may have, as in PostgreSQL."""

_HEAD = struct.Struct(">ci")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">H")
_SIGNED = struct.Struct(">h")

PARSE_COMPLETE, BIND_COMPLETE, CLOSE_COMPLETE = b"1\0\0\0\4", b"2\0\0\0\4", b"3\0\0\0\4"
NO_DATA, EMPTY_QUERY, PORTAL_SUSPENDED = b"n\0\0\0\4", b"I\0\0\0\4", b"s\0\0\0\4"
COPY_DONE = b"c\0\0\0\4"
AUTHENTICATION_OK = b"R\0\0\0\x08\0\0\0\0"
READY = {status: b"Z\0\0\0\5" + status.encode() for status in "ITE"}
"""ReadyForQuery: idle, in a transaction, in one that has failed."""


class ProtocolViolation(SqlError):
    """A client has sent what is no message, or one that is out of place."""

    default_state = "08P01"


def message(kind: bytes, body: bytes) -> bytes:
    """A message of a kind."""
    return _HEAD.pack(kind, len(body) + 4) + body


def text(value: str) -> bytes:
    """Text with the zero that ends it. What has a zero in it is cut there."""
    return value.encode("utf-8", "replace").partition(b"\0")[0] + b"\0"


def command_complete(tag: str) -> bytes:
    return message(b"C", text(tag))


def parameter_status(name: str, value: str) -> bytes:
    return message(b"S", text(name) + text(value))


def backend_key(process: int, secret: int) -> bytes:
    return message(b"K", struct.pack(">iI", process, secret))


def authentication(code: int, data: bytes = b"") -> bytes:
    """A step of authentication: 10 names mechanisms, 11 goes on, 12 ends SASL."""
    return message(b"R", _INT.pack(code) + data)


def parameter_description(oids: Sequence[int]) -> bytes:
    return message(b"t", _SHORT.pack(len(oids)) + b"".join(struct.pack(">I", oid) for oid in oids))


def notification(process: int, channel: str, payload: str) -> bytes:
    return message(b"A", _INT.pack(process) + text(channel) + text(payload))


def copy_response(kind: bytes, *, binary: bool, columns: int) -> bytes:
    """CopyInResponse (`G`) or CopyOutResponse (`H`)."""
    form = 1 if binary else 0
    return message(kind, struct.pack(">bh", form, columns) + _SIGNED.pack(form) * columns)


def negotiate_version(unknown: Sequence[str]) -> bytes:
    """The newest minor version that is spoken here, and the options that are not known."""
    return message(b"v", _INT.pack(0) + _INT.pack(len(unknown)) + b"".join(map(text, unknown)))


def report(kind: bytes, fields: Mapping[str, str]) -> bytes:
    """An ErrorResponse (`E`) or a NoticeResponse (`N`), with fields by their codes."""
    return message(kind, b"".join(code.encode() + text(value) for code, value in fields.items()) + b"\0")


# what clients send


class StartupMessage(NamedTuple):
    """The first message: a version or a request by its code, and parameters of the session."""

    code: int
    parameters: dict[str, str]
    process: int = 0
    secret: int = 0


class ParseMessage(NamedTuple):
    name: str
    sql: str
    oids: tuple[int, ...]


class BindMessage(NamedTuple):
    portal: str
    statement: str
    formats: tuple[int, ...]
    values: list[bytes | None]
    result_formats: tuple[int, ...]


class MessageReader:
    """Reads the parts of a message. Raises `ProtocolViolation` where it ends too early."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def text(self) -> str:
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise ProtocolViolation("invalid string in message")
        data, self._at = self._body[self._at : end], end + 1
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise SqlError("invalid byte sequence for encoding \"UTF8\"", sqlstate="22021") from error

    def short(self) -> int:
        """A count, which is never negative."""
        return self._number(_SHORT)

    def long(self) -> int:
        return self._number(_INT)

    def unsigned(self) -> int:
        return self.long() & 0xFFFFFFFF

    def _number(self, form: struct.Struct) -> int:
        end = self._at + form.size
        if end > len(self._body):
            raise ProtocolViolation("insufficient data left in message")
        found: int = form.unpack_from(self._body, self._at)[0]
        self._at = end
        return found

    def raw(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._body):
            raise ProtocolViolation("insufficient data left in message")
        data, self._at = self._body[self._at : end], end
        return data

    def rest(self) -> bytes:
        return self.raw(len(self._body) - self._at)

    def end(self) -> None:
        if self._at != len(self._body):
            raise ProtocolViolation("invalid message format")


def read_startup(body: bytes) -> StartupMessage:
    """The first message, without its length. Raises `ProtocolViolation`."""
    reader = MessageReader(body)
    code = reader.long()
    if code == CANCEL_REQUEST:
        found = StartupMessage(code, {}, reader.long(), reader.unsigned())
        reader.end()
        return found
    if code in (SSL_REQUEST, GSS_REQUEST):
        reader.end()
        return StartupMessage(code, {})
    parameters: dict[str, str] = {}
    while name := reader.text():
        parameters[name] = reader.text()
    reader.end()
    return StartupMessage(code, parameters)


def read_parse(body: bytes) -> ParseMessage:
    reader = MessageReader(body)
    name, sql = reader.text(), reader.text()
    oids = tuple(reader.unsigned() for _ in range(reader.short()))
    reader.end()
    return ParseMessage(name, sql, oids)


def read_bind(body: bytes) -> BindMessage:
    reader = MessageReader(body)
    portal, statement = reader.text(), reader.text()
    formats = _formats(reader)
    values: list[bytes | None] = []
    for _ in range(reader.short()):
        size = reader.long()
        values.append(None if size == -1 else reader.raw(size))
    found = BindMessage(portal, statement, formats, values, _formats(reader))
    reader.end()
    return found


def _formats(reader: MessageReader) -> tuple[int, ...]:
    return tuple([reader.short() for _ in range(reader.short())])


def check_formats(formats: Sequence[int]) -> None:
    """Raise `SqlError` for a format that is neither text nor binary."""
    wrong = next((each for each in formats if each > 1), None)
    if wrong is not None:
        raise SqlError(f"unsupported format code: {wrong}", sqlstate="22023")


def read_target(body: bytes) -> tuple[str, str]:
    """What Describe and Close are about: `S` for a statement or `P` for a portal, and its name."""
    reader = MessageReader(body)
    kind, name = reader.raw(1).decode("latin-1"), reader.text()
    reader.end()
    if kind not in ("S", "P"):
        raise ProtocolViolation(f"invalid message subtype {kind!r}")
    return kind, name


def read_execute(body: bytes) -> tuple[str, int]:
    """The portal to run, and how many rows it may give; 0 for all."""
    reader = MessageReader(body)
    found = reader.text(), reader.long()
    reader.end()
    return found


def read_query(body: bytes) -> str:
    reader = MessageReader(body)
    sql = reader.text()
    reader.end()
    return sql
