"""Rows of tables over HTTP, on every model, against what plain Python expects."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow as pa
import pytest
from served_places import ServedPlace

ROWS = {f"k{n:03}": {"f": n % 7, "g": None if n % 5 == 0 else n} for n in range(60)}
ARROW = "application/vnd.apache.arrow.stream"


def read(shop: ServedPlace, **query: Any) -> Any:
    return shop.ok("GET", "/rows", table=shop.table, **query)


def record(row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A row of an answer as its key and its record, whatever the model calls its columns."""
    return row["id"], {name: row.get("document", row)[name] for name in ("f", "g")}


def every_row(shop: ServedPlace, **query: Any) -> list[tuple[str, dict[str, Any]]]:
    found, cursor = [], None
    while True:
        page = read(shop, cursor=cursor, **query)
        assert len(page["rows"]) <= query.get("limit", 1000)
        found += [record(row) for row in page["rows"]]
        cursor = page["cursor"]
        if cursor is None:
            return found


def test_tables_and_their_columns(shop: ServedPlace) -> None:
    last = shop.write(ROWS)
    listed = shop.ok("GET", "/tables", ref="main")
    assert (listed["branch"], listed["commit"], listed["tables"]) == ("main", last, [shop.table])
    schema = shop.ok("GET", "/schema", table=shop.table)
    assert [one["name"] for one in schema["columns"] if one["key"]] == ["id"]
    assert shop.call("GET", "/schema", table="no/such").status == 404
    assert shop.call("GET", "/schema", table=shop.table, ref="nowhere").status == 404
    assert shop.call("GET", "/schema").status == 422


@pytest.mark.parametrize("limit", [1, 7, 60, 1000])
def test_pages_are_all_rows_once(shop: ServedPlace, limit: int) -> None:
    shop.write(ROWS)
    found = every_row(shop, limit=limit)
    assert dict(found) == ROWS
    assert len(found) == len(ROWS)
    if shop.model != "graph":
        assert [key for key, _ in found] == sorted(ROWS)


def test_a_cursor_stays_at_the_commit_it_began_at(shop: ServedPlace) -> None:
    shop.write(ROWS)
    page = read(shop, limit=20)
    shop.write({"k000": None, "k030": {"f": 99, "g": 99}, "zzz": {"f": 1, "g": 1}})
    found, cursor = page["rows"], page["cursor"]
    while cursor is not None:
        more = read(shop, limit=20, cursor=cursor)
        assert more["commit"] == page["commit"]
        found, cursor = found + more["rows"], more["cursor"]
    assert dict(map(record, found)) == ROWS


def test_any_moment_and_any_branch_can_be_read(shop: ServedPlace) -> None:
    first = shop.write({"a": {"f": 1, "g": None}, "b": {"f": 2, "g": None}})
    shop.write({"a": {"f": 5, "g": None}, "b": None})
    shop.ok("POST", "/branches", 201, json={"name": "try"})
    shop.write({"c": {"f": 9, "g": None}}, "try")
    shop.ok("POST", "/tags", 201, json={"name": "v1", "ref": f"main@{first}"})
    states = {"main": {"a": 5}, f"main@{first}": {"a": 1, "b": 2}, "v1": {"a": 1, "b": 2}, "try": {"a": 5, "c": 9},
              "main~1": {"a": 1, "b": 2}, None: {"a": 5}}  # fmt: skip
    for ref, state in states.items():
        assert {key: row["f"] for key, row in every_row(shop, ref=ref, limit=1)} == state, ref
        stream = shop.call("GET", "/rows", table=shop.table, ref=ref, headers={"accept": "application/x-ndjson"})
        assert {(row := record(json.loads(line)))[0]: row[1]["f"] for line in stream.body.splitlines()} == state, ref


FILTERS: list[tuple[list[Any], Any]] = [
    ([["id", "==", "k007"]], lambda key, row: key == "k007"),
    ([["id", ">=", "k050"]], lambda key, row: key >= "k050"),
    ([["id", ">", "k050"], ["id", "<", "k053"]], lambda key, row: "k050" < key < "k053"),
    ([["id", "<=", "k002"]], lambda key, row: key <= "k002"),
    ([["id", "in", ["k001", "k055", "nobody"]]], lambda key, row: key in ("k001", "k055")),
    ([["id", "startswith", "k01"]], lambda key, row: key.startswith("k01")),
    ([["id", "is_null"]], lambda key, row: False),
    ([["id", "==", "nobody"]], lambda key, row: False),
]
FIELDS: list[tuple[list[Any], Any]] = [
    ([["f", "==", 3]], lambda key, row: row["f"] == 3),
    ([["f", ">", 4], ["g", "is_not_null"]], lambda key, row: row["f"] > 4 and row["g"] is not None),
    ([["g", "is_null"]], lambda key, row: row["g"] is None),
    ([["g", "<", 10]], lambda key, row: row["g"] is not None and row["g"] < 10),
    ([["f", "in", [1, 6]], ["id", ">", "k030"]], lambda key, row: row["f"] in (1, 6) and key > "k030"),
]


@pytest.mark.parametrize("limit", [3, 100])
def test_filters_take_what_they_say(shop: ServedPlace, limit: int) -> None:
    shop.write(ROWS)
    for written, fulfils in [*FILTERS, *([] if shop.model == "documents" else FIELDS)]:
        want = {key: row for key, row in ROWS.items() if fulfils(key, row)}
        found = every_row(shop, filter=json.dumps(written), limit=limit)
        assert dict(found) == want, written
        assert len(found) == len(want), written


@pytest.mark.parametrize(("written", "named"), [
    ('[["nope","==",1]]', "nope"), ('[["id","==",1]]', "id"), ('[["id","~","a"]]', "id"), ("[[", "JSON"),
    ('[["id","is_null","x"]]', "id"), ('[["id","in","a"]]', "id"), ('{"id":1}', "list"), ('[["id"]]', "condition"),
    ('[["id","==",null]]', "id")])  # fmt: skip
def test_a_wrong_filter_is_refused_by_name(shop: ServedPlace, written: str, named: str) -> None:
    answer = shop.call("GET", "/rows", table=shop.table, filter=written)
    assert answer.status == 422
    assert named in answer.json["title"]


def test_columns_and_orders(shop: ServedPlace) -> None:
    shop.write(ROWS)
    assert read(shop, columns="id", limit=1)["rows"] == [{"id": "k000"}]
    assert [row["id"] for row in read(shop, columns="id", order="-id", limit=3)["rows"]] == ["k059", "k058", "k057"]
    for limit in (7, 100):
        assert [key for key, _ in every_row(shop, order="-id", limit=limit)] == sorted(ROWS, reverse=True)
    for query in ({"columns": "nope"}, {"order": "nope"}, {"columns": "id,id"}, {"limit": "0"}, {"limit": "x"}):
        assert shop.call("GET", "/rows", table=shop.table, **query).status == 422, query
    if shop.model != "documents":
        want = sorted(ROWS, key=lambda key: (ROWS[key]["g"] is None, -(ROWS[key]["g"] or 0), key))
        assert [key for key, _ in every_row(shop, order="-g", limit=7)] == want
        want = sorted(ROWS, key=lambda key: (ROWS[key]["f"], -int(key[1:])))
        assert [key for key, _ in every_row(shop, order="f,-id", limit=11)] == want


def test_every_format_says_the_same(shop: ServedPlace) -> None:
    last = shop.write(ROWS)
    answers = {kind: shop.call("GET", "/rows", table=shop.table, headers={"accept": kind})
               for kind in ("application/x-ndjson", "text/csv", ARROW, "application/json")}
    for kind, answer in answers.items():
        assert answer.status == 200
        assert answer.headers["content-type"].startswith(kind)
        assert answer.headers["ontolake-commit"] == str(last)
        assert answer.headers["etag"] == f'"{last}"'
    assert dict(record(json.loads(line)) for line in answers["application/x-ndjson"].body.splitlines()) == ROWS
    assert dict(map(record, answers["application/json"].json["rows"])) == ROWS
    arrow = pa.ipc.open_stream(answers[ARROW].body).read_all()
    texts = list(csv.DictReader(io.StringIO(answers["text/csv"].body.decode())))
    assert sorted(arrow.column("id").to_pylist()) == sorted(row["id"] for row in texts) == sorted(ROWS)
    if shop.model != "documents":
        assert {row["id"]: {"f": row["f"], "g": row["g"]} for row in arrow.to_pylist()} == ROWS
        assert {row["id"]: (row["f"], row["g"]) for row in texts} == {
            key: (str(row["f"]), "" if row["g"] is None else str(row["g"])) for key, row in ROWS.items()}
    paged = shop.call("GET", "/rows", table=shop.table, limit=5, headers={"accept": ARROW})
    assert pa.ipc.open_stream(paged.body).read_all().num_rows == 5
    more = shop.call("GET", "/rows", table=shop.table, limit=100, cursor=paged.headers["ontolake-cursor"],
                     headers={"accept": ARROW})
    assert pa.ipc.open_stream(more.body).read_all().num_rows == 55
    assert shop.call("GET", "/rows", table=shop.table, headers={"accept": "image/png"}).status == 406


def test_filters_and_columns_of_a_stream(shop: ServedPlace) -> None:
    shop.write(ROWS)
    answer = shop.call("GET", "/rows", table=shop.table, columns="id", filter='["id","<","k010"]',
                       headers={"accept": ARROW})
    found = pa.ipc.open_stream(answer.body).read_all()
    assert sorted(found.to_pydict().items()) == [("id", [f"k{n:03}" for n in range(10)])]
    missing = shop.call("GET", "/rows", table="no/such", headers={"accept": ARROW})
    assert (missing.status, missing.headers["content-type"]) == (404, "application/problem+json")
