"""Statements do what PostgreSQL's do, and keep rows and indexes right."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from marking import slow_after

from ontolake.sql import Database, SqlError, UniqueError, splits
from ontolake.sql.keyspace import keys
from ontolake.sql.keyspace.rows import TOMBSTONE

EXAMPLE = """
CREATE DATABASE app;
CREATE SCHEMA app.public;
CREATE TABLE app.public.orders (
  order_id BIGINT PRIMARY KEY, customer_id BIGINT NOT NULL, status TEXT, total_cents BIGINT NOT NULL,
  created_at TIMESTAMP_NS NOT NULL);
CREATE INDEX idx_orders_customer ON app.public.orders (customer_id);
INSERT INTO app.public.orders (order_id, customer_id, status, total_cents, created_at)
VALUES (1001, 42, 'paid', 1299, TIMESTAMP '2026-02-11 10:00:00');
"""


def stored(db: Database) -> dict[str, bytes]:
    found: Any = db._session.connection.execute("SELECT key, value FROM latest").fetchall()
    return {key.hex(): value for key, value in found}


def entries(db: Database, index: int = 1, table: int = 100) -> list[bytes]:
    prefix = keys.entry_prefix(table, index)
    found: Any = db._session.connection.execute(
        "SELECT key FROM latest WHERE key >= ? AND key < ? ORDER BY key", (prefix, keys.after(prefix))).fetchall()
    return [row[0] for row in found]


def rows(db: Database, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    return db.execute(sql, values).fetchall()


def test_the_worked_example_has_its_keys(anywhere: Database) -> None:
    anywhere.execute(EXAMPLE)
    one, hundred = "0000000000000001", "0000000000000064"
    expected = [
        f"01{one}", f"02{one}{one}", f"03{one}{one}{hundred}", *(f"04{hundred}{n:016x}" for n in range(1, 6)),
        f"05{hundred}{one}", "060003" + b"app".hex(), f"07{one}0006" + b"public".hex(),
        f"08{one}{one}0006" + b"orders".hex(), f"20{hundred}020080000000000003e9",
        f"30{hundred}{one}0200800000000000002a020080000000000003e9",
    ]  # fmt: skip
    assert sorted(stored(anywhere)) == expected
    created = 1770804000 * 10**9
    assert stored(anywhere)[expected[-2]].hex() == (
        "01000005000100" "0000000800000000000003e9" "00000008000000000000002a" "000000080000000470616964"
        "000000080000000000000513" f"00000008{created:016x}")  # fmt: skip
    assert stored(anywhere)[expected[-1]] == b"\x01\x00"
    row = (1001, 42, "paid", 1299, datetime.datetime(2026, 2, 11, 10))
    assert rows(anywhere, "SELECT * FROM orders WHERE customer_id = 42") == [row]


def test_a_delete_leaves_tombstones(db: Database) -> None:
    db.execute(EXAMPLE)
    db.execute("DELETE FROM orders")
    found: Any = db._session.connection.execute(
        "SELECT key, value FROM kv WHERE version = ? ORDER BY key", (db.version(),)).fetchall()
    assert [value for _, value in found] == [TOMBSTONE, TOMBSTONE]
    assert [key[0] for key, _ in found] == [0x20, 0x30]


def test_every_type_comes_back_as_it_was(everywhere: Database) -> None:
    everywhere.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, b BOOLEAN, s SMALLINT, d DECIMAL(20, 3), "
                       "f DOUBLE PRECISION, day DATE, raw BYTEA, ts TIMESTAMP, v VARCHAR(5))")  # fmt: skip
    row = (1, True, -3, Decimal("-12345678901234567.125"), 0.1, datetime.date(1969, 7, 20), b"\x00\xff",
           datetime.datetime(1901, 1, 1, 0, 0, 0, 1), "ab\x00")
    everywhere.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    everywhere.execute("INSERT INTO t (id) VALUES (2)")
    assert rows(everywhere, "SELECT * FROM t WHERE id = 1") == [row]
    assert rows(everywhere, "SELECT * FROM t ORDER BY id") == [row, (2, *[None] * 8)]
    for n, name in enumerate(["id", "b", "s", "d", "f", "day", "raw", "ts", "v"]):
        assert rows(everywhere, f"SELECT id FROM t WHERE {name} = ?", row[n]) == [(1,)], name


def test_moments_with_a_zone_are_kept_in_utc(everywhere: Database) -> None:
    everywhere.execute("CREATE TABLE z (id BIGINT PRIMARY KEY, at TIMESTAMP WITH TIME ZONE, n TIMESTAMP)")
    everywhere.execute("CREATE INDEX by_at ON z (at)")
    everywhere.execute("INSERT INTO z VALUES (1, '2026-02-11 10:00:00+02', '2026-02-11 10:00:00'), (3, NULL, NULL)")
    everywhere.execute("INSERT INTO z VALUES (2, ?, ?)", (datetime.datetime(2026, 2, 11, 9, tzinfo=datetime.UTC),
                                                         datetime.datetime(2026, 2, 11, 9)))  # fmt: skip
    everywhere.execute("INSERT INTO z (id, at) VALUES (4, TIMESTAMPTZ '2026-02-11 01:00:00.123456-09:30')")
    eight, nine = (datetime.datetime(2026, 2, 11, hour, tzinfo=datetime.UTC) for hour in (8, 9))
    late = datetime.datetime(2026, 2, 11, 10, 30, 0, 123456, datetime.UTC)
    assert everywhere.execute("SELECT at FROM z ORDER BY id").fetchall() == [(eight,), (nine,), (None,), (late,)]
    assert everywhere.execute("SELECT at FROM z WHERE id = 1").fetchall() == [(eight,)], "one key, another way"
    table = everywhere.query("SELECT at, n FROM z ORDER BY id")
    assert table.schema.types == [pa.timestamp("us", "UTC"), pa.timestamp("us")]
    for where, value, expected in (
        ("at = ?", eight, [1]), ("at = '2026-02-11 10:00:00+02'", None, [1]), ("at > ?", eight, [2, 4]),
        ("at < ?", nine.astimezone(datetime.timezone(datetime.timedelta(hours=5))), [1]), ("at >= n", None, [2]),
        ("at >= TIMESTAMPTZ '2026-02-11 09:00:00Z' OR id = 3", None, [2, 3, 4]),
        ("extract(hour FROM at) = 8", None, [1]),
    ):
        sql = f"SELECT id FROM z WHERE {where} ORDER BY id"
        found = everywhere.execute(sql, () if value is None else (value,)).fetchall()
        assert [id for (id,) in found] == expected, where
    assert "by_at" in everywhere.explain("SELECT id FROM z WHERE at = ?", (eight,))
    everywhere.execute("UPDATE z SET at = at + INTERVAL '1 hour' WHERE id = 1")
    everywhere.bulk_load("z", pa.table({"id": [9], "at": pa.array([nine], pa.timestamp("us", "Europe/Berlin"))}))
    assert everywhere.execute("SELECT id FROM z WHERE at = ? ORDER BY id", (nine,)).fetchall() == [(1,), (2,), (9,)]
    assert list(everywhere.verify()) == []
    columns = everywhere.catalog().by_full_name["main.public.z"].columns
    shown = splits.shown(everywhere.query("SELECT * FROM z"), columns)
    assert shown.schema.types[1:] == [splits.MOMENT] * 2, "workers see them the same way"
    with pytest.raises(SqlError) as raised:
        everywhere.execute("INSERT INTO z (id, at) VALUES (5, '2026-02-11 10:00:00+99')")
    assert raised.value.sqlstate == "22009"


def test_nanoseconds_are_kept(db: Database) -> None:
    db.execute("CREATE TABLE t (ts TIMESTAMP_NS PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES ('2026-01-01 00:00:00.123456789')")
    assert db.query("SELECT ts FROM t").column(0).cast(pa.int64()).to_pylist() == [1767225600123456789]
    assert rows(db, "SELECT count(*) FROM t WHERE ts = '2026-01-01 00:00:00.123456789'") == [(1,)]


@pytest.mark.parametrize("count", slow_after(3, [0, 1, 3, 5000]))
def test_in_lists_of_any_length(db: Database, count: int) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x TEXT)")
    db.bulk_load("t", pa.table({"id": range(3000), "x": [str(n) for n in range(3000)]}))
    wanted = list(range(1, 2 * count, 2))
    expected = [n for n in wanted if n < 3000]
    assert sorted(row[0] for row in rows(db, "SELECT id FROM t WHERE id = ANY(?)", wanted)) == expected
    if count:
        listed = ", ".join("?" * count)
        assert sorted(row[0] for row in rows(db, f"SELECT id FROM t WHERE id IN ({listed})", *wanted)) == expected


def test_index_only_reads_skip_what_is_gone(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, note TEXT); CREATE INDEX by_a ON t (a) INCLUDE (note)")
    db.bulk_load("t", pa.table({"id": range(100), "a": [n % 10 for n in range(100)], "note": ["x"] * 100}))
    before = db.version()
    db.execute("DELETE FROM t WHERE id < 50")
    db.execute("UPDATE t SET note = 'y', a = 11 WHERE id = 53")
    sql = "SELECT a, id, note FROM t WHERE a = 3"
    assert "index-only range" in db.explain(sql)
    assert sorted(rows(db, sql)) == [(3, n, "x") for n in (63, 73, 83, 93)]
    assert db.query(sql, as_of=before).num_rows == 10


def test_an_update_of_an_indexed_value_leaves_one_entry(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT); CREATE INDEX by_a ON t (a DESC)")
    db.execute("INSERT INTO t VALUES (1, 'x'), (2, NULL)")
    for value in ("y", "z", None, "x", "x"):
        db.execute("UPDATE t SET a = ? WHERE id = 1", (value,))
        assert len(entries(db)) == 2
    with db.transaction():
        db.execute("UPDATE t SET a = 'q' WHERE id = 1")
        db.execute("UPDATE t SET a = 'r' WHERE id = 1")
        db.execute("DELETE FROM t WHERE id = 2")
        db.execute("INSERT INTO t VALUES (2, 's')")
    assert len(entries(db)) == 2
    assert rows(db, "SELECT id FROM t WHERE a = 'r'") == [(1,)]
    assert list(db.verify()) == []


def test_added_columns_read_as_their_default_on_old_rows(everywhere: Database) -> None:
    everywhere.execute("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1)")
    before = everywhere.version()
    everywhere.execute("ALTER TABLE t ADD COLUMN a BIGINT DEFAULT 7, ADD COLUMN b TEXT")
    everywhere.execute("INSERT INTO t (id, b) VALUES (2, 'x')")
    everywhere.execute("ALTER TABLE t ALTER COLUMN a SET DEFAULT 8")
    everywhere.execute("INSERT INTO t (id) VALUES (3)")
    everywhere.execute("INSERT INTO t VALUES (4, NULL, NULL)")
    expected = [(1, 7, None), (2, 7, "x"), (3, 8, None), (4, None, None)]
    assert rows(everywhere, "SELECT * FROM t ORDER BY id") == expected
    assert rows(everywhere, "SELECT id FROM t WHERE a = 7 ORDER BY id") == [(1,), (2,)]
    everywhere.execute("CREATE INDEX by_a ON t (a)")
    assert sorted(rows(everywhere, "SELECT id FROM t WHERE a = 7")) == [(1,), (2,)]
    assert everywhere.query("SELECT * FROM t", as_of=before).to_pydict() == {"id": [1]}


def test_a_dropped_column_is_gone_and_its_id_is_not_used_again(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT, b TEXT); CREATE INDEX by_a ON t (a)")
    db.execute("INSERT INTO t VALUES (1, 'a', 'b')")
    before = db.version()
    db.execute("ALTER TABLE t DROP COLUMN a; ALTER TABLE t ADD COLUMN a BIGINT")
    assert rows(db, "SELECT * FROM t") == [(1, "b", None)]
    table = db.catalog().by_full_name["main.public.t"]
    assert [column.column_id for column in table.all_columns] == [1, 2, 3, 4]
    assert [column.dropped for column in table.all_columns] == [False, True, False, False]
    assert table.indexes == []
    assert db.query("SELECT a FROM t WHERE a = 'a'", as_of=before).to_pydict() == {"a": ["a"]}


def test_ids_are_never_used_again(db: Database) -> None:
    db.execute("CREATE TABLE a (id BIGINT PRIMARY KEY, x TEXT); CREATE INDEX i ON a (x)")
    db.execute("DROP INDEX i; CREATE INDEX i ON a (x)")
    assert db.catalog().by_full_name["main.public.a"].indexes[0].index_id == 2
    db.execute("DROP TABLE a; CREATE TABLE a (id BIGINT PRIMARY KEY)")
    assert db.catalog().by_full_name["main.public.a"].id == 101
    db.execute("BEGIN; CREATE TABLE b (id BIGINT PRIMARY KEY); ROLLBACK")
    with pytest.raises(Exception, match="more than one primary key"):
        db.execute("CREATE TABLE c (id BIGINT PRIMARY KEY, PRIMARY KEY (id))")
    db.execute("CREATE TABLE d (id BIGINT PRIMARY KEY)")
    ids = [table.id for table in db.catalog().by_id.values()]
    assert len(ids) == len(set(ids))


def test_names_can_change(db: Database) -> None:
    db.execute('CREATE TABLE "Odd Name" ("Key" BIGINT PRIMARY KEY, a BIGINT CHECK (a > 0))')
    db.execute('INSERT INTO "Odd Name" VALUES (1, 2)')
    db.execute('ALTER TABLE "Odd Name" RENAME TO plain; ALTER TABLE plain RENAME COLUMN "Key" TO k')
    db.execute("ALTER TABLE plain RENAME COLUMN a TO b")
    assert rows(db, "SELECT k, b FROM plain") == [(1, 2)]
    with pytest.raises(Exception, match="CHECK"):
        db.execute("INSERT INTO plain VALUES (2, 0)")
    db.execute("CREATE INDEX i ON plain (b); ALTER INDEX i RENAME TO j; DROP INDEX j")


def test_unique_indexes_hold_and_take_nulls_as_distinct(everywhere: Database) -> None:
    everywhere.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT, b BIGINT, UNIQUE (a, b))")
    everywhere.execute("INSERT INTO t VALUES (1, 'x', 1), (2, 'x', NULL), (3, 'x', NULL), (4, NULL, 1)")
    for statement in ("INSERT INTO t VALUES (5, 'x', 1)", "UPDATE t SET b = 1 WHERE id = 2",
                      "INSERT INTO t VALUES (6, 'q', 1), (7, 'q', 1)"):  # fmt: skip
        with pytest.raises(UniqueError) as raised:
            everywhere.execute(statement)
        assert raised.value.constraint == "t_a_b_key"
    everywhere.execute("DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (5, 'x', 1)")
    everywhere.execute("UPDATE t SET a = 'y' WHERE id = 5; INSERT INTO t VALUES (1, 'x', 1)")
    with pytest.raises(UniqueError):
        everywhere.bulk_load("t", pa.table({"id": range(100, 200), "a": ["x"] * 100, "b": [*range(2, 101), 1]}))
    assert rows(everywhere, "SELECT count(*) FROM t") == [(5,)]
    everywhere.execute("INSERT INTO t VALUES (9, 'x', 1) ON CONFLICT (a, b) DO UPDATE SET a = 'was ' || t.a")
    assert rows(everywhere, "SELECT id, a FROM t WHERE b = 1 AND a = 'was x'") == [(1, "was x")]
    assert list(everywhere.verify()) == []


def test_swapping_primary_keys_in_one_statement(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT); CREATE INDEX by_a ON t (a)")
    db.execute("INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    db.execute("UPDATE t SET id = 4 - id")
    assert rows(db, "SELECT * FROM t ORDER BY id") == [(1, "three"), (2, "two"), (3, "one")]
    with pytest.raises(UniqueError):
        db.execute("UPDATE t SET id = 2 WHERE id = 1")
    assert list(db.verify()) == []


def test_update_and_delete_with_other_tables(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
    db.execute("CREATE TABLE u (id BIGINT PRIMARY KEY, t BIGINT, v BIGINT)")
    db.execute("INSERT INTO t VALUES (1, 0), (2, 0), (3, 0); INSERT INTO u VALUES (1, 1, 5), (2, 1, 5), (3, 2, 9)")
    assert db.execute("UPDATE t SET a = u.v FROM u WHERE u.t = t.id").count == 2
    assert rows(db, "SELECT * FROM t ORDER BY id") == [(1, 5), (2, 9), (3, 0)]
    assert db.execute("DELETE FROM t USING u WHERE u.t = t.id AND u.v > 6").count == 1
    assert db.execute("DELETE FROM t WHERE id IN (SELECT t FROM u)").count == 1
    assert rows(db, "SELECT * FROM t") == [(3, 0)]
    assert db.execute("INSERT INTO t SELECT id + 10, v FROM u WHERE v = 5").count == 2
    db.execute("TRUNCATE t")
    assert rows(db, "SELECT count(*) FROM t") == [(0,)]


def test_returning(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT DEFAULT 5)")
    assert rows(db, "INSERT INTO t (id) VALUES (1), (2) RETURNING *") == [(1, 5), (2, 5)]
    result = db.execute("UPDATE t SET a = a * 2 WHERE id = ? RETURNING id, a + ? AS more", (2, 1))
    assert (list(result.columns), result.fetchall(), result.status) == (["id", "more"], [(2, 11)], "UPDATE 1")
    assert rows(db, "DELETE FROM t WHERE id = 1 RETURNING a") == [(5,)]
    assert rows(db, "INSERT INTO t VALUES (2, 1) ON CONFLICT DO NOTHING RETURNING id") == []
    assert rows(db, "INSERT INTO t VALUES (2, 1), (3, 1) ON CONFLICT (id) DO UPDATE SET a = excluded.a RETURNING id, a "
                ) == [(3, 1), (2, 1)]


def test_parameters_of_every_style(db: Database) -> None:
    assert rows(db, "SELECT ? + ?, '?'", 1, 2) == [(3, "?")]
    assert rows(db, "SELECT $2,$1,$2", "a", "b") == [("b", "a", "b")]
    assert db.execute("SELECT :x || :y", {"x": "1", "y": "2"}).fetchall() == [("12",)]
    assert rows(db, "WITH a AS (SELECT ? AS x) SELECT x, ? FROM a LIMIT ?", 1, 2, 3) == [(1, 2)]
    assert rows(db, "SELECT ?", "it's -- ; fine") == [("it's -- ; fine",)]
    assert rows(db, "SELECT ?, ?", None, b"\x00") == [(None, b"\x00")]


def test_several_statements_and_comments(db: Database) -> None:
    done = db.execute("-- first\nCREATE TABLE t (id BIGINT PRIMARY KEY); /* ; */ INSERT INTO t VALUES (1); "
                      "SELECT ';' AS x;")  # fmt: skip
    assert done.fetchall() == [(";",)]


def test_statements_of_a_transaction_are_kept_or_forgotten_together(everywhere: Database) -> None:
    everywhere.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    version = everywhere.version()

    def fail() -> None:
        with everywhere.transaction():
            everywhere.execute("INSERT INTO t VALUES (1)")
            everywhere.execute("CREATE TABLE u (id BIGINT PRIMARY KEY)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert everywhere.version() == version
    assert list(everywhere.catalog().by_full_name) == ["main.public.t"]
    with everywhere.transaction():
        everywhere.execute("INSERT INTO t VALUES (1); SAVEPOINT s")
        with pytest.raises(UniqueError):
            everywhere.execute("INSERT INTO t VALUES (2), (1)")
        everywhere.execute("ROLLBACK TO s; INSERT INTO t VALUES (3)")
    assert everywhere.version() == version + 1
    assert rows(everywhere, "SELECT id FROM t ORDER BY id") == [(1,), (3,)]


def test_a_statement_that_changes_nothing_makes_no_commit(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    version = db.version()
    db.execute("DELETE FROM t; UPDATE t SET id = 1; INSERT INTO t SELECT * FROM t")
    db.execute("CREATE TABLE IF NOT EXISTS t (x TEXT)")
    assert db.version() == version


def test_bulk_load_sorts_fills_and_checks(anywhere: Database) -> None:
    anywhere.execute("CREATE TABLE t (k TEXT, n BIGINT, v DECIMAL(9, 2) DEFAULT 1.5 CHECK (v > 0), "
                       "PRIMARY KEY (k, n)); CREATE INDEX by_v ON t (v DESC, k)")  # fmt: skip
    count = 500
    data = pa.table({"n": pa.array(range(count, 0, -1), pa.int32()), "k": [f"k{n % 7}\x00" for n in range(count)]})
    assert anywhere.bulk_load("t", data) == count
    assert rows(anywhere, "SELECT count(*), min(v), max(v) FROM t") == [(count, Decimal("1.50"), Decimal("1.50"))]
    assert list(anywhere.verify()) == []
    with pytest.raises(UniqueError):
        anywhere.bulk_load("t", data)
    with pytest.raises(UniqueError):
        anywhere.bulk_load("t", pa.concat_tables([pa.table({"n": [9999], "k": ["q"]})] * 60))
    with pytest.raises(Exception, match="CHECK"):
        anywhere.bulk_load("t", pa.table({"n": range(60), "k": ["q"] * 60, "v": pa.array([-1] * 60)}))
    anywhere.execute("DELETE FROM t")
    assert anywhere.bulk_load("t", data) == count
    assert list(anywhere.verify()) == []
    assert len(entries(anywhere)) == count


def test_columns_of_queries_have_postgres_names(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
    sql = "SELECT id, a AS b, count(*), sum(a), sum(id), 1 + 1, max(a) OVER () FROM t GROUP BY id, a"
    assert db.query(sql).column_names == ["id", "b", "count", "sum", "sum", "?column?", "max"]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_bulk_load_may_be_small(db: Database, count: int) -> None:
    db.execute("CREATE TABLE few (id BIGINT PRIMARY KEY, name TEXT); CREATE INDEX few_name ON few (name)")
    ids, names = list(range(count)), [f"n{number}" for number in range(count)]
    db.bulk_load("few", pa.table({"id": pa.array(ids, pa.int64()), "name": pa.array(names, pa.string())}))
    assert db.query("SELECT id, name FROM few ORDER BY name").to_pydict() == {"id": ids, "name": names}


def test_an_insert_that_comes_again_follows_the_table_and_its_rules(everywhere: Database) -> None:
    everywhere.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT NOT NULL DEFAULT 7, b TEXT)")
    everywhere.execute("CREATE INDEX by_a ON t (a); CREATE UNIQUE INDEX by_b ON t (b)")
    sql, named = "INSERT INTO t (b, id) VALUES (?, ?)", "INSERT INTO t VALUES (:id, :a, :b)"
    for id in (1, 2):
        everywhere.execute(sql, (f"b{id}", id))
        everywhere.execute(named, {"id": id + 10, "a": id, "b": None})
    for values, state in ((("x", 1), "23505"), (("b1", 5), "23505"), (("x", "y"), "22P02"), (("x", None), "23502")):
        with pytest.raises(SqlError) as raised:
            everywhere.execute(sql, values)
        assert raised.value.sqlstate == state
    with everywhere.transaction():
        everywhere.execute(sql, ("b3", 3))
        everywhere.execute("SAVEPOINT s")
        with pytest.raises(UniqueError):
            everywhere.execute(sql, ("b4", 3))
        everywhere.execute("ROLLBACK TO s; DELETE FROM t WHERE id IN (2, 3)")
        everywhere.execute(sql, ("b3", 3))
    everywhere.execute(sql, ("b2", 2))
    everywhere.execute("ALTER TABLE t DROP COLUMN a; ALTER TABLE t ADD COLUMN c TEXT DEFAULT 'new'")
    everywhere.execute(sql, ("b5", 5))
    everywhere.execute("ALTER TABLE t RENAME COLUMN b TO d")
    with pytest.raises(SqlError) as raised:
        everywhere.execute(sql, ("b6", 6))
    assert raised.value.sqlstate == "42703"
    assert everywhere.execute("SELECT * FROM t ORDER BY id").fetchall() == [
        (1, "b1", "new"), (2, "b2", "new"), (3, "b3", "new"), (5, "b5", "new"), (11, None, "new"), (12, None, "new")]
    assert list(everywhere.verify()) == []


AS_POSTGRESQL: list[tuple[str, list[str], list[tuple[Any, ...]]]] = [
    ("SELECT id FROM t ORDER BY id FETCH FIRST 2 ROWS ONLY", ["id"], [(1,), (2,)]),
    ("SELECT id FROM t ORDER BY id OFFSET 1 ROW FETCH NEXT ROW ONLY", ["id"], [(2,)]),
    ("SELECT * FROM t CROSS JOIN LATERAL (SELECT n FROM u WHERE u.id = t.id) s ORDER BY 1", ["id", "b", "at", "n"],
     [(1, "one", datetime.datetime(2026, 1, 31, 9, 5), 5), (2, "two", None, 6)]),
    ("SELECT to_char(at, 'YYYY-MM-DD HH24:MI') FROM t WHERE id = 1", ["to_char"], [("2026-01-31 09:05",)]),
    ("SELECT 'abcdef'::varchar(3), CAST(b AS VARCHAR(2)) AS s FROM t WHERE id = 2", ["varchar", "s"], [("abc", "tw")]),
    ("SELECT string_agg(b, ',' ORDER BY b) FROM t", ["string_agg"], [("one,two",)]),
    ("SELECT date_trunc('month', at), lpad(b, 5, '.') FROM t WHERE id = 1", ["date_trunc", "lpad"],
     [(datetime.datetime(2026, 1, 1), "..one")]),
    ("SELECT id, (SELECT count(*) FROM u WHERE u.id = t.id) FROM t ORDER BY id", ["id", "count"],
     [(1, 1), (2, 1), (3, 0)]),
    ("SELECT g FROM generate_series(1, 5, 2) AS g", ["g"], [(1,), (3,), (5,)]),
    ("SELECT id, n FROM t JOIN u USING (id) WHERE id = 2 AND n > 1", ["id", "n"], [(2, 6)]),
    ("SELECT id, n FROM t x LEFT JOIN u USING (id) WHERE id > 1 ORDER BY id", ["id", "n"], [(2, 6), (3, None)]),
    ("SELECT t.b, n FROM t RIGHT JOIN (SELECT 9 AS id, 1 AS n) s USING (id) WHERE id = 9", ["b", "n"], [(None, 1)]),
    ("SELECT id FROM t WHERE id BETWEEN SYMMETRIC 2 AND 1 ORDER BY 1", ["id"], [(1,), (2,)]),
    ("SELECT id FROM t WHERE at = TIMESTAMP '2026-01-31 09:05' AND at > '2026-01-31 09:04'::timestamp", ["id"], [(1,)]),
    ("SELECT 3.5::int, (-3.5)::int, (0.5 + 2)::bigint, 2.4::smallint", ["int4", "int4", "int8", "int2"],
     [(4, -4, 3, 2)]),
    ("SELECT round(1e20), 1.5e3 + 1, 25e-1::int", ["round", "?column?", "int4"],
     [(Decimal(10) ** 20, Decimal(1501), 3)]),
    ("SELECT (n / 2.0)::int AS half FROM u ORDER BY (n / 2.0)::int", ["half"], [(3,), (3,)]),
    ("SELECT (n / 2.0)::int, count(*) FROM u GROUP BY (n / 2.0)::int ORDER BY (n / 2.0)::int", ["int4", "count"],
     [(3, 2)]),
    ("SELECT avg(n)::int, sqrt(n * 1.25)::int FROM u GROUP BY n ORDER BY n", ["avg", "sqrt"], [(5, 3), (6, 3)]),
    ("SELECT f::int FROM (VALUES (0.5::double precision), (1.5), (2.5), (-0.5), (2.6)) AS v (f)", ["f"],
     [(0,), (2,), (2,), (0,), (3,)]),
    ("SELECT s.half::int FROM (SELECT n / 2.0 AS half FROM u WHERE id = 1) s WHERE s.half::int = 3", ["half"], [(3,)]),
    ("SELECT b::text, at::text, at::varchar(10) FROM t WHERE id = 1", ["b", "at", "at"],
     [("one", "2026-01-31 09:05:00", "2026-01-31")]),
    ("SELECT 1::decimal, 1::double precision, true::boolean, '2026-01-01'::date::timestamp, 'a'::text, (1 + 1)::text",
     ["numeric", "float8", "bool", "timestamp", "text", "text"],
     [(Decimal(1), 1.0, True, datetime.datetime(2026, 1, 1), "a", "2")]),
    ("SELECT '2026-01-31 10:00:00.250'::timestamp::text", ["text"], [("2026-01-31 10:00:00.25",)]),
    ("SELECT '2026-01-31 10:00:00'::timestamptz::text", ["text"], [("2026-01-31 10:00:00+00",)]),
    ("SELECT (n > 5)::int, '7'::int, b::varchar(1) FROM t JOIN u USING (id) ORDER BY id", ["int4", "int4", "b"],
     [(0, 7, "o"), (1, 7, "t")]),
    ("SELECT EXISTS (SELECT 1 FROM t WHERE id = 9), EXISTS (SELECT max(id) FROM t WHERE id = 9)", ["exists", "exists"],
     [(False, True)]),
    ("SELECT id, EXISTS (SELECT 1 FROM u WHERE u.id = t.id ORDER BY n) AS known FROM t ORDER BY id", ["id", "known"],
     [(1, True), (2, True), (3, False)]),
    ("SELECT CASE WHEN EXISTS (SELECT n FROM u GROUP BY n HAVING count(*) > 1) THEN 1 ELSE 0 END AS e", ["e"], [(0,)]),
    ("SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.id = t.id)", ["id"], [(3,)]),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "columns", "rows"), AS_POSTGRESQL)
def test_queries_give_what_postgresql_gives(
    db: Database, sql: str, columns: list[str], rows: list[tuple[Any, ...]]
) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, b TEXT, at TIMESTAMP)")
    db.execute("CREATE TABLE u (id BIGINT PRIMARY KEY, n INT)")
    db.execute("INSERT INTO t VALUES (1, 'one', '2026-01-31 09:05'), (2, 'two', NULL), (3, NULL, NULL)")
    db.execute("INSERT INTO u VALUES (1, 5), (2, 6)")
    found = db.execute(sql)
    assert (list(found.columns), found.fetchall()) == (columns, rows)


def test_a_cast_cuts_what_a_column_refuses(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, b VARCHAR(2))")
    db.execute("INSERT INTO t VALUES (1, 'abc'::varchar(2))")
    assert db.execute("SELECT b FROM t").fetchall() == [("ab",)]
    with pytest.raises(SqlError) as raised:
        db.execute("INSERT INTO t VALUES (2, 'abc')")
    assert raised.value.sqlstate == "22001"


def test_a_column_is_renamed_without_the_word_too(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, b TEXT); INSERT INTO t VALUES (1, 'x')")
    db.execute("ALTER TABLE t RENAME b TO c")
    assert db.execute("SELECT c FROM t").fetchall() == [("x",)]
    assert list(db.catalog().by_full_name) == ["main.public.t"]


def test_changes_in_the_forms_that_postgresql_has(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT DEFAULT 7, b TEXT)")
    new = db.execute("WITH n AS (SELECT 1 AS i UNION ALL SELECT 2) "
                     "INSERT INTO t (id, b) SELECT i, 'x' FROM n RETURNING id")
    assert sorted(new) == [(1,), (2,)]
    found = db.execute("UPDATE t SET (a, b) = (id + 10, 'y') WHERE id = 1 RETURNING t.*, upper(b)")
    assert (list(found.columns), found.fetchall()) == (["id", "a", "b", "upper"], [(1, 11, "y", "Y")])
    found = db.execute("UPDATE t AS x SET (b, a) = ROW('z', DEFAULT) RETURNING x.a, x.b")
    assert found.fetchall() == [(7, "z"), (7, "z")]


def test_a_transaction_that_only_reads_changes_nothing(everywhere: Database) -> None:
    everywhere.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    for begin in ("BEGIN READ ONLY", "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY"):
        everywhere.execute(f"{begin}; SAVEPOINT s")
        for sql in ("INSERT INTO t VALUES (1)", "DROP TABLE t", "CREATE INDEX i ON t (id)"):
            with pytest.raises(SqlError) as raised:
                everywhere.execute(sql)
            assert raised.value.sqlstate == "25006"
            everywhere.execute("ROLLBACK TO s")
        assert everywhere.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
        everywhere.execute("COMMIT")
    everywhere.execute("BEGIN READ WRITE; INSERT INTO t VALUES (1); COMMIT")
    assert everywhere.version() == 2


@pytest.mark.parametrize(("options", "runs"), [
    ("", False), ("ANALYZE", True), ("VERBOSE", False), ("ANALYZE VERBOSE", True), ("(ANALYZE, BUFFERS)", True),
    ("(COSTS off, ANALYZE false)", False), ("(VERBOSE, FORMAT TEXT)", False),
])  # fmt: skip
def test_explain_takes_the_options_of_postgresql(db: Database, options: str, runs: bool) -> None:
    for query in ("SELECT 1", "(SELECT 1)", "WITH c AS (SELECT 1) SELECT * FROM c", "VALUES (1)"):
        lines = [line for (line,) in db.execute(f"EXPLAIN {options} {query}")]
        assert lines[-1].endswith(" ms") is runs


def test_tables_whose_names_are_quoted_qualify_their_columns(db: Database) -> None:
    db.execute('CREATE TABLE "Größe" ("Id" INT PRIMARY KEY, n INT); INSERT INTO "Größe" VALUES (1, 2), (3, 4)')
    assert db.execute('SELECT "Größe"."Id" FROM "Größe" WHERE "Größe".n = 4').fetchall() == [(3,)]
    joined = 'SELECT a."Id" FROM "Größe" AS a JOIN "Größe" ON "Größe".n = a."Id" + 1 ORDER BY "Größe"."Id"'
    assert db.execute(joined).fetchall() == [(1,), (3,)]
    changed = db.execute('UPDATE "Größe" SET n = 0 WHERE "Größe"."Id" = 1 RETURNING "Größe".n')
    assert changed.fetchall() == [(0,)]
    with pytest.raises(SqlError, match="größe"):
        db.execute('SELECT "größe"."Id" FROM "Größe"')


def test_limit_all_is_no_limit(db: Database) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3)")
    assert db.execute("SELECT id FROM t ORDER BY id LIMIT ALL OFFSET 1").fetchall() == [(2,), (3,)]
    assert db.execute("SELECT id FROM t ORDER BY id LIMIT ALL").count == 3


def test_beside_numbered_parameters_a_question_mark_is_an_operator(db: Database) -> None:
    assert db.execute("""SELECT '{"a": 1}'::jsonb ? $1, '{"a": 1}'::jsonb ?| $2""", ("a", ["b"])).fetchall() == [
        (True, False)]
