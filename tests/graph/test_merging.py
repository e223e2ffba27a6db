"""Merges: the whole truth table, conflicts of every kind, strategies, dry runs, and merging again and again."""

from __future__ import annotations

from itertools import product
from typing import Annotated, Any

import pytest
from graph_support import Customer, Order, Placed, customers, described, entity, held

from ontolake.errors import Invalid
from ontolake.graph import BranchError, Graph, MergeConflictError, Unique, UnknownBranchError
from ontolake.history import Resolution

VALUES = {"absent": None, "same": "base", "changed": "one", "other": "two"}


def expected(base: str | None, source: str | None, target: str | None) -> tuple[str | None, str | None]:
    """What a row becomes, or the kind of conflict."""
    if source in (base, target):
        return target, None
    if target == base:
        return source, None
    if base is None:
        return None, "divergent_insert"
    return None, "delete_update" if source is None or target is None else "divergent_update"


def apply(graph: Graph, branch: str, states: dict[str, str | None], before: dict[str, str | None]) -> None:
    puts = [{"id": key, "name": name} for key, name in states.items() if name is not None and name != before[key]]
    gone = [key for key, name in states.items() if name is None and before[key] is not None]
    with graph.transaction(branch=branch) as tx:
        tx.load(Customer, puts)
        if gone:
            tx.delete(Customer, gone)


def test_the_whole_truth_table(graph: Graph) -> None:
    rows = {f"k{n:02d}": states for n, states in enumerate(
        product((None, "base"), (None, "base", "one"), (None, "base", "one", "two")))}
    base = {key: states[0] for key, states in rows.items()}
    graph.load(Customer, [{"id": key, "name": name} for key, name in base.items() if name is not None])
    graph.branches.create("try")
    apply(graph, "try", {key: states[1] for key, states in rows.items()}, base)
    apply(graph, "main", {key: states[2] for key, states in rows.items()}, base)
    target = {key: states[2] for key, states in rows.items()}
    wanted = {key: expected(*states) for key, states in rows.items()}
    conflicts = {key: kind for key, (_, kind) in wanted.items() if kind is not None}
    assert set(conflicts.values()) == {"divergent_insert", "divergent_update", "delete_update"}

    before = described(graph)
    dry = graph.merge("try", dry_run=True)
    assert dry.status == "conflicts"
    assert {conflict.key: conflict.kind for conflict in dry.conflicts} == conflicts
    with pytest.raises(MergeConflictError) as caught:
        graph.merge("try")
    assert {conflict.key: conflict.kind for conflict in caught.value.conflicts} == conflicts
    assert described(graph) == before

    for strategy, winner in (("ours", 2), ("theirs", 1)):
        name = f"try-{strategy}"
        graph.branches.create(name)
        result = graph.merge("try", name, strategy={Customer: strategy})  # type: ignore[dict-item]
        assert result.status == "merged"
        found = {key: row["name"] for key, row in held(graph, name)["node/Customer"].items()}
        assert found == {key: value for key, value in (
            (key, rows[key][winner] if key in conflicts else wanted[key][0]) for key in rows) if value is not None}
        counts = result.tables["node/Customer"]
        assert counts.inserted == sum(value is not None and target[key] is None for key, value in (
            (key, found.get(key)) for key in rows))
    assert held(graph) == before["main"]


def test_up_to_date_fast_forward_and_merged(graph: Graph) -> None:
    graph.load(Customer, customers("a"))
    graph.branches.create("try")
    assert graph.merge("try").status == "up_to_date"
    graph.load(Customer, customers("b"), branch="try")
    first = graph.merge("try", actor="ada")
    assert (first.status, first.tables["node/Customer"]) == ("fast_forward", (1, 0, 0))
    assert first.commit is not None
    assert (first.commit.author, len(first.commit.parents)) == ("ada", 2)
    assert graph.merge("try").status == "up_to_date"
    graph.load(Customer, customers("c"), branch="try")
    graph.load(Customer, customers("d"))
    assert graph.merge("try").status == "merged"
    assert list(held(graph)["node/Customer"]) == ["a", "b", "c", "d"]
    assert graph.merge("main", "try").status == "fast_forward"
    assert held(graph, "try") == held(graph)


@pytest.mark.slow
def test_merging_again_sees_what_was_merged_before(graph: Graph) -> None:
    graph.load(Customer, customers("a", "b"))
    graph.branches.create("try")
    for number in range(4):
        graph.load(Customer, [{"id": "a", "name": f"try {number}"}], branch="try")
        graph.load(Customer, [{"id": "b", "name": f"main {number}"}])
        assert graph.merge("try").status == "merged"
        found = held(graph)["node/Customer"]
        assert (found["a"]["name"], found["b"]["name"]) == (f"try {number}", f"main {number}")
    assert graph.merge("main", "try").status == "fast_forward"
    assert graph.merge("try").status in ("up_to_date", "fast_forward")


@pytest.mark.slow
def test_a_merge_through_a_third_branch(graph: Graph) -> None:
    graph.load(Customer, customers("a"))
    graph.branches.create("one")
    graph.branches.create("two")
    graph.load(Customer, customers("x"), branch="one")
    graph.merge("one", "two")
    graph.load(Customer, customers("y"), branch="two")
    graph.merge("two")
    graph.load(Customer, [{"id": "x", "name": "later"}], branch="one")
    assert graph.merge("one").status == "merged"
    assert held(graph)["node/Customer"]["x"]["name"] == "later"


@pytest.mark.slow
def test_what_neither_did_wrong_alone_is_found(graph: Graph) -> None:
    def prepared(name: str) -> None:
        graph.load(Customer, customers("a", "b"), mode="merge")
        graph.load(Order, [{"id": 1}, {"id": 2}])
        graph.branches.create(name)

    def kinds(name: str, key: Any) -> set[tuple[str, Any]]:
        before = described(graph)
        with pytest.raises(MergeConflictError) as caught:
            graph.merge(name)
        for side in ("ours", "theirs"):
            named = [Resolution(*conflict.rows[0], take=side) for conflict in caught.value.conflicts]
            assert graph.merge(name, resolutions=named, dry_run=True).status == "merged", "any row may be named"
        assert described(graph) == before
        found = {(conflict.kind, conflict.key) for conflict in caught.value.conflicts}
        assert any(one == key for _, one in found)
        return found

    prepared("orphan-1")
    graph.delete(Customer, "a", branch="orphan-1")
    graph.load(Placed, [{"left_key": "a", "right_key": 1}])
    assert kinds("orphan-1", ("a", 1)) == {("orphan_edge", ("a", 1))}
    graph.delete(Placed, ("a", 1))

    prepared("orphan-2")
    graph.load(Placed, [{"left_key": "a", "right_key": 1}], branch="orphan-2")
    graph.delete(Customer, "a")
    assert kinds("orphan-2", ("a", 1)) == {("orphan_edge", ("a", 1))}

    prepared("unique")
    graph.load(Customer, customers("a", email="same"), branch="unique")
    graph.load(Customer, customers("b", email="same"))
    assert kinds("unique", "a") == {("unique", "a")}

    prepared("cardinality")
    graph.load(Placed, [{"left_key": "a", "right_key": 2}], branch="cardinality")
    graph.load(Placed, [{"left_key": "b", "right_key": 2}])
    assert kinds("cardinality", ("a", 2)) == {("cardinality", ("a", 2))}


def test_what_cannot_be_merged(graph: Graph) -> None:
    graph.branches.create("try")
    with pytest.raises(BranchError):
        graph.merge("main")
    with pytest.raises(UnknownBranchError):
        graph.merge("nowhere")
    graph.load(Customer, customers("a"), branch="try")
    with pytest.raises(Invalid):
        graph.merge("try", strategy="mine")  # type: ignore[arg-type]
    assert graph.merge("try", dry_run=True).commit is None
    assert held(graph)["node/Customer"] == {}


# histories of more than two branches


def names(graph: Graph, branch: str) -> dict[str, str]:
    return {key: row["name"] for key, row in held(graph, branch)["node/Customer"].items()}


def test_criss_crossed_histories_merge_against_the_merge_of_their_bases(graph: Graph) -> None:
    graph.load(Customer, [{"id": "x", "name": "1"}, {"id": "y", "name": "1"}])
    for name in ("a", "b"):
        graph.branches.create(name)
    graph.load(Customer, [{"id": "x", "name": "2"}], branch="a")
    graph.load(Customer, [{"id": "y", "name": "2"}], branch="b")
    graph.branches.create("a-before", parent="a")
    bases = [graph.snapshot(branch=name).commit for name in ("a", "b")]
    graph.merge("b", "a")
    graph.merge("a-before", "b")
    graph.load(Customer, [{"id": "x", "name": "1"}], branch="b")
    result = graph.merge("b", "a")
    assert result.tables["node/Customer"].updated == 1, "taken back on b after it had come from a"
    assert result.base in bases
    assert names(graph, "a") == names(graph, "b") == {"x": "1", "y": "2"}


def test_what_bases_do_not_agree_on_is_a_conflict_unless_both_sides_do(graph: Graph) -> None:
    keys = ("one", "both", "gone")
    graph.load(Customer, [{"id": key, "name": "1"} for key in keys])
    for name, value in (("a", "2"), ("b", "3")):
        graph.branches.create(name)
        graph.load(Customer, [{"id": key, "name": value} for key in keys], branch=name)
    graph.branches.create("a-before", parent="a")
    graph.merge("b", "a", strategy="ours")
    graph.merge("a-before", "b", strategy="theirs")
    graph.load(Customer, [{"id": "one", "name": "1"}], branch="b")
    graph.delete(Customer, ["gone"], branch="b")
    dry = graph.merge("b", "a", dry_run=True)
    assert sorted((conflict.key, conflict.kind) for conflict in dry.conflicts) == [
        ("gone", "delete_update"), ("one", "divergent_update")]
    assert graph.merge("b", "a", strategy="theirs").status == "merged"
    assert names(graph, "a") == {"one": "1", "both": "2"}


def test_a_deletion_comes_by_way_of_a_third_branch(graph: Graph) -> None:
    graph.load(Customer, customers("a"))
    graph.branches.create("prod")
    graph.branches.create("dev")
    graph.load(Customer, customers("x"))
    graph.merge("main", "prod")
    graph.delete(Customer, ["x"])
    graph.merge("main", "dev")
    graph.merge("dev", "prod")
    assert names(graph, "prod") == {"a": "A"}


def test_a_merge_that_brings_nothing_is_recorded(graph: Graph) -> None:
    graph.load(Customer, [{"id": "x", "name": "1"}])
    graph.branches.create("side")
    for branch in ("main", "side"):
        graph.load(Customer, [{"id": "x", "name": "2"}], branch=branch)
    result = graph.merge("side")
    assert result.commit is not None
    assert len(result.commit.parents) == 2
    graph.load(Customer, [{"id": "x", "name": "1"}])
    assert graph.merge("side").status == "up_to_date", "what was decided after the merge is not undone"
    graph.load(Customer, customers("y"), branch="side")
    graph.merge("side")
    assert names(graph, "main") == {"x": "1", "y": "Y"}


def test_upkeep_of_a_branch_is_nothing_to_merge(graph: Graph) -> None:
    graph.branches.create("side")
    for name in ("x", "y"):
        graph.load(Customer, customers(name), branch="side")
    graph.merge("side")
    assert graph.optimize(branch="side")
    assert graph.merge("side").status == "up_to_date"
    graph.load(Customer, customers("z"), branch="side")
    assert graph.merge("side").tables["node/Customer"].inserted == 1


def test_types_of_criss_crossed_histories(graph: Graph) -> None:
    """A column that one side renamed before the crossing and rows that both wrote since."""
    graph.load(Customer, [{"id": "x", "name": "1"}, {"id": "y", "name": "1"}])
    for name in ("a", "b"):
        graph.branches.create(name)
    renamed = entity("Customer", full=(str, {}), tier=(str | None, {"default": None}),
                     email=(Annotated[str | None, Unique], {"default": None}))
    graph.schema_apply(graph.schema_plan([renamed, Order, Placed], renames={"Customer": {"name": "full"}}, branch="a"))
    graph.load("Customer", [{"id": "x", "full": "2"}], branch="a")
    graph.load("Customer", [{"id": "y", "name": "2"}], branch="b")
    graph.branches.create("a-before", parent="a")
    graph.merge("b", "a")
    graph.merge("a-before", "b")
    graph.load("Customer", [{"id": "x", "full": "1"}], branch="b")
    graph.load("Customer", [{"id": "y", "full": "3"}], branch="a")
    graph.merge("b", "a")
    found = {key: row["full"] for key, row in held(graph, "a")["node/Customer"].items()}
    assert found == {"x": "1", "y": "3"}


# following


def test_changes_since_a_commit_that_a_merge_brought(graph: Graph) -> None:
    graph.load(Customer, [{"id": "x", "name": "1"}])
    graph.branches.create("side")
    since = graph.load(Customer, [{"id": "x", "name": "2"}, {"id": "s", "name": "s"}], branch="side")
    assert since is not None
    graph.load(Customer, [{"id": "x", "name": "1"}], branch="side")
    graph.load(Customer, [{"id": "m", "name": "m"}])
    graph.merge("side")
    graph.load(Customer, [{"id": "n", "name": "n"}])
    told = [(change.key, change.before and change.before["name"], change.after and change.after["name"])
            for change in graph.changes(since.id)]
    assert told == [("x", "2", "1"), ("m", None, "m"), ("n", None, "n")]
    assert len(list(graph.commits(since=since.id))) == 3, "of its own line those that are not in the history of since"
    first = list(graph.commits())[-1]
    assert len(list(graph.changes(first.id, since.id))) == 3
    assert list(graph.changes(graph.snapshot().commit, since.id)) == []
