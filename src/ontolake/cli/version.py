"""`onto version` and `onto --version`: which versions this build speaks."""

from __future__ import annotations

import platform
from typing import Annotated

import typer

from ontolake import __version__
from ontolake.cli.common.output import Json, Out, titled


def _say(wanted: bool) -> None:
    if wanted:
        Out(False).say(f"onto {__version__}")
        raise typer.Exit


def show_version(
    wanted: Annotated[bool, typer.Option("--version", callback=_say, is_eager=True,
                                         help="Show the version and exit.")] = False,
) -> None:  # fmt: skip
    """What `onto` itself takes, before any command."""


def version(json: Json = False) -> None:
    """Versions of Ontolake, of the storage seam, of the page format and of Python."""
    from ontolake.server.versions import stored_versions

    out, stored = Out(json), stored_versions()
    facts = {
        "ontolake": __version__,
        **{name: stored[name] for name in ("storage_trait", "page_format", "internal_schema")},
        "python": platform.python_version(),
    }
    if json:
        out.document(facts)
    else:
        out.facts({titled(name): value for name, value in facts.items()})
