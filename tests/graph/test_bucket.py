"""The same on a real object store: commits, branches, merges, recovery."""

from __future__ import annotations

import pytest
from graph_support import TYPES, Customer, Order, customers, held

from ontolake import faults
from ontolake.graph import ExpectedVersionMismatch, Graph


class Stop(BaseException):
    pass


@pytest.mark.slow
def test_a_graph_on_seaweedfs(seaweed_url: str) -> None:
    with Graph.init(seaweed_url, TYPES) as graph, Graph.open(seaweed_url) as other:
        graph.load(Customer, customers("a", "b"))
        mine, theirs = graph.transaction(), other.transaction()
        mine.load(Customer, customers("mine"))
        theirs.load(Customer, customers("theirs"))
        theirs.finish()
        with pytest.raises(ExpectedVersionMismatch):
            mine.finish()
        graph.branches.create("try")
        graph.load(Customer, customers("c"), branch="try")
        graph.load(Order, [{"id": 1}])
        assert graph.merge("try").status == "merged"
        graph.optimize()

        def stop(step: str) -> None:
            if step == "graph: before publishing":
                raise Stop

        with faults.arm(stop), pytest.raises(Stop):
            graph.load(Customer, customers("late"))
        with Graph.open(seaweed_url) as again:
            assert [one.action for one in again.recovered] == ["rolled_forward"]
            assert list(held(again)["node/Customer"]) == ["a", "b", "c", "late", "theirs"]
            again.branches.delete("try")
            assert [branch.name for branch in again.branches.list()] == ["main"]
