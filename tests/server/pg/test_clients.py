"""Drivers of other languages and tools, as their users use them: asyncpg, pg8000, node's pg, pgjdbc, pgbench.

psycopg is what most other tests of the wire use.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pg8000.dbapi
import psycopg
import pytest
from pg_serving import PgProcess
from postgres import Unavailable, programs

from ontolake.sql import open_database

pytestmark = pytest.mark.slow

FILES = Path(__file__).parent / "files"
JDBC = Path("/usr/share/java/postgresql.jar")
_ROW = (1, Decimal("1.50"), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), date(2026, 1, 2), '{"a": 1}', [1, 2],
        uuid.UUID(int=5), b"\x01", 1.5, "x", timedelta(days=1, seconds=3), True, time(1, 2, 3))  # fmt: skip
_COLUMNS = ("id INT PRIMARY KEY, n NUMERIC, t TIMESTAMPTZ, d DATE, j JSONB, a INT[], u UUID, b BYTEA, f FLOAT8, "
            "s TEXT, i INTERVAL, o BOOLEAN, m TIME")  # fmt: skip


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PgProcess]:
    folder = tmp_path_factory.mktemp("clients")
    open_database(str(folder / "shop.db")).close()
    with PgProcess(folder, "shop.db") as found:
        yield found


def test_asyncpg(wire: PgProcess) -> None:
    async def talk() -> None:
        connection = await asyncpg.connect(wire.url)
        try:
            await connection.execute(f"CREATE TABLE every ({_COLUMNS})")
            marks = ", ".join(f"${n}" for n in range(1, len(_ROW) + 1))
            await connection.execute(f"INSERT INTO every VALUES ({marks})", *_ROW)
            assert tuple(await connection.fetchrow("SELECT * FROM every WHERE id = $1", 1)) == _ROW
            await connection.executemany("INSERT INTO every (id, s) VALUES ($1, $2)",
                                         [(n, str(n)) for n in range(10, 60)])
            async with connection.transaction():
                found = [row["id"] async for row in connection.cursor("SELECT id FROM every ORDER BY id", prefetch=7)]
            assert found == [1, *range(10, 60)]
            await connection.copy_records_to_table("every", records=[(100 + n, "z") for n in range(100)],
                                                   columns=["id", "s"])
            assert await connection.fetchval("SELECT count(*) FROM every") == 151
            prepared = await connection.prepare("SELECT id, s FROM every WHERE id > $1 LIMIT $2")
            assert [each.type.name for each in prepared.get_attributes()] == ["int4", "text"]
            assert [each.name for each in prepared.get_parameters()] == ["int4", "int8"]
            with pytest.raises(asyncpg.DivisionByZeroError):
                await connection.execute("SELECT 1 / 0")
        finally:
            await connection.close()

    asyncio.run(talk())


def test_asyncpg_cancels_and_listens(wire: PgProcess) -> None:
    async def talk() -> None:
        connection = await asyncpg.connect(wire.url)
        try:
            with pytest.raises(TimeoutError):
                await connection.fetch("SELECT count(*) FROM generate_series(1, 100000) a, "
                                       "generate_series(1, 100000) b WHERE a + b < 0", timeout=0.5)
            assert await connection.fetchval("SELECT 5") == 5
            said: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
            await connection.add_listener("news", lambda _, process, *rest: said.put_nowait(rest))
            await connection.execute("NOTIFY news, 'hello'")
            assert await asyncio.wait_for(said.get(), 20) == ("news", "hello")
        finally:
            await connection.close()

    asyncio.run(talk())


def test_pg8000(wire: PgProcess) -> None:
    parts = urlsplit(wire.url)
    connection = pg8000.dbapi.connect(user=parts.username, password=parts.password, host=parts.hostname,
                                      port=parts.port, database=parts.path[1:])
    try:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE plain (id INT PRIMARY KEY, s TEXT, n NUMERIC(8, 2), t TIMESTAMP)")
        cursor.execute("INSERT INTO plain VALUES (%s, %s, %s, %s)", (1, "a", Decimal("2.5"), datetime(2026, 1, 1)))
        connection.commit()
        cursor.execute("SELECT * FROM plain WHERE id = %s", (1,))
        assert [tuple(row) for row in cursor.fetchall()] == [(1, "a", Decimal("2.50"), datetime(2026, 1, 1))]
        with pytest.raises(pg8000.dbapi.DatabaseError, match="42P01"):
            cursor.execute("SELECT * FROM nowhere")
        connection.rollback()
    finally:
        connection.close()


def test_node(wire: PgProcess, tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    made = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent", "pg@8"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
    if made.returncode:
        pytest.skip(f"npm cannot install pg: {made.stderr[-200:]}")
    (tmp_path / "client.js").write_text((FILES / "client.js").read_text())
    done = subprocess.run(["node", "client.js", wire.url], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "row": {"id": 1, "s": "x", "j": {"a": [1]}, "t": "1970-01-01T00:00:00.000Z", "a": [1, 2]},
        "prepared": [{"s": "x"}], "error": ["42703", "8"], "count": "1"}


def test_jdbc(wire: PgProcess, tmp_path: Path) -> None:
    if shutil.which("java") is None or not JDBC.exists():
        pytest.skip("pgjdbc is not installed: apt-get install libpostgresql-jdbc-java")
    done = subprocess.run(["java", "-cp", str(JDBC), str(FILES / "JdbcClient.java"), wire.url], cwd=tmp_path,
                          capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "batch 20", *[f"{n} s{n} 1.50 0 {n * 0.5}" for n in range(8)], "fetched 20",
        "columns id:int4 s:text n:numeric t:timestamptz d:float8", "key id"]


@pytest.mark.parametrize("mode", ["simple", "extended", "prepared"])
def test_pgbench(wire: PgProcess, mode: str) -> None:
    """16 clients that all add to one row: none of their transactions fails, and the sums agree in the end."""
    try:
        program = programs() / "pgbench"
    except Unavailable as error:
        pytest.skip(str(error))
    if not program.exists():
        pytest.skip("pgbench is not installed")

    def run(*arguments: str) -> str:
        done = subprocess.run([program, *arguments, wire.url], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-i", "-q")
    said = run("-n", "-M", mode, "-c", "16", "-t", "4")
    assert "number of transactions actually processed: 64/64" in said
    assert "number of failed transactions: 0 " in said
    assert "64/64" in run("-n", "-S", "-M", mode, "-c", "16", "-t", "4")
    query = ("SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches), "
             "(SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM pgbench_history), "
             "(SELECT count(*) FROM pgbench_history)")
    with psycopg.connect(wire.url) as connection:
        assert connection.execute(query).fetchall() == [(True, True, 64)]
