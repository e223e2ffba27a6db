"""Every scope of a token with every kind of statement, the audit log, and who may come in at all."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import psycopg
import pytest
from pg_client import query
from pg_serving import PgServed, pg_serving
from psycopg import errors
from waiting import wait_for

from ontolake.server.audit import AuditLog
from ontolake.server.handles import ServedStores
from ontolake.server.limits import Limits
from ontolake.server.pg.listener import PgOptions, PgServer
from ontolake.server.pg.startup import TokenCredentials
from ontolake.server.tokens import TokenFile, TokenRequest
from ontolake.sql import open_database

SCOPES = ("reader", "writer", "merger", "admin")
STATEMENTS = {
    "SELECT * FROM item": "reader", "EXPLAIN SELECT * FROM item": "reader", "SHOW search_path": "reader",
    "SET application_name = 'x'": "reader", "RESET ALL": "reader", "DISCARD ALL": "reader", "BEGIN; ROLLBACK": "reader",
    "BEGIN; SAVEPOINT s; ROLLBACK TO s; RELEASE s; COMMIT": "reader", "VACUUM": "reader", "LISTEN a": "reader",
    "NOTIFY a": "reader", "BEGIN; DECLARE c CURSOR FOR SELECT 1; FETCH c; MOVE c; CLOSE c; COMMIT": "reader",
    "BEGIN; LOCK TABLE item; COMMIT": "reader", "COPY item TO STDOUT": "reader",
    "PREPARE p AS SELECT 1; EXECUTE p; DEALLOCATE p": "reader", "CREATE TEMP TABLE mine (a INT)": "reader",
    "SELECT * FROM onto_log()": "reader", "SELECT * FROM onto_branches()": "reader",
    "INSERT INTO item VALUES (100)": "writer", "UPDATE item SET id = 101 WHERE id = 100": "writer",
    "DELETE FROM item WHERE id > 99": "writer", "TRUNCATE blank": "writer", "CREATE TABLE fresh (a INT)": "writer",
    "ALTER TABLE blank ADD COLUMN IF NOT EXISTS more INT": "writer", "DROP TABLE IF EXISTS fresh": "writer",
    "WITH gone AS (DELETE FROM item WHERE id > 99 RETURNING id) SELECT * FROM gone": "writer",
    "PREPARE p AS DELETE FROM item WHERE id > 99; EXECUTE p; DEALLOCATE p": "writer",
    "SELECT nextval('counted')": "writer", "COPY blank FROM STDIN": "writer", "CALL onto_tag('t')": "writer",
    "CREATE INDEX IF NOT EXISTS named ON item (id)": "writer", "CREATE VIEW v AS SELECT 1": "writer",
    "MERGE INTO item USING (SELECT 1 AS a) s ON item.id = s.a WHEN MATCHED THEN DO NOTHING": "writer",
    "INSERT INTO item SELECT 100 WHERE false": "writer", "CALL onto_merge('try')": "merger",
}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.db")
    with open_database(path) as database:
        database.execute("CREATE TABLE item (id INT PRIMARY KEY); CREATE TABLE blank (a INT); CREATE SEQUENCE counted")
        database.branches.create("try")
    return path


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[AuditLog]:
    log = AuditLog(tmp_path / "audit.jsonl")
    yield log
    log.close()


def run(connection: psycopg.Connection[object], statement: str) -> None:
    """Run a statement as psql would, with rows or without."""
    if statement.endswith("FROM STDIN"):
        with connection.cursor().copy(statement):  # type: ignore[arg-type]
            return
    if statement.endswith("TO STDOUT"):
        with connection.cursor().copy(statement) as copy:  # type: ignore[arg-type]
            for _ in copy:
                pass
        return
    connection.execute(statement)  # type: ignore[arg-type]


def test_every_scope_with_every_kind_of_statement(store: str) -> None:
    with pg_serving({"shop": store}) as wire:
        for rank, user in enumerate(SCOPES):
            with wire.connect("shop", user=user) as connection:
                for statement, needs in STATEMENTS.items():
                    allowed = rank >= SCOPES.index(needs)
                    try:
                        run(connection, statement)
                    except errors.InsufficientPrivilege:
                        assert not allowed, (user, statement)
                    except psycopg.Error as error:
                        if allowed and error.sqlstate not in ("42P07", "42710"):  # it is there from the scope before
                            raise
                    else:
                        assert allowed, (user, statement)
                    if connection.info.transaction_status:
                        connection.execute("ROLLBACK")


def test_files_of_the_server_are_nobodys(store: str, tmp_path: Path) -> None:
    with pg_serving({"shop": store}) as wire, wire.connect("shop") as connection:
        for statement in (f"COPY item TO '{tmp_path}/out'", f"COPY item FROM '{tmp_path}/in'",
                          "COPY item FROM PROGRAM 'true'", "CALL onto_checkout('try')"):  # fmt: skip
            with pytest.raises(errors.FeatureNotSupported):
                connection.execute(statement)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_the_author_of_a_commit_is_the_token(store: str) -> None:
    with pg_serving({"shop": store}) as wire:
        with wire.connect("shop", user="writer", autocommit=False) as connection:
            connection.execute("INSERT INTO item VALUES (1)")
            connection.execute("INSERT INTO item VALUES (2)")
            connection.commit()
            connection.execute("INSERT INTO item VALUES (3)")
            connection.rollback()
        with wire.connect("shop", user="admin") as connection:
            found = connection.execute("SELECT commit_id, author FROM onto_log() ORDER BY 1 DESC LIMIT 2").fetchall()
    assert [author for _, author in found] == ["writer", None]


def test_the_audit_log_has_commits_and_refusals(store: str, audit: AuditLog) -> None:
    with pg_serving({"shop": store}, options=PgOptions(audit=audit)) as wire:
        with wire.connect("shop", user="writer") as connection:
            connection.execute("SELECT 1")
            connection.execute("INSERT INTO item VALUES (1)")
            with connection.transaction():
                connection.execute("INSERT INTO item VALUES (2)")
                connection.execute("INSERT INTO item VALUES (3)")
            with pytest.raises(errors.UniqueViolation):
                connection.execute("INSERT INTO item VALUES (3)")
        with wire.connect("shop", user="reader") as connection, pytest.raises(errors.InsufficientPrivilege):
            connection.execute("DELETE FROM item")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(wire.server.url("shop", "writer", "guess"))
    told = [(one.token, one.method, one.operation, one.status, one.store, one.problem)
            for one in reversed(audit.page(10).entries)]  # fmt: skip
    assert told == [
        ("writer", "PG", "pg.insert", 200, "shop", None), ("writer", "PG", "pg.commit", 200, "shop", None),
        ("reader", "PG", "pg.delete", 403, "shop", "ForbiddenError"), ("", "PG", "pg.login", 401, None, None)]


def test_as_many_statements_of_a_token_as_may_be(store: str) -> None:
    options = PgOptions(Limits(token_requests=1))
    with (pg_serving({"shop": store}, options=options) as wire, wire.raw("shop") as first, wire.raw("shop") as second,
          wire.raw("shop", user="reader") as third):  # fmt: skip
        first.send(query("SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b"))
        wait_for(lambda: second.ask(query("SELECT 1 + 1")) == ["E ERROR 53300", "Z I"])
        assert third.ask(query("SELECT 1")) == ["T ?column?", "D 1", "C SELECT 1", "Z I"]
        first.cancel(wire.address)
        assert first.until_ready() == ["E ERROR 57014", "Z I"]
        assert second.ask(query("SELECT 1 + 1"))[-1] == "Z I"


# tokens


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "tokens.json")


@pytest.fixture
def guarded(store: str, tokens: TokenFile) -> Iterator[PgServed]:
    """A server that goes by a file of tokens."""
    served = ServedStores({"shop": store})
    with PgServer(served, TokenCredentials(tokens)).running() as server:
        yield PgServed(server, served)
    served.close()


def test_a_token_that_is_created_counts_at_once_until_it_is_revoked(guarded: PgServed, tokens: TokenFile) -> None:
    secret = tokens.create(TokenRequest("ann", "write"))
    with psycopg.connect(guarded.server.url("shop", "ann", secret), autocommit=True) as connection:
        connection.execute("INSERT INTO item VALUES (1)")
        tokens.revoke("ann")

        def is_ended() -> bool:
            try:
                connection.execute("SELECT 1")
            except psycopg.OperationalError:
                return True
            return False

        wait_for(is_ended)
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        psycopg.connect(guarded.server.url("shop", "ann", secret))


def test_a_token_that_has_expired(guarded: PgServed, tokens: TokenFile) -> None:
    secret = tokens.create(TokenRequest("ann", lifetime=timedelta(microseconds=1)))
    with pytest.raises(psycopg.OperationalError, match="authentication failed"):
        psycopg.connect(guarded.server.url("shop", "ann", secret))


def test_a_token_of_an_earlier_version_has_to_be_made_anew(guarded: PgServed, tokens: TokenFile) -> None:
    secret = tokens.create(TokenRequest("ann"))
    stored = msgspec.json.decode(tokens.path.read_bytes())
    del stored["tokens"][0]["scram"]
    tokens.path.write_bytes(msgspec.json.encode(stored))
    with pytest.raises(psycopg.OperationalError, match="create a new one"):
        psycopg.connect(guarded.server.url("shop", "ann", secret))


def test_neither_a_name_nor_a_secret_is_stored_for_guessing(guarded: PgServed, tokens: TokenFile) -> None:
    secret = tokens.create(TokenRequest("ann"))
    assert secret not in tokens.path.read_text()
    said = set()
    for user in ("ann", "nobody"):
        with pytest.raises(psycopg.OperationalError) as refused:
            psycopg.connect(guarded.server.url("shop", user, "wrong"))
        said.add(str(refused.value).replace(user, "USER"))
    assert len(said) == 1
