"""What is on disk: the tables, pragmas and stamp of layout version 1, which must stay readable for ever."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import apsw
import pytest
from documents_support import OpenSpace, add, everything, write

from ontolake.documents import Delete, LayoutError, Patch, Set, Space, open_space, schema
from ontolake.documents.places import database_url
from ontolake.errors import Contended, Invalid, NotFound, OntolakeError

GOLDEN = Path(__file__).parent / "golden"


def stored(space: Space) -> list[str]:
    with space._database.read as connection:
        return [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")]


def pragma(space: Space, name: str) -> Any:
    return space._database.connection.pragma(name)


def test_the_tables_are_those_of_layout_version_1(space: Space) -> None:
    expected = (GOLDEN / "layout-1.sql").read_text()
    assert "".join(f"{sql};\n" for sql in stored(space)) == expected
    assert pragma(space, "application_id") == 0x6F6E7464
    assert pragma(space, "user_version") == 1


def test_native_files_have_the_pragmas_and_the_page_size(native: Space) -> None:
    found = {name: pragma(native, name) for name in (
        "journal_mode", "synchronous", "busy_timeout", "cache_size", "temp_store", "mmap_size", "foreign_keys",
        "page_size")}  # fmt: skip
    assert found == {"journal_mode": "wal", "synchronous": 1, "busy_timeout": 5000, "cache_size": -64000,
                     "temp_store": 2, "mmap_size": 268435456, "foreign_keys": 1, "page_size": 32768}  # fmt: skip


def test_the_pragmas_hold_for_every_connection(native_place: str, open_here: OpenSpace) -> None:
    open_here(native_place)
    for options in ({}, {"readonly": True}):
        again = open_here(native_place, **options)
        assert pragma(again, "page_size") == 32768
        assert pragma(again, "journal_mode") == "wal"
        assert pragma(again, "foreign_keys") == 1


def test_full_durability_is_offered(native_place: str, open_here: OpenSpace) -> None:
    assert pragma(open_here(native_place, synchronous="FULL"), "synchronous") == 2
    with pytest.raises(Invalid, match="synchronous cannot be 'OFF'"):
        open_here(native_place, synchronous="OFF")


def test_over_the_seam_nothing_depends_on_a_wal(place: str, open_here: OpenSpace) -> None:
    if place.endswith("/"):
        return
    assert pragma(open_here(place), "journal_mode") == "memory"


def test_a_directory_holds_one_file_per_space(tmp_path: Path) -> None:
    for name in ("one", "did:key:z6Mk"):
        with open_space(f"{tmp_path}/new/", name) as space:
            write(space, Set("a", {"in": name}))
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["did:key:z6Mk.sqlite", "one.sqlite"]
    with open_space(f"file://{tmp_path}/new", "one", readonly=True) as space:
        assert space.read("a").document == {"in": "one"}


def test_spaces_under_one_url_know_nothing_of_each_other(place: str, open_here: OpenSpace) -> None:
    one, two = open_here(place, "one"), open_here(place, "two")
    write(one, Set("a", {}))
    assert two.last_seq() == 0
    assert not two.read("a").exists


@pytest.mark.parametrize(
    ("url", "database"),
    [
        ("dir/", "dir/s.sqlite"),
        ("file:///dir", "/dir/s.sqlite"),
        ("sqlite+file:///a%20dir", "file:///a%20dir/s.db"),
        ("s3://bucket/prefix", "s3://bucket/prefix/s"),
        ("s3://bucket", "s3://bucket/s"),
        ("sqlite+s3://bucket/prefix/", "s3://bucket/prefix/s"),
        ("memory://name", "memory://name/s"),
        (":memory:", ":memory:"), ("shop", "shop/s.sqlite"), ("a/shop", "a/shop/s.sqlite"),
    ],
)
def test_a_url_and_a_name_stand_for_one_database(url: str, database: str) -> None:
    assert database_url(url, "s") == database


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "ü", "x" * 201, None, "a\0", "-x"])
def test_a_space_that_cannot_be_called_so_is_refused(name: Any, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="cannot be called"):
        open_space(f"{tmp_path}/", name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["shop.db", "sqlite:///shop.db", "file:///shop.db", "ftp://x", ""])
def test_a_url_that_holds_no_spaces_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        open_space(url, "s")


@pytest.mark.parametrize("url", ["{}/file/", "sqlite+file://{}/file", "{}/file/below/"])
def test_a_folder_that_cannot_be_made_is_named(url: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Invalid, match=r"file.* is (no folder for a space of documents|not a folder)"):
        open_space(url.format(tmp_path), "s")


def test_in_memory_for_a_moment() -> None:
    with open_space(":memory:", "s") as space:
        write(space, Set("a", {}))
        assert space.read("a").exists


# what cannot be opened


def test_a_space_that_is_not_there_is_not_made_for_reading(place: str) -> None:
    with pytest.raises(NotFound):
        open_space(place, "nothing", readonly=True)


def test_a_read_only_space_refuses_writes(place: str, open_here: OpenSpace) -> None:
    write(open_here(place), Set("a", {}))
    reader = open_here(place, readonly=True)
    assert reader.read("a").exists
    for change in (lambda: write(reader, Set("a", {})), lambda: reader.branches.create("b"),
                   lambda: reader.put_blob(b"")):  # fmt: skip
        with pytest.raises(Invalid, match="without readonly=True"):
            change()
    assert reader.read("a").exists


@pytest.mark.parametrize(("version", "hint"), [(3, "newer version"), (99, "newer version")])
def test_a_newer_layout_is_refused_untouched(native_place: str, open_here: OpenSpace, version: int, hint: str) -> None:
    space = open_here(native_place)
    write(space, Set("a", {}))
    space._database.connection.pragma("user_version", version)
    space.close()
    for options in ({}, {"readonly": True}):
        with pytest.raises(LayoutError, match=f"has layout version {version}.*{hint}") as refused:
            open_here(native_place, **options)
        assert refused.value.exit_code == 3
    connection = apsw.Connection(f"{native_place}test.sqlite")
    assert connection.pragma("user_version") == version
    connection.close()


def test_a_foreign_database_is_refused_untouched(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "s.sqlite"))
    connection.execute("CREATE TABLE revision (x)")
    connection.close()
    before = (tmp_path / "s.sqlite").read_bytes()
    with pytest.raises(LayoutError, match="not a space of documents"):
        open_space(f"{tmp_path}/", "s")
    assert (tmp_path / "s.sqlite").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["s.sqlite"]


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.sqlite").write_text("something else entirely, and long enough to be read as a header" * 20)
    with pytest.raises(OntolakeError):
        open_space(f"{tmp_path}/", "s")


def test_an_empty_file_is_a_new_space(tmp_path: Path) -> None:
    (tmp_path / "s.sqlite").touch()
    with pytest.raises(LayoutError, match="is empty"):
        open_space(f"{tmp_path}/", "s", readonly=True)
    with open_space(f"{tmp_path}/", "s") as space:
        assert space.last_seq() == 0


def test_a_closed_space_says_so(place: str, open_here: OpenSpace) -> None:
    space = open_here(place)
    space.close()
    for use in (lambda: space.read("a"), lambda: write(space, Set("a", {})), lambda: space.branches.list()):
        with pytest.raises(Invalid, match="is closed"):
            use()


def test_over_the_seam_a_second_writer_is_refused_until_it_takes_over(tmp_path: Path, open_here: OpenSpace) -> None:
    """Within one process connections share the right to write, so the second writer is given its own identity."""
    from ontolake.storage import open_storage

    url = f"sqlite+file://{tmp_path}"
    write(open_here(url), Set("a", {}))
    open_here(url).close()
    with open_space(url, "held") as space:
        write(space, Set("a", {}))
    with open_storage(f"file://{tmp_path}/held.db") as other:
        token = other.acquire_fence("somebody else")
        with pytest.raises(Contended):
            open_here(url, "held")
        with pytest.raises(Contended):
            open_here(url, "held")
        taken = open_here(url, "held", takeover=True)
        assert write(taken, Set("a", {})).seq == 2
        assert token.owner == "somebody else"


# written by version 1


def build_golden(folder: Path) -> None:
    """What the golden file holds: run once, by hand, when a layout version is born."""
    with open_space(f"{folder}/", "version-1") as space:
        space.snapshots.pause = 3600
        space.transact("golden", 1, [Set("a", {"value": {"n": 0, "big": 2**64 - 1, "text": "ü\u2028"}}), Set("b", {})])
        for number in range(12):
            space.transact("golden", 2 + number, [Patch("a", [{"op": "increment", "path": "/value/n", "by": 1}])])
        space.branches.create("side", at=5, session_id="golden", local_seq=14)
        space.transact("golden", 15, [Patch("a", [add("/value/side", True)]), Delete("b")], branch="side")
        space.branches.merge("side", session_id="golden", local_seq=16)
        space.branches.create("dead", parent="side", session_id="golden", local_seq=17)
        space.branches.delete("dead", session_id="golden", local_seq=18)
        space.put_blob(b"\x00\x01golden", content_type="application/octet-stream")
        space._database.connection.execute("UPDATE \"commit\" SET created_at = '2024-05-06 07:08:09'")
        space._database.connection.execute("UPDATE branch SET created_at = '2024-05-06 07:08:09'")
        space._database.connection.execute("UPDATE blob_store SET created_at = '2024-05-06 07:08:09'")
        space._database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.fixture
def golden(tmp_path: Path) -> str:
    """A copy of the space that version 1 wrote."""
    (tmp_path / "version-1.sqlite").write_bytes(gzip.decompress((GOLDEN / "version-1.sqlite.gz").read_bytes()))
    return f"{tmp_path}/"


def test_a_space_of_version_1_can_be_read(golden: str, open_here: OpenSpace) -> None:
    space = open_here(golden, "version-1", readonly=True)
    a = {"n": 12, "big": 2**64 - 1, "text": "ü\u2028", "side": True}
    assert space.read("a").document == {"value": a}
    assert space.read("a", seq=8).document == {"value": {"n": 7, "big": 2**64 - 1, "text": "ü\u2028"}}
    assert space.read("a", branch="side").document == {"value": {**a, "n": 4}}
    assert space.read("b").deleted
    assert space.read("b", seq=15).document == {}
    assert [branch.name for branch in space.branches.list(deleted=True)] == ["", "side", "dead"]
    assert [commit.seq for commit in space.commits()] == [16, *range(13, 0, -1)]
    assert space.get_blob(hashlib.sha256(b"\x00\x01golden").hexdigest()).data == b"\x00\x01golden"
    assert next(space.commits()).parents == (13, 15)
    assert list(space.verify()) == []


def test_a_space_of_version_1_can_be_written(golden: str, open_here: OpenSpace) -> None:
    space = open_here(golden, "version-1")
    first = [Set("a", {"value": {"n": 0, "big": 2**64 - 1, "text": "ü\u2028"}}), Set("b", {})]
    assert space.transact("golden", 1, first).seq == 1
    assert write(space, Patch("a", [add("/value/new")])).seq == 19
    assert space.branches.merge("side").commit is None
    assert list(space.verify()) == []


def test_the_same_history_gives_the_same_rows_as_version_1(golden: str, tmp_path: Path, open_here: OpenSpace) -> None:
    (tmp_path / "fresh").mkdir()
    build_golden(tmp_path / "fresh")
    fresh = open_here(f"{tmp_path}/fresh/", "version-1")
    with fresh._database.write as connection:  # what merges say since then, and did not say at first
        connection.execute("""UPDATE "commit" SET resolution = replace(resolution, ',"bases":[5]', '')""")
    assert everything(fresh) == everything(open_here(golden, "version-1"))


def test_merges_of_version_1_count_in_later_ones(golden: str, open_here: OpenSpace) -> None:
    space = open_here(golden, "version-1")
    write(space, Set("b", {"back": 1}))
    space.branches.create("third", at=13)
    assert space.branches.plan_merge("side", "third").base == 5
    assert space.branches.plan_merge("", "third").tables == {"documents": (0, 2, 0)}
    write(space, Patch("a", [add("/value/later")]), branch="side")
    plan = space.branches.plan_merge("side")
    assert (plan.base, plan.tables) == (15, {"documents": (0, 1, 0)})


def test_the_statements_in_the_source_are_the_golden_ones() -> None:
    normal = [" ".join(statement.split()) for statement in schema.TABLES.split(";")]
    golden = [" ".join(statement.split()) for statement in (GOLDEN / "layout-1.sql").read_text().split(";")]
    assert normal == golden
