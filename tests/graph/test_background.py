"""Optimizing in the background keeps tables in few pieces, loses and blocks nothing, and breaks no transaction."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from graph_support import Customer, Order, customers, held
from hypothesis import given
from hypothesis import strategies as st

from ontolake.errors import Invalid
from ontolake.graph import ExpectedVersionMismatch, Graph
from ontolake.graph.background import ACTOR, rows_to_merge
from ontolake.graph.staging import FRAGMENT_ROWS
from ontolake.graph.together import Turns


@pytest.mark.slow
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


@pytest.mark.slow
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


@given(st.lists(st.integers(1, 10**6) | st.integers(1, 2000), max_size=60))
def test_a_row_is_rewritten_only_when_what_is_new_has_grown_with_it(sizes: list[int]) -> None:
    target = rows_to_merge(sizes)
    open_ones = sorted(size for size in sizes if size < FRAGMENT_ROWS)
    if target is None:
        assert len(open_ones) <= 4 or open_ones[4] >= 2 * sum(open_ones[:4])
        return
    small = [size for size in open_ones if size < target]
    assert len(small) > 4
    if target < FRAGMENT_ROWS:
        assert target == sum(small) + 1
        assert all(size >= 2 * sum(small) for size in open_ones[len(small) :])


def test_writers_wait_only_for_the_moment_of_taking_over() -> None:
    turns = Turns()
    with turns.writing("main"):
        with turns.alone("main", 0.01) as mine:
            assert not mine  # somebody writes, so that nobody is kept waiting
        with turns.writing("main"), turns.alone("other", 0.01) as mine:
            assert mine
    waiting = threading.Event()

    def write() -> None:
        with turns.writing("main"):
            waiting.set()

    with turns.alone("main", 0.01) as mine:
        assert mine
        with turns.writing("main"):  # who is alone may write
            pass
        other = threading.Thread(target=write)
        other.start()
        assert not waiting.is_set()
    other.join(120)
    assert waiting.is_set()
