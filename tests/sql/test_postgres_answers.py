"""Queries of every kind give what they give on a real PostgreSQL: rows, names, types, order and SQLSTATE."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from answers import compare, ours, theirs
from postgres import Unavailable, running

from ontolake.sql import Database, open_database

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SETUP = """
    CREATE TABLE t (id INTEGER PRIMARY KEY, g TEXT, i INTEGER, b BIGINT, n NUMERIC(10, 2), f DOUBLE PRECISION, s TEXT,
                    d DATE, ts TIMESTAMP, bo BOOLEAN);
    INSERT INTO t VALUES
        (1, 'x', 10, 100, 1.25, 0.5, 'one', '2020-01-01', '2020-01-01 10:00:00', true),
        (2, 'x', NULL, 200, 2.50, 1.5, 'two', '2020-06-30', '2020-06-30 23:59:59.5', false),
        (3, 'y', 0, NULL, NULL, -2.25, NULL, NULL, NULL, NULL),
        (4, 'y', 7, 9223372036854775807, 100.10, 1e10, '', '1999-12-31', '1999-12-31 00:00:00', true),
        (5, NULL, 3, -5, -3, NULL, 'a%b', '2021-03-01', '2021-03-01 12:30:00.123456', false);
    CREATE TABLE u (k INTEGER PRIMARY KEY, tid INTEGER, v INTEGER);
    INSERT INTO u VALUES (1, 1, 10), (2, 1, 2), (3, 2, NULL), (4, 4, 7), (5, 9, 1);
    CREATE TABLE t1 (k INTEGER PRIMARY KEY, a INTEGER, b TEXT);
    INSERT INTO t1 VALUES (1, 1, 'p'), (2, 2, 'q'), (3, 2, 'r'), (4, 3, 's'), (5, 3, 's');
    CREATE TABLE t2 (k2 INTEGER PRIMARY KEY, a INTEGER, c TEXT);
    INSERT INTO t2 VALUES (1, 2, 'A'), (2, 3, 'B'), (3, 3, 'C'), (4, 3, 'C'), (5, 4, 'D')"""
QUERIES = (Path(__file__).parent / "support" / "queries.sql").read_text().splitlines()


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[psycopg.Connection[Any], Database]]:
    try:
        with running() as found, psycopg.connect(found, autocommit=True) as server, open_database(":memory:") as db:
            for each in SETUP.split(";"):
                server.execute(each)
                db.execute(each)
            yield server, db
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_gives_what_postgres_gives(sql: str, both: tuple[psycopg.Connection[Any], Database]) -> None:
    server, db = both
    compare(sql, theirs(server, sql), ours(db, sql))
