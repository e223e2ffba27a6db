"""SQL over HTTP: rows in four forms, one transaction a request, rights by what statements do, limits and cancelling."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from serving import Answer, Served, serving
from waiting import wait_for

from ontolake.history import wire
from ontolake.server.rights import Principal, TokenScope
from ontolake.sql import open_database

TRY = Principal("try", TokenScope.MERGE, branches=("try-*",))
ENDLESS = "SELECT count(*) FROM t a, t b, t c, t d, t e, t f, t g, t h, t i, t j, t k, t l, t m"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = f"{tmp_path_factory.mktemp('sql')}/shop.db"
    with open_database(path) as db:
        for sql in ("CREATE DATABASE app", "CREATE SCHEMA app.public", "USE app",
                    "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT, n NUMERIC)",
                    "INSERT INTO t SELECT n, 'v' || n, n + 0.5 FROM generate_series(1, 20) AS s(n)",
                    "CREATE SEQUENCE s", "CALL onto_branch('try-a')", "CALL onto_branch('other')"):  # fmt: skip
            db.execute(sql)
    return path


@pytest.fixture(scope="module")
def shared(place: str) -> Iterator[Served]:
    """A server whose tables no test changes."""
    with serving({"shop": place}, (TRY,)) as found:
        yield found


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    path = f"{tmp_path}/shop.db"
    with open_database(path) as db:
        for sql in ("CREATE DATABASE app", "CREATE SCHEMA app.public", "USE app",
                    "CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)", "INSERT INTO t VALUES (1, 'one')"):  # fmt: skip
            db.execute(sql)
    with serving({"shop": path}, (TRY,)) as found:
        yield found


def run(served: Served, sql: str, *, token: str = "reader", accept: str | None = None, **more: Any) -> Answer:
    return served.call("POST", "/stores/shop/sql", token=token, json={"sql": sql, **more},
                       headers={} if accept is None else {"accept": accept})


def rows(served: Served, sql: str, **more: Any) -> list[list[Any]]:
    answer = run(served, sql, **more)
    assert answer.status == 200, answer.json
    found: list[list[Any]] = answer.json["rows"]
    return found


def test_rows_come_with_their_columns(shared: Served) -> None:
    answer = run(shared, "SELECT id, v, n FROM t WHERE id = $1", params=[2]).json
    assert answer["columns"][:2] == [{"name": "id", "type": "int64"}, {"name": "v", "type": "string"}]
    assert (answer["rows"], answer["count"], answer["truncated"]) == ([[2, "v2", "2.5"]], 1, False)
    assert rows(shared, "SELECT v FROM t WHERE id = :id", params={"id": 3}) == [["v3"]]


def test_rows_come_in_the_form_that_the_client_accepts(shared: Served) -> None:
    query = "SELECT id, v, n FROM t ORDER BY id"
    lines = run(shared, query, accept="application/x-ndjson")
    assert [json.loads(line) for line in lines.body.splitlines()][1] == {"id": 2, "v": "v2", "n": "2.5"}
    found = list(csv.reader(io.StringIO(run(shared, query, accept="text/csv").body.decode())))
    assert (found[0], found[2], len(found)) == (["id", "v", "n"], ["2", "v2", "2.5"], 21)
    stream = run(shared, query, accept="application/vnd.apache.arrow.stream;q=0.9, text/plain")
    table = pa.ipc.open_stream(stream.body).read_all()
    assert (table.num_rows, table.column("v").to_pylist()[1]) == (20, "v2")
    tagged = run(shared, "SELECT n FROM t WHERE id = 2", accept=wire.MEDIA_TYPE)
    assert tagged.json["rows"] == [[{"$decimal": "2.5"}]]
    assert run(shared, query, accept="image/png").status == 406


def test_an_answer_has_no_more_rows_than_its_limit(shared: Served) -> None:
    for query in ("SELECT * FROM t", "SELECT * FROM t WHERE id > 0 ORDER BY id"):
        answer = run(shared, query, limit=5).json
        assert (len(answer["rows"]), answer["count"], answer["truncated"]) == (5, 5, True)
        lines = run(shared, query, limit=5, accept="application/x-ndjson")
        assert (len(lines.body.splitlines()), lines.headers["x-ontolake-truncated"]) == (5, "true")
    assert run(shared, "SELECT * FROM t", limit=20).json["truncated"] is False


def test_several_statements_are_one_transaction(served: Served) -> None:
    two = run(served, "INSERT INTO t VALUES (2, 'two'); UPDATE t SET v = v || '!'; SELECT v FROM t ORDER BY id",
              token="writer", message="both")
    assert two.json["rows"] == [["one!"], ["two!"]]
    assert [one["status"] for one in two.json["statements"]] == ["INSERT 1", "UPDATE 2", "SELECT 2"]
    log = rows(served, "SELECT author, message FROM onto_log() LIMIT 1")
    assert log == [["writer", "both"]]
    bad = run(served, "INSERT INTO t VALUES (3, 'x'); INSERT INTO t VALUES (1, 'again')", token="writer")
    assert (bad.status, bad.json["type"]) == (409, "UniqueError")
    assert rows(served, "SELECT count(*) FROM t") == [[2]]
    back = run(served, "SAVEPOINT a; DELETE FROM t; ROLLBACK TO a; INSERT INTO t VALUES (9, 'x')", token="writer")
    assert back.status == 200
    assert rows(served, "SELECT count(*) FROM t") == [[3]]


def test_the_past_is_read_by_version_and_by_reference(served: Served) -> None:
    before = rows(served, "SELECT max(commit_id) FROM onto_log()")[0][0]
    run(served, "UPDATE t SET v = 'new'", token="writer")
    run(served, "CALL onto_tag('now')", token="writer")
    for at in ({"as_of": before}, {"ref": f"main@{before}"}, {"ref": "main~1"}):
        assert rows(served, "SELECT v FROM t", **at) == [["one"]], at
    assert rows(served, "SELECT v FROM t", ref="now") == [["new"]]
    past = run(served, "DELETE FROM t", token="writer", as_of=before)
    assert (past.status, rows(served, "SELECT count(*) FROM t")) == (422, [[1]])


WRITES = ["INSERT INTO t VALUES (99, 'c')", "UPDATE t SET v = ''", "DELETE FROM t", "TRUNCATE t", "DROP TABLE t",
          "WITH x AS (INSERT INTO t VALUES (99, 'c') RETURNING id) SELECT * FROM x",
          "SELECT * FROM (WITH x AS (DELETE FROM t RETURNING id) SELECT * FROM x) y",
          "WITH a AS (SELECT 1), b AS (UPDATE t SET v = '' RETURNING id) SELECT * FROM a, b",
          "MERGE INTO t USING t AS s ON t.id = s.id WHEN MATCHED THEN DELETE", "SELECT nextval('s')",
          "SELECT 1 + nextval('s') FROM t", "EXPLAIN ANALYZE SELECT nextval('s')", "CREATE TABLE u (id BIGINT)",
          "SELECT id INTO w FROM t", "CREATE TABLE w AS SELECT 1 AS a", "ALTER TABLE t ADD COLUMN x TEXT",
          "CREATE VIEW w AS SELECT 1 AS a", "CREATE INDEX i ON t (v)", "CREATE SEQUENCE s2", "CREATE SCHEMA x",
          "COMMENT ON TABLE t IS 'x'", "CREATE TYPE mood AS ENUM ('a')", "CALL onto_tag('x')",
          "CALL onto_branch('try-b')", "CALL onto_revert(1)", "SELECT 1; DELETE FROM t"]  # fmt: skip


@pytest.mark.parametrize("sql", WRITES)
def test_a_statement_that_writes_needs_the_scope_for_it(shared: Served, sql: str) -> None:
    answer = run(shared, sql)
    assert (answer.status, answer.json["type"]) == (403, "ForbiddenError"), answer.json
    assert rows(shared, "SELECT count(*), max(v) FROM t") == [[20, "v9"]]


@pytest.mark.parametrize("sql", ["CALL onto_merge('try-a')", "CALL onto_merge($1)",
                                 "UPDATE onto_conflicts SET resolution = 'ours'"])
def test_merging_needs_the_scope_for_it(shared: Served, sql: str) -> None:
    params = ["try-a"] if "$1" in sql else []
    assert run(shared, sql, token="writer", params=params).json["fields"]["needs"] == "merge"


REFUSED = ["COPY t TO '/tmp/ontolake-stolen.csv'", "COPY t FROM '/etc/passwd'", "COPY (SELECT 1) TO STDOUT",
           "SET search_path = x", "SET statement_timeout = 0", "RESET ALL", "PREPARE p AS SELECT 1", "EXECUTE p",
           "DEALLOCATE ALL", "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "FETCH c", "CLOSE ALL", "BEGIN", "COMMIT",
           "ROLLBACK", "START TRANSACTION READ ONLY", "SAVEPOINT a", "USE app", "DISCARD ALL", "LOCK TABLE t",
           "CREATE TEMP TABLE x (a INT)", "SELECT 1 AS a INTO TEMP x", "CREATE TABLE pg_temp.x (a INT)",
           "CALL onto_checkout('try-a')", "SELECT 1; COMMIT; SELECT 2",
           "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"]  # fmt: skip


@pytest.mark.parametrize("sql", REFUSED)
def test_what_would_outlive_a_request_or_use_files_is_refused_to_everybody(shared: Served, sql: str) -> None:
    answer = run(shared, sql, token="admin")
    assert (answer.status, answer.json["type"]) == (422, "UnsupportedError"), answer.json
    assert not Path("/tmp/ontolake-stolen.csv").exists()


@pytest.mark.parametrize("sql", ["SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM '/etc/passwd'",
                                 "SELECT * FROM read_text('/etc/passwd')", "SELECT pg_read_file('/etc/passwd')",
                                 "SELECT * FROM glob('/*')", "SELECT getenv('HOME')", "ATTACH '/tmp/x.db' AS x",
                                 "INSTALL httpfs", "EXPORT DATABASE '/tmp/x'", "SELECT * FROM duckdb_settings()"])
def test_no_query_reaches_the_files_of_the_server(shared: Served, sql: str) -> None:
    assert run(shared, sql, token="admin").status in (400, 404, 422)


def test_a_token_for_some_branches_reads_no_other_through_history(shared: Served) -> None:
    on_try = {"token": "try", "branch": "try-a"}
    assert rows(shared, "SELECT count(*) FROM t", **on_try) == [[20]]
    assert rows(shared, "SELECT count(*) > 0 FROM onto_log()", **on_try) == [[True]]
    for sql in ("SELECT * FROM onto_log('other')", "SELECT * FROM onto_diff('try-a', 'other', 't')",
                "SELECT * FROM onto_diff('main', 'try-a', 't')", "SELECT * FROM onto_branches()",
                "SELECT * FROM onto_blame('t', 1, 'other')", "SELECT (SELECT max(commit_id) FROM onto_log('main'))",
                "SELECT * FROM t WHERE id IN (SELECT commit_id FROM onto_log($1))", "CALL onto_merge('main')",
                "CALL onto_branch('mine')"):  # fmt: skip
        answer = run(shared, sql, params=["main"] if "$1" in sql else [], **on_try)
        assert answer.status == 403, (sql, answer.json)
    for body in ({}, {"branch": "main"}, {"ref": "main"}, {"ref": "@1"}, {"ref": "other"}):
        assert run(shared, "SELECT 1", token="try", **body).status == 403, body


@pytest.mark.parametrize(("body", "status", "named"), [
    ({"sql": ""}, 400, "no statement"), ({"sql": "SELEC 1"}, 400, ""),
    ({"sql": "SELECT * FROM nowhere"}, 404, "nowhere"),
    ({"sql": "SELECT 1", "limit": -1}, 422, "limit"), ({"sql": "SELECT 1", "timeout": 0}, 422, "timeout"),
    ({"sql": "SELECT 1", "timeout": 1e9}, 422, "timeout"), ({"sql": "SELECT $1"}, 422, "parameter"),
    ({"sql": "SELECT 1; SELECT $1", "params": [1]}, 400, "share"), ({"sql": "SELECT 1", "what": 1}, 422, "what"),
    ({"sql": "SELECT 1", "ref": "main", "branch": "main"}, 422, "ref"), ({"sql": "SELECT 1/0"}, 422, "zero"),
    ({"sql": "SELECT 1", "branch": "nowhere"}, 404, "nowhere"), ({"sql": 7}, 422, "sql"),
])  # fmt: skip
def test_a_bad_request_is_told_why(shared: Served, body: dict[str, Any], status: int, named: str) -> None:
    answer = shared.call("POST", "/stores/shop/sql", token="reader", json=body)
    assert (answer.status, named in answer.json["title"]) == (status, True), answer.json


def test_a_request_that_takes_too_long_is_ended(shared: Served) -> None:
    answer = run(shared, ENDLESS, timeout=0.2)
    assert (answer.status, answer.json["fields"]["sqlstate"]) == (422, "57014")
    assert "timeout" in answer.json["title"]


def test_a_request_is_cancelled_by_its_id_by_whoever_sent_it(shared: Served) -> None:
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(run(shared, ENDLESS, id="long")))
    thread.start()

    def cancel(token: str, id: str = "long") -> Answer:
        return shared.call("POST", "/stores/shop/sql/cancel", token=token, json={"id": id})

    wait_for(lambda: cancel("writer").status == 403)  # it runs, and is not the writer's
    assert run(shared, "SELECT 1", id="long").status == 409
    assert cancel("reader").json == {"id": "long", "cancelled": True}
    thread.join(10)
    assert answers[0].json["fields"]["sqlstate"] == "57014"
    assert "user request" in answers[0].json["title"]
    assert cancel("reader").json == {"id": "long", "cancelled": False}
    assert rows(shared, "SELECT 1") == [[1]]


def test_a_request_ends_when_its_client_has_gone(shared: Served) -> None:
    import http.client

    host = shared.url.removeprefix("http://")
    gone = http.client.HTTPConnection(host, timeout=30)
    gone.request("POST", "/api/v1/stores/shop/sql", json.dumps({"sql": ENDLESS, "id": "gone", "timeout": 500}), {
        "authorization": f"Bearer {shared.tokens['reader']}", "content-type": "application/json"})

    def is_running() -> bool:  # what is running is not the writer's to cancel
        return shared.call("POST", "/stores/shop/sql/cancel", token="writer", json={"id": "gone"}).status == 403

    wait_for(is_running)
    gone.close()
    wait_for(lambda: not is_running())


def test_other_stores_take_no_sql(tmp_path: Path) -> None:
    from ontolake.documents import Set, open_space

    with open_space(f"{tmp_path}/", "notes") as space:
        space.transact("s", 1, [Set("a", {})])
    with serving({"shop": f"{tmp_path}/notes.sqlite"}) as served:
        assert run(served, "SELECT 1").status == 404
