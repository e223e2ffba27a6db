"""What a verb of history reads and writes goes by what changed, not by how large tables are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ontolake.engine import vfs
from ontolake.engine.pages import PageFile
from ontolake.sql import Database, open_database
from ontolake.sql.keyspace import levels
from ontolake.sql.keyspace.layout import PAGE_SIZE
from ontolake.sql.keyspace.pages import open_pages

SMALL, LARGE, CHANGED = 2_000, 60_000, 50


class Costs:
    """Pages that connections read, files that they open, and records that are appended."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url, self.reads, self.opened = url, 0, 0
        read, prepare = PageFile.xRead, vfs.PageVfs.prepare

        def counted_read(file: PageFile, amount: int, offset: int) -> bytes:
            self.reads += 1
            return read(file, amount, offset)

        def counted_prepare(files: vfs.PageVfs, file: PageFile) -> str:
            self.opened += 1
            return prepare(files, file)

        monkeypatch.setattr(PageFile, "xRead", counted_read)
        monkeypatch.setattr(vfs.PageVfs, "prepare", counted_prepare)

    @contextmanager
    def counted(self, into: dict[str, tuple[int, int, int]], what: str) -> Iterator[None]:
        reads, opened, lsn = self.reads, self.opened, self._lsn()
        yield
        into[what] = self.reads - reads, self.opened - opened, self._lsn() - lsn

    def _lsn(self) -> int:
        with open_pages(self.url) as storage:
            return int(storage.durable_lsn())


def _costs(url: str, size: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int, int]]:
    found: dict[str, tuple[int, int, int]] = {}
    with monkeypatch.context() as patch, open_database(url) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
        db.bulk_load("t", pa.table({"id": range(size), "a": range(size)}))
        costs = Costs(url, patch)
        verbs: dict[str, Callable[[], Any]] = {
            "branch": lambda: db.branches.create("try"), "tag": lambda: db.tags.create("v1"),
            "write": lambda: _changed(url, size), "diff": lambda: list(db.diff("main", "try")),
            "blame": lambda: db.blame("t", 0, ref="try"), "merge": lambda: db.merge("try"),
            "delete": lambda: db.branches.delete("try"),
        }  # fmt: skip
        for what, verb in verbs.items():
            with costs.counted(found, what):
                verb()
        assert _count(db) == CHANGED
    return found


def _changed(url: str, size: int) -> None:
    ids = ", ".join(map(str, range(0, size, size // CHANGED)))
    with open_database(url, branch="try") as branch:
        branch.execute(f"UPDATE t SET a = -1 WHERE id IN ({ids})")


def _count(db: Database) -> int:
    found: int = db.execute("SELECT count(*) FROM t WHERE a = -1").fetchall()[0][0]
    return found


def test_verbs_read_and_write_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (_costs(f"file://{tmp_path}/{size}.db", size, monkeypatch) for size in (SMALL, LARGE))
    assert small.keys() == large.keys()
    for what in ("branch", "tag", "delete"):
        assert large[what][1:] == small[what][1:], what
        assert large[what][0] <= small[what][0] + 2, what  # a level more of a tree
    assert small["branch"][1] == 1, "one connection tells all that a branch needs"
    for what in ("diff", "merge", "write", "blame"):
        reads, opened, written = large[what]
        assert opened == small[what][1], what
        # Rows that are far apart are each on a page of their own, on both sides, now and before.
        assert reads <= small[what][0] + 4 * CHANGED, what
        assert written <= small[what][2] + CHANGED + 4, what


def test_making_a_branch_lists_the_others_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[object] = []
    lines = levels.lines

    def counted(connection: Any) -> Any:
        listed.append(connection)
        return lines(connection)

    monkeypatch.setattr(levels, "lines", counted)
    with open_database(f"{tmp_path}/a.db") as db:
        db.branches.create("one")
        listed.clear()
        db.branches.create("two")
        assert len(listed) == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the bytes of a thread are counted by Linux")
def test_a_merge_in_a_native_file_writes_a_small_page_for_each_row(tmp_path: Path) -> None:
    url = f"{tmp_path}/a.db"
    with open_database(url) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
        db.bulk_load("t", pa.table({"id": range(LARGE), "a": range(LARGE)}))
        db.branches.create("try")
        _changed(url, LARGE)
        before = _written_here()
        db.merge("try")
        pages = (_written_here() - before) / (PAGE_SIZE + 24)
        assert _count(db) == CHANGED
    # One page for each row as it is now; the rows of before are beside each other.
    assert CHANGED <= pages <= CHANGED + 20
    assert PAGE_SIZE <= 4096


def _written_here() -> int:
    """The bytes that this thread has written, ever."""
    lines = Path("/proc/thread-self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])
