"""A graph behind a server answers walks, searches and SQL as the same graph does on its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from serving import serving

import ontolake
from ontolake import Entity, Field, Relation
from ontolake.errors import Invalid, NotFound
from ontolake.graph import Graph, Hop, Vector


class Town(Entity):
    id: Field[int] = Field(primary_key=True)
    note: Field[str]
    place: Field[Vector(2)]  # type: ignore[valid-type]


class Road(Relation[Town, Town]):
    length: Field[int]


class Both(NamedTuple):
    """One graph, on its files and behind a server."""

    local: Graph
    remote: Any


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    url = f"file://{tmp_path_factory.mktemp('graph')}/towns"
    with Graph.init(url, [Town, Road]) as graph:
        graph.load(Town, [{"id": id, "note": f"the town of {id}", "place": [id, 1.0]} for id in range(1, 6)])
        graph.load(Road, [{"left_key": id, "right_key": id + 1, "length": id} for id in range(1, 5)])
        graph.branches.create("try")
        graph.load(Town, [{"id": 9, "note": "a new one", "place": [9.0, 9.0]}])
        graph.load(Road, [{"left_key": 5, "right_key": 9, "length": 5}], branch="main")
        graph.index(Town, "note", kind="text")
    with serving({"towns": url}) as served, Graph.open(url, read_only=True) as local, \
            ontolake.open(f"{served.url}/towns", token="reader-secret") as remote:  # fmt: skip
        yield Both(local, remote)


def rows(table: pa.Table) -> list[Any]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("roots", [None, 1, [1, 3], pa.array([2])], ids=["all", "one", "list", "arrow"])
@pytest.mark.parametrize("hops", [
    [Road], ["Road", "edge/Road"], [Hop(Road, "both", 0, 3)], [("Road", "in")],
    [Hop(Road, max_depth=4, where="length > 1", to=Town.note.startswith("the"))],
], ids=["class", "names", "depths", "parts", "filters"])  # fmt: skip
def test_walks_lead_to_the_same_nodes(graphs: Both, roots: Any, hops: list[Any]) -> None:
    here, there = (one.traverse(Town, roots, hops) for one in graphs)
    assert there.schema.equals(here.schema)
    assert rows(there) == rows(here)


def test_walks_start_at_any_branch_and_commit(graphs: Both) -> None:
    walk = (Town, [4], [Hop(Road, max_depth=3)])
    here, there = (rows(one.traverse(*walk, branch="try")) for one in graphs)
    assert there == here != rows(graphs.remote.traverse(*walk))
    before = graphs.local.branches.list()[1].head
    assert rows(graphs.remote.traverse(*walk, commit=before)) == there
    assert graphs.remote.at("try").neighbours(Town, 4, Road) == graphs.local.at("try").neighbours(Town, 4, Road) == [5]


@pytest.mark.parametrize("wanted", [
    {"text": "town", "limit": 3}, {"text": "new", "column": "note"}, {"vector": [8.0, 8.0], "limit": 2},
    {"text": "town", "vector": [5.0, 1.0]}, {"vector": [1.0, 1.0], "filter": Town.id > 2},
    {"text": "town", "filter": "id < 3"},
], ids=["words", "column", "vector", "both", "condition", "filter"])  # fmt: skip
def test_searches_find_the_same_rows(graphs: Both, wanted: dict[str, Any]) -> None:
    here, there = (one.snapshot().search(Town, **wanted) for one in graphs)
    assert there.num_rows > 0
    assert there.equals(here)


def test_sql_is_answered_alike(graphs: Both) -> None:
    query = "SELECT t.id, sum(r.length) AS far FROM Town t JOIN Road r ON r.left_key = t.id GROUP BY t.id ORDER BY 1"
    for ref in ("main", "try", "main~1"):
        assert graphs.remote.at(ref).sql(query).equals(graphs.local.at(ref).sql(query)), ref


@pytest.mark.parametrize(("kind", "ask"), [
    (NotFound, lambda graph: graph.traverse("City", None, [Road])),
    (NotFound, lambda graph: graph.traverse(Town, [77], [Road])),
    (NotFound, lambda graph: graph.traverse(Town, None, [Road], branch="gone")),
    (Invalid, lambda graph: graph.traverse(Town, None, Road)),
    (Invalid, lambda graph: graph.traverse(Town, None, [("Road", "up")])),
    (Invalid, lambda graph: graph.traverse(Town, None, [(Road, "out", 2, 1)])),
    (Invalid, lambda graph: graph.traverse(Town, None, [Hop(Road, where=5)])),
    (Invalid, lambda graph: graph.snapshot().search(Town)),
    (Invalid, lambda graph: graph.snapshot().search(Town, text="x", column="id")),
    (Invalid, lambda graph: graph.snapshot().search(Town, text="x", limit=0)),
    (Invalid, lambda graph: graph.snapshot().sql("DROP TABLE town")),
    (Invalid, lambda graph: graph.snapshot().sql("SELECT nothing FROM nowhere")),
])  # fmt: skip
def test_bad_questions_get_the_same_kind_of_error(graphs: Both, kind: type[Exception], ask: Any) -> None:
    for graph in graphs:
        with pytest.raises(kind):
            ask(graph)


def test_more_rows_than_a_server_sends_are_never_cut_off_silently(
    graphs: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ontolake.client.graph.MOST_ROWS", 3)
    assert graphs.remote.snapshot().sql("SELECT id FROM Town LIMIT 3").num_rows == 3
    with pytest.raises(Invalid, match="more than 3 rows"):
        graphs.remote.snapshot().sql("SELECT id FROM Town")


def test_a_snapshot_keeps_its_commit(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/towns"
    Graph.init(url, [Town, Road]).close()
    with serving({"towns": url}) as served:
        graph: Any = ontolake.open(f"{served.url}/towns", write=True, token="writer-secret")
        with graph:
            empty = graph.snapshot()
            graph.load(Town, [{"id": 1, "note": "first", "place": [0.0, 0.0]}])
            count = "SELECT count(*) AS n FROM Town"
            assert [one.sql(count).to_pylist() for one in (empty, graph.snapshot())] == [[{"n": 0}], [{"n": 1}]]
