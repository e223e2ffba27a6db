"""Plans that typed columns can answer, through DataFusion: filters, order, aggregates and groups of one type.

Only what means the same as in SQLite is taken on; everything else is left to it, and the answer is None.
"""

from __future__ import annotations

from datetime import date, datetime
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.model.columns import Column
from ontolake.model.filters import Compare, Junction, Match, Measure, Member, Negation, Ref, Shape, Test
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.plan import Plan, Values
from ontolake.ontology.repository.protocol import Row
from ontolake.ontology.repository.s3.needs import needed, plan_refs, slots
from ontolake.ontology.repository.s3.rows import ROW, encoded, naive_place, place
from ontolake.ontology.repository.sqlite.conditions import comparand

_SCALARS = ("str", "int", "float", "bool", "date", "datetime")
_SAFE = 2**53


class Unfit(Exception):
    """A plan, or the rows it is about, that columns alone do not answer."""


@cache
def available() -> bool:
    """Whether DataFusion is installed."""
    try:
        import datafusion
    except ModuleNotFoundError:
        return False
    return bool(datafusion.__version__)


def fits(plan: Plan) -> bool:
    """Whether a plan is of those that can be answered here, as far as it shows by itself."""
    if plan.hops or plan.having is not None or not available():
        return False
    info = type_info(plan.root)
    for ref in plan_refs(plan):
        column = info.by_name.get(ref.name)
        if ref.owner is not plan.root or ref.side or ref.path or ref.any_path is not None or column is None:
            return False
        if column.scalar not in _SCALARS:
            return False
    return all(measure.op != "sum" or _column(info, measure).scalar != "bool" for measure in plan.measures)


def chosen(plan: Plan, values: Values, table: pa.Table) -> pa.Table | None:
    """Those rows of `table`, which are within the plan's bounds in time, that the plan asks for, in its order.

    None if it has to be worked out elsewhere.
    """
    try:
        return _Answer(plan, values, table).rows()
    except Unfit:
        return None


def measured(plan: Plan, values: Values, table: pa.Table) -> list[Row] | None:
    """The same for measures and groups: encoded rows."""
    try:
        return _Answer(plan, values, table).measured()
    except Unfit:
        return None


class _Answer:
    def __init__(self, plan: Plan, values: Values, table: pa.Table) -> None:
        from datafusion import SessionContext

        self._plan = plan
        self._values = values
        self._info: TypeInfo = type_info(plan.root)
        self._table = table
        self._names = {name: f"c{number}" for number, name in enumerate(table.column_names)}
        for column in needed(plan)[self._info]:
            self._check(column)
        self._frame: Any = SessionContext().from_arrow(table.rename_columns(list(self._names.values())))

    def _check(self, column: Column) -> None:
        name = naive_place(column)
        mentioned = any(ref.name == column.name for ref in plan_refs(self._plan))
        if mentioned and name in self._table.column_names and pc.any(self._table.column(name)).as_py():
            raise Unfit

    def rows(self) -> pa.Table:
        """The rows of a plan for rows, as they are stored."""
        return self._rows(self._filtered())

    def measured(self) -> list[Row]:
        """The rows of a plan for measures or groups, encoded."""
        return self._measured(self._filtered())

    def _filtered(self) -> Any:
        if self._plan.where is None:
            return self._frame
        return self._frame.filter(self._condition(self._plan.where, self._values.where))

    # values
    def _col(self, column: Column) -> Any:
        from datafusion import col

        found = col(self._names[place(column)])
        return found + typed_literal(0.0, pa.float64()) if column.scalar == "float" else found  # -0.0 is 0.0

    def _of(self, ref: Ref) -> Column:
        return self._info.by_name[ref.name]

    def _lit(self, column: Column, value: Any) -> Any:
        found = comparand(column)(value)
        if column.scalar == "date":
            return typed_literal(date.fromisoformat(found), pa.date32())
        if column.scalar == "datetime":
            moment = datetime.fromisoformat(found)
            if moment.tzinfo is None:
                raise Unfit
            return typed_literal(moment, pa.timestamp("us", tz="UTC"))
        if column.scalar == "float":
            if isinstance(found, int) and abs(found) > _SAFE:
                raise Unfit
            return typed_literal(float(found) + 0.0, pa.float64())
        if column.scalar == "int" and isinstance(found, float | str):
            if isinstance(found, str) or not found.is_integer() or abs(found) > _SAFE:
                raise Unfit
            return typed_literal(int(found), pa.int64())
        if not isinstance(found, str | int | bool):
            raise Unfit
        return typed_literal(found, column.arrow_type)

    # filters
    def _condition(self, shape: Shape, values: tuple[Any, ...]) -> Any:
        from datafusion import functions as f

        if isinstance(shape, Junction):
            size = slots(shape.left)
            one, two = self._condition(shape.left, values[:size]), self._condition(shape.right, values[size:])
            return one & two if shape.op == "and" else one | two
        if isinstance(shape, Negation):
            return ~self._condition(shape.part, values)
        if isinstance(shape, Compare):
            return self._compare(shape, values)
        column = self._of(shape.ref)
        if isinstance(shape, Match):
            if column.scalar != "str":
                raise Unfit  # which is refused elsewhere
            matching = {"startswith": f.starts_with, "endswith": f.ends_with, "contains": f.contains}[shape.op]
            return matching(self._col(column), typed_literal(values[0], pa.string()))
        if isinstance(shape, Member):
            if not values:
                return typed_literal(False, pa.bool_())
            return f.in_list(self._col(column), [self._lit(column, value) for value in values])
        assert isinstance(shape, Test)
        if shape.op == "is_null":
            return self._col(column).is_null()
        if shape.op == "is_not_null":
            return self._col(column).is_not_null()
        if column.scalar != "bool":
            raise Unfit
        return self._col(column) == typed_literal(shape.op == "is_true", pa.bool_())

    def _compare(self, shape: Compare, values: tuple[Any, ...]) -> Any:
        assert isinstance(shape.ref, Ref)
        column = self._of(shape.ref)
        left = self._col(column)
        if shape.other is not None:
            other = self._of(shape.other)
            if other.scalar != column.scalar:
                raise Unfit
            right = self._col(other)
        else:
            right = self._lit(column, values[0])
        compared = {"==": left.__eq__, "!=": left.__ne__, "<": left.__lt__, "<=": left.__le__, ">": left.__gt__,
                    ">=": left.__ge__}  # fmt: skip
        return compared[shape.op](right)

    # answers
    def _rows(self, frame: Any) -> pa.Table:
        from datafusion import col

        plan = self._plan
        terms = [self._col(self._of(order.ref)).sort(ascending=not order.descending, nulls_first=not order.descending)
                 for order in plan.order]
        frame = frame.sort(*terms, col(self._names[ROW]).sort(ascending=True))
        if plan.limit or plan.offset:
            count = self._values.limit if self._values.limit is not None else len(self._table)
            frame = frame.limit(count, self._values.offset or 0)
        found = _arrow(frame)
        return pa.table([found.column(name).cast(self._table.schema.field(original).type)
                         for original, name in self._names.items()], names=list(self._names))  # fmt: skip

    def _measured(self, frame: Any) -> list[Row]:
        from datafusion import col

        plan = self._plan
        groups = [self._col(self._of(ref)).alias(f"g{n}") for n, ref in enumerate(plan.groups)]
        measures, values = [], self._values.measures
        for number, measure in enumerate(plan.measures):
            size = slots(measure.where) if measure.where is not None else 0
            measures.append(self._measure(measure, values[:size]).alias(f"m{number}"))
            values = values[size:]
        frame = frame.aggregate(groups, measures)
        if groups:
            frame = frame.sort(*(col(f"g{n}").sort(ascending=True, nulls_first=True) for n in range(len(groups))))
        found = _arrow(frame)
        lists = [_encoded(self._of(ref), found.column(f"g{n}")) for n, ref in enumerate(plan.groups)]
        for number, measure in enumerate(plan.measures):
            plain = found.column(f"m{number}")
            typed = measure.op in ("min", "max") and measure.ref is not None
            lists.append(_encoded(_column(self._info, measure), plain) if typed else plain.to_pylist())
        return list(zip(*lists, strict=True))

    def _measure(self, measure: Measure, values: tuple[Any, ...]) -> Any:
        from datafusion import functions as f

        if measure.op == "count_where":
            return f.count(typed_literal(1, pa.int64()), filter=self._condition(measure.where, values))
        if measure.ref is None:
            return f.count(typed_literal(1, pa.int64()))
        column = self._of(measure.ref)
        operand = self._col(column)
        self._check_numbers(measure.op, column)
        if measure.op == "avg_len":
            if column.scalar != "str":
                raise Unfit
            return f.avg(f.character_length(operand))
        found: Any = {"count": f.count, "sum": f.sum, "avg": f.avg, "min": f.min, "max": f.max}.get(measure.op)
        if found is None:
            raise Unfit
        return found(operand)

    def _check_numbers(self, op: str, column: Column) -> None:
        """Sums that could leave 64 bits, and what is not finite, are treated with more care elsewhere."""
        values = self._table.column(place(column))
        if op in ("sum", "avg"):
            if column.scalar not in ("int", "float"):
                raise Unfit
            ends = pc.min_max(values)
            most = max(abs(ends["min"].as_py() or 0), abs(ends["max"].as_py() or 0))
            if column.scalar == "int" and most * len(values) >= 2**62:
                raise Unfit
        if column.scalar == "float" and op in ("sum", "avg", "min", "max") and not pc.all(pc.is_finite(values)).as_py():
            raise Unfit
        if column.scalar == "bool" and op in ("min", "max"):
            raise Unfit


def typed_literal(value: Any, kind: pa.DataType) -> Any:
    """A value of a known type: to find out which it has, pyarrow would import pandas."""
    from datafusion import lit

    return lit(pa.scalar(value, kind))


def _arrow(frame: Any) -> pa.Table:
    return frame.to_arrow_table()


def _column(info: TypeInfo, measure: Measure) -> Column:
    assert measure.ref is not None or measure.op in ("count", "count_where")
    return info.by_name[measure.ref.name] if measure.ref is not None else info.keys[0]


def _encoded(column: Column, values: pa.ChunkedArray) -> list[Any]:
    return encoded(column, pa.table({place(column): values.cast(column.arrow_type)}))
