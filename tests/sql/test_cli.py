"""`onto sql` runs statements, prints them in three ways, and talks."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from ontolake.cli import main
from ontolake.sql import open_database


@pytest.fixture
def shop(native_place: str, capsys: pytest.CaptureFixture[str]) -> str:
    sql = ("CREATE TABLE item (id BIGINT PRIMARY KEY, name TEXT, price DECIMAL(8, 2), at TIMESTAMP, raw BYTEA); "
           "INSERT INTO item VALUES (1, 'tea', 2.5, '2026-01-01 10:00', '\\x00ff'), (2, NULL, NULL, NULL, NULL)")
    assert main(["sql", native_place, sql]) == 0
    assert capsys.readouterr().out == "CREATE TABLE\nINSERT 2\n"
    return native_place


def test_output(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT * FROM item ORDER BY id"
    assert main(["sql", shop, query]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "id\tname\tprice\tat\traw", "1\ttea\t2.50\t2026-01-01 10:00:00\t\\x00ff", "2\t-\t-\t-\t-"]
    assert main(["sql", shop, query, "--csv"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "id,name,price,at,raw", "1,tea,2.50,2026-01-01 10:00:00,\\x00ff", "2,,,,"]
    assert main(["sql", shop, query, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "status": "SELECT 2", "columns": ["id", "name", "price", "at", "raw"],
        "rows": [[1, "tea", "2.50", "2026-01-01 10:00:00", {"hex": "00ff"}], [2, None, None, None, None]]}
    assert main(["sql", shop, "DELETE FROM item WHERE id = 2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"status": "DELETE 1", "count": 1}
    assert main(["sql", shop, "SELECT count(*) FROM item", "--as-of", "2"]) == 0
    assert capsys.readouterr().out == "count\n2\n"


def test_errors_are_told_in_a_line_or_two(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    taken = "INSERT INTO item (id) VALUES (1)"
    for sql, code in (("SELECT nam FROM item", 4), ("SELEC", 2), (taken, 6), ("LISTEN x", 4)):
        assert main(["sql", shop, sql]) == code
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("error: ")
        assert "Traceback" not in said.err
    assert main(["sql", f"{shop}.missing.db", "SELECT 1"]) != 0
    assert main(["sql", shop, "SELECT 1", "--csv", "--json"]) == 2


def test_a_talk(shop: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["\\d", "\\d item", "SELECT name", "FROM item WHERE id = 1;", "SELECT nam FROM item;", "\\timing",
             "BEGIN; DELETE FROM item;", "ROLLBACK;", "\\timing", "\\v", "\\?",
             "SELECT count(*) FROM item"]  # fmt: skip
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    assert main(["sql", shop]) == 4  # a script in which a statement failed did not go well
    said = capsys.readouterr()
    for expected in ("main.public.item\t5\t0", "price\tDECIMAL(8, 2)", "name\ntea", "DELETE 2", " ms", "timing is off",
                     "\\timing", "count\n2"):  # fmt: skip
        assert expected in said.out
    assert "did you mean name?" in said.err
    assert "at character 8" in said.err


def test_a_talk_takes_statements_whole(
    shop: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["SELECT 'a;", "b' AS x;", "SELECT 2 -- not here;", "AS y;", "SELECT 3 AS z; -- done", "\\dx",
             "ALTER TABLE item ADD CONSTRAINT cheap CHECK (price < 100);",
             "CREATE INDEX i ON item (name DESC) INCLUDE (at);", "\\d item", "\\d nothing"]  # fmt: skip
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    assert main(["sql", shop]) == 2
    said = capsys.readouterr()
    for expected in ("x\na;\\nb\n", "y\n2\n", "z\n3\n", "check cheap (price < 100)",
                     "index i (name DESC) with at, public"):  # fmt: skip
        assert expected in said.out
    assert "there is no command \\dx" in said.err
    assert "there is no table main.public.nothing\n" in said.err
    assert "at character" not in said.err


def test_a_table_is_shown_with_its_rules_and_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    place = f"{tmp_path}/t.db"
    with open_database(place) as db:
        db.execute("CREATE TABLE p (id INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY); COMMENT ON TABLE p IS 'parents'")
        db.execute("CREATE TABLE c (p INT REFERENCES p, g INT GENERATED ALWAYS AS (p * 2) STORED)")
        db.execute("CREATE INDEX few ON c (lower(g::text)) WHERE p > 5; COMMENT ON COLUMN c.p IS 'the parent'")
    monkeypatch.setattr(sys, "stdin", io.StringIO("\\d p\n\\d c\n"))
    assert main(["sql", place]) == 0
    said = capsys.readouterr().out
    for part in ("identity, always", "-- parents", "foreign key c_p_fkey (p) references main.public.p", "-- the parent",
                 "generated as (p * 2)", "index few (LOWER(", 'where "p" > 5, public'):
        assert part in said
    assert "onto_row" not in said


def test_a_talk_knows_the_words_that_people_bring_along(
    shop: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\\dt\nhelp\nquit;\nSELECT nothing;\n"))
    assert main(["sql", shop]) == 0
    said = capsys.readouterr()
    assert "main.public.item\t5\t0" in said.out
    assert "this help" in said.out
    assert said.err == ""


def test_several_statements_show_what_each_gives(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", shop, "SELECT 1 AS a; SELECT 2 AS b"]) == 0
    assert capsys.readouterr().out == "a\n1\nb\n2\n"
    assert main(["sql", shop, "SELECT 1 AS a; SELECT nam FROM item; SELECT 2 AS b"]) == 4
    assert capsys.readouterr().out == "a\n1\n"
    assert main(["sql", shop, "SELECT 1 AS a; SELECT 2 AS b", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["columns"] == ["b"]


def test_the_verbs_of_any_store_know_tables(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("info", "log", "verify", "export", "gc"):
        assert main([verb, shop]) == 0, verb
    assert "main.public.item" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "\n\n", "\\?\n", "\\q\n", "\\timing\n", "help\nquit\n"])
def test_a_talk_in_which_nothing_is_run_makes_no_file(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    for name in ("new.db", f"file://{tmp_path}/pages.db", f"file://{tmp_path}/objects"):
        monkeypatch.chdir(tmp_path)
        assert main(["sql", name]) == 0
    for statement in ("", "  ", ";", "/* nothing */"):
        assert main(["sql", "new.db", statement]) != 0
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in capsys.readouterr().err


def test_a_talk_makes_the_tables_that_it_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("CREATE TABLE t (id INT PRIMARY KEY);\nINSERT INTO t VALUES (1);"))
    assert main(["sql", f"{tmp_path}/new.db"]) == 0
    with open_database(f"{tmp_path}/new.db", readonly=True) as db:
        assert db.execute("SELECT * FROM t").fetchall() == [(1,)]
