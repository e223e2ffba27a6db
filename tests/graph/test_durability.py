"""What a commit brought is synced before anything points to it, and what is refused leaves no files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from graph_support import TYPES, Customer, Order, Placed, customers, held

from ontolake import faults
from ontolake.graph import DuplicateKeyError, EndpointError, Graph
from ontolake.graph.tables.appends import STAGED_ROWS, STEP_ROWS
from ontolake.graph.tables.tiers import FRAGMENT_ROWS

HINT = "latest_version_hint.json"  # Lance does without it, or with a wrong one


@contextmanager
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The files and directories that are synced in the block, by name and by inode."""
    seen: set[str] = set()
    sync = os.fsync

    def noted(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        assert path not in seen or "/data/" not in path  # each flushes the disk, and once is enough
        seen.update((path, f"inode {os.fstat(descriptor).st_ino}"))
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", noted)
        yield seen


def files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if path.is_file() and path.name != HINT}


@pytest.mark.parametrize("one_by_one", [False, True], ids=["at once", "one by one"])
def test_every_new_file_and_its_directories_are_synced(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_by_one: bool
) -> None:  # fmt: skip
    root = tmp_path / "graph"
    steps: list[str] = []
    at_publish: set[str] = set()

    def look(step: str) -> None:
        steps.append(step)
        if step == "graph: before publishing":
            at_publish.update(seen)

    for number in range(3):
        before = files(root)
        with synced(monkeypatch) as seen:
            def write(number: int = number) -> None:
                with graph.transaction() as tx:
                    tx.load(Customer, customers("a", f"k{number}", tier=str(number)))
                    tx.load(Order, [{"id": number}])
                    tx.load(Placed, [{"left_key": "a", "right_key": number}])

            if one_by_one:
                with faults.arm(look):
                    write()
            else:
                write()
        new = {path for path in files(root) - before if "/.ontolake/" not in path}
        assert len(new) >= 12
        assert new <= seen
        assert {os.path.dirname(path) for path in new} <= seen
        if one_by_one:
            assert {path for path in new if "/__manifest/" not in path} <= at_publish
    assert not one_by_one or "graph: before publishing" in steps


def test_a_directory_that_is_new_is_synced_into_its_parent(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    graph.load(Customer, customers("a", "b"))
    (folder,) = (path for path in (tmp_path / "graph" / "nodes").iterdir() if (path / "data").exists())
    assert not (folder / "_deletions").exists()
    with synced(monkeypatch) as seen:
        graph.delete(Customer, "a")
    assert (folder / "_deletions").exists()
    assert {str(folder), str(folder / "_deletions")} <= seen


def many(count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(count), pa.int64()), "total": pa.array([1.0] * count)})


def test_rows_that_were_written_ahead_are_shown_once_or_leave_no_files(graph: Graph, tmp_path: Path) -> None:
    count = STAGED_ROWS
    before = files(tmp_path)
    doubled = pa.concat_tables([many(count), many(1)])
    with pytest.raises(DuplicateKeyError) as caught:
        graph.load(Order, doubled, mode="append")
    assert caught.value.row == count
    nowhere = pa.table({"left_key": ["nobody"] * count, "right_key": pa.array(range(count), pa.int64())})
    with pytest.raises(EndpointError):
        graph.load(Placed, nowhere)
    given_up = graph.transaction()
    given_up.load(Order, many(count))
    given_up.__exit__(RuntimeError, RuntimeError(), None)
    assert files(tmp_path) == before
    with graph.transaction() as tx:
        tx.load(Order, many(count))
        tx.load(Order, [{"id": 5, "total": 7.0}])
    assert graph.snapshot().table(Order).count() == count
    assert graph.snapshot().get(Order, 5) == {"id": 5, "total": 7.0}
    with pytest.raises(DuplicateKeyError):
        graph.load(Order, many(count), mode="append")
    data = [path for path in files(tmp_path) - before if "/data/" in path and "/nodes/" in path]
    assert len(data) == 1


@pytest.mark.slow
def test_files_of_a_big_load_are_synced_while_others_are_written(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    rows = pa.table({"id": pa.array(range(STEP_ROWS + 1), pa.int64())})
    before = files(tmp_path)
    with synced(monkeypatch) as seen:
        graph.load(Order, rows, mode="append")
    new = {path for path in files(tmp_path) - before if "/.ontolake/" not in path}
    assert len([path for path in new if "/data/" in path and "/nodes/" in path]) == STEP_ROWS // FRAGMENT_ROWS + 1
    assert new <= seen
    assert graph.snapshot().table(Order).to_arrow(columns=["id"]).sort_by("id") == rows


def test_a_disk_that_cannot_sync_what_was_written_ahead_fails_the_load(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    failed: list[str] = []
    sync = os.fsync

    def fail_once(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if "/data/" in path and not failed:  # an error is told once, to whoever syncs the file first
            failed.append(path)
            raise OSError(5, "no more", path)
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail_once)
        with pytest.raises(OSError, match="no more"):
            graph.load(Order, many(STAGED_ROWS), mode="append")
    assert failed
    assert held(graph)["node/Order"] == {}
    graph.load(Order, many(3))
    assert len(held(graph)["node/Order"]) == 3


@pytest.mark.slow
def test_small_commits_tell_new_rows_from_old_ones(url: str) -> None:
    """Also where another process, a branch or an optimize has moved the table meanwhile."""
    with Graph.init(url, TYPES) as graph, Graph.open(url) as other:
        expected: dict[str, Any] = {}

        def load(via: Graph, *names: str, **fields: Any) -> None:
            via.load(Customer, customers(*names, **fields))
            expected.update({row["id"]: {"tier": None, "email": None, **row} for row in customers(*names, **fields)})

        load(graph, "a", "b")
        load(graph, "b", "c", tier="gold")
        load(other, "d")
        load(graph, "d", "e", tier="new")
        graph.delete(Customer, ["a", "e"])
        expected.pop("a")
        expected.pop("e")
        load(graph, "a", tier="again")
        graph.optimize()
        load(graph, "a", "f")
        with pytest.raises(DuplicateKeyError):
            graph.load(Customer, customers("f"), mode="append")
        graph.branches.create("try")
        graph.load(Customer, customers("a", "g"), branch="try")
        graph.load(Customer, customers("g", tier="x"), branch="try")
        assert list(held(graph, "try")["node/Customer"]) == [*"abcdfg"]
        assert held(other)["node/Customer"] == expected
        assert graph.snapshot().table(Customer).count() == len(expected)


@pytest.mark.slow
def test_a_new_branch_and_a_fork_are_synced(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.load(Customer, customers("a"))
    rows = many(STAGED_ROWS)
    for act in (lambda: graph.branches.create("try"), lambda: graph.load(Customer, customers("b"), branch="try"),
                lambda: graph.load(Customer, customers("b", "c", tier="x"), branch="try"),
                lambda: graph.load(Order, rows.slice(0, 2), branch="try"),
                lambda: graph.load(Order, rows, branch="try"), lambda: graph.optimize(branch="try"),
                lambda: graph.tags.create("v1")):  # fmt: skip
        before = files(tmp_path)
        with synced(monkeypatch) as seen:
            act()
            assert graph._background is not None
            assert graph._background.drain(60)  # what upkeep makes of it is durable too
        new = {path for path in files(tmp_path) - before if "/.ontolake/" not in path}
        assert new
        # objects of our own are synced under another name, and linked to theirs
        assert {f"inode {os.stat(path).st_ino}" for path in new} <= seen
        assert {os.path.dirname(path) for path in new} <= seen
