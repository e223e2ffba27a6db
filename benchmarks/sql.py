"""SQL tables beside SQLite, DuckDB and PostgreSQL with the same columns and indexes, in one run."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pyarrow as pa
import sql_tpch
from report import Report, Taken, repeated, seconds

from ontolake.sql import Database, open_database
from ontolake.sql.keyspace import vectors
from ontolake.sql.keyspace.keys import row_prefix
from ontolake.sql.keyspace.layout import MAPPED, PAGE_SIZE
from ontolake.sql.types import BIGINT

COLUMNS = ["order_id", "customer_id", "status", "total_cents", "created_at"]
DECLARED = ("order_id BIGINT PRIMARY KEY, customer_id BIGINT NOT NULL, status TEXT, total_cents BIGINT NOT NULL, "
            "created_at {} NOT NULL")


def orders(count: int) -> pa.Table:
    rng = np.random.default_rng(7)
    words = np.array(["paid", "open", "shipped", "returned", None], dtype=object)
    return pa.table({
        "order_id": np.arange(count), "customer_id": rng.integers(0, count // 100, count),
        "status": pa.array(words[rng.integers(0, 5, count)], pa.string()),
        "total_cents": rng.integers(0, 100_000, count),
        "created_at": pa.array(rng.integers(1_700_000_000, 1_800_000_000, count) * 10**9).view(pa.timestamp("ns")),
    })  # fmt: skip


class Native:
    """SQLite tables with the same pragmas."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        for name, value in (("page_size", PAGE_SIZE), ("journal_mode", "WAL"), ("synchronous", "FULL"),
                            ("mmap_size", MAPPED), ("cache_size", -64000), ("temp_store", "MEMORY")):  # fmt: skip
            self.connection.pragma(name, value)
        declared = DECLARED.format("BIGINT").replace("BIGINT PRIMARY KEY", "INTEGER PRIMARY KEY")
        self.connection.execute(f"CREATE TABLE orders ({declared})")
        self.connection.execute("CREATE INDEX by_customer ON orders (customer_id)")

    def load(self, data: pa.Table) -> None:
        plain = data.set_column(4, "created_at", data.column(4).cast(pa.int64()))
        columns = [column.to_pylist() for column in plain.columns]
        with self.connection:
            self.connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", zip(*columns, strict=True))

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        return self.connection.execute(sql, values).fetchall()

    def arrow(self, sql: str, values: tuple[Any, ...] = ()) -> pa.Table:
        cursor = self.connection.execute(sql, values)
        rows = cursor.fetchall()
        names = [each[0] for each in self.connection.execute(sql + " LIMIT 0", values).get_description()] \
            if not rows else COLUMNS[: len(rows[0])]  # fmt: skip
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        return pa.table(columns, names=names)


def best(action: Callable[[], object], rounds: int) -> float:
    found = []
    for _ in range(rounds):
        begun = time.perf_counter()
        action()
        found.append(time.perf_counter() - begun)
    return min(found)


def ratio(ours: Callable[[], object], theirs: Callable[[], object], rounds: int = 5) -> tuple[float, str]:
    """How many times as long ours takes, measured in turns after a warm-up."""
    ours(), theirs()
    mine, other = [], []
    for _ in range(rounds):
        mine.append(best(ours, 1))
        other.append(best(theirs, 1))
    return min(mine) / min(other), f"{min(mine) * 1000:.3f} ms against {min(other) * 1000:.3f} ms"


def encoding(report: Report, data: pa.Table) -> None:
    column = data.column(0).combine_chunks()
    took = best(lambda: vectors.encode_keys(row_prefix(100), [BIGINT], [column]), 5)
    report.at_least("row keys encoded a second, in millions", len(column) / took / 1e6, 2, f"{took * 1000:.0f} ms")


def reads(report: Report, db: Database, native: Native, count: int) -> None:
    rng = random.Random(1)
    star = "SELECT * FROM orders"
    ids = [rng.randrange(count) for _ in range(500)]

    def gets(run: Callable[[str, tuple[Any, ...]], list[Any]]) -> Callable[[], object]:
        return lambda: [run(f"{star} WHERE order_id = ?", (id,)) for id in ids]

    ours: Callable[[str, tuple[Any, ...]], list[Any]] = lambda sql, values: db.execute(sql, values).fetchall()  # noqa: E731
    report.at_most("point get", *_spread(ratio(gets(ours), gets(native.rows)), 5))
    many = tuple(rng.sample(range(count), min(1000, count)))
    listed = f"{star} WHERE order_id IN ({', '.join('?' * len(many))})"
    report.at_most("multi-get of 1,000 keys, to Arrow",
                   *_spread(ratio(lambda: db.query(listed, many), lambda: native.arrow(listed, many)), 3))
    ranged = f"{star} WHERE order_id >= ? AND order_id < ?"
    span = (count // 2, count // 2 + 10_000)
    report.at_most("primary-key range of 10,000 rows, to Arrow",
                   *_spread(ratio(lambda: db.query(ranged, span), lambda: native.arrow(ranged, span)), 2))
    indexed = f"{star} WHERE customer_id >= ? AND customer_id < ?"
    customers = (10, 110)
    report.at_most("index range of 10,000 rows, to Arrow",
                   *_spread(ratio(lambda: db.query(indexed, customers), lambda: native.arrow(indexed, customers)), 3))
    report.at_most("full scan, to Arrow", *_spread(ratio(lambda: db.query(star), lambda: native.arrow(star), 3), 1))


def _spread(found: tuple[float, str], target: float) -> tuple[float, float, str]:
    return found[0], target, found[1]


def analysis(report: Report, db: Database, again: Database, native: Native) -> None:
    """What reports ask for: the first time, and again with a database that keeps the columns it has read."""

    def compared(name: str, sql: str) -> None:
        found = ratio(lambda: db.query(sql), lambda: native.rows(sql), 3)
        report.at_most(name, *_spread(found, 1))
        found = ratio(lambda: again.query(sql), lambda: native.rows(sql), 3)
        report.at_most(f"{name}, again", *_spread(found, 1))

    grouped = ("SELECT status, count(*), sum(total_cents), avg(total_cents), max(created_at) FROM orders "
               "GROUP BY status ORDER BY status")
    compared("aggregate over all rows", grouped)
    joined = ("SELECT count(*), sum(a.total_cents - b.total_cents) FROM orders a JOIN orders b "
              "ON b.order_id = a.customer_id")
    compared("join of all rows with themselves, by primary key", joined)
    for run in (db.execute, native.connection.execute):
        run("CREATE TABLE customer (customer_id BIGINT PRIMARY KEY, region BIGINT)")
        run("INSERT INTO customer SELECT DISTINCT customer_id, customer_id % 50 FROM orders")
    starred = ("SELECT c.region, count(*), sum(o.total_cents), max(o.created_at) FROM orders o "
               "JOIN customer c ON c.customer_id = o.customer_id GROUP BY c.region")
    compared("join of all rows with their customers, grouped", starred)


def writes(report: Report, db: Database, native: Native, count: int, number: int) -> None:
    sql = "INSERT INTO orders VALUES (?, ?, ?, ?, ?)"
    when = datetime(2026, 2, 11, 10)
    ours = iter(range(count, count + 10**6))
    theirs = iter(range(count, count + 10**6))

    def insert() -> None:
        for _ in range(number):
            db.execute(sql, (next(ours), 5, "open", 100, when))

    def insert_native() -> None:
        for _ in range(number):
            native.connection.execute(sql, (next(theirs), 5, "open", 100, 1_700_000_000_000_000_000))

    mine, other = [], []
    for _ in range(5):
        mine.append(best(insert, 1))
        other.append(best(insert_native, 1))
    report.at_least("single-row INSERT commits, as a part of SQLite's rate", sum(other) / sum(mine), 0.5,
                    f"{sum(mine) / number / 5 * 1e6:.0f} µs against {sum(other) / number / 5 * 1e6:.0f} µs")


def history(report: Report, folder: Path, count: int) -> None:
    """The same table with ten versions of each row."""
    with open_database(str(folder / "versions.db"), cache=0) as db:
        db.execute(f"CREATE TABLE orders ({DECLARED.format('TIMESTAMP')})")
        db.bulk_load("orders", orders(count))
        for _ in range(9):
            db.execute("UPDATE orders SET total_cents = total_cents + 1")
        versions = db.version()
        star = "SELECT * FROM orders"
        for at in (2, versions // 2 + 1, versions - 1):
            found = ratio(lambda at=at: db.query(star, as_of=at), lambda: db.query(star), 3)  # type: ignore[misc]
            report.at_most(f"scan as of version {at} of {versions}, against the latest", *_spread(found, 1.5))


def by_hand(path: Path) -> apsw.Connection:
    """A native table as its users set it up: a write-ahead log that is synced at every commit."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").fetchall()
    return connection


def as_users_do(report: Report, folder: Path) -> None:
    """A first load, then many small commits, then reads of now and of the past. Nothing is set."""
    count, commits, gets = (20_000, 300, 300) if report.small else (200_000, 2_000, 1_000)
    data, when, rng = orders(count), datetime(2026, 2, 11, 10), random.Random(2)
    native = by_hand(folder / "plain.db")
    native.execute(f"CREATE TABLE orders ({DECLARED.format('BIGINT')})")
    native.execute("CREATE INDEX by_customer ON orders (customer_id)")
    with open_database(str(folder / "users.db")) as db:
        db.execute(f"CREATE TABLE orders ({DECLARED.format('TIMESTAMP')})")
        db.execute("CREATE INDEX by_customer ON orders (customer_id)")
        plain = list(zip(*[column.to_pylist() for column in data.set_column(
            4, "created_at", data.column(4).cast(pa.int64())).columns], strict=True))

        def load() -> None:
            with native:
                native.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", plain)

        mine, other = best(lambda: db.bulk_load("orders", data), 1), best(load, 1)
        report.at_most(f"load of {count:,} rows / native", mine / other, 3, f"{mine:.2f} s against {other:.2f} s")
        before = db.version()
        insert, change = "INSERT INTO orders VALUES (?, ?, ?, ?, ?)", "UPDATE orders SET status = ? WHERE order_id = ?"
        ids = [rng.randrange(count) for _ in range(max(commits, gets))]
        for name, ours, theirs in (
            ("one-row INSERT", lambda n: db.execute(insert, (count + n, n % 50, "open", n, when)),
             lambda n: native.execute(insert, (count + n, n % 50, "open", n, 1_700_000_000_000_000_000))),
            ("one-row UPDATE by key", lambda n: db.execute(change, (f"state {n}", ids[n])),
             lambda n: native.execute(change, (f"state {n}", ids[n]))),
            ("UPDATE of one row again and again", lambda n: db.execute(change, (f"state {n}", 7)),
             lambda n: native.execute(change, (f"state {n}", 7))),
        ):  # fmt: skip
            mine, other = repeated(commits, ours, theirs)
            report.compare(f"{name} / native", mine, other, 4)
            report.steady(name, mine)
        get, ranged = "SELECT * FROM orders WHERE order_id = ?", "SELECT * FROM orders WHERE customer_id = ?"
        for name, sql in (("get by key", get), ("get by index", ranged)):
            report.compare(f"{name} / native", *repeated(
                gets, lambda n, sql=sql: db.execute(sql, (ids[n] % 50,)).fetchall(),
                lambda n, sql=sql: native.execute(sql, (ids[n] % 50,)).fetchall()), 6)
        grouped = "SELECT status, count(*), sum(total_cents) FROM orders WHERE order_id < 1000000000 GROUP BY status"
        now, other, past = repeated(5, lambda n: db.query(grouped), lambda n: native.execute(grouped).fetchall(),
                                    lambda n: db.query(grouped, as_of=before))
        report.compare("aggregate over all rows / native", now, other, 1.5)
        report.compare(f"the same as of {3 * commits:,} commits ago / now", past, now, 1.5)
    native.close()


def branches_as_users_do(report: Report, folder: Path) -> None:
    """Branches of a database on our pages, each with a few rows of its own."""
    count, tries = (5_000, 10) if report.small else (50_000, 30)
    url = f"file://{folder}/branched.db"
    created, first = Taken(), Taken()
    with open_database(url) as db:
        db.execute(f"CREATE TABLE orders ({DECLARED.format('TIMESTAMP')})")
        db.bulk_load("orders", orders(count))
        change = "UPDATE orders SET status = ? WHERE order_id = ?"
        on_main = repeated(tries, lambda n: db.execute(change, (f"main {n}", n)))[0]
        for number in range(tries):
            created.add(lambda number=number: db.branches.create(f"try-{number}"))
            with open_database(url, branch=f"try-{number}") as branch:
                first.add(lambda branch=branch, number=number: branch.execute(change, ("mine", number)))
    report.steady("a new branch", created)
    report.steady("the first commit on a new branch", first)
    report.compare("the first commit on a new branch / one on main", first, on_main, 3)


@contextmanager
def postgres(report: Report) -> Iterator[Any]:
    """A connection to a PostgreSQL server of our own; None, with a note, where none can be started."""
    support = Path(__file__).parent.parent / "tests"
    sys.path += [str(support / "support"), str(support / "sql" / "support")]
    try:
        import postgres as server
        import psycopg
    except ImportError as error:
        report.note(f"without PostgreSQL: {error}")
        yield None
        return
    with ExitStack() as stack:
        try:
            where = stack.enter_context(server.running())
        except server.Unavailable as error:
            report.note(f"without PostgreSQL: {error}")
            yield None
            return
        yield stack.enter_context(psycopg.connect(where, autocommit=True))


def beside_postgres(report: Report, folder: Path) -> None:
    """Bulk load, CREATE INDEX and the size of the file after a tenth of the rows was changed."""
    count = 50_000 if report.small else 1_000_000
    data = orders(count)
    with postgres(report) as other:
        if other is None:
            return
        rows = list(zip(*[column.to_pylist() for column in data.set_column(
            4, "created_at", data.column(4).cast(pa.timestamp("us"))).columns], strict=True))
        other.execute(f"CREATE TABLE orders ({DECLARED.format('TIMESTAMP')})")
        text = "".join("\t".join("\\N" if cell is None else str(cell) for cell in row) + "\n" for row in rows)

        def copy() -> None:
            with other.cursor().copy("COPY orders FROM STDIN") as sink:
                sink.write(text)

        with open_database(str(folder / "beside.db")) as db:
            db.execute(f"CREATE TABLE orders ({DECLARED.format('TIMESTAMP')})")
            for name, target, ours, theirs in (
                (f"bulk load of {count:,} rows / PostgreSQL's COPY", 1, lambda: db.bulk_load("orders", data), copy),
                (f"CREATE INDEX on {count:,} rows / PostgreSQL", 3,
                 lambda: db.execute("CREATE INDEX by_customer ON orders (customer_id)"),
                 lambda: other.execute("CREATE INDEX by_customer ON orders (customer_id)")),
            ):  # fmt: skip
                mine, taken = best(ours, 1), best(theirs, 1)
                report.at_most(name, mine / taken, target, f"{mine:.2f} s against {taken:.2f} s")
            for run in (db.execute, other.execute):
                run("UPDATE orders SET total_cents = total_cents + 1 WHERE order_id % 10 = 0")
            size: Any = other.execute("SELECT pg_total_relation_size('orders')").fetchone()
        mine = Path(folder / "beside.db").stat().st_size
        report.at_most("bytes of the file after UPDATE of 10 % / PostgreSQL", mine / size[0], 2,
                       f"{mine / 1e6:.0f} MB against {size[0] / 1e6:.0f} MB")


def by_key(report: Report, folder: Path) -> None:
    """Small statements by key beside SQLite."""
    count, times = (20_000, 200) if report.small else (200_000, 1_000)
    data, when = orders(count), datetime(2026, 2, 11, 10)
    native = by_hand(folder / "keys-native.db")
    native.execute(f"CREATE TABLE orders ({DECLARED.format('BIGINT')})")
    plain = data.set_column(4, "created_at", data.column(4).cast(pa.int64()))
    with native:
        native.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)",
                           zip(*[column.to_pylist() for column in plain.columns], strict=True))
    with open_database(str(folder / "keys.db")) as db:
        db.execute(f"CREATE TABLE orders ({DECLARED.format('TIMESTAMP')})")
        db.bulk_load("orders", data)
        for run in (db.execute, native.execute):
            run("CREATE TABLE customer (customer_id BIGINT PRIMARY KEY, region BIGINT)")
            run("INSERT INTO customer SELECT DISTINCT customer_id, customer_id % 50 FROM orders")
        counted = "SELECT count(*) FROM orders"
        report.compare("count(*), which nothing is kept for / SQLite", *repeated(
            9, lambda n: db.execute(counted).fetchall(), lambda n: native.execute(counted).fetchall()), 20)
        upsert = ("INSERT INTO orders VALUES (?, 1, 'new', 5, ?) "
                  "ON CONFLICT (order_id) DO UPDATE SET status = excluded.status")
        for name, target, sql, given in (
            ("point get", 4, "SELECT * FROM orders WHERE order_id = ?", lambda n: (n * 7,)),
            ("expression by key", 8, "SELECT total_cents * 2 + 1, upper(status) FROM orders WHERE order_id = ?",
             lambda n: (n * 7,)),
            ("join by key", 8, "SELECT o.order_id, c.region FROM orders o JOIN customer c "
             "ON c.customer_id = o.customer_id WHERE o.order_id = ?", lambda n: (n * 7,)),
            ("one-row INSERT", 3, "INSERT INTO orders VALUES (?, 5, 'open', 100, ?)", lambda n: (count + n, when)),
            ("UPDATE by key", 3, "UPDATE orders SET status = 'paid' WHERE order_id = ?", lambda n: (n * 7,)),
            ("UPDATE by key, by expression", 3, "UPDATE orders SET total_cents = total_cents + 1 WHERE order_id = ?",
             lambda n: (n * 7,)),
            ("upsert", 3, upsert, lambda n: (n * 3, when)),
        ):  # fmt: skip
            def plain_values(n: int, given: Any = given) -> tuple[Any, ...]:
                return tuple(1_700_000_000_000_000_000 if value is when else value for value in given(n))

            report.compare(f"{name} / SQLite", *repeated(
                times, lambda n, sql=sql, given=given: db.execute(sql, given(n)).fetchall(),
                lambda n, sql=sql, values=plain_values: native.execute(sql, values(n)).fetchall()), target)
        whole = "UPDATE orders SET total_cents = total_cents + 1"
        mine, other = best(lambda: db.execute(whole), 1), best(lambda: native.execute(whole).fetchall(), 1)
        report.at_most("UPDATE of all rows by expression / SQLite", mine / other, 18,
                       f"{mine:.2f} s against {other:.2f} s")
    native.close()


def at_once(report: Report, folder: Path) -> None:
    """Sixteen threads, each with small transactions on rows of its own."""
    threads, each = 16, 5 if report.small else 40
    with open_database(str(folder / "threads.db")) as db:
        db.execute("CREATE TABLE account (id BIGINT PRIMARY KEY, amount BIGINT)")
        db.bulk_load("account", pa.table({"id": range(10_000), "amount": [0] * 10_000}))

        def work(thread: int) -> None:
            for n in range(each):
                with db.transaction():
                    db.execute("UPDATE account SET amount = amount + 1 WHERE id = ?", (thread * 500 + n,))

        with ThreadPoolExecutor(threads) as pool:
            taken = seconds(lambda: list(pool.map(work, range(threads))))
    report.at_least("commits a second of 16 threads on different rows, against 99", threads * each / taken / 99, 5,
                    f"{threads * each / taken:.0f} a second")


def analytic(report: Report, folder: Path) -> None:
    """Queries in the manner of TPC-H beside DuckDB on its own tables: the first time, again, and beyond the memory."""
    import duckdb

    scale = 0.01 if report.small else report.scale
    data = sql_tpch.generated(scale)
    native = duckdb.connect(str(folder / "tpch.duckdb"))
    url = str(folder / "tpch.db")
    with open_database(url) as db:
        for name, declared in sql_tpch.TABLES.items():
            db.execute(f"CREATE TABLE {name} ({declared})")
            db.bulk_load(name, data[name])
            native.execute(f"CREATE TABLE {name} ({declared})")
            native.register("given", data[name])
            native.execute(f"INSERT INTO {name} ({', '.join(data[name].column_names)}) SELECT * FROM given")
            native.unregister("given")

    def passes(db: Database, times: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        mine: dict[str, list[float]] = {name: [] for name in sql_tpch.QUERIES}
        other: dict[str, list[float]] = {name: [] for name in sql_tpch.QUERIES}
        for _ in range(times):
            for name, sql in sql_tpch.QUERIES.items():
                mine[name].append(seconds(lambda sql=sql: db.query(sql)))
                other[name].append(seconds(lambda sql=sql: native.sql(sql).to_arrow_table()))
        return mine, other

    room = sum(table.nbytes for table in data.values()) // 8
    for title, cache, first in (("TPC-H", None, True), ("TPC-H beyond the cache", room, False)):
        with open_database(url, cache=cache) as db:
            mine, other = passes(db, 4)
            if first:
                total, theirs = (sum(taken[0] for taken in each.values()) for each in (mine, other))
                report.at_most(f"{title} at scale {scale:g}, first run / DuckDB", total / theirs, 5,
                               f"{total:.2f} s against {theirs:.2f} s")
            total, theirs = (sum(min(taken[1:]) for taken in each.values()) for each in (mine, other))
            report.at_most(f"{title} at scale {scale:g}{', warm' if first else ''} / DuckDB", total / theirs,
                           2 if first else 4, f"{total:.2f} s against {theirs:.2f} s")
            report.note(", ".join(f"{name} {min(mine[name][1:]) * 1000:.0f}/{min(other[name][1:]) * 1000:.0f} ms"
                                  for name in mine))
    native.close()


def main() -> None:
    report = Report("SQL tables")
    if report.as_users_do:
        with tempfile.TemporaryDirectory() as name:
            by_key(report, Path(name))
            beside_postgres(report, Path(name))
            at_once(report, Path(name))
            analytic(report, Path(name))
            as_users_do(report, Path(name))
            branches_as_users_do(report, Path(name))
    if report.tuned:
        tuned(report)
    report.finish()


def tuned(report: Report) -> None:
    """Without the cache of columns, against SQLite with the pragmas of ours."""
    count = 100_000 if report.small else 1_000_000
    data = orders(count)
    encoding(report, data)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        native = Native(folder / "native.db")
        with open_database(str(folder / "ours.db"), cache=0) as db:
            db.execute(f"CREATE TABLE orders ({DECLARED.format('TIMESTAMP')})")
            db.execute("CREATE INDEX by_customer ON orders (customer_id)")
            mine = best(lambda: db.bulk_load("orders", data), 1)
            other = best(lambda: native.load(data), 1)
            report.at_most("bulk load with one index", mine / other, 3, f"{mine:.1f} s against {other:.1f} s")
            reads(report, db, native, count)
            with open_database(str(folder / "ours.db"), readonly=True) as again:
                analysis(report, db, again, native)
            writes(report, db, native, count, 100 if report.small else 400)
        history(report, folder, count)


if __name__ == "__main__":
    main()
