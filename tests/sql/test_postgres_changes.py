"""Statements that change rows do what they do on PostgreSQL: through views, with ON CONFLICT, with other types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from answers import compare, ours, theirs
from postgres import Unavailable, running

from ontolake.sql import Database, open_database

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SCRIPTS = {
    "large numbers": """
        CREATE TABLE amount (id INTEGER PRIMARY KEY, plain NUMERIC, wide NUMERIC(60, 10), narrow NUMERIC(10, 2));
        INSERT INTO amount VALUES (1, 1.50, 1e45, 1.005), (2, 'NaN', 0.12345678915, 2), (3, 'Infinity', -1e49, NULL);
        INSERT INTO amount VALUES (4, 1, 1e51, 1);
        INSERT INTO amount VALUES (4, 1, 'Infinity', 1);
        INSERT INTO amount SELECT 5, plain * 2, wide / 7, narrow FROM amount WHERE id = 1;
        UPDATE amount SET plain = plain + 1e50, wide = wide * 3 WHERE id < 3;
        SELECT * FROM amount ORDER BY id;
        SELECT id FROM amount WHERE plain > 1e60 OR wide < 0 ORDER BY plain;
        SELECT sum(wide), avg(wide), max(plain), min(plain), sum(narrow) FROM amount;
        SELECT a.id, b.id FROM amount a JOIN amount b ON a.wide < b.wide ORDER BY 1, 2;
        SELECT round(wide, 3) + narrow FROM amount""",
    "storage": """
        CREATE TYPE light AS ENUM ('red', 'green');
        CREATE TABLE kept (id INTEGER PRIMARY KEY, ids UUID[], codes CHAR(3)[], lights light[])
            WITH (autovacuum_enabled = off, fillfactor = 70);
        SELECT id FROM kept WHERE ids = '{}' AND id > 1;
        SELECT id, codes[1], lights[1]::text FROM kept WHERE codes[1] = 'a';
        SELECT '{red,green}'::light[] = '{red}', ('{red,green}'::light[])[2] = 'green'""",
    "views": """
        CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT DEFAULT 'new', price INTEGER, kind TEXT);
        INSERT INTO item VALUES (1, 'pen', 2, 'a'), (2, 'ink', 9, 'b'), (3, 'pad', 4, 'a'), (4, 'cap', 7, 'b');
        CREATE VIEW cheap (number, title, cost) AS SELECT id, name, price FROM item WHERE price < 8;
        CREATE VIEW cheaper AS SELECT c.title, c.number AS n FROM cheap c WHERE c.cost < 5;
        CREATE VIEW computed AS SELECT id, price * 2 AS twice, upper(name) AS loud FROM item;
        CREATE VIEW kinds AS SELECT kind, count(*) AS amount FROM item GROUP BY kind;
        INSERT INTO cheap VALUES (5, 'tin', 3) RETURNING *;
        INSERT INTO cheap (number, cost) VALUES (6, 100) RETURNING title, number + 1;
        INSERT INTO cheap SELECT 7, 'jar';
        INSERT INTO cheap (number, title) VALUES (1, 'x')
            ON CONFLICT (number) DO UPDATE SET title = excluded.title || '!';
        INSERT INTO cheap (number) VALUES (2) ON CONFLICT DO NOTHING;
        UPDATE cheap SET cost = cost + 1 WHERE title LIKE 'p%' RETURNING number, cost;
        UPDATE cheap c SET title = upper(c.title) WHERE c.number = 4;
        UPDATE cheap SET (title, cost) = ('both', 1) WHERE number = 3 RETURNING cheap.*;
        UPDATE cheap SET price = 1;
        UPDATE cheaper SET title = 'least' WHERE n = 3 RETURNING *;
        UPDATE cheap SET cost = 0 FROM (VALUES (4), (2)) AS v (i) WHERE number = v.i RETURNING number, v.i;
        DELETE FROM cheaper WHERE n = 5 RETURNING title;
        DELETE FROM cheap USING (VALUES ('jar')) AS v (t) WHERE title = v.t;
        DELETE FROM cheap WHERE number IN (SELECT number FROM cheap WHERE cheap.cost > 6);
        UPDATE computed SET id = 40 WHERE twice = 0 RETURNING loud;
        UPDATE computed SET twice = 3;
        INSERT INTO computed (id, twice) VALUES (9, 9);
        INSERT INTO computed (id) VALUES (9) RETURNING id, twice, loud;
        INSERT INTO kinds VALUES ('c', 1);
        UPDATE kinds SET kind = 'c';
        DELETE FROM kinds;
        SELECT * FROM item ORDER BY id""",
    "conflicts": """
        CREATE TABLE word (id INTEGER PRIMARY KEY, text TEXT, live BOOLEAN, uses INTEGER DEFAULT 0);
        CREATE UNIQUE INDEX word_lower ON word (lower(text));
        CREATE UNIQUE INDEX word_live ON word (uses) WHERE live;
        INSERT INTO word VALUES (1, 'One', true, 5), (2, 'Two', false, 5);
        INSERT INTO word VALUES (3, 'ONE', false, 1)
            ON CONFLICT (lower(text)) DO UPDATE SET uses = word.uses + 1 RETURNING *;
        INSERT INTO word VALUES (3, 'tWo', false, 1) ON CONFLICT DO NOTHING;
        INSERT INTO word VALUES (4, 'four', true, 6) ON CONFLICT (uses) WHERE live DO UPDATE SET text = excluded.text;
        INSERT INTO word VALUES (5, 'five', false, 6) ON CONFLICT (uses) WHERE live DO NOTHING;
        INSERT INTO word VALUES (6, 'six', true, 6) ON CONFLICT (uses) DO NOTHING;
        INSERT INTO word VALUES (6, 'six', true, 6) ON CONFLICT (upper(text)) DO NOTHING;
        INSERT INTO word VALUES (6, 'six', true, 6) ON CONFLICT (lower(missing)) DO NOTHING;
        UPDATE word SET word.uses = 1;
        SELECT * FROM word ORDER BY id""",
    "keys": """
        CREATE TABLE loose (a INTEGER, b TEXT, c INTEGER UNIQUE);
        INSERT INTO loose VALUES (3, 'x', 30), (1, 'y', 10), (2, 'x', NULL);
        CREATE INDEX loose_upper ON loose (upper(b));
        ALTER TABLE loose ADD PRIMARY KEY (b);
        ALTER TABLE loose ADD PRIMARY KEY (c);
        ALTER TABLE loose ADD PRIMARY KEY (missing);
        ALTER TABLE loose ADD PRIMARY KEY (a);
        ALTER TABLE loose ADD PRIMARY KEY (a);
        INSERT INTO loose VALUES (1, 'z', 40);
        INSERT INTO loose VALUES (NULL, 'z', 40);
        INSERT INTO loose VALUES (4, 'z', 30);
        INSERT INTO loose VALUES (2, 'z', 50) ON CONFLICT (a) DO UPDATE SET c = excluded.c RETURNING *;
        SELECT * FROM loose WHERE a = 3;
        SELECT * FROM loose WHERE c = 50;
        SELECT a FROM loose WHERE upper(b) = 'X' ORDER BY a;
        CREATE TABLE pair (x INTEGER REFERENCES loose, y INTEGER);
        INSERT INTO pair VALUES (1, 1), (1, 2);
        INSERT INTO pair VALUES (9, 9);
        ALTER TABLE pair ADD CONSTRAINT pair_key PRIMARY KEY (x, y);
        INSERT INTO pair VALUES (1, 2) ON CONFLICT ON CONSTRAINT pair_key DO NOTHING;
        DELETE FROM loose WHERE a = 1;
        SELECT * FROM pair ORDER BY y""",
    "types": """
        CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT, code VARCHAR(5), mark CHAR(3));
        INSERT INTO note VALUES (1, 42, 1.50, 7), (2, true, 'a', 'b'), (3, DATE '2020-02-03', 12, NULL);
        INSERT INTO note VALUES (4, TIMESTAMP '2020-01-02 03:04:05', 0.5, 1), (5, INTERVAL '1 day 2 hours', -1, '');
        INSERT INTO note (id, code) VALUES (6, 123456);
        INSERT INTO note (id, code) VALUES (6, false), (7, 1234567);
        INSERT INTO note (id, body) SELECT k + 10, k * 1.5 FROM generate_series(1, 2) k;
        UPDATE note SET body = id + 1, code = id WHERE id > 10 RETURNING body, code;
        UPDATE note SET body = 5 WHERE id = 1;
        INSERT INTO note (id, body) VALUES (20, 2.0 * 3), (21, 1e0::double precision / 3);
        SELECT id FROM note WHERE body = 5;
        SELECT id, body, code, mark::text FROM note ORDER BY id""",
}


@pytest.fixture(scope="module")
def server() -> Iterator[psycopg.Connection[Any]]:
    try:
        with running() as found, psycopg.connect(found, autocommit=True) as connection:
            yield connection
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def db() -> Iterator[Database]:
    with open_database(":memory:") as found:
        yield found


@pytest.mark.parametrize("name", SCRIPTS)
def test_statements_do_what_postgres_does(name: str, server: psycopg.Connection[Any], db: Database) -> None:
    for sql in SCRIPTS[name].split(";"):
        wanted, found = theirs(server, sql), ours(db, sql)
        if sql.strip().startswith(("CREATE", "ALTER")):
            assert found.sqlstate == wanted.sqlstate, f"{sql}\n{wanted.told}\n{found.told}"
        else:
            compare(sql, wanted, found)
    assert list(db.verify()) == []
