"""`onto serve` without the command line: a server from its configuration, from its first check to its last close."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ontolake.extras import needs
from ontolake.server.app import ServerOptions, StoreServer
from ontolake.server.audit import AuditLog
from ontolake.server.config import ServerConfig, default_audit, default_tokens
from ontolake.server.handles import ServedStores
from ontolake.server.listener import Listener
from ontolake.server.rights import Principal, TokenScope
from ontolake.server.tokens import TokenFile, digest, new_secret

if TYPE_CHECKING:
    import ssl

    from ontolake.server.pg.listener import PgServer

LOCAL = "local"
"""The name of the token that a server on loopback makes for itself, which lives as long as it."""


class Ready(NamedTuple):
    """A server that is about to listen: where, and with which token of its own (None if it uses a file of tokens)."""

    listener: Listener
    address: str
    token: str | None
    names: tuple[str, ...]
    pg: PgServer | None = None
    """PostgreSQL's protocol, if it is spoken."""


@contextmanager
def prepared(config: ServerConfig) -> Iterator[Ready]:
    """A server that is bound and checked; run its listener in the block. Afterwards stores are closed, which gives
    leases back.

    Raises `SafetyRefusal` for what is not safe, `Invalid` for a wrong configuration, and what `stores.find` raises.
    """
    tokens = TokenFile(default_tokens() if config.tokens is None else config.tokens)
    has_tokens = bool(tokens.list())
    config.check(has_tokens=has_tokens)
    tls = config.tls_context()
    with ExitStack() as stack:
        served = config.served()
        stores = ServedStores({name: one.url for name, one in served.items()},
                              readonly=[name for name, one in served.items() if one.readonly])
        stack.callback(stores.close)
        audit = AuditLog(_audit_path(config))
        stack.callback(audit.close)
        own = new_secret() if config.is_local and (config.tokens is None or not has_tokens) else None
        stack.callback(tokens.save_uses)
        server = StoreServer(stores, _authenticate(tokens, own),
                             ServerOptions(config.limits, config.cors.origins, audit, tokens))  # fmt: skip
        pg = None if config.pg is None else _pg_server(config, stores, tokens, own, audit, tls)
        listener = Listener(server.app(), host=config.host, port=config.port, limits=config.limits,
                            closing=server.closing, tls=tls, beside=pg)
        yield Ready(listener, listener.address, own, tuple(served), pg)


def _pg_server(
    config: ServerConfig, stores: ServedStores, tokens: TokenFile, own: str | None, audit: AuditLog,
    tls: ssl.SSLContext | None,
) -> PgServer:  # fmt: skip
    """The server of PostgreSQL's protocol. Raises `Invalid` if its address cannot be had."""
    with needs("sql", "PostgreSQL's protocol"):
        from ontolake.server.pg.listener import PgOptions, PgServer
        from ontolake.server.pg.startup import KnownCredentials, TokenCredentials

    local = {} if own is None else {own: Principal(LOCAL, TokenScope.ADMIN)}
    assert config.pg is not None
    return PgServer(stores, KnownCredentials(local, TokenCredentials(tokens)),
                    PgOptions(config.limits, audit, tls, config.insecure), host=config.host, port=config.pg)


def _audit_path(config: ServerConfig) -> Path:
    if config.audit is not None:
        return Path(config.audit)
    path = default_audit()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def _authenticate(tokens: TokenFile, own: str | None) -> Callable[[str], Principal | None]:
    if own is None:
        return tokens.authenticate
    stored, local = digest(own), Principal(LOCAL, TokenScope.ADMIN)

    def authenticate(token: str) -> Principal | None:
        return local if hmac.compare_digest(digest(token), stored) else tokens.authenticate(token)

    return authenticate
