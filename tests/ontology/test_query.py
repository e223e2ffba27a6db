"""Filters, orders and aggregates at the edges: odd names, odd numbers, values of any type inside JSON."""

from __future__ import annotations

import enum
import math
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal

import pytest

from ontolake.model import Entity, Field, Relation, SchemaValidationError
from ontolake.ontology import (
    QueryError,
    Session,
    UnknownCommitError,
    avg,
    count,
    count_where,
    left,
    max_,
    min_,
    right,
    sum_,
)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Odd(Entity):
    """Every name that a store uses for itself, or that SQL does."""

    id: Field[str] = Field(primary_key=True)
    commit_id: Field[int] = Field(default=1)
    key: Field[str] = Field(default="k")
    schema_version_id: Field[str] = Field(default="s")
    entity_key: Field[str] = Field(default="e")
    entity_type: Field[str] = Field(default="t")
    rowid: Field[int] = Field(default=2)
    row_id: Field[int] = Field(default=3)
    raw_entity_key: Field[str] = Field(default="r")
    old: Field[int] = Field(default=4)
    new: Field[int] = Field(default=5)
    select: Field[str] = Field(default="x", name='a "quoted" name')
    fields_json: Field[str] = Field(default="j")
    superseded_by: Field[int] = Field(default=6)
    left_key: Field[str] = Field(default="l")


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    number: Field[int] = Field(default=0)
    real: Field[float] = Field(default=0.0)
    truth: Field[bool | None] = Field(default=None)
    moment: Field[datetime] = Field(default=datetime(2024, 1, 1))
    day: Field[date | None] = Field(default=None)
    money: Field[Decimal] = Field(default=Decimal(0))
    unique: Field[uuid.UUID | None] = Field(default=None)
    level: Field[Level] = Field(default=Level.LOW)
    colour: Field[Colour] = Field(default=Colour.RED)
    word: Field[Literal["x", "y"] | None] = Field(default=None)
    either: Field[str | int | float | None] = Field(default=None)
    extra: Field[Any] = Field(default=None)
    items: Field[list[int]] = Field(default_factory=list)


class Link(Relation[Thing, Odd]):
    n: Field[int] = Field(default=0)
    right: Field[str] = Field(default="r")
    commit_id: Field[int] = Field(default=0)
    instance_key: Field[str] = Field(default="i")


@pytest.fixture
def session(native: str, engine: str) -> Iterator[Session]:
    with Session(native, entity_types=[Odd, Thing], relation_types=[Link], engine_version=engine) as found:
        yield found
        found.discard()


def things(session: Session, *given: Thing) -> Any:
    session.ensure(given)
    session.commit()
    return session.query().entities(Thing)


def ids(query: Any) -> list[str]:
    return sorted(one.id for one in query.collect())


@pytest.mark.parametrize("many", [1, 30])
def test_fields_may_be_called_like_anything_that_the_store_uses(session: Session, many: int) -> None:
    objects = [Odd(id=f"o{n}", old=n, commit_id=7, raw_entity_key=f"r{n}") for n in range(many)]
    session.ensure(objects)
    session.ensure(Link(left_key=f"t{n}", right_key=f"o{n}", n=n) for n in range(many))
    assert session.commit() == 1
    session.ensure(objects)
    assert session.commit() is None
    assert session.query().entities(Odd).collect() == objects
    for name in Odd.model_fields:
        assert session.query().entities(Odd).where(getattr(Odd, name) == getattr(objects[0], name)).count() >= 1, name
    assert session.query().relations(Link).where((right(Link).old == 0) & (Link.instance_key == "i")).count() == 1
    assert session.query().entities(Odd).to_arrow().column("commit_id").to_pylist() == [7] * many


@pytest.mark.parametrize("name", ["", "~x", "a\0b", "a\nb", 5])
def test_names_that_no_column_can_have_are_refused(name: Any) -> None:
    with pytest.raises(SchemaValidationError, match="stored name"):
        Field(name=name)


def test_numbers_beyond_64_bits_compare_as_numbers(session: Session) -> None:
    query = things(session, Thing(id="a", number=2**63 - 1), Thing(id="b", number=-(2**63)))
    assert query.where(Thing.number < 2**63).count() == 2
    assert query.where(Thing.number > -(10**400)).count() == 2
    assert query.where(Thing.number < 10**400).count() == 2
    assert query.where(Thing.number == 2**70).count() == 0
    assert query.where(Thing.number.in_([2**63 - 1, 2**70])).count() == 1
    assert query.where(Thing.real < 10**400).count() == 2


def test_a_sum_beyond_64_bits_is_refused_and_not_rounded(session: Session) -> None:
    query = things(session, Thing(id="a", number=2**63 - 1), Thing(id="b", number=2**63 - 1))
    with pytest.raises(QueryError, match="64 bits"):
        query.sum(Thing.number)
    with pytest.raises(QueryError, match="64 bits"):
        query.group_by(Thing.level).agg(t=sum_(Thing.number))
    assert query.avg(Thing.number) == pytest.approx(2**63)


def test_not_a_number_equals_itself_and_is_beyond_all_numbers(session: Session) -> None:
    values = {"n": math.nan, "p": math.inf, "m": -math.inf, "z": 0.0}
    query = things(session, *(Thing(id=key, real=value) for key, value in values.items()))
    assert ids(query.where(Thing.real == math.nan)) == ["n"]
    assert ids(query.where(Thing.real >= math.inf)) == ["n", "p"]
    assert [one.id for one in query.order_by(Thing.real).collect()] == ["m", "z", "p", "n"]
    assert math.isnan(query.sum(Thing.real))
    assert math.isnan(query.max(Thing.real))
    assert query.min(Thing.real) == -math.inf
    assert query.where(Thing.real < 5).sum(Thing.real) == -math.inf


def test_moments_are_compared_in_utc(session: Session) -> None:
    east = timezone(timedelta(hours=5))
    query = things(session, Thing(id="a", moment=datetime(2024, 1, 1, 3, tzinfo=east)),
                   Thing(id="b", moment=datetime(2024, 1, 1, 0, tzinfo=UTC)))
    assert ids(query.where(Thing.moment == datetime(2023, 12, 31, 22, tzinfo=UTC))) == ["a"]
    assert ids(query.where(Thing.moment >= datetime(2024, 1, 1, 5, tzinfo=east))) == ["b"]
    first = query.order_by(Thing.moment).first()
    assert first.moment == datetime(2024, 1, 1, 3, tzinfo=east)
    for wrong in (lambda: query.where(Thing.moment > date(2024, 1, 1)).count(),
                  lambda: query.where(Thing.day > datetime(2024, 1, 1)).count()):
        with pytest.raises(QueryError, match="cannot be compared"):
            wrong()


def test_decimals_are_compared_and_summed_as_numbers(session: Session) -> None:
    query = things(session, Thing(id="a", money=Decimal("9.5")), Thing(id="b", money=Decimal("10.25")),
                   Thing(id="c", money=Decimal("1E+1"), level=Level.HIGH))
    assert ids(query.where(Thing.money > 9)) == ["a", "b", "c"]
    assert ids(query.where(Thing.money.in_([Decimal("10.0"), Decimal("9.50")]))) == ["a", "c"]
    assert query.sum(Thing.money) == Decimal("29.75")
    assert query.max(Thing.money) == Decimal("10.25")
    grouped = query.group_by(Thing.level)
    assert [one["level"] for one in grouped.having(sum_(Thing.money) > Decimal(9)).agg()] == [Level.LOW, Level.HIGH]
    assert [one["level"] for one in grouped.having(max_(Thing.money) > Decimal("9.75")).agg()] == [
        Level.LOW, Level.HIGH]  # fmt: skip
    assert [one["level"] for one in grouped.having(avg(Thing.money) < 10).agg()] == [Level.LOW]
    with pytest.raises(QueryError, match="money"):
        query.where(Thing.money > 1.5).count()


def test_values_of_enums_stand_for_their_members(session: Session) -> None:
    query = things(session, Thing(id="a", level=Level.HIGH, colour=Colour.BLUE), Thing(id="b"))
    assert ids(query.where(Thing.level == 2)) == ids(query.where(Thing.level >= Level.HIGH)) == ["a"]
    assert ids(query.where(Thing.colour == "blue")) == ids(query.where(Thing.colour.in_([Colour.BLUE]))) == ["a"]
    assert query.max(Thing.level) is Level.HIGH
    for wrong in (Thing.level == 7, Thing.colour == "green", Thing.colour == 5):
        with pytest.raises(QueryError, match="not one of the values"):
            query.where(wrong).count()


def test_uuids_are_found_by_text_too(session: Session) -> None:
    query = things(session, Thing(id="a", unique=uuid.UUID(int=5)), Thing(id="b"))
    assert ids(query.where(Thing.unique == str(uuid.UUID(int=5)).upper())) == ["a"]
    with pytest.raises(QueryError, match="unique cannot be compared with 'zz'"):
        query.where(Thing.unique == "zz").count()


def test_mixed_unions_compare_by_value_within_one_type(session: Session) -> None:
    values: list[Any] = [9, 10, 10.5, "10", "9", None]
    query = things(session, *(Thing(id=f"{n}", either=value) for n, value in enumerate(values)))
    assert ids(query.where(Thing.either > 9)) == ["1", "2"]
    assert ids(query.where(Thing.either > "1")) == ["3", "4"]
    assert ids(query.where(Thing.either == 10.0)) == ["1"]
    assert ids(query.where(Thing.either == "10")) == ["3"]
    assert ids(query.where(Thing.either != 10)) == ["0", "2", "3", "4"]
    assert ids(query.where(Thing.either.in_([10, "9"]))) == ["1", "4"]
    assert ids(query.where(Thing.either.startswith("1"))) == ["3"]
    assert [one.either for one in query.order_by(Thing.either).collect()] == [None, 9, 10, 10.5, "10", "9"]
    assert query.where(Thing.either < 100).max(Thing.either) == 10.5
    with pytest.raises(QueryError, match="either"):
        query.where(Thing.either == [1]).count()


def test_values_inside_json_keep_their_types(session: Session) -> None:
    values: list[Any] = [
        {"a": 1}, {"a": True}, {"a": "1"}, {"a": [1]}, {"a": {"b": 1}}, {"a": None}, {}, {"a": '{"b":1}'}, {"a": 1.0},
        {"a": 2**70},
    ]  # fmt: skip
    query = things(session, *(Thing(id=f"{n}", extra=value) for n, value in enumerate(values)))
    at = Thing.extra.path("a")
    assert ids(query.where(at == 1)) == ["0", "8"]
    assert ids(query.where(at == "1")) == ["2"]
    assert ids(query.where(at == [1])) == ["3"]
    assert ids(query.where(at == {"b": 1})) == ["4"]
    assert ids(query.where(at == '{"b":1}')) == ["7"]
    assert ids(query.where(at.in_([1, "1", [1]]))) == ["0", "2", "3", "8"]
    assert ids(query.where(at.is_true())) == ["1"]
    assert ids(query.where(at.is_null())) == ["5", "6"]
    assert ids(query.where(at != 1)) == ["1", "2", "3", "4", "7", "9"]
    assert ids(query.where(at > 1)) == ["9"]
    assert ids(query.where(at >= 2**70)) == ["9"]
    assert ids(query.where(at.startswith("1"))) == ["2"]
    assert query.where(Thing.id < "9").sum(at) == 2
    assert query.avg_len(at) == pytest.approx((1 + 1 + 1 + 7) / 4)
    assert ids(query.where(Thing.extra == {"a": 1})) == ["0"]
    assert ids(query.where(Thing.extra == {})) == ["6"]


def test_paths_go_by_key_and_by_position_from_either_end(session: Session) -> None:
    query = things(session, Thing(id="a", items=[1, 2, 3], extra={"a.b": 1, "a": {"b": [{"c": 5}]}, 'q"\\': 2, "é": 3}))
    for found in (Thing.items[0] == 1, Thing.items[-1] == 3, Thing.items.path("2") == 3, Thing.extra["a.b"] == 1,
                  Thing.extra.path("a.b[0].c") == 5, Thing.extra.path("a.b.0.c") == 5, Thing.extra['q"\\'] == 2,
                  Thing.extra["é"] == 3, Thing.extra["a"].any_path("b.c") == 5, Thing.items.any_path() > 2):
        assert query.where(found).count() == 1, found
    assert query.where(Thing.items[-4].is_null()).count() == 1
    with pytest.raises(QueryError, match="no path into it"):
        query.where(Thing.number["a"] == 1).count()
    with pytest.raises(SchemaValidationError, match="empty step"):
        Thing.extra.path("a..b")


@pytest.mark.parametrize("text", ["%", "_", "100%", "a_b", "A", "*", "?", "[a]", "\\", "ä", "\0", "'", '"', ""])
def test_text_is_matched_letter_by_letter(session: Session, text: str) -> None:
    words = ["%", "_", "100%", "1000", "a_b", "axb", "A", "a", "*", "?", "[a]", "\\", "ä", "Ä", "x\0y", "'", '"', "",
             "\U0010ffff"]
    query = things(session, *(Thing(id=f"{n}", extra={"w": word}) for n, word in enumerate(words)))
    session.ensure(Odd(id=f"{n}", key=word) for n, word in enumerate(words))
    session.commit()
    odd = session.query().entities(Odd)
    for field, asked in ((Odd.key, odd), (Thing.extra["w"], query)):
        assert ids(asked.where(field.contains(text))) == _those(words, lambda word: text in word)
        assert ids(asked.where(field.startswith(text))) == _those(words, lambda word: word.startswith(text))
        assert ids(asked.where(field.endswith(text))) == _those(words, lambda word: word.endswith(text))
        assert ids(asked.where(field == text)) == _those(words, lambda word: word == text)


def _those(words: list[str], test: Any) -> list[str]:
    return sorted(str(n) for n, word in enumerate(words) if test(word))


def test_fields_are_compared_with_fields_of_like_types(session: Session) -> None:
    query = things(session, Thing(id="a", number=10, real=9.5, money=Decimal("9.75"), extra={"n": 10, "s": "a"}),
                   Thing(id="b", number=1, real=2.0, money=Decimal("1.0"), extra={"n": "1"}))
    assert ids(query.where(Thing.number > Thing.real)) == ["a"]
    assert ids(query.where(Thing.money < Thing.number)) == ["a"]
    assert ids(query.where(Thing.money == Thing.number)) == ["b"]
    assert ids(query.where(Thing.extra["n"] == Thing.number)) == ["a"]
    assert ids(query.where(Thing.extra["s"] == Thing.id)) == ["a"]
    for wrong in (Thing.moment < Thing.id, Thing.truth == Thing.number, Thing.extra["n"] == Thing.moment):
        with pytest.raises(QueryError):
            query.where(wrong).count()


def test_missing_truth_is_neither(session: Session) -> None:
    query = things(session, Thing(id="t", truth=True), Thing(id="f", truth=False), Thing(id="n"))
    assert ids(query.where(Thing.truth.is_true())) == ["t"]
    assert ids(query.where(Thing.truth.is_false())) == ["f"]
    assert ids(query.where(~Thing.truth.is_true())) == ["f"]
    assert ids(query.where(Thing.truth.is_null())) == ["n"]


@pytest.mark.parametrize("value", [None, True, False])
@pytest.mark.parametrize("op", ["__eq__", "__ne__", "__lt__", "__ge__"])
def test_nothing_is_compared_with_none_or_truth(value: Any, op: str) -> None:
    for field in (Thing.truth, Thing.either, Thing.extra["a"], left(Link).number, count()):
        with pytest.raises(TypeError, match="cannot compare"):
            getattr(field, op)(value)
    with pytest.raises(TypeError):
        Thing.word.in_([None])


def test_groups_can_only_be_asked_for_what_they_have(session: Session) -> None:
    query = things(session, Thing(id="a", number=1), Thing(id="b", number=2), Thing(id="c", level=Level.HIGH))
    grouped = query.group_by(Thing.level)
    assert grouped.having(Thing.level == Level.HIGH).agg() == [{"level": Level.HIGH, "count": 1}]
    assert grouped.having(count_where(Thing.number > 0) == 2).agg(low=min_(Thing.number)) == [
        {"level": Level.LOW, "low": 1}]  # fmt: skip
    for wrong in (lambda: grouped.having(Thing.number == 1), lambda: grouped.having("x"),
                  lambda: grouped.agg(level=count()), lambda: grouped.having(count() > "x").agg(),
                  lambda: grouped.agg(n="x"), lambda: query.avg_len(Thing.number), lambda: query.max(Thing.items),
                  lambda: query.limit(1).group_by(Thing.level).agg()):
        with pytest.raises(QueryError):
            wrong()


def test_ends_and_own_fields_mix_in_every_form(session: Session) -> None:
    session.ensure([Thing(id="a", number=1), Thing(id="b", number=2), Odd(id="x", old=10), Odd(id="y", old=20)])
    session.ensure([Link(left_key="a", right_key="x", n=1), Link(left_key="b", right_key="y", n=2),
                    Link(left_key="b", right_key="gone", n=3)])
    session.commit()
    session.ensure([Thing(id="a", number=5), Odd(id="x", old=11)])
    session.commit()
    query = session.query().relations(Link)
    either = query.where((left(Link).number == 1) | (Link.n == 3))
    assert either.count() == 1
    assert either.as_of(1).count() == 2
    assert sorted(one.n for one in either.as_of(1).collect()) == [1, 3]
    assert query.where(~(right(Link).old == 10)).count() == 2
    assert query.as_of(1).group_by(right(Link).old).agg(n=sum_(Link.n)) == [
        {"old": None, "n": 3}, {"old": 10, "n": 1}, {"old": 20, "n": 2}]  # fmt: skip
    assert query.group_by(left(Link).id, right(Link).id).agg()[0] == {"left.id": "a", "right.id": "x", "count": 1}
    assert query.sum(right(Link).old) == 31
    assert query.as_of(1).max(left(Link).number) == 2
    assert [one.n for one in query.order_by(right(Link).old.desc(), Link.n).collect()] == [2, 1, 3]
    assert [one.n for one in query.order_by(Link.n).offset(1).collect()] == [2, 3]
    with pytest.raises(QueryError, match="no field 'nope'"):
        _ = left(Link).nope
    with pytest.raises(QueryError, match="not Link"):
        session.query().entities(Thing).where(Link.n == 1).count()


@pytest.mark.parametrize("bound", [lambda q, at: q.as_of(at), lambda q, at: q.history_since(at),
                                   lambda q, at: q.as_of(at).with_history()])  # fmt: skip
def test_a_commit_beyond_the_head_is_refused_in_every_form(session: Session, bound: Any) -> None:
    session.ensure([Thing(id="a", number=1), Odd(id="x", old=10), Link(left_key="a", right_key="x", n=1)])
    session.commit()
    start = session.query()
    forms: list[Any] = [
        lambda at: bound(start.entities(Thing), at).collect(), lambda at: bound(start.entities(Thing), at).first(),
        lambda at: bound(start.entities(Thing).where(Thing.id == "a"), at).first(),
        lambda at: bound(start.relations(Link), at).collect(), lambda at: bound(start.entities(Thing), at).to_arrow(),
        lambda at: bound(start.relations(Link), at).where(left(Link).number == 1).to_arrow(),
        lambda at: bound(start.entities(Thing), at).via(Link).collect(),
        lambda at: bound(start.entities(Thing), at).via(Link).count(),
        lambda at: bound(start.entities(Thing), at).count(), lambda at: bound(start.relations(Link), at).sum(Link.n),
        lambda at: bound(start.entities(Thing), at).count_where(Thing.number > 0),
        lambda at: bound(start.entities(Thing), at).group_by(Thing.level).agg(),
    ]  # fmt: skip
    for form in forms:
        form(1)
        with pytest.raises(UnknownCommitError, match="there is no commit 2: the newest is 1") as told:
            form(2)
        assert (told.value.commit_id, told.value.head) == (2, 1)
        text = () if session.repository.keeps_branches else ("1",)  # a reference, where there are any
        for wrong in (-1, 1.0, True, None, *text):
            with pytest.raises(QueryError, match="takes a number from 0 on"):
                form(wrong)


def test_a_new_store_has_no_commit_but_its_beginning(session: Session) -> None:
    assert session.query().entities(Thing).as_of(0).collect() == []
    with pytest.raises(UnknownCommitError, match="nothing has been committed yet"):
        session.query().entities(Thing).as_of(1).count()
