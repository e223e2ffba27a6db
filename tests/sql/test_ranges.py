"""Ranges can be split, moved and merged, and a commit over several is whole or not there."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pytest
from marking import slow_after
from sql_work import work

from ontolake import faults
from ontolake.cli import main
from ontolake.errors import AlreadyExists, Invalid, NotFound
from ontolake.sql import Database, SqlError, open_database
from ontolake.sql.keyspace import keys
from ontolake.sql.types import BIGINT
from ontolake.storage import open_storage

PLACES = {
    "native": lambda folder: (f"{folder}/main.db", [f"{folder}/one.db", f"{folder}/two.db"]),
    "pages": lambda folder: (f"file://{folder}/main.db", [f"file://{folder}/one.db", f"file://{folder}/two.db"]),
    "memory": lambda folder: (f"memory://{secrets.token_hex(4)}",
                              [f"memory://{secrets.token_hex(4)}" for _ in range(2)]),
}


def row_key(id: int) -> bytes:
    return keys.row_prefix(100) + keys.encode_tuple([BIGINT], [id])


INDEX = keys.entry_prefix(100, 1)


def fill(db: Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b TEXT); CREATE INDEX by_a ON t (a)")
    db.bulk_load("t", pa.table({"id": range(200), "a": [n % 10 for n in range(200)], "b": ["x"] * 200}))
    db.execute("UPDATE t SET b = 'y' WHERE id < 50")
    db.execute("DELETE FROM t WHERE id = 120")


def state(db: Database) -> Any:
    return {
        "rows": sorted(db.execute("SELECT id, a, b FROM t").fetchall()),
        "by index": sorted(db.execute("SELECT id FROM t WHERE a = 3").fetchall()),
        "points": [db.execute("SELECT b FROM t WHERE id = ?", (id,)).fetchall() for id in (5, 120, 150, 199, 500)],
        "past": [sorted(db.execute(f"SELECT id, b FROM t FOR SYSTEM_TIME AS OF {at}").fetchall()) for at in (3, 4, 5)],
        "many": sorted(db.execute("SELECT id FROM t WHERE id IN (1, 99, 100, 101, 150)").fetchall()),
        "damage": list(db.verify()),
    }  # fmt: skip


def spread(db: Database, urls: list[str]) -> None:
    """Half of the rows in one database, the index in another."""
    db.ranges.split(row_key(100))
    db.ranges.split(INDEX)
    db.ranges.move(row_key(100), urls[0])
    db.ranges.move(INDEX, urls[1])


@pytest.mark.parametrize("place", slow_after(1, PLACES))
def test_moved_ranges_read_and_write_as_before(place: str, tmp_path: Path) -> None:
    url, urls = PLACES[place](tmp_path)
    with open_database(url) as db, open_database(":memory:") as plain:
        fill(db)
        fill(plain)
        before = state(db)
        spread(db, urls)
        assert [each.url for each in db.ranges.list()] == ["", urls[0], urls[1]]
        found: Any = db._session.connection.execute(
            "SELECT count(*) FROM kv WHERE key >= ? AND key < ?", (row_key(100), INDEX)).get  # fmt: skip
        assert found == 0, "nothing of a range stays behind"
        assert state(db) == before
        for each in (db, plain):
            each.execute("UPDATE t SET a = a + 1, b = 'z' WHERE id BETWEEN 90 AND 110")
            each.execute("INSERT INTO t VALUES (120, 3, 'back'), (-1, 3, 'new') ON CONFLICT DO NOTHING")
            with each.transaction():
                each.execute("DELETE FROM t WHERE id IN (1, 199)")
                each.execute("SAVEPOINT s")
                each.execute("DELETE FROM t")
                each.execute("ROLLBACK TO s")
            with pytest.raises(SqlError):
                each.execute("INSERT INTO t VALUES (1, 1, 'x'), (150, 1, 'x')")
            each.bulk_load("t", pa.table({"id": [*range(-100, -40), *range(1000, 1060)]}))
        assert state(db) == state(plain)
        assert [tuple(change) for change in db.changes(5)] == [tuple(change) for change in plain.changes(5)]
        db.retain(6)
        plain.retain(6)
        assert db.gc(dry_run=False) == plain.gc(dry_run=False)
        last = sorted(db.execute("SELECT * FROM t").fetchall())
    with open_database(url) as db:
        assert sorted(db.execute("SELECT * FROM t").fetchall()) == last
        db.ranges.merge(INDEX)
        db.ranges.merge(row_key(100))
        assert [each.url for each in db.ranges.list()] == [""]
        assert sorted(db.execute("SELECT * FROM t").fetchall()) == last
        assert list(db.verify()) == []


def test_the_first_and_last_rows_of_moved_ranges_are_found_without_the_others(tmp_path: Path) -> None:
    url, urls = PLACES["native"](tmp_path)
    with open_database(url) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
        db.bulk_load("t", pa.table({"id": range(20_000), "a": range(20_000)}))
        version = db.version()
        for start, place in zip((5000, 15_000), urls, strict=True):
            db.ranges.split(row_key(start))
            db.ranges.move(row_key(start), place)
        db.execute("UPDATE t SET a = 0 WHERE id % 2 = 0; DELETE FROM t WHERE id > 19000")
        whole = work(db, lambda: db.query("SELECT * FROM t"))
        for rest, at, expected in (
            ("ORDER BY id DESC LIMIT 2", None, [19_000, 18_999]),
            ("ORDER BY id DESC LIMIT 2", version, [19_999, 19_998]),
            ("WHERE id < 15001 ORDER BY id DESC LIMIT 3", None, [15_000, 14_999, 14_998]),
            ("WHERE id >= 4999 ORDER BY id LIMIT 3", version, [4999, 5000, 5001]),
            ("WHERE a = 14999 OR a = 101 ORDER BY id LIMIT 1", None, [101]),
        ):  # fmt: skip
            sql = f"SELECT id FROM t {rest}"
            assert db.query(sql, as_of=at).to_pydict() == {"id": expected}
            assert work(db, lambda sql=sql, at=at: db.query(sql, as_of=at)) < whole // 2  # type: ignore[misc]


@pytest.mark.slow
def test_a_range_moves_on_and_back(tmp_path: Path) -> None:
    url, urls = PLACES["native"](tmp_path)
    with open_database(url) as db:
        fill(db)
        before = state(db)
        db.ranges.split(row_key(100))
        for target in (urls[0], urls[1], urls[0], "", urls[0]):
            db.ranges.move(row_key(100), target)
            assert state(db) == before
        db.execute("UPDATE t SET b = 'q' WHERE id = 150")
        with open_database(url, readonly=True) as other:
            assert other.execute("SELECT b FROM t WHERE id = 150").fetchall() == [("q",)]
            db.ranges.move(row_key(100), "")
            assert other.execute("SELECT b FROM t WHERE id = 150").fetchall() == [("q",)]


def test_a_range_that_comes_home_brings_its_past_along(tmp_path: Path) -> None:
    url, urls = PLACES["native"](tmp_path)
    with open_database(url) as db, open_database(url, readonly=True) as other:
        fill(db)
        version = db.version()
        db.ranges.split(row_key(100))
        db.ranges.move(row_key(100), urls[0])
        db.execute("UPDATE t SET b = 'all here' WHERE id < 100")
        for each in (db, other):
            assert each.query("SELECT id FROM t", as_of=version).num_rows == 199
        db.ranges.merge(row_key(100))
        for each in (db, other):
            assert each.query("SELECT id FROM t", as_of=version).num_rows == 199


class Stopped(BaseException):
    pass


def at(wanted: str, number: int) -> Any:
    seen = 0

    def hook(step: str) -> None:
        nonlocal seen
        if step == wanted:
            seen += 1
            if seen == number:
                raise Stopped

    return hook


@pytest.mark.parametrize(("step", "number"), slow_after(1, [
    ("sql: range committed", 1), ("sql: range committed", 2), ("sql: commit written", 1)]))  # fmt: skip
def test_a_commit_that_stops_between_ranges_is_not_there(step: str, number: int, tmp_path: Path) -> None:
    url, urls = PLACES["native"](tmp_path)
    with open_database(url) as db:
        fill(db)
        spread(db, urls)
        before = state(db)
        version = db.version()
        with faults.arm(at(step, number)), pytest.raises(Stopped):
            db.execute("UPDATE t SET a = a + 1, b = 'lost'")
        assert db.version() == version
        assert state(db) == before, "readers do not look past what is published"
        with open_database(url, readonly=True) as other:
            assert state(other) == before
    with open_database(url) as db:
        db.execute("INSERT INTO t VALUES (7777, 3, 'next')")
        assert db.execute("SELECT count(*) FROM t WHERE b = 'lost'").fetchall() == [(0,)]
        assert db.execute("SELECT count(*) FROM t").fetchall() == [(200,)]
        assert list(db.verify()) == []
        db.execute("UPDATE t SET a = a + 1, b = 'kept'")
        assert db.execute("SELECT count(*) FROM t WHERE b = 'kept'").fetchall() == [(200,)]
        assert list(db.verify()) == []


@pytest.mark.parametrize("step", ["sql: range copied", "sql: range moved", "sql: range split", "sql: range merged"])
def test_a_change_of_ranges_that_stops_can_be_made_again(step: str, tmp_path: Path) -> None:
    url, urls = PLACES["native"](tmp_path)
    with open_database(url) as db:
        fill(db)
        before = state(db)

        def all_of_it() -> None:
            starts = [each.start for each in db.ranges.list()]
            if row_key(100) not in starts:
                db.ranges.split(row_key(100))
            db.ranges.move(row_key(100), urls[0])
            db.ranges.merge(row_key(100))

        with faults.arm(at(step, 1)), pytest.raises(Stopped):
            all_of_it()
        assert state(db) == before
    with open_database(url) as db:
        assert state(db) == before
        all_of_it()
        assert state(db) == before
        assert len(db.ranges.list()) == 1


@pytest.mark.parametrize("place", slow_after(2, ["memory", "native", "pages"]))
def test_a_database_whose_ranges_have_moved_can_be_branched(place: str, tmp_path: Path) -> None:
    url, urls = PLACES[place](tmp_path)
    with open_database(url) as db:
        fill(db)
        spread(db, urls)
        version, before = db.version(), state(db)
        db.execute("UPDATE t SET b = 'main', a = 3 WHERE id IN (3, 150)")
        on_main = state(db)
        db.branches.create("late")
        made = db.branches.create("early", at=version)
        assert (made.head, made.base, made.parent) == (version, version, "main")
        with open_database(url, branch="early") as early, open_database(url, branch="late") as late:
            assert state(early) == before
            assert state(late) == on_main
            early.execute("DELETE FROM t WHERE id IN (4, 151)")
            late.execute("INSERT INTO t VALUES (300, 3, 'late'), (-3, 3, 'late')")
            assert state(db) == on_main
            for each, rows in ((early, 197), (late, 201)):
                assert each.execute("SELECT count(*) FROM t").fetchall() == [(rows,)]
                assert list(each.verify()) == []
            found = {change.key: change.kind.value for change in db.diff(early.snapshot(), late.snapshot())}
            assert found == {3: "update", 150: "update", 4: "insert", 151: "insert", 300: "insert", -3: "insert"}
        with open_database(url, branch="early") as early:
            early.ranges.merge(INDEX)
            assert list(early.verify()) == []
        db.branches.delete("early")
        db.gc(dry_run=False)
        for home in urls if place != "native" else ():
            with open_storage(home) as storage:
                assert {each.name for each in storage.list_branches()} == {"main", "late"}
        assert state(db) == on_main


def test_a_branch_that_stops_between_ranges_is_not_there_and_can_be_made_again(tmp_path: Path) -> None:
    url, urls = PLACES["pages"](tmp_path)

    class Stopped(BaseException):
        pass

    def stop(step: str) -> None:
        if step == "sql: range branched":
            raise Stopped

    with open_database(url) as db:
        fill(db)
        spread(db, urls)
        with faults.arm(stop), pytest.raises(Stopped):
            db.branches.create("try")
        assert [each.name for each in db.branches.list()] == ["main"]
        db.execute("UPDATE t SET b = 'since' WHERE id = 150")
        db.branches.create("try")
        with open_database(url, branch="try") as branch:
            assert state(branch) == state(db)
        with pytest.raises(AlreadyExists):
            db.branches.create("try")
        with open_database(url, branch="try") as branch:
            assert state(branch) == state(db), "a refused one leaves the branch alone"


@pytest.mark.slow
@pytest.mark.parametrize("homes", [["one.db", "two.db"], ["one.db", "file://{}/two.db"]], ids=["native", "mixed"])
def test_branches_of_a_native_file_keep_their_ranges(homes: list[str], tmp_path: Path) -> None:
    url, urls = f"{tmp_path}/main.db", [each.format(tmp_path) for each in homes]
    with open_database(url) as db:
        fill(db)
        db.branches.create("early")
        spread(db, urls)
        with open_database(url, branch="early") as early:
            first = state(early)
            assert first == state(db)
            early.execute("UPDATE t SET a = 3, b = 'early' WHERE id > 90 AND id < 130")
            early.execute("DELETE FROM t WHERE id = 195")
            early.branches.create("later", parent="early")
            mine = state(early)
            published = early.version()
            for number in (1, 2):
                with faults.arm(at("sql: range committed", number)), pytest.raises(Stopped):
                    early.execute("UPDATE t SET a = 7, b = 'lost'")
            assert (early.version(), state(early)) == (published, mine), "nobody looks past what is published"
        db.execute("UPDATE t SET b = 'main' WHERE id > 180")
        own = state(db)
        with open_database(url, branch="early", readonly=True) as reader:
            assert state(reader) == mine
        db.ranges.move(row_key(100), "")  # with what was never published in it
        db.ranges.move(row_key(100), f"{tmp_path}/three.db")
        with open_database(url, branch="early") as early, open_database(url, branch="later") as later:
            assert state(early) == state(later) == mine
            later.execute("INSERT INTO t VALUES (195, 1, 'again')")
            assert state(early) == mine
            assert later.execute("SELECT b FROM t WHERE id = 195").fetchall() == [("again",)]
        assert state(db) == own
        result = db.merge("early", strategy="theirs")
        assert result.tables["main.public.t"].deleted == 1
        assert db.execute("SELECT count(*) FROM t WHERE b = 'early'").fetchall() == [(38,)]
        db.ranges.merge(row_key(100))
        db.ranges.merge(INDEX)
        assert not list(db.verify())
        with open_database(url, branch="early") as early:
            assert state(early) == mine
            early.execute("UPDATE t SET b = 'home' WHERE id = 150")
        for name in ("later", "early"):
            db.branches.delete(name)
        db.retain(db.version())
        db.gc(dry_run=False)
        assert not list(db.verify())


def test_a_database_with_a_range_in_a_native_file_has_no_branches(tmp_path: Path) -> None:
    url, _ = PLACES["pages"](tmp_path)
    with open_database(url) as db:
        fill(db)
        spread(db, [f"{tmp_path}/one.db", f"file://{tmp_path}/two.db"])
        with pytest.raises(SqlError, match="native SQLite file") as raised:
            db.branches.create("x")
        assert raised.value.sqlstate == "0A000"
        assert [each.name for each in db.branches.list()] == ["main"]


def test_wrong_ranges_are_refused(tmp_path: Path) -> None:
    url, urls = PLACES["pages"](tmp_path)
    with open_database(url) as db:
        fill(db)
        for key in (b"", b"\x05", "text"):
            with pytest.raises(SqlError):
                db.ranges.split(key)  # type: ignore[arg-type]
        db.ranges.split(row_key(100))
        with pytest.raises(SqlError):
            db.ranges.split(row_key(100))
        with pytest.raises(NotFound):
            db.ranges.move(row_key(7), urls[0])
        with pytest.raises(NotFound):
            db.ranges.merge(row_key(7))
        with open_database(urls[0]) as other:
            other.execute("CREATE TABLE x (id BIGINT PRIMARY KEY)")
        with pytest.raises(Invalid, match="holds tables already"):
            db.ranges.move(row_key(100), urls[0])
        db.ranges.move(row_key(100), urls[1])
        with pytest.raises(SqlError), db.transaction():
            db.ranges.split(row_key(5))


def test_a_range_begins_at_any_key_but_those_of_the_catalog(tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/main.db") as db:
        for key in (b"\x20", b"\xff" * 8):
            db.ranges.split(key)
        for key in (b"\x1f", b"\xff" * 9):
            with pytest.raises(SqlError, match="cannot begin a range") as raised:
                db.ranges.split(key)
            assert raised.value.sqlstate == "22023"
        assert [each.start for each in db.ranges.list()] == [b"", b"\x20", b"\xff" * 8]


def test_a_home_of_another_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with open_database(f"{tmp_path}/{name}.db") as db:
            fill(db)
            db.ranges.split(row_key(150))
    with open_database(f"{tmp_path}/one.db") as one, open_database(f"{tmp_path}/two.db") as two:
        one.ranges.move(row_key(150), "late.db")
        before = state(one)
        with pytest.raises(Invalid, match=r"late\.db holds ranges of another database"):
            two.ranges.move(row_key(150), "late.db")
        assert state(one) == state(two) == before
        one.ranges.move(row_key(150), "")
        one.ranges.move(row_key(150), "late.db")
        assert state(one) == before, "its own it can use again"


def test_a_home_keeps_up_with_versions_when_another_range_comes_to_it(tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/main.db") as db:
        fill(db)
        for start in (50, 100):
            db.ranges.split(row_key(start))
        db.ranges.move(row_key(100), "late.db")
        first = db.version()
        for n in range(20):
            db.execute("UPDATE t SET b = ? WHERE id = 60", (str(n),))
        db.ranges.move(row_key(50), "late.db")
        found = [db.query("SELECT b FROM t WHERE id = 60", as_of=first + 1 + n).to_pylist() for n in range(20)]
        assert found == [[{"b": str(n)}] for n in range(20)]
        assert list(db.verify()) == []


def test_nothing_of_a_move_that_stopped_stays_when_another_range_takes_the_place(tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/main.db") as db:
        fill(db)
        for start in (50, 100):
            db.ranges.split(row_key(start))
        with faults.arm(at("sql: range copied", 1)), pytest.raises(Stopped):
            db.ranges.move(row_key(50), "late.db")
        db.ranges.move(row_key(100), "late.db")
        home = apsw.Connection(f"{tmp_path}/late.db")
        for table in ("latest", "past", "gone"):
            assert home.execute(f"SELECT count(*) FROM {table} WHERE key < ?", (row_key(100),)).get == 0
        assert home.execute("SELECT count(*) FROM latest").get > 0  # type: ignore[operator]
        home.close()


def has_owner(db: Database) -> bool:
    return bool(db._session.connection.execute("SELECT count(*) FROM counter WHERE name = 'owner'").get)


@pytest.mark.parametrize("step", ["sql: owner of ranges kept", "sql: range copied", "sql: range moved"])
def test_a_first_move_that_stops_can_be_made_again_to_the_same_place(step: str, tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/main.db") as db:
        fill(db)
        db.ranges.split(row_key(100))
        assert not has_owner(db), "as after a split by an earlier release"
        before, version = state(db), db.version()
        with faults.arm(at(step, 1)), pytest.raises(Stopped):
            db.ranges.move(row_key(100), "late.db")
        assert has_owner(db), "kept before the place carries it"
        assert [each.url for each in db.ranges.list()] == ["", ""]
        assert state(db) == before
    with open_database(f"{tmp_path}/main.db") as db:
        db.ranges.move(row_key(100), "late.db")
        assert [each.url for each in db.ranges.list()] == ["", "late.db"]
        assert state(db) == before
        assert db.version() == version, "a move makes no version"


def test_a_move_of_no_range_draws_no_owner(tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/main.db") as db:
        fill(db)
        with pytest.raises(NotFound):
            db.ranges.move(row_key(7), "late.db")
        assert not has_owner(db)


def test_a_range_that_somebody_else_moves_first_is_moved_once(tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/main.db") as db, open_database(f"{tmp_path}/main.db") as other:
        fill(db)
        db.ranges.split(row_key(100))
        before = state(db)
        steps: list[str] = []

        def hook(step: str) -> None:
            steps.append(step)
            if steps.count("sql: owner of ranges kept") == 1 and step == "sql: owner of ranges kept":
                other.ranges.move(row_key(100), "late.db")

        with faults.arm(hook):
            db.ranges.move(row_key(100), "late.db")
        assert steps.count("sql: range copied") == 1
        for each in (db, other):
            assert [held.url for held in each.ranges.list()] == ["", "late.db"]
            assert state(each) == before


def test_a_home_that_an_earlier_release_marked_is_refused_and_left_alone(tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/main.db") as db:
        fill(db)
        db.ranges.split(row_key(100))
        with faults.arm(at("sql: range copied", 1)), pytest.raises(Stopped):
            db.ranges.move(row_key(100), "late.db")
        home = apsw.Connection(f"{tmp_path}/late.db")
        home.execute("UPDATE counter SET next = 1 WHERE name = 'range'")  # what earlier releases wrote, whoever it was
        held = home.execute("SELECT key, version, value FROM latest").fetchall()
        assert held
        before = state(db)
        with pytest.raises(Invalid, match=r"late\.db .* by an earlier release; whose is not known") as told:
            db.ranges.move(row_key(100), "late.db")
        assert "delete late.db" in str(told.value.hint)
        assert home.execute("SELECT key, version, value FROM latest").fetchall() == held
        home.close()
        assert state(db) == before
        for each in tmp_path.glob("late.db*"):
            each.unlink()
        db.ranges.move(row_key(100), "late.db")
        assert state(db) == before


def test_the_command_shows_ranges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, urls = PLACES["native"](tmp_path)
    with open_database(url) as db:
        fill(db)
        spread(db, urls)
    assert main(["sql", "ranges", url, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [each["url"] for each in shown] == [url, *urls]
    assert [each["begins_in"] for each in shown] == ["catalog", "rows of main.public.t", "indexes of main.public.t"]
    assert main(["sql", "ranges", url]) == 0
    assert row_key(100).hex() in capsys.readouterr().out


RELATIVE = {
    "native": ("main.db", ["late.db", "sqlite:///late%20rows.db", "deeper/late.db"]),
    "pages": ("file://{}/main.db", ["file://./late.db", "file://./deeper/late.db"]),
    "objects": ("file://{}/main", ["file://./late", "deeper/late/"]),
}


@pytest.fixture(params=slow_after(1, [f"{kind} {url}" for kind, (_, urls) in RELATIVE.items() for url in urls]))
def moved_beside(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """A folder with a database one of whose ranges is at a relative place, and the name of the database."""
    kind, url = request.param.split()
    folder = tmp_path / "made here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    name = RELATIVE[kind][0].format(str(folder).replace(" ", "%20"))
    with open_database(name) as db:
        fill(db)
        db.ranges.split(row_key(100))
        db.ranges.move(row_key(100), url)
        assert [each.url for each in db.ranges.list()] == ["", url]
    return folder, name.removeprefix("file://")


def url_of(folder: Path, name: str) -> str:
    """The URL of the database of that name, wherever its folder is now."""
    return f"file://{folder}/main{'.db' if name.endswith('.db') else ''}" if "/" in name else f"{folder}/{name}"


def files(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*")
            if each.is_file() and not each.name.endswith(("-wal", "-shm", ".lock"))}  # fmt: skip


def test_a_relative_place_is_beside_the_database_from_any_folder(
    moved_beside: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, name = moved_beside
    elsewhere, other = tmp_path / "elsewhere", tmp_path / "moved"
    elsewhere.mkdir()
    folder.rename(other)
    monkeypatch.chdir(elsewhere)
    for readonly in (True, False):
        with open_database(url_of(other, name), readonly=readonly) as db:
            assert len(db.execute("SELECT id FROM t").fetchall()) == 199
    with open_database(url_of(other, name)) as db:
        db.execute("UPDATE t SET b = 'far' WHERE id = 150")
        assert list(db.verify()) == []
        if "/" in name:  # not a native file, which has no branches
            db.branches.create("dev")
            with open_database(url_of(other, name), branch="dev") as dev:
                assert len(dev.execute("SELECT id FROM t").fetchall()) == 199
            db.branches.delete("dev")
    monkeypatch.chdir(other)
    with open_database(url_of(other, name)) as db:
        assert db.execute("SELECT b FROM t WHERE id = 150").fetchall() == [("far",)]
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("readonly", [True, False])
def test_a_range_whose_database_is_missing_is_an_error_that_creates_nothing(
    moved_beside: tuple[Path, str], tmp_path: Path, readonly: bool
) -> None:
    folder, name = moved_beside
    for home in (*folder.glob("late*"), *folder.glob("deeper")):
        home.rename(tmp_path / f"away-{home.name}")
    before = files(folder)
    wanted = rf"begins at {row_key(100).hex()} is in \S*late\S*, which cannot be used"
    with pytest.raises(NotFound, match=wanted) as told:
        open_database(url_of(folder, name), readonly=readonly)
    assert "nothing was read or created" in str(told.value.hint)
    assert files(folder) == before
    assert not [*folder.glob("late*"), *folder.glob("deeper")]
    for home in tmp_path.glob("away-*"):
        home.rename(folder / home.name.removeprefix("away-"))
    with open_database(url_of(folder, name), readonly=readonly) as db:
        assert len(db.execute("SELECT id FROM t").fetchall()) == 199


def test_another_database_in_the_place_of_a_range_is_refused(tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/main.db") as db:
        fill(db)
        db.ranges.split(row_key(100))
        db.ranges.move(row_key(100), "late.db")
    (tmp_path / "late.db").unlink()
    with open_database(f"{tmp_path}/late.db") as other:
        fill(other)
    for readonly in (True, False):
        with pytest.raises(NotFound, match="another database is there"):
            open_database(f"{tmp_path}/main.db", readonly=readonly)


def test_a_range_that_an_earlier_version_kept_in_another_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    with open_database("data/main.db") as db:
        fill(db)
        db.ranges.split(row_key(100))
        db.ranges.move(row_key(100), "late.db")
    (tmp_path / "data/late.db").rename(tmp_path / "late.db")
    with pytest.raises(NotFound, match=rf"move {tmp_path}/late.db there"):
        open_database("data/main.db")
    (tmp_path / "late.db").rename(tmp_path / "data/late.db")
    with open_database("data/main.db") as db:
        assert len(db.execute("SELECT id FROM t").fetchall()) == 199


def test_places_that_cannot_keep_a_range_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, url in (("main.db", ":memory:"), (f"memory://{secrets.token_hex(4)}", "x.db"), (":memory:", "x.db")):
        with open_database(name) as db:
            fill(db)
            db.ranges.split(row_key(100))
            with pytest.raises(Invalid):
                db.ranges.move(row_key(100), url)
            assert len(db.execute("SELECT id FROM t").fetchall()) == 199
    assert sorted(each.name for each in tmp_path.iterdir()) == ["main.db"]


def test_two_spellings_of_a_place_are_one_database(tmp_path: Path) -> None:
    with open_database(f"{tmp_path}/main.db") as db:
        fill(db)
        db.ranges.split(row_key(50))
        db.ranges.split(row_key(100))
        db.ranges.move(row_key(50), "late.db")
        db.ranges.move(row_key(100), f"sqlite:///{tmp_path}/./late.db")
        db.execute("UPDATE t SET b = 'z' WHERE id > 10")
        assert [each.url for each in db.ranges.list()] == ["", "late.db", "late.db"]
        db.ranges.move(row_key(100), f"{tmp_path}/../{tmp_path.name}/main.db")
        assert [each.url for each in db.ranges.list()] == ["", "late.db", ""]
        assert len(db.execute("SELECT id FROM t WHERE b = 'z'").fetchall()) == 188
        assert list(db.verify()) == []
