"""A graph against bare pylance on the same data, deltalake for lookups and an embedded graph database for traversals.

Bare pylance checks and syncs nothing; a graph checks keys, ends of edges and values, and is durable when it returns.
As users do: default settings, no call for upkeep. Tuned: loads, scans, upserts and traversals of optimized graphs.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from report import Report, in_turns, seconds

from ontolake.graph import Graph, Hop
from ontolake.model import Entity, Field, Relation


class Person(Entity):
    id: Field[int] = Field(primary_key=True)
    name: Field[str]


class Knows(Relation[Person, Person]):
    pass


def people(start: int, size: int, *, shuffled: bool = False) -> pa.Table:
    ids = np.arange(start, start + size)
    if shuffled:  # as sources with other keys than counters give them
        ids = np.random.default_rng(size).permutation(ids)
    return pa.table({"id": ids, "name": np.char.add("person ", ids.astype(str))})


def links(nodes: int, size: int, seed: int = 1) -> pa.Table:
    """Edges between random people, each once, in no order."""
    random = np.random.default_rng(seed)
    pairs = np.unique(random.integers(0, nodes * nodes, size + size // 10 + 10))
    pairs = random.permutation(pairs)[:size]
    return pa.table({"left_key": pairs // nodes, "right_key": pairs % nodes})


def bare(folder: Path, name: str, data: pa.Table) -> Any:
    return lance.write_dataset(data, str(folder / name), mode="create", enable_stable_row_ids=True,
                               data_storage_version="2.2")


def alternate(rounds: int, *actions: Callable[[int], object]) -> list[float]:
    """Like `in_turns`, for actions that have to know which round it is."""
    taken: list[list[float]] = [[] for _ in actions]
    for number in range(rounds):
        for times, action in zip(taken, actions, strict=True):
            times.append(seconds(lambda action=action, number=number: action(number)))
    return [statistics.median(times) for times in taken]


# As users do


class Times:
    """Seconds on the clock and of the processors for one thing that is done again and again."""

    def __init__(self) -> None:
        self.clock: list[float] = []
        self.cpu: list[float] = []

    def take(self, action: Callable[[], object]) -> None:
        begun, used = time.perf_counter(), time.process_time()
        action()
        self.clock.append(time.perf_counter() - begun)
        self.cpu.append(time.process_time() - used)

    def __str__(self) -> str:
        return f"{statistics.median(self.clock) * 1000:.1f} ms, {statistics.median(self.cpu) * 1000:.1f} ms of CPU"


def over(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(ours) / statistics.median(theirs)


def small_commits(report: Report, folder: Path) -> Graph:
    """Commits of 50 people and 50 edges each, after a load of many. Returns the graph."""
    size, rounds, beside = (50_000, 150, 60) if report.small else (1_000_000, 1000, 100)
    graph = Graph.init(f"{folder}/commits/", [Person, Knows])
    with graph.transaction() as tx:
        tx.load(Person, people(0, size, shuffled=True))
        tx.load(Knows, links(size, size))
    datasets = [bare(folder, "nodes", people(0, size, shuffled=True)), bare(folder, "edges", links(size, size))]
    news = links(size, 50 * rounds, seed=2)
    ours, theirs = Times(), Times()
    with open(folder / "log", "wb") as log:
        for number in range(rounds):
            rows = (people(size + 50 * number, 50), news.slice(50 * number, 50))

            def commit(rows: tuple[pa.Table, pa.Table] = rows) -> None:
                with graph.transaction() as tx:
                    tx.load(Person, rows[0])
                    tx.load(Knows, rows[1])

            def append(rows: tuple[pa.Table, pa.Table] = rows) -> None:
                for dataset, data in zip(datasets, rows, strict=True):
                    lance.write_dataset(data, dataset, mode="append")
                log.write(bytes(4096))
                log.flush()
                os.fdatasync(log.fileno())

            ours.take(commit)
            if number < beside:  # later its own commits have slowed bare pylance down
                theirs.take(append)
    report.at_most(f"commits of 100 rows in {size} nodes and edges, against two appends and a sync of bare pylance",
                   over(ours.clock[:beside], theirs.clock), 3, f"{ours}; bare {theirs}")
    report.note(f"by time of the processors: {over(ours.cpu[:beside], theirs.cpu):.2f}, upkeep included")
    report.at_most(f"the last 20 of {rounds} commits against the first 20", over(ours.clock[-20:], ours.clock[:20]),
                   1.2, f"by time of the processors {over(ours.cpu[-20:], ours.cpu[:20]):.2f}")
    return graph


def small_merges(report: Report, folder: Path) -> None:
    """Merges of branches with 50 changed rows."""
    sizes = (5_000, 100_000) if report.small else (20_000, 2_000_000)
    graphs = [Graph.init(f"{folder}/merged-{size}/", [Person]) for size in sizes]
    for graph, size in zip(graphs, sizes, strict=True):
        graph.load(Person, people(0, size, shuffled=True))
    taken = [Times(), Times()]
    for number in range(9):
        for times, graph, size in zip(taken, graphs, sizes, strict=True):
            name, keys = f"b{number}", np.random.default_rng(number).choice(size, 50, replace=False)
            graph.branches.create(name)
            graph.load(Person, pa.table({"id": keys, "name": [f"{name}-{key}" for key in keys]}), branch=name)
            times.take(lambda graph=graph, name=name: graph.merge(name))
    small, big = taken
    report.at_most(f"merge of 50 rows into {sizes[1]} against into {sizes[0]}", over(big.clock, small.clock), 1.5,
                   f"{small}; {big}; by time of the processors {over(big.cpu, small.cpu):.2f}")
    for graph in graphs:
        graph.close()


def first_appends(report: Report, graph: Graph) -> None:
    """The first rows on a branch, against some more on main."""
    first, main = Times(), Times()
    for number in range(15):
        graph.branches.create(f"first-{number}")
        rows = people(10**8 + 100 * number, 100)
        first.take(lambda number=number, rows=rows: graph.load(Person, rows, mode="append", branch=f"first-{number}"))
        main.take(lambda rows=rows: graph.load(Person, rows, mode="append"))
    report.at_most("first append on a branch against one on main", over(first.clock, main.clock), 3,
                   f"{first}; {main}; by time of the processors {over(first.cpu, main.cpu):.2f}")


def single_lookups(report: Report, folder: Path, graph: Graph) -> None:
    """A thousand rows by their keys, one after the other."""
    dataset = lance.dataset(str(folder / "nodes"), version=1)
    dataset.create_scalar_index("id", "BTREE")
    dataset = lance.dataset(str(folder / "nodes"))
    table, size = graph.snapshot().table(Person), 50_000 if report.small else 1_000_000
    keys = np.random.default_rng(5).permutation(size)[:1000].tolist()
    ours, theirs = Times(), Times()
    for start in range(0, len(keys), 100):
        some = keys[start : start + 100]
        ours.take(lambda some=some: [table.get(key) for key in some])
        theirs.take(lambda some=some: [dataset.to_table(filter=f"id = {key}") for key in some])
    report.at_most("1,000 lookups by key, against bare pylance with a BTREE", sum(ours.clock) / sum(theirs.clock), 1,
                   f"{sum(ours.clock):.2f} s, bare {sum(theirs.clock):.2f} s; "
                   f"by time of the processors {sum(ours.cpu) / sum(theirs.cpu):.2f}")


# Tuned


def bulk(report: Report, folder: Path) -> Graph:
    """Loads, scans, upserts and the past. Returns the graph that was loaded."""
    nodes, edges = (50_000, 250_000) if report.small else (1_000_000, 5_000_000)
    node_rows, edge_rows = people(0, nodes, shuffled=True), links(nodes, edges)
    rounds = 5
    graphs = [Graph.init(f"{folder}/ours-{number}/", [Person, Knows]) for number in range(rounds)]

    def load_bare(number: int) -> None:
        bare(folder, f"people-{number}", node_rows)
        bare(folder, f"links-{number}", edge_rows)

    def load_ours(number: int) -> None:
        with graphs[number].transaction() as tx:
            tx.load(Person, node_rows, mode="append")
            tx.load(Knows, edge_rows, mode="append")

    theirs, ours = alternate(rounds, load_bare, load_ours)
    report.at_most(f"load {nodes} nodes and {edges} edges", ours / theirs, 1.3,
                   f"{ours:.2f} s with all checks and durable, bare {theirs:.2f} s")
    graph, last = graphs[-1], rounds - 1
    dataset, view = lance.dataset(str(folder / f"links-{last}")), graph.snapshot().table(Knows)
    theirs, ours = in_turns(dataset.to_table, view.to_arrow, rounds=9)
    report.at_most("full scan", ours / theirs, 1.3, f"{edges / ours / 1e6:.0f} million edges per second")

    def changed(number: int) -> pa.Table:
        return people(nodes - nodes // 20 + number * nodes // 10, nodes // 10)

    def upsert_bare(number: int) -> None:
        table: Any = lance.dataset(str(folder / f"people-{last}"))
        table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(changed(number))

    theirs, ours = alternate(rounds, upsert_bare, lambda number: graph.load(Person, changed(number)))
    report.at_most(f"upsert {nodes // 10}", ours / theirs, 1.3, f"{ours * 1000:.0f} ms, bare {theirs * 1000:.0f} ms")
    [*_, first, _] = (commit.id for commit in graph.commits())
    theirs, ours = in_turns(lambda: lance.dataset(str(folder / f"people-{last}"), version=1).to_table(),
                            lambda: graph.snapshot(first).table(Person).to_arrow(), rounds=9)
    report.at_most("time travel", ours / theirs, 1.3, f"{ours * 1000:.0f} ms, bare {theirs * 1000:.0f} ms")
    return graph


def commits(report: Report, folder: Path) -> None:
    """Small commits of 50 people and 50 edges each; at the end also into a graph that has none behind it."""
    rounds = 60 if report.small else 200

    def begun(name: str) -> Graph:
        graph = Graph.init(f"{folder}/{name}/", [Person, Knows])
        graph.load(Person, people(0, 1000))
        graph.load(Knows, links(1000, 100))
        graph.keep_optimized()
        return graph

    old, new = begun("old"), begun("new")
    one, two = bare(folder, "one", people(0, 1000)), bare(folder, "two", links(1000, 100))
    ours, theirs, first = [], [], []
    news = links(1000, 100 * rounds, seed=2)

    def both(graph: Graph, number: int) -> None:
        with graph.transaction() as tx:
            tx.load(Person, people(1000 + 50 * number, 50))
            tx.load(Knows, news.slice(50 * number, 50))

    def bare_both(number: int) -> None:
        rows, edges = people(1000 + 50 * number, 50), news.slice(50 * number, 50)
        for dataset, data, keys in ((one, rows, ["id"]), (two, edges, ["left_key", "right_key"])):
            dataset.merge_insert(keys).when_matched_update_all().when_not_matched_insert_all().execute(data)

    for number in range(rounds):
        ours.append(seconds(lambda number=number: both(old, number)))
        theirs.append(seconds(lambda number=number: bare_both(number)))
        if number >= rounds - 20:
            first.append(seconds(lambda number=number: both(new, number)))
    mine, others = statistics.median(ours), statistics.median(theirs)
    report.at_most(f"{rounds} durable commits of 100 rows over two tables", mine / others, 2,
                   f"{mine * 1000:.0f} ms each, {others * 1000:.0f} ms for two commits that are not synced")
    early = statistics.median(theirs[:20])
    report.note(f"the first 20 of them, while its own commits have not slowed bare pylance yet: "
                f"{statistics.median(ours[:20]) / early:.2f}")
    report.at_most("last 20 commits against the first 20 of a new graph, both optimized in the background",
                   statistics.median(ours[-20:]) / statistics.median(first), 1.3,
                   f"bare pylance, never optimized: {statistics.median(theirs[-20:]) / early:.2f}")
    old.close()
    new.close()


def branches(report: Report, folder: Path) -> None:
    sizes = (10_000, 100_000 if report.small else 1_000_000)
    graphs = []
    for size in sizes:
        graph = Graph.init(f"{folder}/size-{size}/", [Person])
        graph.load(Person, people(0, size), mode="append")
        graph.optimize()
        graphs.append(graph)
    made = statistics.median(seconds(lambda n=n: graphs[1].branches.create(f"b{n}")) for n in range(15))
    report.at_most("branch create, in units of 10 ms", made / 0.01, 1, f"{made * 1000:.1f} ms")
    taken: list[list[float]] = [[], []]
    for number in range(7):
        for times, graph in zip(taken, graphs, strict=True):
            name = f"m{number}"
            graph.branches.create(name)
            graph.load(Person, pa.table({"id": np.arange(50) * 100, "name": [f"{name}-{n}" for n in range(50)]}),
                       branch=name)
            times.append(seconds(lambda graph=graph, name=name: graph.merge(name)))
    small, big = (statistics.median(times) for times in taken)
    report.at_most(f"merge of 50 changed rows into {sizes[1]} against into {sizes[0]}", big / small, 2,
                   f"{small * 1000:.0f} ms, {big * 1000:.0f} ms")


def lookups(report: Report, folder: Path, graph: Graph) -> None:
    """A thousand rows by their keys, one after the other; the others are asked for some of them, in turns with us."""
    graph.optimize()
    table = graph.snapshot().table(Person)
    rows = table.to_arrow()
    keys = np.random.default_rng(5).permutation(len(rows))[:1000].tolist()
    bare_table = lance.dataset(str(folder / "people-0"))
    bare_table.create_scalar_index("id", "BTREE")
    try:
        from deltalake import DeltaTable, QueryBuilder, write_deltalake
    except ModuleNotFoundError:
        report.note("lookups were not compared: install ontolake[bench]")
        return
    write_deltalake(str(folder / "delta"), rows)
    # Its own query engine is the quickest way in; a scan through pyarrow takes ten times as long.
    query = QueryBuilder().register("people", DeltaTable(str(folder / "delta")))

    def delta(key: int) -> None:
        assert len(query.execute(f"SELECT * FROM people WHERE id = {key}").read_all()) == 1

    taken = [0.0, 0.0, 0.0]
    for start in range(0, len(keys), 100):
        some = keys[start : start + 100]
        taken[0] += seconds(lambda some=some: [table.get(key) for key in some])
        taken[1] += seconds(lambda some=some: [delta(key) for key in some[:20]]) * 5
        taken[2] += seconds(lambda some=some: [bare_table.to_table(filter=f"id = {key}") for key in some[:20]]) * 5
    at_once = seconds(lambda: table.get_many(keys))
    report.at_least("1,000 lookups by key, against deltalake", taken[1] / taken[0], 20,
                    f"{taken[0]:.2f} s, deltalake {taken[1]:.1f} s, bare pylance with an index {taken[2]:.2f} s; "
                    f"in one call {at_once * 1000:.0f} ms")


def traversals(report: Report, folder: Path, graph: Graph) -> None:
    """Who is two steps away from a thousand people."""
    nodes, edges = (graph.snapshot().table(name).to_arrow() for name in (Person, Knows))
    roots = np.random.default_rng(6).permutation(len(nodes))[:1000].tolist()
    snapshot = graph.snapshot()

    def ours() -> int:
        return len(snapshot.traverse(Person, roots, [Hop(Knows), Hop(Knows)]))

    first = seconds(ours)
    try:
        import ladybug
    except ModuleNotFoundError:
        report.note("traversals were not compared: install ontolake[bench]")
        return
    for name, table in (("nodes", nodes), ("edges", edges)):
        pq.write_table(table, folder / f"{name}.parquet")
    connection = ladybug.Connection(ladybug.Database(str(folder / "embedded")))
    connection.execute("CREATE NODE TABLE Person(id INT64 PRIMARY KEY, name STRING)")
    connection.execute("CREATE REL TABLE Knows(FROM Person TO Person)")
    loading = seconds(lambda: [connection.execute(f"COPY {name} FROM '{folder}/{file}.parquet'")
                               for name, file in (("Person", "nodes"), ("Knows", "edges"))])
    query = ("MATCH (a:Person)-[:Knows]->(:Person)-[:Knows]->(c:Person) WHERE a.id IN $roots RETURN DISTINCT c.id")

    def theirs() -> int:
        result: Any = connection.execute(query, {"roots": roots})
        return len(result.get_as_arrow())

    assert ours() == theirs()
    mine, other = in_turns(ours, theirs, rounds=3)
    report.at_most("two hops from 1,000 people, against an embedded graph database", mine / other, 1,
                   f"{mine * 1000:.1f} ms, {other * 1000:.0f} ms; the first one, which reads {len(edges)} edges, "
                   f"{first:.2f} s, against {loading:.1f} s to load them there")


def main() -> None:
    report = Report("graph")
    folder = Path(tempfile.mkdtemp())
    try:
        if report.as_users_do:
            graph = small_commits(report, folder)
            single_lookups(report, folder, graph)
            first_appends(report, graph)
            graph.close()
            small_merges(report, folder)
        if report.tuned:
            graph = bulk(report, folder)
            traversals(report, folder, graph)
            lookups(report, folder, graph)
            commits(report, folder)
            branches(report, folder)
    finally:
        shutil.rmtree(folder)
    report.finish()


if __name__ == "__main__":
    main()
