"""The changes feed, on every model: pages, long polls and streams of events."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3
from served_places import ServedPlace


def row(f: int) -> dict[str, Any]:
    return {"f": f, "g": None}


def told(changes: list[Any]) -> list[tuple[str, str]]:
    return [(one["key"], one["kind"]) for one in changes if one["kind"] != "schema"]


def test_pages_lead_from_one_position_to_the_next(shop: ServedPlace) -> None:
    first = shop.write({"a": row(1)})
    shop.write({"a": row(2), "b": row(1)})
    last = shop.write({"a": None})
    page = shop.ok("GET", "/changes", since=str(first))
    assert sorted(told(page["changes"])) == [("a", "delete"), ("a", "update"), ("b", "insert")]
    assert told(page["changes"])[-1] == ("a", "delete")
    assert (page["position"], page["cursor"]) == (str(last), None)
    assert shop.ok("GET", "/changes", since=page["position"])["changes"] == []
    assert shop.ok("GET", "/changes")["position"] == str(last)
    found, cursor = [], None
    while True:
        some = shop.ok("GET", "/changes", since=str(first), limit=1, cursor=cursor)
        found += told(some["changes"])
        cursor = some["cursor"]
        if cursor is None:
            break
    assert found == told(page["changes"])
    assert shop.ok("GET", "/changes", since=str(first), table="no/such")["changes"] == []


def test_a_position_that_is_not_kept_says_where_to_start(shop: ServedPlace) -> None:
    head = shop.write({"a": row(1)})
    gone = shop.call("GET", "/changes", since="01J00000000000000000000000" if shop.model == "graph" else "9999")
    assert gone.status in (410, 400), gone.body
    if gone.status == 410:
        assert str(gone.json["fields"]["start"]) == str(head)
    assert shop.call("GET", "/changes", branch="nowhere").status == 404


def test_a_long_poll_waits_for_a_change(shop: ServedPlace) -> None:
    head = shop.write({"a": row(1)})
    assert shop.ok("GET", "/changes", since=str(head), wait=0.2)["changes"] == []
    timer = threading.Timer(0.3, lambda: shop.write({"b": row(2)}))
    timer.start()
    page = shop.ok("GET", "/changes", since=str(head), wait=20)
    timer.join()
    assert told(page["changes"]) == [("b", "insert")]


def events(response: Any) -> Iterator[dict[str, Any]]:
    """The messages of an event stream."""
    message: dict[str, Any] = {}
    for line in response:
        text = line.decode().rstrip("\n")
        if not text:
            if message:
                yield message
            message = {}
        elif not text.startswith(":"):
            name, _, value = text.partition(": ")
            message[name] = json.loads(value) if name == "data" else value


def follow(shop: ServedPlace, pool: urllib3.PoolManager, **query: Any) -> Any:
    fields = {name: str(value) for name, value in query.items()}
    headers = {"accept": "text/event-stream", "authorization": f"Bearer {shop.served.tokens['reader']}"}
    answer = pool.request("GET", f"{shop.served.url}/api/v1/stores/{shop.model}/changes", fields=fields,
                          headers=headers, preload_content=False, timeout=30)
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    return answer


@pytest.mark.slow
def test_a_stream_tells_the_past_then_what_comes_and_lives_meanwhile(shop: ServedPlace) -> None:
    first = shop.write({"a": row(1)})
    second = shop.write({"a": row(2)})
    with urllib3.PoolManager() as pool:
        answer = follow(shop, pool, since=first, heartbeat=0.3)
        found = (one for one in events(answer) if one.get("event"))
        past = next(one for one in found if one["event"] == "changes")
        assert told(past["data"]["changes"]) == [("a", "update")]
        assert past["id"] == str(second)
        assert next(one for one in found if one["event"] == "heartbeat")["id"] == str(second)
        third = shop.write({"b": row(5)})
        new = next(one for one in found if one["event"] == "changes")
        assert (new["id"], told(new["data"]["changes"])) == (str(third), [("b", "insert")])
        answer.close()
        quiet = follow(shop, pool, since=first, heartbeat=0.2, table="no/such")
        shop.write({"c": row(1)})
        heard = [one for one, _ in zip(events(quiet), range(4), strict=False)]
        assert {one.get("event") for one in heard} <= {None, "heartbeat"}
        quiet.close()
