"""Optimizing in the background keeps tables in few pieces, loses and blocks nothing, and breaks no transaction."""

from __future__ import annotations

import random
from typing import Any

import pytest
from graph_support import Customer, Order, customers, held
from hypothesis import given
from hypothesis import strategies as st

from ontolake.errors import Invalid
from ontolake.graph import ExpectedVersionMismatch, Graph
from ontolake.graph.background import ACTOR, rows_to_merge


def test_many_commits_end_in_few_fragments_with_every_row(graph: Graph, url: str) -> None:
    graph.keep_optimized(every=5)
    choose = random.Random(7)
    expected: dict[str, Any] = {}
    for number in range(30):
        with graph.transaction() as tx:
            for key in {f"k{choose.randrange(60)}" for _ in range(4)}:
                tx.load(Customer, customers(key, tier=str(number)))
                expected[key] = {"id": key, "name": key.upper(), "tier": str(number), "email": None}
            if expected and number % 3 == 0:
                gone = choose.choice(sorted(expected))
                tx.delete(Customer, gone)
                expected.pop(gone)
            tx.load(Order, [{"id": number}])
    assert graph._background is not None
    assert graph._background.drain(60)
    assert held(graph)["node/Customer"] == expected
    assert list(held(graph)["node/Order"]) == list(range(30))
    assert len(graph.snapshot().table(Order).dataset.get_fragments()) < 12
    kinds = [(commit.metadata["kind"], commit.author) for commit in graph.commits()]
    assert ("optimize", ACTOR) in kinds
    graph.close()
    with Graph.open(url) as again:
        assert again.recovered == []
        assert held(again)["node/Customer"] == expected
        assert list(again.verify()) == []


def test_a_transaction_goes_on_over_an_optimize_and_stops_at_changes(graph: Graph, url: str) -> None:
    for number in range(4):
        graph.load(Customer, customers(f"k{number}"))
    with Graph.open(url) as other:
        begun = graph.transaction()
        begun.load(Customer, customers("k0", tier="gold"))
        begun.delete(Customer, "k1")
        other.optimize()
        other.load(Order, [{"id": 1}])
        begun.finish()
        rows = held(other)["node/Customer"]
        assert (rows["k0"]["tier"], sorted(rows)) == ("gold", ["k0", "k2", "k3"])
        late = graph.transaction()
        late.load(Customer, customers("k2", tier="late"))
        other.load(Customer, customers("k3", tier="first"))
        other.optimize()
        with pytest.raises(ExpectedVersionMismatch):
            late.finish()
        assert held(graph)["node/Customer"]["k2"]["tier"] is None


def test_closing_ends_it_and_nonsense_is_refused(graph: Graph) -> None:
    with pytest.raises(Invalid, match="makes no sense"):
        graph.keep_optimized(every=1)
    graph.keep_optimized(every=2)
    graph.keep_optimized(every=3)
    background = graph._background
    assert background is not None
    graph.close()
    assert not background._thread.is_alive()


@given(st.lists(st.integers(1, 10**6), max_size=60))
def test_a_row_is_rewritten_only_when_what_is_new_has_grown_with_it(sizes: list[int]) -> None:
    target = rows_to_merge(sizes)
    small = [size for size in sizes if target is not None and size < target]
    if target is None:
        assert len(sizes) <= 4 or sorted(sizes)[4] >= 2 * sum(sorted(sizes)[:4])
        return
    assert len(small) > 4
    assert target > sum(small)
    assert all(size >= 2 * sum(small) for size in sizes if size >= target)
