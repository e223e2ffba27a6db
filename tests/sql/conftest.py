"""The places that every promise about SQL tables is checked on."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake.sql import Database, open_database

sys.path.insert(0, str(Path(__file__).parent / "support"))  # tests are imported by file and see no neighbours

collect_ignore = ["dialect_suite"]  # which has a plugin of its own; test_sqlalchemy_suite.py runs it

STORES: dict[str, Callable[[Path], str]] = {
    "native": lambda folder: f"{folder}/shop.db",
    "pages": lambda folder: f"file://{folder}/pages.db",
    "memory": lambda folder: f"memory://{secrets.token_hex(6)}",
}
"""The kinds of place that tables live in. All but `memory` can be reached by other processes."""


def _url(request: pytest.FixtureRequest, folder: Path) -> str:
    if request.param == "seaweed":
        return f"{request.getfixturevalue('seaweed_url')}/sql"
    return STORES[request.param](folder)


@pytest.fixture(params=slow_after(1, ["native", "memory", "pages"]))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where tables can be kept, of each kind."""
    return _url(request, tmp_path)


@pytest.fixture(params=slow_after(1, ["native", "memory", "pages", "seaweed"]))
def place_or_bucket(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same, and a bucket on a real server."""
    return _url(request, tmp_path)


@pytest.fixture
def native_place(tmp_path: Path) -> str:
    """A native file, for what would be the same anywhere."""
    return STORES["native"](tmp_path)


@pytest.fixture
def pages_place(tmp_path: Path) -> str:
    """Pages in one file, for what needs branches."""
    return STORES["pages"](tmp_path)


@pytest.fixture(params=["pages", "native"])
def branched_place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Pages in one file and a native file: branches of the storage, and levels of one keyspace."""
    return STORES[request.param](tmp_path)


@pytest.fixture(scope="session")
def postgres_address() -> Iterator[str]:
    """How to reach a real PostgreSQL that runs for the tests; they are skipped where it cannot."""
    from postgres import Unavailable, running

    try:
        with running() as address:
            yield address
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def postgres(postgres_address: str) -> Iterator[Any]:
    """A connection to it, with an empty schema, on which every statement is a transaction unless it begins one."""
    import psycopg

    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        yield connection


OpenDatabase = Callable[..., Database]


@pytest.fixture
def open_here() -> Iterator[OpenDatabase]:
    """`open_database`; everything is closed when the test ends."""
    opened: list[Database] = []

    def open_and_keep(url: str, **options: Any) -> Database:
        opened.append(open_database(url, **options))
        return opened[-1]

    yield open_and_keep
    for each in reversed(opened):
        each.close()


@pytest.fixture
def db(open_here: OpenDatabase) -> Database:
    """An empty database in memory."""
    return open_here(":memory:")


@pytest.fixture
def everywhere(place: str, open_here: OpenDatabase) -> Database:
    """An empty database, of each kind."""
    return open_here(place)


@pytest.fixture
def anywhere(place_or_bucket: str, open_here: OpenDatabase) -> Database:
    """An empty database, of each kind and in a bucket."""
    return open_here(place_or_bucket)
