"""The OpenAPI 3.1 document, from the declarations of routes: parameters, bodies, and every status and media type that
an answer may have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from ontolake import __version__
from ontolake.history import wire
from ontolake.server import api
from ontolake.server.problems import MEDIA_TYPE, Problem
from ontolake.server.routes import ROUTES, Route

_REFERENCES = "#/components/schemas/{name}"
PROBLEMS = {
    400: "The request is malformed.",
    401: "There is no valid token.",
    403: "The token does not allow it, or the branch is protected.",
    404: "Something that the request names is not there.",
    405: "The address does not take this method.",
    406: "No format that the request accepts can be sent.",
    408: "The request took too long to arrive.",
    409: "Somebody else was first, or a merge has conflicts.",
    410: "A position is not kept any more.",
    411: "The length of the body is missing.",
    412: "The head is not the commit that the request names.",
    413: "The body is too big.",
    415: "The body has a format that is not taken.",
    416: "The range is not there.",
    422: "The request is well formed, and does not fit.",
    429: "There are too many requests.",
    431: "The headers are too big.",
    500: "The server failed.",
    501: "A package that this needs is not installed.",
    503: "The server cannot do it now.",
}
"""What any route may answer besides what it declares."""


@cache
def document() -> bytes:
    """The document as JSON."""
    assert api  # importing it declares the routes
    return msgspec.json.encode(describe(ROUTES))


def describe(routes: Iterable[Route]) -> dict[str, Any]:
    """Routes as an OpenAPI document."""
    listed = list(routes)
    types = list(dict.fromkeys([Problem, *(one for route in listed for one in _types(route))], None))
    shown, components = msgspec.json.schema_components(types, ref_template=_REFERENCES)
    schemas = dict(zip(types, shown, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in listed:
        path = re.sub(r"{(\w+):\w+}", r"{\1}", route.address)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ontolake", "version": __version__, "description": "Data that keeps its history, over HTTP."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {str(status): {"description": said, "content": {
                kind: {"schema": schemas[Problem]} for kind in (MEDIA_TYPE, "application/json")}}
                for status, said in PROBLEMS.items()},
        },
        "security": [{"token": []}],
    }  # fmt: skip


def _types(route: Route) -> Iterable[Any]:
    if route.body is not None:
        yield route.body
    if route.query is not None:
        yield route.query
    for answer in route.answers.values():
        found = answer.values() if isinstance(answer, Mapping) else () if isinstance(answer, tuple) else (answer,)
        yield from (one for one in found if one is not None)


def _operation(route: Route, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.name, "summary": route.summary, "tags": [route.tag or "server"],
        "parameters": _parameters(route), "responses": _responses(route, schemas)}  # fmt: skip
    if route.open:
        found["security"] = []
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schemas[route.body]}}}
    elif route.takes != ("application/json",):
        found["requestBody"] = {"required": True, "content": {kind: {} for kind in route.takes}}
    return found


def _parameters(route: Route) -> list[dict[str, Any]]:
    found = [{"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
             for name in re.findall(r"{(\w+)(?::\w+)?}", route.path)]  # fmt: skip
    if route.query is not None:
        (_,), components = msgspec.json.schema_components([route.query], ref_template=_REFERENCES)
        described = components[route.query.__name__]
        required = set(described.get("required", ()))
        for name, schema in described["properties"].items():
            found.append({"name": name, "in": "query", "required": name in required, "schema": _given(schema)})
    for name, said in route.headers.items():
        if name != "accept":  # what is accepted stands with the answers
            found.append({"name": name, "in": "header", "required": False, "description": said,
                          "schema": {"type": "string"}})  # fmt: skip
    return found


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter: one that may be left out is never null."""
    options = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if not options:
        return schema
    return options[0] if len(options) == 1 else {"anyOf": options}


def _responses(route: Route, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, answer in route.answers.items():
        content: dict[str, Any] = {}
        if isinstance(answer, Mapping):
            content = {kind: {} if one is None or kind == wire.MEDIA_TYPE else {"schema": schemas[one]}
                       for kind, one in answer.items()}  # fmt: skip
        elif isinstance(answer, tuple):
            content = {kind: {} for kind in answer}
        elif answer is not None:
            content = {kind: {} if kind == wire.MEDIA_TYPE else {"schema": schemas[answer]} for kind in route.forms}
        found[str(status)] = {"description": "What was asked for.", **({"content": content} if content else {})}
    for status in PROBLEMS:
        found.setdefault(str(status), {"$ref": f"#/components/responses/{status}"})
    return found
