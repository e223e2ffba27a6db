"""Databases of older layouts are read as they are, and have the newest layout with the first commit.

`golden/layout-2.db.gz` and, on pages with a branch `try`, `golden/layout-2-pages.db.gz` were written when metadata of
commits stood in the text of a statement; `golden/layout-3.db.gz` when a native file had a tag but no branches, and
`golden/layout-4.db.gz` with the branches `try` and `deeper`.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pytest

from ontolake import engine, faults
from ontolake.errors import Corruption, NotFound
from ontolake.parallel import open_parallel, stage
from ontolake.sql import Database, open_database

GOLDEN = Path(__file__).parent / "golden"
ORDERS = "app.public.orders"
ROWS = [(1, 10), (2, 21), (3, 30), (4, 40), (5, 50)]


@pytest.fixture(params=["native", "pages"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database of layout 2."""
    name = "layout-2.db" if request.param == "native" else "layout-2-pages.db"
    (tmp_path / name).write_bytes(gzip.decompress((GOLDEN / f"{name}.gz").read_bytes()))
    return f"{tmp_path}/{name}" if request.param == "native" else f"file://{tmp_path}/{name}"


def layout_of(url: str, branch: str = "main") -> tuple[int, set[str]]:
    """The version of a layout, and the columns of its commits."""
    options = {"branch": branch} if url.startswith("file:") else {}
    connection = engine.connect(url, readonly=True, **options)
    try:
        rows: Any = connection.execute('SELECT name FROM pragma_table_info(\'commit\')').fetchall()
        return int(connection.pragma("user_version")), {name for (name,) in rows}
    finally:
        connection.close(True)


OLD = (2, {"version", "time", "statement", "keys"})
NEW = (3, OLD[1] | {"author", "message", "metadata", "merged_branch", "merged_version"})


def define(db: Database) -> None:
    db.execute("CREATE DATABASE app; CREATE SCHEMA app.public; "
               f"CREATE TABLE {ORDERS} (id BIGINT PRIMARY KEY, total INT)")  # fmt: skip


def publish(url: str, key: int, metadata: Mapping[str, Any] | None) -> None:
    fragment = stage(url, ORDERS, pa.table({"id": [key], "total": [key * 10]}).to_batches(), job="j")
    assert fragment is not None
    with open_parallel(url, write=True) as store:
        store.publish([fragment], metadata=metadata)


def metadata_of(url: str, **options: Any) -> dict[int, Mapping[str, Any]]:
    with open_database(url, readonly=True, **options) as db:
        return {commit.id: commit.metadata for commit in db.commits()}


def check_old_commits(found: Mapping[int, Mapping[str, Any]]) -> None:
    assert found[4] == {"statement": f"INSERT INTO {ORDERS} VALUES (1, 10), (2, 20)"}
    assert found[5] == {"statement": '-- publish {"run": "r1", "note": "na\\u00efve"}', "run": "r1", "note": "naïve"}
    assert found[6] == {"statement": "-- publish {}"}
    assert found[7] == {"statement": ('-- publish {"run": "r2", "long": "' + "x" * 10_000)[:10_000]}  # it was cut


@pytest.mark.parametrize("url", ["{}/new.db", "file://{}/new.db"], ids=["native", "pages"])
def test_a_new_database_has_the_newest_layout(tmp_path: Path, url: str) -> None:
    place = url.format(tmp_path)
    with open_database(place) as db:
        define(db)
    assert layout_of(place) == NEW
    publish(place, 1, {"run": "r1", "long": "x" * 20_000, "at": Path("here"), "half": "\ud800"})
    publish(place, 2, None)
    found = metadata_of(place)
    assert found[4] == {"statement": "-- publish", "run": "r1", "long": "x" * 20_000, "at": "here", "half": "\ud800"}
    assert found[5] == {"statement": "-- publish"}


def test_an_old_database_is_read_as_it_is(old: str) -> None:
    check_old_commits(metadata_of(old))
    with open_parallel(old) as store:
        check_old_commits({commit.id: commit.metadata for commit in store.commits()})
    with open_database(old, readonly=True) as db:
        assert db.execute(f"SELECT * FROM {ORDERS} ORDER BY id").fetchall() == ROWS
        assert db.query(f"SELECT id FROM {ORDERS} ORDER BY id", as_of=4).to_pydict() == {"id": [1, 2]}
    with open_database(old) as db:  # to open it is not yet to write to it
        assert db.execute(f"SELECT count(*) FROM {ORDERS}").fetchall() == [(5,)]
        db.retain(1)
        db.gc(dry_run=False)
    assert layout_of(old) == OLD


def test_the_first_commit_brings_the_newest_layout(old: str) -> None:
    publish(old, 6, {"run": "r3"})
    assert layout_of(old) == NEW
    found = metadata_of(old)
    check_old_commits(found)
    assert found[8] == {"statement": "-- publish", "run": "r3"}
    with open_database(old) as db:
        db.execute(f"INSERT INTO {ORDERS} VALUES (7, 70)")
        assert list(db.verify()) == []
        assert db.execute(f"SELECT * FROM {ORDERS} ORDER BY id").fetchall() == [*ROWS, (6, 60), (7, 70)]
    assert metadata_of(old)[9] == {"statement": f"INSERT INTO {ORDERS} VALUES (7, 70)"}


def test_connections_that_are_open_meanwhile_go_on(old: str) -> None:
    with open_database(old, readonly=True) as reader:
        commits = [commit.id for commit in reader.commits()]
        publish(old, 6, {"run": "r3"})
        assert [commit.id for commit in reader.commits()] == [8, *commits]
        assert next(iter(reader.commits())).metadata["run"] == "r3"
    if not old.startswith("file:"):  # pages have one writer at a time
        with open_database(old) as one, open_database(old) as two:
            one.execute(f"INSERT INTO {ORDERS} VALUES (7, 70)")
            two.execute(f"INSERT INTO {ORDERS} VALUES (8, 80)")
            assert two.version() == one.version() == 10


def test_a_commit_that_fails_leaves_the_old_layout(old: str) -> None:
    class Stopped(Exception):
        pass

    def stop(step: str) -> None:
        if step == "sql: commit written":
            raise Stopped

    with open_database(old) as db:
        with faults.arm(stop), pytest.raises(Stopped):
            db.execute(f"INSERT INTO {ORDERS} VALUES (6, 60)")
        assert layout_of(old) == OLD
        db.execute(f"INSERT INTO {ORDERS} VALUES (6, 60)")
        assert layout_of(old) == NEW


def test_branches_are_brought_to_the_newest_layout_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "old.db").write_bytes(gzip.decompress((GOLDEN / "layout-2-pages.db.gz").read_bytes()))
    url = f"file://{tmp_path}/old.db"
    publish(url, 6, {"run": "main"})
    assert (layout_of(url), layout_of(url, "try")) == (NEW, OLD)
    check_old_commits(metadata_of(url, branch="try"))
    with open_database(url) as main, open_database(url, branch="try", readonly=True) as other:
        assert [commit.id for commit in main.commits(branch="try", since=5)] == [7, 6]
        assert [change.key for change in main.diff(other.snapshot(), main.snapshot())] == [6]
    with open_database(url, branch="try") as db:
        db.execute(f"DELETE FROM {ORDERS} WHERE id = 1")
    assert layout_of(url, "try") == NEW


def test_the_first_layout_is_read_and_written_too(tmp_path: Path) -> None:
    place = tmp_path / "first.db"
    place.write_bytes(gzip.decompress((GOLDEN / "layout-2.db.gz").read_bytes()))
    raw = apsw.Connection(str(place))
    raw.execute("UPDATE state SET version = 7; PRAGMA user_version = 1")  # as version 1 left it
    raw.close()
    with open_database(str(place), readonly=True) as db:
        assert db.version() == 7
        assert db.query(f"SELECT id FROM {ORDERS} ORDER BY id", as_of=4).to_pydict() == {"id": [1, 2]}
    with open_database(str(place)) as db:
        db.execute(f"INSERT INTO {ORDERS} VALUES (6, 60)")
        assert db.version() == 8
    assert layout_of(str(place)) == NEW


def test_an_author_and_a_message_are_told(native_place: str) -> None:
    with open_database(native_place) as db:
        db.execute("CREATE DATABASE app")
    raw = apsw.Connection(native_place)
    raw.execute("UPDATE \"commit\" SET author = 'Ada', message = 'Begin', metadata = '{\"run\": 1}'")
    raw.close()
    with open_database(native_place) as db:
        (commit,) = db.commits()
    assert (commit.author, commit.message) == ("Ada", "Begin")
    assert commit.metadata == {"statement": "CREATE DATABASE app", "run": 1}


@pytest.mark.parametrize("damaged", ["{", "[1]", "7"])
def test_metadata_that_cannot_be_read_are_damage(native_place: str, damaged: str) -> None:
    with open_database(native_place) as db:
        db.execute("CREATE DATABASE app")
    raw = apsw.Connection(native_place)
    raw.execute('UPDATE "commit" SET metadata = ?', (damaged,))
    raw.close()
    with open_database(native_place) as db, pytest.raises(Corruption, match="metadata of commit 1"):
        list(db.commits())


@pytest.mark.parametrize("metadata", [{("a",): 1}, {"self": {}}], ids=["key", "cycle"])
def test_metadata_that_json_cannot_have_are_refused_before_anything_is_written(
    native_place: str, metadata: dict[Any, Any]
) -> None:
    metadata.get("self", {}).update(metadata)
    with open_database(native_place) as db:
        define(db)
    with pytest.raises((TypeError, ValueError)):
        publish(native_place, 1, metadata)
    with open_database(native_place) as db:
        assert db.version() == 3
        assert db.execute(f"SELECT * FROM {ORDERS}").fetchall() == []


def golden(name: str, folder: Path) -> str:
    (folder / name).write_bytes(gzip.decompress((GOLDEN / f"{name}.gz").read_bytes()))
    return f"{folder}/{name}"


def test_a_file_from_before_branches_is_as_it_was_until_it_has_one(tmp_path: Path) -> None:
    url = golden("layout-3.db", tmp_path)
    tables = ("latest", "past", "gone", "past_node", "state", "range", '"commit"')

    def stored() -> dict[str, list[Any]]:
        connection = apsw.Connection(url)
        try:
            return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
        finally:
            connection.close()

    before = stored()
    with open_database(url) as db:
        assert [list(db.at(ref).rows(ORDERS))[1][1]["total"] for ref in ("early", "main")] == [20, 21]
        with pytest.raises(NotFound, match="early"):
            db.retain(db.version())  # the tag is from before there was anything that keeps its commit
        db.gc(dry_run=False)
        assert stored() == before
        assert layout_of(url) == NEW
        db.branches.create("try", at=5)
        assert stored() == before
        assert layout_of(url) == (4, NEW[1])
        with open_database(url, branch="try") as branch:
            branch.execute(f"UPDATE {ORDERS} SET total = 0")
        assert stored() == before
        db.merge("try", strategy="theirs")
        assert dict(db.execute(f"SELECT id, total FROM {ORDERS}").fetchall()) == {1: 0, 2: 0, 3: 0}
        db.tags.delete("early")
        db.retain(db.version())


def test_a_file_with_branches_reads_as_it_was_written(tmp_path: Path) -> None:
    with open_database(golden("layout-4.db", tmp_path)) as db:
        assert [(each.name, each.head, each.base, each.parent, each.protected) for each in db.branches.list()] == [
            ("main", 7, None, None, False), ("try", 9, 6, "main", True), ("deeper", 10, 9, "try", False)]
        found = {ref: {key: row["total"] for key, row in db.at(ref).rows(ORDERS)}
                 for ref in ("main", "try", "deeper", "early", "try@7", "deeper~2")}  # fmt: skip
        assert found == {"main": {1: 10, 2: 21}, "try": {2: 21, 3: 31, 4: 40}, "deeper": {2: 21, 3: 31, 4: 41},
                         "early": {1: 10, 2: 20, 3: 30}, "try@7": {1: 10, 2: 21, 3: 31},
                         "deeper~2": {1: 10, 2: 21, 3: 31, 4: 40}}  # fmt: skip
        assert [commit.author for commit in db.commits(branch="try", since=5)] == [None, None, "eve", None]
        assert not list(db.verify())
