"""Scalars beyond the first ones in a graph: `time`, `timedelta`, and one that only its own module knows."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pytest
from money import Money

from ontolake.graph import Graph, Unique
from ontolake.graph.errors import ConstraintError, RowError
from ontolake.model import Entity, Field, Relation

pytestmark = pytest.mark.slow


def version(number: int) -> Any:
    class Shift(Entity):
        id: Field[int] = Field(primary_key=True)
        pay: Field[Money] = Field(index=True)
        starts: Field[time | None] = Field(default=None, index=True)
        lasts: Field[timedelta] = Field(default=timedelta(hours=8), le=timedelta(days=2))
        if number > 1:
            extra: Field[Money] = Field(default=Money(500))
            ends: Field[time] = Field(default=time(17))
            rest: Field[timedelta] = Field(default=timedelta(minutes=-1))

    return Shift


Shift = version(1)


class Follows(Relation[Shift, Shift]):
    gap: Field[timedelta]


def shifts(count: int = 12) -> list[Any]:
    return [Shift(id=n, pay=Money(n * 125 - 300), starts=time(n % 24, n, 0, n) if n % 4 else None,
                  lasts=timedelta(hours=n - 3, microseconds=n)) for n in range(count)]  # fmt: skip


def row(one: Any) -> dict[str, Any]:
    return {"id": one.id, "pay": Decimal(str(one.pay)), "starts": one.starts, "lasts": one.lasts}


def rows(graph: Graph, kind: Any = Shift, filter: Any = None) -> list[dict[str, Any]]:
    return sorted(graph.snapshot().table(kind).to_arrow(filter).to_pylist(), key=lambda one: one["id"])


def test_a_graph_takes_them_as_objects_rows_and_columns_and_gives_them_back(url: str, tmp_path: Path) -> None:
    given = shifts()
    with Graph.init(url, [Shift, Follows]) as graph:
        graph.load(Shift, given)
        graph.load(Follows, [Follows(left_key=1, right_key=2, gap=timedelta(seconds=90))])
        assert rows(graph) == [row(one) for one in given]
        graph.load(Shift, [{"id": 20, "pay": "12.50", "starts": "08:30", "lasts": "PT1H30M"}])
        graph.load(Shift, pa.table({"id": [21], "pay": ["7"], "starts": ["09:00:01.5"], "lasts": ["-P1DT1S"]}))
        graph.load(Shift, pa.table({"id": [22], "pay": pa.array([Decimal(3)], pa.decimal128(18, 2)),
                                    "lasts": pa.array([60], pa.duration("s"))}))  # fmt: skip
        assert rows(graph)[-3:] == [
            {"id": 20, "pay": Decimal("12.50"), "starts": time(8, 30), "lasts": timedelta(minutes=90)},
            {"id": 21, "pay": Decimal(7), "starts": time(9, 0, 1, 500_000), "lasts": timedelta(days=-1, seconds=-1)},
            {"id": 22, "pay": Decimal(3), "starts": None, "lasts": timedelta(minutes=1)}]
        for format in ("jsonl", "parquet"):
            graph.export(tmp_path / format, format=format)
            with Graph.import_(f"{tmp_path}/{format} copy/", tmp_path / format) as copy:
                assert rows(copy) == rows(graph)
                assert copy.snapshot().table(Follows).to_arrow().column("gap").to_pylist() == [timedelta(seconds=90)]
        assert [*graph.verify()] == []
        with Graph.open(url, read_only=True) as again:
            assert rows(again) == rows(graph)


@pytest.mark.parametrize("indexed", [False, True])
def test_filters_and_sql_answer_as_python_does(url: str, indexed: bool) -> None:
    given = shifts()
    with Graph.init(url, [Shift]) as graph:
        graph.load(Shift, given)
        if indexed:
            graph.optimize()
        for condition, holds in [
            (Shift.pay == Money(200), lambda one: one.pay == Money(200)),
            (Shift.pay < Money(0), lambda one: one.pay < Money(0)),
            (Shift.pay.in_([Money(-300), Money(75)]), lambda one: one.pay.cents in (-300, 75)),
            (Shift.starts > time(6, 6), lambda one: one.starts is not None and one.starts > time(6, 6)),
            (Shift.starts == time(3, 3, 0, 3), lambda one: one.starts == time(3, 3, 0, 3)),
            (Shift.starts.is_null(), lambda one: one.starts is None),
            (Shift.lasts <= timedelta(hours=1), lambda one: one.lasts <= timedelta(hours=1)),
            (Shift.lasts.in_([timedelta(hours=-3), timedelta(1)]), lambda one: one.lasts == timedelta(hours=-3)),
        ]:  # fmt: skip
            assert [one["id"] for one in rows(graph, filter=condition)] == [
                one.id for one in given if holds(one)], condition  # type: ignore[no-untyped-call]
        [found] = graph.snapshot().sql("SELECT sum(pay) AS pay, max(starts) AS starts, min(lasts) AS lasts FROM Shift"
                                       ).to_pylist()  # fmt: skip
        assert found == {"pay": Decimal(sum(one.pay.cents for one in given)).scaleb(-2),
                         "starts": max(one.starts for one in given if one.starts), "lasts": timedelta(hours=-3)}
        ordered = graph.snapshot().sql("SELECT id FROM Shift ORDER BY lasts DESC").column("id").to_pylist()
        assert ordered == [one.id for one in sorted(given, key=lambda one: one.lasts, reverse=True)]


def test_a_schema_gets_them_with_their_defaults(url: str) -> None:
    Later = version(2)
    with Graph.init(url, [Shift]) as graph:
        graph.load(Shift, shifts(3))
        graph.schema_apply(graph.schema_plan([Later]))
        assert {(one["extra"], one["ends"], one["rest"]) for one in rows(graph, Later)} == {
            (Decimal(5), time(17), timedelta(minutes=-1))}
        graph.load(Later, [Later(id=1, pay=Money(1), ends=time(1))])
        assert rows(graph, Later)[1]["ends"] == time(1)


def test_what_does_not_fit_is_told_by_its_row(url: str) -> None:
    with Graph.init(url, [Shift]) as graph:
        good = {"id": 1, "pay": "1.00"}
        for wrong in ({"pay": "1.005"}, {"pay": 3}, {"starts": "25:00"}, {"lasts": "soon"}, {"lasts": 5.5}):
            with pytest.raises(RowError) as refused:
                graph.load(Shift, [good, good | {"id": 2} | wrong])
            assert refused.value.row == 1, wrong
        late = pa.table({"id": [1], "pay": ["1"], "starts": pa.array([86_400], pa.int32()).cast(pa.time32("s"))})
        for column in (late.column("starts"), late.column("starts").cast(pa.time64("us"))):
            with pytest.raises(RowError, match="not of the type time"):
                graph.load(Shift, late.set_column(2, "starts", column))
        with pytest.raises(ConstraintError, match="at most"):
            graph.load(Shift, [good | {"lasts": timedelta(days=3)}])
        assert rows(graph) == []


def test_a_time_with_a_zone_is_refused_in_every_form(url: str) -> None:
    with Graph.init(url, [Shift]) as graph:
        for late in (time(1, tzinfo=UTC), "01:00:00Z", "01:00+02:00"):
            with pytest.raises(RowError, match="a time of day must have no zone") as refused:
                graph.load(Shift, [{"id": 1, "pay": "1"}, {"id": 2, "pay": "1", "starts": late}])
            assert refused.value.row == 1
        with pytest.raises(RowError, match="no zone"):
            graph.load(Shift, [Shift(id=1, pay=Money(1), starts=time(1, tzinfo=UTC))])
        with pytest.raises(RowError, match="'soon' is not a duration such as P1DT2H30M"):
            graph.load(Shift, [{"id": 1, "pay": "1", "lasts": "soon"}])
        assert rows(graph) == []


@pytest.mark.parametrize(("column", "values"), [
    ("starts", pa.array([5])), ("starts", pa.array([datetime(2024, 1, 1, 8)])), ("starts", pa.array([1.5])),
    ("lasts", pa.array([5])), ("lasts", pa.array([1.5])), ("lasts", pa.array([datetime(2024, 1, 1)])),
], ids=["time-int", "time-moment", "time-float", "duration-int", "duration-float", "duration-moment"])  # fmt: skip
def test_columns_of_other_types_are_refused_as_their_values_are(url: str, column: str, values: Any) -> None:
    with Graph.init(url, [Shift]) as graph:
        for data in (pa.table({"id": [1], "pay": ["1"], column: values}),
                     [{"id": 1, "pay": "1", column: values[0].as_py()}]):  # fmt: skip
            with pytest.raises(RowError) as refused:
                graph.load(Shift, data)
            assert (refused.value.column, refused.value.row) == (column, 0)
        graph.load(Shift, pa.table({"id": [1], "pay": ["1"], "starts": pa.array([time(8)]).dictionary_encode(),
                                    "lasts": pa.array([timedelta(1)], pa.duration("s"))}))  # fmt: skip
        assert rows(graph) == [row(Shift(id=1, pay=Money(100), starts=time(8), lasts=timedelta(1)))]


class Slot(Entity):
    id: Field[int] = Field(primary_key=True)
    at: Field[Annotated[time | None, Unique]] = Field(default=None)
    lasts: Field[Annotated[timedelta | None, Unique]] = Field(default=None)
    price: Field[Annotated[Decimal | None, Unique]] = Field(default=None, max_digits=10, decimal_places=2)
    pay: Field[Annotated[Money | None, Unique]] = Field(default=None)


UNIQUE = {"at": time(8), "lasts": timedelta(hours=-1), "price": Decimal("1.5"), "pay": Money(150)}


@pytest.mark.parametrize("column", UNIQUE)
def test_unique_values_are_refused_once_taken_with_the_row_that_has_them(url: str, column: str) -> None:
    taken = {column: UNIQUE[column]}
    with Graph.init(url, [Slot]) as graph:
        with pytest.raises(ConstraintError, match="taken already") as refused:
            graph.load(Slot, [Slot(id=1), Slot(id=2, **taken), Slot(id=3), Slot(id=4, **taken)])
        assert (refused.value.row, refused.value.key, refused.value.column) == (3, 4, column)
        graph.load(Slot, [Slot(id=1, **taken), Slot(id=2), Slot(id=3)])
        with pytest.raises(ConstraintError, match="taken already") as refused:
            graph.load(Slot, [Slot(id=5), Slot(id=6), Slot(id=7, **taken)])
        assert (refused.value.row, refused.value.key, refused.value.column) == (2, 7, column)
        graph.load(Slot, [Slot(id=1, **taken)])
        assert [one["id"] for one in rows(graph, Slot)] == [1, 2, 3]
