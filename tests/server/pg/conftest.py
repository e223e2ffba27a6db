"""A server of PostgreSQL's protocol over a store of this module, and PostgreSQL itself beside it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pg_client import RawClient
from pg_serving import PgServed, pg_serving

from ontolake.sql import open_database

sys.path.insert(0, str(Path(__file__).parents[2] / "sql" / "support"))

SCHEMA = ("CREATE TABLE item (id INT PRIMARY KEY, name TEXT, price INT NOT NULL)",
          "INSERT INTO item VALUES (1, 'nut', 10), (2, NULL, 20), (3, 'bolt', 30)")  # fmt: skip


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PgServed]:
    """A server in a thread, with the store `shop`: its table `item` has three rows."""
    path = str(tmp_path_factory.mktemp("wire") / "shop.db")
    with open_database(path) as database:
        for statement in SCHEMA:
            database.execute(statement)
    with pg_serving({"shop": path}) as found:
        yield found


@pytest.fixture
def client(wire: PgServed) -> Iterator[RawClient]:
    """A raw client of `shop` with every right."""
    with RawClient.connect(("127.0.0.1", wire.server.port), "shop", "admin", "admin-secret") as found:
        yield found


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The connection string of PostgreSQL itself, with the same table."""
    import psycopg
    from postgres import Unavailable, running

    try:
        with running() as found:
            with psycopg.connect(found, autocommit=True) as connection:
                for statement in SCHEMA:
                    connection.execute(statement)
            yield found
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def original(postgres: str) -> Iterator[RawClient]:
    """A raw client of PostgreSQL itself."""
    folder = dict(part.split("=", 1) for part in postgres.split())["host"]
    with RawClient.connect(f"{folder}/.s.PGSQL.5432", "postgres", "tester") as found:
        yield found
