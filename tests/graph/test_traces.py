"""Traces of small changes: the past of a row is the same with and without them, and costs what it has to tell."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from graph_requests import Reads
from graph_support import TYPES, Customer, Order, customers, entity

from ontolake.errors import Invalid, NotFound
from ontolake.graph import Graph
from ontolake.graph.read.past import RowPast
from ontolake.history.metadata import TRACES


def told(graph: Graph, table: Any, key: Any, *, traced: bool = True) -> tuple[Any, Any]:
    """Who wrote the fields of a row, and its states as text (NaN is NaN), with traces or as if there were none."""
    past = RowPast(graph.parts, table, key, "main")
    past._traced = traced
    versions = [(version.commit.id, repr(version.row)) for version in past.versions()]
    try:
        return {name: commit.id for name, commit in past.blame().items()}, versions
    except NotFound:
        return None, versions


@pytest.mark.slow
def test_blame_goes_straight_to_who_wrote_a_field(graph: Graph) -> None:
    graph.load(Customer, customers("a", "b"))
    values: dict[str, Any] = {"id": "a", "name": "A", "tier": None, "email": None}
    author = dict.fromkeys(values, next(iter(graph.commits())).id)
    for number in range(40):
        new = {"id": "a", "name": f"n{number % 3}", "tier": ["x", None][number // 10 % 2], "email": None}
        commit = graph.load(Customer, [new])
        assert commit is not None
        author |= {name: commit.id for name in new if new[name] != values[name]}
        values = new
    assert told(graph, Customer, "a") == told(graph, Customer, "a", traced=False)
    assert told(graph, Customer, "a")[0] == author


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_past_is_the_same_with_and_without_traces(url: str, seed: int) -> None:
    """Values that come back, deletions, branches, merges, upkeep, big changes, and others who write."""
    chance = random.Random(seed)
    graph, branches, other = Graph.init(url, TYPES), ["main"], Graph.open(url)
    for number in range(60):
        branch, writer = chance.choice(branches), chance.choice([graph, graph, other])
        match chance.randrange(12):
            case 0 if len(branches) < 3:
                branches.append(f"b{number}")
                writer.branches.create(branches[-1], parent=branch)
            case 1 if branch != "main":
                writer.merge(branch, strategy=chance.choice(["ours", "theirs"]))
            case 2 if branch != "main":
                writer.merge("main", branch, strategy=chance.choice(["ours", "theirs"]))
            case 3:
                writer.optimize(branch=branch)
            case 4:
                keys = [key for key, _ in writer.snapshot(branch=branch).rows("node/Customer")]
                if keys:
                    writer.delete(Customer, chance.choice(keys), branch=branch)
            case 5:
                writer.load(Customer, customers("a", "b", *(f"k{row}" for row in range(20)), tier=chance.choice("xy")),
                            branch=branch)  # fmt: skip
            case _:
                some = chance.sample("abc", chance.randint(1, 3))
                writer.load(Customer, [{"id": key, "name": chance.choice("pq"), "tier": chance.choice(["x", None])}
                                       for key in some], branch=branch)  # fmt: skip
    traces = sum(TRACES in record.extra for record in graph.parts.manifest.commits("main").values())
    assert traces > 5
    for key in ("a", "b", "c", "k5", "never"):
        assert told(graph, Customer, key) == told(graph, Customer, key, traced=False)
    graph.close()
    other.close()


def test_values_of_every_type_leave_traces(tmp_path: Path) -> None:
    """Each is written, written again, changed, and changed back."""
    values: dict[str, tuple[Any, Any, Any]] = {
        "number": (int, 5, 6), "real": (float, float("nan"), 0.5), "text": (str, "\x00ü", ""),
        "flag": (bool, True, False), "day": (date, date(2026, 1, 2), date(1, 1, 1)), "data": (bytes, b"\xff", b""),
        "at": (datetime, datetime(2026, 1, 2, tzinfo=UTC), datetime(1990, 1, 2, 3, tzinfo=UTC)),
        "exact": (Decimal, Decimal("1.50"), Decimal("-2")), "tree": (dict[str, Any], {"a": [1, {}]}, {"a": None}),
        "many": (list[int], [1, 2], []), "maybe": (int | None, None, 1),
    }  # fmt: skip
    kind = entity("Thing", **{name: (type_, {}) for name, (type_, _, _) in values.items()})
    with Graph.init(f"{tmp_path}/things/", [kind]) as graph:
        first = {"id": "a", **{name: one for name, (_, one, _) in values.items()}}
        for _ in range(2):
            graph.load(kind, [first])
        for name, (_, one, other) in values.items():
            for value in (other, one):
                graph.load(kind, [{**first, name: value}])
        assert told(graph, kind, "a") == told(graph, kind, "a", traced=False)
        authors, versions = told(graph, kind, "a")
        commits = [commit.id for commit in graph.commits()][::-1]
        assert authors == {"id": commits[1], **{name: commits[4 + 2 * number] for number, name in enumerate(values)}}
        assert len(versions) == 1 + 2 * len(values)
        masks = [mask for record in graph.parts.manifest.commits("main").values()
                 for trace in record.extra.get(TRACES, {}).values() for mask in trace.values()]
        assert None not in masks
        assert masks.count(0) == 1


def test_a_value_that_is_only_spelled_differently_has_its_first_author(graph: Graph) -> None:
    first = graph.load(Order, [{"id": 1, "total": 0.0}])
    graph.load(Order, [{"id": 1, "total": -0.0}])
    assert first is not None
    assert graph.blame(Order, 1)["total"].id == first.id


def test_traces_are_no_metadata(graph: Graph) -> None:
    commit = graph.load(Customer, customers("secret-key", tier="secret-value"))
    assert commit is not None
    record = graph.parts.manifest.commit(commit.id)
    assert TRACES in record.extra
    assert TRACES not in commit.metadata
    assert "secret" not in json.dumps(record.extra)
    with pytest.raises(Invalid):
        graph.transaction(metadata={TRACES: {}})


@pytest.mark.slow
def test_the_past_of_a_row_costs_what_it_tells(tmp_path: Path) -> None:
    """Blame reads as much after a long history as after a short one, however big the table."""
    found: dict[tuple[int, int], Counter[str]] = {}
    for rows, commits in ((2_000, 20), (2_000, 120), (50_000, 20), (50_000, 120)):
        url = f"{tmp_path}/{rows}-{commits}/"
        with Graph.init(url, TYPES) as graph:
            graph.load(Order, [{"id": number} for number in range(rows)])
            graph.load(Order, [{"id": 5, "total": 1.0}])
            for number in range(commits):
                graph.load(Order, [{"id": 5 if number % 2 else 7, "total": number + 2.0}])
            graph.optimize()
        with Graph.open(url, read_only=True) as graph:
            list(graph.commits())
            graph.snapshot().get(Order, 5)
            reads = Reads()
            reads.taken(graph)
            blamed = {name: commit.id for name, commit in graph.blame(Order, 5).items()}
            found[rows, commits] = reads.taken(graph)
            assert blamed == told(graph, Order, 5, traced=False)[0]
    few, *others = found.values()
    assert sum(few.values()) > 0
    for cost in others:
        assert cost["read tables"] <= few["read tables"] + 6, found
