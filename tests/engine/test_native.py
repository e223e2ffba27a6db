"""SQLite URLs are native files, with nothing of ours in them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from ontolake.errors import Invalid, NotFound

Connect = Callable[..., apsw.Connection]


@pytest.mark.parametrize("spelling", ["path", "sqlite:///relative", "sqlite:////absolute"])
def test_a_sqlite_url_is_a_file_that_sqlite_reads(
    spelling: str, tmp_path: Path, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "plain.db"
    url = {"path": str(path), "sqlite:///relative": "sqlite:///plain.db", "sqlite:////absolute": f"sqlite:///{path}"}
    connection = connect(url[spelling])
    connection.execute("CREATE TABLE t(x); INSERT INTO t VALUES (1)")
    connection.close()
    assert sqlite3.connect(path).execute("SELECT x FROM t").fetchall() == [(1,)]
    assert os.listdir(tmp_path) == ["plain.db"]


def test_memory_is_private_to_its_connection(connect: Connect) -> None:
    first, second = connect(":memory:"), connect(":memory:")
    first.execute("CREATE TABLE t(x)")
    assert second.execute("SELECT count(*) FROM sqlite_schema").get == 0


def test_a_read_only_native_connection_refuses_writes(tmp_path: Path, connect: Connect) -> None:
    url = str(tmp_path / "plain.db")
    connect(url).execute("CREATE TABLE t(x)")
    with pytest.raises(apsw.ReadOnlyError):
        connect(url, readonly=True).execute("INSERT INTO t VALUES (1)")


def test_a_read_only_native_connection_creates_nothing(tmp_path: Path, connect: Connect) -> None:
    with pytest.raises(NotFound, match=r"missing\.db"):
        connect(str(tmp_path / "missing.db"), readonly=True)
    assert os.listdir(tmp_path) == []


def test_a_native_file_waits_for_its_other_writer(tmp_path: Path, connect: Connect) -> None:
    url = str(tmp_path / "plain.db")
    first, second = connect(url), connect(url)
    first.execute("BEGIN IMMEDIATE")
    with pytest.raises(apsw.BusyError):
        second.execute("BEGIN IMMEDIATE")
    first.execute("COMMIT")
    second.execute("BEGIN IMMEDIATE")


@pytest.mark.parametrize("options", [{"branch": "b"}, {"at": 3}, {"takeover": True}, {"page_size": 512}])
def test_a_native_file_has_no_branches_past_fence_or_options(
    options: dict[str, object], tmp_path: Path, connect: Connect
) -> None:
    with pytest.raises(Invalid, match=r"plain\.db.*native.*file:///"):
        connect(str(tmp_path / "plain.db"), **options)
    assert os.listdir(tmp_path) == []


def test_what_is_no_sqlite_file_is_refused(tmp_path: Path, connect: Connect) -> None:
    (tmp_path / "text.db").write_text("not a database, but long enough to look like one " * 40)
    with pytest.raises(Invalid, match=r"text\.db is not a SQLite file"):
        connect(str(tmp_path / "text.db"))
    with pytest.raises(NotFound, match="no-such-folder"):
        connect(str(tmp_path / "no-such-folder" / "x.db"))
    (tmp_path / "folder.db").mkdir()
    for readonly in (True, False):
        with pytest.raises(Invalid, match=r"folder\.db is a directory"):
            connect(str(tmp_path / "folder.db"), readonly=readonly)


def test_a_file_that_is_there_is_not_said_to_be_missing(tmp_path: Path, connect: Connect) -> None:
    """SQLite cannot open a file with a write-ahead log if it cannot write beside it."""
    writer = connect(str(tmp_path / "plain.db"))
    writer.execute("PRAGMA journal_mode=WAL").fetchall()
    writer.execute("CREATE TABLE t(x)")
    writer.close()
    (tmp_path / "plain.db-wal").mkdir()
    for readonly in (True, False):
        with pytest.raises(Invalid, match=r"plain\.db is there, but cannot be opened.*rights"):
            connect(str(tmp_path / "plain.db"), readonly=readonly)
