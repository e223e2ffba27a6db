"""Columns of every type take, keep, sort and give back what PostgreSQL's do, and refuse what it refuses."""

from __future__ import annotations

import enum
import json
import random
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import psycopg.types.enum
import pyarrow as pa
import pytest

from ontolake.errors import Corruption
from ontolake.sql import Database, SqlError, open_database, types
from ontolake.sql.keyspace import keys
from ontolake.sql.types import Type, array_of, decimal

TYPES: dict[str, Type] = {
    "boolean": types.BOOLEAN, "smallint": types.SMALLINT, "integer": types.INTEGER, "bigint": types.BIGINT,
    "real": types.REAL, "double precision": types.DOUBLE, "numeric": types.NUMERIC, "numeric(6,2)": decimal(6, 2),
    "text": types.TEXT, "varchar(3)": Type(types.Kind.UTF8, length=3),
    "char(3)": Type(types.Kind.UTF8, length=3, padded=True), "bytea": types.BYTES, "uuid": types.UUID,
    "date": types.DATE, "time": types.TIME, "timestamp": types.TIMESTAMP, "timestamptz": types.TIMESTAMPTZ,
    "timestamp(2)": Type(types.Kind.TIMESTAMP_US, scale=4), "interval": types.INTERVAL, "json": types.JSON,
    "jsonb": types.JSONB, "integer[]": array_of(types.INTEGER), "text[]": array_of(types.TEXT),
    "date[]": array_of(types.DATE), "numeric[]": array_of(types.NUMERIC),
}  # fmt: skip
GIVEN: dict[str, list[str]] = {
    "boolean": ["t", "TRUE", " yes ", "of", "0", "o", "2", ""],
    "smallint": ["32767", "-32768", "32768", " 7 ", "+7", "7.5", "1_0", "", "x"],
    "integer": ["2147483647", "2147483648", "-2147483649", "0x1F"],
    "bigint": ["9223372036854775807", "9223372036854775808", "-9223372036854775808"],
    "real": ["0.1", "1e10", "1e-5", "123456", "1234567", "1e39", "1e-46", "NaN", "-Infinity", "inf", "0.00001", "x",
             "16777217", "-0.5"],
    "double precision": ["0.1", "1e15", "1e14", "123456789012345.678", "1e400", "1e-5", "0.0001", "nan", "1_0",
                         "infinity"],
    "numeric": ["1.50", "0.00", "-0.00", "1e5", "1e-5", "1.5e3", "NaN", "infinity", "-inf", "12345678901234567890.5",
                ".5", "5.", "x", "", "0.000000000000000000000000000000000000001",
                "99999999999999999999999999999999999999"],
    "numeric(6,2)": ["1.005", "-1.005", "9999.994", "9999.995", "1e3"],
    "text": ["a  ", "", "é"],
    "varchar(3)": ["abc", "ab   ", "abcd", "äöü"],
    "char(3)": ["a", "abc  ", "abcd", "", " a"],
    "bytea": ["\\x00ff", "\\xAb", "abc", "a\\\\b", "\\001", "\\x0", "\\xzz", "\\9"],
    "uuid": ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
             "a0eebc999c0b4ef8bb6d6bb9bd380a11", "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11", "a0ee", "g" * 32, ""],
    "date": ["2026-02-11", "20260211", "2026-02-29", "2024-02-29", "0044-03-15 BC", "4713-01-01 BC", "4714-01-01 BC",
             "5874897-12-31", "5874898-01-01", "infinity", "-infinity", "Feb 11, 2026", "11-Feb-2026", "2/11/2026",
             "2026-13-01", "0000-01-01", "yesterdayx", "", "2026-02-11 10:00", "epoch"],
    "time": ["10:11:12", "10:11", "24:00", "24:00:01", "25:00", "10:60", "040506", "04:05 PM", "04:05:06.1234567",
             "x", "23:59:60"],
    "timestamp": ["2026-02-11 10:00:00.1234567", "2026-02-11T10:00", "2026-02-11", "2026-02-11 10:00+05",
                  "4713-11-24 00:00 BC", "4714-11-24 00:00 BC", "4714-11-23 00:00 BC", "99999-01-01", "infinity",
                  "-infinity", "300000-01-01", "2026-02-11 25:00", "Jan 8 1999 04:05:06 AM", "20260211T101112", "",
                  "2026-02-11 10:00:00.5", "2026-02-30", "0001-01-01"],
    "timestamptz": ["2026-02-11 10:00+05:30", "2026-02-11 10:00Z", "2026-02-11 10:00 UTC", "2026-02-11 10:00-08",
                    "2026-02-11 10:00 Europe/Berlin", "2026-07-11 10:00 America/New_York", "2026-02-11 10:00+16",
                    "2026-02-11 10:00 Nowhere/City", "infinity"],
    "timestamp(2)": ["2026-02-11 10:00:00.125", "2026-02-11 10:00:00.999", "1969-12-31 23:59:59.996"],
    "interval": ["1 year 2 mons 3 days 04:05:06.789", "1 day 02:03", "3 days ago", "-1 day +02:03:00", "1-2",
                 "P1Y2M3DT4H5M6S", "1.5 days", "1.5 months", "1 week", "2 centuries", "-1 mon 1 day",
                 "1 day -00:00:01", "90 minutes",
                 "0", "5", "@ 1 minute", "1 year -1 day", "x", "", "1 fortnightx", "1 12:00", "-00:00:01.5",
                 "1 mon ago", "1.25 years", "0.5 weeks", "10 hours 5 minutes", "-2 years -3 mons"],
    "json": ['{"b": 1,  "a":2, "a":3}', "[1, 2]", "null", '"x"', "{", "nul", "", "01", '{"a":}', "1.50", "NaN",
             "\u00a01"],
    "jsonb": ['{"b": 1,  "a":2, "a":3, "bb": 1, "ä": 0}', "[1, 2.50, 1e3, -0]", "null", '"\\u00e9\\n\\u0001"', "{",
              "1.50",
              '{"a": {"c": [], "b": {}}}', '"\\u0000"', '"\\ud83d\\ude00"', "true", '{"aa": 1, "b": 2, "": 3}'],
    "integer[]": ["{1,2,NULL}", "{}", " { 1 , 2 } ", "{1", "1", "{x}", "{1,,2}", '{"1"}', "{null}"],
    "text[]": ['{a,"b c",NULL,"NULL","",\\"}', '{"a\\"b","c\\\\d"}', "{a b}", '{"a}', "{a,}", "{ä, b }"],
    "date[]": ["{2026-02-11,infinity}"], "numeric[]": ["{1.50,NaN}"],
}  # fmt: skip
ORDERED = [name for name in TYPES if name != "json"]


def ours(type: Type, text: str) -> str:
    """The text of a value that a text is read as, or the SQLSTATE."""
    try:
        return type.text(type.store(text))
    except SqlError as error:
        return f"error {error.sqlstate}"


def theirs(postgres: Any, text: str) -> str:
    """The same of PostgreSQL, by storing it in a column."""
    try:
        with postgres.transaction(), postgres.cursor() as cursor:
            cursor.execute("INSERT INTO v VALUES (%s)", (text,))
            cursor.execute("SELECT format('%s', v) FROM v")
            found = cursor.fetchone()[0]
            cursor.execute("TRUNCATE v")
            return str(found)
    except psycopg.Error as error:
        return f"error {error.sqlstate}"


@pytest.mark.parametrize("name", GIVEN)
def test_text_is_read_and_written_as_by_postgresql(name: str, postgres: Any) -> None:
    postgres.execute(f"DROP TABLE IF EXISTS v; CREATE TABLE v (v {name})")
    texts = GIVEN[name]
    expected = {text: theirs(postgres, text) for text in texts}
    assert {text: ours(TYPES[name], text) for text in texts} == expected


def random_text(name: str, pick: random.Random) -> str:
    """A text that most columns of a type take."""
    number = pick.choice([pick.randint(-3, 3), pick.randint(-30000, 30000), pick.randint(-20, 20) * 1000])
    match name:
        case "boolean":
            return pick.choice("tf")
        case "smallint" | "integer" | "bigint":
            return str(number)
        case "real" | "double precision" | "numeric" | "numeric(6,2)":
            found = Decimal(number % 9999).scaleb(-pick.randint(0, 4)) * pick.choice([1, -1])
            return ("NaN" if name != "numeric(6,2)" else "0") if pick.random() < 0.1 or not found else str(found)
        case "date":
            day = f"{pick.randint(1, 3000):04}-{pick.randint(1, 12):02}-{pick.randint(1, 28):02}"
            return day + pick.choice(["", " BC"])
        case "time":
            return f"{pick.randint(0, 23)}:{pick.randint(0, 59)}:{pick.randint(0, 59)}.{pick.randint(0, 999999)}"
        case "timestamp" | "timestamptz" | "timestamp(2)":
            day, clock = random_text("date", pick), random_text("time", pick)
            return f"{day.removesuffix(' BC')} {clock}{' BC' if day.endswith('BC') else ''}"
        case "interval":
            return f"{pick.randint(-2, 2)} mons {pick.randint(-70, 70)} days {pick.randint(-30, 30) * 3600} seconds"
        case "uuid":
            return str(uuid.UUID(int=pick.getrandbits(128)))
        case "bytea":
            return "\\x" + pick.randbytes(pick.randint(0, 3)).hex()
        case "jsonb":
            return pick.choice(["null", "[]", "{}", "true", "false", str(number),
                                f'"{"ab"[number % 2] * (number % 3)}"',
                                f"[{number}]", f'["a", {number}]', f'{{"a": {number}}}', f'{{"b": [], "aa": {number}}}',
                                f'[[{number}], null]', f"[{number}.50]"])  # fmt: skip
        case _ if name.endswith("[]"):
            items = [pick.choice(["NULL", f'"{random_text(name[:-2], pick)}"']) for _ in range(pick.randint(0, 3))]
            return "{" + ",".join(items) + "}"
    return "".join(pick.choice("ab é") for _ in range(pick.randint(0, 3)))


@pytest.mark.parametrize("name", ORDERED)
def test_keys_sort_as_postgresql_sorts(name: str, postgres: Any) -> None:
    type, pick = TYPES[name], random.Random(name)
    texts = sorted({random_text(name, pick) for _ in range(60)})
    postgres.execute(f"DROP TABLE IF EXISTS v; CREATE TABLE v (n int, v {name})")
    with postgres.cursor() as cursor:
        cursor.executemany("INSERT INTO v VALUES (%s, %s)", list(enumerate(texts)))
        cursor.execute("SELECT dense_rank() OVER (ORDER BY v), format('%s', v) FROM v ORDER BY n")
        found = cursor.fetchall()
    stored = [type.store(text) for text in texts]
    assert [type.text(value) for value in stored] == [text for _, text in found]
    encoded = [keys.element(type.kind, value) for value in stored]
    ranks = {key: rank for rank, key in enumerate(sorted(set(encoded)), 1)}
    assert [ranks[key] for key in encoded] == [rank for rank, _ in found]


VALUES: dict[str, list[Any]] = {
    "boolean": [True, False], "smallint": [-5, 32767], "integer": [7, -(2**31)], "bigint": [2**62, 0],
    "real": [1.5, -0.25], "double precision": [0.1, float("inf")],
    "numeric": [Decimal("1.50"), Decimal("1e10"), Decimal("-0.00000000000000000001")],
    "numeric(6,2)": [Decimal("1.25"), Decimal("-9999.99")], "text": ["", "a\x01é"], "varchar(3)": ["abc", ""],
    "char(3)": ["a  ", "abc"], "bytea": [b"\x00\xff", b""], "uuid": [uuid.UUID(int=1), uuid.UUID(int=2**127)],
    "date": [date(1, 1, 1), date(9999, 12, 31)], "time": [time(10, 11, 12, 13), time(0)],
    "timestamp": [datetime(2026, 2, 11, 10, 0, 0, 123456), datetime(1, 1, 1)],
    "timestamptz": [datetime(2026, 2, 11, 10, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)],
    "timestamp(2)": [datetime(2026, 2, 11, 10, 0, 0, 120000)],
    "interval": [timedelta(days=3, seconds=4, microseconds=5), timedelta(seconds=-1)],
    "json": [{"b": [1, None], "a": "é"}, [1.5], 7], "jsonb": [{"a": 1, "b": {"c": [True]}}, [], "x", 1.5],
    "integer[]": [[1, None, 3], []], "text[]": [["a", "b c", 'd"e', None], [""]], "date[]": [[date(2026, 2, 11)]],
    "numeric[]": [[Decimal("1.50"), None]], "mood[]": [["sad", None, "happy"], []], "mood": ["happy", "sad", "ok"],
}  # fmt: skip
BOTH = [*VALUES]


def shown(value: Any, name: str) -> Any:
    """A value as a parameter: JSON as its text."""
    return json.dumps(value) if name.startswith("json") and value is not None else value


@pytest.fixture
def moody(native_place: str) -> Iterator[Database]:
    with open_database(native_place) as db:
        db.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
        yield db


@pytest.mark.parametrize("name", BOTH)
def test_values_are_kept_and_found_however_they_come(name: str, moody: Database) -> None:
    values = [*VALUES[name], None]
    order = "" if name == "json" else "CREATE INDEX by_v ON t (v DESC);"
    moody.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {name}, w {name} DEFAULT NULL); {order}")
    for id, value in enumerate(values):
        moody.execute("INSERT INTO t (id, v) VALUES (?, ?)", (id, shown(value, name)))
    assert [moody.execute("SELECT v, w FROM t WHERE id = ?", (id,)).fetchall() for id in range(len(values))] == [
        [(value, None)] for value in values]  # fmt: skip
    table = moody.catalog().by_full_name["main.public.t"]
    kept = table.by_name["v"].type
    arrow = pa.table({"id": pa.array(range(100, 100 + 60 * len(values))),
                      "v": pa.concat_arrays([types_array(kept, values)] * 60)})  # fmt: skip
    assert moody.bulk_load("t", arrow) == 60 * len(values), "more than are encoded one by one"
    assert moody.execute("SELECT v FROM t WHERE id = ?", (100 + 59 * len(values),)).fetchall() == [(values[0],)]
    if name != "json":
        found = moody.execute("SELECT count(*) FROM t WHERE v IS NULL").fetchall()
        assert found == [(61,)]
    moody.execute("UPDATE t SET v = ? WHERE id = 0", (shown(values[-2], name),))
    assert moody.execute("SELECT v FROM t WHERE id = 0").fetchall() == [(values[-2],)]
    assert list(moody.verify()) == []


def types_array(type: Type, values: list[Any]) -> pa.Array:
    from ontolake.sql.keyspace.columns import stored_array

    name = "json" if type.kind in (types.Kind.JSON, types.Kind.JSONB) else ""
    return stored_array(type, [type.store(shown(value, name)) for value in values])


@pytest.mark.parametrize("name", [name for name in BOTH if name != "json"])
def test_rows_are_found_by_keys_of_every_type(name: str, moody: Database) -> None:
    values = VALUES[name]
    moody.execute(f"CREATE TABLE t (k {name} PRIMARY KEY, n INTEGER)")
    for n, value in enumerate(values):
        moody.execute("INSERT INTO t VALUES (?, ?)", (shown(value, name), n))
    for n, value in enumerate(values):
        if isinstance(value, list):
            continue  # a list among the parameters is a set of values
        assert moody.execute("SELECT k, n FROM t WHERE k = ?", (shown(value, name),)).fetchall() == [(value, n)]
        with pytest.raises(SqlError) as raised:
            moody.execute("INSERT INTO t VALUES (?, 9)", (shown(value, name),))
        assert raised.value.sqlstate == "23505"
    in_order = [row[0] for row in moody.execute("SELECT n FROM t").fetchall()]
    type = moody.catalog().by_full_name["main.public.t"].primary_key[0].type
    encoded = [keys.element(type.kind, type.store(shown(value, name))) for value in values]
    assert in_order == sorted(range(len(values)), key=lambda n: encoded[n])


def test_equal_numbers_intervals_and_documents_share_a_key(moody: Database) -> None:
    for name, one, other in (("numeric", "1.5", "1.50"), ("interval", "1 mon", "30 days"), ("jsonb", "[1.0]", "[1]"),
                             ("char(3)", "a", "a  "), ("double precision", "0", "-0")):  # fmt: skip
        moody.execute(f"DROP TABLE IF EXISTS t; CREATE TABLE t (k {name} PRIMARY KEY)")
        moody.execute("INSERT INTO t VALUES (?)", (one,))
        with pytest.raises(SqlError) as raised:
            moody.execute("INSERT INTO t VALUES (?)", (other,))
        assert raised.value.sqlstate == "23505", name


def test_a_number_keeps_its_scale_through_an_index(moody: Database) -> None:
    moody.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n NUMERIC); CREATE INDEX by_n ON t (n)")
    moody.execute("INSERT INTO t VALUES (1, 1.50), (2, 2.000)")
    assert str(moody.execute("SELECT n FROM t WHERE id = 1").fetchall()[0][0]) == "1.50"
    assert moody.execute("SELECT n FROM t WHERE n = 1.5").fetchall() == [(Decimal("1.5"),)]


def test_values_that_python_cannot_hold_are_refused_there_and_kept_in_arrow(moody: Database) -> None:
    moody.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, d DATE, at TIMESTAMP, c TIME)")
    moody.execute("INSERT INTO t VALUES (1, '0044-03-15 BC', NULL, NULL), (2, NULL, '200000-01-01', NULL), "
                  "(3, NULL, 'infinity', NULL), (4, NULL, NULL, '24:00')")
    for id, name in ((1, "d"), (2, "at"), (3, "at"), (4, "c")):
        found = moody.execute(f"SELECT {name} FROM t WHERE id = ?", (id,))
        with pytest.raises(SqlError) as raised:
            found.fetchall()
        assert raised.value.sqlstate == "22008"
    assert [change.after["d"] for change in moody.changes(since=moody.version() - 1) if change.key == 1] == [
        "0044-03-15 BC"], "history shows them as text"
    arrow = moody.query("SELECT at FROM t WHERE id = 2").column(0).cast(pa.int64()).to_pylist()
    assert arrow == [types.TIMESTAMP.store("200000-01-01")]


@pytest.mark.parametrize(("old", "given", "new", "expected"), [
    ("smallint", [1, None], "integer", [1, None]), ("integer", [1, -5], "numeric", [Decimal(1), Decimal(-5)]),
    ("numeric", ["1.55", None], "numeric(6,1)", [Decimal("1.6"), None]), ("numeric", ["1.50"], "text", ["1.50"]),
    ("numeric", ["1.5"], "double precision", [1.5]), ("real", [1.5], "double precision", [1.5]),
    ("text", ["ab", "a "], "char(3)", ["ab ", "a  "]), ("char(3)", ["ab"], "text", ["ab"]),
    ("uuid", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"], "text", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("time", ["10:00"], "interval", [timedelta(hours=10)]), ("timestamp", ["2026-02-11 10:00"], "time", [time(10)]),
    ("json", ['{"b":1,"a":2}'], "jsonb", [{"a": 2, "b": 1}]), ("jsonb", ['{"a": 1}'], "text", ['{"a": 1}']),
    ("integer[]", [[1, None]], "bigint[]", [[1, None]]), ("integer[]", [[1, None]], "text", ["{1,NULL}"]),
    ("mood", ["ok", None], "text", ["ok", None]), ("interval", ["1 mon 1 day"], "text", ["1 mon 1 day"]),
    ("timestamp_ns", ["2026-02-11 10:00:00.123456789"], "timestamp", [datetime(2026, 2, 11, 10, 0, 0, 123456)]),
])  # fmt: skip
def test_the_type_of_a_column_changes(
    old: str, given: list[Any], new: str, expected: list[Any], moody: Database
) -> None:
    moody.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {old})")
    for id, value in enumerate(given):
        moody.execute("INSERT INTO t VALUES (?, ?)", (id, value))
    version = moody.version()
    before = moody.execute("SELECT id, v FROM t").fetchall()
    moody.execute(f"ALTER TABLE t ALTER COLUMN v TYPE {new}")
    assert moody.execute("SELECT v FROM t").fetchall() == [(value,) for value in expected]
    assert moody.execute(f"SELECT id, v FROM t FOR SYSTEM_TIME AS OF {version}").fetchall() == before
    assert list(moody.verify()) == []


def test_an_enum_grows_in_the_middle_and_goes(moody: Database) -> None:
    moody.execute("CREATE TABLE t (m mood PRIMARY KEY); INSERT INTO t VALUES ('happy'), ('sad'), ('ok')")
    moody.execute("ALTER TYPE mood ADD VALUE 'so-so' BEFORE 'ok'; ALTER TYPE mood ADD VALUE 'great'; "
                  "ALTER TYPE mood ADD VALUE IF NOT EXISTS 'ok'; ALTER TYPE mood ADD VALUE 'awful' BEFORE 'sad'")
    moody.execute("INSERT INTO t VALUES ('great'), ('so-so'), ('awful')")
    assert [row[0] for row in moody.execute("SELECT m FROM t").fetchall()] == [
        "awful", "sad", "so-so", "ok", "happy", "great"]  # fmt: skip
    moody.execute("ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'; ALTER TYPE mood RENAME TO feeling")
    assert moody.execute("SELECT m FROM t WHERE m = 'fine'").fetchall() == [("fine",)]
    for sql, state in (
        ("CREATE TYPE feeling AS ENUM ('a')", "42710"), ("CREATE TYPE x AS ENUM ('a', 'a')", "23505"),
        ("ALTER TYPE feeling ADD VALUE 'fine'", "42710"), ("ALTER TYPE feeling ADD VALUE 'x' AFTER 'y'", "22023"),
        ("DROP TYPE feeling", "2BP01"), ("DROP TYPE mood", "42704"), ("INSERT INTO t VALUES ('ok')", "22P02"),
        ("CREATE TYPE x AS (a INT)", "0A000"), ("CREATE TABLE u (id INT PRIMARY KEY, m mood)", "42704"),
    ):  # fmt: skip
        with pytest.raises(SqlError) as raised:
            moody.execute(sql)
        assert raised.value.sqlstate == state, sql
    moody.execute("DROP TABLE t; DROP TYPE feeling; DROP TYPE IF EXISTS feeling")


@pytest.mark.parametrize("url", ["memory://types-{}", "{}/branched.db"])
def test_branches_and_merges_carry_enums_and_new_kinds(url: str, tmp_path: Any) -> None:
    place = url.format(uuid.uuid4().hex if url.startswith("memory") else tmp_path)
    with open_database(place) as db:
        db.execute("CREATE TYPE mood AS ENUM ('sad', 'happy'); "
                   "CREATE TABLE t (id INT PRIMARY KEY, m mood, n NUMERIC, a TEXT[], i INTERVAL)")
        db.execute("INSERT INTO t VALUES (1, 'sad', 1.50, '{a}', '1 mon'), (2, 'sad', 2, NULL, NULL)")
        db.branches.create("try")
        with open_database(place, branch="try") as branch:
            branch.execute("ALTER TYPE mood ADD VALUE 'ok' BEFORE 'happy'")
            branch.execute("UPDATE t SET m = 'ok', a = '{b,NULL}' WHERE id = 1")
        db.execute("UPDATE t SET n = 2.50 WHERE id = 2")
        db.merge("try")
        assert db.execute("SELECT * FROM t ORDER BY id").fetchall() == [
            (1, "ok", Decimal("1.50"), ["b", None], timedelta(days=30)), (2, "sad", Decimal("2.50"), None, None)]
        assert [label for label, _ in db.catalog().by_full_name["main.public.t"].by_name["m"].type.labels] == [
            "sad", "ok", "happy"]  # fmt: skip
        changed = [change for change in db.changes(since=db.version() - 1) if change.table == "main.public.t"]
        assert [change.after["m"] for change in changed if change.after and "m" in change.after] == ["ok"]
        assert list(db.verify()) == []


def test_an_older_version_refuses_a_database_with_a_new_kind(moody: Database, native_place: str) -> None:
    import apsw

    from ontolake.sql.keyspace import layout

    assert apsw.Connection(native_place).pragma("user_version") == layout.EXTENDED == 5
    old = layout.LAYOUT._replace(version=layout.BRANCHED)
    with pytest.raises(Exception, match="layout version 5"):
        old.open(native_place, readonly=True, takeover=False, synchronous="FULL")


def test_a_column_of_the_first_kinds_leaves_the_layout(native_place: str) -> None:
    import apsw

    with open_database(native_place) as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY, a SMALLINT, b NUMERIC(5, 1), c TIMESTAMP_NS, d VARCHAR(3))")
    assert apsw.Connection(native_place).pragma("user_version") < 5


def test_damaged_keys_and_payloads_of_new_kinds_are_reported() -> None:
    for type, data in ((types.NUMERIC, "0b00070001"), (types.JSONB, "0f00090001"),
                       (array_of(types.BIGINT), "100002010001"),
                       (types.UUID, "0c0011"), (types.INTERVAL, "0e0011")):  # fmt: skip
        with pytest.raises(Corruption):
            keys.decode_tuple([type], bytes.fromhex(data))


ROWS = """INSERT INTO q VALUES
  (1, 'sad', '{happy,NULL}', 'ab', 1.50, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '1 day', '10:00', '{"a": [1, 2]}',
   '{1,2}', '{x,y}', 7, 1.5, '2026-02-11', '2026-02-11 10:00', '{"b":1}'),
  (2, 'happy', '{}', 'abcd', 2, 'b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '40 days', '09:00', '[]', '{3}', '{}', -7, 0.1,
   '0044-03-15 BC', '0001-01-01', '[1,  2]'),
  (3, 'ok', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (4, 'ok', '{sad}', 'b', -3.25, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12', '-1 hour', '23:59:59.5', '{"a": 1, "b": null}',
   '{1,NULL}', '{"x y"}', 0, 2, '2026-02-12', '1999-12-31 23:59:59.999999', 'null')"""
TABLE = """CREATE TABLE q (id INT PRIMARY KEY, m mood, am mood[], c CHAR(4), n NUMERIC, u UUID, i INTERVAL, tm TIME,
  b JSONB, a INT[], ta TEXT[], s SMALLINT, r REAL, d DATE, at TIMESTAMP, j JSON)"""
QUERIES = [
    *(f"SELECT id FROM q ORDER BY {name} {way}, id" for name in ("m", "c", "n", "u", "i", "tm", "a", "s", "r", "d",
    "at")
      for way in ("", "DESC")),
    *(f"SELECT {name}, count(*) FROM q WHERE {name} IS NOT NULL GROUP BY {name} ORDER BY {name}"
      for name in ("m", "c", "n", "u", "i", "tm", "a", "s", "r", "at")),
    *(f"SELECT DISTINCT {name} FROM q WHERE {name} IS NOT NULL ORDER BY 1" for name in ("m", "u", "tm", "ta")),
    *(f"SELECT x.id, y.id FROM q x JOIN q y ON x.{name} = y.{name} ORDER BY 1, 2"
      for name in ("m", "c", "n", "u", "i", "tm", "b", "a", "am", "r", "d")),
    *(f"SELECT min({name}), max({name}) FROM q" for name in ("m", "c", "n", "i", "tm", "s", "r", "at")),
    *(f"SELECT {name}::text FROM q ORDER BY id" for name in ("m", "am", "c", "u", "tm", "i", "b", "a", "ta", "s",
    "r", "j")),
    "SELECT id FROM q WHERE m > 'sad' ORDER BY id", "SELECT id FROM q WHERE m BETWEEN 'sad' AND 'ok' ORDER BY id",
    "SELECT id FROM q WHERE m IN ('sad', 'happy') ORDER BY id", "SELECT id FROM q WHERE m = 'ok'::mood ORDER BY id",
    "SELECT 'ok'::text::mood, 'sad'::mood < 'ok'::mood", "SELECT m || '!' FROM q ORDER BY id",
    "SELECT CASE WHEN id = 1 THEN m ELSE 'ok' END FROM q ORDER BY id", "SELECT array_agg(m ORDER BY m) FROM q",
    "SELECT id FROM q WHERE 'happy' = ANY(am)",
    "SELECT length(c), c || 'x', c = 'ab', c = 'ab  ', c < 'b' FROM q ORDER BY id",
    "SELECT n * 2, n + 1, -n, n > 1.5, n = 1.5 FROM q ORDER BY id",
    "SELECT s + 1::smallint, s * 2, s / 2 FROM q ORDER BY id",
    "SELECT id FROM q WHERE u = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
    "SELECT id FROM q WHERE u > 'a1' || substr(u::text, 3)",
    "SELECT id FROM q WHERE i > '1 day' ORDER BY id",
    "SELECT i + '1 hour', at + i, d + tm FROM q WHERE id IN (1, 4) ORDER BY id",
    "SELECT tm + '1 hour'::interval FROM q WHERE id = 1", "SELECT tm > '09:30' FROM q ORDER BY id",
    "SELECT b -> 'a', b ->> 'a', b #> '{a,1}', b #>> '{a,0}' FROM q ORDER BY id",
    "SELECT b @> '{\"a\": [1]}', b ? 'a', b ?| '{a,z}', b ?& '{a,b}', b = '{\"a\":[1,2]}' FROM q ORDER BY id",
    "SELECT jsonb_typeof(b), jsonb_array_length(b -> 'a') FROM q WHERE id = 1",
    "SELECT j -> 'b', j ->> 0 FROM q ORDER BY id",
    "SELECT a[1], a[2], array_length(a, 1), a || 9, 9 || a FROM q ORDER BY id",
    "SELECT 2 = ANY(a), a @> '{1}', a && '{3}', a = '{1,2}', a < '{1,3}' FROM q WHERE a IS NOT NULL ORDER BY id",
    "SELECT id, unnest(a) FROM q ORDER BY 1, 2", "SELECT array_agg(id ORDER BY id), array_agg(c ORDER BY id) FROM q",
    "SELECT ARRAY[1, 2] || a FROM q WHERE id = 1", "SELECT ta[1] FROM q WHERE 'x y' = ANY(ta)",
    "UPDATE q SET m = 'happy', n = n + 0.5, c = 'z', a = a || 7, b = '{\"k\": 1}' WHERE m < 'ok' RETURNING *",
    "UPDATE q SET m = (SELECT max(m) FROM q), i = i * 2 WHERE id = 4 RETURNING m, i",
    "INSERT INTO q (id, m, a, u) SELECT id + 10, m, a, u FROM q WHERE id = 2 RETURNING id, m, a, u",
    "SELECT s FROM q WHERE s = 40000", "SELECT m FROM q WHERE m = 'bad'", "SELECT u FROM q WHERE u = 'x'",
    "SELECT 40000::smallint", "SELECT '1 x'::interval", "SELECT '25:00'::time", "SELECT '{1'::int[]",
    "SELECT '{'::jsonb",
]  # fmt: skip


def normal(value: Any) -> Any:
    return [normal(each) for each in value] if isinstance(value, list | tuple) else value


def test_queries_over_all_types_give_what_postgresql_gives(moody: Database, postgres: Any) -> None:
    postgres.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')")
    psycopg.types.enum.register_enum(psycopg.types.enum.EnumInfo.fetch(postgres, "mood"), postgres, _labels(), mapping=[
        (label, label.value) for label in _labels()])  # fmt: skip
    for database in (moody, postgres):
        database.execute(TABLE)
        database.execute(ROWS)
    different = {}
    for sql in QUERIES:
        answers = []
        for database, error in ((moody, SqlError), (postgres, psycopg.Error)):
            try:
                answers.append(normal(database.execute(sql).fetchall()))
            except error as raised:
                answers.append(f"error {raised.sqlstate}")
        ours, theirs = answers
        if isinstance(theirs, list):
            theirs = [[each.value if isinstance(each, enum.Enum) else [
                one.value if isinstance(one, enum.Enum) else one for one in each] if isinstance(each, list) else each
                for each in row] for row in theirs]  # fmt: skip
        if ours != theirs:
            different[sql] = (ours, theirs)
    assert not different, '\n'.join(f'{sql}\n  {ours}\n  {theirs}' for sql, (ours, theirs) in different.items())


def _labels() -> type[enum.Enum]:
    return enum.Enum("Mood", {label: label for label in ("sad", "ok", "happy")})
