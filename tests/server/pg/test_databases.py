"""The name of a database: a store, a branch and a moment of it, and what may be done there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pg_serving import PgServed, pg_serving
from psycopg import errors

from ontolake.server.pg.databases import DatabaseName
from ontolake.server.rights import Principal, TokenScope
from ontolake.sql import open_database

GUEST = Principal("guest", TokenScope.WRITE, ("shop",), ("try*",))


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PgServed, str]]:
    """A server of `shop`, which has two commits with one row each on main, a tag at the first of them, and a branch
    with one row more; and of `other`. With it, the time between the commits."""
    folder = tmp_path_factory.mktemp("history")
    path = str(folder / "shop.db")
    with open_database(path) as database:
        database.execute("CREATE TABLE item (id INT PRIMARY KEY)")
        database.execute("INSERT INTO item VALUES (1)")
        between = datetime.now(UTC).isoformat()
        database.tags.create("first", "main@2")
        database.execute("INSERT INTO item VALUES (2)")
        database.branches.create("try")
        database.checkout("try")
        database.execute("INSERT INTO item VALUES (3)")
    with open_database(str(folder / "other.db")) as database:
        database.execute("CREATE TABLE t (a INT PRIMARY KEY)")
    with pg_serving({"shop": path, "other": str(folder / "other.db")}, (GUEST,)) as found:
        yield found, between


def ids(connection: psycopg.Connection[Any]) -> list[int]:
    return [row[0] for row in connection.execute("SELECT id FROM item ORDER BY id").fetchall()]


@pytest.mark.parametrize(("name", "wanted"), [
    ("shop", [1, 2]), ("shop@main", [1, 2]), ("shop@try", [1, 2, 3]), ("shop@main:2", [1]), ("shop@main:3", [1, 2]),
    ("shop@try:2", [1]), ("shop@first", [1]), ("shop@main~1", [1]), ("shop@BETWEEN", [1]),
    ("shop@main:BETWEEN", [1])])  # fmt: skip
def test_a_name_is_a_branch_or_a_moment(history: tuple[PgServed, str], name: str, wanted: list[int]) -> None:
    wire, between = history
    with wire.connect(name.replace("BETWEEN", between)) as connection:
        assert ids(connection) == wanted
        assert connection.execute("SELECT id FROM item WHERE id = %s", (1,), prepare=True).fetchall() == [(1,)]


def test_the_past_is_read_only(history: tuple[PgServed, str]) -> None:
    wire, _ = history
    with wire.connect("shop@main:2") as connection:
        for statement in ("INSERT INTO item VALUES (9)", "DELETE FROM item", "CREATE TABLE x (a INT)",
                          "TRUNCATE item", "CALL onto_tag('x')"):  # fmt: skip
            with pytest.raises(errors.ReadOnlySqlTransaction):
                connection.execute(statement)
        with pytest.raises(errors.ReadOnlySqlTransaction), connection.cursor().copy("COPY item FROM STDIN") as copy:
            copy.write_row((9,))
        with connection.transaction(), connection.cursor("c") as cursor:
            assert cursor.execute("SELECT id FROM item").fetchall() == [(1,)]
        connection.execute("CREATE TEMP TABLE mine AS SELECT id + 1 AS id FROM item")
        assert connection.execute("SELECT * FROM mine JOIN item ON mine.id <> item.id").fetchall() == [(2, 1)]
        assert connection.execute("SHOW default_transaction_read_only").fetchone() == ("on",)


def test_what_is_written_on_a_branch_is_of_the_branch(history: tuple[PgServed, str]) -> None:
    wire, _ = history
    with wire.connect("shop@try", user="writer") as branch, wire.connect("shop") as main:
        branch.execute("INSERT INTO item VALUES (4)")
        assert (ids(branch), ids(main)) == ([1, 2, 3, 4], [1, 2])
        branch.execute("DELETE FROM item WHERE id = 4")


@pytest.mark.parametrize("name", ["nope", "shop@nope", "shop@main:99", "shop@"])
def test_what_is_not_there(history: tuple[PgServed, str], name: str) -> None:
    wire, _ = history
    with pytest.raises(psycopg.OperationalError, match=r"does not exist|names no branch"):
        wire.connect(name)


def test_a_token_for_some_stores_and_branches_sees_no_others(history: tuple[PgServed, str]) -> None:
    wire, between = history
    with wire.connect("shop@try", user="guest") as connection:
        assert ids(connection) == [1, 2, 3]
        connection.execute("INSERT INTO item VALUES (5)")
        connection.execute("DELETE FROM item WHERE id = 5")
        for statement in ("SELECT * FROM onto_diff('main', 'try', 'item')", "SELECT * FROM onto_log('main')",
                          "CALL onto_branch('other')", "CALL onto_merge('main')", "SELECT * FROM onto_branches()"):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement)
        for way in ("SELECT * FROM onto_log(%s)", "SELECT * FROM onto_diff(%s, 'try', 'item')"):
            assert connection.execute(way, ("try",), prepare=True).fetchall() is not None
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(way, ("main",), prepare=True)
    for name in ("shop", "shop@main", "shop@main:2", "shop@first", f"shop@{between}", "other", "other@try"):
        with pytest.raises(psycopg.OperationalError, match="the token 'guest'"):
            wire.connect(name, user="guest")


@pytest.mark.parametrize(("text", "wanted"), [
    ("shop", ("shop", None)), ("shop@a/b", ("shop", ("a/b", None, 0))), ("shop@a:1~2", ("shop", ("a", "1", 2))),
    ("shop@a@1", ("shop", ("a", "1", 0))), ("shop@2026-11-01T00:00Z", ("shop", (None, "2026-11-01T00:00Z", 0))),
    ("shop@a:2026-11-01T10:30Z", ("shop", ("a", "2026-11-01T10:30Z", 0)))])  # fmt: skip
def test_names_in_parts(text: str, wanted: object) -> None:
    assert DatabaseName.parse(text) == wanted


def test_a_store_that_is_served_to_be_read(tmp_path: Path) -> None:
    with open_database(str(tmp_path / "a.db")) as database:
        database.execute("CREATE TABLE t (a INT PRIMARY KEY)")
    with pg_serving({"a": str(tmp_path / "a.db")}, readonly=["a"]) as wire, wire.connect("a") as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
        with pytest.raises(errors.ReadOnlySqlTransaction):
            connection.execute("INSERT INTO t VALUES (1)")


@pytest.mark.parametrize("name", ["shop", "shop@main"])
def test_a_database_is_called_as_its_client_calls_it(tmp_path: Path, name: str) -> None:
    with open_database(str(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE t (a INT PRIMARY KEY)")
    with pg_serving({"shop": str(tmp_path / "shop.db")}) as wire, wire.connect(name) as connection:
        assert connection.execute("SELECT current_database(), current_catalog").fetchall() == [(name, name)]
        assert (name,) in connection.execute("SELECT datname FROM pg_database").fetchall()
        assert connection.execute("SELECT table_catalog FROM information_schema.tables WHERE table_name = 't'"
                                  ).fetchall() == [(name,)]
        connection.execute(f'INSERT INTO "{name}".public.t VALUES (1)')
        assert connection.execute(f'SELECT a FROM "{name}"."public"."t" WHERE a = %s', (1,)).fetchall() == [(1,)]
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT * FROM elsewhere.public.t")
