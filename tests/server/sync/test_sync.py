"""The sync socket: sessions, transactions, watch sets, conflicts and takeover, on real sockets."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Served, serving
from syncing import SyncClient, address, syncing
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from ontolake.documents import Set, open_space
from ontolake.server.rights import Principal, TokenScope
from ontolake.server.sync import messages

TRY = Principal("try", TokenScope.WRITE, branches=("try-*",))


@pytest.fixture
def place(tmp_path: Path) -> str:
    with open_space(f"{tmp_path}/", "notes") as space:
        space.transact("first", 1, [Set("a", {"value": 1}), Set("b", {"value": 2})])
        space.branches.create("try-x")
    return f"{tmp_path}/notes.sqlite"


@pytest.fixture
def served(place: str) -> Iterator[Served]:
    with serving({"notes": place}, (TRY,)) as found:
        yield found


def closed(client: SyncClient) -> ConnectionClosed:
    """Why the server closed a socket, after all that it sent."""
    try:
        while True:
            client.receive()
    except ConnectionClosed as error:
        return error


def test_hello_tells_the_version_and_the_newest_seq(served: Served) -> None:
    with syncing(served, hello=False) as client:
        client.send("hello", version=1)
        answer = client.receive()
        assert (answer["type"], answer["version"], answer["store"], answer["seq"]) == ("hello.ok", 1, "notes", 2)


@pytest.mark.parametrize(("first", "code"), [
    ('{"type":"hello","version":99}', 4426), ('{"type":"hello","version":0}', 4426), ("nonsense", 4400),
    ('{"type":"transact"}', 4400), ('{"type":"session.open","id":1}', 4400)])  # fmt: skip
def test_a_socket_without_a_proper_hello_is_closed(served: Served, first: str, code: int) -> None:
    with syncing(served, hello=False) as client:
        client.socket.send(first)
        assert closed(client).rcvd.code == code  # type: ignore[union-attr]


def test_versions_are_named_in_the_url_or_the_subprotocol(served: Served) -> None:
    options: Any = {"additional_headers": {"authorization": f"Bearer {served.tokens['reader']}"}, "proxy": None}
    for query, names, code in (("?version=1", None, None), ("?version=7", None, 4426), ("?version=x", None, 4426),
                               ("", ["ontolake.sync.v9", "ontolake.sync.v1"], None),
                               ("", ["ontolake.sync.v9"], 4426)):  # fmt: skip
        with connect(address(served, query=query), subprotocols=names, **options) as socket:
            assert socket.subprotocol == ("ontolake.sync.v1" if names and code is None else None)
            if code is None:
                socket.send('{"type":"hello","version":1}')
                assert json.loads(socket.recv(timeout=30))["type"] == "hello.ok"
            else:
                assert closed(SyncClient(socket)).rcvd.code == code  # type: ignore[union-attr]


@pytest.mark.parametrize(("current", "offers", "chosen"), [
    (1, [1], 1), (1, [0], None), (3, [3], 3), (3, [2], 2), (3, [1], None), (3, [4], None), (3, [1, 2, 3, 4], 3)])
def test_a_server_speaks_its_version_and_the_one_before(current: int, offers: list[int], chosen: int | None) -> None:
    assert messages.negotiated(offers, current) == chosen


def test_a_browser_sends_its_token_as_a_subprotocol_and_only_from_our_own_pages(served: Served) -> None:
    names = [f"ontolake.bearer.{served.tokens['reader']}", "ontolake.sync.v1"]
    with connect(address(served), subprotocols=names, origin=served.url, proxy=None) as socket:
        assert socket.subprotocol == "ontolake.sync.v1"
    for options, status in (({"origin": "https://evil.example"}, 403), ({"subprotocols": names[1:]}, 401)):
        with pytest.raises(InvalidStatus) as caught, connect(
                address(served), **{"subprotocols": names, "proxy": None, **options}):  # type: ignore[arg-type]
            pass
        assert caught.value.response.status_code == status
    with pytest.raises(InvalidStatus) as caught, connect(address(served, "nowhere"), subprotocols=names, proxy=None):
        pass
    assert caught.value.response.status_code == 404


def test_a_transaction_is_answered_before_the_frame_that_covers_it(served: Served) -> None:
    with syncing(served) as client:
        opened = client.ok("session.open")
        assert (opened["seq"], opened["localSeq"], opened["resumed"]) == (2, None, False)
        client.ok("session.watch.set")
        for number in range(1, 20):
            answer = client.put(number, "a", number)["ok"]
            assert (answer["seq"], answer["localSeq"], answer["author"]) == (2 + number, number, "writer")
            assert all(frame["to"] < answer["seq"] for frame in client.frames)
        seen = client.upserts(21)
        assert seen == [(2 + number, "a", number) for number in range(1, 20)]


def test_frames_tell_which_transactions_they_cover(served: Served) -> None:
    with syncing(served) as client:
        client.ok("session.open")
        client.ok("session.watch.set", ids=["b"])
        client.put(5, "a", 1)
        frame = client.frame()
        assert (frame["to"], frame["upserts"], frame["caughtUpLocalSeq"]) == (3, [], 5)


def test_a_watch_set_catches_up_from_a_seq(served: Served) -> None:
    for number in range(3):
        served.call("POST", "/stores/notes/documents/transact", json={
            "operations": [{"op": "set", "id": f"n{number}", "value": {"value": number}}, {"op": "delete", "id": "b"}]})
    with syncing(served, "reader") as client:
        client.ok("session.watch.set", since=0)
        assert client.upserts(5) == [(1, "a", 1), (1, "b", 2), (3, "n0", 0), (3, "b", None), (4, "n1", 1),
                                     (5, "n2", 2)]  # fmt: skip
        client.ok("session.watch.set", since=0, prefix="n")
        assert [id for _, id, _ in client.upserts(5)] == ["n0", "n1", "n2"]
        client.ok("session.watch.set", since=3, ids=["n0", "n2"])
        assert client.upserts(5) == [(5, "n2", 2)]


def test_a_watch_set_grows_and_shrinks(served: Served) -> None:
    with syncing(served) as client:
        client.ok("session.open")
        client.ok("session.watch.set", ids=["a"])
        client.ok("session.watch.add", ids=["b", "none"])
        assert client.upserts(2) == [(1, "b", 2)]
        client.ok("session.watch.set", ids=["b"])
        assert client.frame()["removes"] == ["a", "none"]
        client.put(1, "a", 5)
        client.put(2, "b", 6)
        assert client.upserts(4) == [(4, "b", 6)]
        client.ok("session.watch.set", ids=[])
        client.put(3, "b", 7)
        client.ok("session.watch.set", ids=["b"])
        client.put(4, "b", 8)
        assert client.upserts(6) == [(6, "b", 8)]


def test_commits_of_other_ways_in_reach_watchers(served: Served, place: str) -> None:
    with syncing(served, "reader") as client:
        client.ok("session.watch.set")
        with open_space(str(Path(place).parent) + "/", "notes") as space:
            space.transact("elsewhere", 1, [Set("a", {"value": "x"})])
        assert client.upserts(3) == [(3, "a", "x")]


def test_branches_are_watched_and_written_apart(served: Served) -> None:
    with syncing(served) as client:
        client.ok("session.open")
        client.ok("session.watch.set", branch="try-x", since=2)
        client.put(1, "a", "main")
        client.put(2, "a", "try", branch="try-x")
        assert client.upserts(4) == [(4, "a", "try")]
        made = client.ok("memory/branch/create", branch={"name": "new", "parent": "try-x", "localSeq": 3})
        assert (made["name"], made["parent"]) == ("new", "try-x")
        read = client.ok("documents/read", ids=["a"], branch="new")
        assert read["documents"][0]["document"] == {"value": "try"}
        assert client.ok("memory/branch/delete", branch={"name": "new", "localSeq": 4})["status"] == "deleted"
        assert client.ask("session.watch.set", branch="nowhere")["error"]["type"] == "UnknownBranchError"


def test_a_conflict_says_after_which_seq_to_try_again(served: Served) -> None:
    with syncing(served) as one, syncing(served) as other:
        for client in (one, other):
            client.ok("session.open")
            client.ok("session.watch.set", ids=["a"])
        read = {"confirmed": [{"id": "a", "path": "", "seq": 2}]}
        assert one.put(1, "a", 10, reads=read)["ok"]["seq"] == 3
        lost = other.put(1, "a", 20, reads=read)
        assert (lost["error"]["type"], lost["error"]["status"], lost["retryAfterSeq"]) == ("ConflictError", 409, 3)
        assert other.upserts(lost["retryAfterSeq"]) == [(3, "a", 10)]
        again = other.put(2, "a", 30, reads={"confirmed": [{"id": "a", "path": "", "seq": 3}]})
        assert again["ok"]["seq"] == 4


def test_two_writers_lose_no_update(served: Served) -> None:
    """Each adds one to a number that it has read; all additions are in the end."""
    with syncing(served) as one, syncing(served) as other:
        clients, numbers, done = (one, other), {one: 0, other: 0}, {one: 0, other: 0}
        for client in clients:
            client.ok("session.open")
        while min(done.values()) < 10:
            client = random.Random(sum(numbers.values())).choice(clients)
            state = client.ok("documents/read", ids=["a"])["documents"][0]
            if random.Random(numbers[one] * 31 + numbers[other]).random() < 0.4:  # the other one is quicker
                rival = other if client is one else one
                numbers[rival] += 1
                value = rival.ok("documents/read", ids=["a"])["documents"][0]["document"]["value"]
                assert "ok" in rival.put(numbers[rival], "a", value + 1)
                done[rival] += 1
            numbers[client] += 1
            answer = client.put(numbers[client], "a", state["document"]["value"] + 1,
                                reads={"confirmed": [{"id": "a", "path": "", "seq": state["seq"]}]})
            done[client] += "ok" in answer
            assert "ok" in answer or answer["retryAfterSeq"] > state["seq"]
        total = one.ok("documents/read", ids=["a"])["documents"][0]["document"]["value"]
        assert total == 1 + sum(done.values())


def test_pending_reads_and_replay_belong_to_the_session(served: Served) -> None:
    with syncing(served) as client:
        client.ok("session.open")
        first = client.put(1, "a", 5)
        pending = {"pending": [{"id": "a", "path": "", "localSeqs": [1], "basisSeq": 2}]}
        assert client.put(2, "a", 6, reads=pending)["ok"]["resolvedPendingReads"] == [{"localSeq": 1, "seq": 3}]
        assert client.put(1, "a", 5)["ok"] == first["ok"]
        assert client.put(1, "a", 7)["error"]["type"] == "ProtocolError"
        never = client.put(9, "a", 8, reads={"pending": [{"id": "a", "path": "", "localSeqs": [8], "basisSeq": 4}]})
        assert (never["error"]["type"], never["retryAfterSeq"]) == ("ConflictError", 4)


def test_a_session_resumes_with_its_newest_token_alone(served: Served) -> None:
    with syncing(served) as client:
        first = client.ok("session.open")
        client.put(1, "a", 5)
    name = first["session"]
    with syncing(served) as client:
        for wrong in ({}, {"resumeToken": "0.abc"}, {"resumeToken": first["resumeToken"] + "0"},
                      {"resumeToken": "x" * 5000}):  # fmt: skip
            assert client.ask("session.open", session=name, **wrong)["error"]["type"] == "ProtocolError"
        future = client.ask("session.open", session=name, resumeToken=first["resumeToken"], seenSeq=99)
        assert future["error"]["type"] == "FutureSeqError"
        second = client.ok("session.open", session=name, resumeToken=first["resumeToken"], seenSeq=2)
        assert (second["session"], second["localSeq"], second["resumed"]) == (name, 1, True)
        client.ok("session.watch.set", since=2)
        assert client.upserts(3) == [(3, "a", 5)]
    with syncing(served) as client:
        assert "error" in client.ask("session.open", session=name, resumeToken=first["resumeToken"])
        assert client.ok("session.open", session=name, resumeToken=second["resumeToken"])["resumed"]
    with syncing(served, "admin") as client:  # whose token signs otherwise
        assert "error" in client.ask("session.open", session=name, resumeToken=second["resumeToken"])


def test_takeover_revokes_the_older_socket(served: Served) -> None:
    with syncing(served) as older, syncing(served) as newer:
        opened = older.ok("session.open")
        newer.ok("session.open", session=opened["session"], resumeToken=opened["resumeToken"])
        assert older.receive()["type"] == "session.revoked"
        assert closed(older).rcvd.code == 4001  # type: ignore[union-attr]
        assert newer.put(1, "a", 5)["ok"]["seq"] == 3


def test_a_session_resumes_after_the_server_was_started_again(place: str) -> None:
    with serving({"notes": place}) as served, syncing(served) as client:
        opened = client.ok("session.open")
        client.put(1, "a", 5)
    with serving({"notes": place}) as served, syncing(served) as client:
        again = client.ok("session.open", session=opened["session"], resumeToken=opened["resumeToken"], seenSeq=2)
        assert (again["resumed"], again["localSeq"]) == (True, 1)
        client.ok("session.watch.set", since=2)
        assert client.upserts(3) == [(3, "a", 5)]
        assert client.put(1, "a", 5)["ok"]["seq"] == 3  # which may have been sent without an answer
        assert client.put(2, "a", 6)["ok"]["seq"] == 4


def test_rights_are_checked_for_every_message(served: Served) -> None:
    with syncing(served, "reader") as client:
        client.ok("session.open")
        assert client.put(1, "a", 5)["error"]["status"] == 403
    with syncing(served, "try") as client:
        client.ok("session.open")
        assert client.put(1, "a", 5)["error"]["status"] == 403
        assert client.put(1, "a", 5, branch="try-x")["ok"]["branch"] == "try-x"
        peek = {"confirmed": [{"id": "a", "path": "", "seq": 1, "branch": ""}]}
        assert client.put(2, "a", 5, branch="try-x", reads=peek)["error"]["status"] == 403
        for type, fields in (("session.watch.set", {}), ("session.watch.set", {"branch": "main"}),
                             ("documents/read", {"ids": ["a"]}),
                             ("memory/branch/create", {"branch": {"name": "try-y", "localSeq": 3}}),
                             ("memory/branch/create", {"branch": {"name": "y", "parent": "try-x", "localSeq": 3}}),
                             ("memory/branch/delete", {"branch": {"name": "main", "localSeq": 3}})):  # fmt: skip
            assert client.ask(type, **fields)["error"]["status"] == 403, (type, fields)
        assert client.ok("session.watch.set", branch="try-x")["branch"] == "try-x"


def test_a_token_that_is_revoked_ends_its_sockets(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ontolake.server.sync.connections.RECHECK_SECONDS", 0)
    with serving({"notes": place}) as served, syncing(served) as client, syncing(served, "admin") as other:
        client.ok("session.watch.set")
        known = served.server.authenticate
        served.server.authenticate = lambda token: None if token == served.tokens["writer"] else known(token)
        other.ok("session.open")
        other.put(1, "a", 5)
        assert closed(client).rcvd.code == 4401  # type: ignore[union-attr]


@pytest.mark.parametrize("text", [
    "", "{", "[]", "null", "1", '"hello"', "{}", '{"type":"burn","id":3}', '{"type":"transact","id":3}',
    '{"type":"transact","id":3,"commit":{"operations":7}}', '{"type":"session.watch.set","id":3,"ids":"a"}',
    '{"type":"session.watch.set","id":3,"since":"x"}', '{"type":"hello","version":1}', "[" * 100_000,
    '{"type":"session.watch.set","id":3,"ids":["a"],"prefix":"b"}', '{"type":"session.watch.set","id":3,"since":-1}',
    '{"type":"session.watch.set","id":3,"since":99}', '{"type":"session.watch.set","id":3,"ids":[""]}',
    '{"type":"session.watch.add","id":3,"ids":["a"]}', '{"type":"memory/branch/create","id":3,"branch":{"name":"x"}}',
    '{"type":"documents/read","id":3,"ids":["a"],"seq":99}', '{"type":"documents/read","id":3,"ids":[""]}',
    '{"type":"session.open","id":3,"session":""}', '{"type":"session.open","id":3,"session":"\\u0000"}',
])  # fmt: skip
def test_a_message_that_makes_no_sense_is_told_so_and_the_socket_goes_on(served: Served, text: str) -> None:
    with syncing(served) as client:
        client.socket.send(text)
        answer = client.receive()
        assert answer["type"] == "response"
        assert 400 <= answer["error"]["status"] < 500, answer
        assert answer["id"] == (3 if '"id":3' in text else None)
        assert client.ok("session.open")["resumed"] is False


def test_fuzzed_frames_never_end_a_socket_without_a_reason(served: Served) -> None:
    seeds = ['{"type":"transact","id":1,"commit":{"localSeq":1,"operations":[{"op":"set","id":"a","value":{}}]}}',
             '{"type":"session.watch.set","id":2,"branch":"try-x","ids":["a"],"since":1}',
             '{"type":"session.open","id":3,"session":"s","resumeToken":"1.x","seenSeq":1}']  # fmt: skip
    dice = random.Random(7)
    for _ in range(8):
        with syncing(served) as client:
            for _ in range(30):
                text = list(dice.choice(seeds))
                for _ in range(dice.randint(1, 4)):
                    place = dice.randrange(len(text))
                    text[place] = dice.choice(['"', "{", "}", "[", "0", "-", "\\", "é", "\x00", ",", ":", "", "null"])
                client.socket.send("".join(text) if dice.random() < 0.9 else "".join(text).encode())
                answer: Any = client.receive()
                while answer["type"] == "sync":
                    answer = client.receive()
                assert answer["type"] == "response"
                assert answer.get("error", {"status": 0})["status"] < 500, (text, answer)


def test_too_many_bad_messages_close_the_socket(served: Served) -> None:
    with syncing(served) as client:
        for _ in range(102):
            client.socket.send("x")
        assert closed(client).rcvd.code == 4400  # type: ignore[union-attr]


def test_sockets_are_told_that_the_server_ends(place: str) -> None:
    with serving({"notes": place}) as served:
        with_socket = syncing(served)
        client = with_socket.__enter__()
    assert closed(client).rcvd.code == 1012  # type: ignore[union-attr]
