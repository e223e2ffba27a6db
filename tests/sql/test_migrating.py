"""The type of a column changes for all rows and indexes at once; the past stays as it was."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ontolake import faults
from ontolake.history import ChangeKind
from ontolake.sql import CheckError, Database, NotNullError, SqlError, UniqueError
from ontolake.sql.write import index_builds


def everything(db: Database) -> list[Any]:
    return db._session.connection.execute("SELECT * FROM kv ORDER BY key, version").fetchall()


def refused(db: Database, sql: str) -> SqlError:
    """The error of a statement, which has changed nothing."""
    before, version = everything(db), db.version()
    with pytest.raises(SqlError) as raised:
        db.execute(sql)
    assert (everything(db), db.version()) == (before, version)
    return raised.value


NOON, LATE = datetime(2026, 2, 11, 12), datetime(2026, 2, 11, 23, 30, 0, 120_000)
CONVERSIONS: list[tuple[str, list[Any], str, list[Any]]] = [
    ("SMALLINT", [1, -5, None], "BIGINT", [1, -5, None]),
    ("BIGINT", [1, -5, None], "SMALLINT", [1, -5, None]),
    ("BIGINT", [1, -5, None], "DECIMAL(6, 2)", [Decimal(1), Decimal(-5), None]),
    ("BIGINT", [1, -5, None], "DOUBLE PRECISION", [1.0, -5.0, None]),
    ("BIGINT", [1, -5, None], "TEXT", ["1", "-5", None]),
    ("DOUBLE PRECISION", [1.5, -2.5, None], "BIGINT", [2, -2, None]),
    ("DECIMAL(6, 2)", ["1.25", "-2.50", None], "DECIMAL(5, 1)", [Decimal("1.3"), Decimal("-2.5"), None]),
    ("DECIMAL(6, 2)", ["1.25", "-2.50", None], "DECIMAL(8, 2)", [Decimal("1.25"), Decimal("-2.50"), None]),
    ("DECIMAL(6, 2)", ["1.25", None], "TEXT", ["1.25", None]),
    ("VARCHAR(3)", ["abc", "", None], "TEXT", ["abc", "", None]),
    ("TEXT", ["abc", "", None], "VARCHAR(3)", ["abc", "", None]),
    ("BOOLEAN", [True, False, None], "TEXT", ["true", "false", None]),
    ("TIMESTAMP", [NOON, LATE, None], "DATE", [date(2026, 2, 11), date(2026, 2, 11), None]),
    ("TIMESTAMP", [NOON, LATE, None], "TIMESTAMPTZ", [NOON.replace(tzinfo=UTC), LATE.replace(tzinfo=UTC), None]),
    ("TIMESTAMPTZ", [NOON, LATE, None], "TIMESTAMP", [NOON, LATE, None]),
    ("TIMESTAMP", [NOON, LATE, None], "TEXT", ["2026-02-11 12:00:00", "2026-02-11 23:30:00.12", None]),
    ("TIMESTAMPTZ", [NOON, None], "TEXT", ["2026-02-11 12:00:00+00", None]),
    ("DATE", [date(2026, 2, 11), None], "TIMESTAMP", [datetime(2026, 2, 11), None]),
    ("DATE", [date(2026, 2, 11), None], "TEXT", ["2026-02-11", None]),
    ("TEXT", ["7", " 8", None], "BIGINT USING trim(c)::bigint + 1", [8, 9, None]),
    ("TEXT", ["2026-02-11", None], "DATE USING c::date", [date(2026, 2, 11), None]),
    ("BIGINT", [1, 2, None], "TEXT USING CASE c WHEN 1 THEN 'one' ELSE coalesce(c::text, 'none') END",
     ["one", "2", "none"]),
    ("BIGINT", [1, 2, None], "BIGINT USING c * id", [0, 2, None]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "values", "new", "expected"), CONVERSIONS,
                         ids=[f"{old} to {new[:16]}" for old, _, new, _ in CONVERSIONS])  # fmt: skip
def test_values_become_those_of_the_new_type(
    db: Database, old: str, values: list[Any], new: str, expected: list[Any]
) -> None:
    db.execute(f"CREATE TABLE t (id BIGINT PRIMARY KEY, c {old}, after TEXT); CREATE INDEX by_c ON t (c DESC)")
    for id, value in enumerate(values):
        db.execute("INSERT INTO t VALUES (?, ?, 'kept')", (id, value))
    version, before = db.version(), db.execute("SELECT * FROM t ORDER BY id").fetchall()
    db.execute(f"ALTER TABLE t ALTER COLUMN c TYPE {new}")
    assert db.version() == version + 1, "it is one commit"
    assert db.execute("SELECT id, c, after FROM t ORDER BY id").fetchall() == [
        (id, value, "kept") for id, value in enumerate(expected)]  # fmt: skip
    table = db.catalog().by_full_name["main.public.t"]
    assert [column.name for column in table.columns] == ["id", "c", "after"]
    assert str(table.by_name["c"].type) == new.partition(" USING")[0]
    assert list(db.verify()) == []
    for value in {each for each in expected if each is not None}:
        found = {row[0] for row in db.execute("SELECT id FROM t WHERE c = ?", (value,))}
        assert found == {id for id, each in enumerate(expected) if each == value}
    assert "by_c" in db.explain("SELECT id FROM t WHERE c = ?", (expected[0],))
    past = db.execute(f"SELECT * FROM t FOR SYSTEM_TIME AS OF {version} ORDER BY id").fetchall()
    assert past == before
    for id, row in enumerate(before):
        if row[1] is not None:
            sql = f"SELECT id FROM t FOR SYSTEM_TIME AS OF {version} WHERE c = ?"
            assert (id,) in db.execute(sql, (row[1],)).fetchall()


def filled(db: Database, monkeypatch: pytest.MonkeyPatch) -> int:
    """A table of several pages. Returns its version."""
    monkeypatch.setattr(index_builds, "PAGE", 40)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT NOT NULL CHECK (n >= 0), s TEXT DEFAULT '5', "
               "UNIQUE (n))")
    db.execute("CREATE INDEX by_s ON t (s) INCLUDE (n); CREATE INDEX by_both ON t (n DESC, s)")
    db.bulk_load("t", pa.table({"id": range(150), "n": range(150), "s": [str(n % 7) for n in range(150)]}))
    return db.version()


def test_all_pages_change_in_one_commit(everywhere: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    version = filled(everywhere, monkeypatch)
    everywhere.execute("ALTER TABLE t DROP CONSTRAINT t_check, ALTER COLUMN n TYPE TEXT USING 'n' || n, "
                       "ALTER COLUMN s TYPE BIGINT USING s::bigint")
    assert everywhere.version() == version + 1
    assert everywhere.execute("SELECT count(*), min(n), sum(s) FROM t").fetchall() == [(150, "n0", 444)]
    assert {row[0] for row in everywhere.execute("SELECT id FROM t WHERE s = 3")} == set(range(3, 150, 7))
    assert everywhere.execute("SELECT id, s FROM t WHERE n = 'n77'").fetchall() == [(77, 0)]
    assert list(everywhere.verify()) == []
    with pytest.raises(UniqueError):
        everywhere.execute("INSERT INTO t VALUES (999, 'n3', 1)")
    everywhere.execute("INSERT INTO t (id, n) VALUES (999, 'x')")
    assert everywhere.execute("SELECT s FROM t WHERE id = 999").fetchall() == [(5,)], "the default is of the new type"
    then = everywhere.query("SELECT id FROM t WHERE s = '3' AND n < 50", as_of=version)
    assert sorted(then.to_pydict()["id"]) == list(range(3, 50, 7))
    everywhere.retain(everywhere.version())
    assert everywhere.gc(dry_run=False).items > 300
    assert list(everywhere.verify()) == []
    assert everywhere.execute("SELECT count(*) FROM t").fetchall() == [(151,)]


def test_the_type_of_a_primary_key_changes_with_all_keys(everywhere: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    version = filled(everywhere, monkeypatch)
    everywhere.execute("ALTER TABLE t ALTER COLUMN id TYPE TEXT USING 'k' || lpad(id::text, 4, '0')")
    changed = everywhere.version()
    assert everywhere.execute("SELECT n, s FROM t WHERE id = 'k0012'").fetchall() == [(12, "5")]
    assert everywhere.execute("SELECT id FROM t WHERE n = 140").fetchall() == [("k0140",)]
    assert everywhere.execute("SELECT id FROM t ORDER BY id DESC LIMIT 1").fetchall() == [("k0149",)]
    assert list(everywhere.verify()) == []
    assert everywhere.query("SELECT n FROM t WHERE id = 12", as_of=version).to_pydict() == {"n": [12]}
    changes = list(everywhere.changes(version))
    assert {change.key for change in changes if change.kind is ChangeKind.DELETE} == set(range(150))
    assert {change.key for change in changes if change.kind is ChangeKind.INSERT} == {f"k{n:04}" for n in range(150)}
    everywhere.execute("ALTER TABLE t ALTER COLUMN id TYPE BIGINT USING substr(id, 2)::bigint + 1")  # among old keys
    assert everywhere.execute("SELECT id, n FROM t WHERE id IN (1, 150, 0)").fetchall() == [(1, 0), (150, 149)]
    assert list(everywhere.verify()) == []
    assert everywhere.query("SELECT count(*) AS c FROM t WHERE id < 10", as_of=version).to_pydict() == {"c": [10]}
    assert everywhere.query("SELECT count(*) AS c FROM t WHERE id < 'k0010'", as_of=changed).to_pydict() == {"c": [10]}


def test_a_table_without_a_key_gets_one(everywhere: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_builds, "PAGE", 30)
    db = everywhere
    db.execute("CREATE TABLE loose (a BIGINT, b TEXT, c BIGINT UNIQUE)")
    db.execute("CREATE INDEX by_b ON loose (lower(b)) WHERE a > 5")
    db.execute("INSERT INTO loose SELECT x, 'B' || x, x * 7 % 101 FROM generate_series(1, 100) AS g (x)")
    before = db.version()
    assert refused(db, "ALTER TABLE loose ADD PRIMARY KEY (b, a, b)").sqlstate == "42701"
    db.execute("UPDATE loose SET a = 7 WHERE a = 8")
    assert isinstance(refused(db, "ALTER TABLE loose ADD PRIMARY KEY (a)"), UniqueError)
    db.execute("UPDATE loose SET a = 8 WHERE b = 'B8'")
    db.execute("ALTER TABLE loose ADD PRIMARY KEY (a)")
    assert "point get" in db.explain("SELECT * FROM loose WHERE a = 50")
    assert db.execute("SELECT * FROM loose WHERE a = 50").fetchall() == [(50, "B50", 47)]
    assert db.execute("SELECT a FROM loose WHERE lower(b) = 'b60' AND a > 5").fetchall() == [(60,)]
    assert db.execute("SELECT a FROM loose WHERE c = 47").fetchall() == [(50,)]
    assert isinstance(refused(db, "INSERT INTO loose VALUES (50, 'x', 1000)"), UniqueError)
    assert db.execute(f"SELECT count(*), sum(c) FROM loose FOR SYSTEM_TIME AS OF {before}").fetchall() == \
        db.execute("SELECT count(*), sum(c) FROM loose").fetchall()  # fmt: skip
    assert list(db.verify()) == []


def test_a_default_becomes_one_of_the_new_type(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT DEFAULT 5, at TIMESTAMP DEFAULT '2026-02-11 12:00:00')")
    db.execute("INSERT INTO t (id) VALUES (1); ALTER TABLE t ALTER COLUMN n TYPE TEXT, ALTER COLUMN at TYPE TEXT")
    db.execute("INSERT INTO t (id) VALUES (2)")
    assert db.execute("SELECT n, at FROM t ORDER BY id").fetchall() == [("5", "2026-02-11 12:00:00")] * 2
    db.execute("ALTER TABLE t ADD COLUMN late BIGINT DEFAULT 9; ALTER TABLE t ALTER COLUMN late TYPE DECIMAL(4, 1)")
    assert db.execute("SELECT late FROM t").fetchall() == [(Decimal("9.0"),)] * 2, "rows that are older than the column"


def test_a_value_that_does_not_convert_names_its_row(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(db, monkeypatch)
    db.execute("UPDATE t SET s = 'seven' WHERE id = 133")
    error = refused(db, "ALTER TABLE t ALTER COLUMN s TYPE BIGINT USING s::bigint")
    assert error.sqlstate == "22P02"
    assert "main.public.t.s of the row (id) = (133)" in error.message
    assert error.hint is not None
    error = refused(db, "ALTER TABLE t ALTER COLUMN n TYPE SMALLINT USING n * 300")
    assert (error.sqlstate, "(id) = (110)" in error.message) == ("22003", True)
    error = refused(db, "ALTER TABLE t ALTER COLUMN s TYPE VARCHAR(4)")
    assert (error.sqlstate, "(id) = (133)" in error.message) == ("22001", True)
    error = refused(db, "ALTER TABLE t ALTER COLUMN n TYPE NUMERIC(9, 0) USING nullif(n, 99)")
    assert isinstance(error, NotNullError)
    assert "(id) = (99)" in error.message


def test_rows_that_would_break_a_rule_change_nothing(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(db, monkeypatch)
    assert isinstance(refused(db, "ALTER TABLE t ALTER COLUMN n TYPE BIGINT USING 100 - n"), CheckError)
    assert isinstance(refused(db, "ALTER TABLE t ALTER COLUMN n TYPE BIGINT USING n / 2"), UniqueError)
    assert isinstance(refused(db, "ALTER TABLE t ALTER COLUMN id TYPE TEXT USING s"), UniqueError)
    assert refused(db, "ALTER TABLE t ALTER COLUMN s TYPE DATE USING NULL").sqlstate == "42804", "what a default"
    assert refused(db, "ALTER TABLE t ALTER COLUMN s TYPE BIGINT").sqlstate == "42804"
    assert "USING" in (refused(db, "ALTER TABLE t ALTER COLUMN s TYPE BIGINT").hint or "")
    assert refused(db, "ALTER TABLE t ALTER COLUMN s TYPE BIGINT USING x + 1").sqlstate == "42703"
    assert refused(db, "ALTER TABLE t ALTER COLUMN s TYPE BIGINT USING (SELECT 1)").sqlstate == "0A000"
    assert refused(db, "ALTER TABLE t ALTER COLUMN s TYPE BIGINT USING count(*)").sqlstate == "0A000"
    assert refused(db, "ALTER TABLE t ALTER COLUMN s TYPE XML").sqlstate == "0A000"
    assert refused(db, "ALTER TABLE t ALTER COLUMN s TYPE BIGINT USING n = 1").sqlstate == "42804"


def test_a_migration_can_be_rolled_back(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(db, monkeypatch)
    before = everything(db)
    db.execute("BEGIN; INSERT INTO t VALUES (500, 500, '1'); ALTER TABLE t ALTER COLUMN s TYPE BIGINT USING s::bigint")
    assert db.execute("SELECT id FROM t WHERE s = 1 ORDER BY id DESC LIMIT 1").fetchall() == [(500,)]
    db.execute("SAVEPOINT a; ALTER TABLE t ALTER COLUMN id TYPE TEXT; ROLLBACK TO a")
    assert db.execute("SELECT s FROM t WHERE id = 500").fetchall() == [(1,)]
    db.execute("ROLLBACK")
    assert everything(db) == before
    assert list(db.verify()) == []


@pytest.mark.parametrize(("sql", "there"), [
    ("ALTER TABLE t ALTER COLUMN s TYPE BIGINT USING s::bigint", False),
    ("ALTER TABLE t ALTER COLUMN id TYPE TEXT", False),
    ("ALTER TABLE t ALTER COLUMN n TYPE DOUBLE PRECISION", True),
])  # fmt: skip
def test_an_index_that_is_being_built_is_whole_or_not_there(
    db: Database, monkeypatch: pytest.MonkeyPatch, sql: str, there: bool
) -> None:
    filled(db, monkeypatch)
    statements = iter([sql])

    def hook(step: str) -> None:
        if step == "sql: index page filled" and (found := next(statements, None)):
            db.execute(found)

    with faults.arm(hook):
        if there:
            db.execute("CREATE INDEX online ON t (s, id)")
        else:
            with pytest.raises(SqlError, match="dropped"):
                db.execute("CREATE INDEX online ON t (s, id)")
    names = [index.name for index in db.catalog().by_full_name["main.public.t"].indexes]
    assert ("online" in names) is there
    assert set(names) >= {"t_n_key", "by_s", "by_both"}
    assert list(db.verify()) == []


@pytest.mark.slow
def test_random_migrations_are_those_of_plain_rows(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_builds, "PAGE", 16)
    rng = random.Random(11)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, c BIGINT, d BIGINT); CREATE INDEX i ON t (c, d)")
    now: dict[Any, tuple[Any, Any]] = {}
    states: dict[int, dict[Any, tuple[Any, Any]]] = {}
    text = {"id": False, "c": False}
    for number in range(60):
        if rng.random() < 0.25:
            column = rng.choice(["id", "c"])
            if text[column]:
                db.execute(f"ALTER TABLE t ALTER COLUMN {column} TYPE BIGINT USING {column}::bigint")
            else:
                db.execute(f"ALTER TABLE t ALTER COLUMN {column} TYPE TEXT")
            text[column] = not text[column]
            convert = str if text[column] else int
            now = {(convert(id) if column == "id" else id): ((convert(c) if column == "c" else c), d)
                   for id, (c, d) in now.items()}  # fmt: skip
        elif now and rng.random() < 0.3:
            id = rng.choice(list(now))
            db.execute("DELETE FROM t WHERE id = ?", (id,))
            now = {key: row for key, row in now.items() if key != id}
        else:
            id, c = rng.randrange(60), rng.randrange(5)
            key, value = (str(id) if text["id"] else id), (str(c) if text["c"] else c)
            db.execute("INSERT INTO t VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET c = excluded.c, d = excluded.d",
                       (key, value, number))
            now = {**now, key: (value, number)}
        states[db.version()] = now
    assert list(db.verify()) == []
    for version, state in states.items():
        found = db.query("SELECT id, c, d FROM t", as_of=version).to_pydict()
        assert dict(zip(found["id"], zip(found["c"], found["d"], strict=True), strict=True)) == state
        for c in {c for c, _ in state.values()}:
            sql = f"SELECT id FROM t FOR SYSTEM_TIME AS OF {version} WHERE c = ?"
            assert {row[0] for row in db.execute(sql, (c,))} == {id for id, (each, _) in state.items() if each == c}
