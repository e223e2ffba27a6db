"""Jobs on graphs: workers rewrite, read or index parts of Lance datasets, and the driver publishes one commit."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ontolake.errors import Corruption
from ontolake.faults import reach
from ontolake.graph import Graph
from ontolake.graph.errors import DamagedGraphError, UnknownTableError
from ontolake.graph.place import GraphPlace
from ontolake.graph.read.views import TableView
from ontolake.graph.tables.indexes import wanted_indexes
from ontolake.graph.tables.origins import UPKEEP
from ontolake.graph.tables.types import GraphType
from ontolake.graph.upkeep.maintenance import compaction, optimize, rework_one, worth_it
from ontolake.graph.upkeep.repairs import index_damage
from ontolake.history import Damage
from ontolake.ontology.repository.jobs import Compaction, Looked, Verified
from ontolake.spark.jobs.indexes import Reindexed
from ontolake.spark.jobs.workers import Workers

if TYPE_CHECKING:
    from lance import LanceDataset

_ACTOR = "onto spark"
_FRAGMENTS = 16
"""Fragments that one part reads, at most."""


class DatasetVersion(NamedTuple):
    """A dataset of a graph at a version of one of its lines."""

    url: str
    location: str
    line: str | None
    version: int

    def open(self) -> LanceDataset:
        place = GraphPlace(self.url)
        with contextlib.closing(place.store):
            base = place.open(self.location)
            found: Any = base.checkout_version((self.line, self.version) if self.line else self.version)
            return found  # type: ignore[no-any-return]


def _own(graph: Graph, branch: str, types: Collection[str] | None = None) -> tuple[str | None, dict[str, TableView]]:
    """The line on which a branch writes, and the tables that have versions of their own on it."""
    snapshot, line = graph.snapshot(branch=branch), graph.parts.state(branch).line
    views = {name: snapshot.table(name) for name in _named(snapshot.tables(), types)}
    return line, {name: view for name, view in views.items() if view.pin.branch == line}


# compact


def compact_graph(
    url: str, workers: Workers, *, types: Collection[str] | None, dry_run: bool, branch: str
) -> list[Compaction]:  # fmt: skip
    """Few fragments instead of many, in every table of a branch, as one commit."""
    with Graph.open(url, read_only=dry_run) as graph:
        line, tables = _own(graph, branch, types)
        before = {name: view for name, view in tables.items()
                  if worth_it(view.dataset, view.kind) or _plan(view.dataset)}
        if dry_run or not before:
            return [Compaction(name, len(view.dataset.get_fragments()), 1, view.pin.rows, 0)
                    for name, view in before.items()]

        def compacting(dataset: LanceDataset) -> None:
            kind = next(view.kind for view in before.values() if view.kind.location in str(dataset.uri))
            rewrite(dataset, DatasetVersion(url, kind.location, line, dataset.version), workers)

        done = optimize(graph.parts, branch, _ACTOR, compacting=compacting, tables=before)
        return [Compaction(one.table, one.fragments_before, one.fragments_after, before[one.table].pin.rows, 0)
                for one in done]


def _named(tables: Sequence[str], types: Collection[str] | None) -> list[str]:
    """The tables that are meant: `Customer` and `node/Customer` are the same."""
    for name in types or ():
        if not any(name in (table, table.partition("/")[2]) for table in tables):
            raise UnknownTableError(name, tables)
    return [table for table in tables if types is None or {table, table.partition("/")[2]} & set(types)]


def rewrite(dataset: LanceDataset, at: DatasetVersion, workers: Workers) -> None:
    """Have workers rewrite what Lance plans to, and commit it to the dataset, which nobody sees yet."""
    from lance.optimize import Compaction as Plan

    done = workers.run(rewrite_part, [(at, task) for task in _plan(dataset)])
    reach("spark: fragments rewritten")
    if done:
        Plan.commit(dataset, done)


def _plan(dataset: LanceDataset) -> list[Any]:
    """The fragments that Lance would make into fewer, a task each."""
    from lance.optimize import Compaction as Plan

    settings: Any = compaction()
    plan: Any = Plan.plan(dataset, settings)
    return list(plan.tasks)


def rewrite_part(item: tuple[DatasetVersion, Any]) -> Any:
    """Write some fragments as one."""
    at, task = item
    return task.execute(at.open())


# verify


class Fragments(NamedTuple):
    """Some fragments of a table of a branch."""

    at: DatasetVersion
    table: str
    numbers: tuple[int, ...]


class Whole(NamedTuple):
    """How many rows a table of a branch should have."""

    table: str
    rows: int
    parts: int


def verify_graph(url: str, workers: Workers) -> Verified:
    """Every row of every branch, and that manifests count them right."""
    damage: list[Damage] = []
    items: list[Fragments] = []
    wholes: list[Whole] = []
    with Graph.open(url, read_only=True) as graph:
        for branch in graph.branches.list():
            snapshot = graph.snapshot(branch=branch.name)
            for name in snapshot.tables():
                view, where = snapshot.table(name), f"{name}@{branch.name}"
                try:
                    numbers = [fragment.fragment_id for fragment in view.dataset.get_fragments()]
                except (DamagedGraphError, OSError, ValueError) as error:
                    damage.append(Damage(where, str(error).splitlines()[0][:200]))
                    continue
                damage += index_damage(view.dataset, name, branch.name)
                at = DatasetVersion(url, view.kind.location, view.pin.branch, view.pin.version)
                size = max(1, min(_FRAGMENTS, -(-len(numbers) // workers.parts)))
                mine = [Fragments(at, where, tuple(numbers[n : n + size])) for n in range(0, len(numbers), size)]
                items += mine
                wholes.append(Whole(where, view.pin.rows, len(mine)))
    found = workers.run(look_at_fragments, items)
    start = 0
    for whole in wholes:
        mine_looked = found[start : start + whole.parts]
        start += whole.parts
        rows = sum(one.rows for one in mine_looked)
        if rows != whole.rows and not any(one.damage for one in mine_looked):
            damage.append(Damage(whole.table, f"there are {rows} rows, and the manifest says {whole.rows}"))
    damage += [one for part in found for one in part.damage]
    return Verified(tuple(damage), len(items), sum(part.rows for part in found))


def look_at_fragments(part: Fragments) -> Looked:
    """Read all columns of some fragments."""
    try:
        dataset = part.at.open()
        fragments = [fragment for fragment in dataset.get_fragments() if fragment.fragment_id in part.numbers]
        rows = sum(batch.num_rows for fragment in fragments for batch in fragment.to_batches())
        return Looked((), rows)
    except (Corruption, DamagedGraphError, OSError, ValueError, RuntimeError) as error:
        return Looked((Damage(part.table, str(error).splitlines()[0][:200]),), 0)


# reindex


def reindex_graph(url: str, workers: Workers, *, branch: str) -> list[Reindexed]:
    """Build the indexes of every table anew, those that are there and those that should be."""
    done: list[Reindexed] = []
    with Graph.open(url) as graph:
        for name, view in _own(graph, branch)[1].items():
            there = dict(_indexes(view.dataset))
            columns = dict.fromkeys(wanted_indexes(view.kind, view.pin.rows), "missing") | there
            if columns:
                _build(graph, branch, view.kind, list(columns), workers)
            done += [Reindexed(f"{name}.{column}", said) for column, said in columns.items()]
    return done


def _build(graph: Graph, branch: str, kind: GraphType, columns: list[str], workers: Workers) -> None:
    """Have workers build indexes of a table, and publish it."""

    state = graph.parts.state(branch)

    def act(dataset: LanceDataset) -> None:
        at = DatasetVersion(graph.url, kind.location, state.line, dataset.version)
        workers.run(index_part, [(at, column) for column in columns])
        dataset.checkout_latest()  # type: ignore[no-untyped-call]

    rework_one(graph.parts, state, kind.key, act, UPKEEP, "index", _ACTOR)


def _indexes(dataset: LanceDataset) -> Iterator[tuple[str, str]]:
    """The columns with a BTREE, and how it stands."""
    rows = dataset.count_rows()
    for index in dataset.describe_indices():
        column = index.name.removesuffix("_idx")
        if index.index_type.upper() == "BTREE":
            yield column, "ok" if index.num_rows_indexed >= rows else "behind"


def index_part(item: tuple[DatasetVersion, str]) -> None:
    """Build one index."""
    at, column = item
    at.open().create_scalar_index(column, "BTREE", replace=True)


__all__ = ["compact_graph", "reindex_graph", "verify_graph"]
