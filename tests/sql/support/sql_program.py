"""A program of statements that is killed at every step, and the child process that runs it."""

from __future__ import annotations

import io
import multiprocessing
import runpy
import secrets
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow as pa

from ontolake import faults
from ontolake.sql import Database, open_database
from ontolake.sql.copy import records
from ontolake.sql.keyspace.keys import encode_tuple, row_prefix
from ontolake.sql.types import BIGINT
from ontolake.sql.write import index_builds

Step = Callable[[Database], Any]


def statement(sql: str) -> Step:
    return lambda db: db.execute(sql)


def load(db: Database) -> None:
    db.bulk_load("t", pa.table({"id": range(100, 200), "a": [f"v{n % 9}" for n in range(100)]}))


def copy(db: Database) -> None:
    records.BLOCK = 64  # so that rows come in several batches
    db.copy_from("p", io.StringIO("".join(f'{id},"v{id % 3}"\n' for id in range(100, 130))))


def together(db: Database) -> None:
    with db.transaction():
        db.execute("INSERT INTO t (id, a) VALUES (10, 'ten')")
        db.execute("UPDATE t SET a = 'changed' WHERE id IN (2, 180)")
        db.execute("CREATE TABLE u (id BIGINT PRIMARY KEY)")
        db.execute("INSERT INTO u VALUES (1)")


MIDDLE = row_prefix(100) + encode_tuple([BIGINT], [150])


def move(db: Database) -> None:
    home = f"memory://{secrets.token_hex(6)}" if db.url == ":memory:" else db.url.replace("t.db", "range.db")
    if all(each.start != MIDDLE for each in db.ranges.list()):
        db.ranges.split(MIDDLE)
    db.ranges.move(MIDDLE, home)


def merge(db: Database) -> None:
    if any(each.start == MIDDLE for each in db.ranges.list()):
        db.ranges.merge(MIDDLE)


def collect(db: Database) -> None:
    db.retain(3)
    db.gc(dry_run=False)


STEPS: list[Step] = [
    statement("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT)"),
    statement("INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')"),
    statement("CREATE INDEX by_a ON t (a)"),
    statement("UPDATE t SET a = 'TWO' WHERE id = 2"),
    statement("DELETE FROM t WHERE id = 3"),
    load,
    move,
    statement("INSERT INTO t VALUES (3, 'again') ON CONFLICT (id) DO UPDATE SET a = 'x'"),
    together,
    statement("ALTER TABLE t ADD COLUMN n BIGINT DEFAULT 5"),
    statement("CREATE UNIQUE INDEX online ON t (n, id) INCLUDE (a)"),
    statement("ALTER TABLE t ADD CONSTRAINT rule CHECK (n > 0), ADD CONSTRAINT one UNIQUE (id, a)"),
    statement("ALTER TABLE t DROP CONSTRAINT rule, ALTER COLUMN n TYPE TEXT USING 'n' || n, DROP CONSTRAINT one"),
    statement("ALTER TABLE t ALTER COLUMN id TYPE DECIMAL(20, 2)"),
    statement("ALTER TABLE t ALTER COLUMN id TYPE BIGINT"),
    statement("ALTER TABLE t DROP COLUMN n"),
    statement("DROP TABLE u"),
    merge,
    statement("CREATE TABLE p (id SERIAL PRIMARY KEY, v TEXT)"),
    statement("SELECT setval('p_id_seq', 50)"),
    statement("INSERT INTO p VALUES (1, 'a'), (2, 'b')"),
    statement("CREATE TABLE c (p INT REFERENCES p ON DELETE CASCADE, g INT GENERATED ALWAYS AS (p * 2) STORED)"),
    statement("INSERT INTO c VALUES (1), (2), (2)"),
    statement("CREATE INDEX upper_v ON p (upper(v)) WHERE id > 1"),
    statement("DELETE FROM p WHERE id = 2"),
    statement("CREATE TABLE q AS SELECT id, a, id / 8.0 AS part FROM t"),
    statement("CREATE INDEX q_part ON q (part)"),
    statement("ALTER TABLE q ADD PRIMARY KEY (id)"),
    copy,
    collect,
]


def open_for_program(url: str, **options: Any) -> Database:
    index_builds.PAGE = 30  # so that indexes are built in several pages
    return open_database(url, synchronous="NORMAL", **options)


def describe(db: Database) -> dict[str, Any]:
    """All that a user can see of the newest state."""
    catalog = db.catalog()
    return {
        name: {
            "columns": [(column.name, column.column_id, str(column.type)) for column in table.columns],
            "indexes": sorted((index.name, index.unique, index.state) for index in table.indexes),
            "rows": sorted(db.execute(f"SELECT * FROM {name}").fetchall()),
        }
        for name, table in sorted(catalog.by_full_name.items())
    }  # fmt: skip


class KillAt:
    """Kills the process at the n-th fault point, if there are so many; `seen` has those that were reached."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.seen: list[str] = []

    def __call__(self, step: str) -> None:
        if step.startswith("sql: "):
            self.seen.append(step)
            if len(self.seen) == self.n + 1:
                faults.kill()


def run_program(url: str, report: str, first: int, n: int) -> None:
    """Go through the program from a step on, reporting before and after each, and die at the n-th fault point."""
    with Path(report).open("a", buffering=1) as said, faults.arm(KillAt(n)), open_for_program(url) as db:
        for number, step in enumerate(STEPS[first:], first):
            said.write(f"doing {number}\n")
            step(db)
            said.write(f"done {number}\n")


def start_child(url: str, report: str, first: int, n: int) -> BaseProcess:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ontolake.sql", "datafusion"])
    child = context.Process(target=runpy.run_path, args=(__file__, {"arguments": (url, report, first, n)}, "__child__"))
    child.start()
    return child


if __name__ == "__child__":
    run_program(*globals()["arguments"])
