"""COPY takes and writes files as PostgreSQL does, and whole or not at all."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from scripts import plain

from ontolake.sql import Database, ForeignKeyError, SqlError, UniqueError, open_database
from ontolake.sql.copy import records

TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, n NUMERIC(6, 2) CHECK (n < 1000), b BOOLEAN)"
Given = tuple[str | None, list[list[Any]]]
"""The SQLSTATE, and the rows that are there then."""

FILES: list[tuple[str, bytes, str]] = [
    ("", b"1\ta\t1.5\tt\n2\t\\N\t\\N\t\\N\n3\t\t2\tf\n", ""),
    ("", rb"1	a\tb\nc\\d\x41\101\q	1	t", ""),
    ("", b"1\ta\\\nb\t1\tt\n2\tc\\\td\t1\tt\n", ""),
    ("", b"1\ta\\N\t1\tt\n2\t\\\\N\t1\tt\n", ""),
    ("", b"1\ta\t1\tt\r\n2\tb\t1\tt\r\n", ""),
    ("", b"1\ta\t1\tt\r2\tb\t1\tt\r", ""),
    ("", b"1\ta\t1\tt\n2\tb\r\t1\tt\n", ""),
    ("", b"1\ta\t1\tt\r\n2\tb\t1\tt\n", ""),
    ("", b"1\ta\t1\tt\n\\.\nanything else", ""),
    ("", b"1\ta\t1\tt\n2\tb\t1\tt\\.\nelse", ""),
    ("", b"1\ta\t1\tt\n\\.", ""),
    ("", b"1\ta\t1\tt\n\\.x\n", ""),
    ("", b"1\ta\t1\n", ""), ("", b"1\ta\t1\tt\t5\n", ""), ("", b"\n", ""), ("", b"", ""),
    ("", b"1\ta\t1\tmaybe\n", ""), ("", b"x\ta\t1\tt\n", ""), ("", b"1\ta\t1000\tt\n", ""),
    ("", b"1\ta\t1\tt\n1\tb\t1\tt\n", ""), ("", b"\\N\ta\t1\tt\n", ""), ("", b"99999999999\ta\t1\tt\n", ""),
    ("", b"1\t\xff\t1\tt\n", ""), ("", b"1\ta\\000b\t1\tt\n", ""), ("", b"1\ta\\", ""), ("", b"1\ta\t1\tt\nx\n2\n", ""),
    ("", b" 1 \ta\t 1.005 \t true \n0002\tb\t-.5\tyes\n", ""),
    ("(DELIMITER '|', NULL '-')", b"1|-|-|t\n2|a\\|b|1|-\n", ""),
    ("(HEADER)", b"whatever\n1\ta\t1\tt\n", ""),
    ("(HEADER MATCH)", b"id\ta\tn\tb\n1\ta\t1\tt\n", ""), ("(HEADER MATCH)", b"id\tx\tn\tb\n1\ta\t1\tt\n", ""),
    ("(HEADER false)", b"1\ta\t1\tt\n", ""),
    ("(FORMAT csv)", b'1,a,1.5,t\n2,,,\n3,"",,f\n4,"x, ""y""\nz",1,t\n', ""),
    ("(FORMAT csv)", b'1,a"b,c"d,1,t\n2,""x"",1,t\n3,"a"b"c",1,t\n', ""),
    ("(FORMAT csv)", b'1,"a",1,"t"\r\n2,"b\nc",1,t\r\n', ""), ("(FORMAT csv)", b'1,"a\r\nb",1,t\n', ""),
    ("(FORMAT csv)", b"1,a\r,1,t\n2,b,1,t\n", ""), ("(FORMAT csv)", b"1, a ,1,t\n", ""),
    ("(FORMAT csv)", b"1,\\N,1,t\n2,\\.,1,t\n", ""), ("(FORMAT csv)", b"1,a,1,t\n\\.\n2,b,1,t\n", ""),
    ("(FORMAT csv)", b"1,a,1,t\n\\.", ""), ("(FORMAT csv)", b'1,"a,1,t\n', ""), ("(FORMAT csv)", b"1,a,1\n", ""),
    ("(FORMAT csv)", b"1,a,1,t,\n", ""), ("(FORMAT csv, HEADER)", b'"a\nb"\n1,a,1,t\n', ""),
    ("(FORMAT csv, HEADER MATCH)", b'"id",a,n,b\n1,a,1,t\n', ""),
    ("(FORMAT csv, HEADER MATCH)", b"id,a,b,n\n1,a,t,1\n", ""),
    ("(FORMAT csv, NULL 'nil')", b'1,nil,nil,nil\n2,"nil",1,t\n', ""),
    ("(FORMAT csv, FORCE_NULL (a), NULL 'nil')", b'1,"nil",1,t\n2,nil,1,t\n', ""),
    ("(FORMAT csv, FORCE_NOT_NULL (a))", b'1,,1,t\n2,"",1,t\n', ""),
    ("(FORMAT csv, FORCE_NULL (a))", b'1,,1,t\n2,"",1,t\n', ""),
    ("(FORMAT csv, QUOTE '''', DELIMITER ';')", b"1;'it''s; \"x\"';1;t\n", ""),
    ("(FORMAT csv, ESCAPE '\\')", b'1,"a\\"b,\\\\c\\d",1,t\n2,a\\b,1,t\n3,"a""b",1,t\n', ""),
    ("(FORMAT csv, ESCAPE '\\')", b'1,"a\\",1,t\n', ""),
    ("(FORMAT csv, ENCODING 'LATIN1')", b"1,\xe9\xfc,1,t\n", ""),
    ("(FORMAT csv, ENCODING 'UTF8')", b"1,\xc3\xa9,1,t\n", ""),
    ("CSV HEADER NULL AS 'x'", b"h\n1,x,1,t\n", ""),
    ("(FORMAT csv)", b"1,a,1,t\n2,b,5,f\n3,c,,\n", "WHERE n > 1"),
    ("(FORMAT csv)", b"1,a,1,t\n2,b,5,f\n3,c,,\n", "WHERE b OR t.a = 'c'"),
    ("(FORMAT csv)", b"1,a,1,t\n", "WHERE n"), ("(FORMAT csv)", b"1,a,1,t\n", "WHERE x > 1"),
    ("(FORMAT csv)", b"1,a,1,t\n", "WHERE id IN (SELECT 1)"),
]  # fmt: skip

OPTIONS = """(FORMAT json)
(FORMAT csv, FORMAT csv)
(COLOUR 'red')
(DELIMITER 'ab')
(DELIMITER 'a')
(DELIMITER E'\\n')
(DELIMITER '\\')
(FORMAT csv, DELIMITER 'a')
(NULL E'a\\nb')
(NULL E'a\\tb')
(QUOTE '"')
(ESCAPE '"')
(FORCE_NULL (a))
(FORCE_NOT_NULL (a))
(FORCE_QUOTE (a))
(FORMAT csv, FORCE_QUOTE (a))
(FORMAT csv, QUOTE ',')
(FORMAT csv, QUOTE 'ab')
(FORMAT csv, ESCAPE '')
(FORMAT csv, NULL 'a"b')
(FORMAT csv, NULL 'a,b')
(FORMAT csv, FORCE_NULL (x))
(FORMAT csv, FORCE_NOT_NULL (x))
(HEADER maybe)
(ENCODING 'klingon')
(FREEZE maybe)""".splitlines()


def theirs(server: psycopg.Connection[Any], options: str, data: bytes, where: str = "", columns: str = "") -> Given:
    state = None
    try:
        with server.cursor().copy(f"COPY t {columns} FROM STDIN {options} {where}") as copy:
            copy.write(data)
    except psycopg.Error as error:
        state = error.sqlstate
    return state, [[plain(cell) for cell in row] for row in server.execute("SELECT * FROM t ORDER BY 1").fetchall()]


def ours(db: Database, folder: Path, options: str, data: bytes, where: str = "", columns: str = "") -> Given:
    file, state, before = folder / "data", None, db.version()
    file.write_bytes(data)
    try:
        result = db.execute(f"COPY t {columns} FROM '{file}' {options} {where}")
        assert result.status == f"COPY {result.count}"
    except SqlError as error:
        state = error.sqlstate if "line " in error.message or error.sqlstate[:3] != "22P" else "no line"
    assert state is None or db.version() == before
    return state, [[plain(cell) for cell in row] for row in db.execute("SELECT * FROM t ORDER BY 1").fetchall()]


@pytest.fixture
def server(postgres: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    postgres.execute("DROP TABLE IF EXISTS t CASCADE")
    return postgres


@pytest.fixture
def db(native_place: str) -> Iterator[Database]:
    with open_database(native_place, synchronous="NORMAL") as found:
        yield found


@pytest.mark.slow
def test_files_are_read_as_postgres_reads_them(server: psycopg.Connection[Any], db: Database, tmp_path: Path) -> None:
    server.execute(TABLE)
    db.execute(TABLE)
    wrong = []
    for options, data, where in FILES:
        wanted, found = theirs(server, options, data, where), ours(db, tmp_path, options, data, where)
        if found != wanted:
            wrong.append((options, data, where, wanted, found))
        server.execute("TRUNCATE t")
        db.execute("TRUNCATE t")
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.slow
def test_options_are_refused_as_postgres_refuses_them(
    server: psycopg.Connection[Any], db: Database, tmp_path: Path
) -> None:
    server.execute(TABLE)
    db.execute(TABLE)
    found = {options: ours(db, tmp_path, options, b"")[0] for options in OPTIONS}
    assert found == {options: theirs(server, options, b"")[0] for options in OPTIONS}
    assert list(found.values()).count(None) == 1  # DELIMITER 'a' in csv


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "csv"])
def test_small_blocks_give_the_same_records(kind: str, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.execute(TABLE)
    cases = [(options, data) for options, data, where in FILES if ("csv" in options) == (kind == "csv") and not where]
    for options, data in cases:
        answers = []
        for size in (records.BLOCK, 1, 3):
            monkeypatch.setattr(records, "BLOCK", size)
            state = None
            try:
                db.execute("BEGIN")
                statement = f"COPY t FROM 'x' {options}"
                db.run(_with_source(statement, io.BytesIO(data)), ())
            except SqlError as error:
                state = error.sqlstate
            else:
                answers.append(db.execute("SELECT * FROM t ORDER BY id").fetchall())
            db.execute("ROLLBACK")
            answers.append(state)
        half = len(answers) // 3
        assert answers[:half] == answers[half : 2 * half] == answers[2 * half :], (options, data)


def _with_source(sql: str, source: Any) -> Any:
    from ontolake.sql.syntax.statements import parse_one

    statement = parse_one(sql)
    statement.options["source"] = source
    return statement


HOSTILE = [
    "", "\\", "\\N", "\\.", '"', '""', ",", "\t", "\n", "\r", "\r\n", "a\\tb", "'", " ", "NULL", "é", "𝄞",
    "\x01", "\x0b", "x",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    "(FORMAT text)", "(FORMAT csv)", "(FORMAT csv, HEADER, FORCE_QUOTE *)", "(FORMAT csv, ESCAPE '\\', NULL '-')",
    "(FORMAT text, DELIMITER '|', NULL '~')", "(FORMAT csv, QUOTE '''', DELIMITER '\\')"])  # fmt: skip
def test_what_is_written_is_what_postgres_writes_and_comes_back(
    options: str, server: psycopg.Connection[Any], db: Database, tmp_path: Path
) -> None:
    rng = random.Random(options)
    columns = """id INTEGER PRIMARY KEY, a TEXT, c CHAR(3), n NUMERIC(12, 3), f DOUBLE PRECISION, d DATE, ts TIMESTAMP,
                 z TIMESTAMPTZ, b BOOLEAN, y BYTEA, u UUID, i INTERVAL, j JSONB, l TEXT[], m TIME, r REAL, w NUMERIC"""
    for each in (server, db):
        each.execute(f"CREATE TABLE t ({columns})")
    for id in range(60):
        text = lambda: "".join(rng.choices(HOSTILE, k=rng.randrange(4)))  # noqa: E731
        row = [id, text(), rng.choice(["a", "é", "", "a,b"]), f"{rng.randrange(-10**8, 10**8)}.5",
               repr(rng.choice([0.1, 1e300, -1e-7, 1e15, 123456.75])), f"{rng.randrange(1, 9999):04}-02-28",
               f"2024-01-01 10:00:00.{rng.randrange(10**6):06}", "1999-12-31 23:59:59+00", rng.random() < 0.5,
               rng.randbytes(3), f"{rng.getrandbits(128):032x}", "1 mon 2 days 03:04:05.6", '{"a": ["\\"", "\\n"]}',
               [text() for _ in range(3)], "10:11:12.5", "0.1", "1.50"]  # fmt: skip
        row = [None if n and rng.random() < 0.15 else cell for n, cell in enumerate(row)]
        db.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(row))})", tuple(row))
        server.execute(f"INSERT INTO t VALUES ({', '.join(['%s'] * len(row))})", row)
    file = tmp_path / "out"
    assert db.execute(f"COPY t TO '{file}' {options}").status == "COPY 60"
    with server.cursor().copy(f"COPY (SELECT * FROM t ORDER BY id) TO STDOUT {options}") as copy:
        assert file.read_bytes() == b"".join(map(bytes, copy))
    one = tmp_path / "one"
    assert db.execute(f"COPY (SELECT a FROM t ORDER BY id) TO '{one}' {options}").count == 60
    with server.cursor().copy(f"COPY (SELECT a FROM t ORDER BY id) TO STDOUT {options}") as copy:
        assert one.read_bytes() == b"".join(map(bytes, copy))
    before = db.query("SELECT * FROM t ORDER BY id")
    db.execute("DELETE FROM t")
    backwards = options.replace(", FORCE_QUOTE *", "")
    assert db.execute(f"COPY t FROM '{file}' {backwards}").count == 60
    assert db.query("SELECT * FROM t ORDER BY id").equals(before)


def test_defaults_identities_generated_columns_and_foreign_keys(db: Database, tmp_path: Path) -> None:
    db.execute("""
        CREATE TABLE p (id BIGINT PRIMARY KEY); INSERT INTO p VALUES (1), (2);
        CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, p BIGINT REFERENCES p, a TEXT DEFAULT 'new',
                        double BIGINT GENERATED ALWAYS AS (p * 2) STORED);
        CREATE UNIQUE INDEX some ON t (lower(a)) WHERE p = 1;
        CREATE TABLE plain (a TEXT)""")
    assert db.copy_from("t", io.StringIO("1,x\n2,x\n2,\n"), columns=["p", "a"]) == 3
    assert db.copy_from("t", io.StringIO("50,1,y\n")) == 1  # as with OVERRIDING SYSTEM VALUE
    assert db.execute("SELECT * FROM t ORDER BY id").fetchall() == [
        (1, 1, "x", 2), (2, 2, "x", 4), (3, 2, None, 4), (50, 1, "y", 2)]  # fmt: skip
    assert db.copy_from("t", io.StringIO("1\n"), columns=["p"]) == 1
    before = db.version()
    with pytest.raises(ForeignKeyError):
        db.copy_from("t", io.StringIO("1,z\n3,z\n"), columns=["p", "a"])
    with pytest.raises(UniqueError, match="the data, line 3") as raised:
        db.copy_from("t", io.StringIO("2,X\n1,q\n1,X\n"), columns=["p", "a"])
    assert raised.value.constraint == "some"
    for columns, state in ((["double"], "42P10"), (["p", "p"], "42701"), (["q"], "42703")):
        with pytest.raises(SqlError) as refused:
            db.copy_from("t", io.StringIO("1\n"), columns=columns)
        assert refused.value.sqlstate == state
    assert db.version() == before
    assert db.copy_from("plain", io.BytesIO(b"b\na\n"), format="text", message="loaded", author="ada") == 2
    assert next(db.commits()).message == "loaded"
    assert db.execute("SELECT a FROM plain").fetchall() == [("b",), ("a",)]
    target = io.StringIO()
    assert db.copy_to("SELECT a FROM plain WHERE a > ?", target, params=("a",), header=True) == 1
    assert target.getvalue() == "a\nb\n"


def test_arrow_data(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT DEFAULT 'x', n NUMERIC)")
    table = pa.table({"n": ["1.50", None], "id": pa.array([1, 2], pa.int32())})
    assert db.copy_from("t", table) == 2
    assert db.execute("SELECT * FROM t ORDER BY id").fetchall() == [(1, "x", Decimal("1.50")), (2, "x", None)]
    for number, source in enumerate((table.to_batches()[0], table.to_reader(), table)):
        db.execute("DELETE FROM t")
        assert db.copy_from("t", source) == 2, number
    streams = pa.table({"id": range(10, 20)})

    class Stream:
        def __arrow_c_stream__(self, schema: object = None) -> object:
            return streams.__arrow_c_stream__(schema)

    assert db.copy_from("t", Stream(), where="id % 2 = 0") == 5
    with pytest.raises(UniqueError, match="the Arrow data, row 2"):
        db.copy_from("t", pa.table({"id": [100, 1]}))
    with pytest.raises(SqlError, match="the Arrow data, row 2, column n"):
        db.copy_from("t", pa.table({"id": [100, 101], "n": ["1", "x"]}))
    assert db.execute("SELECT count(*) FROM t").fetchall() == [(7,)]


def test_many_batches_are_one_commit(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a TEXT); CREATE INDEX by_a ON t (a)")
    monkeypatch.setattr(records, "BLOCK", 1000)
    data = "".join(f'{(id * 7919) % 10007},"v{id % 9}"\n' for id in range(3000))
    before = db.version()
    assert db.copy_from("t", io.StringIO(data)) == 3000
    assert db.version() == before + 1
    assert db.execute("SELECT count(*) FROM t WHERE a = 'v3'").fetchall() == [(333,)]
    with pytest.raises(UniqueError, match="line 3001:"):
        db.copy_from("t", io.StringIO("".join(f"{20000 + id},x\n" for id in range(3000)) + "7919,y\n"))
    assert (db.version(), db.execute("SELECT count(*) FROM t").fetchall()) == (before + 1, [(3000,)])
    with db.transaction():
        db.copy_from("t", io.StringIO("50000,x\n"))
        assert db.execute("SELECT a FROM t WHERE id = 50000").fetchall() == [("x",)]
    assert list(db.verify()) == []


def test_what_is_refused(db: Database, tmp_path: Path) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY); CREATE VIEW v AS SELECT id FROM t; INSERT INTO t VALUES (1)")
    (tmp_path / "there").write_text("as it was")
    cases = [
        (f"COPY t FROM '{tmp_path}/missing'", "58P01"), (f"COPY t FROM '{tmp_path}'", "42809"),
        ("COPY t FROM STDIN", "0A000"), ("COPY t TO STDOUT", "0A000"), ("COPY x FROM 'y'", "42P01"),
        ("COPY t FROM 'y' (FORMAT xml)", "22023"), (f"COPY v TO '{tmp_path}/there'", "42809"),
        ("COPY t FROM PROGRAM 'ls'", "0A000"), (f"COPY (SELECT 1/0) TO '{tmp_path}/there'", "22012"),
        (f"COPY t TO '{tmp_path}/missing/x'", "58P01"), (f"COPY t TO '{tmp_path}/there' (HEADER MATCH)", "0A000"),
        (f"COPY t TO '{tmp_path}/there' (FORMAT csv, FORCE_NULL (id))", "0A000"),
        (f"COPY (SELECT '𝄞') TO '{tmp_path}/there' (ENCODING 'latin1')", "22P05"),
        (f"COPY (DELETE FROM t RETURNING id) TO '{tmp_path}/there'", "0A000"),
        (f"COPY t TO '{tmp_path}/there' (FORMAT csv, FORCE_QUOTE (x))", "42703"),
        (f"COPY t TO '{tmp_path}/there' (x)", "42601"), ("COPY t (x) TO 'y'", "42703"),
    ]  # fmt: skip
    for sql, state in cases:
        with pytest.raises(SqlError) as raised:
            db.execute(sql)
        assert raised.value.sqlstate == state, sql
    assert (tmp_path / "there").read_text() == "as it was"
    assert not list(tmp_path.glob("*.part"))
    assert db.execute(f"COPY (VALUES (1)) TO '{tmp_path}/there'").status == "COPY 1"
    assert (tmp_path / "there").read_text() == "1\n"
    with pytest.raises(SqlError, match="not a int"):
        db.copy_from("t", 5)
