"""Connections: how they come, wait, are canceled, hear news, and end."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from certificates import certificate
from pg_client import SYNC, RawClient, bind, execute, message, parse, query, startup, text
from pg_serving import PgServed, pg_serving
from psycopg import errors
from serving import ServerProcess
from waiting import wait_for

from ontolake.server.limits import Limits
from ontolake.server.pg.listener import PgOptions
from ontolake.sql import open_database

ENDLESS = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b"


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.db")
    with open_database(path) as database:
        database.execute("CREATE TABLE item (id INT PRIMARY KEY)")
    return path


@pytest.fixture
def hasty(store: str) -> Iterator[PgServed]:
    """A server that waits two seconds for start-up."""
    with pg_serving({"shop": store}, options=PgOptions(Limits(header_seconds=2.0))) as found:
        yield found


# coming in


@pytest.mark.slow
def test_a_client_that_says_nothing_is_dropped(hasty: PgServed) -> None:
    with RawClient.open(hasty.address) as silent, hasty.raw("shop") as other:
        slow = RawClient.open(hasty.address)
        slow.send(startup({"user": "admin", "database": "shop"})[:9])
        begun = time.monotonic()
        assert other.ask(query("SELECT 1"))[-1] == "Z I"
        assert (silent.next(), slow.next()) == ("closed", "closed")
        assert time.monotonic() - begun < 30
        slow.close()
        assert other.ask(query("SELECT 1"))[-1] == "Z I"


@pytest.mark.slow
def test_a_client_that_does_not_prove_who_it_is_is_dropped(hasty: PgServed) -> None:
    with RawClient.open(hasty.address) as client:
        client.send(startup({"user": "admin", "database": "shop"}))
        assert (client.next(), client.next()) == ("R", "closed")


@pytest.mark.parametrize(("sent", "wanted"), [
    (struct.pack(">i", 4), "08P01"), (struct.pack(">i", 1 << 30), "08P01"), (b"GET / HTTP/1.1\r\n\r\n", "08P01"),
    (startup({}), "28000"), (startup({"user": "admin"}, 2 << 16), "0A000"),
    (startup({"user": "admin", "replication": "true"}), "0A000"),
    (startup({"user": "admin"})[:-1] + b"x", "08P01")])  # fmt: skip
def test_a_wrong_start(wire: PgServed, sent: bytes, wanted: str) -> None:
    with RawClient.open(wire.address) as client:
        client.send(sent)
        assert (client.next(), client.next()) == (f"E FATAL {wanted}", "closed")


@pytest.mark.parametrize("sent", [
    query("SELECT 1"), message(b"p", b"\0"), message(b"p", text("SCRAM-SHA-1") + struct.pack(">i", 0)),
    message(b"p", text("SCRAM-SHA-256") + struct.pack(">i", 3) + b"n,,"), b"p\x7f\xff\xff\xff",
    message(b"p", text("SCRAM-SHA-256") + struct.pack(">i", 9) + b"p=x,,n=,r")])  # fmt: skip
def test_nothing_is_answered_before_the_proof(wire: PgServed, sent: bytes) -> None:
    with RawClient.open(wire.address) as client:
        client.send(startup({"user": "admin", "database": "shop"}))
        assert client.next() == "R"
        client.send(sent)
        assert (client.next(), client.next()) == ("E FATAL 08P01", "closed")


def test_a_newer_minor_version_is_negotiated(wire: PgServed) -> None:
    with RawClient.open(wire.address) as client:
        client.send(startup({"user": "admin", "database": "shop", "_pq_.future": "1"}, (3 << 16) | 2))
        assert client.next() == "v"
        assert client.login("admin-secret")[-1] == "Z I"


def test_the_settings_of_a_client(wire: PgServed) -> None:
    given = {"application_name": "mine", "options": "-c statement_timeout=5s", "TimeZone": "Europe/Berlin"}
    with wire.raw("shop", **given) as client:
        assert client.parameters["application_name"] == "mine"
        assert client.parameters["TimeZone"] == "UTC"
        assert client.parameters["server_version"].startswith("15")
        assert client.ask(query("SHOW statement_timeout"))[1] == "D 5s"
        assert client.ask(query("SET application_name = 'other'; RESET ALL"))[-1] == "Z I"
        assert client.parameters["application_name"] == "mine"
        client.ask(query("SET application_name = 'third'"))
        assert client.parameters["application_name"] == "third"


def test_as_many_clients_as_may_be(store: str) -> None:
    with pg_serving({"shop": store}, options=PgOptions(Limits(connections=1))) as wire, wire.raw("shop") as first:
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            wire.connect("shop")
        first.close()
        wait_for(lambda: _comes_in(wire))


def _comes_in(wire: PgServed) -> bool:
    try:
        wire.connect("shop").close()
    except psycopg.OperationalError:
        return False
    return True


def test_tls(store: str, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path))
    with pg_serving({"shop": store}, options=PgOptions(tls=context)) as wire:
        with wire.connect("shop", sslmode="verify-ca", sslrootcert=str(tmp_path / "server.pem")) as connection:
            assert connection.pgconn.ssl_in_use
            assert connection.execute("SELECT repeat('x', 300000)").fetchone() == ("x" * 300_000,)
        with wire.connect("shop", sslmode="disable") as connection:
            assert not connection.pgconn.ssl_in_use
        with RawClient.open(wire.address) as client:  # what is sent before the encryption is not taken for encrypted
            client.send(struct.pack(">ii", 8, (1234 << 16) | 5679) + startup({"user": "admin"}))
            assert client.next().startswith("E FATAL 08P01")


def test_without_tls_a_client_is_told_so(wire: PgServed) -> None:
    with socket.create_connection(wire.address) as client:
        client.sendall(struct.pack(">ii", 8, (1234 << 16) | 5679))
        assert client.recv(10) == b"N"
        client.sendall(struct.pack(">ii", 8, (1234 << 16) | 5680))
        assert client.recv(10) == b"N"
    with pytest.raises(psycopg.OperationalError, match="SSL"):
        wire.connect("shop", sslmode="require")


# canceling and time


def test_canceling_ends_the_statement_and_is_never_answered(wire: PgServed, client: RawClient) -> None:
    client.send(query(ENDLESS))
    assert client.cancel(wire.address) == b""
    client.send(query("SELECT 1"))
    said = client.until_ready(2)
    assert said == ["E ERROR 57014", "Z I", "T ?column?", "D 1", "C SELECT 1", "Z I"]


def test_canceling_needs_the_secret_and_a_statement(wire: PgServed, client: RawClient) -> None:
    assert client.cancel(wire.address) == b""
    client.secret ^= 1
    client.send(query("SELECT count(*) FROM generate_series(1, 3000000)"))
    assert client.cancel(wire.address) == b""
    assert client.until_ready() == ["T count", "D 3000000", "C SELECT 1", "Z I"]


def test_a_client_that_goes_takes_its_statement_along(wire: PgServed) -> None:
    def is_running() -> bool:
        with wire.stores.get("shop").reading() as database:
            return bool(database.running._all)

    other = wire.raw("shop", user="reader")
    other.send(query(ENDLESS))
    wait_for(is_running)
    other.close()
    wait_for(lambda: not is_running())


def test_time_outs(client: RawClient, wire: PgServed) -> None:
    assert client.ask(query("SET statement_timeout = '50ms'"))[-1] == "Z I"
    assert client.ask(query(ENDLESS)) == ["E ERROR 57014", "Z I"]
    assert client.ask(query("SET idle_in_transaction_session_timeout = '50ms'"))[-1] == "Z I"
    assert client.ask(query("BEGIN"))[-1] == "Z T"
    assert (client.next(), client.next()) == ("E FATAL 25P03", "closed")
    with wire.raw("shop") as other:
        other.ask(query("SET idle_session_timeout = '50ms'"))
        assert (other.next(), other.next()) == ("E FATAL 57P05", "closed")


# answers


def test_a_slow_reader_holds_nobody_up(wire: PgServed, client: RawClient) -> None:
    with wire.raw("shop") as slow:
        slow.send(query("SELECT a, repeat('x', 1000) FROM generate_series(1, 50000) t (a)"))
        for _ in range(5):
            assert client.ask(query("SELECT 1"))[-1] == "Z I"
        said = slow.until_ready()
        assert (len(said), said[-2:]) == (50_003, ["C SELECT 50000", "Z I"])


def test_canceling_stops_an_answer_that_is_being_sent(wire: PgServed) -> None:
    with wire.raw("shop") as slow:
        slow.send(query("SELECT a, repeat('x', 1000) FROM generate_series(1, 50000) t (a)"))
        assert slow.next().startswith("T")
        slow.cancel(wire.address)
        said = slow.until_ready()
        assert said[-2:] == ["E ERROR 57014", "Z I"]
        assert len(said) < 50_000


def test_a_client_that_goes_before_it_took_its_answer_leaves_nothing_behind(store: str) -> None:
    options = PgOptions(Limits(token_requests=1))
    with pg_serving({"shop": store}, options=options) as wire:
        for _ in range(2):
            slow = wire.raw("shop")
            slow.send(query("BEGIN; INSERT INTO item VALUES (1); "
                            "SELECT a, repeat('x', 1000) FROM generate_series(1, 50000) t (a)"))  # fmt: skip
            assert slow.next().startswith("C")
            slow.close()
            wait_for(lambda: not wire.server.slots.taken)
        with wire.raw("shop") as other:
            assert other.ask(query("SELECT * FROM item")) == ["T id", "C SELECT 0", "Z I"]


def test_notices_are_told_unless_the_client_wants_none(client: RawClient) -> None:
    client.send(query("VACUUM item"))
    assert [client.next()[0] for _ in range(3)] == ["N", "C", "Z"]
    client.ask(query("SET client_min_messages = 'error'"))
    client.send(query("VACUUM item"))
    assert [client.next()[0] for _ in range(2)] == ["C", "Z"]


def test_many_messages_at_once(client: RawClient) -> None:
    batch = [parse("SELECT id FROM item WHERE id = $1", oids=[23]), bind(values=[b"1"]), execute(), SYNC]
    client.send(*batch * 500)
    said = client.until_ready(500)
    assert said == ["1", "2", "D 1", "C SELECT 1", "Z I"] * 500


def test_a_message_in_single_bytes(client: RawClient) -> None:
    for byte in query("SELECT 1") + parse("SELECT 2 AS a") + bind() + execute() + SYNC:
        client.send(bytes([byte]))
    assert client.until_ready(2) == ["T ?column?", "D 1", "C SELECT 1", "Z I", "1", "2", "D 2", "C SELECT 1", "Z I"]


@pytest.mark.parametrize("sent", [b"Q\0\0\0\3", b"Q\x7f\xff\xff\xff", b"!\0\0\0\4"])
def test_what_is_no_message_ends_the_connection(client: RawClient, sent: bytes) -> None:
    client.send(sent)
    assert (client.next(), client.next()) == ("E FATAL 08P01", "closed")


# news


def test_listeners_hear_of_commits_and_of_each_other(store: str) -> None:
    with (pg_serving({"shop": store}) as wire, wire.connect("shop") as listener, wire.connect("shop") as deaf,
          wire.connect("shop", user="writer") as writer):  # fmt: skip
        listener.execute("LISTEN onto_commits; LISTEN talk")
        deaf.execute("LISTEN talk; UNLISTEN talk")
        with writer.transaction():
            writer.execute("NOTIFY talk, 'one'; NOTIFY talk, 'one'")
            writer.execute("INSERT INTO item VALUES (1)")
        with pytest.raises(errors.DivisionByZero):
            writer.execute("NOTIFY talk, 'never'; SELECT 1 / 0")
        writer.execute("NOTIFY talk, 'two'")
        heard = list(listener.notifies(timeout=30, stop_after=3))
        told = [each.payload for each in heard if each.channel == "talk"]
        news = [json.loads(each.payload) for each in heard if each.channel == "onto_commits"]
        assert told == ["one", "two"]
        assert news == [{"store": "shop", "branch": "main", "commit": 2, "author": "writer", "message": None}]
        assert list(deaf.notifies(timeout=0)) == []


# many, and the end


@pytest.mark.slow
def test_many_idle_clients_cost_little(wire: PgServed, client: RawClient) -> None:
    idle = [wire.raw("shop", user="reader") for _ in range(200)]
    begun = time.process_time()
    for each in idle:
        assert each.ask(query("SELECT 1"))[-1] == "Z I"
    assert time.process_time() - begun < 10
    with wire.stores.get("shop").reading() as database:
        assert len(database._sessions.pool._others) < 10  # none of them holds a connection to the file
    for each in idle:
        each.close()
    assert client.ask(query("SELECT 1"))[-1] == "Z I"


def test_the_end_of_the_server_lets_statements_end(store: str) -> None:
    with pg_serving({"shop": store}) as wire:
        idle, busy = wire.raw("shop"), wire.raw("shop")
        busy.send(query("SELECT count(*) FROM generate_series(1, 3000000)"))
        wire.server.close()
        assert (idle.next(), idle.next()) == ("E FATAL 57P01", "closed")
        said = [busy.next() for _ in range(2)]
        assert said in (["T count", "D 3000000"], ["E FATAL 57P01", "closed"])
        idle.close()
        busy.close()


@pytest.mark.slow
def test_onto_serve_speaks_both_protocols_until_it_is_told_to_end(store: str, tmp_path: Path) -> None:
    with ServerProcess(tmp_path, store, "--pg", "0") as server:
        assert server.process.stdout is not None
        url = server.process.stdout.readline().decode().split()[-1]
        assert url.startswith("postgres://local@127.0.0.1:")
        with psycopg.connect(url, password=server.token, autocommit=True) as connection:
            connection.execute("INSERT INTO item VALUES (1)")
            assert server.call("GET", "/stores/shop").status == 200
            shown = subprocess.run(["psql", "-X", "-A", "-t", url, "-c", "TABLE item"], capture_output=True, text=True,
                                   check=True, env={"PGPASSWORD": server.token, "PATH": "/usr/bin:/bin"})  # fmt: skip
            assert shown.stdout == "1\n"
            assert server.end() == 0
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
