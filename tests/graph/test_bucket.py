"""The same on a real object store: commits, branches, merges, recovery."""

from __future__ import annotations

import pytest
from graph_support import TYPES, Customer, Order, customers, entity, held

from ontolake import faults
from ontolake.graph import ExpectedVersionMismatch, Graph


class Stop(BaseException):
    pass


@pytest.fixture(params=["seaweed", "azurite"])
def bucket_url(request: pytest.FixtureRequest) -> str:
    """A place on a real server: S3, and Azure."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.mark.slow
def test_a_graph_on_a_server(bucket_url: str) -> None:
    with Graph.init(bucket_url, TYPES) as graph, Graph.open(bucket_url) as other:
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
        with Graph.open(bucket_url) as again:
            assert [one.action for one in again.recovered] == ["rolled_forward"]
            assert list(held(again)["node/Customer"]) == ["a", "b", "c", "late", "theirs"]
            again.branches.delete("try")
            assert [branch.name for branch in again.branches.list()] == ["main"]


@pytest.mark.slow
def test_types_branches_made_again_and_cleanup_on_a_server(bucket_url: str) -> None:
    with Graph.init(bucket_url, TYPES) as graph:
        graph.load(Customer, customers("a"))
        graph.branches.create("try")
        renamed = entity("Order", int, amount=(float, {"default": 0.0, "ge": 0}))
        graph.schema_apply(graph.schema_plan([Customer, renamed, entity("Tag")], branch="try",
                                             renames={"Order": {"total": "amount"}}))
        graph.load("Order", [{"id": 1, "amount": 2.0}], branch="try")
        graph.load("Order", [{"id": 2, "total": 3.0}])
        assert graph.merge("try").status == "merged"
        graph.branches.delete("try")
        graph.branches.create("try")
        graph.load("Tag", [{"id": "t"}], branch="try")
        removed, _ = graph.cleanup(keep_commits=1, dry_run=False)
        assert removed
        assert list(graph.verify()) == []
        with Graph.open(bucket_url) as again:
            assert again.recovered == []
            assert {key: row["amount"] for key, row in held(again)["node/Order"].items()} == {1: 2.0, 2: 3.0}
            assert list(held(again, "try")["node/Tag"]) == ["t"]
            assert again.merge("try").status == "fast_forward"
