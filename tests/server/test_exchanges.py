"""The way of every request: limits, origins, headers, the audit log, metrics, logs and spans."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from opentelemetry import trace
from serving import Served, serving
from waiting import wait_for

from ontolake import sql
from ontolake.server import telemetry
from ontolake.server.app import ServerOptions
from ontolake.server.audit import AuditLog
from ontolake.server.limits import Limits

SQL = "/stores/shop/sql"
ONE = {"sql": "SELECT 1 AS one"}


@pytest.fixture
def shop(tmp_path: Path) -> dict[str, str]:
    with sql.open_database(str(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE item (id INT PRIMARY KEY)")
    return {"shop": str(tmp_path / "shop.db")}


@contextmanager
def limited(shop: dict[str, str], **limits: Any) -> Iterator[Served]:
    with serving(shop, options=ServerOptions(Limits(**limits))) as served:
        yield served


@contextmanager
def sending(served: Served, data: bytes) -> Iterator[socket.socket]:
    """A connection on which some bytes were sent."""
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=20) as connection:
        connection.sendall(data)
        yield connection


def _begun(size: int, token: str = "admin-secret") -> bytes:
    """A request whose body is on its way."""
    return (f"POST /api/v1{SQL} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
            f"content-length: {size}\r\n\r\n{{").encode()  # fmt: skip


def _everything(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    found = b""
    with suppress(ConnectionResetError):  # by a server that has not read all that was sent
        while data := connection.recv(65536):
            found += data
    return found


# limits


def test_a_body_that_is_too_large_is_refused(shop: dict[str, str]) -> None:
    with limited(shop, body=1000) as served:
        answer = served.call("POST", SQL, json={"sql": "SELECT 1 -- " + "x" * 1000})
        assert (answer.status, answer.json["type"]) == (413, "RefusedError")
        assert "1000 bytes" in answer.json["title"]
        with sending(served, _begun(10**9)) as connection:
            assert b"413" in _everything(connection).split(b"\r\n")[0]
        chunked = _begun(0).replace(b"content-length: 0", b"transfer-encoding: chunked")[:-1]
        with sending(served, chunked + b"7d0\r\n" + b" " * 2000 + b"\r\n") as connection:
            assert b"413" in _everything(connection).split(b"\r\n")[0]
        assert served.call("POST", SQL, json=ONE).status == 200


def test_requests_of_a_token_are_limited_and_those_of_others_are_not(shop: dict[str, str]) -> None:
    with limited(shop, token_requests=2) as served, sending(served, _begun(10)), sending(served, _begun(10)):
        wait_for(lambda: served.server.slots.taken == 2)
        answer = served.call("POST", SQL, json=ONE)
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert served.call("POST", SQL, token="reader", json=ONE).status == 200
        assert served.call("GET", "//healthz", token=None).status == 200


def test_all_requests_together_are_limited(shop: dict[str, str]) -> None:
    with limited(shop, requests=1) as served:
        with sending(served, _begun(10)):
            wait_for(lambda: served.server.slots.taken == 1)
            assert served.call("POST", SQL, token="reader", json=ONE).status == 429
        wait_for(lambda: served.server.slots.taken == 0)
        assert served.call("POST", SQL, token="reader", json=ONE).status == 200


def test_a_body_that_does_not_go_on_is_given_up(shop: dict[str, str]) -> None:
    with limited(shop, idle_seconds=0.2) as served, sending(served, _begun(10)) as connection:
        assert b"408" in _everything(connection).split(b"\r\n")[0]


def test_headers_that_do_not_end_are_given_up(shop: dict[str, str]) -> None:
    with limited(shop, header_seconds=0.2) as served:
        with sending(served, b"") as connection:
            assert _everything(connection) == b""
        with sending(served, b"GET /healthz HTTP/1.1\r\nx: ") as connection:
            assert _everything(connection) == b""


def test_headers_without_end_are_refused(shop: dict[str, str]) -> None:
    with serving(shop) as served:
        with sending(served, b"GET /healthz HTTP/1.1\r\nx: " + b"x" * 200_000) as connection:
            assert b"200" not in _everything(connection).split(b"\r\n")[0]
        assert served.call("GET", "//healthz", token=None).status == 200


def test_what_takes_too_long_is_given_up(shop: dict[str, str]) -> None:
    with limited(shop, seconds=0.001) as served:
        statuses = {served.call("GET", "/stores/shop/commits").status for _ in range(20)}
        assert 503 in statuses
        assert statuses <= {200, 503}


def test_a_server_that_goes_down_says_so(shop: dict[str, str]) -> None:
    with serving(shop) as served:
        served.server.closing.set()
        answer = served.call("POST", SQL, json=ONE)
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert served.call("GET", "//healthz", token=None).status == 200


# origins


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"origin": "null"},
                                     {"sec-fetch-site": "cross-site"}, {"origin": "http://127.0.0.1"}])
def test_pages_of_other_origins_change_nothing(shop: dict[str, str], headers: dict[str, str]) -> None:
    with serving(shop) as served:
        answer = served.call("POST", SQL, json={"sql": "INSERT INTO item VALUES (1)"}, headers=headers)
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers
        assert served.call("POST", SQL, json={"sql": "SELECT * FROM item"}).json["rows"] == []


def test_pages_of_the_server_itself_and_of_allowed_origins_may(shop: dict[str, str]) -> None:
    page = "https://shop.example"
    with serving(shop, options=ServerOptions(origins=[page])) as served:
        assert served.call("POST", SQL, json=ONE, headers={"origin": served.url}).status == 200
        answer = served.call("POST", SQL, json=ONE, headers={"origin": page})
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, page)
        asked = {"origin": page, "access-control-request-method": "POST"}
        answer = served.call("OPTIONS", SQL, token=None, headers=asked)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, page)
        asked["origin"] = "https://evil.example"
        assert served.call("OPTIONS", SQL, token=None, headers=asked).status == 403


def test_answers_are_shared_with_no_origin_unless_it_is_allowed(shop: dict[str, str]) -> None:
    with serving(shop) as served:
        answer = served.call("GET", "/stores", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in answer.headers


def test_sockets_of_other_origins_are_refused(shop: dict[str, str]) -> None:
    upgrade = (b"GET /api/v1/stores/shop/sync HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
               b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n"
               b"origin: https://evil.example\r\n\r\n")  # fmt: skip
    with serving(shop) as served, sending(served, upgrade) as connection:
        assert b"403" in _everything(connection).split(b"\r\n")[0]


def test_every_answer_has_the_headers_that_protect_browsers(shop: dict[str, str]) -> None:
    with serving(shop) as served:
        for answer in (served.call("GET", "//healthz", token=None), served.call("GET", "/stores", token=None),
                       served.call("GET", "/nothing"), served.call("PUT", "/stores")):  # fmt: skip
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["cache-control"] == "no-store"


def test_what_is_no_route_is_a_problem_document(shop: dict[str, str]) -> None:
    with serving(shop) as served:
        for answer, status in ((served.call("GET", "/nothing"), 404), (served.call("PUT", "/stores"), 405)):
            assert (answer.status, answer.json["status"]) == (status, status)
            assert answer.headers["content-type"] == "application/problem+json"


def test_a_request_id_is_kept_if_it_is_one(shop: dict[str, str]) -> None:
    with serving(shop) as served:
        assert served.call("GET", "/stores", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
        for wrong in ("a b", "x" * 200, "é"):
            sent = served.call("GET", "/stores", headers={"x-request-id": wrong}).headers["x-request-id"]
            assert sent != wrong
            assert len(sent) == 32


# what is noted


def test_the_audit_log_has_what_changed_and_what_was_refused(shop: dict[str, str], tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    with serving(shop, options=ServerOptions(audit=log)) as served:
        served.call("GET", "/stores")
        served.call("POST", SQL, token="writer", json={"sql": "INSERT INTO item VALUES (1)"})
        served.call("POST", SQL, token="reader", json={"sql": "INSERT INTO item VALUES (2)"})
        served.call("GET", "/stores", token="nobody")
        wait_for(lambda: log.path.read_bytes().count(b"\n") == 3)
        page = served.call("GET", "/audit", limit=2).json
        assert [(one["token"], one["status"]) for one in page["entries"]] == [("", 401), ("reader", 403)]
        rest = served.call("GET", "/audit", limit=2, cursor=page["cursor"]).json
        assert "cursor" not in rest
        assert rest["entries"] == [json.loads(log.path.read_text().splitlines()[0])]
        (entry,) = rest["entries"]
        assert entry["time"].endswith("+00:00")
        assert {**entry, "time": "", "request_id": ""} == {
            "time": "", "request_id": "", "token": "writer", "address": "127.0.0.1", "method": "POST",
            "path": "/api/v1/stores/shop/sql", "operation": "run_sql", "status": 200, "store": "shop"}  # fmt: skip
        assert served.call("GET", "/audit", cursor=10**9).status == 400
    assert log.path.stat().st_mode & 0o777 == 0o600
    log.close()


def test_the_audit_log_is_read_page_by_page(tmp_path: Path) -> None:
    from ontolake.server.audit import AuditEntry

    log = AuditLog(tmp_path / "audit.jsonl")
    for number in range(1000):
        log.append(AuditEntry("", str(number), "", "", "GET", "/" + "x" * 300, "", 200))
    found, cursor = [], None
    while True:
        page = log.page(70, cursor)
        found += [int(one.request_id) for one in page.entries]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == list(range(999, -1, -1))
    log.close()


def test_metrics_count_requests_by_route(shop: dict[str, str]) -> None:
    with serving(shop) as served:
        served.call("POST", SQL, json=ONE)
        served.call("POST", SQL, token=None, json=ONE)
        served.call("POST", SQL, json={"sql": "INSERT INTO item VALUES (1)"})
        with served.server.stores.get("shop").writing(requests=2):
            pass
        text = served.call("GET", "//metrics").body.decode()
        where = 'method="POST",route="/api/v1/stores/{store}/sql"'
        for line in (f'ontolake_requests_total{{{where},status="200"}} 2.0', 'ontolake_commits_total{store="shop"} 2.0',
                     "ontolake_sql_batches_total", "ontolake_sql_transactions_total",
                     f'ontolake_requests_total{{{where},status="401"}} 1.0', 'ontolake_handles{store="shop"}',
                     'ontolake_group_commit_size_sum{store="shop"} 3.0', "ontolake_requests_in_flight 1.0",
                     'ontolake_request_seconds_count{route="/api/v1/stores/{store}/sql"} 3.0',
                     'ontolake_cache_bytes{store="shop"}'):  # fmt: skip
            assert line in text, line


def test_requests_are_logged_as_lines_of_json(shop: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    with serving(shop) as served, caplog.at_level(logging.INFO, "ontolake.server.requests"):
        served.call("GET", "/stores", headers={"x-request-id": "seen"})
        wait_for(lambda: caplog.records)
    line = json.loads(telemetry.JsonLines().format(caplog.records[0]))
    facts = [line[name] for name in ("request_id", "status", "token", "operation")]
    assert facts == ["seen", 200, "admin", "list_stores"]
    assert "secret" not in json.dumps(line)


class _Span(trace.NonRecordingSpan):
    def __init__(self, name: str, attributes: dict[str, Any], context: trace.SpanContext) -> None:
        super().__init__(context)
        self.name, self.attributes = name, dict(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value


class _Tracer:
    """Remembers spans, as an SDK would."""

    def __init__(self) -> None:
        self.spans: list[_Span] = []

    @contextmanager
    def start_as_current_span(self, name: str, context: Any, attributes: dict[str, Any], **_: Any) -> Iterator[_Span]:
        self.spans.append(_Span(name, attributes, trace.get_current_span(context).get_span_context()))
        yield self.spans[-1]


def test_spans_have_stable_names_and_belong_to_the_trace_of_the_client(
    shop: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = _Tracer()
    monkeypatch.setattr(telemetry, "_tracer", tracer)
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)  # as where one was installed
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with serving(shop) as served:
        served.call("GET", "/stores/shop", headers={"traceparent": parent})
        served.call("GET", "/stores/shop/blame", table="item", key="1")
    first, second = tracer.spans
    assert f"{first.get_span_context().trace_id:032x}" == parent.split("-")[1]
    assert first.attributes == {
        "db.system.name": "ontolake", "db.operation.name": "describe_store", "db.namespace": "shop",
        "db.query.summary": "describe_store shop", "db.response.status_code": "200"}  # fmt: skip
    assert second.attributes["db.collection.name"] == "item"
    assert second.attributes["error.type"] == "NotFound" or second.attributes["db.response.status_code"] == "404"
