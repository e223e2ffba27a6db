"""The same messages to our server and to PostgreSQL 15: the same kinds of messages, rows, tags and SQLSTATEs back."""

from __future__ import annotations

import pytest
from pg_client import (
    COPY_DONE,
    FLUSH,
    SYNC,
    RawClient,
    bind,
    close,
    copy_data,
    copy_fail,
    describe,
    execute,
    message,
    parse,
    query,
)

DIVIDE = "SELECT price / (id - 1) FROM item"
"""Fails when it is run, and not before."""

EXCHANGES: dict[str, list[list[bytes]]] = {
    "a query": [[query("SELECT 1 AS a, 'x' AS b, NULL AS c")]],
    "no query": [[query("")], [query(" ; ;")], [query("-- nothing")]],
    "several queries": [[query("SELECT 1 AS a; SELECT 2 AS b WHERE false; SELECT 3 AS c")]],
    "changes": [[query("INSERT INTO item VALUES (10, 'a', 1), (11, 'b', 2)")],
                [query("UPDATE item SET price = 5 WHERE id >= 10")],
                [query("DELETE FROM item WHERE id >= 10 RETURNING id, price")],
                [query("DELETE FROM item WHERE id >= 10")]],
    "definitions": [[query("CREATE TABLE other (a INT)")], [query("CREATE TABLE IF NOT EXISTS other (a INT)")],
                    [query("ALTER TABLE other ADD COLUMN b INT")], [query("CREATE INDEX by_b ON other (b)")],
                    [query("TRUNCATE other")], [query("DROP TABLE other")], [query("DROP TABLE IF EXISTS other")]],
    "an error stops the rest": [[query("SELECT 1 AS a; SELECT * FROM nope; SELECT 2 AS b")], [query("SELECT 3 AS c")]],
    "statements that are sent together are one transaction": [
        [query("INSERT INTO item VALUES (10, 'a', 1); SELECT 1 / 0")], [query("SELECT count(*) FROM item")]],
    "a commit within statements that are sent together": [
        [query("INSERT INTO item VALUES (10, 'a', 1); COMMIT; SELECT 1 / 0")], [query("SELECT count(*) FROM item")],
        [query("DELETE FROM item WHERE id = 10")]],
    "a transaction that is begun within statements that are sent together": [
        [query("INSERT INTO item VALUES (10, 'a', 1); BEGIN; SELECT 1 AS a")], [query("ROLLBACK")],
        [query("SELECT count(*) FROM item")]],
    "a transaction": [[query("BEGIN")], [query("INSERT INTO item VALUES (10, 'a', 1)")], [query("ROLLBACK")],
                      [query("SELECT count(*) FROM item")]],
    "a failed transaction": [[query("BEGIN")], [query("SELECT 1 / 0")], [query("SELECT 1")], [query("nonsense")],
                             [query("COMMIT")], [query("SELECT 1 AS a")]],
    "a failed transaction and a savepoint": [
        [query("BEGIN")], [query("SAVEPOINT s")], [query("SELECT 1 / 0")], [query("ROLLBACK TO s")],
        [query("SELECT 1 AS a")], [query("COMMIT")]],
    "transactions out of place": [[query("COMMIT")], [query("ROLLBACK")], [query("BEGIN")], [query("BEGIN")],
                                  [query("ROLLBACK")], [query("SAVEPOINT s")], [query("RELEASE s")]],
    "a parse error in a transaction": [[query("BEGIN")], [query("SELEC 1")], [query("SELECT 1")], [query("ROLLBACK")]],
    "constraints": [[query("INSERT INTO item VALUES (1, 'again', 1)")],
                    [query("INSERT INTO item VALUES (12, 'x', NULL)")],
                    [query("INSERT INTO item VALUES ('x', 'x', 1)")]],
    "settings": [[query("SET application_name = 'test'")], [query("SHOW application_name")], [query("RESET ALL")],
                 [query("SET nope = 1")], [query("DISCARD ALL")], [query("SHOW nope")]],
    "prepared by SQL": [[query("PREPARE p (int) AS SELECT $1 + 1 AS a")], [query("EXECUTE p (2)")],
                        [query("DEALLOCATE p")], [query("EXECUTE p (2)")]],
    "a cursor": [[query("BEGIN")], [query("DECLARE c CURSOR FOR SELECT id FROM item ORDER BY id")],
                 [query("FETCH 2 FROM c")], [query("FETCH ALL FROM c")], [query("CLOSE c")], [query("FETCH c")],
                 [query("ROLLBACK")]],
    "a cursor without a transaction": [[query("DECLARE c CURSOR FOR SELECT 1")]],
    "parse, bind, execute": [[parse("SELECT 1 AS a"), bind(), execute(), SYNC]],
    "a named statement, twice": [[parse("SELECT id FROM item ORDER BY id LIMIT 1", "s"), bind("s"), execute(), SYNC],
                                 [bind("s"), execute(), SYNC], [parse("SELECT 1", "s"), SYNC],
                                 [close("S", "s"), SYNC], [bind("s"), SYNC], [close("S", "nope"), SYNC]],
    "an empty statement": [[parse(""), bind(), describe("P"), execute(), SYNC]],
    "changes in the extended protocol": [
        [parse("INSERT INTO item VALUES (10, 'a', 1)"), bind(), describe("P"), execute(), SYNC],
        [parse("DELETE FROM item WHERE id = 10"), bind(), execute(), SYNC]],
    "rows in parts": [[query("BEGIN")],
                      [parse("SELECT id FROM item ORDER BY id"), bind(portal="p"), execute("p", 2), SYNC],
                      [execute("p", 1), SYNC], [execute("p", 1), SYNC], [execute("p"), SYNC], [query("COMMIT")],
                      [execute("p"), SYNC]],
    "a portal ends with its transaction": [[parse("SELECT 1"), bind(portal="p"), execute("p", 1), SYNC],
                                           [execute("p"), SYNC]],
    "a portal twice": [[parse("SELECT 1"), bind(portal="p"), bind(portal="p"), SYNC]],
    "an error skips to Sync": [[parse(DIVIDE), bind(), execute(), parse("SELECT 2"), bind(), execute(), SYNC],
                               [parse("SELECT 3 AS a"), bind(), execute(), SYNC]],
    "several Syncs": [[parse("SELECT 1"), bind(), execute(), SYNC], [SYNC]],
    "what is between two Syncs is one transaction": [
        [parse("INSERT INTO item VALUES (10, 'a', 1)"), bind(), execute(), parse(DIVIDE), bind(), execute(), SYNC],
        [query("SELECT count(*) FROM item")],
        [parse("INSERT INTO item VALUES (10, 'a', 1)"), bind(), execute(), parse("DELETE FROM item WHERE id = 10"),
         bind(), execute(), SYNC]],
    "a failed transaction in the extended protocol": [
        [query("BEGIN")], [parse(DIVIDE), bind(), execute(), SYNC], [parse("SELECT 1"), SYNC],
        [parse("ROLLBACK"), bind(), execute(), SYNC]],
    "two statements in one": [[parse("SELECT 1; SELECT 2"), SYNC]],
    "names that are not there": [[bind("nope"), SYNC], [describe("S", "nope"), SYNC], [describe("P", "nope"), SYNC],
                                 [execute("nope"), SYNC]],
    "messages that end too early": [[message(b"B", b"\0"), SYNC], [message(b"E", b"\0\0"), SYNC],
                                    [message(b"D", b"X\0"), SYNC]],
    "too many values": [[parse("SELECT 1"), bind(values=[b"1"]), SYNC]],
    "a wrong format": [[parse("SELECT 1"), bind(results=[7]), SYNC]],
    "a function call": [[message(b"F", b"\0\0\0\1\0\0\0\0\0\0")]],
    "COPY in": [[query("CREATE TABLE c (a INT, b TEXT)")],
                [query("COPY c FROM STDIN"), copy_data(b"1\tx\n2\t"), copy_data(b"\\N\n"), COPY_DONE],
                [query("SELECT * FROM c ORDER BY a")], [query("COPY c (a) FROM STDIN"), copy_data(b"3\n"), COPY_DONE],
                [query("COPY c FROM STDIN"), copy_data(b"4\tx\n"), copy_fail("no more")],
                [query("COPY c FROM STDIN"), copy_data(b"x\tx\n"), COPY_DONE], [query("SELECT count(*) FROM c")],
                [parse("COPY c FROM STDIN"), bind(), execute(), SYNC, copy_data(b"5\ty\n"), COPY_DONE, SYNC],
                [parse("COPY c FROM STDIN"), bind(), execute(), SYNC, copy_data(b"x\ty\n"), COPY_DONE, SYNC],
                [parse("COPY nope FROM STDIN"), bind(), execute(), SYNC],
                [query("DROP TABLE c")]],
    "COPY out": [[query("COPY (SELECT id, name FROM item ORDER BY id) TO STDOUT")],
                 [query("COPY (SELECT id, name FROM item ORDER BY id) TO STDOUT (FORMAT csv, HEADER)")],
                 [parse("COPY (SELECT id FROM item ORDER BY id) TO STDOUT"), bind(), describe("P"), execute(), SYNC],
                 [query("COPY nope TO STDOUT")]],
    "news": [[query("LISTEN a")], [query("NOTIFY b, 'x'")], [query("UNLISTEN *")]],
}  # fmt: skip


@pytest.mark.parametrize("name", EXCHANGES)
def test_the_same_messages_have_the_same_answers(name: str, client: RawClient, original: RawClient) -> None:
    for messages in EXCHANGES[name]:
        wanted, said = original.ask(*messages), client.ask(*messages)
        assert (messages, said) == (messages, wanted)


def test_flush_sends_what_is_there(client: RawClient) -> None:
    client.send(parse("SELECT 1"), bind(), describe("P"), execute(), FLUSH)
    assert [client.next() for _ in range(5)] == ["1", "2", "T ?column?", "D 1", "C SELECT 1"]
    assert client.ask(SYNC) == ["Z I"]
