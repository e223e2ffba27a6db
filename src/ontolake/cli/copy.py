"""`onto copy URL TARGET`: a store with all its history in another place."""

from __future__ import annotations

from typing import Annotated

import typer

from ontolake.cli.common.output import Json, Out, Url, progress, size


def copy(
    url: Url,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Where the copy goes: a place with nothing in it.")],
    json: Json = False,
) -> None:
    """Copy a store with every commit, branch and tag. [bold]onto convert[/] does it for typed stores of v1 and v2.

    The layout of the copy is that of TARGET. Nothing is there until all is.
    """
    from ontolake.copies import copy as copy_store

    out = Out(json)
    with progress(json) as advance:
        copied = copy_store(url, target, advance)
    if json:
        out.document(copied._asdict())
    else:
        out.say(f"copied {copied.source} to {copied.target}: {size(copied.bytes)}")
