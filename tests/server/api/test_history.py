"""The routes of history, on every model, against what plain Python expects."""

from __future__ import annotations

from typing import Any

import pytest
from served_places import ServedPlace

from ontolake.history import wire
from ontolake.history.words import Change, Commit


def records(f: int | None, g: int | None = None) -> dict[str, int | None]:
    return {"f": f, "g": g}


def every_page(shop: ServedPlace, path: str, items: str, **query: Any) -> list[Any]:
    found, cursor = [], None
    while True:
        page = shop.ok("GET", path, cursor=cursor, **query)
        found += page[items]
        cursor = page["cursor"]
        if cursor is None:
            return found


def fields_of(row: Any) -> Any:
    return None if row is None else {name: row[name] for name in ("f", "g")}


def test_stores_are_listed_with_their_model(shop: ServedPlace) -> None:
    listed = shop.served.call("GET", "/stores", token="reader").json["stores"]
    assert [(one["name"], one["model"], one["writes"]) for one in listed] == [(shop.model, shop.model, True)]
    assert shop.ok("GET", "") == listed[0]
    assert {"branch", "merge", "erase", "verify"} <= set(listed[0]["verbs"])
    assert shop.served.call("GET", "/stores/other").status == 404


def test_commits_are_paged_newest_first(shop: ServedPlace) -> None:
    made = [shop.write({"a": records(n)}, message=f"step {n}", author="ann") for n in range(7)]
    whole = shop.ok("GET", "/commits")["commits"]
    assert [one["id"] for one in whole][:7] == made[::-1]
    assert [one["message"] for one in whole][:2] == ["step 6", "step 5"]
    assert every_page(shop, "/commits", "commits", limit=2) == whole
    some = shop.ok("GET", "/commits", since=str(made[1]), until=str(made[4]))["commits"]
    assert [one["id"] for one in some] == [made[4], made[3], made[2]]
    assert shop.ok("GET", "/commits/main~2") == whole[2]


def test_a_page_of_commits_stays_where_it_was_while_others_commit(shop: ServedPlace) -> None:
    made = [shop.write({"a": records(n)}) for n in range(4)]
    first = shop.ok("GET", "/commits", limit=2)
    shop.write({"a": records(9)})
    second = shop.ok("GET", "/commits", limit=2, cursor=first["cursor"])
    assert [one["id"] for one in first["commits"] + second["commits"]] == made[::-1]


def test_a_cursor_of_another_listing_is_refused(shop: ServedPlace) -> None:
    for n in range(3):
        shop.write({"a": records(n)})
    cursor = shop.ok("GET", "/commits", limit=1)["cursor"]
    shop.ok("POST", "/branches", 201, json={"name": "try"})
    assert shop.call("GET", "/commits", branch="try", cursor=cursor).status == 400
    assert shop.call("GET", "/commits", cursor="nonsense!").status == 400


def test_what_a_commit_did(shop: ServedPlace) -> None:
    shop.write({"a": records(1), "b": records(2)})
    last = shop.write({"a": records(5), "b": None, "c": records(3)})
    found = every_page(shop, f"/commits/{last}/changes", "changes", limit=2)
    assert {one["key"]: (one["kind"], fields_of(one["before"]), fields_of(one["after"])) for one in found} == {
        "a": ("update", records(1), records(5)), "b": ("delete", records(2), None), "c": ("insert", None, records(3))}
    assert {one["table"] for one in found} == {shop.table}


def test_branches_live_and_go(shop: ServedPlace) -> None:
    first = shop.write({"a": records(1)})
    shop.write({"a": records(2)})
    made = shop.ok("POST", "/branches", 201, json={"name": "try.one", "at": f"main@{first}"}, token="writer")
    assert (made["name"], made["parent"]) == ("try.one", "main")
    assert [one["name"] for one in shop.ok("GET", "/branches")["branches"]] == ["main", "try.one"]
    again = shop.call("POST", "/branches", json={"name": "try.one"})
    assert again.status == 409
    renamed = shop.ok("PATCH", "/branches/try.one", json={"rename": "try.two"}, token="writer")
    assert renamed["name"] == "try.two"
    guarded = shop.ok("PATCH", "/branches/try.two", json={"protected": True})
    assert guarded["protected"]
    assert shop.call("DELETE", "/branches/try.two").status == 403
    assert shop.call("PATCH", "/branches/try.two", json={"protected": False}, token="writer").status == 403
    shop.ok("PATCH", "/branches/try.two", json={"protected": False})
    shop.ok("DELETE", "/branches/try.two", 204, token="writer")
    assert shop.call("DELETE", "/branches/try.two").status == 404
    assert shop.call("PATCH", "/branches/gone", json={"rename": "x"}).status == 404
    assert shop.call("PATCH", "/branches/main", json={}).status == 422


def test_tags_name_commits(shop: ServedPlace) -> None:
    first = shop.write({"a": records(1)})
    shop.write({"a": records(2)})
    made = shop.ok("POST", "/tags", 201, json={"name": "v1", "ref": "main~1", "message": "the first"}, token="writer")
    assert (made["name"], made["commit"], made["branch"], made["message"]) == ("v1", first, "main", "the first")
    assert shop.ok("GET", "/tags")["tags"] == [made]
    assert shop.ok("GET", "/commits/v1")["id"] == first
    assert shop.call("POST", "/tags", json={"name": "v1"}).status == 409
    shop.ok("DELETE", "/tags/v1", 204, token="writer")
    assert shop.call("DELETE", "/tags/v1").status == 404


def test_a_diff_is_paged_and_pinned(shop: ServedPlace) -> None:
    first = shop.write({f"k{n}": records(n) for n in range(10)})
    shop.write({f"k{n}": records(n + 100) for n in range(5, 10)} | {"new": records(1)})
    want = {f"k{n}": (records(n), records(n + 100)) for n in range(5, 10)} | {"new": (None, records(1))}
    page = shop.ok("GET", "/diff", before=f"main@{first}", after="main", limit=4)
    shop.write({"later": records(0)})
    rest = shop.ok("GET", "/diff", before=f"main@{first}", after="main", limit=4, cursor=page["cursor"])
    assert rest["cursor"] is None
    found = page["changes"] + rest["changes"]
    assert {one["key"]: (fields_of(one["before"]), fields_of(one["after"])) for one in found} == want
    assert shop.ok("GET", "/diff", before="main~1", after="main", table="no/such")["changes"] == []
    assert shop.call("GET", "/diff", before="nowhere", after="main").status == 404


def test_a_merge_shows_conflicts_then_takes_resolutions(shop: ServedPlace) -> None:
    shop.write({"a": records(1, 1), "b": records(1)})
    shop.ok("POST", "/branches", 201, json={"name": "try"})
    shop.write({"a": records(2, 1)}, "try")
    shop.write({"a": records(3, 1), "b": records(7)})
    asked = {"source": "try", "into": "main"}
    dry = shop.ok("POST", "/merge", json={**asked, "dry_run": True}, token="reader")
    assert (dry["status"], dry["commit"]) == ("conflicts", None)
    (conflict,) = dry["conflicts"]
    assert (conflict["table"], conflict["key"], conflict["field"]) == (shop.table, "a", shop.field("f"))
    assert (conflict["base"], conflict["ours"], conflict["theirs"]) == (1, 3, 2)
    refused = shop.call("POST", "/merge", json=asked, token="merger")
    assert (refused.status, refused.json["type"]) == (409, "MergeConflictError")
    assert refused.json["conflicts"] == dry["conflicts"]
    assert shop.call("POST", "/merge", json=asked, token="writer").status == 403
    chosen = {"table": shop.table, "key": "a", "field": shop.field("f"), "take": {"value": 42}}
    done = shop.ok("POST", "/merge", json={**asked, "resolutions": [chosen], "message": "both"}, token="merger")
    assert (done["status"], done["commit"]["author"], done["commit"]["message"]) == ("merged", "merger", "both")
    with shop.place.adapter.open(shop.place.where) as store:
        assert shop.place.adapter.records(store.snapshot()) == {"a": records(42, 1), "b": records(7)}
    side = {"table": shop.table, "key": "a", "take": "nobody"}
    assert shop.call("POST", "/merge", json={**asked, "resolutions": [side]}).status == 422


def test_revert_pick_and_restore(shop: ServedPlace) -> None:
    first = shop.write({"a": records(1)})
    second = shop.write({"a": records(2)})
    done = shop.ok("POST", "/revert", json={"commit": str(second), "message": "no"}, token="writer")
    assert (done["commit"]["author"], done["tables"]) == ("writer", {shop.table: {"inserted": 0, "updated": 1,
                                                                                  "deleted": 0}})
    shop.ok("POST", "/branches", 201, json={"name": "side"})
    picked = shop.write({"n": records(9)}, "side")
    shop.ok("POST", "/cherry-pick", json={"commit": f"side@{picked}", "branch": "main"}, token="writer")
    with shop.place.adapter.open(shop.place.where) as store:
        assert shop.place.adapter.records(store.snapshot()) == {"a": records(1), "n": records(9)}
    shop.ok("POST", "/restore", json={"to": f"main@{second}"}, token="writer")
    with shop.place.adapter.open(shop.place.where) as store:
        assert shop.place.adapter.records(store.snapshot()) == {"a": records(2)}
    assert shop.ok("POST", "/restore", json={"to": f"main@{first}", "dry_run": True}, token="reader")["commit"] is None
    assert shop.call("POST", "/restore", json={"to": "nowhere"}).status == 404


def test_the_past_of_a_row(shop: ServedPlace) -> None:
    first = shop.write({"a": records(1, 5)})
    second = shop.write({"a": records(2, 5)})
    third = shop.write({"a": None})
    found = shop.ok("GET", "/history", table=shop.table, key='"a"')["versions"]
    assert [(one["commit"]["id"], fields_of(one["row"])) for one in found] == [
        (third, None), (second, records(2, 5)), (first, records(1, 5))]
    blamed = shop.ok("GET", "/blame", table=shop.table, key='"a"', ref=f"main@{second}")["fields"]
    assert {name: blamed[shop.field(name)]["id"] for name in ("f", "g")} == {"f": second, "g": first}
    assert shop.call("GET", "/blame", table=shop.table, key='"nobody"').status == 404
    assert shop.call("GET", "/history", table=shop.table, key="{").status == 422


def test_an_erased_row_is_gone_from_every_commit(shop: ServedPlace) -> None:
    shop.write({"a": records(1), "b": records(1)})
    shop.write({"a": records(2)})
    asked = {"table": shop.table, "key": "a", "reason": "asked for by the customer"}
    assert shop.call("POST", "/erase", json=asked, token="merger").status == 403
    counted = shop.ok("POST", "/erase", json=asked)
    assert counted["items"] >= 2
    assert shop.ok("GET", "/history", table=shop.table, key='"a"')["versions"]
    shop.ok("POST", "/erase", json={**asked, "dry_run": False})
    assert shop.ok("GET", "/history", table=shop.table, key='"a"')["versions"] == []


def test_our_own_client_gets_words_that_lose_nothing(shop: ServedPlace) -> None:
    shop.write({"a": records(1)})
    last = shop.write({"a": records(2)})
    tagged = {"accept": wire.MEDIA_TYPE}
    answer = shop.call("GET", "/commits", headers=tagged)
    assert answer.headers["content-type"] == wire.MEDIA_TYPE
    commits = wire.load(answer.body)["commits"]
    assert type(commits[0]) is Commit
    assert commits[0].id == last
    assert commits[0].time is not None
    (change,) = wire.load(shop.call("GET", f"/commits/{last}/changes", headers=tagged).body)["changes"]
    assert type(change) is Change
    assert change.key == "a"


@pytest.mark.parametrize("path", ["/commits", "/branches", "/tags", "/diff?before=main&after=main"])
def test_nothing_is_told_without_a_token(shop: ServedPlace, path: str) -> None:
    assert shop.call("GET", path, token=None).status == 401
