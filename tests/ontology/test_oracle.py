"""Random sessions against a naive store: every form of query answers the same, on both engines, wherever they live."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake.model import Condition
from ontolake.ontology import Session, UnknownCommitError, avg, count, count_where, left, max_, min_, right, sum_
from ontolake.ontology.sizes import DEFAULT, Sizes

from .conftest import fresh_url
from .naive import NaiveStore
from .shop import ENTITIES, RELATIONS, Customer, Order, Placed, Rated, Tier

WORDS = ["", "a", "A", "ab", "a%b", "a_b", "b", "ä", "é\0x", "\U0001f600", "100%", "ab\nc"]
EXTRAS: list[Any] = [
    None, {}, [], 5, "5", 2.5, True, {"a": {"b": 1}}, {"a": {"b": "x"}}, {"a": [{"b": 1}, {"b": 2}]}, [1, [2, 3]],
    {"a.b": 7}, {"a": None},
]  # fmt: skip
SCORES = [0.0, 1.5, -2.25, 1e300, math.inf, -math.inf]
MOMENTS = [datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1), datetime(1999, 12, 31, 23, tzinfo=UTC)]


def customer(rng: random.Random) -> Customer:
    return Customer(
        id=f"c{rng.randrange(8)}", name=rng.choice(WORDS), tier=rng.choice([None, *Tier]), score=rng.choice(SCORES),
        active=rng.random() < 0.5, born=rng.choice([None, date(2000, 1, 1), date(1990, 5, 5)]),
        tags=rng.sample(["x", "y", "z"], rng.randrange(4)), extra=rng.choice(EXTRAS),
    )  # fmt: skip


def order(rng: random.Random) -> Order:
    return Order(
        id=rng.randrange(-2, 6), total=Decimal(rng.choice(["1.0", "1.00", "-3", "10.5", "9.99", "1E+2"])),
        at=rng.choice(MOMENTS) + timedelta(days=rng.randrange(3)), commit_id=rng.choice([None, 1, 99]),
        key=rng.choice([b"", b"\0\xff", b"abc"]),
    )  # fmt: skip


def placed(rng: random.Random) -> Placed:
    return Placed(left_key=f"c{rng.randrange(9)}", right_key=rng.randrange(-2, 7), note=rng.choice([None, *WORDS]),
                  count=rng.randrange(3))


def rated(rng: random.Random) -> Rated:
    return Rated(left_key=f"c{rng.randrange(9)}", right_key=rng.randrange(-2, 7), year=rng.choice(["1", "2"]),
                 stars=rng.randrange(3))


MAKERS: list[Callable[[random.Random], Any]] = [customer, customer, order, placed, rated]


Filter = tuple[Condition, Callable[[Any], bool | None]]


def customer_filter(rng: random.Random) -> Filter:
    word, tier, score = rng.choice(WORDS), rng.choice(list(Tier)), rng.choice(SCORES)
    simple: list[Filter] = [
        (Customer.name == word, lambda c: c.name == word),
        (Customer.name != word, lambda c: c.name != word),
        (Customer.name > word, lambda c: c.name > word),
        (Customer.name <= word, lambda c: c.name <= word),
        (Customer.name.startswith(word), lambda c: c.name.startswith(word)),
        (Customer.name.endswith(word), lambda c: c.name.endswith(word)),
        (Customer.name.contains(word), lambda c: word in c.name),
        (Customer.name.in_([word, "b"]), lambda c: c.name in (word, "b")),
        (Customer.name.in_([]), lambda c: False),
        (Customer.id == "c1", lambda c: c.id == "c1"),
        (Customer.tier == tier, lambda c: None if c.tier is None else c.tier == tier),
        (Customer.tier != tier, lambda c: None if c.tier is None else c.tier != tier),
        (Customer.tier.in_([tier]), lambda c: None if c.tier is None else c.tier == tier),
        (Customer.tier.is_null(), lambda c: c.tier is None),
        (Customer.tier.is_not_null(), lambda c: c.tier is not None),
        (Customer.score >= score, lambda c: c.score >= score),
        (Customer.score < 1, lambda c: c.score < 1),
        (Customer.active.is_true(), lambda c: c.active),
        (Customer.active.is_false(), lambda c: not c.active),
        (Customer.born >= date(1995, 1, 1), lambda c: None if c.born is None else c.born >= date(1995, 1, 1)),
        (Customer.tags.any_path() == "x", lambda c: "x" in c.tags),
        (Customer.tags[0] == "x", lambda c: None if not c.tags else c.tags[0] == "x"),
        (Customer.extra.is_null(), lambda c: c.extra is None),
        (Customer.extra.path("a.b") == 1, lambda c: _path(c.extra, "a", "b", lambda v: v == 1 and v is not True)),
        (Customer.extra.path("a.b") > 0, lambda c: _path(c.extra, "a", "b", lambda v: isinstance(v, int) and v > 0)),
        (Customer.extra["a.b"] == 7, lambda c: None if not _has(c.extra, "a.b") else c.extra["a.b"] == 7),
        (Customer.extra.any_path("a.b") == 2, lambda c: _any(c.extra, 2)),
    ]
    return _combined(rng, simple)


def order_filter(rng: random.Random) -> Filter:
    moment, total = rng.choice(MOMENTS), Decimal(rng.choice(["1", "9.990", "10.5", "-3.0"]))

    def utc(value: datetime) -> datetime:
        return value if value.tzinfo else value.replace(tzinfo=UTC)

    simple: list[Filter] = [
        (Order.total == total, lambda o: o.total == total),
        (Order.total > total, lambda o: o.total > total),
        (Order.at > moment, lambda o: utc(o.at) > utc(moment) or bool(
            o.at.tzinfo and utc(o.at) == utc(moment) and not moment.tzinfo)),
        (Order.id >= 0, lambda o: o.id >= 0),
        (Order.commit_id == 99, lambda o: None if o.commit_id is None else o.commit_id == 99),
        (Order.key == b"abc", lambda o: o.key == b"abc"),
        (Order.key > b"", lambda o: o.key > b""),
    ]  # fmt: skip
    return _combined(rng, simple)


def _combined(rng: random.Random, simple: list[Filter]) -> Filter:
    one, two = rng.choice(simple), rng.choice(simple)
    how = rng.randrange(4)
    if how == 0:
        return one
    if how == 1:
        return one[0] & two[0], lambda row: _and(one[1](row), two[1](row))
    if how == 2:
        return one[0] | two[0], lambda row: _or(one[1](row), two[1](row))
    return ~one[0], lambda row: _not(one[1](row))


def _and(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else left and right


def _or(left: bool | None, right: bool | None) -> bool | None:
    if left or right:
        return True
    return None if left is None or right is None else False


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _has(value: Any, key: str) -> bool:
    return isinstance(value, dict) and value.get(key) is not None


def _path(value: Any, first: str, second: str, test: Callable[[Any], bool]) -> bool | None:
    if not _has(value, first) or not _has(value[first], second):
        return None
    return test(value[first][second])


def _any(value: Any, wanted: Any) -> bool:
    spread = [value]
    for step in ("a", "b"):
        spread = [inner for item in spread for inner in (item if isinstance(item, list) else [item])]
        spread = [item[step] for item in spread if isinstance(item, dict) and step in item]
    spread = [inner for item in spread for inner in (item if isinstance(item, list) else [item])]
    return wanted in spread


def check(session: Session, naive: NaiveStore, rng: random.Random) -> None:
    """Compare every form of query, with random filters and bounds in time."""
    head = len(naive.commits)
    at = rng.choice([None, rng.randrange(head + 1)])
    check_beyond(session, head, rng)
    for cls, make in ((Customer, customer_filter), (Order, order_filter)):
        condition, predicate = make(rng)
        query: Any = session.query().entities(cls).where(condition)
        query = query if at is None else query.as_of(at)
        rows = [row for row in naive.latest(cls, at).values() if predicate(row)]
        found = query.collect()
        assert by_key(found) == by_key(rows), condition
        assert query.count() == len(rows)
        first = query.first()
        assert (first is None) == (not rows)
        assert first is None or first in rows
        ordered = query.order_by(cls.id.desc()).offset(1).limit(2).collect()
        assert [row.id for row in ordered] == sorted((row.id for row in rows), reverse=True)[1:3]
        assert [row.id for row in query.order_by(cls.id).offset(2).collect()] == sorted(row.id for row in rows)[2:]
        assert query.to_arrow().num_rows == len(rows)
        check_history(session, naive, cls, condition, predicate, at, rng)
    check_aggregates(session, naive, at, rng)
    check_relations(session, naive, at, rng)


def check_beyond(session: Session, head: int, rng: random.Random) -> None:
    """No form of query answers for a commit that is not there."""
    beyond, start = head + rng.choice([1, 2, 1000, 2**63, 2**70]), session.query()
    query: Any = rng.choice([start.entities(Customer), start.relations(Placed), start.entities(Customer).via(Placed),
                             start.entities(Customer).where(Customer.id == "c1"), start.entities(Order).limit(1)])
    query = rng.choice([query.as_of(beyond), query.history_since(beyond), query.as_of(0).history_since(beyond),
                        query.as_of(beyond).with_history()])
    with pytest.raises(UnknownCommitError, match=f"no commit {beyond}: ") as told:
        rng.choice([query.collect, query.first])()
    assert told.value.head == head


def by_key(rows: Any) -> dict[Any, Any]:
    return {row.id: row for row in rows}


def check_history(
    session: Session, naive: NaiveStore, cls: Any, condition: Condition, predicate: Any, at: int | None,
    rng: random.Random,
) -> None:  # fmt: skip
    since = rng.randrange(len(naive.commits) + 1)
    query: Any = session.query().entities(cls).where(condition)
    bounded = query if at is None else query.as_of(at)
    states = [(number, row) for number, row in naive.history(cls, at) if predicate(row)]
    assert [(row.meta().commit_id, row) for row in bounded.with_history().collect()] == states
    recent = [(number, row) for number, row in naive.history(cls, at, since) if predicate(row)]
    assert [(row.meta().commit_id, row) for row in bounded.history_since(since).collect()] == recent
    assert bounded.history_since(since).count() == len(recent)


def check_aggregates(session: Session, naive: NaiveStore, at: int | None, rng: random.Random) -> None:
    condition, predicate = customer_filter(rng)
    query: Any = session.query().entities(Customer).where(condition)
    orders: Any = session.query().entities(Order)
    if at is not None:
        query, orders = query.as_of(at), orders.as_of(at)
    rows = [row for row in naive.latest(Customer, at).values() if predicate(row)]
    finite = [row.score for row in rows]
    assert query.min(Customer.score) == min(finite, default=None), (condition, query.collect())
    assert query.max(Customer.name) == max((row.name for row in rows), default=None)
    assert query.count_where(Customer.active.is_true()) == sum(row.active for row in rows)
    assert query.avg_len(Customer.tags) == (sum(len(row.tags) for row in rows) / len(rows) if rows else None)
    totals = [row.total for row in naive.latest(Order, at).values()]
    assert orders.sum(Order.total) == (sum(totals) if totals else None)
    assert orders.max(Order.total) == max(totals, default=None)
    groups = query.group_by(Customer.tier).having(count() > 1).agg(
        n=count(), low=min_(Customer.name), high=max_(Customer.born), active=count_where(Customer.active.is_true()))
    expected = {}
    for tier in {row.tier for row in rows}:
        alike = [row for row in rows if row.tier is tier]
        if len(alike) > 1:
            expected[tier] = {"tier": tier, "n": len(alike), "low": min(row.name for row in alike),
                              "high": max((row.born for row in alike if row.born), default=None),
                              "active": sum(row.active for row in alike)}  # fmt: skip
    assert {group["tier"]: group for group in groups} == expected


def check_relations(session: Session, naive: NaiveStore, at: int | None, rng: random.Random) -> None:
    customers, orders = naive.latest(Customer, at), naive.latest(Order, at)
    links = list(naive.latest(Placed, at).values())
    word = rng.choice(WORDS)
    query: Any = session.query().relations(Placed)
    ratings: Any = session.query().relations(Rated)
    paths: Any = session.query().entities(Customer)
    back: Any = session.query().entities(Order)
    if at is not None:
        query, ratings, paths, back = query.as_of(at), ratings.as_of(at), paths.as_of(at), back.as_of(at)
    assert keyed(query.collect()) == keyed(links)
    assert keyed(ratings.collect()) == keyed(naive.latest(Rated, at).values())

    def gold(link: Any) -> bool:
        return link.left_key in customers and customers[link.left_key].tier is Tier.GOLD

    assert query.where(left(Placed).tier == Tier.GOLD).count() == sum(map(gold, links))
    either = (left(Placed).tier == Tier.GOLD) | (Placed.note == word)
    assert keyed(query.where(either).collect()) == keyed(
        link for link in links if gold(link) or link.note == word)  # fmt: skip
    known = [link for link in links if link.right_key in orders]
    amounts: dict[Any, int] = {}
    for link in links:
        total = orders[link.right_key].total if link.right_key in orders else None
        amounts[total] = amounts.get(total, 0) + link.count
    grouped = query.group_by(right(Placed).total).agg(n=sum_(Placed.count), mean=avg(Placed.count))
    assert {group["total"]: group["n"] for group in grouped} == amounts
    whole = [link for link in known if link.left_key in customers]
    ways = paths.via(Placed).collect()
    assert sorted((p.source.id, p.target.id) for p in ways) == sorted((r.left_key, r.right_key) for r in whole)
    assert all(p.relations[0].left_key == p.source.id and p.target == orders[p.target.id] for p in ways)
    assert back.via(Placed).count() == len(whole)
    positive = back.where(Order.id > 0).via(Placed).where(Customer.active.is_true()).without_relations().collect()
    assert sorted((p.source.id, p.target.id) for p in positive) == sorted(
        (r.right_key, r.left_key) for r in whole if r.right_key > 0 and customers[r.left_key].active)
    double = paths.via(Placed).via(Rated).count()
    rates = naive.latest(Rated, at).values()
    assert double == sum(1 for one in whole for two in rates if two.right_key == one.right_key
                         and two.left_key in customers)  # fmt: skip


def keyed(links: Any) -> dict[Any, Any]:
    return {(link.left_key, link.right_key, getattr(link, "year", "")): link for link in links}


def run(url: str, engine: str, seed: int, steps: int, sizes: Sizes = DEFAULT) -> None:
    rng, naive = random.Random(seed), NaiveStore()

    def opened() -> Session:
        return Session(url, entity_types=ENTITIES, relation_types=RELATIONS, engine_version=engine,
                       config={"sizes": sizes})

    with contextlib.ExitStack() as stack:
        keeper = opened()  # what is in memory goes when the last one closes it
        stack.callback(keeper.close)
        session = opened()
        for _ in range(steps):
            for _ in range(rng.choice([0, 1, 2, 4, 25])):  # few are written in another way than many
                obj = rng.choice(MAKERS)(rng)
                session.ensure(obj)
                naive.ensure(obj)
            assert session.commit() == naive.commit()
            if rng.random() < 0.2:
                session.close()
                session = opened()
            if rng.random() < 0.5:
                check(session, naive, rng)
        check(session, naive, rng)
        assert [commit.id for commit in session.list_commits()] == list(range(len(naive.commits), 0, -1))
        session.close()


@pytest.fixture(params=["v1", "v2", "v3"])
def engine(request: pytest.FixtureRequest) -> str:
    """All engines, in quick tests too: these are those that ask the most of them."""
    return str(request.param)


@pytest.mark.parametrize("seed", slow_after(2, range(6)))
def test_every_query_answers_as_a_naive_store_does(tmp_path: Path, engine: str, seed: int) -> None:
    run(fresh_url("native", tmp_path), engine, seed, 12)


@pytest.mark.parametrize("place", slow_after(1, ["pages in memory", "page file"]))
def test_it_does_so_over_the_seam_too(tmp_path: Path, engine: str, place: str) -> None:
    run(fresh_url(place, tmp_path), engine, 100, 8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1010))
def test_it_does_so_in_long_sessions(tmp_path: Path, engine: str, seed: int) -> None:
    run(fresh_url("native", tmp_path), engine, seed, 30)
