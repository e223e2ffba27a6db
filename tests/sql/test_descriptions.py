"""`describe`: the types of parameters and columns are those that PostgreSQL finds out, without running anything."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from ontolake.sql import Database, open_database
from ontolake.sql.errors import SqlError

COLUMNS = {
    "a": "smallint", "b": "integer", "c": "bigint", "n": "numeric", "m": "numeric(12,2)", "r": "real",
    "f": "double precision", "t": "text", "v": "varchar(5)", "p": "char(3)", "o": "boolean", "d": "date",
    "w": "time", "s": "timestamp", "z": "timestamptz", "i": "interval", "u": "uuid", "x": "bytea", "j": "json",
    "k": "jsonb", "l": "integer[]", "e": "text[]", "q": "timestamp(3)",
}  # fmt: skip
TABLES = [
    f"CREATE TABLE t (id integer PRIMARY KEY, {', '.join(f'{name} {type}' for name, type in COLUMNS.items())})",
    "CREATE TABLE o (id bigint PRIMARY KEY, t_id integer, label text, price numeric(10,2), at timestamptz)",
    "CREATE VIEW w AS SELECT id, b + 1 AS next, t FROM t WHERE o",
]
STATEMENTS = [
    *(f"SELECT {name} FROM t" for name in COLUMNS),
    *(f"SELECT id FROM t WHERE {name} = $1" for name in COLUMNS if name != "j"),
    *(f"SELECT id FROM t WHERE {name} < $1" for name in COLUMNS if name not in "j"),
    *(f"SELECT id FROM t WHERE $1 <= {name}" for name in COLUMNS if name not in "j"),
    *(f"SELECT id FROM t WHERE {name} IN ($1, $2)" for name in COLUMNS if name not in "j"),
    *(f"SELECT id FROM t WHERE {name} BETWEEN $1 AND $2" for name in COLUMNS if name not in "j"),
    *(f"SELECT id FROM t WHERE {name} = ANY($1)" for name in "abcnmrftodwsziu"),
    *(f"INSERT INTO t (id, {name}) VALUES ($1, $2)" for name in COLUMNS),
    *(f"INSERT INTO t (id, {name}) SELECT $1, $2" for name in COLUMNS),
    *(f"UPDATE t SET {name} = $1 WHERE id = $2" for name in COLUMNS),
    *(f"UPDATE t SET {name} = $1 RETURNING {name}" for name in COLUMNS),
    *(f"SELECT coalesce({name}, $1) FROM t" for name in COLUMNS),
    *(f"SELECT CASE WHEN o THEN {name} ELSE $1 END FROM t" for name in COLUMNS),
    *(f"SELECT max({name}), min({name}) FROM t" for name in "abcnmrftdwszi"),
    *(f"SELECT sum({name}), avg({name}), count({name}) FROM t" for name in "abcnmrf"),
    *(f"SELECT {name} + $1, $2 - {name}, {name} * $3 FROM t" for name in "abcnmrf"),
    *(f"SELECT CAST($1 AS {type})" for type in COLUMNS.values()),
    *(f"SELECT array_agg({name}) FROM t" for name in "abcnftodsu"),
    "SELECT * FROM t",
    "SELECT t.*, o.price FROM t JOIN o ON o.t_id = t.id",
    "TABLE o",
    "SELECT * FROM w WHERE next = $1",
    "SELECT 1, 2.5, 'x', NULL, true, now(), current_date, 10000000000",
    "VALUES (1, 'a'), (2, 'b')",
    "SELECT $1",
    "SELECT $1, $2",
    "SELECT $1::int + $2",
    "SELECT $2::text, $1::date",
    "SELECT $1 || 'x', t || $2 FROM t",
    "SELECT id FROM t LIMIT $1 OFFSET $2",
    "SELECT id FROM t ORDER BY b LIMIT $1",
    "SELECT b FROM t WHERE t LIKE $1",
    "SELECT b FROM t WHERE t ILIKE $1 AND v NOT LIKE $2",
    "SELECT b FROM t WHERE $1",
    "SELECT b FROM t WHERE o AND $1",
    "SELECT b FROM t WHERE t ~ $1",
    "SELECT upper($1), length($2), lower(t) FROM t",
    "SELECT substring(t, $1::int, $2::int) FROM t",
    "SELECT k -> $1, k ->> $2, k #> $3, k @> $4 FROM t",
    "SELECT j -> 'a', j ->> 'b' FROM t",
    "SELECT k ? $1 FROM t",
    "SELECT l[$1], l[1] FROM t",
    "SELECT array_length(l, $1), cardinality(l) FROM t",
    "SELECT unnest(l) FROM t",
    "SELECT generate_series(1, 3)",
    "SELECT g FROM generate_series($1::int, $2::int) AS g",
    "SELECT row_number() OVER () FROM t",
    "SELECT rank() OVER (ORDER BY b), lag(m) OVER (ORDER BY b), ntile($1) OVER (ORDER BY b) FROM t",
    "SELECT count(*) FILTER (WHERE b > $1) FROM t",
    "SELECT string_agg(t, $1) FROM t",
    "SELECT bool_and(o) FROM t",
    "SELECT z - s, d - d, d + 1, s + i, z - i, i * 2, w + i FROM t",
    "SELECT s + $1 FROM t",
    "SELECT z - $1 FROM t",
    "SELECT extract(year FROM s), date_trunc('day', z), date_part('hour', s), age(s, s) FROM t",
    "SELECT to_char(s, $1) FROM t",
    "SELECT b / 2, c / 2, m / 2, b % 2, -m, abs(m), round(m, 1), round(f), floor(m), ceil(f) FROM t",
    "SELECT b::text, t::int, m::float8, f::numeric, d::timestamp, s::date, t::jsonb, b::bool FROM t",
    "SELECT greatest(a, b), least(b, c), nullif(b, $1), greatest(m, $2) FROM t",
    "SELECT (SELECT b FROM t LIMIT 1), EXISTS (SELECT 1)",
    "SELECT id FROM t WHERE b IN (SELECT t_id FROM o WHERE price > $1)",
    "SELECT id FROM t WHERE (b, t) = ($1, $2)",
    "SELECT b FROM t UNION SELECT c FROM t",
    "SELECT b FROM t UNION ALL SELECT $1",
    "SELECT t FROM t EXCEPT SELECT v FROM t",
    "WITH x AS (SELECT b, m FROM t WHERE id = $1) SELECT * FROM x WHERE m > $2",
    "SELECT x.n FROM (SELECT b AS n FROM t) x WHERE x.n = $1",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < $1) SELECT n FROM r",
    "INSERT INTO t (id) VALUES ($1) RETURNING *",
    "INSERT INTO t (id, b, t) VALUES ($1, $2 + 1, upper($3)), (2, DEFAULT, 'x')",
    "INSERT INTO o VALUES ($1, $2, $3, $4, $5)",
    "INSERT INTO o (id, label) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING",
    "INSERT INTO o (id, label) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET label = excluded.label || $3, price = $4 "
    "WHERE o.price < $5 RETURNING id, label, price",
    "INSERT INTO o (id, label) SELECT id, t FROM t WHERE b = $1",
    "UPDATE t SET b = b + $1, t = $2 WHERE id = $3 RETURNING id, b, upper(t) AS big",
    "UPDATE t SET (b, t) = ($1, $2) WHERE id = $3",
    "UPDATE t SET m = o.price * $1 FROM o WHERE o.t_id = t.id AND o.label = $2",
    "UPDATE t SET b = (SELECT max(t_id) FROM o WHERE o.price > $1)",
    "DELETE FROM t WHERE b = $1 RETURNING t, m",
    "DELETE FROM t USING o WHERE o.t_id = t.id AND o.at < $1 RETURNING t.id, o.at",
    "DELETE FROM t",
    "WITH gone AS (DELETE FROM t WHERE id = $1 RETURNING id, t) SELECT * FROM gone WHERE t = $2",
    "WITH new AS (INSERT INTO o (id, price) VALUES ($1, $2) RETURNING id, price) "
    "UPDATE t SET m = new.price FROM new WHERE t.id = new.id",
    "MERGE INTO t USING o ON o.t_id = t.id AND o.price > $1 WHEN MATCHED AND o.label = $2 THEN UPDATE SET m = $3 "
    "WHEN NOT MATCHED THEN INSERT (id, t) VALUES (o.t_id, $4)",
    "SELECT count(*), b FROM t GROUP BY b HAVING count(*) > $1",
    "SELECT DISTINCT v, p FROM t",
    "SELECT (b, t) IS NULL FROM t",
    "SELECT json_agg(b), jsonb_agg(t.t) FROM t",
    "SELECT json_build_object('a', b), to_jsonb(t.b) FROM t",
    "SELECT b IS NULL, NOT o, b = 1 FROM t",
    "SELECT position('a' IN t), trim(t), left(t, $1), repeat(t, $2), concat(t, b), md5(t) FROM t",
    "SELECT sqrt(m), power(f, 2), sqrt(f), ln(f) FROM t",
    "SELECT id FROM t WHERE d >= $1 AND d < $2 AND z > $3",
    "SELECT id FROM t WHERE id = $1 OR (b = $2 AND $3 = t)",
    "CREATE TABLE new (id integer PRIMARY KEY)",
    "DROP TABLE o",
    "TRUNCATE t",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
]


@pytest.fixture(scope="module")
def ours() -> Any:
    with open_database(":memory:") as db:
        for each in TABLES:
            db.execute(each)
        yield db


Described = tuple[list[int], list[tuple[str, int, int]]]


def theirs(server: psycopg.Connection[Any], sql: str, oids: list[int] | None = None) -> Described:
    """What PostgreSQL says that a statement takes and gives."""
    done = server.pgconn.prepare(b"", sql.encode(), oids)
    assert done.status == psycopg.pq.ExecStatus.COMMAND_OK, (sql, done.error_message.decode())
    found = server.pgconn.describe_prepared(b"")
    columns = [(str(found.fname(n), "utf8"), found.ftype(n), found.fsize(n)) for n in range(found.nfields)]
    return [found.param_type(n) for n in range(found.nparams)], columns


def described(db: Database, sql: str, oids: list[int] | None = None) -> Described:
    found = db.describe(sql, oids or ())
    return list(found.parameters), [(each.name, each.oid, each.size) for each in found.columns or ()]


def test_statements_are_described_as_postgresql_describes_them(
    ours: Database, postgres: psycopg.Connection[Any]
) -> None:
    """A few hundred statements: the oids of parameters, the names and oids of columns."""
    for each in TABLES:
        postgres.execute(each.encode())
    wrong = []
    for sql in STATEMENTS:
        wanted = theirs(postgres, sql)
        try:
            found: Any = described(ours, sql)
        except SqlError as error:
            found = repr(error)
        if found != wanted:
            wrong.append((sql, found, wanted))
    assert len(STATEMENTS) > 300
    assert not wrong, "\n".join(f"{sql}\n  ours:   {found}\n  theirs: {wanted}" for sql, found, wanted in wrong)


GIVEN = [
    ("SELECT $1", [20]),
    ("SELECT $1 + $2", [23, 20]),
    ("SELECT $1 || $2", [25, 0]),
    ("SELECT id FROM t WHERE b = $1", [20]),
    ("INSERT INTO t (id, t) VALUES ($1, $2)", [20, 1043]),
    ("SELECT $1 = $2", [1082, 0]),
    ("SELECT $1", [705]),
    ("SELECT $1, $2", [1700, 1009]),
    ("SELECT upper($1)", [1043]),
    ("SELECT id FROM t LIMIT $1", [23]),
]


@pytest.mark.parametrize(("sql", "oids"), GIVEN)
def test_types_that_the_client_gives_are_kept(
    sql: str, oids: list[int], ours: Database, postgres: psycopg.Connection[Any]
) -> None:
    for each in TABLES:
        postgres.execute(each.encode())
    assert described(ours, sql, oids) == theirs(postgres, sql, oids)


def test_commands_of_a_session_are_described(ours: Database) -> None:
    """EXPLAIN, SHOW, cursors, prepared statements, temporary tables and the history."""

    def columns(sql: str) -> Any:
        return described(ours, sql)[1]

    assert columns("EXPLAIN SELECT 1") == [("QUERY PLAN", 25, -1)]
    assert columns("SHOW timezone") == [("TimeZone", 25, -1)]
    assert ours.describe("SET work_mem = '8MB'").columns is None
    ours.execute("PREPARE one AS SELECT b, t FROM t WHERE id = $1")
    assert columns("EXECUTE one(1)") == [("b", 23, 4), ("t", 25, -1)]
    ours.execute("DEALLOCATE one")
    with ours.transaction():
        ours.execute("DECLARE c CURSOR FOR SELECT b, m FROM t")
        assert columns("FETCH 2 FROM c") == [("b", 23, 4), ("m", 1700, -1)]
        assert ours.describe("CLOSE c").columns is None
    ours.execute("CREATE TEMP TABLE own (id integer PRIMARY KEY, label text)")
    assert described(ours, "INSERT INTO own VALUES ($1, $2) RETURNING label") == ([23, 25], [("label", 25, -1)])
    assert described(ours, "SELECT own.label, t.b FROM own JOIN t ON t.id = own.id WHERE t.b = $1") == (
        [23],
        [("label", 25, -1), ("b", 23, 4)],
    )
    ours.execute("DROP TABLE own")
    assert columns("SELECT commit_id, message FROM onto_log()") == [("commit_id", 20, 8), ("message", 25, -1)]
    assert columns("CALL onto_tag('v1')") == [("name", 25, -1), ("commit_id", 20, 8)]
    assert ours.describe("SELECT nextval('s')").columns == (("nextval", 20, 8, -1),)


def test_enums_are_described_by_their_own_numbers(ours: Database) -> None:
    ours.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    ours.execute("CREATE TABLE person (id integer PRIMARY KEY, feels mood, felt mood[])")
    parameters, columns = described(ours, "SELECT feels, felt FROM person WHERE feels = $1")
    assert parameters == [columns[0][1]]
    assert columns[0][1] >= 16384
    assert columns[0][1] != columns[1][1]
    assert described(ours, "INSERT INTO person VALUES ($1, $2, $3)")[0] == [23, columns[0][1], columns[1][1]]
    assert described(ours, "SELECT $1::mood")[0] == parameters
    ours.execute("DROP TABLE person")
    ours.execute("DROP TYPE mood")


def test_describing_runs_nothing_and_says_what_is_wrong(ours: Database) -> None:
    before = ours.version()
    ours.describe("INSERT INTO t (id) VALUES (1)")
    ours.describe("DELETE FROM t")
    assert ours.version() == before
    for sql, state in (
        ("SELECT * FROM nowhere", "42P01"),
        ("SELECT nothing FROM t", "42703"),
        ("SELECT b + t FROM t", "42883"),
        ("INSERT INTO t (id) VALUES ($1, $2)", "42601"),
        ("UPDATE t SET nothing = 1", "42703"),
    ):
        with pytest.raises(SqlError) as raised:
            ours.describe(sql)
        assert raised.value.sqlstate == state, sql
