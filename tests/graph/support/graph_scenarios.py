"""Operations that are stopped at every step: what to prepare, what to do, and what it leads to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from graph_support import TYPES, Customer, Order, Placed, customers

from ontolake.graph import Graph
from ontolake.graph.errors import UnknownBranchError


class Scenario(NamedTuple):
    prepare: Callable[[Graph], None]
    act: Callable[[Graph], None]
    """May be repeated after it was interrupted, as a caller would."""
    atomic: bool = True
    """Whether what is seen is what was before or what comes after, and nothing in between."""


def _fill(graph: Graph) -> None:
    with graph.transaction() as tx:
        tx.load(Customer, customers("a", "b", "c"))
        tx.load(Order, [{"id": 1}, {"id": 2}])
        tx.load(Placed, [{"left_key": "a", "right_key": 1}])


def _load(graph: Graph, branch: str = "main") -> None:
    with graph.transaction(branch=branch, actor="tester") as tx:
        tx.load(Customer, customers("a", "d", tier="gold"))
        tx.delete(Customer, "c")
        tx.load(Placed, [{"left_key": "d", "right_key": 2}])


def _branch(graph: Graph) -> None:
    _fill(graph)
    graph.branches.create("try")


def _diverge(graph: Graph) -> None:
    _branch(graph)
    _load(graph, "try")
    graph.load(Order, [{"id": 3, "total": 3.0}])


def _create(graph: Graph) -> None:
    if "try" not in {branch.name for branch in graph.branches.list()}:
        graph.branches.create("try")


def _delete(graph: Graph) -> None:
    with suppress(UnknownBranchError):
        graph.branches.delete("try")


def _merge(graph: Graph) -> None:
    graph.merge("try", actor="tester")


SCENARIOS: dict[str, Scenario] = {
    "publish": Scenario(_fill, _load),
    "fork": Scenario(_branch, lambda graph: _load(graph, "try")),
    "merge": Scenario(_diverge, _merge),
    "create branch": Scenario(_fill, _create),
    "delete branch": Scenario(_diverge, _delete),
}


def fresh(url: str) -> Graph:
    return Graph.init(url, TYPES)
