"""Maintenance changes no row, keeps what is pinned, puts right what can be, and keeps costs where they were."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from graph_support import Customer, Order, Placed, customers, described, held

from ontolake import faults
from ontolake.errors import Invalid, NotFound
from ontolake.graph import Graph, RemovedCommitError, UnknownCommitError
from ontolake.history import Maintained


def fill(graph: Graph, count: int) -> None:
    for number in range(count):
        with graph.transaction() as tx:
            tx.load(Customer, customers(f"k{number}"))
            tx.load(Order, [{"id": number}])


def test_optimize_changes_no_row_and_no_history(graph: Graph, url: str) -> None:
    fill(graph, 6)
    graph.delete(Customer, "k2")
    graph.branches.create("try")
    graph.load(Customer, customers("x"), branch="try")
    before, history = described(graph), [commit.id for commit in graph.commits()]
    done = graph.optimize()
    assert {one.table for one in done} == {"node/Customer", "node/Order"}
    assert all(one.fragments_after == 1 for one in done)
    assert described(graph) == before
    assert [commit.id for commit in graph.commits()][1:] == history
    assert list(graph.diff(f"main@{history[0]}", "main")) == []
    assert graph.merge("try").status == "merged"
    graph.load(Customer, customers("k0", tier="gold"))
    with Graph.open(url, read_only=True) as again:
        for id in history:
            again.snapshot(id).table(Customer).to_arrow()
        assert again.snapshot().get(Customer, "k0")["tier"] == "gold"  # type: ignore[index]
    assert graph.optimize(branch="try") == [] or held(graph, "try")


def test_optimize_publishes_nothing_that_it_cannot_look_at(graph: Graph, url: str, tmp_path: Path) -> None:
    """A version between the one that is shown and the last may be anybody's."""
    fill(graph, 3)
    before = described(graph)

    def damage(step: str) -> None:
        if step == "graph: table reworked":
            _, second, *_ = sorted((tmp_path / "graph" / "nodes").glob("*/_versions/*"),
                                   key=lambda path: path.stat().st_mtime_ns, reverse=True)
            second.write_bytes(b"short")

    with faults.arm(damage), pytest.raises(OSError, match="LanceError"):
        graph.optimize()
    with Graph.open(url) as again:
        assert described(again) == before
        assert next(again.commits()).metadata["kind"] == "load"


def test_big_tables_get_an_index_on_their_keys_and_columns_that_ask_for_one(graph: Graph) -> None:
    graph.load(Order, pa.table({"id": range(20_000)}))
    graph.optimize()
    dataset = graph.snapshot().table(Order).dataset
    assert [index.name for index in dataset.describe_indices()] == ["id_idx"]
    dataset.io_stats_incremental()
    assert graph.snapshot().get(Order, 777) == {"id": 777, "total": 0.0}
    graph.load(Order, [{"id": 777, "total": 5.0}, {"id": 20_001}])
    assert graph.snapshot().get(Order, 777) == {"id": 777, "total": 5.0}
    assert graph.snapshot().table(Order).count() == 20_001
    graph.optimize()
    assert graph.snapshot().get(Order, 777) == {"id": 777, "total": 5.0}
    with pytest.raises(Invalid):
        graph.index(Order, "nowhere")
    with pytest.raises(Invalid):
        graph.index(Order, "id", kind="text")


def test_cleanup_keeps_every_version_that_something_shows(graph: Graph, url: str) -> None:
    fill(graph, 8)
    history = [commit.id for commit in graph.commits()]
    graph.branches.create("old", at=history[5])
    graph.tags.create("release", history[3])
    graph.optimize()
    before = described(graph)
    assert graph.cleanup()[0] == [] or described(graph) == before
    planned, freed = graph.cleanup(keep_commits=2)
    assert planned
    assert freed == 0
    assert described(graph) == before
    removed, _ = graph.cleanup(keep_commits=2, dry_run=False)
    assert {one.table for one in removed} >= {"node/Customer"}
    with Graph.open(url) as again:
        assert described(again) == before
        assert again.snapshot("release").table(Customer).to_arrow().num_rows == 5
        assert again.snapshot(history[0]).table(Customer).to_arrow().num_rows == 8
        with pytest.raises(RemovedCommitError):
            again.snapshot(history[2]).table(Customer).to_arrow()
        again.load(Customer, customers("more"))
        again.load(Customer, customers("more"), branch="old")
        assert list(again.verify()) == []
        assert again.cleanup(keep=timedelta(days=1))[0] == [] or again.snapshot("release")
    assert isinstance(graph, Maintained)


@pytest.mark.slow
def test_cleanup_counts_the_commits_of_a_branch_itself(graph: Graph, url: str) -> None:
    """Those that came with a merge are counted where they were made."""
    graph.load(Customer, customers("first"))
    graph.branches.create("try")
    second = graph.load(Customer, customers("second"))
    for number in range(4):
        graph.load(Customer, customers(f"k{number}"), branch="try")
    graph.merge("try")
    graph.branches.delete("try")
    assert second is not None
    graph.cleanup(keep_commits=2, dry_run=False)
    with Graph.open(url) as again:
        assert len(dict(again.snapshot(second.id).rows("Customer"))) == 2
        again.cleanup(keep_commits=1, dry_run=False)
    with Graph.open(url) as again:
        with pytest.raises(RemovedCommitError, match=second.id):
            dict(again.snapshot(second.id).rows("Customer"))
        assert len(held(again)["node/Customer"]) == 6


def test_tags(graph: Graph, url: str) -> None:
    commit = graph.load(Customer, customers("a"))
    assert commit is not None
    graph.tags.create("one")
    graph.load(Customer, customers("b"))
    assert [tag[:3] for tag in graph.tags.list()] == [("one", commit.id, "main")]
    with Graph.open(url, read_only=True) as again:
        assert list(dict(again.snapshot("one").rows("Customer"))) == ["a"]
    for wrong in ("one", "", "a//b"):
        with pytest.raises(Invalid):
            graph.tags.create(wrong)
    with pytest.raises(UnknownCommitError):
        graph.tags.create("two", "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    graph.tags.delete("one")
    with pytest.raises(NotFound):
        graph.tags.delete("one")


def test_repair_finds_drift_and_puts_it_right(graph: Graph, url: str) -> None:
    graph.load(Customer, customers("a"))
    kind = graph.parts.manifest.state().types["node:Customer"]
    rows = pa.Table.from_pylist(customers("x", tier=None, email=None), kind.schema)
    graph.parts.tables.latest(kind, "main").insert(rows)
    before = described(graph)
    assert [(one.kind, one.where) for one in graph.repair()] == [("drift", "node/Customer@main")]
    assert [one.kind for one in graph.repair(dry_run=False)] == ["drift"]
    assert graph.repair() == []
    assert described(graph) == before
    (Path(url) / "__recovery" / "01ARZ3NDEKTSV4RRFFQ69G5FAV.json").write_text("{")
    assert [one.kind for one in graph.repair()] == ["quarantined"]


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_an_export_becomes_the_same_graph_again(graph: Graph, tmp_path: Path, format: str) -> None:
    fill(graph, 3)
    graph.load(Placed, [{"left_key": "k0", "right_key": 1, "note": "ü"}])
    assert graph.export(tmp_path / "out", format=format) == {"node/Customer": 3, "node/Order": 3, "edge/Placed": 1}
    with Graph.import_(f"{tmp_path}/copy/", tmp_path / "out") as copy:
        assert held(copy) == held(graph)
        assert copy.types() == graph.types()
    with pytest.raises(Invalid, match="empty"):
        graph.export(tmp_path / "out")
    with pytest.raises(Invalid, match="not an exported graph"):
        Graph.import_(f"{tmp_path}/other/", tmp_path)


def test_verify_finds_rows_that_are_gone(graph: Graph, tmp_path: Path) -> None:
    graph.load(Customer, customers("a"))
    assert list(graph.verify()) == []
    for path in (tmp_path / "graph" / "nodes").rglob("*.lance"):
        path.write_bytes(path.read_bytes()[:20])
    with Graph.open(f"{tmp_path}/graph/") as again:
        assert [damage.where for damage in again.verify()] == ["node/Customer@main"]


@pytest.mark.slow
def test_an_optimized_branch_finds_rows_by_the_index_that_it_inherited(graph: Graph, url: str) -> None:
    graph.load(Order, [{"id": id} for id in range(10_000)])
    graph.optimize()
    graph.branches.create("try")
    graph.load(Order, [{"id": id} for id in range(10_000, 10_100)], branch="try")
    graph.delete(Order, [3], branch="try")
    graph.optimize(branch="try")
    with Graph.open(url, read_only=True) as again:
        for one in (graph, again):
            found = [one.snapshot(branch="try").get(Order, id) is not None for id in (3, 5, 10_050)]
            assert found == [False, True, True]


@pytest.mark.slow
def test_previews_list_branches_in_one_order(graph: Graph) -> None:
    """The token that confirms a preview is made from the list."""
    names = [f"b{number}" for number in range(6)]
    graph.load(Customer, customers("a"))
    for name in names:
        graph.branches.create(name)
        for text in ("x", "y", "z"):
            graph.load(Customer, customers(text), branch=name)
    removable, _ = graph.cleanup(keep_commits=1)
    assert [one.branch.partition(".")[0] for one in removable if one.branch != "main"] == names
    for name in names:
        state = graph.parts.state(name)
        (key,) = (key for key, kind in state.types.items() if kind.table == "node/Customer")
        graph.parts.tables.restore(state.types[key], state.line, state.pins[key].version, "a crash")
    assert [one.where for one in graph.repair()] == [f"node/Customer@{name}" for name in names]


@pytest.mark.slow
def test_repair_of_drift_tries_again_beside_a_writer(graph: Graph, url: str) -> None:
    graph.load(Customer, customers("a"))
    for kind in (Customer, Order):
        graph.snapshot().table(kind).dataset.delete("false")
    found = graph.repair()
    assert [(one.kind, one.where) for one in found] == [("drift", "node/Customer@main"), ("drift", "node/Order@main")]
    moved: list[str] = []
    with Graph.open(url) as other:
        def write(step: str) -> None:
            if step == "graph: before publishing" and not moved:
                moved.append(step)
                with faults.arm(lambda _: None):
                    other.load(Customer, customers("b"))

        with faults.arm(write):
            done = graph.repair(dry_run=False)
    assert moved
    assert done == found[1:]  # the writer has passed over the drift of its table
    assert graph.repair() == []
    assert held(graph)["node/Customer"].keys() == {"a", "b"}
