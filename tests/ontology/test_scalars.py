"""Scalars beyond the first ones, `time`, `timedelta` and one that only its own module knows, do all that others do."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from money import Money, MoneyScalar

from ontolake.cli import main
from ontolake.model import Entity, Field, Relation, SchemaValidationError, scalars, schema_hash, schema_of
from ontolake.model.restoration import restore
from ontolake.model.scalars import Scalar
from ontolake.model.scalars.times import duration_text
from ontolake.model.source import python_source
from ontolake.ontology import QueryError, Session, avg, max_, min_, sum_

pytestmark = pytest.mark.slow


def version(number: int) -> Any:
    class Shift(Entity):
        id: Field[int] = Field(primary_key=True)
        pay: Field[Money]
        bonus: Field[Money | None] = Field(default=None)
        starts: Field[time | None] = Field(default=None)
        lasts: Field[timedelta] = Field(default=timedelta(hours=8))
        pauses: Field[list[timedelta]] = Field(default_factory=list)
        if number > 1:
            extra: Field[Money] = Field(default=Money(500), index=True)
            ends: Field[time] = Field(default=time(17))
            rest: Field[timedelta | None] = Field(default=None)

    return Shift


Shift = version(1)


class Price(Entity):
    amount: Field[Money] = Field(primary_key=True)
    label: Field[str] = Field(default="")


class Costs(Relation[Shift, Price]):
    since: Field[time]


ENGINES = [("sqlite", "v2"), ("objects", "v2"), ("sqlite", "v1"), ("objects", "v1")]


@pytest.fixture(params=ENGINES, ids="/".join)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    kind, engine = request.param
    return (f"{tmp_path}/store.db" if kind == "sqlite" else f"file://{tmp_path}/lake"), engine


def opened(store: tuple[str, str], *types: Any) -> Session:
    return Session(store[0], entity_types=types or [Shift, Price], relation_types=() if types else [Costs],
                   engine_version=store[1])


def shifts(count: int = 30) -> list[Any]:
    return [Shift(id=n, pay=Money((n * 37) % 11 * 150 - 300), bonus=Money(n * 5) if n % 4 else None,
                  starts=time(n % 24, n, n, n * 1001) if n % 5 else None,
                  lasts=timedelta(days=n % 3 - 1, microseconds=n * 7919), pauses=[timedelta(minutes=n)])
            for n in range(count)]


def ids(found: Any) -> list[int]:
    return [one.id for one in found]


def test_values_come_back_and_are_no_change_when_declared_again(store: tuple[str, str]) -> None:
    given = shifts()
    with opened(store) as session:
        session.ensure(given)
        session.ensure([Price(amount=Money(250)), Price(amount=Money(-1), label="odd"),
                        Costs(left_key=1, right_key=Money(250), since=time(8, 30))])
    with opened(store) as session:
        query = session.query().entities(Shift)
        assert query.order_by(Shift.id).collect() == given
        assert query.as_of(1).where(Shift.id == 7).first() == given[7]
        assert session.query().entities(Price).where(Price.amount == Money(-1)).first() == Price(
            amount=Money(-1), label="odd")
        [cost] = session.query().relations(Costs).collect()
        assert (cost.left_key, cost.right_key, cost.since) == (1, Money(250), time(8, 30))
        session.ensure(given)
        assert session.commit() is None
        session.ensure(Shift(id=7, pay=Money(1), lasts=timedelta(microseconds=-1)))
        assert session.commit() is not None
        assert query.where(Shift.id == 7).first() == Shift(id=7, pay=Money(1), lasts=timedelta(microseconds=-1))


CONDITIONS: list[tuple[Any, Callable[[Any], bool]]] = [
    (Shift.pay == Money(300), lambda one: one.pay == Money(300)),
    (Shift.pay != Money(300), lambda one: one.pay != Money(300)),
    (Shift.pay < Money(0), lambda one: one.pay < Money(0)),
    (Shift.pay.in_([Money(-300), Money(150)]), lambda one: one.pay.cents in (-300, 150)),
    (Shift.pay.in_([Money(n) for n in range(300)]), lambda one: 0 <= one.pay.cents < 300),
    (Shift.pay > Shift.bonus, lambda one: one.bonus is not None and one.pay > one.bonus),
    (Shift.bonus.is_null(), lambda one: one.bonus is None),
    (Shift.starts >= time(12), lambda one: one.starts is not None and one.starts >= time(12)),
    (Shift.starts == time(7, 7, 7, 7007), lambda one: one.starts == time(7, 7, 7, 7007)),
    (Shift.starts.is_not_null(), lambda one: one.starts is not None),
    (Shift.lasts <= timedelta(0), lambda one: one.lasts <= timedelta(0)),
    (Shift.lasts > timedelta(hours=1, microseconds=3), lambda one: one.lasts > timedelta(hours=1, microseconds=3)),
    ((Shift.lasts < timedelta(0)) & ~(Shift.pay > Money(500)),
     lambda one: one.lasts < timedelta(0) and not one.pay > Money(500)),
]  # fmt: skip


def test_filters_order_and_aggregates_answer_as_python_does(store: tuple[str, str]) -> None:
    given = shifts()
    with opened(store) as session:
        session.ensure(given)
        session.commit()
        query = session.query().entities(Shift)
        for condition, holds in CONDITIONS:
            assert sorted(ids(query.where(condition).collect())) == ids(filter(holds, given)), condition
        for field in ("pay", "lasts"):
            ordered = sorted(given, key=lambda one, field=field: (getattr(one, field), one.id))
            assert ids(query.order_by(getattr(Shift, field), Shift.id).collect()) == ids(ordered)
            values = [getattr(one, field) for one in given]
            column = getattr(Shift, field)
            assert (query.min(column), query.max(column)) == (min(values), max(values))
        timed = [one for one in given if one.starts is not None]
        wanted = sorted(timed, key=lambda one: one.starts, reverse=True)
        assert ids(query.where(Shift.starts.is_not_null()).order_by(Shift.starts.desc()).collect()) == ids(wanted)
        assert query.max(Shift.starts) == max(one.starts for one in timed)
        assert query.sum(Shift.pay) == Money(sum(one.pay.cents for one in given))
        assert query.avg(Shift.bonus) == Money(round(sum(n * 5 for n in range(30) if n % 4) / 22))
        assert query.sum(Shift.lasts) == sum((one.lasts for one in given), timedelta())
        assert query.avg(Shift.lasts) == sum((one.lasts for one in given), timedelta()) / 30
        groups = query.group_by(Shift.pay).having(sum_(Shift.lasts) > timedelta(hours=1)).agg(
            total=sum_(Shift.bonus), most=max_(Shift.starts), least=min_(Shift.lasts), mean=avg(Shift.lasts))
        assert {row["pay"]: row["total"] for row in groups} == {
            pay: Money(sum(one.bonus.cents for one in given if one.pay == pay and one.bonus))
            for pay in {one.pay for one in given}
            if sum((one.lasts for one in given if one.pay == pay), timedelta()) > timedelta(hours=1)}
        with pytest.raises(QueryError, match="there is no sum"):
            query.sum(Shift.starts)
        with pytest.raises(QueryError, match="cannot be compared"):
            query.where(Shift.pay == 3).collect()
        with pytest.raises(SchemaValidationError, match="no zone"):
            session.ensure(Shift(id=99, pay=Money(1), starts=time(1, tzinfo=UTC)))


class Log(Entity):
    id: Field[int] = Field(primary_key=True)
    gaps: Field[list[timedelta]] = Field(default_factory=list)
    calls: Field[list[time]] = Field(default_factory=list)
    sums: Field[list[Decimal]] = Field(default_factory=list)
    paid: Field[list[Money]] = Field(default_factory=list)
    either: Field[timedelta | int | None] = Field(default=None)


def test_values_inside_json_are_equal_as_in_python_and_have_an_order_only_if_their_text_has(
    store: tuple[str, str]
) -> None:  # fmt: skip
    gaps = [timedelta(0), timedelta(days=400, hours=3), timedelta(microseconds=-1), timedelta(seconds=9), timedelta(
        seconds=10)]
    calls = [time(0), time(8, 30), time(8, 30, 0, 500_000), time(8, 30, 1), time.max]
    given = [Log(id=n, gaps=[gap], calls=[calls[n]], sums=[Decimal(n + 8)], paid=[Money(n)], either=gap)
             for n, gap in enumerate(gaps)]
    with opened(store, Log) as session:
        session.ensure(given)
        session.commit()
        query = session.query().entities(Log)
        assert query.order_by(Log.id).collect() == given
        for one in given:
            for condition in (Log.gaps[0] == one.gaps[0], Log.gaps.any_path() == one.gaps[0], Log.either == one.either,
                              Log.calls[0] == one.calls[0], Log.sums[0] == one.sums[0], Log.paid[0] == one.paid[0],
                              Log.paid.any_path().in_([one.paid[0]])):  # fmt: skip
                assert ids(query.where(condition).collect()) == [one.id], condition
            assert sorted(ids(query.where(Log.calls[0] < one.calls[0]).collect())) == list(range(one.id))
            for condition in (Log.gaps[0] < one.gaps[0], Log.either >= one.either, Log.sums[0] > one.sums[0],
                              Log.paid.any_path() <= one.paid[0]):  # fmt: skip
                with pytest.raises(QueryError, match="is text inside JSON, which sorts otherwise"):
                    query.where(condition).collect()
        with pytest.raises(QueryError, match="a value inside JSON cannot be compared with"):
            query.where(Log.gaps[0] == object()).collect()


def test_arrow_goes_out_and_comes_in(store: tuple[str, str]) -> None:
    given = shifts()
    with opened(store, Shift) as session:
        session.ensure(given)
        session.commit()
        table = session.query().entities(Shift).to_arrow()
        assert [table.schema.field(name).type for name in ("pay", "starts", "lasts")] == [
            pa.decimal128(18, 2), pa.time64("us"), pa.duration("us")]
        plain = {row["id"]: row for row in table.to_pylist()}
        for one in given:
            row = plain[one.id]
            assert (row["pay"], row["starts"], row["lasts"]) == (Decimal(str(one.pay)), one.starts, one.lasts)
        later = table.drop_columns(["commit_id", "pauses"]).slice(3, 4)
        bare = pa.table({"id": [50, 51], "pay": pa.array(["1.50", "2"]), "lasts": pa.array([1, None], pa.duration("s"))
                         .fill_null(timedelta(seconds=2)), "starts": pa.array([time(1), None])})  # fmt: skip
        session.ensure_arrow(Shift, later.set_column(0, "id", pa.array([60, 61, 62, 63])))
        session.ensure_arrow(Shift, bare)
        session.commit()
        query = session.query().entities(Shift)
        assert query.where(Shift.id == 60).first().lasts == given[later.column("id")[0].as_py()].lasts
        first = query.where(Shift.id == 50).first()
        assert (first.pay, first.lasts, first.starts) == (Money(150), timedelta(seconds=1), time(1))
        with pytest.raises(SchemaValidationError, match="parts of a cent"):
            session.ensure_arrow(Shift, pa.table({"id": [1], "pay": ["0.001"]}))


def test_times_and_durations_from_arrow_are_those_of_objects_or_refused(store: tuple[str, str]) -> None:
    with opened(store, Shift) as session:
        session.ensure(Shift(id=1, pay=Money(0), starts=time(8), lasts=timedelta(seconds=3)))
        session.commit()
        for kind, lasting in ((pa.time64("us"), "us"), (pa.time64("ns"), "ns"), (pa.time32("s"), "s")):
            session.ensure_arrow(Shift, pa.table({
                "id": [1], "pay": ["0"], "bonus": pa.nulls(1), "pauses": ["[]"], "starts": pa.array([time(8)], kind),
                "lasts": pa.array([timedelta(seconds=3)], pa.duration(lasting))}))  # fmt: skip
            assert session.commit() is None
        for column, values, kind, reason in [
            ("starts", [None, 86_400_000_000], pa.time64("us"), "row 1: the time of day is not within a day"),
            ("starts", [None, -1], pa.time32("s"), "row 1: the time of day is not within a day"),
            ("starts", [0, 1], pa.time64("ns"), "row 1: the time has nanoseconds"),
            ("lasts", [1000, 1], pa.duration("ns"), "row 1: the duration has nanoseconds"),
        ]:  # fmt: skip
            given = pa.array(values, pa.int32() if kind == pa.time32("s") else pa.int64()).cast(kind)
            with pytest.raises(SchemaValidationError, match=reason):
                session.ensure_arrow(Shift, pa.table({"id": [5, 6], "pay": ["0", "0"], column: given}))


def test_migrations_fill_convert_and_keep(store: tuple[str, str]) -> None:
    given = shifts(8)
    with opened(store, Shift) as session:
        session.ensure(given)
    Later = version(2)
    with opened(store, Later) as session:
        session.migrate(dry_run=False, force=True)
        found = session.query().entities(Later).order_by(Later.id).collect()
        assert [(one.pay, one.bonus, one.starts, one.lasts) for one in found] == [
            (one.pay, one.bonus, one.starts, one.lasts) for one in given]
        assert {(one.extra, one.ends, one.rest) for one in found} == {(Money(500), time(17), None)}
        assert session.query().entities(Later).where(Later.extra == Money(500)).count() == 8


def measured(number: int) -> Any:
    class Reading(Entity):
        id: Field[int] = Field(primary_key=True)
        value: Field[float | None]
        if number > 1:
            note: Field[str] = Field(default="")

    return Reading


def test_what_is_no_number_stays_so_in_rows_of_an_older_schema(store: tuple[str, str]) -> None:
    First, Second = measured(1), measured(2)
    with opened(store, First) as session:
        session.ensure([First(id=1, value=math.nan), First(id=2, value=math.inf), First(id=3, value=None)])
    with opened(store, Second) as session:
        session.migrate(dry_run=False, force=True)
    with opened(store, Second) as session:
        for query in (session.query().entities(Second), session.query().entities(Second).with_history()):
            found = {(one.id, str(one.value)) for one in query.collect()}
            assert found == {(1, "nan"), (2, "inf"), (3, "None")}


def test_exports_imports_conversions_and_checks_agree(
    store: tuple[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        capfd.readouterr()
        code = main(arguments)
        out, err = capfd.readouterr()
        assert code == 0, err
        return str(out)

    with opened(store, Shift) as session:
        session.ensure(shifts(12))
    exported = tmp_path / "out.jsonl"
    run("export", store[0], "-o", str(exported))
    rows = [json.loads(line)["fields"] for line in exported.read_text().splitlines()[1:]]
    assert rows[4] == {"id": 4, "pay": "4.50", "bonus": None, "starts": "04:04:04.004004", "lasts": "PT0.031676S",
                       "pauses": ["PT4M"]}  # fmt: skip
    assert rows[3]["lasts"] == "-PT23H59M59.976243S"
    other = f"{tmp_path}/copy.db" if store[0].startswith("file:") else f"file://{tmp_path}/copy"
    with Session(other, entity_types=[Shift]) as session:
        session.ensure(Shift(id=100, pay=Money(9)))
    run("import", str(exported), "--storage-uri", other)
    with Session(other, entity_types=[Shift]) as session:
        assert session.query().entities(Shift).where(Shift.id < 100).order_by(Shift.id).collect() == shifts(12)
    converted = f"{tmp_path}/third.db" if store[0].startswith("file:") else f"file://{tmp_path}/third"
    run("convert", store[0], converted)
    for url in (store[0], other, converted):
        run("verify", url)
        found = json.loads(run("query", "entities", "Shift", "--storage-uri", url, "--where", "pay>=3.00", "--where",
                               "lasts<PT1H", "--where", "starts>03:00", "--order-by", "id", "--json"))  # fmt: skip
        assert [row["key"] for row in found["rows"]] == [
            one.id for one in shifts(12) if one.pay >= Money(300) and one.lasts < timedelta(hours=1)
            and one.starts is not None and one.starts > time(3)]  # fmt: skip
    written = tmp_path / "parquet"
    run("export", store[0], "-o", str(written), "--format", "parquet")


def test_schemas_are_restored_and_written_as_source() -> None:
    schemas = [schema_of(Shift), schema_of(Price)]
    assert schemas[0]["fields"]["pay"] == {"kind": "primitive", "name": "Money"}
    for cls, schema in zip(restore(schemas).values(), sorted(schemas, key=lambda one: one["name"]), strict=True):
        assert schema_hash(schema_of(cls)) == schema_hash(schema)
    scope: dict[str, Any] = {"__name__": "written"}
    exec(python_source(schemas, "shifts"), scope)
    assert [schema_of(scope[name]) for name in ("Shift", "Price")] == schemas


def test_durations_in_iso_8601() -> None:
    from pydantic import TypeAdapter

    for value in (timedelta(0), timedelta(days=-1), timedelta(days=400, hours=3), timedelta(microseconds=-1),
                  timedelta(hours=23, minutes=59, seconds=59, microseconds=999_990)):  # fmt: skip
        text = duration_text(value // timedelta(microseconds=1))
        assert TypeAdapter(timedelta).validate_python(text) == value


CELL = """
from ontolake.model import Entity, Field
from ontolake.model.scalars import Codec, Scalar, register
from pydantic_core import core_schema

class Grade(str):
    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        return core_schema.no_info_plain_validator_function(cls)

class GradeScalar(Scalar):
    name, python = "Grade", Grade
    codec = Codec(str, Grade, frozenset({Grade}))

register(GradeScalar())

class Exam(Entity):
    id: Field[int] = Field(primary_key=True)
    grade: Field[Grade]
"""


def test_a_scalar_that_is_defined_anew_takes_the_place_of_the_one_before(store: tuple[str, str]) -> None:
    def run() -> tuple[Any, Any]:
        cell: dict[str, Any] = {"__name__": "a notebook"}
        exec(CELL, cell)
        return cell["Exam"], cell["Grade"]

    Exam, Grade = run()
    with opened(store, Exam) as session:
        session.ensure([Exam(id=1, grade=Grade("A")), Exam(id=2, grade=Grade("C"))])
    Again, NewGrade = run()
    assert scalars.get("Grade").python is NewGrade
    for exam, grade in ((Again, NewGrade), (Exam, Grade)):
        with opened(store, exam) as session:
            [found] = session.query().entities(exam).where(exam.grade > grade("B")).collect()
            assert (found.id, type(found.grade)) == (2, grade)
            session.ensure(exam(id=1, grade=grade("A")))
            assert session.commit() is None


def test_what_cannot_be_registered_is_refused() -> None:
    def scalar(**more: Any) -> Scalar:
        made: Any = type("Own", (MoneyScalar,), {"name": "Own", "python": type("Own", (), {}), **more})
        return made()  # type: ignore[no-any-return]

    for more, message in [
        ({"name": "Money"}, "cannot be called 'Money'"), ({"name": "json"}, "cannot be called"),
        ({"name": "two words"}, "cannot be called"), ({"python": Money}, "is the scalar Money already"),
        ({"sqlite": "REAL"}, "cannot be a key"),
        ({"compare": staticmethod(lambda one, two: 0)}, "an order of its own"),
    ]:  # fmt: skip
        with pytest.raises(SchemaValidationError, match=message):
            scalars.register(scalar(**more))
    assert scalars.register(scalars.get("Money")) is scalars.get("Money")
    assert scalars.register(MoneyScalar()) is scalars.get("Money")
    assert pickle.loads(pickle.dumps(scalars.get("Money"))) is scalars.get("Money")


PROGRAM = """
import sys
from ontolake.ontology import TypedStore
from ontolake.model.errors import SchemaValidationError
try:
    with TypedStore(sys.argv[1]) as store:
        print([info.name for info in store.types])
except SchemaValidationError as error:
    print(error)
"""


def test_a_process_without_the_scalar_says_so_or_finds_it_by_an_entry_point(tmp_path: Path) -> None:
    url = f"{tmp_path}/store.db"
    with Session(url, entity_types=[Price]) as session:
        session.ensure(Price(amount=Money(1)))

    def run(*path: Path) -> str:
        code = f"import sys; sys.path += {[str(one) for one in path]!r}\n" + PROGRAM
        done = subprocess.run([sys.executable, "-c", code, url], capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    assert "the scalar 'Money' is not registered" in run()
    installed = tmp_path / "money-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: money\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[ontolake.scalars]\nmoney = money\n")
    assert "Price" in run(tmp_path, Path(__file__).parents[1] / "support")


def test_an_aggregate_without_a_total_is_told_by_name() -> None:
    class Half(Scalar):
        name = "Half"

    with pytest.raises(SchemaValidationError, match="the scalar Half names an aggregate, but has no total"):
        Half().total("sum", [1])
