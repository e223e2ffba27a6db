"""Followers of a branch that fall behind: a slow one is dropped with its position, one that history has left is told
where to start again."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from serving import Served, serving
from waiting import wait_for

from ontolake import Entity, Field, Session
from ontolake.graph import Graph
from ontolake.server.app import ServerOptions
from ontolake.server.limits import Limits


class Item(Entity):
    id: Field[int] = Field(primary_key=True)
    text: Field[str]


def followed(served: Served, since: int, buffer: int) -> socket.socket:
    """A connection that follows the store from a position on, and takes no more than `buffer` bytes unread."""
    parts = urlsplit(served.url)
    assert parts.hostname
    assert parts.port
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    stream.settimeout(30)
    stream.connect((parts.hostname, parts.port))
    stream.sendall(f"GET /api/v1/stores/shop/changes?since={since} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n"
                   f"authorization: Bearer {served.tokens['reader']}\r\n\r\n".encode())
    return stream


def open_sessions(served: Served) -> float:
    text = served.call("GET", "//metrics").body.decode()
    found = re.search(r'^ontolake_sessions\{kind="events"\} ([0-9.]+)$', text, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


@pytest.mark.slow
def test_a_slow_follower_is_dropped_and_goes_on_from_its_position(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    with Session(path, entity_types=[Item]) as session:
        session.ensure(Item(id=0, text=""))
    limits = Limits(idle_seconds=1.0)
    with serving({"shop": path}, options=ServerOptions(limits)) as served:
        slow = followed(served, 1, 4096)
        wait_for(lambda: open_sessions(served) == 1)
        last = 0
        while open_sessions(served):  # more than all buffers between the two hold
            last += 1
            row = json.dumps({"id": last, "text": "x" * 400_000}).encode()
            answer = served.call("POST", "/stores/shop/rows", table="entity/Item", body=row,
                                 headers={"content-type": "application/x-ndjson"})
            assert answer.status == 200
        seen = b""
        try:
            while part := slow.recv(1 << 20):
                seen += part
        except ConnectionResetError:
            pass
        slow.close()
        position = int(re.findall(rb"^id: (\d+)$", seen.rpartition(b"\n\n")[0], re.MULTILINE)[-1])
        assert position <= last, "it was never behind"
        rest: list[Any] = []
        cursor = None
        while True:
            page = served.call("GET", "/stores/shop/changes", since=str(position), cursor=cursor, limit=10).json
            rest += page["changes"]
            cursor = page["cursor"]
            if cursor is None:
                break
        assert [one["key"] for one in rest] == list(range(position, last + 1)), "commit n + 1 wrote row n"


@pytest.mark.slow
def test_a_position_that_a_cleanup_has_removed_is_gone(tmp_path: Path) -> None:
    url = f"{tmp_path}/graph/"
    with Graph.init(url, [Item]) as graph:
        commits = []
        for n in range(4):
            with graph.transaction(actor="ada") as transaction:
                transaction.load(Item, [{"id": n, "text": "a"}])
            commits.append(next(iter(graph.commits())).id)
        graph.cleanup(keep_commits=1, dry_run=False)
    with serving({"shop": url}) as served:
        for headers in ({}, {"accept": "text/event-stream"}):
            gone = served.call("GET", "/stores/shop/changes", since=commits[0], headers=headers)
            assert (gone.status, gone.json["type"]) == (410, "UnkeptPositionError")
            assert gone.json["fields"]["start"] == commits[-1]
        again = served.call("GET", "/stores/shop/changes", since=gone.json["fields"]["start"])
        assert (again.status, again.json["changes"]) == (200, [])
