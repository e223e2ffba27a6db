"""Documents over HTTP: transactions, reads, history, branches and blobs, with the answers that errors get."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Answer, Served, serving

from ontolake.documents import Set, open_space
from ontolake.server.rights import Principal, TokenScope

TRY = Principal("try", TokenScope.WRITE, branches=("try-*",))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with open_space(f"{tmp_path}/", "notes") as space:
        space.transact("first", 1, [Set("a", {"value": 1}), Set("b", {"value": 2})])
    with serving({"notes": f"{tmp_path}/notes.sqlite"}, (TRY,)) as found:
        yield found


def transact(served: Served, *operations: Any, token: str = "writer", **more: Any) -> Answer:
    return served.call("POST", "/stores/notes/documents/transact", token=token,
                       json={"operations": list(operations), **more})


def put(id: str, value: Any) -> dict[str, Any]:
    return {"op": "set", "id": id, "value": {"value": value}}


def read(served: Served, id: str, **query: Any) -> Any:
    answer = served.call("GET", "/stores/notes/documents", token="reader", id=id, **query)
    assert answer.status == 200, answer.json
    return answer.json["document"]


def test_a_transaction_is_one_commit_by_the_name_of_the_token(served: Served) -> None:
    patch = {"op": "patch", "id": "b", "patches": [{"op": "replace", "path": "/value", "value": 3}]}
    answer = transact(served, put("a", 5), patch, {"op": "delete", "id": "c"}, message="why")
    assert answer.status == 200
    assert (answer.json["seq"], answer.json["author"], answer.json["message"]) == (2, "writer", "why")
    assert [read(served, id) for id in "abc"] == [{"value": 5}, {"value": 3}, None]
    assert read(served, "a", seq=1) == {"value": 1}


def test_a_repeated_request_is_answered_as_before_and_another_one_under_its_name_is_refused(served: Served) -> None:
    name = {"sessionId": "s", "localSeq": 1}
    first = transact(served, put("a", 5), **name).json
    assert transact(served, put("a", 5), **name).json == first
    other = transact(served, put("a", 6), **name)
    assert (other.status, other.json["type"]) == (400, "ProtocolError")
    assert read(served, "a") == {"value": 5}


def test_a_conflict_says_what_has_changed(served: Served) -> None:
    transact(served, put("a", 5))
    late = transact(served, put("b", 1), reads={"confirmed": [{"id": "a", "path": "", "seq": 1}]})
    assert (late.status, late.json["type"]) == (409, "ConflictError")
    assert late.json["fields"] == {"of": "a", "seq": 1, "conflict_seq": 2}
    assert read(served, "b") == {"value": 2}


def test_pending_reads_are_resolved(served: Served) -> None:
    transact(served, put("a", 5), sessionId="s", localSeq=1)
    pending = [{"id": "a", "path": "", "localSeqs": [1], "basisSeq": 1}]
    answer = transact(served, put("a", 6), sessionId="s", localSeq=2, reads={"pending": pending})
    assert answer.json["resolvedPendingReads"] == [{"localSeq": 1, "seq": 2}]


@pytest.mark.parametrize(("body", "status", "named"), [
    ({}, 422, "operations"),
    ({"operations": [{"op": "set", "id": "a"}]}, 422, "operations[0]"),
    ({"operations": [{"op": "burn", "id": "a"}]}, 422, "burn"),
    ({"operations": [{"op": "set", "id": "", "value": {}}]}, 400, "operation 0"),
    ({"operations": []}, 400, "at least one operation"),
    ({"operations": [{"op": "delete", "id": "a"}], "localSeq": 1}, 422, "sessionId"),
    ({"operations": [{"op": "delete", "id": "a"}], "session": "x"}, 422, "session"),
    ({"operations": [{"op": "patch", "id": "a", "patches": [{"op": "remove", "path": "/no"}]}]}, 422, "patch 0"),
    ({"operations": [{"op": "delete", "id": "a"}], "branch": "nowhere"}, 404, "nowhere"),
    ({"operations": [{"op": "delete", "id": "a"}], "preconditions": [{"kind": "head-is", "seq": 7}]}, 409, "head"),
])  # fmt: skip
def test_a_bad_transaction_changes_nothing_and_is_told_why(
    served: Served, body: dict[str, Any], status: int, named: str
) -> None:  # fmt: skip
    answer = served.call("POST", "/stores/notes/documents/transact", token="writer", json=body)
    assert (answer.status, named.lower() in answer.json["title"].lower()) == (status, True), answer.json
    assert read(served, "a") == {"value": 1}


def test_many_documents_are_read_at_one_moment(served: Served) -> None:
    transact(served, put("a", 5))
    wanted = {"ids": ["b", "a", "x"], "seq": 1}
    answer = served.call("POST", "/stores/notes/documents/read", token="reader", json=wanted)
    assert [(one["id"], one["document"], one["seq"]) for one in answer.json["documents"]] == [
        ("b", {"value": 2}, 1), ("a", {"value": 1}, 1), ("x", None, 1)]
    many = served.call("POST", "/stores/notes/documents/read", token="reader", json={"ids": ["a"] * 1001})
    assert many.status == 413


def test_history_comes_in_pages_of_whole_commits(served: Served) -> None:
    for value in range(3):
        transact(served, put("a", value), put("a", value + 10))
    pages, since = [], 0
    while since is not None:
        page = served.call("GET", "/stores/notes/documents/history", token="reader", id="a", since=since, limit=2).json
        pages.append([one["document"]["value"] for one in page["revisions"]])
        since = page["next"]
    assert pages == [[1, 0, 10], [1, 11], [2, 12], []]


def test_the_commands_of_the_protocol_have_their_old_names(served: Served) -> None:
    made = served.call("POST", "/stores/notes/memory/branch/create", token="writer", json={
        "name": "try-x", "atSeq": 1, "sessionId": "s", "localSeq": 1})  # fmt: skip
    assert (made.status, made.json["parent"], made.json["base"]) == (201, "", 1)
    again = served.call("POST", "/stores/notes/memory/branch/create", token="writer", json={
        "name": "try-x", "atSeq": 1, "sessionId": "s", "localSeq": 1})  # fmt: skip
    assert again.json == made.json
    written = served.call("POST", "/stores/notes/memory/transact", token="writer", json={
        "sessionId": "s", "localSeq": 2, "branch": "try-x", "operations": [put("a", 9)]})  # fmt: skip
    assert (written.json["branch"], written.json["sessionId"], written.json["localSeq"]) == ("try-x", "s", 2)
    assert (read(served, "a"), read(served, "a", branch="try-x")) == ({"value": 1}, {"value": 9})
    gone = served.call("POST", "/stores/notes/memory/branch/delete", token="writer", json={"name": "try-x"})
    assert gone.json == {"name": "try-x", "status": "deleted"}
    assert transact(served, put("a", 1), branch="try-x").status == 404


def test_a_token_for_some_branches_reaches_no_other(served: Served) -> None:
    served.call("POST", "/stores/notes/memory/branch/create", token="writer", json={"name": "try-x"})
    on_try = {"token": "try", "branch": "try-x"}
    assert transact(served, put("a", 7), **on_try).status == 200
    assert transact(served, put("a", 7), token="try").status == 403
    assert served.call("GET", "/stores/notes/documents", token="try", id="a").status == 403
    assert served.call("GET", "/stores/notes/documents", id="a", **on_try).status == 200
    peeking = transact(served, put("a", 8), **on_try,
                       reads={"confirmed": [{"id": "a", "path": "", "seq": 1, "branch": ""}]})
    assert peeking.status == 403
    for name, source in (("try-y", None), ("other", "try-x")):
        create = {"name": name, **({"parent": source} if source else {})}
        assert served.call("POST", "/stores/notes/memory/branch/create", token="try", json=create).status == 403
    assert transact(served, put("a", 8), token="reader").status == 403


def test_blobs_are_stored_once_and_read_whole_in_parts_or_not_at_all(served: Served) -> None:
    data = bytes(range(256)) * 4
    hash = hashlib.sha256(data).hexdigest()
    path, kind = f"/stores/notes/blobs/{hash}", {"content-type": "image/png"}
    made = served.call("POST", "/stores/notes/blobs", token="writer", body=data, headers=kind)
    assert (made.status, made.json) == (201, {"hash": hash, "size": 1024, "contentType": "image/png"})
    assert served.call("PUT", path, token="writer", body=data, headers=kind).status == 201
    assert served.call("PUT", path, token="writer", body=b"other").status == 422
    whole = served.call("GET", path, token="reader")
    assert (whole.status, whole.body, whole.headers["content-type"]) == (200, data, "image/png")
    assert whole.headers["content-disposition"] == "attachment"
    for asked, status, body in (("bytes=0-9", 206, data[:10]), ("bytes=1000-", 206, data[1000:]),
                                ("bytes=-10", 206, data[-10:]), ("bytes=1000-9999", 206, data[1000:]),
                                ("bytes=0-0,5-6", 200, data), ("bytes=9-1", 200, data), ("nonsense", 200, data),
                                ("bytes=-0", 416, None), ("bytes=1024-", 416, None)):  # fmt: skip
        part = served.call("GET", path, token="reader", headers={"range": asked})
        assert part.status == status, asked
        assert body is None or part.body == body, asked
    assert served.call("GET", path, headers={"range": "bytes=5-7"}).headers["content-range"] == "bytes 5-7/1024"
    head = served.call("HEAD", path, token="reader")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "1024")
    known = served.call("GET", path, token="reader", headers={"if-none-match": f'"{hash}"'})
    assert (known.status, known.body) == (304, b"")
    assert served.call("GET", f"/stores/notes/blobs/{'0' * 64}", token="reader").status == 404
    assert served.call("GET", "/stores/notes/blobs/xyz", token="reader").status == 400
