"""`/openapi.json`, and `/docs`, a page to try the API. Its files are our own and come from this server alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ontolake.server import openapi
from ontolake.server.problems import RefusedError
from ontolake.server.routes import Call, Reply, nothing, route

_STATIC = Path(__file__).parents[1] / "static"
_KINDS = {"docs.js": "text/javascript", "docs.css": "text/css"}
_POLICY = {"content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
           "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"}  # fmt: skip


@route("GET", "/openapi.json", root=True, open=True, touches=nothing, answers={200: ("application/json",)},
       tag="server")
def show_document(call: Call) -> Any:
    """This document."""
    return Reply(openapi.document())


@route("GET", "/docs", root=True, open=True, touches=nothing, answers={200: ("text/html",)}, tag="server")
def show_docs(call: Call) -> Any:
    """A page to try the API."""
    return Reply((_STATIC / "docs.html").read_bytes(), headers=_POLICY, media_type="text/html")


@route("GET", "/docs/{file}", root=True, open=True, touches=nothing,
       answers={200: ("text/javascript", "text/css")}, tag="server")
def show_docs_file(call: Call) -> Any:
    """A file of the page to try the API."""
    name = call.path["file"]
    if name not in _KINDS:
        raise RefusedError(404, f"there is no file {name!r}")
    return Reply((_STATIC / name).read_bytes(), headers=_POLICY, media_type=_KINDS[name])
