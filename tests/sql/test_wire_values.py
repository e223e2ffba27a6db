"""Values on the wire, byte by byte as PostgreSQL sends and takes them."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from ontolake.server.pg.values import decode_parameter, encode_rows, result_columns
from ontolake.sql import Database, open_database
from ontolake.sql.copy import binary_files
from ontolake.sql.errors import SqlError
from ontolake.sql.results import Result

VALUES: dict[str, Sequence[str]] = {
    "boolean": ("true", "false"),
    "smallint": ("0", "-1", "32767", "-32768"),
    "integer": ("0", "7", "2147483647", "-2147483648"),
    "bigint": ("0", "42", "9223372036854775807", "-9223372036854775808"),
    "numeric": ("0", "0.00", "1", "-1", "1.50", "10000", "9999", "10000.0001",
                "123456789012345678901234567890.123456789", "-0.00001", "0.0001", "1e20", "1e-20", "NaN", "Infinity",
                "-Infinity", "99999999.9999", "100000000"),
    "numeric(12,2)": ("0", "1.5", "-1.25", "9999999999.99", "-9999999999.99", "0.01", "100", "10000", "123456.78"),
    "numeric(38,20)": ("0", "1.5", "-123456789012345678.12345678901234567891", "0.00000000000000000001", "3.33"),
    "numeric(30,0)": ("0", "123456789012345678901234567890", "-10000"),
    "numeric(18,7)": ("0.0000001", "-0.1", "12345678901.1234567", "10000"),
    "real": ("0", "1", "1.5", "-0.1", "123456", "1234567", "1e10", "1e-5", "0.0001", "0.00012345", "3.4028235e38",
             "1e-45", "NaN", "Infinity", "-Infinity", "16777216", "100000", "999999.9"),
    "double precision": ("0", "1", "1.5", "-0.1", "123456789012345", "1234567890123456", "1e15", "1e16", "-1e15",
                         "1e14", "1e-5", "0.0001", "1.7976931348623157e308", "5e-324", "NaN", "Infinity",
                         "-Infinity", "0.3", "100000000000000000000", "9007199254740993", "123456789.123456789", "1e22",
                         "1e21",
                         "4.35e15", "1234567890123456.5", "0.000123"),
    "text": ("", "a", "it's", "Grüße", "日本", "line\nbreak", "tab\tand \\ and \"", "NULL", "{a}", "x" * 300),
    "varchar(5)": ("", "abc", "abcde"),
    "char(4)": ("", "a", "abcd"),
    "bytea": ("\\x", "\\x00", "\\xdeadbeef", "\\xff00ff"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
             "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "date": ("1970-01-01", "2000-01-01", "2026-11-18", "0001-01-01", "9999-12-31", "10000-01-01", "0044-03-15 BC",
             "infinity", "-infinity", "1999-12-31"),
    "time": ("00:00:00", "23:59:59.999999", "12:30:00.5", "24:00:00"),
    "timestamp": ("1970-01-01 00:00:00", "2000-01-01 00:00:00", "2026-11-18 01:02:03.456789", "1999-12-31 23:59:59.1",
                  "0044-03-15 12:00:00 BC", "10000-01-01 00:00:00", "infinity", "-infinity", "0001-01-01 00:00:00",
                  "9999-12-31 23:59:59.999999", "2026-11-18 10:00:00.100"),
    "timestamptz": ("1970-01-01 00:00:00+00", "2026-11-18 01:02:03.456789+02", "0044-03-15 12:00:00+00 BC", "infinity",
                    "-infinity", "10000-01-01 00:00:00+00"),
    "timestamp(3)": ("2026-11-18 01:02:03.456789", "2026-11-18 01:02:03"),
    "interval": ("0", "1 year 2 months 3 days 04:05:06.789", "-1 year", "-1 day +02:03:04", "1 month -1 day",
                 "100 years", "00:00:00.000001", "-00:00:01", "25:00:00", "1 year -1 month"),
    "json": ("null", "{}", '{"b": 1,  "a": [1, 2.50]}', '"x"', "[]"),
    "jsonb": ("null", "{}", '{"b": 1,  "a": [1, 2.50]}', '"x"', "[]", '{"ü": "日本"}'),
    "mood": ("sad", "ok", "it's fine"),
    "integer[]": ("{}", "{1,2,3}", "{NULL}", "{1,NULL,-3}"),
    "bigint[]": ("{}", "{1,9223372036854775807}"),
    "text[]": ("{}", '{a,"b c",NULL,"NULL","","q\\"uote","back\\\\slash","{x}","a,b"}', '{Grüße,"line\nbreak"}'),
    "boolean[]": ("{t,f,NULL}",),
    "double precision[]": ("{1.5,NaN,Infinity,1e20}",),
    "numeric[]": ("{1.50,NULL,NaN,-10000}",),
    "numeric(10,3)[]": ("{1.5,NULL,-10000}",),
    "date[]": ("{2026-11-18,infinity}",),
    "timestamp[]": ('{"2026-11-18 01:02:03.5",infinity}',),
    "timestamptz[]": ('{"2026-11-18 01:02:03.5+00"}',),
    "uuid[]": ("{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}",),
    "interval[]": ('{"1 day","-1 year"}',),
    "jsonb[]": ('{"{\\"a\\": 1}",null}',),
    "bytea[]": ('{"\\\\xdead"}',),
    "mood[]": ('{sad,NULL,"it\'s fine"}',),
    "varchar(5)[]": ("{abc,NULL}",),
}
"""Values of every type, as text."""
MOOD = "CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s fine')"


@pytest.fixture(scope="module")
def ours() -> Any:
    with open_database(":memory:") as db:
        db.execute(MOOD)
        yield db


Fields = list[list[bytes | None]]


def quoted(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def fields(data: bytes) -> Fields:
    """The rows of DataRow messages."""
    rows, at = [], 0
    while at < len(data):
        kind, length, count = struct.unpack_from(">cih", data, at)
        assert kind == b"D"
        end, at = at + 1 + length, at + 7
        row: list[bytes | None] = []
        for _ in range(count):
            size = struct.unpack_from(">i", data, at)[0]
            at += 4
            row.append(None if size < 0 else data[at : at + size])
            at += max(size, 0)
        assert at == end
        rows.append(row)
    return rows


def theirs(server: psycopg.Connection[Any], sql: str, format: int) -> tuple[Fields, list[tuple[int, ...]]]:
    """The rows of a query as PostgreSQL sends them, and the oids, sizes and modifiers of its columns."""
    found = server.pgconn.exec_params(sql.encode(), [], result_format=format)
    assert found.status == psycopg.pq.ExecStatus.TUPLES_OK, found.error_message
    rows = [[found.get_value(row, column) for column in range(found.nfields)] for row in range(found.ntuples)]
    return rows, [(found.ftype(n), found.fsize(n), found.fmod(n)) for n in range(found.nfields)]


def without_enum_oids(data: bytes | None, type: str) -> bytes | None:
    """An array of an enum without the oid of the enum, which each server numbers itself."""
    return data if data is None or type != "mood[]" else data[:8] + data[12:]


@pytest.mark.parametrize("type", VALUES)
def test_values_are_sent_as_postgresql_sends_them(type: str, ours: Database, postgres: psycopg.Connection[Any]) -> None:
    """Text and binary, of every type, few rows and many, with NULLs and without."""
    postgres.execute(MOOD.encode())
    values: list[str | None] = [*VALUES[type], None, VALUES[type][0]]
    rows = ", ".join(f"({n}, {quoted(value)})" for n, value in enumerate(values))
    ours.execute("DROP TABLE IF EXISTS t")
    for run in (ours.execute, lambda sql: postgres.execute(sql.encode())):
        run(f"CREATE TABLE t (id integer PRIMARY KEY, v {type})")
        run(f"INSERT INTO t VALUES {rows}")
    query = "SELECT v FROM t ORDER BY id"
    few = ours.execute(query)
    many = Result("SELECT", len(values), table=few.typed(), types=few.types)
    full = Result("SELECT", len(values) - 2, table=few.typed().slice(0, len(values) - 2), types=few.types)
    for format in (0, 1):
        wanted, description = theirs(postgres, query, format)
        for result, expected in ((few, wanted), (many, wanted), (full, wanted[:-2])):
            found = fields(encode_rows(result, [format]))
            assert [[without_enum_oids(each, type) for each in row] for row in found] == \
                [[without_enum_oids(each, type) for each in row] for row in expected]  # fmt: skip
        if "mood" not in type:
            assert [each[1:] for each in result_columns(few)] == description


@pytest.mark.parametrize("type", [type for type in VALUES if type != "numeric(30,0)"])
def test_parameters_are_read_as_postgresql_reads_them(type: str, ours: Database,
                                                      postgres: psycopg.Connection[Any]) -> None:
    """What PostgreSQL sends comes back as a parameter, in text and binary, and is stored as what it was."""
    postgres.execute(MOOD.encode())
    ours.execute("DROP TABLE IF EXISTS t")
    ours.execute(f"CREATE TABLE t (id integer PRIMARY KEY, v {type})")
    column = ours.catalog().table("main", "public", "t").by_name["v"] if "mood" in type else None
    for number, value in enumerate(VALUES[type]):
        for format in (0, 1):
            sent, description = theirs(postgres, f"SELECT CAST({quoted(value)} AS {type})", format)
            shown, _ = theirs(postgres, f"SELECT CAST({quoted(value)} AS {type})", 0)
            given = decode_parameter(description[0][0], format, sent[0][0], column.type if column else None)
            ours.execute("INSERT INTO t VALUES ($1, $2)", (number * 2 + format, given))
            back = ours.execute("SELECT v FROM t WHERE id = $1", (number * 2 + format,))
            assert fields(encode_rows(back)) == shown, (value, format, given)


EVERY = {f"c{n}": type for n, type in enumerate(VALUES) if type != "mood[]"}
"""Columns of all types but arrays of an enum, in which its oid stands."""


def everything(run: Any) -> None:
    """A table with values of every type, the lists of values repeated to one length, and NULLs."""
    run("DROP TABLE IF EXISTS t")
    run(f"CREATE TABLE t (id integer PRIMARY KEY, {', '.join(f'{name} {type}' for name, type in EVERY.items())})")
    for n in range(20):
        cells = [None if n == 7 else VALUES[type][n % len(VALUES[type])] for type in EVERY.values()]
        run(f"INSERT INTO t VALUES ({n}, {', '.join(map(quoted, cells))})")


def copied_out(server: psycopg.Connection[Any], sql: str) -> bytes:
    with server.cursor() as cursor, cursor.copy(sql.encode()) as copy:
        return b"".join(bytes(block) for block in copy)


def test_binary_files_are_those_of_postgresql_and_come_back(ours: Database, postgres: psycopg.Connection[Any],
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """COPY in the binary format, byte by byte, and read in blocks that end anywhere."""
    postgres.execute(MOOD.encode())
    for run in (ours.execute, lambda sql: postgres.execute(sql.encode())):
        everything(run)
    wanted = copied_out(postgres, "COPY (SELECT * FROM t ORDER BY id) TO STDOUT (FORMAT binary)")
    written = io.BytesIO()
    assert ours.copy_to("SELECT * FROM t ORDER BY id", written, format="binary") == 20
    assert written.getvalue() == wanted
    for block in (7, 64, 8 << 20):
        monkeypatch.setattr(binary_files, "BLOCK", block)
        ours.execute("DELETE FROM t")
        assert ours.copy_from("t", io.BytesIO(wanted), format="binary") == 20
        again = io.BytesIO()
        ours.copy_to("t", again, format="binary")
        assert again.getvalue() == wanted
    ours.execute("DELETE FROM t")
    empty = io.BytesIO()
    ours.copy_to("t", empty, format="binary")
    assert empty.getvalue() == copied_out(postgres, "COPY (SELECT * FROM t WHERE id < 0) TO STDOUT (FORMAT binary)")


HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
ROW = struct.pack(">hiiii", 2, 4, 1, 4, 5)
WRONG = {
    "no signature": (b"PGCOPY\n\xff\r\r\0" + bytes(8), "22P04"), "short head": (HEAD[:15], "22P04"),
    "flags": (HEAD[:11] + struct.pack(">Ii", 1 << 16, 0), "22P04"), "fields": (HEAD + struct.pack(">h", 3), "22P04"),
    "length": (HEAD + struct.pack(">hi", 2, -2), "22P04"), "ends early": (HEAD + ROW + ROW[:-2], "22P04"),
    "behind the end": (HEAD + ROW + struct.pack(">h", -1) + b"x", "22P04"),
    "short field": (HEAD + struct.pack(">hihii", 2, 2, 1, 4, 5), "08P01"),
    "long field": (HEAD + struct.pack(">hiqii", 2, 8, 1, 4, 5), "22P03"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_broken_binary_files_change_nothing(what: str, ours: Database, postgres: psycopg.Connection[Any]) -> None:
    """What PostgreSQL refuses is refused with the same SQLSTATE, and the row is named."""
    data, state = WRONG[what]
    ours.execute("DROP TABLE IF EXISTS t")
    for run in (ours.execute, lambda sql: postgres.execute(sql.encode())):
        run("CREATE TABLE t (id integer PRIMARY KEY, v integer)")
    with pytest.raises(SqlError) as raised:
        ours.copy_from("t", io.BytesIO(data), format="binary")
    assert raised.value.sqlstate == state
    assert str(raised.value.context).startswith("COPY t, line ")
    assert ours.query("SELECT count(*) FROM t").column(0).to_pylist() == [0]
    with pytest.raises(psycopg.Error) as refused, postgres.cursor() as cursor, \
            cursor.copy("COPY t FROM STDIN (FORMAT binary)") as copy:  # fmt: skip
        copy.write(data)
    assert refused.value.sqlstate == state
