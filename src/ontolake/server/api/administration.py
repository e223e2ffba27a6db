"""Routes of administrators: the audit log, and tokens."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ontolake.server.audit import AuditEntry
from ontolake.server.problems import RefusedError
from ontolake.server.rights import TokenScope
from ontolake.server.routes import Call, Reply, administers_server, route
from ontolake.server.tokens import TokenFile, TokenRequest


class AuditQuery(msgspec.Struct):
    """Which entries of the audit log."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Annotated[int, Meta(ge=0)] | None = None
    """That of the page before this one."""


class AuditAnswer(msgspec.Struct, omit_defaults=True):
    """Entries, newest first. `cursor` leads to older ones."""

    entries: list[AuditEntry]
    cursor: int | None = None


class TokenIn(msgspec.Struct, forbid_unknown_fields=True):
    """A token that is wanted."""

    name: str
    scope: str = "read"
    stores: tuple[str, ...] = ("*",)
    branches: tuple[str, ...] = ("*",)
    expires_in: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    """Seconds that it lives."""


class TokenOut(msgspec.Struct, omit_defaults=True):
    """A token without its secret."""

    name: str
    scope: str
    stores: tuple[str, ...]
    branches: tuple[str, ...]
    created: datetime
    expires: datetime | None = None
    used: datetime | None = None


class NewToken(msgspec.Struct):
    """A token with its secret, which is shown this once."""

    name: str
    token: str


@route("GET", "/audit", touches=administers_server, query=AuditQuery, answers={200: AuditAnswer}, tag="server")
def read_audit(call: Call) -> Any:
    """Who changed what and when, and who was refused: newest first."""
    log = call.server.audit
    if log is None:
        raise RefusedError(404, "this server keeps no audit log", hint="name a file for it in the configuration: audit")
    page = log.page(call.query.limit, call.query.cursor)
    return AuditAnswer(page.entries, page.cursor)


@route("GET", "/tokens", touches=administers_server, answers={200: list[TokenOut]}, tag="server")
def list_tokens(call: Call) -> Any:
    """The tokens, by name."""
    return [TokenOut(one.name, one.scope, one.stores, one.branches, one.created, one.expires, one.used)
            for one in _tokens(call).list()]  # fmt: skip


@route("POST", "/tokens", touches=administers_server, body=TokenIn, answers={201: NewToken}, tag="server")
def create_token(call: Call) -> Any:
    """Create a token. Its secret is in this answer alone."""
    wanted: TokenIn = call.body
    lifetime = None if wanted.expires_in is None else timedelta(seconds=wanted.expires_in)
    secret = _tokens(call).create(TokenRequest(wanted.name, wanted.scope, wanted.stores, wanted.branches, lifetime))
    return Reply(NewToken(wanted.name, secret), 201)


@route("DELETE", "/tokens/{name}", touches=administers_server, answers={204: None}, tag="server")
def revoke_token(call: Call) -> Any:
    """Revoke a token: the next request with it is refused."""
    _tokens(call).revoke(call.path["name"])
    return Reply(b"", 204)


def _tokens(call: Call) -> TokenFile:
    if call.server.tokens is None:
        raise RefusedError(404, "the tokens of this server cannot be managed over HTTP",
                           hint=f"a token of scope {TokenScope.ADMIN.name.lower()} manages them where it has a file")
    return call.server.tokens
