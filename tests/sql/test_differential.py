"""Random statements give on our tables what they give on a real PostgreSQL: rows, types, names, order, and refusals.

`make differential` runs more of them: `DIFFERENTIAL` is how many, `DIFFERENTIAL_SEED` where they begin.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from answers import compare, ours, theirs
from postgres import Unavailable, running
from statements import Statements

from ontolake.sql import Database, open_database

COUNT = int(os.environ.get("DIFFERENTIAL", "2000"))
SEED = int(os.environ.get("DIFFERENTIAL_SEED", "1"))
EACH = 100
"""Statements on one schema."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(max(300, COUNT))]


@pytest.fixture(scope="module")
def server() -> Iterator[psycopg.Connection[Any]]:
    try:
        with running() as found, psycopg.connect(found) as connection:
            yield connection
    except Unavailable as error:
        pytest.skip(str(error))


def compare_tables(server: psycopg.Connection[Any], db: Database, tables: list[str]) -> None:
    for table in tables:
        sql = f"SELECT * FROM {table}"
        compare(sql, theirs(server, sql), ours(db, sql))
    server.commit()


@pytest.mark.parametrize("seed", range(SEED, SEED + max(1, COUNT // EACH)))
def test_statements_give_what_postgres_gives(seed: int, server: psycopg.Connection[Any], tmp_path: Path) -> None:
    server.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    server.commit()
    url = f"{tmp_path}/t.db" if seed % 2 else f"file://{tmp_path}/t.db"
    statements = Statements(seed)
    with open_database(url, synchronous="NORMAL") as db:
        for sql in statements.schema():
            server.execute(sql)
            db.execute(sql)
        server.commit()
        tables = [table.name for table in statements.tables]
        for number in range(EACH):
            sql = statements.next()
            before = db.version()
            wanted, found = theirs(server, sql), ours(db, sql)
            if found.sqlstate is not None:
                assert db.version() == before, sql
            server.commit() if wanted.sqlstate is None else server.rollback()
            compare(sql, wanted, found, whole_state=False)
            if number % 25 == 24:
                compare_tables(server, db, tables)
                _look_after(db)
                compare_tables(server, db, tables)
        for _ in range(EACH // 5):
            check_partition(db, statements)
            check_unoptimized(db, statements)
        assert list(db.verify()) == []


def _look_after(db: Database) -> None:
    """What must not change an answer."""
    db.retain(db.version())
    db.gc(dry_run=False)


def check_partition(db: Database, statements: Statements) -> None:
    """A condition is true, false or unknown for each row: the three parts are the whole."""
    query, condition = statements.partition()
    whole = ours(db, query)
    parts = [ours(db, f"{query} WHERE {test}") for test in (condition, f"NOT ({condition})", f"({condition}) IS NULL")]
    if any(part.sqlstate is not None for part in parts):
        return
    rows = sorted(repr(row) for part in parts for row in part.rows)
    assert rows == sorted(map(repr, whole.rows)), f"{query}\n{condition}"


def check_unoptimized(db: Database, statements: Statements) -> None:
    """As many rows satisfy a condition as it is true for, when it is worked out for all of them."""
    query, condition = statements.partition()
    source = query.partition(" FROM ")[2]
    filtered = ours(db, f"SELECT count(*) FROM {source} WHERE {condition}")
    counted = ours(db, f"SELECT sum(CASE WHEN {condition} THEN 1 ELSE 0 END) FROM {source}")
    if filtered.sqlstate is None and counted.sqlstate is None:
        assert filtered.rows[0][0] == (counted.rows[0][0] or 0), f"{query}\n{condition}"
