"""Random traversals against a naive store: self-relations, cycles of types, ways that return to where they start.

A filter or an order names the last row of its type on the path so far. The naive store filters whole ways, at the
position that was the last one when the filter was written.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from marking import slow_after

from ontolake.model import Condition, Entity, Field, Order, Relation
from ontolake.ontology import Session, count, count_where, left, max_, right, sum_

from .conftest import fresh_url
from .naive import NaiveStore, Step, key_of, ways


class Person(Entity):
    id: Field[str] = Field(primary_key=True)
    rank: Field[int]
    nick: Field[str | None] = Field(default=None)


class Firm(Entity):
    id: Field[int] = Field(primary_key=True)
    rank: Field[int]
    nick: Field[str | None] = Field(default=None)


class Follows(Relation[Person, Person]):
    weight: Field[int]


class Mentors(Relation[Person, Person]):
    year: Field[str] = Field(instance_key=True)
    weight: Field[int]


class WorksAt(Relation[Person, Firm]):
    weight: Field[int]


class Owns(Relation[Firm, Person]):
    weight: Field[int]


class PartOf(Relation[Firm, Firm]):
    weight: Field[int]


ENTITIES: list[type[Entity]] = [Person, Firm]
RELATIONS: list[type[Relation[Any, Any]]] = [Follows, Mentors, WorksAt, Owns, PartOf]
Way = tuple[Any, ...]


def random_object(rng: random.Random) -> Any:
    cls: Any = rng.choice([Person, Firm, *RELATIONS, *RELATIONS])
    keys = {Person: lambda: f"p{rng.randrange(4)}", Firm: lambda: rng.randrange(3)}
    if cls in keys:
        return cls(id=keys[cls](), rank=rng.randrange(4), nick=rng.choice([None, "a", "b"]))
    one, two = cls.__ontolake_ends__
    more = {"year": rng.choice(["1", "2"])} if cls is Mentors else {}
    return cls(left_key=keys[one](), right_key=keys[two](), weight=rng.randrange(4), **more)


class Walk(NamedTuple):
    """A query and what it means: the steps so far, the tests that a whole way must pass, and what it is ordered by."""

    query: Any
    types: tuple[Any, ...]
    steps: tuple[Step, ...] = ()
    tests: tuple[Callable[[Way], bool | None], ...] = ()
    order: tuple[tuple[Callable[[Way], Any], bool], ...] = ()

    def position(self, cls: Any) -> int:
        """Where the last row of a type is."""
        return len(self.types) - 1 - self.types[::-1].index(cls)


def random_filter(walk: Walk, rng: random.Random) -> Walk:
    """One more filter, on a row that a query can name: the last one of a type, or an end of the last one of a relation.
    """
    cls = rng.choice(walk.types)
    at, owner = walk.position(cls), cls
    if cls in RELATIONS and rng.random() < 0.6:
        side = rng.choice(["left", "right"])
        forward = walk.steps[at // 2].forward
        owner = (left if side == "left" else right)(cls)
        at += -1 if (side == "left") == forward else 1
    entity = at % 2 == 0
    number, word = rng.randrange(4), rng.choice(["a", "b"])
    chosen: list[tuple[Condition, Callable[[Any], bool | None]]] = [
        (owner.rank >= number, lambda row: row.rank >= number),
        (owner.nick == word, lambda row: None if row.nick is None else row.nick == word),
        (owner.nick.is_null(), lambda row: row.nick is None),
    ] if entity else [
        (owner.weight <= number, lambda row: row.weight <= number),
        (owner.weight != number, lambda row: row.weight != number),
    ]  # fmt: skip
    if entity and at == 0:
        key: Any = rng.choice(["p1", "p2"] if walk.types[0] is Person else [0, 1])
        chosen += [(owner.id == key, lambda row: row.id == key)] * 2
    (one, first), (two, second) = rng.choice(chosen), rng.choice(chosen)
    if rng.random() < 0.3:
        query = walk.query.where(one | two)
        return walk._replace(query=query, tests=(*walk.tests, lambda way: first(way[at]) or second(way[at])))
    return walk._replace(query=walk.query.where(one), tests=(*walk.tests, lambda way: first(way[at])))


def random_step(walk: Walk, rng: random.Random) -> Walk:
    here = walk.types[-1]
    choices = [(relation, Step(relation, forward), ends[1 if forward else 0])
               for relation in RELATIONS for ends in [relation.__ontolake_ends__]
               for forward in (True, False) if ends[0 if forward else 1] is here]  # fmt: skip
    relation, step, there = rng.choice(choices)
    query = walk.query.via(relation, direction="forward" if step.forward else "reverse")
    return walk._replace(query=query, types=(*walk.types, relation, there), steps=(*walk.steps, step))


def random_order(walk: Walk, rng: random.Random) -> Walk:
    cls: Any = rng.choice(walk.types)
    at, name, down = walk.position(cls), "rank" if cls in ENTITIES else "weight", rng.random() < 0.5
    query = walk.query.order_by(Order(getattr(cls, name).ref, down))
    return walk._replace(query=query, order=(*walk.order, (lambda way: getattr(way[at], name), down)))


def random_walk(start: Any, cls: Any, rng: random.Random) -> Walk:
    walk = Walk(start, (cls,))
    for _ in range(rng.randrange(1, 4)):
        if rng.random() < 0.35:
            walk = random_filter(walk, rng)
        if rng.random() < 0.2:
            walk = random_order(walk, rng)
        walk = random_step(walk, rng)
    for _ in range(rng.choice([0, 1, 1, 2])):
        walk = random_filter(walk, rng)
    return walk


def check_walk(session: Session, naive: NaiveStore, rng: random.Random) -> bool:
    """Compare one random traversal, and say whether it found anything."""
    cls: Any = rng.choice(ENTITIES)
    at = rng.choice([None, None, rng.randrange(len(naive.commits) + 1)])
    since = rng.choice([None, None, None, rng.randrange(len(naive.commits) + 1)])
    start: Any = session.query().entities(cls)
    starts = list(naive.latest(cls, at).values())
    if at is not None:
        start = start.as_of(at)
    if since is not None:
        start = start.history_since(since) if since else start.with_history()
        starts = [row for _, row in naive.history(cls, at, since)]
    walk = random_walk(start, cls, rng)
    expected = [way for way in ways(naive, starts, list(walk.steps), at) if all(test(way) for test in walk.tests)]
    found = walk.query.collect()
    assert keys(interleaved(path) for path in found) == keys(expected)
    assert walk.query.count() == len(expected)
    assert (walk.query.first() is None) == (not expected)
    bare = walk.query.without_relations().collect()
    assert keys(path.entities for path in bare) == keys(way[::2] for way in expected)
    check_order(walk, expected, rng)
    if not walk.order:
        check_measures(walk, expected, rng)
    return bool(expected)


def interleaved(path: Any) -> Way:
    """A path as the naive store has it. Entities and relations are compared whole."""
    return tuple(row for pair in zip(path.entities, (*path.relations, None), strict=True) for row in pair)[:-1]


def keys(found: Any) -> list[str]:
    return sorted(repr([(type(row).__name__, key_of(row), row.model_dump()) for row in way]) for way in found)


def check_order(walk: Walk, expected: list[Way], rng: random.Random) -> None:
    ordered = random_order(walk, rng)
    for value, down in reversed(ordered.order):
        expected = sorted(expected, key=value, reverse=down)
    told = [[value(way) for value, _ in ordered.order] for way in expected]
    found = [interleaved(path) for path in ordered.query.offset(1).limit(3).collect()]
    assert [[value(way) for value, _ in ordered.order] for way in found] == told[1:4]
    assert [[value(interleaved(path)) for value, _ in ordered.order] for path in ordered.query.collect()] == told


def check_measures(walk: Walk, expected: list[Way], rng: random.Random) -> None:
    end, over = walk.types[-1], walk.types[-2]
    ranks = [way[-1].rank for way in expected]
    weights = [way[-2].weight for way in expected]
    number = rng.randrange(4)
    assert walk.query.sum(end.rank) == (sum(ranks) if ranks else None)
    assert walk.query.max(over.weight) == max(weights, default=None)
    assert walk.query.min(end.rank) == min(ranks, default=None)
    assert walk.query.avg(over.weight) == (sum(weights) / len(weights) if weights else None)
    assert walk.query.count_where(end.rank > number) == sum(rank > number for rank in ranks)
    groups = walk.query.group_by(end.rank).having(count() > 1).agg(
        n=count(), most=max_(over.weight), all=sum_(over.weight), high=count_where(over.weight > number))
    told = []
    for rank in sorted(set(ranks)):
        alike = [weight for weight, other in zip(weights, ranks, strict=True) if other == rank]
        if len(alike) > 1:
            told.append({"rank": rank, "n": len(alike), "most": max(alike), "all": sum(alike),
                         "high": sum(weight > number for weight in alike)})  # fmt: skip
    assert groups == told


def run_paths(url: str, engine: str, seed: int, steps: int) -> None:
    rng, naive, met = random.Random(seed), NaiveStore(), 0
    with Session(url, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=engine) as session:
        for step in range(steps):
            for _ in range(rng.choice([1, 4, 25]) if step else 60):
                obj = random_object(rng)
                session.ensure(obj)
                naive.ensure(obj)
            assert session.commit() == naive.commit()
            for _ in range(4):
                met += check_walk(session, naive, rng)
    assert met > steps  # enough of them lead somewhere


@pytest.mark.parametrize("engine", ["v1", "v2"])
@pytest.mark.parametrize("seed", slow_after(1, range(6)))
def test_every_traversal_finds_the_ways_of_a_naive_store(tmp_path: Path, engine: str, seed: int) -> None:
    run_paths(fresh_url("native", tmp_path), engine, seed, 8 if seed == 0 else 12)


@pytest.fixture
def circle(url: str, engine: str) -> Any:
    """Ann follows bob, bob follows cy, cy follows ann; ann and bob work at firm 1."""
    with Session(url, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=engine) as session:
        session.ensure([Person(id=name, rank=n) for n, name in enumerate(("ann", "bob", "cy"))])
        session.ensure([Follows(left_key=one, right_key=two, weight=1)
                        for one, two in (("ann", "bob"), ("bob", "cy"), ("cy", "ann"))])
        session.ensure(Firm(id=1, rank=1))
        session.ensure([WorksAt(left_key=name, right_key=1, weight=1) for name in ("ann", "bob")])
        session.commit()
        yield session


def told(query: Any) -> list[list[Any]]:
    return sorted([entity.id for entity in path.entities] for path in query.collect())


def test_a_filter_before_via_is_about_the_start(circle: Session) -> None:
    ann = circle.query().entities(Person).where(Person.id == "ann")
    assert told(ann.via(Follows)) == [["ann", "bob"]]
    assert told(ann.via(Follows, direction="reverse")) == [["ann", "cy"]]
    assert told(ann.via(WorksAt).via(WorksAt)) == [["ann", 1, "ann"], ["ann", 1, "bob"]]
    assert told(ann.via(Follows).via(Follows).via(Follows)) == [["ann", "bob", "cy", "ann"]]


def test_a_filter_behind_via_is_about_the_last_row_of_its_type(circle: Session) -> None:
    people = circle.query().entities(Person)
    assert told(people.via(Follows).where(Person.id == "ann")) == [["cy", "ann"]]
    assert told(people.where(Person.id == "ann").via(Follows).where(Person.id == "bob").via(Follows)) == [
        ["ann", "bob", "cy"]]
    assert told(people.via(Follows).where(left(Follows).id == "ann")) == [["ann", "bob"]]
    assert told(people.via(Follows, direction="reverse").where(left(Follows).id == "ann")) == [["bob", "ann"]]
    both = people.where(Person.rank == 0).via(Follows).where((Person.rank == 1) & (Follows.weight == 1))
    assert told(both) == [["ann", "bob"]]
    assert both.sum(Person.rank) == 1
