"""Whatever is sent, no request is answered with 500, and the server goes on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving import Answer, Served, serving

from ontolake import sql
from ontolake.documents import Set, open_space
from ontolake.server.routes import ROUTES, Route

ROUTE = st.sampled_from([one for one in ROUTES if not one.open])
TEXT = st.text(max_size=12) | st.sampled_from(["main", "try", "item", "@1", "main~1", "a", "1", "0", "-1", "", "[1]"])
JSON = st.recursive(st.none() | st.booleans() | st.integers(-2**70, 2**70) | st.floats() | TEXT, lambda inner:
                    st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8)  # fmt: skip
NAMES = st.sampled_from(["ref", "branch", "table", "key", "limit", "cursor", "since", "until", "before", "after", "id",
                         "seq"])
HEADERS = st.dictionaries(
    st.sampled_from(["accept", "if-match", "if-none-match", "range", "idempotency-key", "x-request-id", "content-type",
                     "origin", "traceparent", "sec-websocket-protocol", "content-encoding"]),
    st.binary(max_size=30).map(lambda data: data.decode("latin-1").translate(dict.fromkeys((*range(32), 127), 32))),
    max_size=3)  # fmt: skip
QUICK = settings(max_examples=150, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("stores")
    with sql.open_database(str(folder / "shop.db")) as database:
        database.execute("CREATE TABLE item (id INT PRIMARY KEY)")
        database.branches.create("try")
    with open_space(f"{folder}/", "notes") as space:
        space.transact(*space.next_request(), [Set("a", {"value": 1})])
    with serving({"shop": str(folder / "shop.db"), "notes": str(folder / "notes.sqlite")}) as found:
        yield found


def _path(route: Route, store: str, part: str) -> str:
    path = route.path.replace("{store}", store)
    while "{" in path:
        start = path.index("{")
        path = path[:start] + quote(part.encode("utf-8", "surrogatepass"), safe="") + path[path.index("}") + 1 :]
    return f"/{path}" if route.root else path


def _check(answer: Answer) -> None:
    assert answer.status != 500, answer.body
    if answer.status >= 400:
        assert answer.json["status"] == answer.status


@pytest.mark.slow
@QUICK
@given(route=ROUTE, store=st.sampled_from(["shop", "notes"]), part=TEXT, body=st.binary(max_size=60))
def test_bytes_for_a_body(served: Served, route: Route, store: str, part: str, body: bytes) -> None:
    path = _path(route, store, part)
    _check(served.call(route.method, path, body=body, headers={"content-type": "application/json"}))


@pytest.mark.slow
@QUICK
@given(route=ROUTE, store=st.sampled_from(["shop", "notes"]), part=TEXT, body=JSON,
       query=st.dictionaries(NAMES, TEXT, max_size=4), headers=HEADERS)  # fmt: skip
def test_values_and_headers(
    served: Served, route: Route, store: str, part: str, body: object, query: dict[str, str], headers: dict[str, str]
) -> None:
    if route.body is not None and isinstance(body, dict):
        body = {**body, "branch": "main"}
    _check(served.call(route.method, _path(route, store, part), json=body, headers=headers, **query))


@pytest.mark.slow
@settings(QUICK, max_examples=60)
@given(st.lists(st.binary(max_size=40) | st.sampled_from([
    b"GET / HTTP/1.1\r\n", b"POST /api/v1/stores HTTP/1.1\r\n", b"host: x\r\n", b"content-length: -1\r\n", b"\r\n",
    b"content-length: 99999999999999999999\r\n", b"transfer-encoding: chunked\r\n", b"zz\r\n",
    b"upgrade: websocket\r\n", b"connection: upgrade\r\n",
    b"sec-websocket-key: x\r\n", b"expect: 100-continue\r\n"]), max_size=8))  # fmt: skip
def test_bytes_on_the_socket(served: Served, pieces: list[bytes]) -> None:
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=20) as connection:
        connection.sendall(b"".join(pieces))
        connection.shutdown(socket.SHUT_WR)
        said = b""
        try:
            while data := connection.recv(65536):
                said += data
        except (ConnectionResetError, TimeoutError):
            pass
    assert b" 500 " not in said
    assert served.call("GET", "//healthz", token=None).status == 200
