"""The messages of the sync protocol, and the versions of it that a server speaks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ontolake.decoders import learn
from ontolake.documents.wire import BranchCreation, BranchDeletion, ClientCommit

VERSION = 1
"""The version that this server speaks. It also accepts the one before, from the second on."""
SUBPROTOCOL = "ontolake.sync.v"

RequestId = int | str


class Hello(msgspec.Struct, frozen=True, tag="hello", forbid_unknown_fields=True):
    """The first message."""

    version: int = VERSION


class SessionOpen(msgspec.Struct, frozen=True, tag="session.open", rename="camel", forbid_unknown_fields=True):
    """Begin a session, or go on with one by the token of its last opening."""

    id: RequestId
    session: str | None = None
    resume_token: str | None = None
    seen_seq: int | None = None


class SessionAck(msgspec.Struct, frozen=True, tag="session.ack", rename="camel", forbid_unknown_fields=True):
    """What the client has applied of a branch. It is not answered."""

    seen_seq: int
    branch: str = ""


class WatchSet(msgspec.Struct, frozen=True, tag="session.watch.set", forbid_unknown_fields=True):
    """Watch documents of a branch from `since` on: `ids`, those that start with `prefix`, or all for neither.

    It takes the place of what was watched there; an empty list of ids ends that.
    """

    id: RequestId
    branch: str = ""
    ids: list[str] | None = None
    prefix: str | None = None
    since: int | None = None


class WatchAdd(msgspec.Struct, frozen=True, tag="session.watch.add", forbid_unknown_fields=True):
    """Watch more documents of a branch; their states as they are come first."""

    id: RequestId
    ids: list[str]
    branch: str = ""


class Transact(msgspec.Struct, frozen=True, tag="memory/transact", forbid_unknown_fields=True):
    """A transaction of the session."""

    id: RequestId
    commit: ClientCommit


class ShortTransact(Transact, frozen=True, tag="transact", forbid_unknown_fields=True):
    """The same by a shorter name."""


class CreateBranch(msgspec.Struct, frozen=True, tag="memory/branch/create", forbid_unknown_fields=True):
    """A branch to create, as a commit of the session."""

    id: RequestId
    branch: BranchCreation


class DeleteBranch(msgspec.Struct, frozen=True, tag="memory/branch/delete", forbid_unknown_fields=True):
    """A branch to give up, as a commit of the session."""

    id: RequestId
    branch: BranchDeletion


class ReadDocuments(msgspec.Struct, frozen=True, tag="documents/read", forbid_unknown_fields=True):
    """Documents to read, all at one moment."""

    id: RequestId
    ids: list[str]
    branch: str = ""
    seq: int | None = None


Message = (Hello | SessionOpen | SessionAck | WatchSet | WatchAdd | Transact | ShortTransact | CreateBranch
           | DeleteBranch | ReadDocuments)  # fmt: skip


class HelloAnswer(msgspec.Struct, frozen=True, tag="hello.ok"):
    """What the server is, and the newest seq of the space."""

    version: int
    server: str
    store: str
    seq: int


class SessionAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """An open session: the token for the next opening, the newest seq, and the newest localSeq that was accepted."""

    session: str
    resume_token: str
    seq: int
    local_seq: int | None
    resumed: bool


class WatchAnswer(msgspec.Struct, frozen=True):
    """From where a branch is watched; frames follow."""

    branch: str
    since: int


class Response(msgspec.Struct, frozen=True, tag="response", rename="camel", omit_defaults=True):
    """The answer to a request: `ok` or `error`. After a conflict, try again when frames reach `retryAfterSeq`."""

    id: RequestId | None
    ok: Any = None
    error: Any = None
    retry_after_seq: int | None = None


class Revoked(msgspec.Struct, frozen=True, tag="session.revoked"):
    """The session goes on at another socket, or the token is no longer good."""

    reason: str


class Large(msgspec.Struct, frozen=True):
    """Stands for a document that is too big for a frame: read it."""

    id: str
    seq: int
    size: int
    large: bool = True


_decoder = msgspec.json.Decoder(Message)
encode = msgspec.json.Encoder().encode


def decode(text: str) -> Message:
    """A message of a client. Raises `msgspec.DecodeError`, `RecursionError`."""
    message: Message = _decoder.decode(text)
    return message


def request_id(text: str) -> RequestId | None:
    """The id of a message that could not be decoded, if it has one."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    id = found.get("id") if isinstance(found, dict) else None
    return id if type(id) in (int, str) else None


def negotiated(offers: Iterable[int], current: int = VERSION) -> int | None:
    """The newest version that a client offers and a server of `current` speaks: that one or the one before."""
    return max((offer for offer in offers if max(1, current - 1) <= offer <= current), default=None)


def offered(subprotocols: Iterable[str], version: str | None) -> dict[int, str | None]:
    """The versions that a handshake names, in the URL or as subprotocols, with the subprotocol to answer."""
    found: dict[int, str | None] = {}
    if version is not None:
        found[int(version) if version.isascii() and version.isdigit() and len(version) < 9 else -1] = None
    for name in subprotocols:
        number = name.removeprefix(SUBPROTOCOL)
        if number != name and number.isascii() and number.isdigit() and len(number) < 9:
            found[int(number)] = name
    return found


learn(Hello, SessionOpen, SessionAck, WatchSet, WatchAdd, Transact, ShortTransact, CreateBranch, DeleteBranch,
      ReadDocuments, HelloAnswer, SessionAnswer, WatchAnswer, Response, Revoked, Large)  # fmt: skip
