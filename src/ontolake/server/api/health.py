"""`/healthz` and `/readyz`: whether the process lives, and whether it takes requests."""

from __future__ import annotations

from typing import Any

import msgspec

from ontolake import __version__
from ontolake.server.routes import Call, nothing, route


class Health(msgspec.Struct):
    """That the process lives, with its version."""

    status: str
    version: str


@route("GET", "/healthz", root=True, open=True, touches=nothing, answers={200: Health}, tag="server")
def healthz(call: Call) -> Any:
    """Whether the server lives, and its version."""
    return Health("ok", __version__)
