"""Merges of branches whose types differ: who changed a type alone decides, two who did it differently conflict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import pyarrow as pa
import pytest
from graph_support import TYPES, Customer, Order, Placed, customers, described, entity, held
from marking import slow_after

from ontolake import faults
from ontolake.graph import Graph, MergeConflictError, Unique, UnknownTableError
from ontolake.model import Entity, Field, Relation

TOTAL = {"total": (float, {"ge": 0, "default": 0.0})}


class Tag(Entity):
    id: Field[str] = Field(primary_key=True)
    text: Field[str] = Field(default="")


class Tagged(Relation[Customer, Tag]):
    pass


def order(**fields: Any) -> Any:
    return entity("Order", int, **fields)


@pytest.fixture
def forked(graph: Graph) -> Graph:
    """Customers and orders on main, and a branch from there."""
    with graph.transaction() as tx:
        tx.load(Customer, customers("a", "b", "c"))
        tx.load(Order, [{"id": number, "total": float(number)} for number in range(1, 5)])
    graph.branches.create("try")
    return graph


def evolve(graph: Graph, branch: str, *types: Any, renames: Mapping[str, Mapping[str, str]] | None = None) -> None:
    """Give a branch these types besides those that it has, in place of any of their names."""
    names = {one.__name__ for one in types}
    left = [kind for kind in graph.types(branch).values() if kind.name not in names]
    assert graph.schema_apply(graph.schema_plan([*types, *left], renames=renames, branch=branch)) is not None


def drop(graph: Graph, branch: str, *names: str) -> None:
    left = [kind for kind in graph.types(branch).values() if kind.name not in names]
    graph.schema_apply(graph.schema_plan(left, branch=branch))


def refused(graph: Graph, kind: str, table: str, match: str, **options: Any) -> None:
    """That the merge is refused for this, by a dry run too, and changes nothing."""
    before, commits = described(graph), list(graph.commits())
    with pytest.raises(MergeConflictError, match=match) as caught:
        graph.merge("try", **options)
    assert {(conflict.kind, conflict.table) for conflict in caught.value.conflicts} == {(kind, table)}
    assert graph.merge("try", dry_run=True, **options).conflicts == list(caught.value.conflicts)
    assert (described(graph), list(graph.commits())) == (before, commits)


def merged(graph: Graph, **options: Any) -> dict[str, dict[Any, Any]]:
    """What main holds after the merge; a dry run says so before, and reopening after."""
    expected = graph.merge("try", dry_run=True, **options)
    result = graph.merge("try", **options)
    assert (result.status, result.tables) == (expected.status, expected.tables)
    assert list(graph.verify()) == []
    found = held(graph)
    with Graph.open(graph.url) as again:
        assert again.recovered == []
        assert held(again) == found
    assert graph.merge("try").status == "up_to_date"
    return found


@pytest.mark.slow
def test_types_that_the_source_added_come_with_their_rows(forked: Graph) -> None:
    evolve(forked, "try", Tag, Tagged)
    forked.load(Tag, [{"id": "t", "text": "new"}], branch="try")
    forked.load(Tagged, [{"left_key": "a", "right_key": "t"}], branch="try")
    forked.load(Customer, customers("d"))
    found = merged(forked)
    assert (found["node/Tag"], list(found["edge/Tagged"])) == ({"t": {"id": "t", "text": "new"}}, [("a", "t")])
    assert list(found["node/Customer"]) == ["a", "b", "c", "d"]
    forked.load(Tag, [{"id": "u"}])
    assert list(held(forked)["node/Tag"]) == ["t", "u"]
    assert list(held(forked, "try")["node/Tag"]) == ["t"]
    forked.delete(Customer, "a", cascade=True)
    assert held(forked)["edge/Tagged"] == {}


@pytest.mark.slow
def test_an_added_edge_must_find_its_nodes(forked: Graph) -> None:
    evolve(forked, "try", Tag, Tagged)
    forked.load(Tag, [{"id": "t"}], branch="try")
    forked.load(Tagged, [{"left_key": "a", "right_key": "t"}], branch="try")
    forked.delete(Customer, "a")
    refused(forked, "orphan_edge", "edge/Tagged", "'a'")
    drop(forked, "main", "Customer", "Placed")
    refused(forked, "schema", "edge/Tagged", "target has dropped")


@pytest.mark.slow
def test_a_type_that_both_added(forked: Graph) -> None:
    for branch in ("main", "try"):
        evolve(forked, branch, Tag)
        forked.load(Tag, [{"id": "same"}, {"id": branch}], branch=branch)
    forked.load(Tag, [{"id": "other", "text": "try"}], branch="try")
    forked.load(Tag, [{"id": "other", "text": "main"}])
    refused(forked, "divergent_insert", "node/Tag", "other")
    assert merged(forked, strategy="theirs")["node/Tag"] == {
        key: {"id": key, "text": "try" if key == "other" else ""} for key in ("main", "other", "same", "try")}


def test_a_type_that_both_added_differently(forked: Graph) -> None:
    evolve(forked, "try", Tag)
    evolve(forked, "main", entity("Tag", int))
    refused(forked, "schema", "node/Tag", "both branches have added")


@pytest.mark.slow
def test_a_type_that_the_source_dropped_goes_unless_the_target_changed_it(forked: Graph) -> None:
    drop(forked, "try", "Order", "Placed")
    forked.optimize()
    assert forked.merge("try", dry_run=True).status != "conflicts"
    forked.load(Order, [{"id": 1, "total": 7.0}])
    refused(forked, "schema", "node/Order", "source has dropped")
    forked.load(Placed, [{"left_key": "a", "right_key": 1}])
    with pytest.raises(MergeConflictError, match="source has dropped"):
        forked.merge("try", strategy={"Order": "theirs"})
    before = next(forked.commits()).id
    assert list(merged(forked, strategy="theirs")) == ["node/Customer"]
    assert dict(forked.snapshot(before).rows("Order"))[1]["total"] == 7.0
    with pytest.raises(UnknownTableError):
        forked.load("Order", [{"id": 9}])


def test_keeping_what_the_source_dropped(forked: Graph) -> None:
    drop(forked, "try", "Order", "Placed")
    forked.load(Order, [{"id": 1, "total": 7.0}])
    found = merged(forked, strategy={"Order": "ours", "Placed": "ours"})
    assert found["node/Order"][1]["total"] == 7.0


@pytest.mark.slow
def test_a_type_that_the_target_dropped_stays_gone_unless_the_source_changed_it(forked: Graph) -> None:
    drop(forked, "main", "Order", "Placed")
    forked.load(Customer, customers("d"), branch="try")
    forked.load(Order, [{"id": 1, "total": 1.0}], branch="try")  # as it was
    assert forked.merge("try", dry_run=True).status == "merged"
    forked.load(Order, [{"id": 1, "total": 7.0}], branch="try")
    refused(forked, "schema", "node/Order", "target has dropped")
    assert forked.merge("try", strategy="ours", dry_run=True).tables.keys() == {"node/Customer"}
    found = merged(forked, strategy={"Order": "theirs"})
    assert (found["node/Order"][1]["total"], len(found["node/Order"])) == (7.0, 4)
    assert "edge/Placed" not in found


@pytest.mark.parametrize("renaming", slow_after(1, ["try", "main", "both"]))
def test_rows_follow_a_column_that_one_side_renamed(forked: Graph, renaming: str) -> None:
    renamed = order(amount=(float, {"ge": 0, "default": 0.0}))
    for branch in ("try", "main"):
        if renaming in (branch, "both"):
            evolve(forked, branch, renamed, renames={"Order": {"total": "amount"}})
    for branch, key in (("try", 1), ("main", 2)):
        column = "amount" if renaming in (branch, "both") else "total"
        forked.load("Order", [{"id": key, column: 10.0}, {"id": key + 10, column: 20.0}], branch=branch)
    forked.delete("Order", 3, branch="try")
    assert {key: row["amount"] for key, row in merged(forked)["node/Order"].items()} == {
        1: 10.0, 2: 10.0, 4: 4.0, 11: 20.0, 12: 20.0}
    for branch, key in (("try", 1), ("main", 2)):  # and once more, now that the two have met
        column = "total" if renaming == "main" and branch == "try" else "amount"
        forked.load("Order", [{"id": key, column: 30.0}], branch=branch)
    found = merged(forked)["node/Order"]
    assert (found[1]["amount"], found[2]["amount"]) == (30.0, 30.0)
    forked.merge("main", "try")
    assert held(forked, "try") == held(forked)
    assert not forked.schema_plan(forked.types("try").values())


@pytest.mark.slow
def test_a_clash_in_a_renamed_column_is_told(forked: Graph) -> None:
    evolve(forked, "try", order(amount=(float, {"ge": 0, "default": 0.0})), renames={"Order": {"total": "amount"}})
    forked.load("Order", [{"id": 1, "amount": 10.0}], branch="try")
    forked.load("Order", [{"id": 1, "total": 20.0}])
    refused(forked, "divergent_update", "node/Order", "differently")
    assert merged(forked, strategy="ours")["node/Order"][1] == {"id": 1, "amount": 20.0}


@pytest.mark.parametrize("changing", slow_after(1, ["try", "main"]))
def test_columns_that_one_side_added_widened_and_dropped(graph: Graph, changing: str) -> None:
    first = order(count=(int, {}), gone=(str, {"default": "x"}))
    other = "main" if changing == "try" else "try"
    drop(graph, "main", "Order", "Placed")
    evolve(graph, "main", first)
    graph.load("Order", [{"id": number, "count": number} for number in (1, 2, 3)])
    graph.branches.create("try")
    evolve(graph, changing, order(count=(float, {}), note=(str, {"default": "none"})))
    graph.load("Order", [{"id": 1, "count": 1.5, "note": "changed"}, {"id": 4, "count": 4.5}], branch=changing)
    graph.load("Order", [{"id": 2, "count": 20, "gone": "y"}, {"id": 5, "count": 5}], branch=other)
    assert merged(graph)["node/Order"] == {
        1: {"id": 1, "count": 1.5, "note": "changed"}, 2: {"id": 2, "count": 20.0, "note": "none"},
        3: {"id": 3, "count": 3.0, "note": "none"}, 4: {"id": 4, "count": 4.5, "note": "none"},
        5: {"id": 5, "count": 5.0, "note": "none"}}


@pytest.mark.slow
def test_rows_of_one_side_must_keep_the_rules_of_the_other(forked: Graph) -> None:
    evolve(forked, "try", order(total=(float, {"ge": 0, "le": 100, "default": 0.0})))
    forked.load("Order", [{"id": 9, "total": 500.0}])
    refused(forked, "value", "node/Order", "at most 100")
    forked.delete("Order", 9)
    forked.load("Order", [{"id": 8, "total": 50.0}])
    merged(forked)
    forked.branches.create("loose")
    forked.load("Order", [{"id": 7, "total": 99.0}], branch="loose")
    evolve(forked, "main", order(total=(float, {"ge": 0, "le": 60, "default": 0.0})))
    with pytest.raises(MergeConflictError, match="at most 60"):
        forked.merge("loose")


@pytest.mark.slow
def test_a_column_that_became_unique_meets_rows_of_the_other_side(forked: Graph) -> None:
    evolve(forked, "try", order(total=(Annotated[float, Unique], {"ge": 0})))
    forked.load("Order", [{"id": 9, "total": 1.0}])
    refused(forked, "unique", "node/Order", "twice")
    forked.load("Order", [{"id": 9, "total": 9.0}])
    assert len(merged(forked)["node/Order"]) == 5


@pytest.mark.slow
def test_columns_that_both_added_are_kept_and_one_if_they_are_the_same(forked: Graph) -> None:
    x, y, z = (int | None, {"default": None}), (int, {"default": 7}), (str, {"default": "z"})
    evolve(forked, "try", order(**TOTAL, x=x, z=z))
    evolve(forked, "main", order(**TOTAL, y=y, z=z))
    forked.load("Order", [{"id": 1, "total": 1.0, "x": 5}, {"id": 2, "total": 20.0, "z": "try"}], branch="try")
    forked.load("Order", [{"id": 1, "total": 1.0, "y": 6}, {"id": 3, "total": 30.0, "z": "main"}])
    assert merged(forked)["node/Order"] == {
        1: {"id": 1, "total": 1.0, "y": 6, "z": "z", "x": 5},
        2: {"id": 2, "total": 20.0, "y": 7, "z": "try", "x": None},
        3: {"id": 3, "total": 30.0, "y": 7, "z": "main", "x": None},
        4: {"id": 4, "total": 4.0, "y": 7, "z": "z", "x": None}}
    forked.load("Order", [{"id": 4, "total": 4.0, "z": "once more"}], branch="try")
    assert merged(forked)["node/Order"][4]["z"] == "once more"
    forked.merge("main", "try")
    assert held(forked, "try") == held(forked)


@pytest.mark.slow
def test_two_different_changes_of_a_column_are_a_conflict_that_names_it(forked: Graph) -> None:
    evolve(forked, "try", order(**TOTAL, x=(int | None, {"default": None}), y=(int, {"default": 1})))
    evolve(forked, "main", order(**TOTAL, x=(str | None, {"default": None}), y=(int, {"default": 2})))
    refused(forked, "schema", "node/Order", "differently: x, y")
    evolve(forked, "main", order(**TOTAL))
    evolve(forked, "main", order(**TOTAL, x=(int | None, {"default": None})))  # the way out: the same on both
    assert merged(forked)["node/Order"][1] == {"id": 1, "total": 1.0, "x": None, "y": 1}


def test_a_column_that_was_dropped_and_added_again_is_another(forked: Graph) -> None:
    evolve(forked, "try", order())
    evolve(forked, "try", order(**TOTAL))
    assert {change.key: (change.before["total"], change.after["total"]) for change in forked.diff("main", "try")  # type: ignore[index]
            } == {number: (float(number), 0.0) for number in range(1, 5)}  # fmt: skip
    forked.load("Order", [{"id": 1, "total": 5.0}], branch="try")
    forked.load("Order", [{"id": 2, "total": 7.0}])
    assert {key: row["total"] for key, row in merged(forked)["node/Order"].items()} == {1: 5.0, 2: 0.0, 3: 0.0, 4: 0.0}


@pytest.mark.parametrize("at_once", slow_after(1, [True, False]))
def test_a_column_that_took_the_name_of_a_renamed_one_is_another(forked: Graph, at_once: bool) -> None:
    old, new = (float, {"ge": 0, "default": 0.0}), (str, {"default": "new"})
    if not at_once:
        evolve(forked, "try", order(amount=old), renames={"Order": {"total": "amount"}})
    evolve(forked, "try", order(amount=old, total=new), renames={"Order": {"total": "amount"}} if at_once else None)
    forked.load("Order", [{"id": 1, "amount": 10.0, "total": "ten"}], branch="try")
    forked.load("Order", [{"id": 2, "total": 20.0}])
    assert merged(forked)["node/Order"] == {
        1: {"id": 1, "amount": 10.0, "total": "ten"}, 2: {"id": 2, "amount": 20.0, "total": "new"},
        3: {"id": 3, "amount": 3.0, "total": "new"}, 4: {"id": 4, "amount": 4.0, "total": "new"}}
    evolve(forked, "main", order(total=old, amount=new), renames={"Order": {"total": "amount", "amount": "total"}})
    assert held(forked)["node/Order"][1] == {"id": 1, "amount": "ten", "total": 10.0}
    forked.merge("main", "try")
    assert held(forked, "try") == held(forked)


@pytest.mark.slow
def test_a_type_that_was_dropped_and_made_anew_is_not_taken_for_the_old_one(forked: Graph) -> None:
    drop(forked, "try", "Order", "Placed")
    evolve(forked, "try", Order)
    forked.load(Order, [{"id": 1, "total": 5.0}], branch="try")
    refused(forked, "schema", "node/Order", "made anew")
    assert {change.key: change.kind.value for change in forked.diff("main", "try")} == {
        1: "update", 2: "delete", 3: "delete", 4: "delete"}


def test_a_diff_across_types_tells_rows_as_both_sides_have_them(forked: Graph) -> None:
    evolve(forked, "try", order(amount=(float, {"ge": 0, "default": 0.0}), n=(int, {"default": 1})),
           renames={"Order": {"total": "amount"}})
    forked.load("Order", [{"id": 1, "amount": 10.0}, {"id": 5}], branch="try")
    forked.delete("Order", 2, branch="try")
    for one, other in (("main", "try"), ("try", "main")):
        state = held(forked, one)["node/Order"]
        for change in forked.diff(one, other):
            assert (change.table, state.get(change.key)) == ("node/Order", change.before)
            state.pop(change.key, None)
            if change.after is not None:
                state[change.key] = change.after
        assert state == held(forked, other)["node/Order"]


def test_all_types_are_what_they_were(forked: Graph) -> None:
    """A merge without changes of types leaves them alone."""
    forked.load(Customer, customers("d"), branch="try")
    before = forked.types()
    merged(forked)
    assert forked.types() == before
    assert not forked.schema_plan(TYPES)


def forget_ids(graph: Graph, branch: str) -> None:
    """Store the types of a branch as older releases did, which gave columns no ids."""
    dataset = graph.parts.manifest.dataset(branch)
    rows = dataset.to_table(filter="object_type = 'table'").to_pylist()
    for row in rows:
        row["metadata"] = re.sub(r',"id":"#[^"]*"|,"id":"total"', "", row["metadata"])
    table = pa.Table.from_pylist(rows, dataset.schema)
    dataset.merge_insert("object_id").when_matched_update_all().use_index(False).execute(table)


@pytest.mark.slow
def test_columns_without_ids_of_an_older_release_are_told_apart(forked: Graph) -> None:
    forked.branches.create("names")
    evolve(forked, "try", order())
    evolve(forked, "try", order(**TOTAL))
    forked.load("Order", [{"id": 1, "total": 5.0}], branch="try")
    evolve(forked, "names", order(amount=(float, {"ge": 0})), renames={"Order": {"total": "amount"}})
    evolve(forked, "names", order(amount=(float, {"ge": 0}), total=(str, {"default": "new"})))
    url = forked.url
    for branch in ("try", "names"):
        forget_ids(forked, branch)
    with Graph.open(url) as graph:
        assert all(field.id is None for branch in ("try", "names") for kind in graph.types(branch).values()
                   for field in kind.fields)  # fmt: skip
        assert len(list(graph.diff("main", "try"))) == 4
        graph.branches.create("copy")
        assert graph.merge("try").status == "fast_forward"
        assert held(graph) == held(graph, "try")
        assert list(graph.diff("main", "try")) == []
        assert graph.merge("names", "copy").status == "fast_forward"
        assert held(graph, "copy") == held(graph, "names")
        assert graph.merge("copy", "names").status == "fast_forward"


class Stop(BaseException):
    """A crash before the merge is published."""


def stop(step: str) -> None:
    if step == "graph: before publishing":
        raise Stop


@pytest.mark.slow
@pytest.mark.parametrize("since", ["merged", "deleted", "crashed"])
def test_commits_in_the_midst_of_a_source_are_read_by_their_own_types(graph: Graph, url: str, since: str) -> None:
    """Types that neither the target nor the head of the source has: changed again, and added and dropped."""
    column = {"default": "x"}
    first = entity("Thing", a=(str, column))
    steps = [[first, entity("Other")], [entity("Thing", a=(str, column), b=(str, column)), entity("Other")],
             [entity("Thing", a=(str, column), c=(str, column))], [first]]  # fmt: skip
    graph.schema_apply(graph.schema_plan([first]))
    graph.load("Thing", [{"id": "0"}])
    graph.branches.create("try")
    shown = {}
    for number, types in enumerate(steps):
        graph.schema_apply(graph.schema_plan(types, branch="try"))
        commit = graph.load("Thing", [{"id": f"new {number}"}], branch="try")
        assert commit is not None
        shown[commit.id] = held(graph, "try")
    begun = next(iter(shown))
    if since == "crashed":
        with faults.arm(stop), pytest.raises(Stop):
            graph.merge("try")
    else:
        graph.merge("try")
    if since == "deleted":
        graph.branches.delete("try")
    graph.close()
    with Graph.open(url) as again:
        for commit_id, rows in shown.items():
            snapshot = again.snapshot(commit_id)
            assert {table: dict(snapshot.rows(table)) for table in snapshot.tables()} == rows
        assert held(again) == list(shown.values())[-1]
        assert len(list(again.changes(begun))) >= len(steps) - 1
        assert again.schema_plan([first]).steps == ()
