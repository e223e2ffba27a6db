"""A real server of PostgreSQL's protocol for tests, in a thread of the test or in a process of its own.

In a thread, on a free port of loopback, with the tokens of `serving` (`reader`, `writer`, `merger`, `admin`):

    with pg_serving({"shop": "/tmp/shop.db"}) as wire:
        with wire.connect("shop", user="writer") as connection:  # psycopg, autocommit
            connection.execute("SELECT 1")
        raw = wire.raw("shop")  # a client of the test's own, for messages that no driver sends

In a process, as `onto pg` starts it; `url` has the password in it, so that psql, pgbench and any driver can use it:

    with PgProcess(tmp_path, "shop.db") as wire:
        subprocess.run(["psql", wire.url, "-c", "SELECT 1"])
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from pg_client import RawClient
from serving import PRINCIPALS

from ontolake.server.handles import ServedStores
from ontolake.server.pg.listener import PgOptions, PgServer
from ontolake.server.pg.startup import KnownCredentials
from ontolake.server.rights import Principal


class PgServed(NamedTuple):
    """A running server."""

    server: PgServer
    stores: ServedStores

    def url(self, database: str, user: str = "admin") -> str:
        """The connection URL of a database for a token, with its secret."""
        return self.server.url(database, user, f"{user}-secret")

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.server.port

    def raw(self, database: str, user: str = "admin", **options: str) -> RawClient:
        """A client of the test's own, for messages that no driver sends."""
        return RawClient.connect(self.address, database, user, f"{user}-secret", **options)

    def connect(self, database: str, user: str = "admin", **options: Any) -> psycopg.Connection[Any]:
        """A connection of psycopg, which commits every statement unless told otherwise."""
        return psycopg.connect(self.url(database, user), **{"autocommit": True, **options})


@contextmanager
def pg_serving(
    stores: Mapping[str, str], principals: tuple[Principal, ...] = (), options: PgOptions | None = None,
    readonly: Iterable[str] = (),
) -> Iterator[PgServed]:  # fmt: skip
    """A server of the stores at URLs, by the names that it serves them under; those in `readonly` are only read."""
    everyone = {f"{one.name}-secret": one for one in (*PRINCIPALS, *principals)}
    served = ServedStores(stores, readonly=readonly)
    server = PgServer(served, KnownCredentials(everyone), options)
    try:
        with server.running():
            yield PgServed(server, served)
    finally:
        served.close()


class PgProcess:
    """`onto pg` in a process of its own. Its output is in files of `folder`."""

    def __init__(self, folder: Path, url: str, *arguments: str) -> None:
        """Start it and wait for its URL. Raises `AssertionError` with what it said if it ended instead."""
        self.errors = folder / "pg.log"
        command = [sys.executable, "-m", "ontolake", "pg", url, "--port", "0", *arguments]
        with self.errors.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=folder)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().decode().strip()
        assert self.url, self.errors.read_text()

    def end(self) -> int:
        """Ask it to end, and wait until it has. Returns its exit code."""
        self.process.terminate()
        return self.process.wait(60)

    def __enter__(self) -> PgProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
