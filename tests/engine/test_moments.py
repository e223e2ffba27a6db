"""The past is a read-only connection, a branch is a copy that costs nothing and can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import pytest

from ontolake.errors import Invalid, NotFound
from ontolake.storage import open_storage

Connect = Callable[..., apsw.Connection]


@pytest.fixture
def history(place: str, connect: Connect) -> list[tuple[int, int]]:
    """A database that has grown commit by commit: each commit's LSN and how many rows there were then."""
    connection = connect(place)
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
    commits = []
    with open_storage(place, create=False) as storage:
        for i in range(1, 6):
            with connection:
                connection.executemany("INSERT INTO t(x) VALUES (?)", ((bytes(1000),) for _ in range(10)))
            commits.append((int(storage.get_commit_lsn()), 10 * i))
    return commits


def count(connection: apsw.Connection) -> Any:
    assert connection.execute("PRAGMA integrity_check").get == "ok"
    return connection.execute("SELECT count(*) FROM t").get


# the past
def test_every_commit_can_be_read_again(place: str, history: list[tuple[int, int]], connect: Connect) -> None:
    for lsn, rows in history:
        past = connect(place, at=lsn)
        assert count(past) == rows
        with pytest.raises(apsw.ReadOnlyError):
            past.execute("DELETE FROM t")


def test_an_lsn_between_two_commits_is_the_commit_before_it(
    place: str, history: list[tuple[int, int]], connect: Connect
) -> None:
    (first, rows), (second, _) = history[1:3]
    assert second - first > 2
    for lsn in range(first, second):
        assert count(connect(place, at=lsn)) == rows


def test_before_the_first_commit_there_is_nothing(
    place: str, history: list[tuple[int, int]], connect: Connect
) -> None:
    assert connect(place, at=0).execute("SELECT * FROM sqlite_schema").fetchall() == []
    assert connect(place, at=1).execute("SELECT * FROM sqlite_schema").fetchall() == []


def test_the_past_does_not_move(place: str, history: list[tuple[int, int]], connect: Connect) -> None:
    lsn, rows = history[-1]
    past, writer = connect(place, at=lsn), connect(place)
    assert count(past) == rows
    writer.execute("DELETE FROM t; VACUUM")
    assert count(past) == rows
    assert count(connect(place, at=lsn)) == rows


def test_what_is_no_longer_kept_and_what_is_not_yet_there_is_not_found(
    place: str, history: list[tuple[int, int]], connect: Connect
) -> None:
    newest, floor = history[-1][0], history[2][0]
    with pytest.raises(NotFound, match=rf"{newest + 1} lies in the future.*{newest}"):
        connect(place, at=newest + 1)
    with open_storage(place, create=False) as storage:
        storage.set_retention_floor(floor)
        storage.compact()  # type: ignore[attr-defined]
    with pytest.raises(NotFound, match=rf"{floor - 1} is no longer kept.*{floor}"):
        connect(place, at=floor - 1)
    assert count(connect(place, at=floor)) == history[2][1]
    assert count(connect(place)) == history[-1][1]


def test_the_past_is_found_after_compaction(place: str, history: list[tuple[int, int]], connect: Connect) -> None:
    with open_storage(place, create=False, gc_grace_ms=0) as storage:
        storage.compact()  # type: ignore[attr-defined]
    for lsn, rows in history:
        assert count(connect(place, at=lsn)) == rows


# branches
def branch(place: str, name: str, lsn: int | None = None, parent: str = "main") -> int:
    with open_storage(place, create=False) as storage:
        base = storage.get_commit_lsn() if lsn is None else lsn
        storage.create_branch(name, base, parent=parent)
        return int(base)


def test_a_branch_is_written_apart_from_its_parent(
    place: str, history: list[tuple[int, int]], connect: Connect
) -> None:
    branch(place, "side", history[2][0])
    main, side = connect(place), connect(place, branch="side")
    assert count(side) == history[2][1]
    side.execute("DELETE FROM t WHERE id > 5; CREATE TABLE only_here(x)")
    main.execute("INSERT INTO t(x) VALUES ('main')")
    assert (count(side), count(main)) == (5, history[-1][1] + 1)
    assert main.execute("SELECT count(*) FROM sqlite_schema").get == 1
    side.close()
    assert count(connect(place, branch="side")) == 5, "and found again"


def test_a_branch_copies_no_page(place: str, history: list[tuple[int, int]], connect: Connect) -> None:
    before = branch(place, "side")
    side = connect(place, branch="side")
    assert count(side) == history[-1][1]
    side.execute("UPDATE t SET x = 'y' WHERE id = 1")
    with open_storage(place, create=False) as storage:
        pages = [record.page_id for lsn, record in storage.scan_wal(before, branch="side")]
        assert len(pages) == 2, "the page that changed, and the header"


def test_branches_of_branches(place: str, history: list[tuple[int, int]], connect: Connect) -> None:
    parent, expected = "main", history[-1][1]
    for depth in range(5):
        name = f"depth {depth}"
        branch(place, name, parent=parent)
        connection = connect(place, branch=name)
        assert count(connection) == expected
        connection.execute("DELETE FROM t WHERE id <= ?", (depth + 1,))
        expected -= 1
        connection.close()
        parent = name
    for depth in range(5):
        assert count(connect(place, branch=f"depth {depth}", readonly=True)) == history[-1][1] - depth - 1
    assert count(connect(place)) == history[-1][1]


def test_a_branch_has_a_past_of_its_own(place: str, history: list[tuple[int, int]], connect: Connect) -> None:
    base = branch(place, "side")
    side = connect(place, branch="side")
    moments = []
    with open_storage(place, create=False) as storage:
        for i in range(3):
            side.execute("DELETE FROM t WHERE id = ?", (i + 1,))
            moments.append(storage.get_commit_lsn())
            connect(place).execute("INSERT INTO t(x) VALUES (1)")
    for i, lsn in enumerate(moments):
        assert count(connect(place, branch="side", at=lsn)) == history[-1][1] - i - 1
    assert count(connect(place, branch="side", at=history[0][0])) == history[0][1], "before it left its parent"
    assert count(connect(place, branch="side", at=base)) == history[-1][1]


def test_a_branch_at_an_lsn_of_another_branch_is_whole(
    place: str, history: list[tuple[int, int]], connect: Connect
) -> None:
    """LSNs count over all branches, so a branch may begin at one that its parent has nothing at."""
    branch(place, "side")
    connect(place, branch="side").execute("DELETE FROM t")
    branch(place, "again", parent="main")
    assert count(connect(place, branch="again")) == history[-1][1]
    with open_storage(place, create=False) as storage:
        storage.delete_branch("side")
        storage.set_retention_floor(storage.resolve_branch("again").base_lsn)
        storage.compact()  # type: ignore[attr-defined]
    assert count(connect(place, branch="again")) == history[-1][1], "also when the log before it is gone"


def test_a_branch_that_begins_within_a_commit_is_refused(
    place: str, history: list[tuple[int, int]], connect: Connect
) -> None:
    lsn = history[2][0] - 1
    branch(place, "torn", lsn)
    branch(place, "child", parent="torn")
    for name in ("torn", "child"):
        with pytest.raises(Invalid, match=rf"'torn' begins at LSN {lsn}, in the middle of a commit") as refused:
            connect(place, branch=name, readonly=True)
        assert f"LSN {history[1][0]}" in str(refused.value.hint)


def test_a_branch_made_while_its_parent_is_written_holds_a_commit(place: str, connect: Connect) -> None:
    connection = connect(place)
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x); PRAGMA cache_size=5; BEGIN")
    connection.executemany("INSERT INTO t(x) VALUES (?)", ((bytes(1000),) for _ in range(100)))
    branch(place, "before")
    connection.execute("COMMIT")
    branch(place, "after")
    assert count(connect(place, branch="before")) == 0
    assert count(connect(place, branch="after")) == 100


def test_a_branch_keeps_the_past_it_needs(place: str, history: list[tuple[int, int]], connect: Connect) -> None:
    branch(place, "side", history[1][0])
    with open_storage(place, create=False, gc_grace_ms=0) as storage:
        storage.set_retention_floor(storage.get_commit_lsn())
        assert storage.pitr_floor() == history[1][0]
        storage.compact()  # type: ignore[attr-defined]
    assert count(connect(place, branch="side")) == history[1][1]

