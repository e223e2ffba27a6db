"""Plans that typed columns can answer, through DataFusion: filters, order, aggregates and groups of one type.

Only what means the same as in SQLite is taken on; everything else is left to it, and the answer is None.
"""

from __future__ import annotations

from functools import cache
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from ontolake.model.columns import Column
from ontolake.model.filters import (
    Compare,
    CompareOp,
    Junction,
    JunctionOp,
    Match,
    MatchOp,
    Measure,
    Member,
    Negation,
    Shape,
    TestOp,
    UnaryTest,
    ValueRef,
    slots,
)
from ontolake.model.scalars import UNFIT
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.arrow.physical import ROW, encoded, naive_place, place
from ontolake.ontology.query.compiler.conditions import LISTED, comparand
from ontolake.ontology.query.needs import needed, parts_of, plan_refs
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.protocol import Row

WIDE = 200
"""Filters of more conditions than these are left to SQLite: DataFusion walks through them by recursion."""


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
        if not column.type.planned:
            return False
    return all(measure.op != "sum" or not _column(info, measure).type.truth for measure in plan.measures)


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
        self._plan = plan
        self._values = values
        self._info: TypeInfo = type_info(plan.root)
        self._table = table
        self._names = {name: f"c{number}" for number, name in enumerate(table.column_names)}
        for column in needed(plan)[self._info]:
            self._check(column)
        if plan.where is not None and _size(plan.where) > WIDE:
            raise Unfit
        self._lists: dict[str, Any] = {}

    def _check(self, column: Column) -> None:
        name = naive_place(column)
        mentioned = any(ref.name == column.name for ref in plan_refs(self._plan))
        if mentioned and name in self._table.column_names and pc.any(self._table.column(name)).as_py():
            raise Unfit

    def rows(self) -> pa.Table:
        """The rows of a plan for rows, as they are stored."""
        condition = self._where()
        return self._rows(self._filtered(condition))

    def measured(self) -> list[Row]:
        """The rows of a plan for measures or groups, encoded."""
        condition, measures = self._where(), self._measures()
        return self._measured(self._filtered(condition), measures)

    def _where(self) -> Any:
        return None if self._plan.where is None else self._condition(self._plan.where, self._values.where)

    def _filtered(self, condition: Any) -> Any:
        """The rows that fulfil a condition. What conditions need beside the columns has been worked out by now."""
        from datafusion import SessionContext

        table = self._table.rename_columns(list(self._names.values()))
        for name, values in self._lists.items():
            table = table.append_column(name, values)
        frame = SessionContext().from_arrow(table)
        return frame if condition is None else frame.filter(condition)

    # values
    def _col(self, column: Column) -> Any:
        from datafusion import col

        found = col(self._names[place(column)])
        return found + typed_literal(0.0, pa.float64()) if _is_float(column) else found  # -0.0 is 0.0

    def _of(self, ref: ValueRef) -> Column:
        return self._info.by_name[ref.name]

    def _lit(self, column: Column, value: Any) -> Any:
        return typed_literal(self._comparand(column, value), column.arrow_type)

    def _comparand(self, column: Column, value: Any) -> Any:
        """A value to compare with a column, of its Arrow type."""
        found = column.type.arrow_comparand(comparand(column)(value))
        if found is UNFIT:
            raise Unfit
        return found

    def _listed(self, column: Column, values: tuple[Any, ...]) -> Any:
        """Whether a column has one of many values, as a column: a plan with all of them in it takes far longer."""
        from datafusion import col

        wanted = pa.array([self._comparand(column, value) for value in values], column.arrow_type)
        held = self._table.column(place(column))
        if _is_float(column):
            held = pc.add(held, pa.scalar(0.0, pa.float64()))
        name = f"l{len(self._lists)}"
        self._lists[name] = pc.if_else(held.is_valid(), pc.is_in(held, value_set=wanted), pa.scalar(None, pa.bool_()))
        return col(name)

    # filters
    def _condition(self, shape: Shape, values: tuple[Any, ...]) -> Any:
        match shape:
            case Junction():
                return _joined(shape.op, [self._condition(part, given) for part, given in parts_of(shape, values)])
            case Negation():
                return ~self._condition(shape.part, values)
            case Compare():
                return self._compare(shape, values)
            case Match():
                return self._match(shape.op, self._of(shape.ref), values[0])
            case Member():
                return self._member(self._of(shape.ref), values)
            case UnaryTest():
                return self._test(shape.op, self._of(shape.ref))
            case _:
                assert_never(shape)

    def _match(self, op: MatchOp, column: Column, text: str) -> Any:
        from datafusion import functions as f

        if not column.type.textual:
            raise Unfit  # which is refused elsewhere
        left, right = self._col(column), typed_literal(text, pa.string())
        match op:
            case "startswith":
                return f.starts_with(left, right)
            case "endswith":
                return f.ends_with(left, right)
            case "contains":
                return f.contains(left, right)
            case _:
                assert_never(op)

    def _member(self, column: Column, values: tuple[Any, ...]) -> Any:
        from datafusion import functions as f

        if not values:
            return typed_literal(False, pa.bool_())
        if len(values) > LISTED:
            return self._listed(column, values)
        return f.in_list(self._col(column), [self._lit(column, value) for value in values])

    def _test(self, op: TestOp, column: Column) -> Any:
        match op:
            case "is_null":
                return self._col(column).is_null()
            case "is_not_null":
                return self._col(column).is_not_null()
            case "is_true" | "is_false":
                if not column.type.truth:
                    raise Unfit
                return self._col(column) == typed_literal(op == "is_true", pa.bool_())
            case _:
                assert_never(op)

    def _compare(self, shape: Compare, values: tuple[Any, ...]) -> Any:
        assert isinstance(shape.ref, ValueRef)
        column = self._of(shape.ref)
        left = self._col(column)
        if shape.other is not None:
            other = self._of(shape.other)
            if other.scalar != column.scalar:
                raise Unfit
            return _compared(shape.op, left, self._col(other))
        return _compared(shape.op, left, self._lit(column, values[0]))

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

    def _measures(self) -> list[Any]:
        measures, values = [], self._values.measures
        for number, measure in enumerate(self._plan.measures):
            size = slots(measure.where) if measure.where is not None else 0
            measures.append(self._measure(measure, values[:size]).alias(f"m{number}"))
            values = values[size:]
        return measures

    def _measured(self, frame: Any, measures: list[Any]) -> list[Row]:
        from datafusion import col

        plan = self._plan
        groups = [self._col(self._of(ref)).alias(f"g{n}") for n, ref in enumerate(plan.groups)]
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

        rows = typed_literal(1, pa.int64())
        if measure.op == "count_where":
            assert measure.where is not None
            return f.count(rows, filter=self._condition(measure.where, values))
        if measure.ref is None:
            return f.count(rows)
        column = self._of(measure.ref)
        operand = self._col(column)
        self._check_numbers(measure.op, column)
        match measure.op:
            case "avg_len":
                if not column.type.textual:
                    raise Unfit
                return f.avg(f.character_length(operand))
            case "count":
                return f.count(operand)
            case "sum":
                return f.sum(operand)
            case "avg":
                return f.avg(operand)
            case "min":
                return f.min(operand)
            case "max":
                return f.max(operand)
            case _:
                assert_never(measure.op)

    def _check_numbers(self, op: str, column: Column) -> None:
        """Sums that could leave 64 bits, and what is not finite, are treated with more care elsewhere."""
        values = self._table.column(place(column))
        if op in ("sum", "avg"):
            if not column.type.numeric:
                raise Unfit
            ends = pc.min_max(values)
            most = max(abs(ends["min"].as_py() or 0), abs(ends["max"].as_py() or 0))
            if column.sqlite_type == "INTEGER" and most * len(values) >= 2**62:
                raise Unfit
        if _is_float(column) and op in ("sum", "avg", "min", "max") and not pc.all(pc.is_finite(values)).as_py():
            raise Unfit
        if column.type.truth and op in ("min", "max"):
            raise Unfit


def _is_float(column: Column) -> bool:
    return column.sqlite_type == "REAL"


def _joined(op: JunctionOp, parts: list[Any]) -> Any:
    """Conditions joined as a tree that is as flat as can be."""
    while len(parts) > 1:
        pairs = [_pair(op, one, two) for one, two in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def _pair(op: JunctionOp, one: Any, two: Any) -> Any:
    match op:
        case "and":
            return one & two
        case "or":
            return one | two
        case _:
            assert_never(op)


def _compared(op: CompareOp, left: Any, right: Any) -> Any:
    match op:
        case "==":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right
        case _:
            assert_never(op)


def _size(shape: Shape) -> int:
    """How many conditions a filter is made of."""
    match shape:
        case Junction():
            return sum(map(_size, shape.parts))
        case Negation():
            return _size(shape.part)
        case Compare() | Match() | Member() | UnaryTest():
            return 1
        case _:
            assert_never(shape)


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
