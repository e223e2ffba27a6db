"""Columns beside a native file: full scans answer from them as SQL does, whatever happens to the store and to them."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pytest

from ontolake.errors import Contended, Transient
from ontolake.history import Garbage
from ontolake.model import Entity, Field
from ontolake.ontology import Config, Session
from ontolake.ontology.repository.sqlite.column_files import ColumnFile, ColumnFolder
from ontolake.ontology.sizes import Sizes


class Part(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]
    size: Field[float | None] = Field(default=None)


def opened(path: Path, **options: Any) -> Session:
    config = Config(lock_timeout=1.0, sizes=Sizes(column_rows=4), readonly=options.pop("readonly", False))
    return Session(str(path), entity_types=[Part], config=config, **{"engine_version": "v3", **options})


def fill(session: Session, numbers: range, name: str = "first") -> None:
    session.ensure(Part(id=f"p{n}", name=f"{name} {n}", size=float("nan") if n == 3 else n / 2) for n in numbers)
    session.commit()


def scanned(session: Session) -> dict[str, str]:
    """The rows as a full scan gives them, which must be what SQL gives, in its order."""
    query = session.query().entities(Part)
    for scan in (query, query.with_history()):
        assert str(scan.to_arrow().to_pylist()) == str(scan.limit(100_000).to_arrow().to_pylist())
    return {row["id"]: row["name"] for row in query.to_arrow().to_pylist()}


def by_sql(session: Session) -> dict[str, str]:
    return {part.id: part.name for part in session.query().entities(Part).collect()}


def files(path: Path) -> list[Path]:
    return sorted(Path(f"{path}-columns").glob("*.columns"))


def steps(session: Session) -> int:
    """The instructions that SQLite runs for a full scan."""
    found: list[int] = []
    db = session.repository.db  # type: ignore[attr-defined]
    db.trace_v2(apsw.SQLITE_TRACE_PROFILE,
                lambda event: found.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]))
    session.query().entities(Part).to_arrow()
    db.trace_v2(0)
    return sum(found)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_a_second_scan_reads_no_rows_and_a_later_one_the_new_ones(path: Path) -> None:
    with opened(path) as session:
        fill(session, range(2000))
        first = steps(session)
        assert len(files(path)) == 1
        assert steps(session) < first / 50
        fill(session, range(5, 8), "second")
        assert steps(session) < first / 10
        session.delete(Part, "p9")
        session.commit()
        assert scanned(session) == by_sql(session)
    with opened(path) as session:
        assert steps(session) < first / 10
        assert scanned(session) == by_sql(session)


def test_small_tables_older_engines_and_stores_in_memory_keep_no_columns(path: Path) -> None:
    with opened(path) as session:
        fill(session, range(3))
        assert len(scanned(session)) == 3
    with opened(path.with_name("v2.db"), engine_version="v2") as session:
        fill(session, range(9))
        assert len(scanned(session)) == 9
    with opened(Path(":memory:")) as session:
        fill(session, range(9))
        assert len(scanned(session)) == 9
    assert not list(path.parent.rglob("*columns*"))


def truncated(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def flipped(file: Path) -> None:
    """A value is another one: the file is well-formed."""
    content = file.read_bytes()
    assert content.count(b"first 7") == 1
    file.write_bytes(content.replace(b"first 7", b"first 8"))


def lied(file: Path) -> None:
    """The trailer has other lengths."""
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def removed(file: Path) -> None:
    shutil.rmtree(file.parent)


def blocked(file: Path) -> None:
    shutil.rmtree(file.parent)
    file.parent.write_text("no folder")


@pytest.mark.parametrize("is_open", [True, False], ids=["while open", "while closed"])
@pytest.mark.parametrize("damage", [truncated, emptied, flipped, lied, folder, removed, blocked])
def test_damaged_files_change_no_answer(path: Path, damage: Callable[[Path], None], is_open: bool) -> None:
    with opened(path) as session:
        fill(session, range(20))
        before = scanned(session)
        assert scanned(session) == before
        if is_open:
            damage(files(path)[0])
            assert scanned(session) == before
    if not is_open:
        damage(files(path)[0])
    with opened(path) as session:
        assert scanned(session) == before
        fill(session, range(15, 40), "second")
        assert scanned(session) == by_sql(session)


def test_a_store_that_was_put_back_is_read_as_it_is(path: Path, tmp_path: Path) -> None:
    with opened(path) as session:
        fill(session, range(10))
    shutil.copy(path, tmp_path / "backup.db")
    with opened(path) as session:
        fill(session, range(10, 20), "lost")
        assert len(scanned(session)) == 20
    shutil.copy(tmp_path / "backup.db", path)
    with opened(path) as session:
        # As many rows as there were, and the same at the end.
        session.ensure(Part(id=f"p{n}", name=f"{'kept' if n < 19 else 'lost'} {n}", size=n / 2) for n in range(10, 20))
        session.commit()
        assert scanned(session) == by_sql(session)
        assert scanned(session)["p15"] == "kept 15"


def test_another_store_at_the_same_place_is_read_as_it_is(path: Path, tmp_path: Path) -> None:
    for place, name in ((path, "one"), (tmp_path / "two.db", "two")):
        with opened(place) as session:
            fill(session, range(10), name)
            scanned(session)
    shutil.copy(tmp_path / "two.db", path)
    with opened(path) as session:
        assert scanned(session)["p1"] == "two 1"


def test_erasing_and_collecting_remove_columns_that_others_have_open(path: Path) -> None:
    with opened(path) as session, opened(path) as other:
        fill(session, range(10))
        session.branches.create("try")
        with opened(path, branch="try") as work:
            fill(work, range(3, 6), "marked")
            scanned(work)
        assert len(scanned(other)) == 10
        session.branches.delete("try")
        assert b"marked" in files(path)[0].read_bytes()
        assert session.repository.gc(dry_run=False) != Garbage(0, 0)
        assert not files(path)
        assert len(scanned(other)) == len(scanned(session)) == 10
        assert b"marked" not in files(path)[0].read_bytes()
        session.erase(Part, "p7", reason="law", dry_run=False)
        assert not any(b"first 7" in file.read_bytes() for file in path.parent.rglob("*") if file.is_file())
        assert "p7" not in scanned(other)
        assert len(scanned(session)) == 9


@pytest.mark.slow
def test_an_erasure_that_cannot_remove_columns_removes_the_row_and_says_so(path: Path) -> None:
    with opened(path) as session:
        fill(session, range(10))
        scanned(session)
        with (files(path)[0].parent / "lock").open("r+b") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(Transient):
                session.erase(Part, "p7", reason="law", dry_run=False)
        assert not any(b"first 7" in file.read_bytes() for file in path.parent.iterdir() if file.is_file())
        assert "p7" not in scanned(session)
        assert b"first 7" not in files(path)[0].read_bytes()


def test_columns_from_before_an_erasure_are_not_read_after_it(path: Path) -> None:
    with opened(path) as session, opened(path) as reader:
        fill(session, range(10))
        with reader.repository.reading():
            assert len(scanned(reader)) == 10
            with pytest.raises(Contended):
                session.erase(Part, "p7", reason="law", dry_run=False)
        file, = files(path)
        before = file.read_bytes()
        session.erase(Part, "p7", reason="law", dry_run=False)
        assert not files(path)
        file.write_bytes(before)
        assert len(scanned(reader)) == 9
        assert b"first 7" not in files(path)[0].read_bytes()


def test_a_reader_of_the_past_does_not_see_columns_of_today(path: Path) -> None:
    with opened(path) as session, opened(path) as reader:
        fill(session, range(10))
        with reader.repository.reading():
            assert reader.repository.head() == 1
            fill(session, range(5, 30), "second")
            assert len(scanned(session)) == 30
            before = files(path)[0].read_bytes()
            assert scanned(reader) == {f"p{n}": f"first {n}" for n in range(10)}
            assert files(path)[0].read_bytes() == before
        assert scanned(reader) == by_sql(session)


def test_uncommitted_rows_are_not_kept(path: Path) -> None:
    with opened(path) as session:
        fill(session, range(10))
        repository: Any = session.repository
        repository.begin_transaction()
        repository.insert_entity("Part", "new", {"name": "uncommitted", "size": None}, repository.create_commit(), 1)
        assert "new" in {row["id"] for row in session.query().entities(Part).to_arrow().to_pylist()}
        assert not files(path)
        repository.rollback_transaction()
        assert len(scanned(session)) == 10


def test_a_read_only_session_uses_columns_and_writes_none(path: Path) -> None:
    with opened(path) as session:
        fill(session, range(10))
        with opened(path, readonly=True) as reader:
            assert len(scanned(reader)) == 10
            assert not files(path)
            scanned(session)
            file, = files(path)
            before = file.read_bytes()
            fill(session, range(30))
            assert scanned(reader) == by_sql(session)
            assert file.read_bytes() == before


def test_many_past_rows_are_read_as_columns_at_the_second_scan(path: Path) -> None:
    with opened(path) as session:
        for name in ("first", "second", "third"):
            fill(session, range(10), name)
        session.query().entities(Part).to_arrow()
        assert not files(path)
        session.query().entities(Part).to_arrow()
        assert len(files(path)) == 1
        assert scanned(session) == by_sql(session)


def test_a_file_is_written_by_one_at_a_time_and_not_after_its_state_is_gone(tmp_path: Path) -> None:
    folder = ColumnFolder(str(tmp_path / "store.db"), 0.2)
    content = ColumnFile(pa.table({"a": [1]}), pa.table({"b": [2]}), {"table": "t"})
    assert not folder.save("t", content, lambda: False)
    assert folder.load("t") is None
    assert folder.save("t", content, lambda: True)
    with (folder.path / "lock").open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert not folder.save("t", content, lambda: True)
        with pytest.raises(Transient):
            folder.drop()
    (folder.path / "left.new").write_bytes(b"behind")
    loaded = folder.load("t")
    assert loaded is not None
    assert loaded.rows.equals(content.rows)
    folder.drop()
    assert [one.name for one in folder.path.iterdir()] == ["lock"]
    assert loaded.rows.equals(content.rows)
