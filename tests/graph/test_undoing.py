"""Reverts, cherry-picks and restores of what the suite does not have: types, edges, several tables."""

from __future__ import annotations

from typing import Any

import pytest
from graph_support import TYPES, Customer, Order, Placed, customers, entity, held

from ontolake.graph import Graph, MergeConflictError, UnknownTableError
from ontolake.history import ConflictKind, Resolution, RevertError

TEXT: Any = (str | None, {"default": None})


def evolve(graph: Graph, *types: Any, **renames: dict[str, str]) -> str:
    commit = graph.schema_apply(graph.schema_plan(types, renames=renames or None))
    assert commit is not None
    return commit.id


@pytest.fixture
def thing(url: str) -> Any:
    """A graph of things with a name, of which there are two."""
    with Graph.init(url, [entity("Thing", name=TEXT)]) as graph:
        graph.load("Thing", [{"id": "a", "name": "A"}, {"id": "b", "name": "B"}])
        yield graph


def things(graph: Graph) -> Any:
    return held(graph)["node/Thing"]


def test_a_column_that_a_commit_renamed_gets_its_name_back(thing: Graph) -> None:
    bad = evolve(thing, entity("Thing", title=TEXT), Thing={"name": "title"})
    thing.load("Thing", [{"id": "c", "title": "C"}])
    thing.revert(bad)
    assert {key: row["name"] for key, row in things(thing).items()} == {"a": "A", "b": "B", "c": "C"}
    assert list(thing.verify()) == []


def test_a_column_that_a_commit_added_goes_and_comes_again(thing: Graph) -> None:
    added = evolve(thing, entity("Thing", name=TEXT, note=TEXT))
    undone = thing.revert(added).commit
    assert things(thing)["a"] == {"id": "a", "name": "A"}
    assert undone is not None
    thing.revert(undone.id)
    assert things(thing)["a"] == {"id": "a", "name": "A", "note": None}


def test_a_column_that_a_commit_dropped_comes_back_with_its_values(thing: Graph) -> None:
    dropped = evolve(thing, entity("Thing", other=TEXT))
    thing.load("Thing", [{"id": "c", "other": "x"}, {"id": "a", "other": "y"}])
    thing.revert(dropped)
    assert {key: row["name"] for key, row in things(thing).items()} == {"a": "A", "b": "B", "c": None}


def test_a_table_that_a_commit_dropped_comes_back(graph: Graph) -> None:
    graph.load(Customer, customers("a"))
    graph.load(Order, [{"id": 1}])
    dropped = evolve(graph, Customer)
    graph.load(Customer, customers("b"))
    result = graph.revert(dropped)
    assert result.tables["node/Order"].inserted == 1
    assert ({*graph.types()}, list(held(graph)["node/Customer"])) == ({"node:Customer", "node:Order", "edge:Placed"},
                                                                      ["a", "b"])  # fmt: skip


def test_a_table_made_anew_is_restored_as_it_was(thing: Graph) -> None:
    good = thing.snapshot().commit
    evolve(thing, entity("Other"))
    evolve(thing, entity("Thing", name=TEXT))
    thing.load("Thing", [{"id": "z", "name": "Z"}])
    thing.restore(good)
    assert {key: row["name"] for key, row in things(thing).items()} == {"a": "A", "b": "B"}
    assert list(thing.verify()) == []


def test_a_widened_column_cannot_be_made_narrow(url: str) -> None:
    with Graph.init(url, [entity("Thing", n=(int, {"default": 0}))]) as graph:
        graph.load("Thing", [{"id": "a", "n": 1}])
        wide = evolve(graph, entity("Thing", n=(float, {"default": 0.0})))
        graph.load("Thing", [{"id": "a", "n": 1.5}])
        with pytest.raises(MergeConflictError) as caught:
            graph.revert(wide)
        [conflict] = caught.value.conflicts
        assert (conflict.kind, conflict.key, conflict.table) == (ConflictKind.SCHEMA, None, "node/Thing")
        assert (conflict.ours["name"], conflict.theirs["name"]) == ("Thing", "Thing")
        graph.revert(wide, resolutions=[Resolution("Thing", None, None, "ours")])
        assert things(graph) == {"a": {"id": "a", "n": 1.5}}


def test_a_revert_that_would_strand_an_edge_is_a_conflict(graph: Graph) -> None:
    graph.load(Order, [{"id": 1}])
    bad = graph.load(Customer, customers("a"))
    assert bad is not None
    graph.load(Placed, [{"left_key": "a", "right_key": 1}])
    with pytest.raises(MergeConflictError) as caught:
        graph.revert(bad.id)
    assert [(one.kind.value, one.key, one.rows) for one in caught.value.conflicts] == [
        ("orphan_edge", ("a", 1), (("node/Customer", "a"),))]
    graph.revert(bad.id, strategy="theirs")
    assert (held(graph)["edge/Placed"], held(graph)["node/Customer"]) == ({}, {})


def test_a_commit_of_types_is_picked_with_its_table(graph: Graph) -> None:
    graph.branches.create("try")
    graph.schema_apply(graph.schema_plan([*TYPES, entity("Tag")], branch="try"))
    graph.cherry_pick("try")
    graph.load("Tag", [{"id": "t"}])
    assert held(graph)["node/Tag"] == {"t": {"id": "t"}}
    first = list(graph.commits())[-1].id
    with pytest.raises(RevertError):
        graph.revert(first)
    with pytest.raises(UnknownTableError):
        graph.restore("main~1", tables=["Nothing"])
