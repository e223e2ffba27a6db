"""What things cost, counted in requests: the same however long the history and however big the tables."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from graph_requests import Reads, Requests, counting
from graph_support import TYPES, Customer, Order, Placed, customers
from listings import listings

from ontolake.graph import Graph
from ontolake.objects import open_store
from ontolake.objects.testing import SeaweedServer

pytestmark = pytest.mark.xdist_group("graph costs")
SIZES = (10, 100, 400)


def copy_as_old(source: str, target: str) -> None:
    """Copy a file as one of long ago: what was made just now is looked at by others who write."""
    shutil.copyfile(source, target)
    os.utime(target, (0, 0))


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Path]]:
    """Graphs after so many commits of one row, optimized; each is made when it is asked for."""
    folder = tmp_path_factory.mktemp("histories")

    class Histories(dict[int, Path]):
        def __missing__(self, count: int) -> Path:
            for number in range(len(list(graph.commits())), count):
                graph.load(Order, [{"id": number}])
            graph.optimize()
            self[count] = folder / str(count)
            shutil.copytree(folder / "growing", self[count])
            return self[count]

    with Graph.init(f"{folder}/growing/", TYPES) as graph:
        yield Histories()


@pytest.fixture
def bucket(seaweed: SeaweedServer, seaweed_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Requests]]:
    """A fresh prefix on SeaweedFS, and what is asked of it."""
    with counting(seaweed.endpoint) as (address, requests):
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.setenv(name, address)
        yield seaweed_url, requests


def upload(folder: Path, url: str, server: SeaweedServer) -> str:
    """The same graph in a bucket, past whoever counts: nothing in it depends on where it is."""
    with pytest.MonkeyPatch.context() as direct:
        for name, value in server.env().items():
            direct.setenv(name, value)
        store = open_store(url)
    files = [path for path in folder.rglob("*") if path.is_file()]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: store.put(path.relative_to(folder).as_posix(), path.read_bytes()), files))
    store.close()
    return url


def costs(url: str, counts: Reads | Requests) -> dict[str, Counter[str]]:
    """What a cold open, a warm read and the writing of one row ask for."""
    found = {}
    with Graph.open(url, read_only=True) as graph:
        assert graph.snapshot().get(Order, 5) == {"id": 5, "total": 0.0}
        found["cold open and read"] = counts.taken(graph)
        assert graph.snapshot().get(Order, 5) is not None
        found["warm read"] = counts.taken(graph)
    with Graph.open(url) as graph:
        graph.snapshot()
        found["cold open for writing"] = counts.taken(graph)
        graph.load(Order, [{"id": -1}])
        found["first row"] = counts.taken(graph)
        graph.load(Order, [{"id": -2}])
        found["another row"] = counts.taken(graph)
        graph.snapshot()
        found["warm look"] = counts.taken(graph)
    return found


def compare(found: dict[int, dict[str, Counter[str]]]) -> None:
    """That costs after a long history are those after a short one."""
    short, *longer = found.values()
    assert all(sum(cost.values()) > 0 for name, cost in short.items() if name != "warm look")
    assert all(long == short for long in longer), found


@pytest.mark.slow
def test_on_a_directory_costs_do_not_follow_the_number_of_commits(histories: dict[int, Path], tmp_path: Path) -> None:
    found = {}
    for size in SIZES:
        shutil.copytree(histories[size], tmp_path / str(size), copy_function=copy_as_old)
        found[size] = costs(f"{tmp_path / str(size)}/", Reads())
    compare(found)


@pytest.mark.slow
def test_on_a_bucket_costs_do_not_follow_the_number_of_commits(
    histories: dict[int, Path], seaweed: SeaweedServer, bucket: tuple[str, Requests]
) -> None:
    url, requests = bucket
    found = {}
    for size in SIZES:
        place = upload(histories[size], f"{url}/{size}", seaweed)
        requests.taken()
        found[size] = costs(place, requests)
    compare(found)


@pytest.mark.slow
def test_a_diff_and_a_merge_ask_for_what_changed(
    tmp_path: Path, seaweed: SeaweedServer, bucket: tuple[str, Requests]
) -> None:
    """The same change in tables of which one is ten times the other."""
    url, requests = bucket
    found: dict[int, dict[str, Counter[str]]] = {}
    received: dict[int, dict[str, int]] = {}
    for size in (20_000, 200_000):
        folder = tmp_path / str(size)
        names = np.char.add("k", np.arange(size).astype(str))
        with Graph.init(f"{folder}/", TYPES) as graph:
            graph.load(Customer, pa.table({"id": names, "name": names}))
            graph.optimize()
            graph.branches.create("try")
            graph.load(Customer, customers("k5", "k77", "fresh"), branch="try")
            graph.delete(Customer, "k6", branch="try")
            graph.load(Customer, customers("k1000"))
        place = upload(folder, f"{url}/{size}", seaweed)
        found[size], received[size] = {}, {}
        with Graph.open(place) as graph:
            def measure(name: str, size: int = size) -> None:
                found[size][name] = requests.taken()
                received[size][name], requests.received = requests.received, 0

            measure("open")
            assert len(list(graph.diff("main", "try"))) == 5
            measure("diff")
            assert graph.merge("try").tables["node/Customer"] == (1, 2, 1)
            measure("merge")
    for name in ("diff", "merge"):
        small, big = (sum(found[size][name].values()) for size in found)
        assert big <= small + 6, (name, found)
        assert received[200_000][name] <= 2 * received[20_000][name], received


def transferred() -> Counter[str]:
    """What this process has read and written so far, by all its threads: bytes, and calls of the system."""
    return Counter({name: int(value) for name, value in (
        line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())})  # fmt: skip


def commit(graph: Graph, number: int, branch: str = "main") -> None:
    """A few rows of three tables, edges to nodes that were there before among them."""
    with graph.transaction(branch=branch) as tx:
        tx.load(Customer, customers(*(f"new-{number}-{row}" for row in range(5))))
        tx.load(Order, [{"id": -1 - 5 * number - row} for row in range(5)])
        tx.load(Placed, [{"left_key": f"k{number * 37 % 20_000}", "right_key": -1 - 5 * number - row}
                         for row in range(5)])  # fmt: skip


def settled(graph: Graph) -> Counter[str]:
    """What was read and written, once upkeep has done what there is to do."""
    assert graph._background is not None
    assert graph._background.drain(120)
    return transferred()


def cost_of(graph: Graph, commits: list[tuple[int, str]]) -> Counter[str]:
    """What commits read and write, upkeep included."""
    begun = settled(graph)
    for number, branch in commits:
        commit(graph, number, branch)
    return settled(graph) - begun


def least(costs: list[Counter[str]]) -> Counter[str]:
    """The least of each counter: other threads of the process, and upkeep that is due now and then, only add to it."""
    return Counter({name: min(cost[name] for cost in costs) for name in costs[0]})


@pytest.mark.slow
def test_small_commits_cost_the_same_in_tables_of_any_size(tmp_path: Path) -> None:
    """With default settings; on main, and where a branch is written to for the first time."""
    found: dict[int, dict[str, Counter[str]]] = {}
    for size in (20_000, 400_000):
        names = np.char.add("k", np.arange(size).astype(str))
        with Graph.init(f"{tmp_path}/{size}/", TYPES) as graph:
            with graph.transaction() as tx:
                tx.load(Customer, pa.table({"id": names, "name": names}))
                tx.load(Order, pa.table({"id": pa.array(range(size), pa.int64())}))
            for number in range(6):  # keys are read once, when it has become clear that they are needed
                commit(graph, number)
            for number in range(12):
                graph.branches.create(f"b{number}")
            main = [cost_of(graph, [(6 + 4 * window + number, "main") for number in range(4)]) for window in range(3)]
            branch = [cost_of(graph, [(18, f"b{4 * window + number}") for number in range(4)]) for window in range(3)]
            found[size] = {"main": least(main), "branch": least(branch)}
    small, big = found.values()
    for place, cost in big.items():
        for name in ("rchar", "wchar"):
            assert cost[name] <= 1.3 * small[place][name], (place, name, found)
        for name in ("syscr", "syscw"):  # 400,000 rows are in two files, which takes a few calls more for each commit
            assert cost[name] <= 1.3 * small[place][name] + 4 * 20, (place, name, found)


@pytest.mark.slow
@pytest.mark.parametrize("branch", ["main", "try"])
def test_reads_and_commits_list_no_versions(tmp_path: Path, branch: str) -> None:
    """There is one more with every commit."""
    with Graph.init(f"{tmp_path}/graph/", TYPES) as graph:
        graph.load(Customer, customers(*(f"k{number}" for number in range(400))))
        if branch != "main":
            graph.branches.create(branch)
        for number in range(3):
            commit(graph, number, branch)
        versions = sorted(tmp_path.rglob("_versions"))
        with listings(versions) as counts:
            for number in range(3, 6):
                commit(graph, number, branch)
                assert graph.snapshot(branch=branch).get(Order, -1 - 5 * number) is not None
            assert not counts.taken()
            for folder in versions:
                list(folder.iterdir())
            assert counts.taken().keys() == set(versions)  # it does count


@pytest.mark.slow
def test_small_commits_and_upkeep_cost_the_same_after_any_history(tmp_path: Path) -> None:
    with Graph.init(f"{tmp_path}/graph/", TYPES) as graph:
        graph.load(Customer, customers(*(f"k{number}" for number in range(20_000))))
        costs = []
        for window in range(5):
            begun = settled(graph)
            for number in range(64):
                commit(graph, 64 * window + number)
            costs.append(settled(graph) - begun)
    first, last = costs[0], costs[-1]
    for name, times in (("syscr", 1.4), ("syscw", 1.2)):  # a row is read again whenever its table has doubled
        assert last[name] <= times * first[name], (name, costs)
    # Of every row Lance keeps which version wrote it and which changed it: for each earlier commit two runs of up to 16
    # bytes in what every commit writes of its three tables and the manifest. Upkeep writes some more, and reads it.
    for name, size in (("rchar", 200), ("wchar", 150)):
        assert last[name] - first[name] <= 64 * 256 * size, (name, costs)
