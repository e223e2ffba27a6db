"""Back-pressure: who reads slowly is paused, who does not read at all is dropped with its position, and neither costs
the server memory or anybody else a frame."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from serving import Served, serving
from syncing import address, syncing
from waiting import wait_for
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from ontolake.documents import Set, open_space

HELLO = '{"type":"hello","version":1}'
WATCH = '{"type":"session.watch.set","id":1,"since":1}'
BIG = "x" * 40_000


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with open_space(f"{tmp_path}/", "notes") as space:
        space.transact("first", 1, [Set("a", {"value": 1})])
    with serving({"notes": f"{tmp_path}/notes.sqlite"}) as found:
        yield found


def write(served: Served, value: object, count: int) -> int:
    """Some commits; the seq of the last."""
    for _ in range(count):
        answer = served.call("POST", "/stores/notes/documents/transact", json={
            "operations": [{"op": "set", "id": "a", "value": {"value": value}}]})  # fmt: skip
    return int(answer.json["seq"])


async def opened(served: Served, **options: object) -> ClientConnection:
    headers = {"authorization": f"Bearer {served.tokens['reader']}"}
    socket = await connect(address(served), additional_headers=headers, compression=None, ping_interval=None,
                           proxy=None, open_timeout=60, **options)  # type: ignore[arg-type]
    await socket.send(HELLO)
    assert "hello.ok" in str(await socket.recv())
    await socket.send(WATCH)
    assert "response" in str(await socket.recv())
    return socket


async def read_to(socket: ClientConnection, to: int, pause: float = 0) -> list[int]:
    """The seqs of all documents in frames until one reaches `to`."""
    seqs: list[int] = []
    while True:
        frame = msgspec.json.decode(await asyncio.wait_for(socket.recv(), 60))
        seqs += [one["seq"] for one in frame["upserts"]]
        if frame["to"] >= to:
            return seqs
        await asyncio.sleep(pause)


def test_who_does_not_read_is_dropped_with_its_position_and_goes_on_from_there(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr("ontolake.server.sync.connections.SEND_SECONDS", 1)

    async def run() -> None:
        stuck = await opened(served, max_queue=1)
        quick = await opened(served)
        reading = asyncio.create_task(read_to(quick, 401))
        last = await asyncio.to_thread(write, served, BIG, 400)  # 16 MB: far more than buffers take
        assert await reading == list(range(2, last + 1))
        connections = served.server.watchers.of(served.server.stores.get("notes"))
        await asyncio.to_thread(wait_for, lambda: len(connections._feeds[""].watchers) == 1, 30)
        seen = 0
        with pytest.raises(ConnectionClosed) as caught:  # noqa: PT012
            while True:
                seen = json.loads(await stuck.recv())["to"]
        assert seen < last
        if caught.value.rcvd is not None:
            assert caught.value.rcvd.code == 4008
            told = re.search(r"main=(\d+)", caught.value.rcvd.reason)
            assert told is not None
            assert seen <= int(told[1]) < last
        await quick.close()

    asyncio.run(run())
    with syncing(served, "reader") as client:
        client.ok("session.watch.set", since=390)
        assert [seq for seq, _, _ in client.upserts(401)] == list(range(391, 402))


def follow(served: Served, sockets: int, slow: int, stuck: int, process: psutil.Process) -> tuple[float, int]:
    """Let sockets watch while documents are written; some read slowly, some not at all. All others get everything.

    Returns the seconds until they have it, and by how many bytes the server has grown.
    """

    async def run() -> tuple[float, int]:
        limit = asyncio.Semaphore(50)

        async def open_one(number: int) -> ClientConnection:
            async with limit:
                return await opened(served, **({"max_queue": 1} if number < stuck else {}))

        clients = await asyncio.gather(*map(open_one, range(sockets)))
        before = process.memory_info().rss
        begun = time.monotonic()
        reading = [asyncio.create_task(read_to(one, 31, 0.005 if number < stuck + slow else 0))
                   for number, one in enumerate(clients) if number >= stuck]
        last = await asyncio.to_thread(write, served, "y" * 12_000, 30)
        assert last == 31
        for seqs in await asyncio.gather(*reading):
            assert seqs == list(range(2, 32))
        took = time.monotonic() - begun
        grown = process.memory_info().rss - before
        for one in clients:
            one.transport.abort()
        return took, grown

    return asyncio.run(run())


def test_everybody_else_gets_everything(served: Served) -> None:
    follow(served, sockets=40, slow=5, stuck=5, process=psutil.Process())


SERVER = """
import signal, sys, threading
sys.path.insert(0, sys.argv[2])
from serving import serving
with serving({"notes": sys.argv[1]}) as served:
    print(served.url, flush=True)
    threading.Event().wait()
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[tuple[Served, subprocess.Popen[str], Path]]:
    """A server in a process of its own."""
    with open_space(f"{tmp_path}/", "notes") as space:
        space.transact("first", 1, [Set("a", {"value": 1})])
    started = start(tmp_path)
    try:
        yield of(started), started, tmp_path
    finally:
        started.kill()
        started.wait()


def start(place: Path) -> subprocess.Popen[str]:
    support = str(Path(__file__).parents[2] / "support")
    return subprocess.Popen([sys.executable, "-c", SERVER, f"{place}/notes.sqlite", support], stdout=subprocess.PIPE,
                            text=True, env={**os.environ, "PYTHONPATH": support})


def of(started: subprocess.Popen[str]) -> Served:
    import urllib3

    assert started.stdout is not None
    url = started.stdout.readline().strip()
    names = ("reader", "writer", "merger", "admin")
    return Served(url, {name: f"{name}-secret" for name in names}, None, urllib3.PoolManager())  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_thousand_sockets_with_slow_readers_cost_bounded_memory(
    process: tuple[Served, subprocess.Popen[str], Path]
) -> None:
    """30 commits of 12 kB are 360 MB for a thousand sockets; a server that kept them for slow ones would show."""
    served, started, _ = process
    took, grown = follow(served, sockets=1000, slow=100, stuck=50, process=psutil.Process(started.pid))
    assert grown < 150 * 2**20, f"{grown / 2**20:.0f} MB more after {took:.1f} s"


@pytest.mark.slow
def test_a_session_resumes_after_the_server_was_killed(process: tuple[Served, subprocess.Popen[str], Path]) -> None:
    served, started, place = process
    with syncing(served) as client:
        opened = client.ok("session.open")
        for number in range(1, 21):
            client.put(number, "a", number)
        started.send_signal(signal.SIGKILL)
        started.wait()
    again = start(place)
    try:
        served = of(again)
        with syncing(served) as client:
            resumed = client.ok("session.open", session=opened["session"], resumeToken=opened["resumeToken"], seenSeq=5)
            assert (resumed["localSeq"], resumed["seq"]) == (20, 21)
            client.ok("session.watch.set", since=5)
            assert [value for _, _, value in client.upserts(21)] == list(range(5, 21))
            assert client.put(20, "a", 20)["ok"]["seq"] == 21
            assert client.put(21, "a", 21)["ok"]["seq"] == 22
    finally:
        again.kill()
        again.wait()
