"""Which row groups a filter can find anything in, from the least and the greatest value that Parquet keeps of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

from ontolake.model.filters import Compare, CompareOp, Junction, Match, Member, Negation, Shape, UnaryTest, ValueRef
from ontolake.model.types import type_info
from ontolake.ontology.arrow.physical import place
from ontolake.ontology.query.compiler.conditions import comparand
from ontolake.ontology.query.needs import conjuncts
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.objects.layout import DataFile
from ontolake.ontology.repository.objects.read.scan import Prune

Possible = Callable[[Any, Any, Any], bool]
"""Whether values between a least and a greatest one can fulfil a comparison with a value."""


def _possible(op: CompareOp) -> Possible | None:
    """None if statistics cannot rule a comparison out."""
    match op:
        case "==":
            return lambda low, high, value: low <= value <= high
        case "<":
            return lambda low, high, value: low < value
        case "<=":
            return lambda low, high, value: low <= value
        case ">":
            return lambda low, high, value: high > value
        case ">=":
            return lambda low, high, value: high >= value
        case "!=":
            return None
        case _:
            assert_never(op)


def _comparison(shape: Shape) -> tuple[ValueRef, Possible] | None:
    """The field that a filter compares with a value, and what statistics say of it; None for filters of other kinds."""
    match shape:
        case Compare():
            possible = _possible(shape.op)
            if possible is None or shape.other is not None or not isinstance(shape.ref, ValueRef):
                return None
            return shape.ref, possible
        case Match() | Member() | UnaryTest() | Junction() | Negation():
            return None
        case _:
            assert_never(shape)


def pruner(plan: Plan, values: Values) -> Prune | None:
    """What tells row groups apart that a plan of one type needs; None if all of them are needed.

    Numbers and text only: of floats the statistics leave out what is not a number.
    """
    info = type_info(plan.root)
    tests = []
    for shape, given in conjuncts(plan.where, values.where):
        comparison = _comparison(shape)
        if comparison is None or comparison[0] != ValueRef(plan.root, comparison[0].name):
            continue
        ref, possible = comparison
        column = info.by_name.get(ref.name)
        if column is not None and column.type.prunes:
            value = comparand(column)(given[0])
            if isinstance(value, str) == (column.sqlite_type == "TEXT"):
                tests.append((place(column), possible, value))
    if not tests:
        return None

    def wanted(meta: Any, number: int, file: DataFile) -> bool:
        group = meta.row_group(number)
        places = {group.column(n).path_in_schema: n for n in range(group.num_columns)}
        for name, kept, value in tests:
            stats = group.column(places[name]).statistics if name in places else None
            if stats is not None and stats.has_min_max and not kept(stats.min, stats.max, value):
                return False
        return True

    return wanted
