"""`onto storage sql`: a look at a database from a shell, which changes nothing."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from ontolake.cli import main
from ontolake.storage import open_storage

Connect = Callable[..., apsw.Connection]
PROGRAM = Path(sys.executable).parent / "onto"


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def look(capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def look(*arguments: str) -> Done:
        capfd.readouterr()
        code = main(["storage", "sql", *arguments])
        return Done(code, *capfd.readouterr())

    return look


@pytest.fixture
def shop(shared_place: str, connect: Connect) -> str:
    """A database with a row more in every commit from LSN 4 on, and a branch that left after the first of them."""
    connection = connect(shared_place)
    connection.execute("CREATE TABLE item(id INTEGER PRIMARY KEY, name, price)")
    connection.execute("INSERT INTO item VALUES (1, 'tea', 2.5)")
    with open_storage(shared_place, create=False) as storage:
        assert storage.get_commit_lsn() == 4
        storage.create_branch("sale", 4)
    connection.execute("INSERT INTO item VALUES (2, NULL, x'00ff')")
    connect(shared_place, branch="sale").execute("UPDATE item SET price = 1")
    return shared_place


def test_rows_are_lines_with_tabs_on_a_pipe(shop: str, look: Any) -> None:
    done = look(shop, "SELECT * FROM item ORDER BY id")
    assert done == (0, "id\tname\tprice\n1\ttea\t2.5\n2\t-\tx'00ff'\n", "")
    assert look(shop, "SELECT * FROM item WHERE 0").out == "id\tname\tprice\n"


def test_branches_and_moments(shop: str, look: Any) -> None:
    assert look(shop, "SELECT price FROM item", "--branch", "sale").out == "price\n1\n"
    assert look(shop, "SELECT count(*) FROM item", "--at", "4").out == "count(*)\n1\n"
    assert look(shop, "SELECT count(*) FROM item", "--at", "5").out == "count(*)\n1\n", "within the commit after it"
    assert look(shop, "SELECT price FROM item", "--at", "4", "--branch", "sale").out == "price\n2.5\n"


def test_json(shop: str, look: Any) -> None:
    done = look(shop, "SELECT *, 9e999 AS much FROM item ORDER BY id", "--json")
    assert json.loads(done.out) == {
        "url": shop, "branch": "main", "at": None, "columns": ["id", "name", "price", "much"],
        "rows": [[1, "tea", 2.5, "inf"], [2, None, {"hex": "00ff"}, "inf"]],
    }  # fmt: skip


@pytest.mark.slow
def test_a_table_on_a_terminal(tmp_path: Path, connect: Connect) -> None:
    connect(f"file://{tmp_path}/pages.db").execute("CREATE TABLE t(x, y); INSERT INTO t VALUES ('a\x1b[31mb\nc', 7)")
    main_end, other_end = pty.openpty()
    process = subprocess.Popen([PROGRAM, "storage", "sql", f"file://{tmp_path}/pages.db", "SELECT * FROM t"],
                               stdout=other_end, stderr=subprocess.PIPE, env={**os.environ, "NO_COLOR": "1"})
    assert process.wait(60) == 0
    os.close(other_end)
    shown = os.read(main_end, 10_000).decode()
    os.close(main_end)
    assert "───" in shown
    assert r"a\x1b[31mb\nc" in shown, "what is stored must not command the terminal"


@pytest.mark.parametrize(("statement", "says"), [
    ("SELEC 1", "syntax error"), ("SELECT * FROM missing", "no such table: missing"), ("", "no statement"),
    ("SELECT 1; SELECT 2", "one statement"), ("SELECT nope()", "no such function"), ("SELECT ?", "bindings"),
    ("SELECT abs(-9223372036854775808)", "integer overflow"),
])  # fmt: skip
def test_bad_sql_is_told_with_code_4(statement: str, says: str, shop: str, look: Any) -> None:
    done = look(shop, statement)
    assert done.code == 4
    assert done.out in ("", "abs(-9223372036854775808)\n"), "an error may come after the titles"
    assert says in done.err
    assert "Traceback" not in done.err
    assert json.loads(look(shop, statement, "--json").err)["error"]["exit_code"] == 4


@pytest.mark.parametrize("statement", [
    "INSERT INTO item(name) VALUES ('more')", "DELETE FROM item", "CREATE TABLE u(x)", "VACUUM", "DROP TABLE item",
    "VACUUM INTO 'copy.db'", "PRAGMA user_version=7", "ATTACH 'other.db' AS other",
    "UPDATE item SET name = 1 RETURNING id",
])  # fmt: skip
def test_writes_are_refused(
    statement: str, shop: str, look: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connect: Connect
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with open_storage(shop, create=False) as storage:
        before = storage.get_commit_lsn()
        assert look(shop, statement).code == 4
        assert storage.get_commit_lsn() == before
    assert os.listdir(".") == []


def test_a_writer_is_not_disturbed(shop: str, look: Any, connect: Connect) -> None:
    writer = connect(shop)
    writer.execute("BEGIN IMMEDIATE; DELETE FROM item")
    assert look(shop, "SELECT count(*) FROM item").out == "count(*)\n2\n"
    writer.execute("COMMIT")
    assert look(shop, "SELECT count(*) FROM item").out == "count(*)\n0\n"


def test_what_is_not_there_is_named_and_not_created(shop: str, look: Any, tmp_path: Path) -> None:
    for arguments, code, says in (
        ([shop, "SELECT 1", "--branch", "no-such"], 5, "'no-such'"), ([shop, "SELECT 1", "--at", "999"], 5, "999"),
        ([f"file://{tmp_path}/missing.db", "SELECT 1"], 5, "missing.db"), (["ftp://x/y", "SELECT 1"], 2, "ftp"),
        ([shop, "SELECT 1", "--at", "-3"], 2, "-3"), ([shop], 2, "SQL"),
    ):  # fmt: skip
        done = look(*arguments)
        assert (done.code, done.out) == (code, "")
        assert says in done.err
    assert not (tmp_path / "missing.db").exists()


def test_the_bare_path_of_a_page_file_and_a_native_file_will_do(tmp_path: Path, look: Any, connect: Connect) -> None:
    pages = connect(f"file://{tmp_path}/pages.db", page_size=1024)
    pages.execute("CREATE TABLE t(x); INSERT INTO t VALUES ('pages')")
    connect(f"{tmp_path}/native.db").execute("CREATE TABLE t(x); INSERT INTO t VALUES ('native')")
    assert look(f"{tmp_path}/pages.db", "SELECT x FROM t").out == "x\npages\n"
    assert look(f"{tmp_path}/native.db", "SELECT x FROM t").out == "x\nnative\n"
