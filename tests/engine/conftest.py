"""The places that every promise of the engine is checked on, and what the tests share."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import apsw
import pytest
from marking import slow_after

from ontolake import engine, faults
from ontolake.objects import ObjectStore, open_store
from ontolake.storage import ObjectStorage, register_backend
from ontolake.suites.peers import Forker, ProcessPeer


class Connect(Protocol):
    def __call__(self, url: str, **options: Any) -> apsw.Connection: ...


@pytest.fixture(params=slow_after(1, ["memory", "file", "directory", "seaweed"]))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that is not there yet, of each kind."""
    return _place(request, tmp_path)


@pytest.fixture(params=slow_after(1, ["file", "directory", "seaweed"]))
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same, for those that other processes can reach."""
    return _place(request, tmp_path)


def _place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "seaweed":
        url: str = request.getfixturevalue("seaweed_url")
        return url
    name = secrets.token_hex(6)
    return {"file": f"file://{tmp_path}/pages.db", "directory": f"file://{tmp_path}/pages",
            "memory": f"memory://{name}/pages"}[request.param]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """`engine.connect` with a busy timeout of nothing; everything is closed when the test ends."""
    opened: list[apsw.Connection] = []

    def connect(url: str, **options: Any) -> apsw.Connection:
        connection = engine.connect(url, **options)
        connection.set_busy_timeout(0)
        opened.append(connection)
        return connection

    yield connect
    for connection in opened:
        connection.close(True)


@pytest.fixture
def behind() -> Callable[[Callable[[ObjectStore], ObjectStore]], str]:
    """Gives the URL of a database whose objects are in memory, behind a store that the test makes around them."""
    names = itertools.count()

    def behind(wrap: Callable[[ObjectStore], ObjectStore]) -> str:
        name = secrets.token_hex(6)
        scheme = f"t{name}{next(names)}"

        def backend(url: str, *, page_size: int, **knobs: Any) -> ObjectStorage:
            return ObjectStorage(wrap(open_store(f"memory://{name}")), page_size=page_size, **knobs)

        register_backend(scheme, backend)
        return f"{scheme}://x"

    return behind


@pytest.fixture
def steps() -> Iterator[list[str]]:
    """The names of all fault points that are reached."""
    hook = faults.At(-1, lambda: None)
    with faults.arm(hook):
        yield hook.seen


@pytest.fixture(scope="module")
def forker(request: pytest.FixtureRequest) -> Iterator[Forker]:
    """The helper that forks peers; tasks for them are functions of the test's module, which has a class `Peers`."""
    forker = Forker(request.module.Peers)
    yield forker
    forker.close()


@pytest.fixture
def start(forker: Forker) -> Iterator[Callable[..., ProcessPeer]]:
    """Starts a process at a task: `start(task, …)`. Those that are left over when the test ends are killed."""
    with forker.starting() as start:
        yield start
