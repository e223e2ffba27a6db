"""The executor runs queries of several threads, stops them, keeps to its memory, and begins anew after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlglot
from waiting import wait_for

from ontolake.sql import Database, SqlError
from ontolake.sql.executor import connections
from ontolake.sql.plan import execution
from ontolake.sql.syntax.dialect import DIALECT


def run(sql: str, **tables: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = execution.run(sqlglot.parse_one(sql, dialect=DIALECT), tables).to_pylist()
    return rows


@pytest.mark.slow
def test_another_thread_ends_a_query() -> None:
    found: list[SqlError] = []

    def work() -> None:
        try:
            run("SELECT count(*) FROM generate_series(1, 2000000) a, generate_series(1, 2000000) b WHERE a % 7 = b % 3")
        except SqlError as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: connections.interrupt(thread.ident or 0) or not thread.is_alive())
    wait_for(lambda: connections.interrupt(thread.ident or 0) is False)
    thread.join(30)
    assert [error.sqlstate for error in found] == ["57014"]
    assert run("SELECT 1 AS a") == [{"a": 1}]


def test_threads_do_not_see_each_others_tables() -> None:
    def work(number: int) -> int:
        table = pa.table({"n": [number] * 10})
        return int(run("SELECT sum(n)::bigint AS s FROM t", t=table)[0]["s"])

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(40))) == [number * 10 for number in range(40)]


def test_nothing_outside_is_in_reach() -> None:
    for sql in ("SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM duckdb_settings()", "SELECT * FROM t9"):
        with pytest.raises(SqlError) as raised:
            run(sql)
        assert raised.value.sqlstate in ("42883", "42P01")


_SPILLING = """
import pyarrow as pa, sqlglot
from ontolake.sql.plan import execution
from ontolake.sql.syntax.dialect import DIALECT
rows = pa.table({"n": pa.array(range(4_000_000)), "s": pa.array([f"text number {n % 1000}" for n in range(4_000_000)])})
tree = sqlglot.parse_one("SELECT n, s FROM t ORDER BY s DESC, n DESC", dialect=DIALECT)
found = execution.run(tree, {"t": rows})
assert found.num_rows == 4_000_000 and found.column(1)[0].as_py() == "text number 999", found.slice(0, 3)
"""


@pytest.mark.slow
def test_a_sort_beyond_the_memory_goes_through_a_file() -> None:
    environment = {**os.environ, "ONTOLAKE_SQL_MEMORY": "150MB"}
    command = [sys.executable, "-c", _SPILLING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_forked_process_has_an_executor_of_its_own() -> None:
    assert run("SELECT 1 AS a") == [{"a": 1}]
    code = ("import os, sys; from ontolake.sql import open_database; db = open_database(':memory:');"
            "db.execute('SELECT 1 + 1').fetchall(); child = os.fork();"
            "os._exit(db.execute('SELECT 2 + 3').fetchone()[0]) if child == 0 else "
            "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))")  # fmt: skip
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (5, "")


def test_a_function_that_is_not_there_is_named_with_what_was_meant(db: Database) -> None:
    with pytest.raises(SqlError) as raised:
        db.execute("SELECT uper('a')")
    assert (raised.value.sqlstate, raised.value.hint) == ("42883", "did you mean upper?")
    with pytest.raises(SqlError) as raised:
        db.execute("SELECT upper(1)")
    assert raised.value.sqlstate == "42883"
    assert "upper(integer)" in raised.value.message


def test_enums_and_free_numerics_go_through_queries_as_they_are(db: Database) -> None:
    db.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
    db.execute("CREATE TABLE e (id INTEGER PRIMARY KEY, m mood, x NUMERIC)")
    db.execute("INSERT INTO e VALUES (1, 'happy', 1.25), (2, 'sad', NULL), (3, 'ok', 7)")
    assert db.execute("SELECT m, m::text || '!' FROM e ORDER BY m").fetchall() == [
        ("sad", "sad!"), ("ok", "ok!"), ("happy", "happy!")]  # fmt: skip
    assert db.execute("SELECT max(m), count(*) FROM e WHERE m > 'sad'").fetchall() == [("happy", 2)]
    with pytest.raises(SqlError) as raised:
        db.execute("SELECT id FROM e WHERE m = 'angry'")
    assert raised.value.sqlstate == "22P02"
    db.execute("UPDATE e SET x = x * 2, m = 'ok' WHERE x + 1 > 2")
    assert db.execute("SELECT id, m, x FROM e ORDER BY id").fetchall() == [
        (1, "ok", Decimal("2.5")), (2, "sad", None), (3, "ok", Decimal(14))]  # fmt: skip
