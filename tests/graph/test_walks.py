"""Walks of any hops, from any roots, through cycles, self-loops and several types, lead where plain Python gets."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from marking import slow_after

from ontolake.errors import Invalid, NotFound, OntolakeError
from ontolake.graph import Graph, Hop, RowError
from ontolake.model import Entity, Field, Relation

Node = tuple[str, Any]
"""The name of a type, and a key."""


class Town(Entity):
    id: Field[int] = Field(primary_key=True)
    size: Field[int] = Field(default=0)


class Guest(Entity):
    name: Field[str] = Field(primary_key=True)


class Road(Relation[Town, Town]):
    length: Field[int] = Field(default=1)


class Rail(Relation[Town, Town]):
    pass


class Visit(Relation[Guest, Town]):
    pass


TYPES = [Town, Guest, Road, Rail, Visit]


class World:
    """Towns and guests, and what leads from one to another."""

    def __init__(self, chance: random.Random) -> None:
        count = chance.randint(1, 9)
        self.towns = {id: chance.randint(0, 2) for id in chance.sample([*range(12), 10**6, -5], count)}
        self.guests = [f"g{n}" for n in range(chance.randint(1, 3))]
        ids = list(self.towns)

        def some(a: list[Any], b: list[Any], most: int) -> dict[tuple[Any, Any], int]:
            return {(chance.choice(a), chance.choice(b)): chance.randint(0, 2) for _ in range(chance.randint(0, most))}

        self.edges = {"Road": some(ids, ids, 14), "Rail": some(ids, ids, 6), "Visit": some(self.guests, ids, 4)}

    def load(self, graph: Graph) -> None:
        with graph.transaction() as tx:
            tx.load(Town, [{"id": id, "size": size} for id, size in self.towns.items()])
            tx.load(Guest, [{"name": name} for name in self.guests])
            tx.load(Road, [{"left_key": a, "right_key": b, "length": n} for (a, b), n in self.edges["Road"].items()])
            tx.load(Rail, [{"left_key": a, "right_key": b} for a, b in self.edges["Rail"]])
            tx.load(Visit, [{"left_key": a, "right_key": b} for a, b in self.edges["Visit"]])

    def next(self, edge: str, direction: str, most: int | None) -> Callable[[Any], Iterable[Any]]:
        """Where one edge leads from a key; roads only up to a length."""
        pairs = [pair for pair, length in self.edges[edge].items() if most is None or length <= most]

        def lead(key: Any) -> Iterable[Any]:
            if direction in ("out", "both"):
                yield from (b for a, b in pairs if a == key)
            if direction in ("in", "both"):
                yield from (a for a, b in pairs if b == key)

        return lead

    def hop(self, begin: dict[Any, int], lead: Callable[[Any], Iterable[Any]], least: int, most: int) -> dict[Any, int]:
        """By a search from each node alone: how far it is to every other, and to itself by one edge."""
        near: dict[Any, int] = {}
        total: dict[Any, int] = {}
        for start, depth in begin.items():
            away = {start: 0}
            waiting = deque([start])
            while waiting:
                here = waiting.popleft()
                for other in lead(here):
                    if other not in away:
                        away[other] = away[here] + 1
                        waiting.append(other)
            del away[start]
            if start in lead(start):
                away[start] = 1
            for other, steps in away.items():
                if steps <= most:
                    near[other] = min(near.get(other, steps), steps)
                    total[other] = min(total.get(other, depth + steps), depth + steps)
        if least == 0:
            for start, depth in begin.items():
                near[start], total[start] = 0, min(total.get(start, depth), depth)
        return {key: total[key] for key in total if near[key] >= least}


def random_walk(chance: random.Random, world: World) -> tuple[Any, Any, list[Hop], dict[Any, int]]:
    at = chance.choice(["Town", "Town", "Guest"])
    keys = list(world.towns) if at == "Town" else world.guests
    roots = chance.choice([None, [chance.choice(keys)], chance.sample(keys, chance.randint(1, len(keys)))])
    start = at
    wanted = dict.fromkeys(keys if roots is None else roots, 0)
    hops: list[Hop] = []
    for _ in range(chance.randint(1, 3)):
        edge = "Visit" if at == "Guest" else chance.choice(["Road", "Road", "Rail", "Visit"])
        if edge == "Visit":
            direction, least, most = ("out" if at == "Guest" else "in"), 1, 1
            at = "Town" if at == "Guest" else "Guest"
        else:
            direction, least = chance.choice(["out", "in", "both"]), chance.choice([0, 1, 1, 1, 2])
            most = least + chance.randint(0 if least else 1, 4)
        length = chance.choice([None, None, 1]) if edge == "Road" else None
        big = chance.choice([None, None, 1]) if at == "Town" else None
        hops.append(Hop(edge, direction, least, most, None if length is None else f"length <= {length}",  # type: ignore[arg-type]
                        None if big is None else f"size >= {big}"))
        wanted = world.hop(wanted, world.next(edge, direction, length), least, most)
        if big is not None:
            wanted = {key: depth for key, depth in wanted.items() if world.towns[key] >= big}
    return start, roots, hops, wanted


@pytest.mark.parametrize("seed", slow_after(1, range(10)))
def test_walks_agree_with_plain_python(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with Graph.init(f"{tmp_path}/graph/", TYPES) as graph:
        world = World(chance)
        world.load(graph)
        snapshot = graph.snapshot()
        for _ in range(60):
            start, roots, hops, wanted = random_walk(chance, world)
            found = snapshot.traverse(start, roots, hops)
            told = (world.towns, world.edges, start, roots, hops)
            assert dict(zip(*found.to_pydict().values(), strict=True)) == wanted, told
            assert found.num_rows == len(wanted), told
            assert found["depth"].to_pylist() == sorted(found["depth"].to_pylist()), told


def test_depths_add_up_and_no_root_is_lost(tmp_path: Path) -> None:
    with Graph.init(f"{tmp_path}/graph/", TYPES) as graph, graph.transaction() as tx:
        tx.load(Town, [{"id": id} for id in range(4)])
        tx.load(Road, [{"left_key": a, "right_key": b} for a, b in ((0, 0), (0, 1), (1, 2), (2, 0))])
        tx.load(Rail, [{"left_key": 1, "right_key": 3}])
    with Graph.open(f"{tmp_path}/graph/", read_only=True) as graph:
        snapshot = graph.snapshot()

        def walk(roots: Any, *hops: Any) -> dict[int, int]:
            found = snapshot.traverse(Town, roots, hops)
            return dict(zip(found["id"].to_pylist(), found["depth"].to_pylist(), strict=True))

        assert walk([0], Hop(Road, max_depth=3), Rail) == {3: 2}
        assert [walk([0], Hop(Road, max_depth=most))[0] for most in (1, 2, 3)] == [1, 1, 1]
        assert walk([1], Hop(Road, max_depth=3)) == {2: 1, 0: 2}
        for most in (1, 2, 9):
            assert walk([0, 1], Hop(Road, max_depth=most)).items() >= {0: 1, 1: 1, 2: 1}.items()


@pytest.mark.parametrize("roots", ["ann", [1.5], [None, "x"], [b"1"], [{"id": 1}], pa.array(["a"]), pa.array([1.5]),
                                   [[1]], object()])  # fmt: skip
def test_roots_of_another_type_are_refused(tmp_path: Path, roots: Any) -> None:
    with Graph.init(f"{tmp_path}/graph/", TYPES) as graph:
        graph.load(Town, [{"id": 1}])
        with pytest.raises(RowError, match="id"):
            graph.traverse(Town, roots, [Road])


def test_what_is_no_walk_is_refused(tmp_path: Path) -> None:
    with Graph.init(f"{tmp_path}/graph/", TYPES) as graph:
        graph.load(Town, [{"id": 1}])
        wrong: list[Any] = [
            "Road", Hop(Road), None, [(Road, "out", 1, "2")], [(Road, "out", 1.0)], [()], [(Road, ["out"])], [7],
            [(Road, "out", 1, 1, None, None, 7)], [Hop(Road, where=5)],
        ]  # fmt: skip
        for hops in wrong:
            with pytest.raises(OntolakeError):
                graph.traverse(Town, [1], hops)
        with pytest.raises(NotFound):
            graph.traverse(Town, [None], [Road])
        with pytest.raises(Invalid):
            graph.snapshot().shortest_path(Town, 1, 1, edge=Road, max_depth="x")  # type: ignore[arg-type]
        with pytest.raises(RowError):
            graph.snapshot().shortest_path(Town, "a", 1, edge=Road)
        with pytest.raises(RowError):
            graph.snapshot().neighbours(Town, "a", Road)
