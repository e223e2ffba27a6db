"""An erased row is gone from every commit, branch, tag, moved range and byte; all other rows stay at every version."""

from __future__ import annotations

import multiprocessing
import runpy
import secrets
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake import faults
from ontolake.errors import Contended, Invalid, NotFound
from ontolake.history.erasures import KeyHash
from ontolake.history.metadata import ERASED, KIND, STATEMENT
from ontolake.sql import Database, TransactionError, open_database
from ontolake.sql.conformance import SqlVersioning
from ontolake.sql.keyspace import keys
from ontolake.sql.types import TEXT

SECRET, TABLE, WHY = "needle-in-a-haystack", "main.public.people", "asked for by its owner"
MADE = """
CREATE DATABASE main; CREATE SCHEMA main.public;
CREATE TABLE people (id TEXT PRIMARY KEY, city TEXT, born BIGINT);
CREATE INDEX by_city ON people (city);
CREATE UNIQUE INDEX by_born ON people (born DESC) INCLUDE (city);
"""
PLACES: dict[str, Callable[[Path], str]] = {
    "native": lambda folder: f"{folder}/shop.db",
    "pages": lambda folder: f"file://{folder}/pages.db",
    "directory": lambda folder: f"file://{folder}/pages/",
    "memory": lambda folder: f"memory://{secrets.token_hex(6)}",
}


@pytest.fixture(params=slow_after(2, [*PLACES, "seaweed"]))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "seaweed":
        return f"{request.getfixturevalue('seaweed_url')}/{secrets.token_hex(6)}"
    return PLACES[request.param](tmp_path)


def filled(db: Database) -> None:
    """Versions of two people, one of whom is to be erased; the texts of statements name her too."""
    db.execute(MADE)
    db.execute(f"INSERT INTO people VALUES ('{SECRET}', 'city-of-{SECRET}', 1970), ('ada', 'London', 1815)",
               message=f"add {SECRET} and ada", author="clerk")  # fmt: skip
    db.execute(f"UPDATE people SET city = 'second-city-of-{SECRET}' WHERE id = ?", (SECRET,))
    db.execute("UPDATE people SET city = 'Paris' WHERE id = 'ada'")
    db.execute("UPDATE people SET born = born + 1")


def stored(url: str) -> bytes:
    return b"\n".join(SqlVersioning.stored(url) or ())


def states(db: Database) -> dict[int, list[Any]]:
    """All rows but the secret one, at every version that has the table."""
    found = {}
    for version in range(1, db.version() + 1):
        snapshot = db.snapshot(version)
        if TABLE in snapshot.tables():
            found[version] = [row for key, row in snapshot.rows(TABLE) if key != SECRET]
    return found


def test_a_row_is_gone_and_all_others_stay_at_every_version(url: str) -> None:
    with open_database(url) as db:
        filled(db)
        before, log = states(db), list(db.commits())
        expected = db.erase(TABLE, SECRET, reason=WHY)
        assert expected.items > 6
    assert SECRET.encode() in stored(url)
    with open_database(url) as db:
        assert db.query("SELECT count(*) AS n FROM people").to_pylist() == [{"n": 2}]
        assert db.erase("people", SECRET, reason=WHY, dry_run=False, author="clerk") == expected
        assert db.query("SELECT id FROM people").to_pylist() == [{"id": "ada"}]
        assert db.query("SELECT id FROM people WHERE born > 0", as_of=6).to_pylist() == [{"id": "ada"}]
        assert {version: rows for version, rows in states(db).items() if version in before} == before
        assert not list(db.history(TABLE, SECRET))
        assert all(SECRET not in str(row) for rows in states(db).values() for row in rows)
        audit, *older = db.commits()
        assert [(each.id, each.time, each.author) for each in older] == [(each.id, each.time, each.author)
                                                                         for each in log]  # fmt: skip
        assert (audit.message, audit.author, audit.metadata[KIND]) == (WHY, "clerk", "erasure")
        kept = audit.metadata[ERASED]
        assert (kept["table"], kept["items"], kept["bytes"]) == (TABLE, *expected)
        assert KeyHash(kept["salt"], kept["hash"]).is_of(TABLE, SECRET)
        assert not KeyHash(kept["salt"], kept["hash"]).is_of(TABLE, "ada")
        assert not list(db.verify())
        db.execute("INSERT INTO people VALUES ('bob', 'Rome', 1990)")
    assert SECRET.encode() not in stored(url)
    with open_database(url) as db:
        assert not list(db.verify())
        assert db.query("SELECT count(*) AS n FROM people").to_pylist() == [{"n": 2}]


def test_texts_of_statements_keep_their_form_and_lose_their_values(tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/t.db") as db:
        filled(db)
        db.execute(f"UPDATE people SET city = '-- not {SECRET}' WHERE id = 'ada'")
        db.execute("INSERT INTO people VALUES ('eve', 'Bonn', 3)", message=f"instead of {SECRET}")
        db.erase(TABLE, SECRET, reason=WHY, dry_run=False)
        texts = [str(commit.metadata[STATEMENT]) for commit in db.commits()]
        assert "INSERT INTO people VALUES (…, …, …), (…, …, …)" in texts
        assert "UPDATE people SET born = born + …" in texts
        assert "INSERT INTO people VALUES ('eve', 'Bonn', 3)" in texts
        assert "UPDATE people SET city = 'Paris' WHERE id = 'ada'" in texts
        assert "-- erased" in texts
        messages = [commit.message for commit in db.commits() if commit.message]
        assert messages == [WHY, "instead of [erased]", "add [erased] and ada"]


@pytest.mark.parametrize("place", slow_after(2, ["native", "pages", "directory"]))
def test_branches_tags_and_deleted_branches_lose_the_row_and_keep_their_history(place: str, tmp_path: Path) -> None:
    url = PLACES[place](tmp_path)
    with open_database(url) as db:
        filled(db)
        db.branches.create("try")
        db.branches.create("gone", parent="try")
        with open_database(url, branch="gone") as other:
            other.execute(f"UPDATE people SET city = 'gone-{SECRET}' WHERE id = '{SECRET}'")
        db.branches.create("child", parent="gone")
        db.merge("gone", "try")
        db.branches.delete("gone")
        with open_database(url, branch="try") as other:
            other.execute("UPDATE people SET city = 'Wien' WHERE id = 'ada'")
        db.tags.create("v1", "main~1", message=f"with {SECRET}")
        db.execute("INSERT INTO people VALUES ('bob', 'Rome', 1990)")
        db.branches.protect("main")
        branches = db.branches.list()
        log = {name: [commit.id for commit in db.commits(branch=name)] for name in ("main", "try", "child")}
        assert [key for key, _ in db.at("v1").rows(TABLE)] == ["ada", SECRET]
        db.erase(TABLE, SECRET, reason=WHY, dry_run=False)
        assert [each._replace(head=0) for each in db.branches.list()] == [each._replace(head=0) for each in branches]
        for ref in ("main", "try", "child", "v1", "@4", "try~1"):
            assert SECRET not in str(list(db.at(ref).rows(TABLE))), ref
        assert [commit.id for commit in db.commits()][1:] == log["main"]
        assert {name: [commit.id for commit in db.commits(branch=name)] for name in ("try", "child")} == \
            {name: log[name] for name in ("try", "child")}  # fmt: skip
        result = db.merge("try")
        assert result.commit is not None
        assert len(result.commit.parents) == 2
        assert db.query("SELECT city FROM people WHERE id = 'ada'").to_pylist() == [{"city": "Wien"}]
        db.branches.create("later", parent="child")
        db.tags.create("v2")
        assert db.merge("child").status != "conflicts"
        db.branches.delete("child")
        db.gc(dry_run=False)
    assert SECRET.encode() not in stored(url)
    with open_database(url) as db:
        assert not list(db.verify())
        assert db.tags.list()[0].message == "with [erased]"


def test_a_second_erasure_finds_bases_that_pages_do_not_tell_any_more(tmp_path: Path) -> None:
    url = PLACES["pages"](tmp_path)
    with open_database(url) as db:
        filled(db)
        db.branches.create("try", at=5)
        before = db.branches.list()[1]
        db.erase(TABLE, SECRET, reason=WHY, dry_run=False)
        db.execute("INSERT INTO people VALUES ('bob', 'Rome', 1990)")
        db.erase(TABLE, "bob", reason=WHY, dry_run=False)
        assert db.branches.list()[1] == before
        assert db.merge("try").status == "up_to_date"
    with open_database(url) as db:
        assert db.branches.list()[1] == before
        with pytest.raises(NotFound):
            db.branches.create("old", at=5)


def _row(key: str) -> bytes:
    return keys.row_prefix(100) + keys.encode_tuple([TEXT], [key])


@pytest.mark.parametrize("place", slow_after(1, ["native", "pages"]))
def test_moved_ranges_lose_the_row_and_no_range_begins_at_it(place: str, tmp_path: Path) -> None:
    url, home = PLACES[place](tmp_path), "home.db" if place == "native" else "file://home.db"
    with open_database(url) as db:
        filled(db)
        start = keys.row_prefix(100)
        for at in (start, _row("b"), _row(SECRET)):
            db.ranges.split(at)
        db.ranges.move(_row("b"), home if place == "native" else f"file://{tmp_path}/home.db")
        db.ranges.move(_row(SECRET), home if place == "native" else f"file://{tmp_path}/other.db")
        db.execute("INSERT INTO people VALUES ('zoe', 'Oslo', 1)")
        db.branches.create("try")
        with open_database(url, branch="try") as other:
            other.execute(f"UPDATE people SET city = 'far {SECRET}' WHERE id = '{SECRET}'")
        assert any(SECRET.encode() in path.read_bytes() for path in tmp_path.iterdir())
        before = states(db)
        db.erase(TABLE, SECRET, reason=WHY, dry_run=False)
        assert {version: rows for version, rows in states(db).items() if version in before} == before
        assert all(SECRET.encode() not in each.start for each in db.ranges.list())
        assert sorted(row["id"] for row in db.query("SELECT id FROM people").to_pylist()) == ["ada", "zoe"]
        db.execute(f"INSERT INTO people VALUES ('{SECRET[:9]}', 'Nice', 2)")
        assert not list(db.verify())
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.iterdir())


def test_only_the_row_itself_goes_not_one_whose_key_ends_alike(tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/t.db") as db:
        db.execute("CREATE DATABASE main; CREATE SCHEMA main.public; "
                   "CREATE TABLE t (a BYTEA, b BYTEA, PRIMARY KEY (a, b)); CREATE INDEX by_b ON t (b, a)")
        alike = b"x\x08\x00\xff\x01"
        for a, b in ((b"\xff", b"\xff\x01"), (alike, b"\xff\x01"), (b"\xff", alike), (b"\xff", b"q")):
            db.execute("INSERT INTO t VALUES (?, ?)", (a, b))
        db.erase("main.public.t", (b"\xff", b"\xff\x01"), reason=WHY, dry_run=False)
        assert not list(db.verify())
        assert len(db.query("SELECT * FROM t").to_pylist()) == 3
        assert len(db.query("SELECT b FROM t WHERE b > ?", (b"",)).to_pylist()) == 3


def test_keys_of_an_earlier_type_and_tables_that_were_dropped_are_found(tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/t.db") as db:
        db.execute("CREATE DATABASE main; CREATE SCHEMA main.public; CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)")
        db.execute(f"INSERT INTO t VALUES (7, '{SECRET}'), (8, 'b')")
        db.execute("ALTER TABLE t ALTER COLUMN k TYPE NUMERIC(12, 0)")
        db.execute("DROP TABLE t")
        db.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, v TEXT)")
        db.execute(f"INSERT INTO t VALUES (7, '{SECRET}'), (9, 'c')")
        with pytest.raises(NotFound):
            db.erase("main.public.t", 10, reason=WHY)
        db.erase("main.public.t", 7, reason=WHY, dry_run=False)
        assert [[key for key, _ in db.snapshot(version).rows("main.public.t")] for version in (4, 8)] == [[8], [9]]
    assert SECRET.encode() not in stored(f"{tmp_path}/t.db")


def test_bad_input_changes_nothing(tmp_path: Path) -> None:
    url = PLACES["pages"](tmp_path)
    with open_database(url) as db:
        filled(db)
        before = db.version()
        for table, key in (("main.public.none", "x"), (TABLE, "nobody")):
            with pytest.raises(NotFound):
                db.erase(table, key, reason=WHY, dry_run=False)
        wrong: list[tuple[Any, Any]] = [("ada", ""), ("ada", " "), ("ada", None), ("ada", "because ada asked"),
                                        (("ada", 1), WHY), (3.5, WHY)]  # fmt: skip
        for what, reason in wrong:
            with pytest.raises(Invalid):
                db.erase(TABLE, what, reason=reason, dry_run=False)
        with pytest.raises(Invalid):
            db.erase(TABLE, "ada", reason=WHY, author=3, dry_run=False)  # type: ignore[arg-type]
        with db.transaction(), pytest.raises(TransactionError):
            db.erase(TABLE, "ada", reason=WHY, dry_run=False)
        assert db.version() == before
    with open_database(url, readonly=True) as db:
        assert db.erase(TABLE, "ada", reason=WHY).items
        with pytest.raises(TransactionError):
            db.erase(TABLE, "ada", reason=WHY, dry_run=False)
    with pytest.raises(Invalid):
        db.erase(TABLE, "ada", reason=WHY)


def test_a_reader_keeps_bytes_in_the_log_until_it_ends_and_the_row_is_erased_again(tmp_path: Path) -> None:
    url = PLACES["native"](tmp_path)
    with open_database(url) as db, closing(open_database(url, readonly=True)) as reader:
        filled(db)
        reader.execute("BEGIN READ ONLY")
        assert reader.query("SELECT count(*) AS n FROM people").to_pylist() == [{"n": 2}]
        db.session.connection.set_busy_timeout(1)
        with pytest.raises(Contended, match="read on"):
            db.erase(TABLE, SECRET, reason=WHY, dry_run=False)
        assert db.query("SELECT id FROM people").to_pylist() == [{"id": "ada"}]
        reader.execute("ROLLBACK")
        assert db.erase(TABLE, SECRET, reason=WHY).items > 6, "what was found at first"
        assert db.erase(TABLE, SECRET, reason=WHY, dry_run=False).items > 6
        with pytest.raises(NotFound):
            db.erase(TABLE, SECRET, reason=WHY, dry_run=False)
    assert SECRET.encode() not in stored(url)


# crashes


STEPS = ("sql: ", "compact: ", "index: ", "object: ", "file: holes")
"""Fault points of an erasure: its own, and those of what it leads to."""


class _KillAt:
    def __init__(self, number: int) -> None:
        self.number = number
        self.seen: list[str] = []

    def __call__(self, name: str) -> None:
        if name.startswith(STEPS):
            self.seen.append(name)
            if len(self.seen) - 1 == self.number:
                faults.kill()


def _erase(url: str, number: int) -> list[str]:
    """Erase the row and die at a fault point. Returns those that were reached."""
    hook = _KillAt(number)
    with open_database(url, takeover="://" in url) as db, faults.arm(hook):
        db.erase(TABLE, SECRET, reason=WHY, dry_run=False)
    return hook.seen


def _made(place: str, folder: Path) -> str:
    folder.mkdir()
    url = PLACES[place](folder)
    with open_database(url) as db:
        filled(db)
        db.branches.create("try")
        with open_database(url, branch="try") as other:
            other.execute(f"UPDATE people SET city = '{SECRET}' WHERE id = '{SECRET}'")
        db.tags.create("v1", "main~2")
    return url


@pytest.mark.slow
@pytest.mark.parametrize("place", ["native", "pages", "directory"])
def test_killed_at_any_step_the_same_call_finishes(place: str, tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["ontolake.sql", "datafusion"])
    points = _erase(_made(place, tmp_path / "all"), -1)
    assert {"sql: erasure noted", "sql: row deleted", "sql: database written anew", "sql: erasure finished"} <= \
        set(points)  # fmt: skip
    done = points.index("sql: erasure finished")
    for number, point in enumerate(points):
        url = _made(place, tmp_path / str(number))
        child = context.Process(target=runpy.run_path, args=(__file__, {"arguments": (url, number)}, "__child__"))
        child.start()
        child.join(120)
        assert child.exitcode == -9, point
        with open_database(url, takeover="://" in url) as db:
            try:
                db.erase(TABLE, SECRET, reason=WHY, dry_run=False)
            except NotFound:
                assert number > done, point
            assert [each.metadata.get(KIND) for each in db.commits()].count("erasure") == 1, point
            assert not list(db.verify())
            for ref in ("main", "try", "v1"):
                assert [key for key, _ in db.at(ref).rows(TABLE)] == ["ada"], (point, ref)
        assert SECRET.encode() not in stored(url), point


if __name__ == "__child__":
    _erase(*globals()["arguments"])
