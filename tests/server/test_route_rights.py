"""Every route × every scope: none answers without a token, with too low a scope, with a token for another store or
with one for other branches. The table is made from the declarations, so that a new route is in it by itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from serving import Answer, Served, serving

from ontolake import sql
from ontolake.documents import Set, open_space
from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.model.types import type_info
from ontolake.ontology import Session
from ontolake.ontology.query import plan_wire
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.remote import schemas_for
from ontolake.server.api.stores import reads_something
from ontolake.server.rights import Principal, TokenScope
from ontolake.server.routes import ROUTES, SOCKETS, Route, nothing


class Thing(Entity):
    """A thing that is stored."""

    id: Field[str] = Field(primary_key=True)


GUARDED = [one for one in ROUTES if not one.open]
NEEDS = {
    "read_audit": "admin", "list_tokens": "admin", "create_token": "admin", "revoke_token": "admin", "erase": "admin",
    "post_blob": "write", "put_blob": "write", "create_branch": "write", "delete_branch": "write",
    "change_branch": "write", "create_tag": "write", "delete_tag": "write", "transact_documents": "write",
    "memory_transact": "write", "memory_branch_create": "write", "memory_branch_delete": "write", "merge": "merge",
    "revert": "write", "cherry_pick": "write", "restore": "write", "run_sql": "write", "get_blob": "read",
    "list_commits": "read", "show_commit": "read", "list_commit_changes": "read", "read_document": "read",
    "read_documents": "read", "document_history": "read", "diff": "read", "row_history": "read", "blame": "read",
    "metrics": "read", "show_snapshot": "read", "read_snapshot_rows": "read", "read_span": "read", "verify": "admin",
    "gc": "admin", "show_job": "admin", "describe_store": "read", "list_branches": "read", "list_tags": "read",
    "follow_changes": "read", "list_events": "read", "enqueue_event": "write", "list_dead_letters": "read",
    "retry_dead_letters": "write", "traverse_graph": "read", "search_graph": "read", "query_graph": "read",
    "commit_graph": "write", "run_query": "read", "write_rows": "write", "show_session_state": "read",
    "run_plan": "read", "commit_declared": "write", "list_tables": "read", "show_schema": "read", "read_rows": "read",
    "cancel_sql": "read", "list_stores": "read",
}  # fmt: skip
"""The scope that a route needs for the example below."""

VALUES: dict[str, Any] = {
    "name": "fresh", "sql": "INSERT INTO item VALUES (9)", "table": "item", "key": "1", "reason": "asked for",
    "source": "try", "commit": "main", "to": "main", "before": "main", "after": "try", "id": "a", "ids": ["a"],
    "rename": "renamed", "operations": [{"op": "set", "id": "a", "value": {"value": 2}}], "since": "main",
    "into": "main", "branch": "main", "ref": "main", "hash": "0" * 64, "type": "Thing", "steps": [], "hops": [],
    "types": schemas_for([type_info(Thing)]), "plan": plan_wire.encode(Plan(Thing)),
    "values": plan_wire.encode(Values()), "columns": [["id"]], "intents": {},
}  # fmt: skip
"""Examples by the name of a parameter: all are about `main` and `try`."""
STORES = {"documents": "notes", "memory": "notes", "blobs": "notes", "graph": "graph", "query": "typed",
          "session": "typed", "events": "typed"}  # fmt: skip
"""The store that a route is asked about, by what comes behind the store in its path; `shop` for all others."""
GIVEN_ANYWAY = {"rename", "branch", "ref", "into"}
"""Parameters that are sent although they have a default."""
SCOPES = ("reader", "writer", "merger", "admin")
ELSEWHERE = Principal("elsewhere", TokenScope.ADMIN, ("elsewhere",))
OTHERS = Principal("others", TokenScope.ADMIN, ("*",), ("other-*",))
TRIES = Principal("tries", TokenScope.READ, ("*",), ("try",))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("stores")
    with sql.open_database(str(folder / "shop.db")) as database:
        database.execute("CREATE TABLE item (id INT PRIMARY KEY)")
        database.branches.create("try")
        database.tags.create("first", "main")
    with open_space(f"{folder}/", "notes") as space:
        space.transact(*space.next_request(), [Set("a", {"value": 1})])
        space.branches.create("try")
    with Session(str(folder / "typed.db"), entity_types=[Thing]) as session:
        session.ensure(Thing(id="1"))
    with Session(str(folder / "typed.db")) as session:
        session.branches.create("try")
    with Graph.init(f"{folder}/graph", [Thing]) as graph:
        graph.branches.create("try")
    urls = {"shop": str(folder / "shop.db"), "notes": str(folder / "notes.sqlite"),
            "typed": str(folder / "typed.db"), "graph": f"{folder}/graph/"}  # fmt: skip
    with serving(urls, (ELSEWHERE, OTHERS, TRIES)) as found:
        yield found


def _example(kind: Any) -> dict[str, Any]:
    """Values for what a struct needs. Statements have one branch, which is `main` unless they say so."""
    fields = msgspec.structs.fields(kind)
    more = set() if any(one.name == "sql" for one in fields) else GIVEN_ANYWAY
    return {one.name: VALUES.get(one.name, "x") for one in fields if one.required or one.name in more}


def _ask(served: Served, route: Route, token: str | None) -> Answer:
    subject = route.path.removeprefix("/stores/{store}/").partition("/")[0]
    path = route.path.replace("{store}", STORES.get(subject, "shop")).replace(":path", "")
    for name in ("name", "hash", "commit", "id"):
        path = path.replace("{" + name + "}", VALUES[name])
    query = {} if route.query is None else _example(route.query)
    body = _example(route.body) if isinstance(route.body, type) and issubclass(route.body, msgspec.Struct) else None
    return served.call(route.method, f"/{path}" if route.root else path, token=token, json=body, **query)


def _named(route: Route) -> str:
    return route.name


@pytest.mark.parametrize("route", GUARDED, ids=_named)
def test_no_route_answers_without_a_token(served: Served, route: Route) -> None:
    for token in (None, "nobody", ""):
        answer = _ask(served, route, token)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer realm="ontolake"')
        assert answer.json["type"] == "RefusedError"


@pytest.mark.parametrize("route", [one for one in GUARDED if "{store}" in one.path], ids=_named)
def test_no_route_answers_a_token_for_another_store(served: Served, route: Route) -> None:
    answer = _ask(served, route, "elsewhere")
    assert (answer.status, answer.json["type"]) == (403, "ForbiddenError")


def test_the_table_of_scopes_has_every_route() -> None:
    assert set(NEEDS) == {one.name for one in GUARDED}


@pytest.mark.parametrize("route", GUARDED, ids=_named)
def test_no_route_answers_too_low_a_scope(served: Served, route: Route) -> None:
    needed = [one.name.lower() for one in TokenScope].index(NEEDS[route.name])
    for token in SCOPES[:needed]:
        answer = _ask(served, route, token)
        assert (answer.status, answer.json["type"]) == (403, "ForbiddenError"), (token, answer.body)
    answer = _ask(served, route, SCOPES[needed])
    assert answer.status not in (401, 403, 500), answer.body


@pytest.mark.parametrize("route", [one for one in GUARDED if one.touches not in (nothing, reads_something)], ids=_named)
def test_no_route_answers_a_token_for_other_branches(served: Served, route: Route) -> None:
    answer = _ask(served, route, "others")
    assert (answer.status, answer.json["type"]) == (403, "ForbiddenError"), answer.body


@pytest.mark.parametrize("route", [one for one in GUARDED if one.method in ("PUT", "PATCH", "DELETE")], ids=_named)
def test_no_reader_changes_anything(served: Served, route: Route) -> None:
    assert _ask(served, route, "reader").status >= 400


def test_lists_leave_out_what_a_token_may_not_see(served: Served) -> None:
    branches = served.call("GET", "/stores/shop/branches", token="tries").json["branches"]
    assert [one["name"] for one in branches] == ["try"]
    assert served.call("GET", "/stores/shop/tags", token="tries").json["tags"] == []
    assert served.call("GET", "/stores", token="elsewhere").json["stores"] == []


def test_a_store_that_is_not_there_looks_like_one_of_others(served: Served) -> None:
    answers = [served.call("GET", f"/stores/{name}", token="elsewhere") for name in ("shop", "nothing")]
    assert [one.status for one in answers] == [403, 403]
    assert served.call("GET", "/stores/nothing").status == 404


def test_what_is_about_the_whole_server_needs_a_token_for_all_of_it(served: Served) -> None:
    for path in ("/audit", "/tokens", "//metrics"):
        assert served.call("GET", path, token="elsewhere").status == 403
        assert served.call("GET", path, token="others").status == 403


def _opened(served: Served, route: Route, token: str | None, path: str = "?branch=main") -> int:
    """The status that the server answers the opening of a WebSocket with."""
    address = urlsplit(served.url)
    sent = [f"GET {route.address.replace('{store}', 'notes')}{path} HTTP/1.1", "host: x", "upgrade: websocket",
            "connection: Upgrade", "sec-websocket-version: 13", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="]
    if token is not None:
        sent.append(f"authorization: Bearer {served.tokens.get(token, token)}")
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=20) as connection:
        connection.sendall("\r\n".join([*sent, "", ""]).encode())
        return int(connection.recv(65536).split()[1])


@pytest.mark.parametrize("route", SOCKETS, ids=_named)
def test_no_socket_opens_without_the_right(served: Served, route: Route) -> None:
    assert _opened(served, route, None) == 401
    assert _opened(served, route, "nobody") == 401
    assert _opened(served, route, "elsewhere") == 403
    assert _opened(served, route, "reader") == 101
