"""An index that cannot be read is named and made anew.

Earlier releases left such indexes on branches: when Lance compacts what a branch has inherited an index on, it
writes the new index to the files of the branch and looks for it in those of the parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from graph_support import entity
from lowered import lower

from ontolake import faults
from ontolake.graph import DamagedGraphError, Graph, PublishContendedError, Vector
from ontolake.graph.tables.origins import UPKEEP
from ontolake.graph.tables.types import resolve_table
from ontolake.graph.upkeep.maintenance import TRIES, compaction, rework_one

Note = entity("Note", int, text=(str, {"default": ""}), spot=(Vector(2), {}))
ROWS = {id: {"id": id, "text": "oak" if id % 2 else "elm", "spot": [float(id), 0.0]} for id in range(40)}


def damage(graph: Graph, branch: str) -> None:
    """Optimize the notes of a branch as earlier releases did."""
    def act(dataset: Any) -> None:
        dataset.optimize.compact_files(**compaction())
        dataset.optimize.optimize_indices()

    state = graph.parts.state(branch)
    rework_one(graph.parts, state, resolve_table(Note, state.pins), act, UPKEEP, "optimize", None)


def check(graph: Graph, branch: str, rows: dict[int, Any]) -> None:
    """All ways to read notes agree with these."""
    snapshot = graph.snapshot(branch=branch)
    assert dict(snapshot.rows(Note)) == rows
    assert {id: snapshot.get(Note, id) for id in (*ROWS, 99)} == {id: rows.get(id) for id in (*ROWS, 99)}
    some = snapshot.table(Note).get_many([3, 5, 33]).to_pylist()
    assert {row["id"]: row for row in some} == {id: rows[id] for id in (3, 5, 33) if id in rows}
    assert snapshot.table(Note).count("id > 20") == sum(id > 20 for id in rows)
    for word in ("oak", "elm"):
        found = snapshot.search(Note, text=word, limit=99)["id"].to_pylist()
        assert sorted(found) == [id for id in rows if rows[id]["text"] == word]
    nearest = snapshot.search(Note, vector=[-1.0, 0.0], limit=4)["id"].to_pylist()
    assert nearest == sorted(rows)[:4]


@pytest.fixture
def broken(url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A graph with a branch `try` whose index on keys cannot be read, and a branch `sub` of that."""
    lower(monkeypatch, "graph")
    with Graph.init(url, [Note]) as graph:
        graph.keep_optimized(None)
        graph.load(Note, [ROWS[id] for id in range(30)])
        for column, kind in (("id", "btree"), ("text", "text"), ("spot", "vector")):
            graph.index(Note, column, kind=kind)
        graph.branches.create("try")
        graph.load(Note, [ROWS[id] for id in range(30, 40)], branch="try")
        graph.delete(Note, [3], branch="try")
        damage(graph, "try")
        graph.branches.create("sub", parent="try")
        yield graph


def mend_by_repair(graph: Graph) -> None:
    found = graph.repair()
    assert [(one.kind, one.where, one.repair) for one in found] == [
        ("index", "node/Note@sub", "make it anew"), ("index", "node/Note@try", "make it anew")]  # fmt: skip
    assert graph.repair(dry_run=False) == found


def mend_by_optimize(graph: Graph) -> None:
    graph.optimize(branch="try")
    graph.branches.delete("sub")
    graph.branches.create("sub", parent="try")


@pytest.mark.slow
@pytest.mark.parametrize("mend", [mend_by_repair, mend_by_optimize])
def test_an_index_that_cannot_be_read_is_named_and_made_anew(
    broken: Graph, url: str, mend: Callable[[Graph], None]
) -> None:  # fmt: skip
    with pytest.raises(DamagedGraphError, match="onto verify"):
        broken.snapshot(branch="try").get(Note, 5)
    found = list(broken.verify())
    assert [one.where for one in found] == ["node/Note@sub", "node/Note@try"]
    for one in found:
        assert one.what.startswith("the btree index id_idx on id cannot be read: ")
        assert one.what.endswith("; run onto graph repair, which makes it anew")
    mend(broken)
    assert list(broken.verify()) == broken.repair() == []
    rows = {id: row for id, row in ROWS.items() if id != 3}
    main = {id: ROWS[id] for id in range(30)}
    with Graph.open(url, read_only=True) as again:
        for graph in (broken, again):
            for branch, expected in (("main", main), ("try", rows), ("sub", rows)):
                check(graph, branch, expected)
    broken.delete(Note, [4], branch="sub")
    broken.optimize(branch="sub")
    check(broken, "sub", {id: row for id, row in rows.items() if id != 4})
    broken.merge("try")
    broken.gc(dry_run=False)
    check(broken, "main", rows)
    check(broken, "try", rows)


def files_of_indexes(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("_indices/*/*") if path.is_file())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["btree", "text", "vector"])
def test_an_index_whose_files_are_gone_is_made_anew(
    url: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    lower(monkeypatch, "graph")
    column = {"btree": "id", "text": "text", "vector": "spot"}[kind]
    with Graph.init(url, [Note]) as graph:
        graph.load(Note, list(ROWS.values()))
        graph.index(Note, "text", kind="text")
        before = files_of_indexes(tmp_path)
        graph.index(Note, column, kind=kind)
        for path in files_of_indexes(tmp_path):
            if path not in before:
                path.unlink()
    with Graph.open(url) as graph:
        assert [one.where for one in graph.verify()] == ["node/Note@main"]
        assert [one.kind for one in graph.repair(dry_run=False)] == ["index"]
        assert list(graph.verify()) == []
        check(graph, "main", ROWS)


@contextmanager
def writing_between(url: str, times: int) -> Iterator[list[int]]:
    """Another writer loads a note each time that a table is about to be reworked, so many times."""
    loaded: list[int] = []
    with Graph.open(url) as other:
        other.keep_optimized(None)

        def hook(step: str) -> None:
            if step == "graph: before reworking a table" and len(loaded) < times:
                loaded.append(100 + len(loaded))
                with faults.arm(lambda _: None):
                    other.load(Note, [{"id": loaded[-1], "text": "ash", "spot": [200.0, 0.0]}])

        with faults.arm(hook):
            yield loaded


@pytest.mark.slow
def test_repair_tries_again_beside_a_writer_but_not_for_ever(url: str, tmp_path: Path) -> None:
    with Graph.init(url, [Note]) as graph:
        graph.load(Note, list(ROWS.values()))
        graph.index(Note, "text", kind="text")
        for path in files_of_indexes(tmp_path):
            path.unlink()
    with Graph.open(url) as graph:
        found = graph.repair()
        assert [(one.kind, one.where) for one in found] == [("index", "node/Note@main")]
        with writing_between(url, TRIES) as first, pytest.raises(PublishContendedError, match="too busy") as raised:
            graph.repair(dry_run=False)
        assert len(first) == TRIES
        assert "node/Note was written to meanwhile" in str(raised.value.__cause__)
        assert graph.repair() == found
        with writing_between(url, TRIES - 1) as second:
            assert graph.repair(dry_run=False) == found
        assert len(second) == TRIES - 1
        assert list(graph.verify()) == graph.repair() == []
        ash = {100 + number for number in range(TRIES)}
        assert {id for id, _ in graph.snapshot().rows(Note)} == ROWS.keys() | ash
        assert set(graph.snapshot().search(Note, text="ash", limit=99)["id"].to_pylist()) == ash


@pytest.mark.slow
def test_indexes_that_cannot_be_listed_are_damage_that_is_told(url: str, tmp_path: Path) -> None:
    with Graph.init(url, [Note]) as graph:
        graph.load(Note, list(ROWS.values()))
        graph.index(Note, "text", kind="text")
    latest = min((tmp_path / "graph" / "nodes").glob("*/_versions/*.manifest"))  # Lance counts down in their names
    bitmap = b"\x2a\x12:0"  # the field 5 of an index: 18 bytes, a roaring bitmap of fragments
    held = latest.read_bytes()
    assert bitmap in held
    latest.write_bytes(held.replace(bitmap, b"\x7a" + bitmap[1:]))  # as a field that nobody knows
    with Graph.open(url) as graph:
        graph.keep_optimized(None)
        assert dict(graph.snapshot().rows(Note)) == ROWS
        (told,) = graph.verify()
        assert told.where == "node/Note@main"
        assert told.what.startswith("its indexes cannot be read: LanceError(Index): Fragment bitmap is required")
        for dry_run in (True, False):
            (found,) = graph.repair(dry_run=dry_run)
            assert found == ("damage", told.where, told.what, None)
        with pytest.raises(DamagedGraphError, match="node/Note cannot be read"):
            graph.optimize()
