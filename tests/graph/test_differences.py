"""Differences and changes: exact, on whichever lines, and at a cost that follows the change."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from graph_support import Customer, Order, customers, held
from marking import slow_after

from ontolake.graph import Graph, UnknownCommitError
from ontolake.graph.commit.records import Pin
from ontolake.graph.commit.ulid import new_ulid
from ontolake.history import ChangeKind, Versioned, net


def test_a_diff_turns_one_snapshot_into_the_other(graph: Graph) -> None:
    graph.load(Customer, customers("a", "b", "c", "same"))
    graph.branches.create("try")
    graph.load(Customer, [*customers("a", tier="gold"), *customers("new", "same")], branch="try")
    graph.delete(Customer, "b", branch="try")
    graph.load(Customer, customers("c", tier="silver"))
    graph.load(Order, [{"id": 1}])
    for one, other in (("main", "try"), ("try", "main")):
        state = held(graph, one)
        for change in graph.diff(one, other):
            assert state[change.table].get(change.key) == change.before
            if change.after is None:
                del state[change.table][change.key]
            else:
                state[change.table][change.key] = change.after
        assert state == held(graph, other)
    kinds = {(change.table, change.key): change.kind for change in graph.diff("main", "try")}
    assert kinds == {
        ("node/Customer", "a"): ChangeKind.UPDATE, ("node/Customer", "b"): ChangeKind.DELETE,
        ("node/Customer", "c"): ChangeKind.UPDATE, ("node/Customer", "new"): ChangeKind.INSERT,
        ("node/Order", 1): ChangeKind.DELETE,
    }  # fmt: skip


def test_changes_can_be_followed_from_any_commit(graph: Graph, url: str) -> None:
    assert isinstance(graph, Versioned)
    start = next(iter(graph.commits())).id
    graph.load(Customer, customers("a"))
    middle = graph.load(Customer, customers("a", "b", tier="gold"))
    assert middle is not None
    graph.delete(Customer, "a")
    told = list(graph.changes(start))
    assert [(change.key, change.kind.value) for change in told] == [
        ("a", "insert"), ("a", "update"), ("b", "insert"), ("a", "delete")]
    assert [change.key for change in net(told)] == ["b"]
    with Graph.open(url, read_only=True) as again:
        assert list(again.changes(middle.id)) == told[3:]
        assert list(again.changes(start, middle.id)) == told[:3]
        assert list(again.changes(told[-1].commit)) == []
        with pytest.raises(UnknownCommitError):
            list(again.changes(new_ulid()))


def test_restored_versions_are_no_changes(graph: Graph) -> None:
    graph.load(Customer, customers("a"))
    kind = graph.parts.manifest.state().types["node:Customer"]
    rows = pa.Table.from_pylist(customers("x", tier=None, email=None), kind.schema)
    graph.parts.tables.latest(kind, "main").insert(rows)
    before = next(iter(graph.commits())).id
    graph.load(Customer, customers("b"))
    assert [change.key for change in graph.changes(before)] == ["b"]


@pytest.mark.parametrize("size", slow_after(1, [2_000, 60_000]))
def test_a_diff_and_a_merge_read_what_changed(graph: Graph, size: int) -> None:
    """The same change costs about the same bytes, whatever the size of the table."""
    names = np.char.add("k", np.arange(size).astype(str))
    graph.load(Customer, pa.table({"id": names, "name": names}))
    graph.optimize()
    graph.branches.create("try")
    graph.load(Customer, customers("k5", "k77", "fresh"), branch="try")
    graph.delete(Customer, "k6", branch="try")
    graph.load(Customer, customers("k1000"))
    state = graph.parts.manifest.state("main")
    kind = state.types["node:Customer"]
    pins: list[Pin] = [graph.snapshot(branch=name).pins["node:Customer"] for name in ("main", "try")]
    opened = [graph.parts.tables.at(kind, pin) for pin in pins]
    for dataset in opened:
        dataset.io_stats_incremental()
    assert len(list(graph.diff("main", "try"))) == 5
    read = sum(dataset.io_stats_incremental().read_bytes for dataset in opened)
    stored = sum(file.file_size_bytes or 0 for fragment in opened[0].get_fragments()
                 for file in fragment.metadata.files)
    assert read < 220_000, (read, stored)
    result = graph.merge("try")
    assert result.tables["node/Customer"] == (1, 2, 1)
