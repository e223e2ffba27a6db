"""Rows come a batch at a time, of one state, with the memory of a few batches; they are those of the whole query."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from ontolake.errors import Invalid
from ontolake.sql import Database, SqlError, open_database
from ontolake.sql.plan import streams
from ontolake.sql.syntax.statements import parse_one

ROWS = 3_000
QUERIES = [
    "SELECT * FROM t", "SELECT s, id AS key, s FROM t", "SELECT * FROM t WHERE id >= 100 AND id < 900 OR id = 7",
    "SELECT id FROM t ORDER BY id", "SELECT id FROM t ORDER BY id DESC", "SELECT id, n FROM t WHERE a = 3",
    "SELECT a + 1 AS b, upper(s) FROM t WHERE s LIKE '%7%'", "SELECT a / 2.0 AS q, m FROM t WHERE s LIKE '%7%'",
    "SELECT id, s || 'x' AS x FROM t ORDER BY id", "SELECT a, count(*), sum(d), avg(m) FROM t GROUP BY a ORDER BY a",
    "SELECT * FROM t ORDER BY s, id", "SELECT id FROM t LIMIT 1500",
    "SELECT id FROM t ORDER BY id LIMIT 70 OFFSET 1400",
    "SELECT * FROM t WHERE id = 17", "SELECT * FROM t WHERE id < 0", "SELECT s FROM t WHERE s = 'nothing'",
    "SELECT count(*) FROM t", "SELECT 1 AS one", "SELECT id, a FROM t LIMIT 0", "SELECT sum(a) FROM t WHERE id < 0",
    "SELECT x.id FROM t x JOIN t y ON y.id = x.a ORDER BY x.id", "SELECT l, u FROM t WHERE id % 2 = 0",
]  # fmt: skip


def filled(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a INTEGER, s TEXT, d DECIMAL(9, 2), m NUMERIC, n TIMESTAMPTZ, "
               "l TEXT[], u UUID); CREATE INDEX by_a ON t (a)")  # fmt: skip
    numbers = range(ROWS)
    db.bulk_load("t", pa.table({
        "id": numbers, "a": pa.array([None if n % 11 == 0 else n % 13 for n in numbers], pa.int32()),
        "s": [None if n % 17 == 0 else "ä" * (n % 40) + str(n) for n in numbers],
        "d": pa.array([n % 1000 for n in numbers], pa.decimal128(9, 2)),
        "m": [f"{n}.{'5' * (n % 4 + 1)}" for n in numbers],
        "n": pa.array([n * 10**9 for n in numbers], pa.timestamp("us", "UTC")),
        "l": [None if n % 5 == 0 else [str(n), None] for n in numbers],
        "u": [f"00000000-0000-0000-0000-{n:012d}" for n in numbers]}))  # fmt: skip


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STEP", 20_000)
    monkeypatch.setattr(streams, "_FIRST", 64)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["native", "branch", "pages", "memory", "transaction", "past"])
def test_the_batches_of_a_query_are_its_rows(place: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp(place)
    url = {"pages": f"file://{folder}/t.db", "memory": ":memory:"}.get(place, f"{folder}/t.db")
    with open_database(url) as db:
        filled(db)
        at = db.version() if place == "past" else None
        if place == "past":
            db.execute("DELETE FROM t WHERE id % 3 = 0; UPDATE t SET s = 'later' WHERE id % 5 = 0")
        if place == "branch":
            db.branches.create("b")
            db.checkout("b")
        if place in ("branch", "transaction"):
            db.execute("BEGIN" if place == "transaction" else "SELECT 1")
            db.execute("DELETE FROM t WHERE id % 7 = 0; UPDATE t SET s = 'new' WHERE id % 5 = 0")
        for sql in QUERIES:
            expected = db.run(parse_one(sql), (), at).typed()
            with db.stream(sql, as_of=at) as rows:
                batches = list(rows.batches())
                assert rows.columns == expected.column_names, sql
            found = pa.Table.from_batches(batches)
            assert found.schema == expected.schema, sql
            if "LIMIT" in sql and "ORDER BY" not in sql:  # any rows will do
                assert found.num_rows == expected.num_rows, sql
            else:
                assert _listed(found, "ORDER BY" in sql) == _listed(expected, "ORDER BY" in sql), sql


def _listed(table: pa.Table, ordered: bool) -> list[str]:
    rows = [repr(row) for row in table.to_pylist()]
    return rows if ordered else sorted(rows)


@pytest.fixture
def db(native_place: str) -> Iterator[Database]:
    with open_database(native_place) as found:
        filled(found)
        yield found


def test_all_batches_are_of_one_state_while_others_write(db: Database) -> None:
    with db.stream("SELECT id, a FROM t") as rows:
        batches = rows.batches()
        first = next(batches)
        db.execute("UPDATE t SET a = -1")
        db.execute("DELETE FROM t WHERE id > 10")
        found = pa.Table.from_batches([first, *batches])
    assert found.num_rows == ROWS
    assert -1 not in found.column("a").to_pylist()
    assert db.execute("SELECT count(*) FROM t").fetchone() == (11,)


def test_a_connection_to_the_past_streams_it(db: Database) -> None:
    at = db.version()
    db.execute("DELETE FROM t")
    connection = db.connect(as_of=at)
    with connection.stream("SELECT id FROM t") as rows:
        assert sum(batch.num_rows for batch in rows.batches()) == ROWS
    connection.close()


def test_other_threads_may_take_batches(db: Database) -> None:
    with db.stream("SELECT id FROM t") as rows, ThreadPoolExecutor(4) as pool:
        parts = pool.map(lambda _: [batch.num_rows for batch in rows.batches()], range(4))
        assert sum(map(sum, parts)) == ROWS


def test_rows_of_a_stream_are_python_values(db: Database) -> None:
    with db.stream("SELECT id, d, l FROM t WHERE id < ?", (3,)) as rows:
        assert list(rows) == db.execute("SELECT id, d, l FROM t WHERE id < 3").fetchall()
        assert list(rows) == []


def test_what_is_closed_gives_no_more_rows_and_holds_nothing(db: Database) -> None:
    for _ in range(20):
        rows = db.stream("SELECT * FROM t")
        batches = rows.batches()
        next(batches)
        rows.close()
        rows.close()
        with pytest.raises(Invalid, match="closed"):
            next(batches)
    assert len(db._sessions.pool._others) <= 2, "sessions are used again"
    db.execute("DROP TABLE t")


@pytest.mark.parametrize(("sql", "state"), [
    ("DELETE FROM t", "42601"), ("SELECT nothing FROM t", "42703"), ("SELECT 1 / a FROM t WHERE id > 1", "22012"),
    ("SELECT * FROM t WHERE id = ?", "07001")])  # fmt: skip
def test_errors_are_those_of_the_query(db: Database, sql: str, state: str) -> None:
    db.execute("UPDATE t SET a = 0 WHERE id = 2900")
    with pytest.raises(SqlError) as caught, db.stream(sql) as rows:
        list(rows.batches())
    assert caught.value.sqlstate == state
    assert db.execute("SELECT count(*) FROM t").fetchone() == (ROWS,)


def test_a_stream_that_takes_too_long_is_canceled(db: Database) -> None:
    db.execute("SET statement_timeout = '50ms'")
    with pytest.raises(SqlError) as caught:
        db.stream("SELECT count(*) FROM t a, t b, t c WHERE a.s || b.s || c.s = 'x'")
    assert caught.value.sqlstate == "57014"


def _peak(action: Callable[[], Iterable[object]]) -> int:
    """The bytes that batches need at most, of Arrow, numpy and Python."""
    pool = pa.default_memory_pool()
    before, high = pool.bytes_allocated(), 0
    tracemalloc.start()
    try:
        for _ in action():
            high = max(high, pool.bytes_allocated() - before)
        return tracemalloc.get_traced_memory()[1] + high
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_table_of_any_size_needs_the_memory_of_a_few_batches(
    native_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STEP", 200_000)
    size = 200
    with open_database(native_place, cache=0) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, s TEXT)")
        for start in range(0, 120_000, 20_000):
            numbers = range(start, start + 20_000)
            db.bulk_load("t", pa.table({"id": numbers, "a": numbers, "s": ["x" * size] * 20_000}))
        whole = 120_000 * (size + 16)
        for sql in ("SELECT * FROM t", "SELECT * FROM t ORDER BY id",
                    "SELECT a * 2, s || '!' FROM t WHERE a % 3 <> 1"):  # fmt: skip
            assert _peak(db.stream(sql).batches) < whole // 4, sql
        assert _peak(lambda: [db.query("SELECT * FROM t")]) > whole
