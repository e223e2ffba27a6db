"""Aggregates over many batches, and over columns that were kept: the answers are the same as without."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from marking import slow_after
from sql_work import work

from ontolake.errors import Invalid
from ontolake.sql import Database, open_database
from ontolake.sql.keyspace import versions

COUNT = 3000


def fill(db: Database) -> None:
    rng = random.Random(4)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g TEXT, v BIGINT, x DOUBLE PRECISION, d DECIMAL(9, 2), "
               "at TIMESTAMP)")
    ids = range(COUNT)
    db.bulk_load("t", pa.table({
        "id": ids, "g": [None if n % 7 == 0 else f"g{n % 5}" for n in ids],
        "v": pa.array([None if n % 3 == 0 else rng.randint(-100, 100) for n in ids], pa.int64()),
        "x": [float(n % 64) for n in ids], "d": pa.array(ids).cast(pa.decimal128(20, 0)).cast(pa.decimal128(22, 2)),
        "at": pa.array([n * 10**9 for n in ids]).view(pa.timestamp("ns")),
    }))  # fmt: skip


QUERIES = [
    "SELECT count(*), sum(v), min(g), max(at) FROM t", "SELECT count(*), sum(v), avg(v), max(g) FROM t WHERE id < 0",
    "SELECT g, count(v), avg(v), sum(d), avg(x) FROM t GROUP BY g ORDER BY g",
    "SELECT g AS h, sum(v) + 1 AS s FROM t WHERE id > 50 GROUP BY h HAVING count(*) > 5 ORDER BY s DESC LIMIT 2",
    "SELECT id % 3, sum(v) FILTER (WHERE x > 3), count(*) FILTER (WHERE v > 0) FROM t GROUP BY 1 ORDER BY 1",
    "SELECT upper(g), max(d) - min(d) FROM t GROUP BY upper(g) ORDER BY upper(g)",
    "SELECT g, avg(d), count(DISTINCT v) FROM t GROUP BY g ORDER BY 1", "SELECT sum(v) / count(*) FROM t AS other",
    "SELECT g FROM t GROUP BY g HAVING max(v) > 90 ORDER BY max(v), g", "SELECT max(id) FROM t WHERE g = 'g1'",
    "SELECT g, count(*) FROM t WHERE id < 0 GROUP BY g",
    "SELECT CASE WHEN max(v) > 0 THEN 'up' ELSE g END FROM t GROUP BY g ORDER BY 1",
    "SELECT g, v, count(*) FROM t GROUP BY g, v ORDER BY g, v LIMIT 9 OFFSET 3", "SELECT stddev(x) > 0 FROM t",
    "SELECT max(v) AS g, count(*) FROM t GROUP BY t.g ORDER BY g, 2",
    "SELECT -v AS v, count(*) AS id FROM t GROUP BY t.v ORDER BY v LIMIT 3",
    "SELECT _parts.g, count(*) FROM t AS _parts GROUP BY _parts.g ORDER BY 1", "SELECT sum(v) FROM t WHERE id > ?",
]  # fmt: skip


@pytest.mark.parametrize("sql", slow_after(8, QUERIES))
def test_an_aggregate_of_small_batches_is_that_of_the_whole(
    sql: str, whole: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = (COUNT // 2,) * sql.count("?")
    expected = whole.query(sql, values)
    monkeypatch.setattr(versions, "BATCH", 100)
    found = whole.query(sql, values)
    assert found.to_pylist() == expected.to_pylist()
    assert found.schema.equals(expected.schema)


@pytest.fixture(scope="module")
def whole() -> Any:
    with open_database(":memory:", cache=0) as db:
        fill(db)
        yield db


def test_what_was_read_is_kept_until_something_is_written(db: Database) -> None:
    fill(db)
    queries = ["SELECT sum(v) FROM t", "SELECT g, count(*) FROM t GROUP BY g",
               "SELECT count(*), sum(a.v) FROM t a JOIN t b ON b.id = a.v"]  # fmt: skip
    first = [sorted(db.execute(sql).fetchall(), key=repr) for sql in queries]
    steps = work(db, lambda: [db.execute(sql) for sql in queries])
    assert steps < work(db, lambda: db.execute("SELECT * FROM t")) / 2
    assert [sorted(db.execute(sql).fetchall(), key=repr) for sql in queries] == first
    version, total = db.version(), first[0][0][0]
    db.execute("INSERT INTO t (id, v) VALUES (-1, 1000)")
    assert db.execute(queries[0]).fetchall() == [(total + 1000,)]
    for _ in range(2):
        assert db.query(queries[0], as_of=version).to_pydict() == {"sum": [total]}
    db.execute("BEGIN; UPDATE t SET v = 2000 WHERE id = -1")
    assert db.execute(queries[0]).fetchall() == [(total + 2000,)], "a transaction sees what it wrote"
    db.execute("ROLLBACK")
    assert db.execute(queries[0]).fetchall() == [(total + 1000,)]
    db.execute("ALTER TABLE t RENAME COLUMN v TO w; ALTER TABLE t ALTER COLUMN w TYPE DECIMAL(9, 1)")
    assert db.execute("SELECT sum(w) FROM t").fetchall() == [(total + 1000,)]
    assert db.query(queries[0], as_of=version).to_pydict() == {"sum": [total]}


def test_another_connection_is_not_missed(native_place: str, open_here: Any) -> None:
    first, second = open_here(native_place), open_here(native_place)
    fill(first)
    for number in range(3):
        found = second.execute("SELECT count(*), max(g) FROM t").fetchone()
        assert found == (COUNT - number, "g4")
        first.execute("DELETE FROM t WHERE id = ?", (number,))


def test_no_more_is_kept_than_there_is_room_for(open_here: Any) -> None:
    db = open_here(":memory:", cache=60_000)
    fill(db)
    kept = db._session.columns
    for sql in ("SELECT sum(v) FROM t", "SELECT sum(v), max(id) FROM t", "SELECT max(d), max(id), sum(v) FROM t",
                "SELECT sum(x) FROM t", "SELECT sum(v) FROM t"):  # fmt: skip
        db.execute(sql)
        assert kept.size <= 60_000
    assert kept.size > 0
    with pytest.raises(Invalid):
        open_here(":memory:", cache=-1)
