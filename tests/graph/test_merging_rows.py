"""Strategies and resolutions as callers give them: tables by any name, values as users see them."""

from __future__ import annotations

from typing import Any

import pytest
from graph_support import Customer, Order, Placed, customers, described, held

from ontolake.errors import Invalid
from ontolake.graph import Graph, MergeConflictError, RowError, UnknownTableError
from ontolake.graph.merge.model import strategy_by_table
from ontolake.history import ConflictKind, Resolution, Value


def test_strategies_are_given_for_all_tables_or_by_name() -> None:
    tables = ["node:A", "edge:B"]
    assert strategy_by_table(None, tables) is None
    assert strategy_by_table({}, tables) is None
    assert strategy_by_table("ours", tables) == "ours"
    assert strategy_by_table({"A": "theirs", "edge/B": "ours"}, tables) == {"node/A": "theirs", "edge/B": "ours"}
    assert strategy_by_table({"node:A": "ours"}, tables) == {"node/A": "ours"}
    with pytest.raises(UnknownTableError):
        strategy_by_table({"C": "ours"}, tables)


@pytest.fixture
def forked(graph: Graph) -> Graph:
    """Customers a and b, orders 1 and 2, and a branch from there."""
    with graph.transaction() as tx:
        tx.load(Customer, customers("a", "b"))
        tx.load(Order, [{"id": 1}, {"id": 2}])
    graph.branches.create("try")
    return graph


def test_conflicts_are_told_by_field_with_all_values(forked: Graph) -> None:
    forked.load(Customer, [{"id": "a", "name": "theirs", "tier": "gold"}], branch="try")
    forked.load(Customer, [{"id": "a", "name": "ours", "email": "a@b"}])
    [conflict] = forked.merge("try", dry_run=True).conflicts
    assert conflict[:7] == ("node/Customer", "a", ConflictKind.DIVERGENT_UPDATE, "name", "A", "ours", "theirs")
    with pytest.raises(MergeConflictError):
        forked.merge("try", strategy={Order: "theirs"})
    forked.merge("try", strategy={Customer: "theirs"}, message="take it", actor="ada")
    assert held(forked)["node/Customer"]["a"] == {"id": "a", "name": "theirs", "tier": "gold", "email": "a@b"}
    commit = next(iter(forked.commits()))
    assert (commit.message, commit.author, "message" in commit.metadata) == ("take it", "ada", False)


def test_a_row_that_one_side_deleted_is_told_as_users_see_it(forked: Graph) -> None:
    forked.delete(Order, 1, branch="try")
    forked.load(Order, [{"id": 1, "total": 5.0}])
    [conflict] = forked.merge("try", dry_run=True).conflicts
    assert conflict[2:7] == (
        ConflictKind.DELETE_UPDATE, None, {"id": 1, "total": 0.0}, {"id": 1, "total": 5.0}, None)
    forked.merge("try", resolutions=[Resolution("Order", 1, None, "theirs")])
    assert list(held(forked)["node/Order"]) == [2]


def test_resolutions_name_tables_as_strategies_do(forked: Graph) -> None:
    forked.load(Customer, [{"id": "a", "name": "theirs"}], branch="try")
    forked.load(Customer, [{"id": "a", "name": "ours"}])
    before = described(forked)
    for wrong in (Resolution("Customer", "b", "name"), Resolution("Nothing", "a", "name")):
        with pytest.raises(Invalid):
            forked.merge("try", strategy="ours", resolutions=[wrong])
    with pytest.raises(RowError):
        forked.merge("try", resolutions=[Resolution("Customer", "a", "name", Value(5))])
    assert described(forked) == before
    forked.merge("try", resolutions=[Resolution("Customer", "a", "name", Value("both"))])
    assert held(forked)["node/Customer"]["a"]["name"] == "both"


def orphaned(graph: Graph) -> None:
    graph.delete(Customer, "a", branch="try")
    graph.load(Placed, [{"left_key": "a", "right_key": 1}])


def lost(graph: Graph) -> None:
    graph.load(Placed, [{"left_key": "a", "right_key": 1}, {"left_key": "a", "right_key": 2}], branch="try")
    graph.delete(Customer, "a")


def shared(graph: Graph) -> None:
    graph.load(Customer, customers("a", email="same"), branch="try")
    graph.load(Customer, customers("b", email="same"))


def twice(graph: Graph) -> None:
    graph.load(Placed, [{"left_key": "a", "right_key": 2}], branch="try")
    graph.load(Placed, [{"left_key": "b", "right_key": 2}])


RULES: list[tuple[Any, str, tuple[str, Any], set[tuple[str, Any]]]] = [
    (orphaned, "orphan_edge", ("edge/Placed", ("a", 1)), {("node/Customer", "a")}),
    (lost, "orphan_edge", ("edge/Placed", ("a", 1)), {("node/Customer", "a"), ("edge/Placed", ("a", 2))}),
    (shared, "unique", ("node/Customer", "a"), {("node/Customer", "b")}),
    (twice, "cardinality", ("edge/Placed", ("a", 2)), {("edge/Placed", ("b", 2))}),
]


@pytest.mark.parametrize(("make", "kind", "row", "others"), RULES)
@pytest.mark.parametrize("side", ["ours", "theirs"])
@pytest.mark.parametrize("by", ["strategy", "resolution"])
def test_a_rule_is_settled_by_whose_rows_stay(
    forked: Graph, make: Any, kind: str, row: tuple[str, Any], others: set[tuple[str, Any]], side: Any, by: str
) -> None:
    make(forked)
    [conflict] = forked.merge("try", dry_run=True).conflicts
    assert (conflict.kind.value, (conflict.table, conflict.key), {*conflict.rows}) == (kind, row, others)
    rows = {*others, row}
    wanted = {(table, key): held(forked, "main" if side == "ours" else "try")[table].get(key) for table, key in rows}
    with pytest.raises(Invalid, match="settled by a side"):
        forked.merge("try", resolutions=[Resolution(*row, None, Value(None))])
    if by == "strategy":
        forked.merge("try", strategy=side)
    else:
        forked.merge("try", resolutions=[Resolution(*row, None, side)])
    found = held(forked)
    assert {(table, key): found[table].get(key) for table, key in rows} == wanted
    assert list(forked.verify()) == []
    assert forked.merge("try").status == "up_to_date"
