"""`onto version` and `onto --version`: which versions this build speaks."""

from __future__ import annotations

import pkgutil
import platform
import re
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
    out = Out(json)
    facts = {
        "ontolake": __version__,
        "storage_trait": _constant("storage/protocol.py", "STORAGE_TRAIT_VERSION"),
        "page_format": _constant("storage/medium.py", "FORMAT_VERSION"),
        "internal_schema": _constant("graph/commit/manifest.py", "INTERNAL_SCHEMA_VERSION"),
        "python": platform.python_version(),
    }
    if json:
        out.document(facts)
    else:
        out.facts({titled(name): value for name, value in facts.items()})


def _constant(module: str, name: str) -> int:
    """A number that a module defines, read from its source: importing the seam for it would take most of the time."""
    source = (pkgutil.get_data("ontolake", module) or b"").decode()
    found = re.search(rf"^{name} = (\d+)$", source, re.MULTILINE)
    assert found is not None, f"{module} defines no {name}"
    return int(found[1])
