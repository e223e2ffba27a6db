"""Typed queries and events over HTTP: the filters of `onto query`, at any commit, and the queue."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from serving import Served, serving

from ontolake import Entity, Field, Relation, Session
from ontolake.ontology import Event, on_event
from ontolake.server.rights import Principal, TokenScope

TRY = Principal("try", TokenScope.WRITE, branches=("try-*",))


class Buyer(Entity):
    id: Field[str] = Field(primary_key=True)
    tier: Field[str]
    age: Field[int]


class Basket(Entity):
    id: Field[str] = Field(primary_key=True)
    total: Field[float]


class Filled(Relation[Buyer, Basket]):
    count: Field[int]


class Broken(Event):
    what: str


@on_event(Broken)
def fail(context: Any) -> None:
    raise ValueError(context.event.what)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = f"{tmp_path_factory.mktemp('typed')}/shop.db"
    types: Any = {"entity_types": [Buyer, Basket], "relation_types": [Filled]}
    with Session(path, **types) as session:
        session.ensure([Buyer(id=f"b{n}", tier="gold" if n % 2 else "tin", age=20 + n) for n in range(6)])
        session.ensure([Basket(id=f"k{n}", total=n * 1.5) for n in range(3)])
        session.commit()
        session.ensure(Buyer(id="b0", tier="gold", age=99))
        session.ensure(Filled(left_key="b1", right_key="k2", count=7))
        session.commit()
        session.branches.create("try-x")
    with serving({"shop": path}, (TRY,)) as found:
        yield found


def ask(served: Served, token: str = "reader", accept: str = "application/json", **body: Any) -> Any:
    return served.call("POST", "/stores/shop/query", token=token, json=body, headers={"accept": accept})


def test_rows_are_filtered_ordered_and_limited(served: Served) -> None:
    answer = ask(served, type="Buyer", where=["tier=gold", "age>20"], order_by=["age:desc"], limit=2).json
    assert [(row["key"], row["fields"]["age"], row["commit_id"]) for row in answer["rows"]] == [
        ("b0", 99, 2), ("b5", 25, 1)]
    assert answer["truncated"] is True
    rest = ask(served, type="Buyer", where=["tier=gold"], order_by=["age:desc"], offset=2).json
    assert ([row["key"] for row in rest["rows"]], rest.get("truncated", False)) == (["b3", "b1"], False)


def test_the_past_and_all_states_can_be_asked_for(served: Served) -> None:
    assert ask(served, type="Buyer", where=["id=b0"], as_of=1).json["rows"][0]["fields"]["age"] == 20
    assert ask(served, type="Buyer", where=["id=b0"], as_of="main~1").json["rows"][0]["fields"]["age"] == 20
    history = ask(served, type="Buyer", where=["id=b0"], history=True).json["rows"]
    assert [(row["commit_id"], row["fields"]["age"]) for row in history] == [(1, 20), (2, 99)]


def test_relations_and_ways_over_them(served: Served) -> None:
    found = ask(served, type="Filled", kind="relation", where=["left.tier=gold"]).json["rows"]
    assert [(row["key"], row["fields"]["count"]) for row in found] == [(["b1", "k2"], 7)]
    (path,) = ask(served, type="Buyer", key="b1", via=["Filled"]).json["paths"]
    assert [(one["type"], one["key"]) for one in path["entities"]] == [("Buyer", "b1"), ("Basket", "k2")]
    assert path["relations"][0]["fields"]["count"] == 7
    (back,) = ask(served, type="Basket", key="k2", via=["Filled:reverse"]).json["paths"]
    assert back["entities"][1]["key"] == "b1"
    assert ask(served, type="Buyer", key="none", via=["Filled"]).status == 404


def test_aggregates_of_all_rows_and_of_groups(served: Served) -> None:
    aggregates = {"n": {"op": "count"}, "most": {"op": "max", "field": "age"}, "sum": {"op": "sum", "field": "age"},
                  "old": {"op": "count_where", "where": "age>50"}}  # fmt: skip
    assert ask(served, type="Buyer", where=["tier=gold"], aggregates=aggregates).json["groups"] == [
        {"n": 4, "most": 99, "sum": 168, "old": 1}]
    groups = ask(served, type="Buyer", aggregates={"n": {"op": "count"}}, group_by=["tier"]).json["groups"]
    assert sorted((one["tier"], one["n"]) for one in groups) == [("gold", 4), ("tin", 2)]


def test_rows_come_in_the_form_that_the_client_accepts(served: Served) -> None:
    query = {"type": "Basket", "order_by": ["id"]}
    lines = ask(served, accept="application/x-ndjson", **query).body.splitlines()
    assert json.loads(lines[1]) == {"key": "k1", "fields": {"id": "k1", "total": 1.5}, "commit_id": 1}
    cells = list(csv.reader(io.StringIO(ask(served, accept="text/csv", **query).body.decode())))
    assert cells[:2] == [["id", "total", "commit_id"], ["k0", "0.0", "1"]]
    stream = ask(served, accept="application/vnd.apache.arrow.stream", **query)
    assert pa.ipc.open_stream(stream.body).read_all().column("total").to_pylist() == [0.0, 1.5, 3.0]


@pytest.mark.parametrize(("body", "status", "named"), [
    ({"type": "Nobody"}, 400, "Nobody"), ({"type": "Buyer", "where": ["nothing=1"]}, 400, "nothing"),
    ({"type": "Buyer", "where": ["age"]}, 400, "age"), ({"type": "Buyer", "order_by": ["age:up"]}, 400, "age:up"),
    ({"type": "Buyer", "limit": -1}, 422, "limit"), ({"type": "Buyer", "as_of": 99}, 404, "99"),
    ({"type": "Buyer", "via": ["Filled"]}, 422, "key"), ({"type": "Buyer", "key": "b1"}, 422, "via"),
    ({"type": "Buyer", "key": "b1", "via": ["Filled:up"]}, 400, "Filled:up"),
    ({"type": "Buyer", "group_by": ["tier"]}, 422, "aggregates"), ({"type": "Buyer", "kind": "thing"}, 422, "kind"),
    ({"type": "Buyer", "aggregates": {"x": {"op": "sum"}}}, 422, "x"),
    ({"type": "Buyer", "aggregates": {"x": {"op": "sum", "field": "nope"}}}, 400, "nope"),
    ({"type": "Buyer", "branch": "nowhere"}, 404, "nowhere"), ({}, 422, "type"),
])  # fmt: skip
def test_a_bad_query_is_told_why(served: Served, body: dict[str, Any], status: int, named: str) -> None:
    answer = ask(served, **body)
    assert (answer.status, named in answer.json["title"]) == (status, True), answer.json


def test_a_token_for_some_branches_reads_no_commit_of_others(served: Served) -> None:
    assert ask(served, "try", type="Buyer", branch="try-x").status == 200
    assert ask(served, "try", type="Buyer").status == 403
    assert ask(served, "try", type="Buyer", branch="try-x", as_of="main").status == 403


def test_events_are_queued_once_and_listed(served: Served) -> None:
    def queue(token: str = "writer", **body: Any) -> Any:
        return served.call("POST", "/stores/shop/events", token=token, json=body)

    first = queue(type="Paid", payload={"id": 1}, id="e1")
    assert (first.status, first.json) == (201, {"id": "e1", "queued": True})
    assert (queue(type="Paid", payload={"id": 1}, id="e1").status, queue("reader", type="Paid").status) == (200, 403)
    for bad in ({"type": "not a name"}, {"type": "Paid", "id": ""}, {"type": "Paid", "payload": 7}, {}):
        assert queue(**bad).status == 422, bad
    events = served.call("GET", "/stores/shop/events", token="reader", type="Paid").json["events"]
    assert [(one["id"], one["status"], one["payload"]) for one in events] == [("e1", "ready", {"id": 1})]
    assert served.call("GET", "/stores/shop/events", token="reader", limit=0).status == 422


def test_dead_letters_are_listed_and_tried_again(served: Served) -> None:
    served.call("POST", "/stores/shop/events", token="writer", json={
        "type": "Broken", "payload": {"what": "x"}, "id": "dead"})
    url = served.server.stores.get("shop").url
    config = {"create": False, "event_max_attempts": 1}
    with Session(url, entity_types=[], relation_types=[], config=config) as session:
        session.run([fail], until_idle=True)
    (letter,) = served.call("GET", "/stores/shop/events/dead", token="reader").json["dead_letters"]
    assert (letter["id"], letter["type"], "ValueError" in letter["error"]) == ("dead", "Broken", True)
    retry = {"json": {"ids": ["dead"]}}
    assert served.call("POST", "/stores/shop/events/dead/retry", token="reader", **retry).status == 403
    assert served.call("POST", "/stores/shop/events/dead/retry", token="writer", **retry).json == {"queued": ["dead"]}
    assert served.call("POST", "/stores/shop/events/dead/retry", token="writer", **retry).status == 404
    assert served.call("GET", "/stores/shop/events/dead", token="reader").json == {"dead_letters": []}


def test_other_stores_take_no_typed_queries(tmp_path: Path) -> None:
    from ontolake.documents import Set, open_space

    with open_space(f"{tmp_path}/", "notes") as space:
        space.transact("s", 1, [Set("a", {})])
    with serving({"shop": f"{tmp_path}/notes.sqlite"}) as found:
        assert ask(found, type="Buyer").status == 404
        assert found.call("GET", "/stores/shop/events").status == 404
        assert found.call("POST", "/stores/shop/graph/sql", json={"sql": "SELECT 1"}).status == 404
