"""UNIQUE and CHECK can be added to tables that have rows, and taken away; rows that break them are named."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ontolake.sql import CheckError, Database, SqlError, UniqueError


@pytest.fixture
def shop(everywhere: Database) -> Database:
    everywhere.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b TEXT)")
    everywhere.bulk_load("t", pa.table({"id": range(100), "a": range(100), "b": [str(n % 10) for n in range(100)]}))
    everywhere.execute("INSERT INTO t VALUES (100, NULL, 'x'), (101, NULL, 'x')")
    return everywhere


def names(db: Database) -> tuple[list[str], list[str]]:
    table = db.catalog().by_full_name["main.public.t"]
    return [check.name for check in table.meta.checks], [index.name for index in table.indexes]


def state(db: Database, sql: str) -> str:
    before = db._session.connection.execute("SELECT * FROM kv ORDER BY key, version").fetchall()
    with pytest.raises(SqlError) as raised:
        db.execute(sql)
    assert db._session.connection.execute("SELECT * FROM kv ORDER BY key, version").fetchall() == before
    return raised.value.sqlstate


def test_unique_is_checked_and_then_holds(shop: Database) -> None:
    assert state(shop, "ALTER TABLE t ADD CONSTRAINT u UNIQUE (b)") == "23505"
    shop.execute("ALTER TABLE t ADD CONSTRAINT u UNIQUE (a, b), ADD UNIQUE (a)")
    assert names(shop) == ([], ["u", "t_a_key"])
    assert "t_a_key" in shop.explain("SELECT id FROM t WHERE a = 5")
    with pytest.raises(UniqueError) as raised:
        shop.execute("INSERT INTO t VALUES (500, 5, 'new')")
    assert raised.value.constraint == "t_a_key"
    shop.execute("INSERT INTO t VALUES (500, NULL, 'x')")
    shop.execute("INSERT INTO t VALUES (1, 7, 'z') ON CONFLICT ON CONSTRAINT t_a_key DO UPDATE SET b = 'met'")
    assert shop.execute("SELECT b FROM t WHERE id = 7").fetchall() == [("met",)]
    assert list(shop.verify()) == []
    shop.execute("ALTER TABLE t DROP CONSTRAINT t_a_key; INSERT INTO t VALUES (501, 5, 'new')")
    assert names(shop) == ([], ["u"])
    assert list(shop.verify()) == []


def test_checks_are_checked_and_then_hold(shop: Database) -> None:
    with pytest.raises(CheckError, match="a = 99"):
        shop.execute("ALTER TABLE t ADD CONSTRAINT small CHECK (a < 99)")
    shop.execute("ALTER TABLE t ADD CONSTRAINT small CHECK (a < 100), ADD CHECK (id >= 0)")
    assert names(shop) == (["small", "t_check"], [])
    assert state(shop, "INSERT INTO t VALUES (500, 100, 'x')") == "23514"
    assert state(shop, "UPDATE t SET id = -1 WHERE id = 3") == "23514"
    shop.execute("ALTER TABLE t DROP CONSTRAINT small; INSERT INTO t VALUES (500, 100, 'x')")
    shop.execute("ALTER TABLE t DROP CONSTRAINT IF EXISTS small")
    assert names(shop) == (["t_check"], [])


def test_a_column_can_bring_its_rules_along(shop: Database) -> None:
    assert state(shop, "ALTER TABLE t ADD COLUMN c BIGINT DEFAULT 5 UNIQUE") == "23505"
    assert state(shop, "ALTER TABLE t ADD COLUMN c BIGINT DEFAULT 5 CHECK (c > 5)") == "23514"
    shop.execute("ALTER TABLE t ADD COLUMN c BIGINT UNIQUE CHECK (c > 5)")
    assert names(shop) == (["t_check"], ["t_c_key"])
    shop.execute("UPDATE t SET c = id + 10 WHERE id < 50")
    assert state(shop, "UPDATE t SET c = 10 WHERE id = 70") == "23505"
    assert list(shop.verify()) == []


@pytest.mark.parametrize(("sql", "expected"), [
    ("ALTER TABLE t ADD CONSTRAINT known CHECK (a > 1000)", "42710"),
    ("ALTER TABLE t ADD CONSTRAINT known UNIQUE (a)", "42710"), ("ALTER TABLE t ADD UNIQUE (a, a)", "42701"),
    ("ALTER TABLE t ADD CONSTRAINT u UNIQUE (nope)", "42703"), ("ALTER TABLE t ADD CHECK (nope > 1)", "42703"),
    ("ALTER TABLE t ADD CHECK (a > (SELECT 1))", "0A000"), ("ALTER TABLE t ADD PRIMARY KEY (a)", "42P16"),
    ("ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES nowhere (id)", "42P01"),
    ("ALTER TABLE t DROP CONSTRAINT nope", "42704"), ("ALTER TABLE t DROP CONSTRAINT t_pkey", "2BP01"),
    ("ALTER TABLE t ADD COLUMN z BIGINT PRIMARY KEY", "42P16"), ("ALTER TABLE nope ADD CHECK (a > 1)", "42P01"),
    ("ALTER TABLE t ADD CONSTRAINT by_a UNIQUE (a)", "42P07"),
])  # fmt: skip
def test_wrong_rules_are_refused(db: Database, sql: str, expected: str) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT CONSTRAINT known CHECK (a < 10))")
    db.execute("CREATE INDEX by_a ON t (a)")
    assert state(db, sql) == expected


def test_rules_can_be_renamed(shop: Database) -> None:
    shop.execute("ALTER TABLE t ADD CONSTRAINT u UNIQUE (a), ADD CONSTRAINT small CHECK (a < 1000)")
    for old, new in (("u", "only_once"), ("small", "Not Big"), ("t_pkey", "by_id")):
        shop.execute(f'ALTER TABLE t RENAME CONSTRAINT {old} TO "{new}"')
    assert names(shop) == (["Not Big"], ["only_once"])
    for sql, name in (("INSERT INTO t VALUES (500, 5, 'x')", "only_once"), ("INSERT INTO t (id) VALUES (5)", "by_id")):
        with pytest.raises(UniqueError) as raised:
            shop.execute(sql)
        assert raised.value.constraint == name
    with pytest.raises(CheckError, match="Not Big"):
        shop.execute("INSERT INTO t VALUES (500, 1000, 'x')")
    shop.execute("ALTER TABLE t RENAME TO t2; ALTER TABLE t2 RENAME TO t")
    shop.execute("INSERT INTO t VALUES (5, 1, 'x') ON CONFLICT ON CONSTRAINT by_id DO UPDATE SET b = 'met'")
    assert shop.execute("SELECT b FROM t WHERE id = 5").fetchall() == [("met",)]
    shop.execute('ALTER TABLE t DROP CONSTRAINT "Not Big", DROP CONSTRAINT only_once')
    assert names(shop) == ([], [])


@pytest.mark.parametrize(("sql", "expected"), [
    ("ALTER TABLE t RENAME CONSTRAINT nope TO x", "42704"), ("ALTER TABLE nope RENAME CONSTRAINT known TO x", "42P01"),
    ("ALTER TABLE t RENAME CONSTRAINT known TO t_pkey", "42710"),
    ("ALTER TABLE t RENAME CONSTRAINT known TO u", "42710"),
    ("ALTER TABLE t RENAME CONSTRAINT u TO by_b", "42P07"), ("ALTER TABLE t RENAME CONSTRAINT by_b TO x", "42704"),
    (f"ALTER TABLE t RENAME CONSTRAINT u TO {'x' * 64}", "42622"),
    ("INSERT INTO t VALUES (1, 1, 1) ON CONFLICT ON CONSTRAINT nope DO NOTHING", "42704"),
])  # fmt: skip
def test_wrong_new_names_are_refused(db: Database, sql: str, expected: str) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT CONSTRAINT known CHECK (a < 10), b BIGINT)")
    db.execute("ALTER TABLE t ADD CONSTRAINT u UNIQUE (a); CREATE INDEX by_b ON t (b)")
    assert state(db, sql) == expected
    db.execute("ALTER TABLE IF EXISTS nope RENAME CONSTRAINT known TO x")


def test_a_primary_key_has_the_name_that_it_was_given(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT, CONSTRAINT mine PRIMARY KEY (id))")
    db.execute("CREATE TABLE u (id BIGINT CONSTRAINT yours PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (1); INSERT INTO u VALUES (1)")
    for table, name in (("t", "mine"), ("u", "yours")):
        with pytest.raises(UniqueError) as raised:
            db.execute(f"INSERT INTO {table} VALUES (1)")
        assert raised.value.constraint == name
        db.execute(f"INSERT INTO {table} VALUES (1) ON CONFLICT ON CONSTRAINT {name} DO NOTHING")


def test_rules_follow_a_column_that_is_renamed(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT); ALTER TABLE t ADD CONSTRAINT small CHECK (a < 10)")
    db.execute("ALTER TABLE t RENAME COLUMN a TO z")
    found: Any = state(db, "INSERT INTO t VALUES (1, 10)")
    assert found == "23514"
