"""Many at once: one winner where they overlap, one chain where they do not, and readers who never wait."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

import pytest
from graph_support import TYPES, Customer, Order, Placed, customers, entity, held, start

from ontolake import faults
from ontolake.graph import (
    EndpointError,
    ExpectedVersionMismatch,
    Graph,
    GraphError,
    PublishContendedError,
    UnknownBranchError,
)
from ontolake.graph.commit.manifest import COMPACT_AFTER


def test_of_two_writers_of_one_table_one_wins(graph: Graph, url: str) -> None:
    graph.load(Customer, customers("a"))
    with Graph.open(url) as other:
        mine, theirs = graph.transaction(), other.transaction()
        mine.load(Customer, customers("mine"))
        theirs.load(Customer, customers("theirs"))
        assert theirs.finish() is not None
        with pytest.raises(ExpectedVersionMismatch) as caught:
            mine.finish()
        assert caught.value.table_key == "node:Customer"
        assert caught.value.expected != caught.value.actual
        for handle in (graph, other):
            assert list(held(handle)["node/Customer"]) == ["a", "theirs"]
        graph.load(Customer, customers("mine"))
        assert list(held(other)["node/Customer"]) == ["a", "mine", "theirs"]


def test_writers_that_meet_between_moving_and_publishing_never_mix(graph: Graph, url: str) -> None:
    """The second builds on rows that the first has written and not published; only one of them may be seen."""
    graph.load(Customer, customers("a"))
    with Graph.open(url) as other:
        met = []

        def meet(step: str) -> None:
            if step == "graph: before publishing" and not met:
                met.append(step)
                other.load(Customer, customers("second"))

        with faults.arm(meet), pytest.raises(ExpectedVersionMismatch):
            graph.load(Customer, customers("first"))
        assert list(held(other)["node/Customer"]) == ["a", "second"]
        graph.load(Customer, customers("third"))
        assert list(held(other)["node/Customer"]) == ["a", "second", "third"]


def test_writers_of_other_tables_do_not_disturb_each_other(graph: Graph, url: str) -> None:
    with Graph.open(url) as other:
        mine, theirs = graph.transaction(), other.transaction()
        mine.load(Customer, customers("a"))
        theirs.load(Order, [{"id": 1}])
        mine.finish()
        theirs.finish()
        assert (list(held(graph)["node/Customer"]), list(held(graph)["node/Order"])) == (["a"], [1])


def test_an_edge_and_the_deletion_of_its_node_cannot_both_win(graph: Graph, url: str) -> None:
    for first in ("edge", "node"):
        graph.load(Customer, customers("a"))
        graph.load(Order, [{"id": 1}])
        with Graph.open(url) as other:
            edge, node = graph.transaction(), other.transaction()
            edge.load(Placed, [{"left_key": "a", "right_key": 1}])
            node.delete(Customer, "a")
            one, two = (edge, node) if first == "edge" else (node, edge)
            assert one.finish() is not None
            with pytest.raises(EndpointError):
                two.finish()
        if first == "edge":
            graph.delete(Placed, ("a", 1))


@pytest.mark.slow
def test_readers_see_whole_commits_during_everything(graph: Graph, url: str) -> None:
    with graph.transaction() as tx:
        tx.load(Customer, customers("a"))
        tx.load(Order, [{"id": 0}])
    stop, seen, errors = threading.Event(), set(), []

    def read() -> None:
        try:
            with Graph.open(url, read_only=True) as reader:
                while not stop.is_set():
                    snapshot = reader.snapshot()
                    seen.add((snapshot.table(Customer).to_arrow().num_rows, snapshot.table(Order).to_arrow().num_rows))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    def write(number: int, branch: str = "main") -> None:
        with graph.transaction(branch=branch) as tx:
            tx.load(Customer, customers(f"k{number}"))
            tx.load(Order, [{"id": number}])

    meanwhile = [
        graph.optimize, lambda: graph.branches.create("try"), lambda: write(100, "try"), lambda: graph.merge("try"),
        lambda: graph.branches.delete("try"), lambda: graph.schema_apply(graph.schema_plan([*TYPES, entity("Tag")])),
        lambda: graph.gc(dry_run=False), lambda: graph.index(Order, "total"), graph.repair,
    ]  # fmt: skip
    try:
        for number, act in enumerate(meanwhile, 1):
            write(number)
            act()
    finally:
        stop.set()
        thread.join()
    assert not errors
    assert all(left == right for left, right in seen), seen
    assert max(seen) <= (len(meanwhile) + 2,) * 2


def test_branches_deleted_under_a_live_reader(graph: Graph, url: str) -> None:
    graph.load(Customer, customers("a"))
    with Graph.open(url, read_only=True) as reader:
        for number in range(3):
            graph.branches.create("try")
            graph.load(Customer, customers(f"k{number}"), branch="try")
            assert list(held(reader, "try")["node/Customer"]) == ["a", f"k{number}"]
            graph.branches.delete("try")
            with pytest.raises(UnknownBranchError):
                reader.snapshot(branch="try")


@pytest.mark.slow
def test_eight_disjoint_writer_processes_make_one_chain(tmp_path: Path) -> None:
    url, each = f"{tmp_path}/many/", 5
    with Graph.init(url, [entity(f"T{number}") for number in range(8)]) as graph:
        writers = start("graph_writer.py", url, str(each), *(f"T{number}" for number in range(8)))
        out, err = writers.communicate(timeout=200)
        assert writers.returncode == 0, err
        acknowledged = set(out.split())
        chain = list(graph.commits())
        assert len(acknowledged) == 8 * each
        assert {commit.id for commit in chain[:-1]} == acknowledged
        for newer, older in pairwise(chain):
            assert newer.parents == (older.id,)
        assert all(len(rows) == each for rows in held(graph).values())
        assert graph.recover() == []


@pytest.mark.slow
def test_who_compacts_the_manifest_is_told_of_its_own_commit(graph: Graph, url: str) -> None:
    """Not of one that somebody else made meanwhile."""
    with Graph.open(url) as other:
        theirs: list[str] = []

        def come_between(step: str) -> None:
            if step == "graph: manifest compacted" and not theirs:
                theirs.append("")
                other.load(Order, [{"id": 1}], actor="they")

        for number in range(COMPACT_AFTER + 2):
            with faults.arm(come_between):
                mine = graph.load(Customer, customers(f"c{number}"), actor="me")
            assert mine is not None
            assert mine.author == "me"
        assert theirs
        assert [commit.author for commit in graph.commits()].count("they") == 1


def test_threads_on_one_table_lose_nothing_that_was_acknowledged(graph: Graph, url: str) -> None:
    won: list[str] = []
    lock = threading.Lock()

    def write(name: str) -> None:
        with Graph.open(url) as mine:
            for number in range(4):
                try:
                    mine.load(Customer, customers(f"{name}{number}"))
                except GraphError:
                    continue
                with lock:
                    won.append(f"{name}{number}")

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(held(graph)["node/Customer"]) == sorted(won)
    assert won


@pytest.mark.slow
def test_optimizing_beside_a_writer_harms_neither(graph: Graph, url: str) -> None:
    """The writer never fails; whoever optimizes gets it done, or hears that there is no time for it."""
    graph.load(Customer, customers(*(f"k{number}" for number in range(40))))
    rows = {f"k{number}": f"K{number}" for number in range(40)}
    ended, problems, done = threading.Event(), list[BaseException](), list[int]()

    def upkeep(make: bool) -> None:
        with Graph.open(url) as other:
            while not ended.is_set():
                try:
                    if make:
                        other.index(Customer, "name", kind="text")
                    else:
                        done.append(len(other.optimize()))
                except PublishContendedError:
                    continue
                except BaseException as error:
                    problems.append(error)
                    return

    threads = [threading.Thread(target=upkeep, args=(make,)) for make in (False, False, True)]
    for thread in threads:
        thread.start()
    try:
        for number in range(20):
            if number % 3 == 2:
                assert graph.delete(Customer, f"k{number}") == 1
                del rows[f"k{number}"]
            else:
                name = f"w{number}" if number % 3 == 0 else f"k{number}"
                graph.load(Customer, [{"id": name, "name": "written"}])
                rows[name] = "written"
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert problems == []
    assert sum(done)
    with Graph.open(url) as again:
        assert again.recovered == []
        assert {key: row["name"] for key, row in again.snapshot().rows("Customer")} == rows
        found = again.snapshot().search(Customer, text="written", limit=100)
        assert found.num_rows == list(rows.values()).count("written")
        assert list(again.verify()) == []
