"""`onto token`: who may use a server, and for what."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from ontolake.cli.common.output import Heading, Json, Out
from ontolake.errors import Invalid

if TYPE_CHECKING:
    from ontolake.server.tokens import TokenFile

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Create, list and revoke tokens of a server.")

Tokens = Annotated[str | None, typer.Option("--tokens", metavar="FILE", show_default=False,
                                            help="The file of tokens; ONTO_TOKENS, else one of this user.")]
Name = Annotated[str, typer.Option("--name", metavar="NAME", help="Whose it is: the author of its commits.")]
Scope = Annotated[str, typer.Option("--scope", metavar="SCOPE", help="read, write, merge or admin.")]
Store = Annotated[list[str] | None, typer.Option("--store", metavar="PATTERN", show_default=False,
                                                 help="Stores that it is for, as shop or shop-*; all unless given.")]
Branch = Annotated[list[str] | None, typer.Option("--branch", metavar="PATTERN", show_default=False,
                                                  help="Branches that it is for, as try-*; all unless given.")]
Expires = Annotated[str | None, typer.Option("--expires", metavar="TIME", show_default=False,
                                             help="How long it lives: 30d, 12h, 90m; for ever unless given.")]
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_COLUMNS = (Heading("name", whole=True), Heading("scope"), Heading("stores"), Heading("branches"),
            Heading("expires", whole=True), Heading("last used", whole=True))


@app.command("create")
def create(
    name: Name, scope: Scope = "read", store: Store = None, branch: Branch = None, expires: Expires = None,
    tokens: Tokens = None, json: Json = False,
) -> None:  # fmt: skip
    """Make a token and show it, this once. Servers that run take it at once."""
    from ontolake.server.tokens import TokenRequest

    file = _file(tokens)
    if tokens is None:
        file.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    wanted = TokenRequest(name, scope, tuple(store or ("*",)), tuple(branch or ("*",)), _lifetime(expires))
    secret = file.create(wanted)
    out = Out(json)
    if json:
        out.document({"name": name, "token": secret})
    else:
        out.say(secret)


@app.command("list")
def list_tokens(tokens: Tokens = None, json: Json = False) -> None:
    """The tokens with what they allow and when they were last used; never their secrets."""
    found, out = _file(tokens).list(), Out(json)
    if json:
        out.document({"tokens": [
            {"name": one.name, "scope": one.scope, "stores": list(one.stores), "branches": list(one.branches),
             "created": one.created.isoformat(), "expires": one.expires and one.expires.isoformat(),
             "used": one.used and one.used.isoformat()} for one in found]})  # fmt: skip
    else:
        out.stream(_COLUMNS, [(one.name, one.scope, " ".join(one.stores), " ".join(one.branches),
                               one.expires and f"{one.expires:%Y-%m-%d %H:%M}",
                               one.used and f"{one.used:%Y-%m-%d %H:%M}") for one in found])  # fmt: skip


@app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The token.")], tokens: Tokens = None, json: Json = False
) -> None:
    """Remove a token: servers refuse it from their next request on."""
    _file(tokens).revoke(name)
    out = Out(json)
    if json:
        out.document({"revoked": name})
    else:
        out.say(f"revoked {name}")


def _file(tokens: str | None) -> TokenFile:
    from ontolake.server.config import default_tokens
    from ontolake.server.tokens import TokenFile

    return TokenFile(default_tokens() if tokens is None else tokens)


def _lifetime(text: str | None) -> timedelta | None:
    """How long `--expires` means. Raises `Invalid`."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    if found is None:
        raise Invalid(f"--expires cannot be {text!r}", hint="write 90m, 12h, 30d or 8w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
