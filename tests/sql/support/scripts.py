"""Scripts of statements, run on our tables and on a real PostgreSQL: both have to say the same after each."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import psycopg

from ontolake.sql import Database, SqlError

Answer = tuple[str | None, list[str], list[list[Any]], int]
"""The SQLSTATE, the names of columns, the rows, and how many rows were given or changed."""


def plain(value: Any) -> Any:
    """A value so that equal ones are the same."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value:.12g}")
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        return Decimal(value).normalize()
    if isinstance(value, datetime | date | time | timedelta):
        return str(value)
    return bytes(value) if isinstance(value, memoryview) else value


def theirs(server: psycopg.Connection[Any], sql: str) -> Answer:
    """What PostgreSQL says."""
    try:
        cursor = server.execute(sql)
    except psycopg.Error as error:
        return error.sqlstate, [], [], 0
    if cursor.description is None:
        return None, [], [], max(cursor.rowcount, 0)
    rows = [[plain(cell) for cell in row] for row in cursor.fetchall()]
    return None, [column.name for column in cursor.description], rows, cursor.rowcount


def ours(db: Database, sql: str) -> Answer:
    """What we say."""
    try:
        result = db.execute(sql)
    except SqlError as error:
        return error.sqlstate, [], [], 0
    rows = [[plain(cell) for cell in row] for row in result.fetchall()] if result.columns else []
    return None, list(result.columns), rows, result.count


def compare(server: psycopg.Connection[Any], db: Database, script: str) -> None:
    """Run statements, one a line, on both sides. Rows are sorted unless the statement sorts them."""
    for sql in filter(None, map(str.strip, script.splitlines())):
        wanted, found = theirs(server, sql), ours(db, sql)
        if " ORDER BY " not in sql.upper() and not sql.upper().startswith(("FETCH", "VALUES", "SHOW")):
            wanted, found = ((state, names, sorted(rows, key=repr), count) for state, names, rows, count
                             in (wanted, found))  # fmt: skip
        assert found == wanted, sql
