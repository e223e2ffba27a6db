"""`onto serve URL…`: the stores at URLs behind HTTP, until the process is told to end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ontolake.cli.common.output import Json, Out

if TYPE_CHECKING:
    from ontolake.server.config import ServerConfig

Urls = Annotated[list[str] | None, typer.Argument(metavar="[URL]…", show_default=False,
                                                  help="Stores, or folders of spaces. Names are those of the files.")]
Config = Annotated[str | None, typer.Option("--config", metavar="FILE", show_default=False,
                                            help="A TOML file with names, URLs, tokens, limits and TLS.")]
Host = Annotated[str | None, typer.Option("--host", metavar="HOST", show_default=False,
                                          help="Where to listen; this machine alone unless given.")]
Port = Annotated[int | None, typer.Option("--port", metavar="PORT", min=0, max=65535, show_default=False,
                                          help="8400 unless given; 0 takes a free one.")]
Pg = Annotated[int | None, typer.Option("--pg", metavar="PORT", min=0, max=65535, show_default=False,
                                        help="Speak PostgreSQL's protocol too, at this port; 0 takes a free one.")]
Tokens = Annotated[str | None, typer.Option("--tokens", metavar="FILE", show_default=False,
                                            help="The file of tokens.")]
Audit = Annotated[str | None, typer.Option("--audit", metavar="FILE", show_default=False, help="The audit log.")]
Readonly = Annotated[bool, typer.Option("--readonly", help="Refuse all writes.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Let tokens and data cross a network unencrypted.")]

_SWITCH = 0.001
"""Seconds that a thread may keep the interpreter while the event loop waits for it."""


def serve(
    urls: Urls = None, config: Config = None, host: Host = None, port: Port = None, tokens: Tokens = None,
    audit: Audit = None, readonly: Readonly = False, insecure: Insecure = False, pg: Pg = None, json: Json = False,
) -> None:  # fmt: skip
    """Serve stores over HTTP: [dim]onto serve shop.db s3://lake/graph ./spaces/[/].

    Says the address and a token, then answers until it gets SIGTERM or SIGINT; what is under way is finished first.
    """
    given = {"host": host, "port": port, "tokens": tokens, "audit": audit, "readonly": readonly or None,
             "insecure": insecure or None, "pg": pg}  # fmt: skip
    found = _config(urls or [], config, {name: value for name, value in given.items() if value is not None})

    from ontolake import lazy_pandas
    from ontolake.server.process import LOCAL, prepared
    from ontolake.server.telemetry import log_to_stderr

    lazy_pandas.forgo()
    with prepared(found) as ready:
        log_to_stderr(found.log_level)
        out = Out(json)
        if json:
            out.document({"address": ready.address, "token": ready.token, "stores": list(ready.names)} |
                         ({} if ready.pg is None else {"pg": ready.pg.port}))
        else:
            out.say(f"serving {', '.join(ready.names)} at {ready.address}")
            out.say(f"token: {ready.token}" if ready.token is not None else "tokens: those of onto token list")
            if ready.pg is not None:
                out.say(f"PostgreSQL: {ready.pg.url(ready.names[0], LOCAL if ready.token else 'NAME')}")
        sys.stdout.flush()
        sys.setswitchinterval(_SWITCH)
        ready.listener.run()


def _config(urls: list[str], path: str | None, given: dict[str, Any]) -> ServerConfig:
    """The configuration in a file, with what the command line says in its place."""
    import msgspec

    from ontolake.server.config import ServerConfig, named_urls, read_config

    config = ServerConfig() if path is None else read_config(path)
    if urls:
        given["stores"] = {**config.stores, **named_urls(urls)}
    return msgspec.structs.replace(config, **given)
