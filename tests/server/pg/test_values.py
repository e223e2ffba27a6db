"""Values and COPY over the wire with psycopg: what it gets from us is what it gets from PostgreSQL."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pg_serving import PgServed
from psycopg.types.json import Jsonb

TABLE = "CREATE TABLE kinds (id integer PRIMARY KEY, n numeric, m numeric(10,2), f float8, t text, d date, " \
        "z timestamptz, i interval, u uuid, b bytea, j jsonb, l integer[], o boolean)"  # fmt: skip
ROWS: list[tuple[Any, ...]] = [
    (1, decimal.Decimal("1.50"), decimal.Decimal("2.25"), 0.1, "Grüße\n\t\\", datetime.date(2026, 11, 18),
     datetime.datetime(2026, 11, 18, 1, 2, 3, 456789, datetime.UTC), datetime.timedelta(days=3, seconds=4),
     uuid.UUID(int=7), b"\x00\xff", Jsonb({"a": [1, None]}), [1, None, 3], True),
    (2, *[None] * 12), (3, decimal.Decimal("-10000"), decimal.Decimal("0.00"), 1e300, "", *[None] * 7, False),
]  # fmt: skip


@pytest.fixture(params=["ours", "theirs"])
def connection(request: pytest.FixtureRequest, wire: PgServed, postgres: str) -> Iterator[psycopg.Connection[Any]]:
    address = f"host=127.0.0.1 port={wire.server.port} dbname=shop user=admin password=admin-secret" \
        if request.param == "ours" else postgres  # fmt: skip
    with psycopg.connect(address, autocommit=True) as found:
        found.execute("DROP TABLE IF EXISTS kinds")
        found.execute(TABLE.encode())
        yield found


def plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [tuple(each.obj if isinstance(each, Jsonb) else each for each in row) for row in rows]


@pytest.mark.parametrize("binary", [False, True])
def test_values_go_in_and_out(connection: psycopg.Connection[Any], binary: bool) -> None:
    """Parameters and rows in both formats."""
    mark = "%b" if binary else "%t"
    with connection.cursor(binary=binary) as cursor:
        cursor.executemany(f"INSERT INTO kinds VALUES ({', '.join([mark] * 13)})".encode(), ROWS)
        cursor.execute("SELECT * FROM kinds ORDER BY id")
        assert cursor.fetchall() == plain(ROWS)
        cursor.execute(f"SELECT id FROM kinds WHERE n = {mark} OR z = {mark}".encode(), (ROWS[2][1], ROWS[0][6]))
        assert sorted(cursor.fetchall()) == [(1,), (3,)]


@pytest.mark.parametrize("binary", [False, True])
def test_numbers_are_of_the_types_that_were_described(connection: psycopg.Connection[Any], binary: bool) -> None:
    """A parameter that is declared a bigint is one in the answer, however small its value."""
    with connection.cursor(binary=binary) as cursor:
        for value in (1, 70_000, 5_000_000_000):
            for _ in range(2):
                cursor.execute("SELECT %s::int8, %s::int8 + 1, %s, %s::numeric", [value] * 4, prepare=True)
                assert cursor.fetchone() == (value, value + 1, value, decimal.Decimal(value))
                assert [each.type_code for each in cursor.description or ()][:2] == [20, 20]
        cursor.execute("SELECT relname, oid > 0, relkind FROM pg_class WHERE relname = %s", ("kinds",))
        assert cursor.fetchall() == [("kinds", True, "r")]


@pytest.mark.parametrize("form", ["text", "binary"])
def test_rows_are_copied_in_and_out(connection: psycopg.Connection[Any], form: str) -> None:
    types = ["int4", "numeric", "numeric", "float8", "text", "date", "timestamptz", "interval", "uuid", "bytea",
             "jsonb", "int4[]", "bool"]  # fmt: skip
    with connection.cursor() as cursor:
        with cursor.copy(f"COPY kinds FROM STDIN (FORMAT {form})".encode()) as copy:
            copy.set_types(types)
            for row in ROWS:
                copy.write_row(row)
        assert cursor.rowcount == 3
        with cursor.copy(f"COPY (SELECT * FROM kinds ORDER BY id) TO STDOUT (FORMAT {form})".encode()) as copy:
            copy.set_types(types)
            assert list(copy.rows()) == plain(ROWS)
        with cursor.copy(f"COPY (SELECT * FROM kinds WHERE id < 0) TO STDOUT (FORMAT {form})".encode()) as copy:
            assert list(copy.rows()) == []


WRONG = {
    "COPY kinds (id, m) FROM STDIN": (b"1\t2\n2\tx\n", "22P02", "COPY kinds, line 2, column m"),
    "COPY kinds (id, t) FROM STDIN (FORMAT csv)": (b"1,a\n2\n", "22P04", "COPY kinds, line 2"),
    "COPY kinds (id) FROM STDIN": (b"1\n\n1\n", "22P02", "COPY kinds, line 2, column id"),
    "COPY kinds (id, o) FROM STDIN (HEADER MATCH)": (b"id\tx\n1\tt\n", "22P04", "COPY kinds, line 1"),
}


@pytest.mark.parametrize("sql", WRONG)
def test_errors_say_where_the_data_is_wrong(connection: psycopg.Connection[Any], sql: str) -> None:
    data, state, context = WRONG[sql]
    with pytest.raises(psycopg.Error) as raised, connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
        copy.write(data)
    assert raised.value.sqlstate == state
    assert (raised.value.diag.context or "").startswith(context)
    assert connection.execute("SELECT count(*) FROM kinds").fetchone() == (0,)
