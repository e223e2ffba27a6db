"""`pg_catalog` and `information_schema` of SQL databases, beside those of PostgreSQL for the same tables."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ontolake.sql import Database, SqlError, open_database
from ontolake.sql.pg_catalog import data
from ontolake.sql.syntax.statements import parse_one

sys.path.insert(0, str(Path(__file__).parent / "support"))

from system_questions import CLIENTS, Answers, questions, schema

DIFFERENT = {
    "\\bversion\\(\\)": "the version says Ontolake",
    "^SHOW ": "settings have other defaults",
    "'jit'": "settings have other defaults",
    "pg_size_pretty|pg_.*_size": "sizes are not known",
    "pg_extension|refobjid = '13": "there is no PL/pgSQL",
    "FROM pg_catalog.pg_cast|pg_opclass|pg_opfamily|pg_ts_|pg_language|pg_operator|pg_conversion":
        "operators, casts and text search are not listed, nor indexes other than b-trees",
    "FROM pg_catalog.pg_settings|pg_db_role_setting": "there are fewer settings",
    "FROM pg_catalog.pg_database": "there are no templates",
    "FROM pg_catalog.pg_namespace n": "the owner of public is not pg_database_owner, and there is no pg_toast",
    "relkind IN \\('r','p','t','s',''\\)": "there are no TOAST tables",
    "obj_description\\(p.oid, 'pg_proc'\\)": "functions have no comments",
    "attisdropped$|col_description\\(a.attrelid, a.attnum\\) AS column_comment": "there are no columns such as ctid",
    "int4range": "there are no ranges",
    "pg_proc p": "there are fewer functions",
}
"""Questions, by a pattern, whose answers may be others, and why."""


def fill(db: Database) -> Database:
    for statement in schema():
        db.execute(statement)
    return db


@pytest.fixture
def db() -> Iterator[Database]:
    with open_database(":memory:") as opened:
        yield fill(opened)


@pytest.fixture(scope="module")
def filled() -> Iterator[Database]:
    """The same for tests that change nothing."""
    with open_database(":memory:") as opened:
        yield fill(opened)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    """A connection to PostgreSQL, where the same user made the same tables."""
    import psycopg
    from postgres import Unavailable, running

    try:
        with running(user="ontolake") as address:
            with psycopg.connect(address, autocommit=True) as first:
                first.execute("CREATE DATABASE main")
            with psycopg.connect(address.replace("dbname=postgres", "dbname=main"), autocommit=True) as connection:
                for statement in schema():
                    connection.execute(statement.encode())
                yield connection
    except Unavailable as error:
        pytest.skip(str(error))


# beside PostgreSQL


@pytest.mark.slow
def test_questions_of_clients_have_postgresqls_answers(filled: Database, postgres: Any) -> None:
    def theirs(sql: str) -> tuple[list[str], list[Any]]:
        cursor = postgres.execute(sql.encode())
        return [each.name for each in cursor.description], cursor.fetchall()

    def ours(sql: str) -> tuple[list[str], list[Any]]:
        result = filled.execute(sql)
        return list(result.columns), result.fetchall()

    wanted, found = Answers(theirs), Answers(ours)
    wrong, used = [], set()
    for client in CLIENTS:
        for question in questions(client):
            got, want = found.to(question), wanted.to(question)
            reasons = [pattern for pattern in DIFFERENT if re.search(pattern, question, re.MULTILINE)]
            if got == want:
                continue
            used.update(reasons)
            if not reasons or got[0] != want[0]:
                wrong.append(f"{client}: {question}\n  {set(want[1]) - set(got[1])}\n  {set(got[1]) - set(want[1])}")
    assert not wrong, "\n\n".join(wrong)
    assert used == set(DIFFERENT), f"these are no differences any more: {set(DIFFERENT) - used}"


@pytest.mark.slow
def test_what_is_built_in_is_what_postgresql_has(postgres: Any) -> None:
    from builtin_rows import files

    for name, text in files(postgres).items():
        assert Path(data.FOLDER, name).read_text() == text, f"{name}: write it anew with builtin_rows.py"


# built from the catalog that a statement reads


def names(db: Database, **at: Any) -> list[str]:
    """The relations of the schema public."""
    found = db.query("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY relname", **at)
    return list(found.column("relname").to_pylist())


def test_system_tables_follow_definitions_transactions_and_the_past() -> None:
    with open_database(":memory:") as db:
        assert names(db) == []
        db.execute("CREATE TABLE a (id INT PRIMARY KEY)")
        before = db.version()
        assert names(db) == ["a", "a_pkey"]
        db.execute("BEGIN")
        db.execute("CREATE TABLE b (id INT PRIMARY KEY, n INT)")
        db.execute("CREATE INDEX b_n ON b (n)")
        assert names(db) == ["a", "a_pkey", "b", "b_n", "b_pkey"]
        db.execute("ROLLBACK")
        assert names(db) == ["a", "a_pkey"]
        db.execute("ALTER TABLE a RENAME TO c")
        db.execute("ALTER TABLE c ADD COLUMN m TEXT NOT NULL DEFAULT 'x'")
        assert names(db) == ["a_pkey", "c"]
        assert names(db, as_of=before) == ["a", "a_pkey"]
        columns = db.execute("SELECT column_name, is_nullable, column_default FROM information_schema.columns "
                             "WHERE table_name = 'c' ORDER BY ordinal_position").fetchall()  # fmt: skip
        assert columns == [("id", "NO", None), ("m", "NO", "'x'::text")]
        db.execute("DROP TABLE c")
        assert names(db) == []


def test_branches_have_their_own(tmp_path: Path) -> None:
    with open_database(str(tmp_path / "a.db")) as db:
        db.execute("CREATE TABLE a (id INT PRIMARY KEY)")
        db.branches.create("try")
        db.checkout("try")
        db.execute("CREATE TABLE b (id INT PRIMARY KEY)")
        assert names(db) == ["a", "a_pkey", "b", "b_pkey"]
        db.checkout("main")
        assert names(db) == ["a", "a_pkey"]


_ALL = """
SELECT 'class', oid::int8, relname FROM pg_class UNION ALL SELECT 'type', oid::int8, typname FROM pg_type
UNION ALL SELECT 'constraint', oid::int8, conname FROM pg_constraint
UNION ALL SELECT 'schema', oid::int8, nspname FROM pg_namespace
UNION ALL SELECT 'default', oid::int8, '' FROM pg_attrdef UNION ALL SELECT 'label', oid::int8, enumlabel FROM pg_enum
UNION ALL SELECT 'database', oid::int8, datname FROM pg_database
UNION ALL SELECT 'rule', oid::int8, '' FROM pg_rewrite
"""


@pytest.mark.slow
def test_numbers_stay_and_no_two_objects_share_one(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    with open_database(path) as db:
        before = fill(db).execute(_ALL).fetchall()
    with open_database(path) as db:
        assert db.execute(_ALL).fetchall() == before
        db.execute("CREATE TABLE later (id INT PRIMARY KEY)")
        assert set(before) <= set(db.execute(_ALL).fetchall())
    numbers = [number for _, number, _ in before if number >= 16384]
    assert len(numbers) > 60
    assert len(set(numbers)) == len(numbers)
    assert all(number < 2**31 for number in numbers)


# names and numbers


@pytest.mark.parametrize(("sql", "wanted"), [
    ("SELECT 'book'::regclass::oid = 'public.book'::regclass::oid", True),
    ("SELECT 'sales.orders'::regclass", "sales.orders"),
    ("SELECT '\"Odd Name\"'::regclass::text", '"Odd Name"'),
    ("SELECT to_regclass('nothing')", None),
    ("SELECT to_regtype('character varying(10)')", "character varying"),
    ("SELECT 'mood'::regtype::oid::regtype", "mood"),
    ("SELECT 'int4[]'::regtype", "integer[]"),
    ("SELECT 'sales'::regnamespace", "sales"),
    ("SELECT format_type(1700, 655366)", "numeric(10,2)"),
    ("SELECT format_type(1043, 204)", "character varying(200)"),
    ("SELECT format_type(1185, NULL)", "timestamp with time zone[]"),
    ("SELECT pg_get_serial_sequence('sales.orders', 'id')", "sales.orders_id_seq"),
    ("SELECT obj_description('book'::regclass, 'pg_class')", "what is printed"),
    ("SELECT col_description('book'::regclass, 3)", "as on the cover"),
    ("SELECT pg_size_pretty(10240::bigint)", "10 kB"), ("SELECT pg_size_pretty(10239::bigint)", "10239 bytes"),
    ("SELECT pg_size_pretty(123456789::bigint)", "118 MB"),
    ("SELECT has_table_privilege('book', 'SELECT')", True),
    ("SELECT indkey[0] FROM pg_index WHERE indexrelid = 'book_price_desc_idx'::regclass", 5),
    ("SELECT indkey::text FROM pg_index WHERE indexrelid = 'book_price_desc_idx'::regclass", "5 1 20"),
    ("SELECT array_agg(k) FROM pg_index, unnest(indkey) k WHERE indexrelid = 'lines_pkey'::regclass", None),
    ("SELECT current_schemas(true)::text", "{pg_catalog,public}"),
    ("SELECT current_setting('nothing', true)", None),
    ("SELECT pg_table_is_visible('sales.orders'::regclass)", False),
])  # fmt: skip
def test_functions_and_types(filled: Database, sql: str, wanted: Any) -> None:
    if "lines_pkey" in sql:
        with pytest.raises(SqlError) as raised:
            filled.execute(sql)
        assert raised.value.sqlstate == "42P01"  # it is not on the search path
        return
    assert filled.execute(sql).fetchall() == [(wanted,)]


@pytest.mark.parametrize(("sql", "state"), [
    ("SELECT 'nothing'::regclass", "42P01"), ("SELECT 'nothing'::regtype", "42704"),
    ("SELECT 'nothing'::regnamespace", "3F000"), ("SELECT has_table_privilege('nothing', 'SELECT')", "42P01"),
    ("SELECT current_setting('nothing')", "42704"), ("SELECT * FROM pg_catalog.nothing", "42P01"),
    ("SELECT nothing FROM pg_class", "42703"), ("INSERT INTO pg_catalog.pg_class VALUES (1)", "3F000"),
])  # fmt: skip
def test_names_that_are_not_there_have_postgresqls_states(filled: Database, sql: str, state: str) -> None:
    with pytest.raises(SqlError) as raised:
        filled.execute(sql)
    assert raised.value.sqlstate == state


def test_the_search_path_says_what_names_mean(db: Database) -> None:
    db.execute("SET search_path = sales, public")
    assert db.execute("SELECT 'orders'::regclass, 'book'::regclass, current_schema()").fetchall() == [
        ("orders", "book", "sales")]  # fmt: skip
    assert db.execute("SELECT set_config('search_path', 'public', false)").fetchall() == [("public",)]
    assert db.execute("SELECT to_regclass('orders')").fetchall() == [(None,)]
    assert db.execute("SELECT setting FROM pg_settings WHERE name = 'search_path'").fetchall() == [("public",)]


def test_tables_of_users_join_system_tables(db: Database) -> None:
    db.execute("INSERT INTO author (name) VALUES ('book'), ('nobody')")
    rows = db.execute("SELECT a.name, c.relkind FROM author a LEFT JOIN pg_class c ON c.relname = a.name ORDER BY 1")
    assert rows.fetchall() == [("book", "r"), ("nobody", None)]


@pytest.mark.parametrize("sql", [
    "SELECT id, name FROM author WHERE id = 1", "SELECT version, oid, xid FROM t", "SELECT count(*) FROM pg_of_mine",
    "SELECT current_price, user_version FROM t WHERE has_it", "INSERT INTO author (name) VALUES ('pg_class')",
])  # fmt: skip
def test_other_statements_are_planned_as_before(sql: str) -> None:
    assert not parse_one(sql).is_system
