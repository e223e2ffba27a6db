"""Whatever a graph is asked, upkeep changes no answer; with thresholds so low that short histories pass them all."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from lowered import lower
from marking import slow_after

from ontolake.graph import Graph, Hop, Vector
from ontolake.model import Entity, Field, Relation

WORDS = ("ash", "oak", "elm")


class Note(Entity):
    id: Field[int] = Field(primary_key=True)
    text: Field[str] = Field(default="")
    spot: Field[Vector(2)]  # type: ignore[valid-type]
    shelf: Field[str] = Field(default="", index=True)


class Cites(Relation[Note, Note]):
    pass


@pytest.fixture(autouse=True)
def low_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "graph")


def answers(graph: Graph, since: str) -> dict[str, Any]:
    """What a graph says to everything that can be asked of it, as plain values in an order of their own."""
    found: dict[str, Any] = {}
    for branch in ("main", "try"):
        snapshot = graph.snapshot(branch=branch)
        found[f"{branch} rows"] = {table: list(snapshot.rows(table)) for table in snapshot.tables()}
        found[f"{branch} keys"] = [snapshot.get(Note, id) for id in range(12)]
        found[f"{branch} filter"] = sorted(snapshot.table(Note).to_arrow("shelf = 'x'")["id"].to_pylist())
        found[f"{branch} count"] = snapshot.table(Note).count("id > 4")
        for word in WORDS:
            found[f"{branch} {word}"] = sorted(snapshot.search(Note, text=word, limit=99)["id"].to_pylist())
        for x in (-9.0, 0.0, 9.0):
            found[f"{branch} near {x}"] = snapshot.search(Note, vector=[x, x], limit=3)["id"].to_pylist()
        walked = snapshot.traverse(Note, None, [Hop(Cites, max_depth=2)])
        found[f"{branch} walk"] = sorted(zip(*walked.to_pydict().values(), strict=True))
    found["diff"] = [(change.table, change.key, change.before, change.after) for change in graph.diff("main", "try")]
    found["changes"] = sorted((repr(change.key), repr(change.before), repr(change.after))
                              for change in graph.changes(since))  # fmt: skip
    return found


def write(graph: Graph, chance: random.Random, branch: str) -> None:
    """Some rows changed, some deleted with their edges, some edges new."""
    new = [{"id": id, "text": " ".join(chance.sample(WORDS, chance.randint(0, 2))), "shelf": chance.choice("xy"),
            "spot": [chance.uniform(-9, 9), chance.uniform(-9, 9)]} for id in chance.sample(range(12), 4)]  # fmt: skip
    with graph.transaction(branch=branch) as tx:
        tx.load(Note, new)
        tx.load(Cites, [{"left_key": new[0]["id"], "right_key": chance.choice(new)["id"]}])
    graph.delete(Note, chance.sample(range(12), 2), cascade=True, branch=branch)


def upkeep(graph: Graph, chance: random.Random) -> str:
    branch = chance.choice(["main", "try"])
    act = chance.choice(["optimize", "optimize", "cleanup", "gc", "repair", "index", "reopen"])
    if act == "optimize":
        graph.optimize(branch=branch)
    elif act == "cleanup":
        graph.cleanup(keep_commits=8, dry_run=False)
    elif act == "gc":
        graph.gc(dry_run=False)
    elif act == "repair":
        graph.repair(dry_run=False)
    elif act == "index":
        column, kind = chance.choice([("text", "text"), ("spot", "vector"), ("shelf", "btree")])
        graph.index(Note, column, kind=kind, branch=branch)
    return f"{act} {branch}"


@pytest.mark.parametrize("seed", slow_after(0, range(3)))
def test_upkeep_changes_no_answer(tmp_path: Path, seed: int) -> None:
    chance, url = random.Random(seed), f"{tmp_path}/graph/"
    with Graph.init(url, [Note, Cites]) as graph:
        write(graph, chance, "main")
        graph.index(Note, "text", kind="text")
        graph.index(Note, "spot", kind="vector")
        graph.branches.create("try")
        done: list[str] = []
        for _ in range(4):
            for branch in ("main", "try"):
                write(graph, chance, branch)
            since = next(graph.commits()).id
            before = answers(graph, since)
            for _ in range(3):
                done.append(upkeep(graph, chance))
                with Graph.open(url, read_only=True) as again:
                    for one in (graph, again):
                        assert answers(one, since) == before, done
