"""`onto pg URL`: the SQL tables at a URL behind PostgreSQL's protocol, until the process is told to end."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ontolake.cli.common.output import Json, Out
from ontolake.extras import needs

Url = Annotated[str, typer.Argument(metavar="URL", show_default=False, help="A store of SQL tables.")]
Port = Annotated[int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0 takes a free one.")]
Readonly = Annotated[bool, typer.Option("--readonly", help="Refuse all writes.")]


def pg(url: Url, port: Port = 5433, readonly: Readonly = False, json: Json = False) -> None:
    """Let psql and all that speaks PostgreSQL in to a store: [dim]onto pg shop.db[/].

    Says the connection URL with its password, for this machine alone, then answers until it gets SIGTERM or SIGINT.
    """
    with needs("server", "onto pg"):
        from ontolake.server.config import named_urls
        from ontolake.server.handles import ServedStores
        from ontolake.server.pg.listener import PgServer
        from ontolake.server.pg.startup import KnownCredentials
        from ontolake.server.process import LOCAL
        from ontolake.server.rights import Principal, TokenScope
        from ontolake.server.tokens import new_secret

    named = named_urls([url])
    stores, secret = ServedStores(named, readonly=named if readonly else ()), new_secret()
    try:
        server = PgServer(stores, KnownCredentials({secret: Principal(LOCAL, TokenScope.ADMIN)}), port=port)
        address = server.url(next(iter(named)), LOCAL, secret)
        out = Out(json)
        if json:
            out.document({"url": address})
        else:
            out.say(address)
        sys.stdout.flush()
        server.run()
    finally:
        stores.close()
