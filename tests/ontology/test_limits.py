"""Large and odd questions and values: answered, or refused by an error of ours that names the field."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from marking import slow_after

from ontolake.errors import Invalid, OntolakeError
from ontolake.model import Entity, Field, Relation, SchemaValidationError
from ontolake.ontology import MigrationError, QueryError, Session, count
from ontolake.ontology.query.compiler import conditions
from ontolake.ontology.repository.objects.read import datafusion


class Thing(Entity):
    id: Field[str] = Field(primary_key=True)
    n: Field[int] = Field(default=0)
    f: Field[float | None] = Field(default=None)
    d: Field[Decimal] = Field(default=Decimal(0))
    day: Field[date] = Field(default=date(2024, 1, 1))
    at: Field[datetime] = Field(default=datetime(2024, 1, 1, tzinfo=UTC))
    raw: Field[bytes] = Field(default=b"")
    flag: Field[bool] = Field(default=False)
    extra: Field[dict[str, Any]] = Field(default_factory=dict)


class Number(Entity):
    id: Field[int] = Field(primary_key=True)


class Has(Relation[Thing, Number]):
    note: Field[str] = Field(default="")


_numbers = itertools.count()
PLACES = ["native v2", "objects v2", "native v1", "objects v1"]


@pytest.fixture(params=slow_after(2, PLACES))
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    kind, engine = str(request.param).split()
    url = f"{tmp_path}/limits.db" if kind == "native" else f"memory://limits-{next(_numbers)}"
    opened = Session(url, entity_types=[Thing, Number], relation_types=[Has], engine_version=engine)
    yield opened
    opened.close()


def things(count: int) -> list[Thing]:
    return [Thing(id=f"k{n}", n=n, f=None if n % 7 == 0 else n / 2, d=Decimal(n) / 4, day=date(2024, 1, 1 + n % 28),
                  at=datetime(2024, 1, 1, n % 24, tzinfo=UTC), raw=bytes([n % 256]), flag=n % 2 == 0,
                  extra={"a": n, "t": f"t{n}", "l": [n, -n]}) for n in range(count)]  # fmt: skip


def keys(found: Any) -> set[str]:
    return {one.id for one in found.collect()}


IN: list[tuple[Any, Callable[[Thing], Any], list[Any]]] = [
    (Thing.id, lambda one: one.id, ["k1", "k3", "no", "k\0"]),
    (Thing.n, lambda one: one.n, [1, 2, 2.0, 3.5, 10**30, -(2**63)]),
    (Thing.f, lambda one: one.f, [0.5, 1, -0.0, 0.0, float("inf"), 10**300]),
    (Thing.d, lambda one: one.d, [Decimal("0.250"), Decimal("1.0"), 2]),
    (Thing.day, lambda one: one.day, [date(2024, 1, 2), date(1999, 1, 1)]),
    (Thing.at, lambda one: one.at, [datetime(2024, 1, 1, 3, tzinfo=UTC), datetime(2000, 1, 1, tzinfo=UTC)]),
    (Thing.raw, lambda one: one.raw, [b"\x01", b"", b"\xff"]),
    (Thing.extra["a"], lambda one: one.extra["a"], [1, 2.0, "3", "t4"]),
    (Thing.extra["t"], lambda one: one.extra["t"], ["t1", 2, "t\0"]),
]


@pytest.mark.parametrize("listed", slow_after(1, [1, 250]))
@pytest.mark.parametrize("rows", [30, pytest.param(2_500, marks=pytest.mark.slow)])
def test_lists_of_values_mean_the_same_however_long_they_are(
    session: Session, monkeypatch: pytest.MonkeyPatch, listed: int, rows: int
) -> None:  # fmt: skip
    for module in (conditions, datafusion):
        monkeypatch.setattr(module, "LISTED", listed)
    every = things(rows)
    session.ensure(every)
    session.commit()
    query = session.query().entities(Thing)
    for field, value, wanted in IN:
        expected = {one.id for one in every if value(one) is not None and value(one) in wanted}
        other = {one.id for one in every if value(one) is not None and value(one) not in wanted}
        assert keys(query.where(field.in_(wanted))) == expected, field
        assert keys(query.where(~field.in_(wanted))) == other, field
        assert keys(query.where(reduce(operator.or_, [field == one for one in wanted]))) == expected, field
        assert keys(query.where(reduce(operator.and_, [field != one for one in wanted]))) == other, field
        assert query.where(Thing.n >= 5, field.in_(wanted)).count() == len(
            [one for one in every if one.id in expected and one.n >= 5])
        assert query.count_where(field.in_(wanted)) == len(expected)


@pytest.mark.slow
def test_lists_of_seventy_thousand_values_are_looked_up(session: Session) -> None:
    """More than SQLite takes as parameters, and than two bytes can number."""
    session.ensure(things(300))
    session.ensure(Number(id=n) for n in range(300))
    session.ensure(Has(left_key=f"k{n}", right_key=n) for n in range(300))
    session.commit()
    query = session.query().entities(Thing)
    wanted = range(1, 70_000)
    assert query.where(Thing.id.in_(f"k{n}" for n in wanted)).count() == 299
    assert query.where(~Thing.n.in_(wanted)).count() == 1
    assert query.where(Thing.extra["a"].in_(wanted)).count() == 299
    assert session.query().entities(Number).where(Number.id.in_(wanted)).count() == 299
    assert session.query().relations(Has).where(Has.right_key.in_(wanted)).count() == 299
    assert len(query.where(Thing.n.in_(wanted)).via(Has).collect()) == 299
    assert len(query.group_by(Thing.n).having(Thing.n.in_(wanted)).agg()) == 299


@pytest.mark.slow
def test_thousands_of_conditions_side_by_side_are_one_level(session: Session) -> None:
    wide = session.repository.backend == "s3" and session.repository.engine_version == "v2"
    rows = 2_100 if wide else 60  # many rows go through DataFusion
    session.ensure(things(rows))
    session.commit()
    query = session.query().entities(Thing)
    same = [Thing.n == n for n in range(10, 1_010)]
    mixed = [(Thing.n == n) if n % 2 else (Thing.f == n / 2) for n in range(10, 1_010) if n % 7]
    unlike = [Thing.n != n for n in range(10, 1_010)]
    inside = {n for n in range(rows) if 10 <= n < 1_010}
    assert query.where(reduce(operator.or_, same)).count() == len(inside)
    assert keys(query.where(~reduce(operator.or_, same))) == {f"k{n}" for n in range(rows) if n not in inside}
    assert keys(query.where(reduce(operator.or_, mixed))) == {f"k{n}" for n in inside if n % 7}
    assert query.where(reduce(operator.and_, unlike)).count() == query.where(*unlike).count() == rows - len(inside)
    assert query.where(reduce(lambda found, _: ~found, range(1_001), Thing.n == 3)).count() == rows - 1


@pytest.mark.parametrize("deep", [90, 2_000])
def test_conditions_nested_in_each_other_are_answered_or_refused(session: Session, deep: int) -> None:
    session.ensure(things(30))
    session.commit()

    def nested() -> Any:
        found: Any = Thing.n == 0
        for n in range(1, deep // 2):
            found = (found | (Thing.n == n)) & (Thing.f.is_null() | (Thing.n >= 0))
        return found

    if deep > 100:
        with pytest.raises(SchemaValidationError, match="levels deep"):
            nested()
    else:
        assert session.query().entities(Thing).where(nested()).count() == 30
        assert session.query().entities(Thing).where(~nested()).count() == 0


def _commit(session: Session, objects: list[Any]) -> None:
    session.ensure(objects)
    session.commit()


HALF = "a\ud800"
ASKED: list[Callable[[], Any]] = [
    lambda: Thing.id == HALF, lambda: Thing.id != HALF, lambda: Thing.id > HALF, lambda: Thing.id.in_(["a", HALF]),
    lambda: Thing.id.startswith(HALF), lambda: Thing.id.endswith(HALF), lambda: Thing.id.contains(HALF),
]  # fmt: skip
INSIDE: list[Callable[[], Any]] = [
    lambda: Thing.extra["t"] == HALF, lambda: Thing.extra[HALF] == "t", lambda: Thing.extra.path(f"a.{HALF}") == "t",
    lambda: Thing.extra.any_path(HALF) == "t", lambda: Thing.extra["t"].in_([HALF]),
]  # fmt: skip


def test_text_that_is_not_unicode_is_refused_in_questions_by_the_field() -> None:
    for ask in ASKED:
        with pytest.raises(SchemaValidationError, match=r"Thing\.id: .* is not Unicode"):
            ask()
    for ask in INSIDE:
        with pytest.raises(SchemaValidationError, match=r"Thing\.extra: .* is not Unicode"):
            ask()


def test_text_that_is_not_unicode_is_refused_wherever_it_stands(session: Session) -> None:
    session.ensure([Thing(id="k"), Number(id=1)])
    assert session.commit() == 1
    with pytest.raises(QueryError, match="Unicode"):
        session.query().entities(Thing).where(Thing.extra["l"] == [HALF]).count()
    wrong: list[tuple[Any, str]] = [
        (Thing(id=HALF), "Thing.*id"), (Thing(id="x", extra={"a": HALF}), "Thing.*extra"),
        (Thing(id="x", extra={"a": [{HALF: 1}]}), "Thing.*extra"), (Has(left_key=HALF, right_key=1), "Has.*left_key"),
        (Has(left_key="k", right_key=1, note=HALF), "Has.*note"),
    ]  # fmt: skip
    for obj, where in wrong:
        for others in (0, 20):
            with pytest.raises(SchemaValidationError, match=f"{where}.*not Unicode"):
                _commit(session, [obj, *(Thing(id=f"o{n}") for n in range(others))])
            session.discard()
    session.ensure(Thing(id="x", extra={"a": "\ufffd", "\ufffd": 1}))
    for metadata in ({"a": HALF}, {HALF: 1}, {"a": object()}):
        with pytest.raises(Invalid, match="metadata"):
            session.commit(metadata=metadata)
    assert session.commit() == 2
    found = session.query().entities(Thing).where(Thing.extra["\ufffd"] == 1).first()
    assert found is not None
    assert found.extra == {"a": "\ufffd", "\ufffd": 1}


def test_an_upgrader_that_returns_text_that_is_not_unicode_fails(session: Session) -> None:
    session.ensure(Number(id=1))
    session.commit()

    class Changed(Entity):
        id: Field[int] = Field(primary_key=True)
        name: Field[str]

    Changed.__name__ = "Number"
    later = Session(session.repository.uri, entity_types=[Changed])
    with pytest.raises(MigrationError, match=r"name.*not Unicode"):
        later.migrate(dry_run=False, force=True, upgraders={("Number", 1): lambda row: {**row, "name": HALF}})
    assert len(later.list_commits()) == 1
    later.close()


def test_numbers_beyond_every_column_are_compared_all_the_same(session: Session) -> None:
    session.ensure(things(30))
    session.ensure(Number(id=n) for n in range(30))
    session.commit()
    query, numbers = session.query().entities(Thing), session.query().entities(Number)
    for far in (10**30, 2**63, float("inf"), 10**400):
        assert query.where(Thing.n < far).count() == 30
        assert query.where(Thing.n > far).count() == query.where(Thing.n == far).count() == 0
        assert query.where(Thing.extra["a"] < far).count() == 30
        assert numbers.where(Number.id == far).count() == 0
        assert numbers.where(Number.id == far).first() is None
        assert numbers.where(Number.id.in_([far, -far, 1, 2.0])).count() == 2
    assert numbers.where(Number.id.in_([float("nan"), 1])).count() == 1
    assert numbers.where(Number.id == float("nan")).collect() == []
    for far in (2**63 - 1, 2**62):
        assert query.offset(far).collect() == query.order_by(Thing.n).offset(far).limit(far).collect() == []
        assert len(query.limit(far).collect()) == 30
    for wrong in (2**63, -1):
        with pytest.raises(QueryError):
            query.offset(wrong)


def test_long_texts_and_nuls_are_found(session: Session) -> None:
    long = "x" * 1_000_000
    session.ensure([Thing(id="a\0b", extra={"t": "a\0b"}), Thing(id=long, extra={"t": long}), Thing(id="a")])
    session.commit()
    query = session.query().entities(Thing)
    for asked in (Thing.id == "a\0b", Thing.id.contains("\0"), Thing.id.startswith("a\0"), Thing.id.endswith("\0b")):
        assert keys(query.where(asked)) == {"a\0b"}
    assert keys(query.where(Thing.extra["t"] == "a\0b")) == {"a\0b"}
    for asked in (Thing.id == long, Thing.id.startswith(long), Thing.extra["t"] == long):
        assert keys(query.where(asked)) == {long}
    with pytest.raises(QueryError, match="NUL"):
        query.where(Thing.extra["a\0b"] == 1).count()


@pytest.mark.slow
def test_what_is_too_much_for_a_statement_is_refused(session: Session) -> None:
    session.ensure(things(3))
    session.commit()
    query = session.query().entities(Thing)
    too_much: list[Callable[[], Any]] = [
        lambda: query.order_by(*[Thing.n] * 3_000).collect(),
        lambda: query.group_by(Thing.n).agg(**{f"c{n}": count() for n in range(3_000)}),
        lambda: query.where(*[Thing.n != n for n in range(40_000)]).count(),
    ]
    for ask in too_much:
        with pytest.raises(QueryError, match="too large"):
            ask()
    assert query.count() == 3
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(OntolakeError):
        _commit(session, [Thing(id="deep", extra=deep)])
