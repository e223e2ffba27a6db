"""Which row groups a filter can find anything in, from the least and the greatest value that Parquet keeps of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ontolake.model.filters import Compare, Ref
from ontolake.model.types import type_info
from ontolake.ontology.query.compiler.conditions import comparand
from ontolake.ontology.query.needs import conjuncts
from ontolake.ontology.query.plan import Plan, Values
from ontolake.ontology.repository.objects.layout import DataFile
from ontolake.ontology.repository.objects.rows import place
from ontolake.ontology.repository.objects.scan import Prune

_KEPT: dict[str, Callable[[Any, Any, Any], bool]] = {
    "==": lambda low, high, value: low <= value <= high,
    "<": lambda low, high, value: low < value,
    "<=": lambda low, high, value: low <= value,
    ">": lambda low, high, value: high > value,
    ">=": lambda low, high, value: high >= value,
}


def pruner(plan: Plan, values: Values) -> Prune | None:
    """What tells row groups apart that a plan of one type needs; None if all of them are needed.

    Numbers and text only: of floats the statistics leave out what is not a number.
    """
    info = type_info(plan.root)
    tests = []
    for shape, given in conjuncts(plan.where, values.where):
        if not isinstance(shape, Compare) or shape.op not in _KEPT or shape.other is not None:
            continue
        if not isinstance(shape.ref, Ref) or shape.ref != Ref(plan.root, shape.ref.name):
            continue
        column = info.by_name.get(shape.ref.name)
        if column is not None and column.type.prunes:
            value = comparand(column)(given[0])
            if isinstance(value, str) == (column.sqlite_type == "TEXT"):
                tests.append((place(column), _KEPT[shape.op], value))
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
