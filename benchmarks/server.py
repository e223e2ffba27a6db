"""The server over loopback: beside the same reads in process, beside Datasette, and beside itself with one connection.

The server is a process of its own, started as users start it: `onto serve`. Clients are plain sockets, so that what is
measured is the server.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import pyarrow as pa
import urllib3
from report import Report, in_turns

from ontolake.documents import Set, open_space
from ontolake.graph import Graph
from ontolake.model import Entity, Field
from ontolake.ontology import Session
from ontolake.sql import open_database

CONNECTIONS = 32
FOLLOWERS = 1000
STORE = "/api/v1/stores/items"


class Item(Entity):
    id: Field[int] = Field(primary_key=True)
    name: Field[str]
    number: Field[int]
    price: Field[float]
    tier: Field[str]


class Note(Entity):
    id: Field[int] = Field(primary_key=True)
    text: Field[str]


def items(start: int, size: int) -> pa.Table:
    """Rows of `Item` with keys from `start` on."""
    keys = range(start, start + size)
    return pa.table({"id": keys, "name": [f"name {n}" for n in keys], "number": [n * 7919 % 1_000_003 for n in keys],
                     "price": [n * 0.5 for n in keys], "tier": ["gold" if n % 10 else "silver" for n in keys]})


class Address(NamedTuple):
    """Where a server listens, and what it wants to see."""

    url: str
    token: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}


@contextmanager
def process(command: list[str], ready: Callable[[subprocess.Popen[str]], Address]) -> Iterator[tuple[Address, int]]:
    """A server in a process of its own, with its process id."""
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = ready(running)
        assert running.stdout is not None
        threading.Thread(target=running.stdout.read, daemon=True).start()  # a full pipe would hold the server up
        yield address, running.pid
    finally:
        running.terminate()
        running.wait(30)


def until(action: Callable[[], Any], limit: float = 60) -> Any:
    """What an action returns as soon as it returns something."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        try:
            if found := action():
                return found
        except (OSError, urllib3.exceptions.HTTPError):
            pass
        time.sleep(0.05)
    raise TimeoutError("the server did not start")


def ours(stores: list[str]) -> tuple[list[str], Callable[[subprocess.Popen[str]], Address]]:
    command = [str(Path(sys.executable).with_name("onto")), "serve", *stores, "--port", "0", "--json"]

    def ready(running: subprocess.Popen[str]) -> Address:
        assert running.stdout is not None
        lines = iter(running.stdout.readline, "")
        said = json.loads("".join(iter(lambda: next(lines, "}\n"), "}\n")) + "}")
        return Address(said["address"], said["token"])

    return command, ready


def datasette(file: Path) -> tuple[list[str], Callable[[subprocess.Popen[str]], Address]]:
    with socket.socket() as taken:  # a port that nobody else has, such as a server of an earlier run
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "datasette", "serve", str(file), "--port", str(port)]
    address = Address(f"http://127.0.0.1:{port}")
    with urllib3.PoolManager() as pool:
        return command, lambda running: until(
            lambda: pool.request("GET", f"{address.url}/-/versions.json", retries=False).status == 200 and address)


class Connection:
    """One connection that is kept open, with requests one after the other."""

    def __init__(self, address: Address) -> None:
        self._address = address

    async def open(self) -> Connection:
        parts = urlsplit(self._address.url)
        self._reader, self._writer = await asyncio.open_connection(parts.hostname, parts.port)
        self._head = "".join(f"{name}: {value}\r\n" for name, value in
                             {"host": parts.netloc, **self._address.headers}.items())  # fmt: skip
        return self

    def close(self) -> None:
        self._writer.close()

    async def request(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> bytes:
        """The body of the answer, whose status must be that of success."""
        length = f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n" if body else ""
        self._writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}{length}\r\n".encode() + body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length_at = head.find(b"content-length:")
        if length_at >= 0:
            answer = await self._reader.readexactly(int(head[length_at + 15 : head.find(b"\r\n", length_at)]))
        else:
            answer = await self._chunks()
        assert head[9:10] == b"2", head + answer
        return answer

    async def _chunks(self) -> bytes:
        parts = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            parts.append(await self._reader.readexactly(size))
            await self._reader.readexactly(2)
        await self._reader.readexactly(2)
        return b"".join(parts)


async def hammer(address: Address, connections: int, duration: float, request: Callable[[int], tuple[Any, ...]]
                 ) -> tuple[float, list[float]]:
    """Requests a second over some connections, and how long each took."""
    opened = [await Connection(address).open() for _ in range(connections)]
    taken: list[float] = []
    numbers = iter(range(1, 1 << 60))
    end = time.perf_counter() + duration

    async def work(connection: Connection) -> None:
        while (begun := time.perf_counter()) < end:
            await connection.request(*request(next(numbers)))
            taken.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    await asyncio.gather(*map(work, opened))
    passed = time.perf_counter() - begun
    for connection in opened:
        connection.close()
    return len(taken) / passed, taken


def p99(taken: list[float]) -> float:
    return statistics.quantiles(taken, n=100)[98]


def point(size: int) -> Callable[[int], tuple[Any, ...]]:
    """A read of one row by its key."""
    def request(number: int) -> tuple[Any, ...]:
        where = json.dumps([["id", "==", number * 7919 % size]])
        return "GET", f"{STORE}/rows?{urlencode({'table': 'entity/Item', 'filter': where})}"

    return request


def write(start: int) -> Callable[[int], tuple[Any, ...]]:
    """A write of one new row."""
    def request(number: int) -> tuple[Any, ...]:
        body = json.dumps({"id": start + number, "text": "a note"}).encode() + b"\n"
        return "POST", f"{STORE}/rows?table=entity%2FNote", body, "application/x-ndjson"

    return request


def scans(report: Report, address: Address, file: Path, size: int) -> None:
    pool = urllib3.PoolManager(headers={**address.headers, "accept": "application/vnd.apache.arrow.stream"})
    url = f"{address.url}{STORE}/rows?table=entity%2FItem"

    def served() -> None:
        answer = pool.request("GET", url, preload_content=False)
        with pa.ipc.open_stream(answer) as stream:
            assert stream.read_all().num_rows == size
        answer.release_conn()

    def in_process() -> None:
        with Session(str(file), entity_types=[Item, Note]) as session:
            assert session.query().entities(Item).to_arrow().num_rows == size

    served()
    in_process()
    mine, base = in_turns(served, in_process)
    report.at_most(f"Arrow stream of {size:,} rows / the same read in process", mine / base, 1.5,
                   f"{mine * 1000:.0f} ms against {base * 1000:.0f} ms")


def point_reads(report: Report, address: Address, peer: Address, size: int, duration: float) -> None:
    rates: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(3):
        rates["ours"].append(asyncio.run(hammer(address, CONNECTIONS, duration, point(size)))[0])
        rates["theirs"].append(asyncio.run(hammer(
            peer, CONNECTIONS, duration,
            lambda number: ("GET", f"/plain/item/{number * 7919 % size}.json?_shape=objects")))[0])
    mine, other = (statistics.median(one) for one in rates.values())
    report.at_least(f"point reads with {CONNECTIONS} connections / Datasette's", mine / other, 1.5,
                    f"{mine:,.0f}/s against {other:,.0f}/s")


def writes(report: Report, address: Address, duration: float) -> None:
    alone, many = [], []
    for round_ in range(3):
        alone.append(asyncio.run(hammer(address, 1, duration, write(round_ * 20_000_000)))[0])
        many.append(asyncio.run(hammer(address, CONNECTIONS, duration, write(round_ * 20_000_000 + 10_000_000)))[0])
    mine, base = statistics.median(many), statistics.median(alone)
    report.at_least(f"one-row writes with {CONNECTIONS} connections / one", mine / base, 5,
                    f"{mine:,.0f}/s against {base:,.0f}/s")


def reads_beside_a_load(report: Report, address: Address, size: int, duration: float) -> None:
    sink = pa.BufferOutputStream()
    table = items(10_000_000, size)
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    body = sink.getvalue().to_pybytes()

    async def beside() -> list[float]:
        loader = await Connection(address).open()
        load = asyncio.create_task(loader.request("POST", f"{STORE}/rows?table=entity%2FItem", body,
                                                  "application/vnd.apache.arrow.stream"))
        taken: list[float] = []
        while not load.done():
            taken += (await hammer(address, 4, 0.5, point(size)))[1]
        await load
        loader.close()
        return taken

    _, quiet = asyncio.run(hammer(address, 4, duration, point(size)))
    busy = asyncio.run(beside())
    report.at_most(f"p99 of reads while {size:,} rows are loaded / without", p99(busy) / p99(quiet), 5,
                   f"{p99(busy) * 1000:.1f} ms against {p99(quiet) * 1000:.1f} ms, {len(busy):,} reads")


def followers(report: Report, address: Address, count: int) -> None:
    async def follow() -> float:
        parts = urlsplit(address.url)
        head = await Connection(address).open()
        at = json.loads(await head.request("GET", f"{STORE}/commits?limit=1"))["commits"][0]["id"]
        streams = []
        for _ in range(count):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write((f"GET {STORE}/changes?since={at} HTTP/1.1\r\nhost: {parts.netloc}\r\n"
                          f"authorization: Bearer {address.token}\r\naccept: text/event-stream\r\n\r\n").encode())
            streams.append((reader, writer))
        for reader, _ in streams:
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        begun = time.perf_counter()
        changed = asyncio.gather(*(reader.readuntil(b"a note") for reader, _ in streams))
        await head.request(*write(90_000_000)(1))
        await changed
        taken = time.perf_counter() - begun
        for _, writer in streams:
            writer.close()
        return taken

    taken = asyncio.run(follow())
    report.at_most(f"seconds until a change reaches {count:,} followers", taken, 1)


def megabytes(pid: int) -> tuple[float, str]:
    """The memory that a process alone has: what it has written, which no other process shares and the system cannot
    drop. Beside it what is resident with the code of libraries, pages of files that the system reads again at need."""
    rolled = dict(re.findall(r"(\w+):\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text()))
    return int(rolled["Private_Dirty"]) / 1024, f"resident with code of libraries: {int(rolled['Rss']) / 1024:.0f} MB"


def main() -> None:
    report = Report("the server")
    size, duration = (20_000, 0.5) if report.small else (1_000_000, 3.0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = items(0, size)
        with Session(str(folder / "items.db"), entity_types=[Item, Note]) as session:
            session.ensure_arrow(Item, table)
            session.ensure(Note(id=-1, text="first"))
        with open_database(str(folder / "tables.db")) as database:
            database.execute("CREATE TABLE x (id INT PRIMARY KEY)")
        Graph.init(f"{folder}/graph/", types=[Item]).close()
        with open_space(f"{folder}/spaces/", "notes") as space:
            space.transact(*space.next_request(), [Set("a", {"n": 1})])
        plain = sqlite3.connect(folder / "plain.db")
        plain.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, number INTEGER, price REAL, tier TEXT)")
        plain.executemany("INSERT INTO item VALUES (?, ?, ?, ?, ?)", zip(*table.to_pydict().values(), strict=True))
        plain.commit()
        plain.close()
        stores = [str(folder / "items.db"), str(folder / "tables.db"), f"{folder}/graph/", f"{folder}/spaces/"]
        with process(*ours(stores)) as (address, pid):
            pool = urllib3.PoolManager(headers=address.headers)
            for one in pool.request("GET", f"{address.url}/api/v1/stores").json()["stores"]:
                assert pool.request("GET", f"{address.url}/api/v1/stores/{one['name']}").status == 200
            memory, resident = megabytes(pid)
            report.at_most("MB of memory of its own, idle, with four stores served", memory, 150, resident)
            for one in pool.request("GET", f"{address.url}/api/v1/stores").json()["stores"]:
                assert pool.request("GET", f"{address.url}/api/v1/stores/{one['name']}/commits").status == 200
            memory, resident = megabytes(pid)
            report.at_most("MB of memory of its own, idle, after a read of each of the four", memory, 150, resident)
            scans(report, address, folder / "items.db", size)
            writes(report, address, duration)
            followers(report, address, 100 if report.small else FOLLOWERS)
            with process(*datasette(folder / "plain.db")) as (peer, _):
                point_reads(report, address, peer, size, duration)
            reads_beside_a_load(report, address, size, duration)
    report.finish()


if __name__ == "__main__":
    main()
