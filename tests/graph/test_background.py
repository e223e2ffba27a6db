"""Upkeep in the background keeps tables in few pieces, loses and blocks nothing, and changes no answer."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import lance
import pytest
from graph_support import TYPES, Customer, Order, Placed, customers, held, start
from hypothesis import given
from hypothesis import strategies as st
from lance.optimize import Compaction

from ontolake.errors import Invalid
from ontolake.graph import ExpectedVersionMismatch, Graph, MergeConflictError
from ontolake.graph.concurrency import Turns
from ontolake.graph.tables import indexes
from ontolake.graph.tables.tiers import FRAGMENT_ROWS, rows_to_merge
from ontolake.graph.upkeep import table_upkeep


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
    assert len(graph.snapshot().table(Customer).dataset.get_fragments()) < 12
    assert [commit.metadata["kind"] for commit in graph.commits()] == ["load"] * 30 + ["init"]
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
    with pytest.raises(Invalid, match="at least 2"):
        graph.keep_optimized(every=1)
    graph.keep_optimized(every=2)
    graph.keep_optimized(every=3)
    for number in range(4):
        graph.load(Order, [{"id": number}])
    background = graph._background
    assert background is not None
    assert background._thread is not None
    graph.close()
    assert not background._thread.is_alive()


@pytest.fixture
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds at which few rows go through everything that upkeep does."""
    monkeypatch.setattr(indexes, "INDEX_ROWS", 8)
    monkeypatch.setattr(table_upkeep, "SEGMENT_ROWS", 6)


def answers(graph: Graph, branch: str) -> dict[str, Any]:
    """What can be asked of a branch, in several ways."""
    snapshot = graph.snapshot(branch=branch)
    names = [f"k{number}" for number in range(30)]
    return {
        "rows": held(graph, branch), "commit": snapshot.commit,
        "history": [(commit.id, commit.parents, commit.metadata) for commit in graph.commits(branch=branch)],
        "one by one": [snapshot.get(Customer, name) for name in names],
        "at once": sorted(snapshot.table(Customer).get_many(names).column("id").to_pylist()),
        "filtered": sorted(snapshot.table(Customer).to_arrow("id >= 'k2' AND id < 'k5'").column("id").to_pylist()),
        "edges": sorted(snapshot.table(Placed).to_arrow("right_key = 3").column("left_key").to_pylist()),
        "walks": sorted(snapshot.traverse(Customer, None, [Placed]).column("id").to_pylist()),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("low")
@pytest.mark.parametrize("seed", range(3))
def test_upkeep_changes_no_answer(url: str, seed: int) -> None:
    """Random histories of two branches: each answer is the same before upkeep, after it and in a graph without any."""
    choose = random.Random(seed)
    with Graph.init(url, TYPES) as graph:
        graph.keep_optimized(every=2)
        graph.load(Order, [{"id": number} for number in range(8)])
        rows: dict[str, dict[str, str]] = {"main": {}}
        for number in range(45):
            branch = choose.choice(sorted(rows))
            act = choose.randrange(8)
            if act == 0 and len(rows) == 1:
                graph.branches.create("try")
                rows["try"] = dict(rows["main"])
            elif act == 1 and len(rows) == 2:
                with suppress(MergeConflictError):
                    graph.merge("try", strategy="theirs")
                rows["main"] = {key: row["tier"] for key, row in held(graph)["node/Customer"].items()}
            elif act == 2 and rows[branch]:
                key = choose.choice(sorted(rows[branch]))
                graph.delete(Customer, key, cascade=True, branch=branch)
                del rows[branch][key]
            else:
                names = {f"k{choose.randrange(30)}" for _ in range(choose.randrange(1, 6))}
                with graph.transaction(branch=branch) as tx:
                    tx.load(Customer, customers(*names, tier=str(number)))
                    tx.load(Placed, [{"left_key": min(names), "right_key": number % 8}], mode="overwrite")
                assert tx.commit is not None
                assert graph.snapshot(branch=branch).commit == tx.commit.id
                rows[branch].update(dict.fromkeys(names, str(number)))
            if number % 5 == 0:
                before = answers(graph, branch)
                assert graph._background is not None
                assert graph._background.drain(60)
                assert answers(graph, branch) == before
                with Graph.open(url, read_only=True) as other:
                    assert answers(other, branch) == before
            for name, expected in rows.items():
                assert {key: row["tier"] for key, row in held(graph, name)["node/Customer"].items()} == expected
        assert graph.snapshot().table(Customer).dataset.describe_indices()
        assert list(graph.verify()) == []
    with Graph.open(url) as graph:
        assert graph.recovered == []
        assert graph.repair() == []


@pytest.mark.slow
@pytest.mark.usefixtures("low")
@pytest.mark.parametrize("broken", ["plan", "commit", "index"])
def test_upkeep_that_fails_fails_no_writer(url: str, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    class Broken:
        @staticmethod
        def plan(*_: Any) -> Any:
            return Compaction.plan(*_) if broken != "plan" else Broken.commit()

        @staticmethod
        def commit(*_: Any, **__: Any) -> Any:
            raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        if broken == "index":
            patch.setattr(lance.LanceDataset, "create_index_uncommitted", Broken.commit)
        else:
            patch.setattr("lance.optimize.Compaction", Broken)
        with Graph.init(url, TYPES) as graph:
            graph.keep_optimized(every=2)
            for number in range(20):
                graph.load(Order, [{"id": number}])
            assert graph._background is not None
            assert graph._background.drain(60)
            assert list(held(graph)["node/Order"]) == list(range(20))
    with Graph.open(url) as graph:
        assert graph.recovered == []
        graph.keep_optimized(every=2)
        for number in range(20, 26):
            graph.load(Order, [{"id": number}])
        assert graph._background is not None
        assert graph._background.drain(60)
        graph._background._tend("main")
        assert list(held(graph)["node/Order"]) == list(range(26))
        assert len(graph.snapshot().table(Order).dataset.get_fragments()) < 12
        assert graph.repair() == []


@pytest.mark.usefixtures("low")
def test_a_head_that_upkeep_has_moved_outlives_a_cleanup(graph: Graph) -> None:
    graph.keep_optimized(None)
    for number in range(12):
        head = graph.load(Order, [{"id": number}])
    graph.keep_optimized(2)
    assert graph._background is not None
    graph._background._tend("main")
    assert head is not None
    removed, _ = graph.cleanup(keep=timedelta(0), dry_run=False)
    assert removed
    graph.load(Order, [{"id": 12}])
    assert list(dict(graph.snapshot(head.id).rows("node/Order"))) == list(range(12))


@pytest.mark.slow
@pytest.mark.usefixtures("low")
def test_upkeep_of_others_fails_no_writer(url: str) -> None:
    """Two handles tend the tables that both write to; each writes to one of its own, so no commit may be refused."""
    problems: list[BaseException] = []

    def write(graph: Graph, table: Any, rows: Any) -> None:
        try:
            graph.keep_optimized(every=2)
            for row in rows:
                graph.load(table, [row])
        except BaseException as error:
            problems.append(error)

    with Graph.init(url, TYPES) as one, Graph.open(url) as two:
        threads = [threading.Thread(target=write, args=(one, Customer, customers(*(f"k{n}" for n in range(40))))),
                   threading.Thread(target=write, args=(two, Order, [{"id": n} for n in range(40)]))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        assert problems == []
        assert len(held(one)["node/Customer"]) == 40
        assert list(held(two)["node/Order"]) == list(range(40))
        assert len(list(one.commits())) == 81


@pytest.mark.slow
def test_a_big_load_gets_an_index_on_its_keys_also_where_the_process_ends(url: str) -> None:
    Graph.init(url, TYPES).close()
    child = start("graph_leaver.py", url)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, (out, err)
    with Graph.open(url) as graph:
        assert graph.recovered == []
        (index,) = graph.snapshot().table(Order).dataset.describe_indices()
        assert (index.name, index.num_rows_indexed) == ("id_idx", 20_000)
        assert graph.snapshot().get(Order, 12_345) == {"id": 12_345, "total": 0.0}
        assert graph.repair() == []


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
