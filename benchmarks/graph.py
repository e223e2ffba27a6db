"""A graph against bare pylance on the same data, and branches and merges against the size of a table."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from report import Report, in_turns, seconds

from ontolake.graph import Graph
from ontolake.model import Entity, Field, Relation


class Person(Entity):
    id: Field[int] = Field(primary_key=True)
    name: Field[str]


class Knows(Relation[Person, Person]):
    pass


def people(start: int, size: int) -> pa.Table:
    ids = np.arange(start, start + size)
    return pa.table({"id": ids, "name": np.char.add("person ", ids.astype(str))})


def links(nodes: int, size: int) -> pa.Table:
    left = np.arange(size) % nodes
    return pa.table({"left_key": left, "right_key": (left * 31 + 7 * (np.arange(size) // nodes) + 1) % nodes})


def bare(folder: Path, name: str, data: pa.Table) -> Any:
    return lance.write_dataset(data, str(folder / name), mode="create", enable_stable_row_ids=True,
                               data_storage_version="2.2")


def bulk(report: Report, folder: Path) -> None:
    nodes, edges = (50_000, 250_000) if report.small else (1_000_000, 5_000_000)
    node_rows, edge_rows = people(0, nodes), links(nodes, edges)
    graph = Graph.init(f"{folder}/ours/", [Person, Knows])

    def load_bare() -> None:
        bare(folder, "people", node_rows)
        bare(folder, "links", edge_rows)

    def load_ours() -> None:
        graph.load(Person, node_rows, mode="append")
        graph.load(Knows, edge_rows, mode="append")

    theirs, ours = seconds(load_bare), seconds(load_ours)
    report.at_most(f"load {nodes} nodes and {edges} edges", ours / theirs, 1.3, f"{ours:.2f} s, with all checks")
    dataset, view = lance.dataset(str(folder / "links")), graph.snapshot().table(Knows)
    theirs, ours = in_turns(dataset.to_table, view.to_arrow)
    report.at_most("full scan", ours / theirs, 1.3)
    fresh = people(nodes - nodes // 20, nodes // 10)
    table = lance.dataset(str(folder / "people"))
    merge: Any = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    theirs, ours = seconds(lambda: merge.execute(fresh)), seconds(lambda: graph.load(Person, fresh))
    report.at_most(f"upsert {nodes // 10}", ours / theirs, 1.3)
    first = list(graph.commits())[-2].id
    theirs, ours = in_turns(lambda: lance.dataset(str(folder / "people"), version=1).to_table(),
                            lambda: graph.snapshot(first).table(Person).to_arrow())
    report.at_most("time travel", ours / theirs, 1.3)


def commits(report: Report, folder: Path) -> None:
    rounds = 40 if report.small else 200
    graph = Graph.init(f"{folder}/commits/", [Person, Knows])
    graph.load(Person, people(0, 1000))
    one, two = bare(folder, "one", people(0, 1000)), bare(folder, "two", links(1000, 100))
    ours, theirs = [], []
    for number in range(rounds):
        rows, edges = people(1000 + 100 * number, 100), links(1000, 100)

        def both(rows: pa.Table = rows, edges: pa.Table = edges) -> None:
            with graph.transaction() as tx:
                tx.load(Person, rows)
                tx.load(Knows, edges)

        def bare_both(rows: pa.Table = rows, edges: pa.Table = edges) -> None:
            for dataset, data, keys in ((one, rows, ["id"]), (two, edges, ["left_key", "right_key"])):
                dataset.merge_insert(keys).when_matched_update_all().when_not_matched_insert_all().execute(data)

        ours.append(seconds(both))
        theirs.append(seconds(bare_both))
        if number % 20 == 19:
            graph.optimize()
    report.at_most(f"{rounds} durable commits over two tables", statistics.median(ours) / statistics.median(theirs), 2,
                   f"{statistics.median(ours) * 1000:.0f} ms each, against two commits that are not synced")
    growth = statistics.median(ours[-20:]) / statistics.median(ours[:20])
    report.at_most("last 20 commits against the first 20", growth, 1.3)


def branches(report: Report, folder: Path) -> None:
    times = []
    numbers = count()
    for size in (10_000, 50_000 if report.small else 1_000_000):
        graph = Graph.init(f"{folder}/size-{size}/", [Person])
        graph.load(Person, people(0, size), mode="append")
        graph.optimize()
        made = statistics.median(seconds(lambda g=graph: g.branches.create(f"b{next(numbers)}")) for _ in range(9))
        if size > 10_000:
            report.at_most("branch create, in units of 10 ms", made / 0.01, 1, f"{made * 1000:.1f} ms")
        taken = []
        for number in range(5):
            name = f"m{number}"
            graph.branches.create(name)
            graph.load(Person, pa.table({"id": np.arange(50) * 100, "name": [f"{name}-{n}" for n in range(50)]}),
                       branch=name)
            taken.append(seconds(lambda g=graph, name=name: g.merge(name, strategy="theirs")))
        times.append(statistics.median(taken))
    report.at_most("merge of 50 rows into the big table against the small", times[1] / times[0], 2,
                   f"{times[0] * 1000:.0f} ms, {times[1] * 1000:.0f} ms")


def main() -> None:
    report = Report("graph")
    folder = Path(tempfile.mkdtemp())
    try:
        for part in (bulk, commits, branches):
            part(report, folder)
    finally:
        shutil.rmtree(folder)
    report.finish()


if __name__ == "__main__":
    main()
