"""The OpenAPI document, the page to try the API, and requests made from the document against stores of every model."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from served_places import MODELS
from serving import Served, serving
from versioned_places import PLACES

from ontolake.server import openapi
from ontolake.server.routes import ROUTES

EXAMPLES = int(os.environ.get("ONTOLAKE_SCHEMATHESIS_EXAMPLES", "6"))
"""How many requests are made for each route."""
CHECKS = [checks.not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
          checks.response_schema_conformance]  # fmt: skip
DOCUMENT = json.loads(openapi.document())
OPERATIONS = sorted((path, method) for path, methods in DOCUMENT["paths"].items() for method in methods)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("stores")
    places = {name: PLACES[kind](folder) for name, kind in MODELS.items()}
    for place in places.values():
        for n in range(3):
            place.write("main", {"a": {"f": n, "g": None}, f"k{n}": {"f": n, "g": n}})
    with serving({name: place.url for name, place in places.items()}) as running:
        yield running


def test_every_route_is_in_the_document_with_its_answers() -> None:
    for route in ROUTES:
        path = re.sub(r"{(\w+):\w+}", r"{\1}", route.address)
        operation = DOCUMENT["paths"][path][route.method.lower()]
        assert operation["summary"], route.name
        assert {str(status) for status in route.answers} | {"401", "404", "422"} <= set(operation["responses"])
    names = [one["operationId"] for methods in DOCUMENT["paths"].values() for one in methods.values()]
    assert len(set(names)) == len(names)


def test_the_page_to_try_it_has_no_asset_from_elsewhere(served: Served) -> None:
    page = served.call("GET", "//docs", token=None)
    policy = page.headers["content-security-policy"]
    assert (page.status, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    assert "unsafe" not in policy
    assert "script-src 'self'" in policy
    linked = re.findall(r'(?:src|href)="([^"]+)"', page.body.decode())
    assert len(linked) == 3
    for address in linked:
        assert served.call("GET", f"/{address}", token=None).status == 200
    assert b"<script>" not in page.body
    assert served.call("GET", "//docs/nothing.js", token=None).status == 404
    assert json.loads(served.call("GET", "//openapi.json", token=None).body) == DOCUMENT


def _aimed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with names that are there, so that requests get further than to a 404."""
    tables = ["entity/Recorded", "app.public.records", "node/SuiteRecord", "documents"]
    named = {"store": {"enum": list(MODELS)}, "table": {"anyOf": [{"enum": tables}, {"type": "string"}]},
             "ref": {"anyOf": [{"enum": ["main", "main~1", "@1"]}, {"type": "string"}]},
             "branch": {"anyOf": [{"enum": ["main"]}, {"type": "string"}]},
             "columns": {"enum": ["id", "id,f", "nope"]}, "order": {"enum": ["id", "-id", "f", "nope"]},
             "commit": {"anyOf": [{"enum": ["main", "main~1"]}, {"type": "string", "minLength": 1}]},
             "wait": {"enum": [0]}}  # fmt: skip
    copied: dict[str, Any] = json.loads(json.dumps(document))
    for methods in copied["paths"].values():
        for operation in methods.values():
            for parameter in operation["parameters"]:
                parameter["schema"] = named.get(parameter["name"], parameter["schema"])
    return copied


AIMED = schemathesis.openapi.from_dict(_aimed(DOCUMENT))


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=lambda one: one)
def test_no_request_is_answered_other_than_the_document_says(served: Served, path: str, method: str) -> None:
    operation = AIMED[path][method.upper()]
    headers = {"authorization": f"Bearer {served.tokens['admin']}"}

    @settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=EXAMPLES <= 10,
              suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(case=operation.as_strategy())
    def run(case: Any) -> None:
        answer = case.call(base_url=served.url, headers=headers, timeout=60)
        case.validate_response(answer, checks=CHECKS)

    run()
