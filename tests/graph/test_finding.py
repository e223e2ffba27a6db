"""A row is found by its key alike, the first time and the thousandth, whatever keys look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from graph_support import Customer, Placed, customers
from marking import slow_after

from ontolake.graph import Graph
from ontolake.graph.tables import positions
from ontolake.model import Entity, Field


class Numbered(Entity):
    id: Field[int] = Field(primary_key=True)
    name: Field[str]


class Named(Entity):
    id: Field[str] = Field(primary_key=True)
    name: Field[str]


@pytest.mark.parametrize("kept", [0, positions.KEPT_BYTES], ids=["taken", "kept"])
@pytest.mark.parametrize(("kind", "keys", "missing"), slow_after(1, [
    (Numbered, [-3, 0, 7, 12], [1, -4, 13, 2**62]), (Numbered, [-(2**62), 5, 2**61], [2**62, 0]),
    (Named, ["a", "ä", "zz", "\U0001f600", "\uffff"], ["", "b", "zzz"]),
]))  # fmt: skip
def test_lookups_agree_however_often_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int, kind: Any, keys: list[Any], missing: list[Any]
) -> None:  # fmt: skip
    monkeypatch.setattr(positions, "KEPT_BYTES", kept)
    with Graph.init(f"{tmp_path}/g/", [kind]) as graph:
        graph.load(kind, [{"id": key, "name": f"n{key}"} for key in keys])
        for _ in range(12):
            for key in keys:
                assert graph.snapshot().get(kind, key) == {"id": key, "name": f"n{key}"}
            for key in missing:
                assert graph.snapshot().get(kind, key) is None
        assert graph.parts.tables._finder._places
        graph.load(kind, [{"id": keys[0], "name": "changed"}, {"id": missing[0] or "new", "name": "new"}])
        graph.delete(kind, keys[1])
        for _ in range(40):
            assert graph.snapshot().get(kind, keys[0]) == {"id": keys[0], "name": "changed"}
            assert graph.snapshot().get(kind, keys[1]) is None
            assert graph.snapshot().get(kind, missing[0] or "new") is not None


def test_edges_and_branches_are_found_too(graph: Graph) -> None:
    graph.load(Customer, customers("a"))
    graph.branches.create("try")
    graph.load(Customer, customers("a", "b", tier="try"), branch="try")
    for _ in range(40):
        assert graph.snapshot(branch="try").get(Customer, "a")["tier"] == "try"  # type: ignore[index]
        assert graph.snapshot().get(Customer, "b") is None
        assert graph.snapshot().get(Placed, ("a", 1)) is None
