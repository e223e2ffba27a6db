"""Destructive commands show first what they would do. To do it takes the token that the preview printed.

A token is made of everything that the preview showed, so it is void as soon as something has moved.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

import typer

from ontolake.errors import SafetyRefusal

Token = Annotated[str | None, typer.Option("--token", metavar="TOKEN", help="Do it; the preview prints the token.")]


class Refused(SafetyRefusal):
    """A destructive command without a token that fits what is there."""


def token_of(action: str, *state: Any) -> str:
    """The token for an action on things in this state."""
    return hashlib.sha256(json.dumps([action, *state]).encode()).hexdigest()[:12]


def check_token(given: str, expected: str) -> None:
    """Raise `Refused` unless the token is the one that a preview would print now."""
    if given != expected:
        raise Refused(f"the token {given!r} does not fit what is there now; nothing was changed",
                      hint="run the command without --token, look at the preview again, and use its token")
