"""Searches by words and vectors find what plain Python finds, whatever was written, compacted and indexed before."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake.graph import Graph, Vector
from ontolake.graph.tables.indexes import masked
from ontolake.graph.tables.origins import UPKEEP
from ontolake.graph.upkeep.maintenance import compact_here, rework_one
from ontolake.model import Entity, Field

WORDS = ("ash", "oak", "elm")
Rows = dict[int, dict[str, Any]]


class Note(Entity):
    id: Field[int] = Field(primary_key=True)
    text: Field[str | None] = Field(default=None)
    spot: Field[Vector(2) | None] = Field(default=None)  # type: ignore[valid-type]
    shelf: Field[str] = Field(default="", index=True)


def note(chance: random.Random, id: int) -> dict[str, Any]:
    words = chance.sample(WORDS, chance.randint(0, 3))
    spot = [chance.uniform(-9, 9), chance.uniform(-9, 9)] if chance.random() < 0.8 else None
    return {"id": id, "text": " ".join(words) or chance.choice(["", None]), "spot": spot, "shelf": chance.choice("xyz")}


def check(graph: Graph, rows: Rows, chance: random.Random, branch: str = "main") -> None:
    """Every search of a branch, with and without a filter, against the rows that it should show."""
    snapshot = graph.snapshot(branch=branch)
    assert dict(snapshot.rows("Note")).keys() == rows.keys()
    for shelf in (None, "x"):
        filter = None if shelf is None else "shelf = 'x'"
        there = {id: row for id, row in rows.items() if shelf in (None, row["shelf"])}
        for word in WORDS:
            wanted = {id for id, row in there.items() if word in (row["text"] or "").split()}
            found = snapshot.search(Note, text=word, limit=1000, filter=filter).column("id").to_pylist()
            assert sorted(found) == sorted(wanted)
            few = snapshot.search(Note, text=word, limit=3, filter=filter).column("id").to_pylist()
            assert len(few) == len({*few}) == min(3, len(wanted))
            assert {*few} <= wanted
        x, y = chance.uniform(-9, 9), chance.uniform(-9, 9)
        near = sorted(((row["spot"][0] - x) ** 2 + (row["spot"][1] - y) ** 2, id) for id, row in there.items()
                      if row["spot"] is not None)  # fmt: skip
        found = snapshot.search(Note, vector=[x, y], limit=4, filter=filter).column("id").to_pylist()
        assert found[: len(near)] == [id for _, id in near[:4]]


@pytest.mark.parametrize("seed", slow_after(0, range(5)))
def test_searches_agree_with_plain_python(tmp_path: Path, seed: int) -> None:
    """Rows are changed, deleted and brought back; the table is optimized, indexed and cleaned up in between."""
    chance = random.Random(seed)
    with Graph.init(f"{tmp_path}/graph/", [Note]) as graph:
        rows: Rows = {id: note(chance, id) for id in range(30)}
        graph.load(Note, list(rows.values()))
        graph.index(Note, "text", kind="text")
        graph.index(Note, "spot", kind="vector")
        check(graph, rows, chance)
        for _ in range(12):
            step = chance.choice(["put", "put", "delete", "optimize", "optimize", "cleanup", "index"])
            if step == "put":
                new = [note(chance, id) for id in chance.sample(range(40), 5)]
                graph.load(Note, new)
                rows |= {row["id"]: row for row in new}
            elif step == "delete":
                gone = chance.sample(sorted(rows), min(len(rows), 5))
                graph.delete(Note, gone)
                rows = {id: row for id, row in rows.items() if id not in gone}
            elif step == "optimize":
                graph.optimize()
            elif step == "cleanup":
                graph.cleanup(keep_commits=2, dry_run=False)
            else:
                graph.index(Note, "spot", kind="vector")
            check(graph, rows, chance)


def test_deleted_rows_take_no_places(tmp_path: Path) -> None:
    """The nearest are deleted: before and after the files are rewritten, the next ones are found."""
    with Graph.init(f"{tmp_path}/graph/", [Note]) as graph:
        graph.load(Note, [{"id": id, "text": "ash", "spot": [float(id), 0.0]} for id in range(50)])
        graph.index(Note, "text", kind="text")
        graph.index(Note, "spot", kind="vector")
        graph.delete(Note, list(range(5)))
        for _ in range(2):
            found = graph.snapshot().search(Note, vector=[0.0, 0.0], limit=5)
            assert found.column("id").to_pylist() == [5, 6, 7, 8, 9]
            assert graph.snapshot().search(Note, text="ash", limit=5).num_rows == 5
            graph.optimize()
        assert masked(graph.snapshot().table(Note).dataset) == {}
        graph.delete(Note, where="true")
        graph.optimize()
        assert graph.snapshot().search(Note, text="ash").num_rows == 0
        assert graph.snapshot().search(Note, vector=[0.0, 0.0]).num_rows == 0
        graph.load(Note, [{"id": 1, "text": "ash", "spot": [1.0, 1.0]}])
        graph.optimize()
        assert graph.snapshot().search(Note, text="ash").column("id").to_pylist() == [1]
        assert graph.snapshot().search(Note, vector=[0.0, 0.0]).column("id").to_pylist() == [1]


def test_indexes_that_an_older_release_left_behind_are_read_right(tmp_path: Path) -> None:
    """Such a release compacted a table and took the index along, with the entries of rows that were deleted."""
    with Graph.init(f"{tmp_path}/graph/", [Note]) as graph:
        graph.load(Note, [{"id": id, "text": "ash", "spot": [float(id), 0.0]} for id in range(50)])
        graph.index(Note, "text", kind="text")
        graph.index(Note, "spot", kind="vector")
        graph.delete(Note, list(range(5)))
        rework_one(graph.parts, graph.parts.state("main"), "node:Note", compact_here, UPKEEP, "optimize", None)
        dataset = graph.snapshot().table(Note).dataset
        lost = dataset.to_table(nearest={"column": "spot", "q": [0.0, 0.0], "k": 5})
        assert lost.num_rows == 0
        for _ in range(2):
            found = graph.snapshot().search(Note, vector=[0.0, 0.0], limit=5)
            assert found.column("id").to_pylist() == [5, 6, 7, 8, 9]
            assert graph.snapshot().search(Note, text="ash", limit=5).num_rows == 5
            graph.optimize()
