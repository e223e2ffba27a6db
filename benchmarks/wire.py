"""PostgreSQL's wire beside PostgreSQL itself (pgbench, rows out, COPY in, TPC-H) and beside the embedded DB-API.

Both servers are processes of their own, reached by TCP on loopback, with durable commits: `onto pg` as users start it,
PostgreSQL with `fsync` on. Clients are pgbench and psycopg.
"""

from __future__ import annotations

import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import sql_tpch
from report import Report, in_turns

from ontolake.sql import dbapi, open_database

_SUPPORT = Path(__file__).parent.parent / "tests"
sys.path += [str(_SUPPORT / "support"), str(_SUPPORT / "sql" / "support")]
import postgres as server  # noqa: E402

DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "shared_buffers": "128MB",
           "max_connections": "40", "autovacuum": "on"}  # fmt: skip
CLIENTS = 16


@contextmanager
def ours(path: Path) -> Iterator[str]:
    """`onto pg` on a database; gives the URL that it prints."""
    open_database(str(path)).close()
    command = [str(Path(sys.executable).with_name("onto")), "pg", str(path), "--port", "0"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert running.stdout is not None
        found = re.search(r"postgres(?:ql)?://\S+", running.stdout.readline())
        if found is None:
            raise SystemExit("onto pg printed no URL")
        threading.Thread(target=running.stdout.read, daemon=True).start()  # a full pipe would hold the server up
        yield found.group()
    finally:
        running.terminate()
        running.wait(60)


@contextmanager
def theirs() -> Iterator[str]:
    """PostgreSQL on a free port; gives its URL. Raises `Unavailable`."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
    with server.running({**DURABLE, "port": port}):
        yield f"postgresql://tester@127.0.0.1:{port}/postgres"


def pgbench(url: str, *options: str) -> float:
    """Transactions a second, without the time that connecting takes."""
    run = subprocess.run([server.programs() / "pgbench", *options, url], capture_output=True, text=True, check=False)
    found = re.search(r"tps = ([\d.]+)", run.stdout)
    if run.returncode or found is None:
        raise SystemExit(f"pgbench {' '.join(options)} failed: {run.stderr[-500:]}")
    return float(found.group(1))


def rates(report: Report, urls: tuple[str, str]) -> None:
    """pgbench's own tables, with prepared statements."""
    length = "2" if report.small else "5"
    for url in urls:
        made = subprocess.run([server.programs() / "pgbench", "-i", "-q", url], capture_output=True, text=True,
                              check=False)
        if made.returncode:
            raise SystemExit(f"pgbench -i failed: {made.stderr[-500:]}")
    for name, target, options in (
        ("point gets, 1 client", 0.25, ["-S", "-c", "1"]),
        (f"point gets, {CLIENTS} clients", 0.25, ["-S", "-c", str(CLIENTS)]),
        (f"TPC-B-like, {CLIENTS} clients", 0.2, ["-c", str(CLIENTS)]),
    ):
        found: list[list[float]] = [[], []]
        for _ in range(3):
            for each, url in zip(found, urls, strict=True):
                each.append(pgbench(url, "-n", "-M", "prepared", "-T", length, *options))
        mine, other = (statistics.median(each) for each in found)
        report.at_least(f"pgbench: {name}, transactions a second / PostgreSQL's", mine / other, target,
                        f"{mine:,.0f} against {other:,.0f}")


def rows_out(report: Report, connections: tuple[Any, Any]) -> None:
    """Rows selected by psycopg, in the text and in the binary format."""
    count = 10_000 if report.small else 100_000
    for each in connections:
        each.execute("CREATE TABLE wide (id BIGINT PRIMARY KEY, name TEXT, price DOUBLE PRECISION, at TIMESTAMP, "
                     "number INTEGER)")
        each.execute("INSERT INTO wide SELECT n, 'name ' || n, n * 0.5, TIMESTAMP '2026-01-01' + n * INTERVAL '1 s', "
                     f"n % 1000 FROM generate_series(1, {count}) AS s(n)")
    for binary in (False, True):
        def select(connection: Any, binary: bool = binary) -> None:
            assert len(connection.cursor(binary=binary).execute("SELECT * FROM wide").fetchall()) == count

        mine, other = in_turns(*(lambda each=each: select(each) for each in connections))  # type: ignore[misc]
        report.at_least(f"{count:,} rows, {'binary' if binary else 'text'}, rows a second / PostgreSQL's",
                        other / mine, 0.5, f"{mine * 1000:.0f} ms against {other * 1000:.0f} ms")


def copy_in(report: Report, connections: tuple[Any, Any]) -> None:
    """COPY of many rows, in the text format."""
    count = 50_000 if report.small else 1_000_000
    text = "".join(f"{n}\tname {n}\t{n * 0.5}\t2026-01-01 10:00:00\t{n % 1000}\n" for n in range(count))
    taken = []
    for each in connections:
        each.execute("CREATE TABLE loaded (id BIGINT PRIMARY KEY, name TEXT, price DOUBLE PRECISION, at TIMESTAMP, "
                     "number INTEGER)")
        begun = time.perf_counter()
        with each.cursor().copy("COPY loaded FROM STDIN") as sink:
            for start in range(0, len(text), 1 << 18):
                sink.write(text[start : start + (1 << 18)])
        taken.append(time.perf_counter() - begun)
        assert each.execute("SELECT count(*) FROM loaded").fetchone() == (count,)
    mine, other = taken
    report.at_least(f"COPY in of {count:,} rows, rows a second / PostgreSQL's", other / mine, 0.5,
                    f"{mine:.2f} s against {other:.2f} s")


def queries(report: Report, connections: tuple[Any, Any], path: Path) -> None:
    """TPC-H's Q1 and Q6 over a million rows. Rows come by COPY into PostgreSQL and were loaded before here."""
    lines = sql_tpch.generated(0.01 if report.small else 1 / 6)["lineitem"]
    _, other = connections
    other.execute(f"CREATE TABLE lineitem ({sql_tpch.TABLES['lineitem']})")
    with other.cursor().copy("COPY lineitem FROM STDIN") as sink:
        for row in zip(*(column.to_pylist() for column in lines.columns), strict=True):
            sink.write_row(row)
    other.execute("ANALYZE lineitem")
    with open_database(str(path)) as db:
        db.execute(f"CREATE TABLE lineitem ({sql_tpch.TABLES['lineitem']})")
        db.bulk_load("lineitem", lines)
    for name in ("Q1", "Q6"):
        def ask(connection: Any, query: str = sql_tpch.QUERIES[name]) -> list[Any]:
            found: list[Any] = connection.execute(query).fetchall()
            return found

        assert len(ask(connections[0])) == len(ask(connections[1]))
        mine, taken = in_turns(*(lambda each=each: ask(each) for each in connections))  # type: ignore[misc]
        report.at_most(f"TPC-H {name} over {lines.num_rows:,} rows / PostgreSQL", mine / taken, 1,
                       f"{mine * 1000:.0f} ms against {taken * 1000:.0f} ms")


def price(report: Report, url: str, path: Path) -> None:
    """What the wire adds to a point get, beside the embedded DB-API on a copy of the same table."""
    with open_database(str(path)) as db:
        db.execute("CREATE TABLE point (id BIGINT PRIMARY KEY, name TEXT)")
        db.execute("INSERT INTO point SELECT n, 'name ' || n FROM generate_series(1, 10000) AS s(n)")
    embedded = dbapi.connect(str(path), autocommit=True)
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as wire:
        cursor = embedded.cursor()
        wire.execute("CREATE TABLE point (id BIGINT PRIMARY KEY, name TEXT)")
        wire.execute("INSERT INTO point SELECT n, 'name ' || n FROM generate_series(1, 10000) AS s(n)")

        def by_wire() -> None:
            for n in range(1, 500):
                wire.execute("SELECT name FROM point WHERE id = %s", (n,)).fetchall()

        def in_process() -> None:
            for n in range(1, 500):
                cursor.execute("SELECT name FROM point WHERE id = ?", (n,))
                cursor.fetchall()

        mine, bare = in_turns(by_wire, in_process)
    embedded.close()
    report.note(f"a point get takes {mine / 499 * 1e6:.0f} µs by psycopg over the wire, "
                f"{bare / 499 * 1e6:.0f} µs by the embedded DB-API")


def main() -> None:
    report = Report("PostgreSQL's wire")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            other = stack.enter_context(theirs())
        except server.Unavailable as error:
            raise SystemExit(f"this needs PostgreSQL: {error}") from error
        mine = stack.enter_context(ours(folder / "wire.db"))
        rates(report, (mine, other))
        connections = (stack.enter_context(psycopg.connect(mine, autocommit=True)),
                       stack.enter_context(psycopg.connect(other, autocommit=True)))
        rows_out(report, connections)
        copy_in(report, connections)
        price(report, mine, folder / "embedded.db")
        queries(report, connections, folder / "wire.db")
    report.finish()


if __name__ == "__main__":
    main()
