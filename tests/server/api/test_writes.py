"""Writing rows over HTTP, on every model: one commit, alone or with others, exactly once."""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from served_places import ServedPlace
from serving import Answer, serving

ARROW = "application/vnd.apache.arrow.stream"
LINES = "application/x-ndjson"


def sent(shop: ServedPlace, records: dict[str, dict[str, Any]], *, keys_only: bool = False) -> list[dict[str, Any]]:
    """Records as rows of the store's table."""
    if keys_only:
        return [{"id": key} for key in records]
    if shop.model == "documents":
        return [{"id": key, "document": row} for key, row in records.items()]
    return [{"id": key, **row} for key, row in records.items()]


def write(shop: ServedPlace, records: dict[str, Any], *, mode: str = "upsert", headers: dict[str, str] | None = None,
          token: str = "writer", **query: Any) -> Answer:  # fmt: skip
    body = b"\n".join(json.dumps(row).encode() for row in sent(shop, records, keys_only=mode == "delete"))
    return shop.call("POST", "/rows", body=body, headers={"content-type": LINES, **(headers or {})}, token=token,
                     table=shop.table, mode=mode, **query)


def stored(shop: ServedPlace, branch: str = "main") -> dict[str, Any]:
    with shop.place.adapter.open(shop.place.where, readonly=True) as store:
        return dict(shop.place.adapter.records(store.at(branch)))


def row(f: int | None, g: int | None = None) -> dict[str, Any]:
    return {"f": f, "g": g}


def test_a_write_is_one_commit_by_the_token(shop: ServedPlace) -> None:
    answer = write(shop, {"a": row(1), "b": row(2)}, message="two rows")
    assert answer.status == 200, answer.body
    head = shop.ok("GET", "/commits", limit=1)["commits"][0]
    assert (head["id"], head["author"], head["message"]) == (answer.json["commit"], "writer", "two rows")
    assert answer.headers["etag"] == f'"{head["id"]}"'
    assert stored(shop) == {"a": row(1), "b": row(2)}
    assert write(shop, {"a": row(5), "c": row(3)}).status == 200
    assert write(shop, {"b": {}}, mode="delete").status == 200
    assert stored(shop) == {"a": row(5), "c": row(3)}


def test_arrow_and_json_are_taken_too(shop: ServedPlace) -> None:
    rows = sent(shop, {f"k{n}": row(n) for n in range(20)})
    columns = {name: [json.dumps(one[name]) if name == "document" else one[name] for one in rows] for name in rows[0]}
    table = pa.table({name: pa.array(values, pa.int64() if name in "fg" else pa.string())
                      for name, values in columns.items()})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    answer = shop.call("POST", "/rows", body=sink.getvalue(), headers={"content-type": ARROW}, table=shop.table)
    assert answer.status == 200, answer.body
    assert shop.call("POST", "/rows", json=sent(shop, {"one": row(1)}), table=shop.table).status == 200
    assert stored(shop) == {f"k{n}": row(n) for n in range(20)} | {"one": row(1)}


def test_insert_finds_nothing_there(shop: ServedPlace) -> None:
    assert write(shop, {"a": row(1)}, mode="insert").status == 200
    again = write(shop, {"b": row(1), "a": row(2)}, mode="insert")
    assert again.status in (409, 422), again.body
    assert "a" in again.json["title"]
    assert stored(shop) == {"a": row(1)}


def test_a_branch_is_written_to_and_a_protected_one_is_not(shop: ServedPlace) -> None:
    write(shop, {"a": row(1)})
    shop.ok("POST", "/branches", 201, json={"name": "try"})
    assert write(shop, {"a": row(2)}, branch="try").status == 200
    assert (stored(shop), stored(shop, "try")) == ({"a": row(1)}, {"a": row(2)})
    shop.ok("PATCH", "/branches/try", json={"protected": True})
    refused = write(shop, {"a": row(3)}, branch="try")
    assert refused.status == 403, refused.body
    assert stored(shop, "try") == {"a": row(2)}
    assert write(shop, {"a": row(3)}, branch="nowhere").status == 404
    assert write(shop, {"a": row(3)}, token="reader").status == 403


def test_if_match_refuses_a_head_that_moved(shop: ServedPlace) -> None:
    first = write(shop, {"a": row(1)}).headers["etag"]
    second = write(shop, {"a": row(2)}, headers={"if-match": first})
    assert second.status == 200, second.body
    late = write(shop, {"a": row(3)}, headers={"if-match": first})
    assert (late.status, late.json["type"]) == (412, "StaleHeadError")
    assert str(late.json["fields"]["head"]) == str(second.json["commit"])
    assert stored(shop) == {"a": row(2)}
    assert write(shop, {"a": row(3)}, headers={"if-match": "1, 2"}).status == 400
    assert write(shop, {"a": row(3)}, headers={"if-match": '"no-commit"'}).status == 412
    assert write(shop, {"a": row(3)}, headers={"if-match": "*"}).status == 200


def test_a_retry_gets_the_first_answer_also_from_another_server(shop: ServedPlace) -> None:
    key = {"idempotency-key": "load-7"}
    first = write(shop, {"a": row(1)}, headers=key)
    write(shop, {"a": row(2)})
    again = write(shop, {"a": row(1)}, headers=key)
    assert (first.json["replayed"], again.json["replayed"]) == (False, True)
    assert again.json["commit"] == first.json["commit"]
    other = write(shop, {"a": row(9)}, headers=key)
    assert (other.status, other.json["type"]) == (422, "KeyReusedError")
    assert write(shop, {"a": row(1)}, headers=key, token="merger").json["replayed"] is False
    write(shop, {"a": row(4)})
    shop.served.server.stores.close()
    with serving({shop.model: shop.place.url}) as served:  # as after a crash: nothing but the store is left
        reborn = shop._replace(served=served)
        late = write(reborn, {"a": row(1)}, headers=key)
        assert (late.json["commit"], late.json["replayed"]) == (first.json["commit"], True)
        assert write(reborn, {"a": row(9)}, headers=key).status == 422
    assert stored(shop) == {"a": row(4)}


@pytest.mark.parametrize(("body", "kind", "status", "named"), [
    (b'{"id": "a"', LINES, 400, "JSON"), (b"[1]", LINES, 422, "object"),
    (b'{"id": "a", "nope": 1}', LINES, 422, "nope"),
    (b'{"id": 7}', LINES, 422, "id"), (b"", LINES, 422, "no rows"), (b"x", "text/plain", 415, "text/plain"),
    (b"x", ARROW, 400, "Arrow"), (b'\xff{"id": 1}', LINES, 400, "")])  # fmt: skip
def test_bad_rows_are_refused_by_name(shop: ServedPlace, body: bytes, kind: str, status: int, named: str) -> None:
    answer = shop.call("POST", "/rows", body=body, headers={"content-type": kind}, table=shop.table)
    assert answer.status == status, answer.body
    assert named in answer.json["title"]
    assert stored(shop) == {}
    assert shop.call("POST", "/rows", body=b"{}", headers={"content-type": LINES}, table="no/such").status == 404


def test_writes_that_wait_together_share_commits_and_a_bad_one_fails_alone(shop: ServedPlace) -> None:
    write(shop, {"there": row(0)})
    before = len(shop.ok("GET", "/commits", limit=1000)["commits"])

    def one(n: int) -> Answer:
        if n % 8 == 5:
            return write(shop, {"there": row(n)}, mode="insert")
        return write(shop, {f"k{n:02}": row(n)}, headers={"idempotency-key": f"n{n}"})

    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(one, range(64)))
    bad = [answer.status for n, answer in enumerate(answers) if n % 8 == 5]
    good = [answer for n, answer in enumerate(answers) if n % 8 != 5]
    assert set(bad) <= {409, 422}
    assert [answer.status for answer in good] == [200] * 56
    assert stored(shop) == {f"k{n:02}": row(n) for n in range(64) if n % 8 != 5} | {"there": row(0)}
    made = {answer.json["commit"] for answer in good}
    assert len(shop.ok("GET", "/commits", limit=1000)["commits"]) - before == len(made) < 56
    with ThreadPoolExecutor(8) as pool:
        retried = list(pool.map(one, (n for n in range(64) if n % 8 != 5)))
    assert [answer.json["commit"] for answer in retried] == [answer.json["commit"] for answer in good]
