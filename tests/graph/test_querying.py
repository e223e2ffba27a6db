"""Questions to a snapshot: SQL, search by words and vectors, and walks along edges, checked against plain Python."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from ontolake.errors import Invalid, NotFound
from ontolake.graph import Blob, Graph, Hop, RowError, Vector
from ontolake.model import Entity, Field, Relation

Embedding = Vector(3)


class Page(Entity):
    id: Field[int] = Field(primary_key=True)
    text: Field[str] = Field(default="")
    embedding: Field[Embedding | None] = Field(default=None)  # type: ignore[valid-type]
    image: Field[Blob | None] = Field(default=None)


class Author(Entity):
    name: Field[str] = Field(primary_key=True)


class Link(Relation[Page, Page]):
    weight: Field[int] = Field(default=1)


class Wrote(Relation[Author, Page]):
    pass


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Graph]:
    with Graph.init(f"{tmp_path}/web/", [Page, Author, Link, Wrote]) as graph:
        yield graph


def test_sql_sees_one_snapshot(web: Graph) -> None:
    web.load(Page, [{"id": 1, "text": "one"}, {"id": 2, "text": "two"}])
    web.load(Link, [{"left_key": 1, "right_key": 2, "weight": 5}])
    old = web.snapshot()
    web.load(Page, [{"id": 3}])
    query = 'SELECT count(*) AS n, max(l.weight) AS w FROM page p LEFT JOIN link l ON p.id = l.left_key'
    assert old.sql(query).to_pylist() == [{"n": 2, "w": 5}]
    assert web.snapshot().sql(query).to_pylist() == [{"n": 3, "w": 5}]
    with pytest.raises(Invalid, match="Page"):
        old.sql("SELECT * FROM nowhere")


def test_search_by_words_vectors_and_both(web: Graph) -> None:
    texts = {1: "green tea and lemon", 2: "black coffee", 3: "iced coffee with lemon", 4: "water"}
    vectors = {1: [1, 0, 0], 2: [0, 1, 0], 3: [0.9, 0.1, 0], 4: [0, 0, 1]}
    web.load(Page, [{"id": id, "text": texts[id], "embedding": vectors[id]} for id in texts])
    with pytest.raises(Invalid, match="index"):
        web.snapshot().search(Page, text="coffee")
    web.index(Page, "text", kind="text")
    snapshot = web.snapshot()
    assert set(snapshot.search(Page, text="coffee")["id"].to_pylist()) == {2, 3}
    assert snapshot.search(Page, vector=[1, 0, 0], limit=2)["id"].to_pylist() == [1, 3]
    assert snapshot.search(Page, vector=[1, 0, 0], limit=1, filter="id > 1")["id"].to_pylist() == [3]
    both = snapshot.search(Page, text="lemon coffee", vector=[1, 0, 0], limit=2)["id"].to_pylist()
    assert 3 in both
    web.load(Page, [{"id": 5, "text": "more coffee", "embedding": [0, 1, 0]}])
    web.index(Page, "embedding", kind="vector")
    assert 5 in web.snapshot().search(Page, text="coffee")["id"].to_pylist()
    assert set(web.snapshot().search(Page, vector=[0, 1, 0], limit=2)["id"].to_pylist()) == {2, 5}
    for wrong in ({}, {"vector": [1.0]}, {"text": "x", "column": "id"}, {"vector": [1, 0, 0], "limit": 0}):
        with pytest.raises(Invalid):
            web.snapshot().search(Page, **wrong)  # type: ignore[arg-type]
    with pytest.raises(RowError, match="embedding"):
        web.load(Page, [{"id": 9, "embedding": [1.0, 2.0]}])


def test_blobs_are_read_when_they_are_asked_for(web: Graph) -> None:
    web.load(Page, [{"id": 1, "image": b"\x00" * 100_000 + b"end"}, {"id": 2}])
    table = web.snapshot().table(Page)
    assert "image" not in table.to_arrow().column_names
    found = table.to_arrow(columns=["id", "image"]).to_pylist()
    assert [(row["id"], row["image"] and row["image"][-3:]) for row in found] == [(1, b"end"), (2, None)]
    web.load(Page, [{"id": 3, "image": "_-8="}, {"id": 4, "image": "/+8="}])  # base64 in either alphabet
    assert table.to_arrow().num_rows == 2
    images = web.snapshot().table(Page).to_arrow(filter="id > 2", columns=["image"])["image"].to_pylist()
    assert images == [b"\xff\xef"] * 2
    with pytest.raises(RowError, match="base64") as caught:
        web.load(Page, [{"id": 5, "image": "/+8="}, {"id": 6, "image": "no base64!"}])
    assert (caught.value.row, caught.value.column) == (1, "image")


def test_walks_follow_edges_filters_and_depths(web: Graph) -> None:
    with web.transaction() as tx:
        tx.load(Page, [{"id": n, "text": "even" if n % 2 == 0 else "odd"} for n in range(6)])
        tx.load(Author, [{"name": "ada"}, {"name": "bob"}])
        tx.load(Link, [{"left_key": n, "right_key": n + 1, "weight": n} for n in range(5)])
        tx.load(Wrote, [{"left_key": "ada", "right_key": 0}, {"left_key": "bob", "right_key": 3}])
    snapshot = web.snapshot()

    def walk(*hops: object, start: object = Page, roots: object = (0,)) -> dict[object, int]:
        found = snapshot.traverse(start, roots, hops)
        return dict(zip(found.column(0).to_pylist(), found["depth"].to_pylist(), strict=True))

    assert walk(Link) == {1: 1}
    assert web.traverse(Page, [0], [Link]).equals(snapshot.traverse(Page, [0], [Link]))
    web.delete(Link, [(0, 1)])
    assert web.traverse(Page, [0], [Link]).num_rows == 0
    assert web.traverse(Page, [0], [Link], commit=snapshot.commit).num_rows == 1
    assert walk(Hop(Link, max_depth=3)) == {1: 1, 2: 2, 3: 3}
    assert walk(Hop(Link, min_depth=2, max_depth=3)) == {2: 2, 3: 3}
    assert walk(Hop(Link, min_depth=0, max_depth=1)) == {0: 0, 1: 1}
    assert walk(Hop(Link, "in", 1, 9), roots=[3]) == {2: 1, 1: 2, 0: 3}
    assert walk(Hop(Link, "both"), roots=3) == {2: 1, 4: 1}
    assert walk(Hop(Link, max_depth=9, where=Link.weight < 3)) == {1: 1, 2: 2, 3: 3}
    assert walk(Hop(Link, max_depth=9, to=Page.text == "even")) == {2: 2, 4: 4}
    assert walk(Wrote, Link, start=Author, roots=None) == {1: 2, 4: 2}
    assert walk(Hop(Wrote, "in"), roots=[0, 3]) == {"ada": 1, "bob": 1}
    assert snapshot.neighbours(Page, 2, Link) == [3]
    assert snapshot.shortest_path(Page, 0, 4, edge=Link) == [0, 1, 2, 3, 4]
    assert snapshot.shortest_path(Page, 4, 0, edge=Link) is None
    assert snapshot.shortest_path(Page, 0, 4, edge=Link, max_depth=3) is None
    with pytest.raises(NotFound, match="99"):
        walk(Link, roots=[99])
    for wrong in (Page, Hop(Link, "up"), Hop(Wrote, "out"), Hop(Wrote, "in", 1, 2), Hop(Link, "out", 3, 2)):  # type: ignore[arg-type]
        with pytest.raises(Invalid):
            walk(wrong)


def test_walks_agree_with_plain_python(web: Graph) -> None:
    rng = random.Random(5)
    pages = rng.sample(range(10_000), 120)
    edges = {(rng.choice(pages), rng.choice(pages)) for _ in range(300)}
    web.load(Page, [{"id": page} for page in pages])
    web.load(Link, [{"left_key": left, "right_key": right} for left, right in edges])
    snapshot = web.snapshot()
    out: dict[int, set[int]] = {page: set() for page in pages}
    for left, right in edges:
        out[left].add(right)
    for root in pages[:20]:
        depths, waiting = {root: 0}, deque([root])
        while waiting:
            page = waiting.popleft()
            for other in out[page]:
                if other not in depths:
                    depths[other] = depths[page] + 1
                    waiting.append(other)
        found = snapshot.traverse(Page, [root], [Hop(Link, max_depth=4)])
        assert dict(zip(found["id"].to_pylist(), found["depth"].to_pylist(), strict=True)) == {
            page: depth for page, depth in depths.items() if 1 <= depth <= 4}
        for goal in pages[20:40]:
            path = snapshot.shortest_path(Page, root, goal, edge=Link)
            assert (None if path is None else len(path) - 1) == depths.get(goal)
            assert path is None or all(right in out[left] for left, right in pairwise(path))
