"""Branches: made without copying, forked when written to, deleted with refusals, made again without mixing up."""

from __future__ import annotations

from pathlib import Path

import pytest
from graph_support import Customer, Order, customers, held
from marking import slow_after

from ontolake import faults
from ontolake.graph import BranchError, BranchExistsError, Graph, UnknownBranchError, UnknownCommitError


def test_a_branch_sees_what_was_and_keeps_its_own(graph: Graph) -> None:
    graph.load(Customer, customers("a"))
    made = graph.branches.create("try")
    graph.load(Customer, customers("b"), branch="try")
    graph.load(Customer, customers("c"))
    assert list(held(graph, "try")["node/Customer"]) == ["a", "b"]
    assert list(held(graph)["node/Customer"]) == ["a", "c"]
    main, branch = graph.branches.list()
    assert (main.name, branch.name, branch.parent, branch.base) == ("main", "try", "main", made.head)
    assert branch.head != branch.base


def test_making_a_branch_writes_to_the_manifest_alone_and_tables_fork_when_written_to(
    graph: Graph, tmp_path: Path
) -> None:
    graph.load(Customer, customers("a"))
    before = {path for path in (tmp_path / "graph").rglob("*") if "__manifest" not in str(path)}
    graph.branches.create("try")
    assert {path for path in (tmp_path / "graph").rglob("*") if "__manifest" not in str(path)} == before
    graph.load(Customer, customers("b"), branch="try")
    state = graph.parts.manifest.state("try")
    assert state.line is not None
    assert state.line.startswith("try.")
    assert {key: pin.branch for key, pin in state.pins.items()} == {
        "node:Customer": state.line, "node:Order": None, "edge:Placed": None}
    rows = state.dataset.to_table(filter="object_type = 'table_version' AND table_branch = 'try'")
    assert rows["table_key"].to_pylist() == ["node:Customer"]


def test_branches_of_branches_and_at_a_commit(graph: Graph) -> None:
    first = graph.load(Customer, customers("a"))
    assert first is not None
    graph.load(Customer, customers("b"))
    graph.branches.create("old", at=first.id)
    assert list(held(graph, "old")["node/Customer"]) == ["a"]
    graph.load(Customer, customers("x"), branch="old")
    graph.branches.create("older", parent="old")
    graph.load(Customer, customers("y"), branch="older")
    assert [list(held(graph, name)["node/Customer"]) for name in ("main", "old", "older")] == [
        ["a", "b"], ["a", "x"], ["a", "x", "y"]]
    with pytest.raises(UnknownCommitError):
        graph.branches.create("x", at="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    with pytest.raises(UnknownBranchError):
        graph.branches.create("x", parent="nowhere")


def test_what_cannot_be_made_or_deleted(graph: Graph) -> None:
    graph.branches.create("try")
    with pytest.raises(BranchExistsError):
        graph.branches.create("try")
    for name in ("", "main", "..", "-x", "x" * 200, "a b", "é"):
        with pytest.raises(BranchError):
            graph.branches.create(name)
    graph.branches.create("child", parent="try")
    with pytest.raises(BranchError, match="child"):
        graph.branches.delete("try")
    with pytest.raises(BranchError, match="main"):
        graph.branches.delete("main")
    with pytest.raises(UnknownBranchError):
        graph.branches.delete("nowhere")
    graph.branches.delete("child")
    graph.branches.delete("try")
    assert [branch.name for branch in graph.branches.list()] == ["main"]


@pytest.mark.slow
def test_a_branch_made_again_is_not_mistaken_for_the_old_one_by_a_live_handle(graph: Graph, url: str) -> None:
    graph.load(Customer, customers("a"))
    graph.branches.create("try")
    with Graph.open(url) as other:
        other.load(Customer, customers("old"), branch="try")
        stale = other.transaction(branch="try")
        stale.load(Customer, customers("stale"))
        graph.branches.delete("try")
        with pytest.raises(UnknownBranchError):
            other.load(Customer, customers("x"), branch="try")
        graph.branches.create("try")
        graph.load(Customer, customers("new"), branch="try")
        with pytest.raises(UnknownBranchError):
            stale.finish()
        for handle in (graph, other):
            assert list(held(handle, "try")["node/Customer"]) == ["a", "new"]
        other.load(Customer, customers("more"), branch="try")
        assert list(held(graph, "try")["node/Customer"]) == ["a", "more", "new"]


@pytest.mark.parametrize("written", slow_after(1, [True, False]))
def test_a_stale_handle_cannot_harm_a_branch_made_again(graph: Graph, url: str, written: bool) -> None:
    """Not where main has moved on in between either, so that tables forked at other versions."""
    graph.load(Customer, customers("a"))
    graph.branches.create("try")
    with Graph.open(url) as other:
        if written:
            other.load(Customer, customers("old"), branch="try")
        stale = other.transaction(branch="try")
        stale.load(Customer, customers("stale"))
        graph.branches.delete("try")
        graph.load(Customer, customers("b"))
        graph.branches.create("try")
        graph.load(Customer, customers("new"), branch="try")
        with pytest.raises(UnknownBranchError):
            stale.finish()
        for handle in (graph, other):
            assert list(held(handle, "try")["node/Customer"]) == ["a", "b", "new"]
        assert list(graph.verify()) == []
    with Graph.open(url) as again:
        again.load(Customer, customers("more"), branch="try")
        assert list(held(again, "try")["node/Customer"]) == ["a", "b", "more", "new"]


@pytest.mark.slow
def test_what_was_merged_from_a_branch_outlives_it(graph: Graph, url: str) -> None:
    """Also where another branch of its name has come since: as a state to look back at, and as a base of merges."""
    graph.load(Customer, customers("a"))
    for name in ("one", "two"):
        graph.branches.create(name)
    for _ in range(4):
        kept = graph.load(Customer, [{"id": "a", "name": "one"}], branch="one")
    assert kept is not None
    graph.merge("one", "two")
    graph.merge("one")
    graph.branches.delete("one")
    graph.branches.create("one")
    for number in range(3):  # up to the number that the versions of the first had
        graph.load(Customer, [{"id": "a", "name": f"other {number}"}], branch="one")
    with Graph.open(url) as again:
        assert again.repair() == []
        again.cleanup(keep_commits=1, dry_run=False)
        assert dict(again.snapshot(kept.id).rows("Customer"))["a"]["name"] == "one"
        again.load(Customer, [{"id": "a", "name": "A"}])  # as before: a change since the two met
        again.load(Customer, customers("b"), branch="two")
        assert again.merge("two").status == "merged"
        assert {key: row["name"] for key, row in held(again)["node/Customer"].items()} == {"a": "A", "b": "B"}
        again.branches.delete("two")
        again.load(Customer, customers("c"))
        removed, _ = again.cleanup(keep_commits=1, dry_run=False)
        assert any(one.branch.startswith("one.") and not one.versions for one in removed), removed
        assert list(again.verify()) == []
        assert held(again, "one")["node/Customer"]["a"]["name"] == "other 2"


def test_what_a_crash_left_of_a_fork_is_in_nobodys_way(graph: Graph, url: str) -> None:
    class Stop(BaseException):
        pass

    def stop(step: str) -> None:
        if step == "graph: before deleting a fork":
            raise Stop

    graph.load(Customer, customers("a"))
    graph.branches.create("try")
    graph.load(Customer, customers("old"), branch="try")
    with faults.arm(stop), pytest.raises(Stop):
        graph.branches.delete("try")
    graph.load(Customer, customers("b"))
    with Graph.open(url) as again:
        again.branches.create("try")
        again.load(Customer, customers("new"), branch="try")
        assert list(held(again, "try")["node/Customer"]) == ["a", "b", "new"]


def test_first_writers_of_a_branch_share_its_fork(graph: Graph, url: str) -> None:
    graph.load(Customer, customers("a"))
    graph.branches.create("try")
    with Graph.open(url) as other:
        mine, theirs = graph.transaction(branch="try"), other.transaction(branch="try")
        mine.load(Customer, customers("mine"))
        theirs.load(Order, [{"id": 1}])
        mine.finish()
        theirs.finish()
        assert list(held(other, "try")["node/Customer"]) == ["a", "mine"]
        assert list(held(graph, "try")["node/Order"]) == [1]
