"""What a plan needs: which types, and of each which columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

from ontolake.model.columns import Column
from ontolake.model.filters import (
    Compare,
    Junction,
    Match,
    Measure,
    Member,
    Negation,
    Shape,
    UnaryTest,
    ValueRef,
    slots,
)
from ontolake.model.types import TypeInfo, type_info
from ontolake.ontology.errors import QueryError
from ontolake.ontology.query.plan import Plan


def refs_of(shape: Shape | Measure) -> Iterator[ValueRef]:
    """The fields that a filter or an aggregate mentions."""
    match shape:
        case Junction():
            for part in shape.parts:
                yield from refs_of(part)
        case Negation():
            yield from refs_of(shape.part)
        case Measure():
            if shape.ref is not None:
                yield shape.ref
            if shape.where is not None:
                yield from refs_of(shape.where)
        case Compare():
            if isinstance(shape.ref, Measure):
                yield from refs_of(shape.ref)
            else:
                yield shape.ref
            if shape.other is not None:
                yield shape.other
        case Match() | Member() | UnaryTest():
            yield shape.ref
        case _:
            assert_never(shape)


def plan_refs(plan: Plan) -> Iterator[ValueRef]:
    """All fields that a plan mentions."""
    for shape in (plan.where, plan.having):
        if shape is not None:
            yield from refs_of(shape)
    yield from (order.ref for order in plan.order)
    yield from plan.groups
    for measure in plan.measures:
        yield from refs_of(measure)


def owner_of(ref: ValueRef) -> TypeInfo:
    """The type that a field belongs to: an end's if it is one of an end."""
    info = type_info(ref.owner)
    if ref.side is None:
        return info
    return type_info(info.left if ref.side == "left" else info.right)


def needed(plan: Plan) -> dict[TypeInfo, tuple[Column, ...]]:
    """The types that a plan reads, with the columns of each, keys always. Raises `QueryError` for unknown fields."""
    found: dict[TypeInfo, dict[str, Column]] = {}
    for number, cls in enumerate(plan.types):
        info = type_info(cls)
        columns = found.setdefault(info, {column.name: column for column in info.keys})
        if plan.output == "rows" and (plan.relations or number % 2 == 0):
            columns.update(info.by_name)
    for ref in plan_refs(plan):
        info = owner_of(ref)
        column = info.by_name.get(ref.name)
        if column is None:
            raise QueryError(f"{info.name} has no field {ref.name!r}", hint=f"it has {', '.join(info.by_name)}")
        found.setdefault(info, {key.name: key for key in info.keys})[column.name] = column
    return {info: tuple(columns.values()) for info, columns in found.items()}


def conjuncts(shape: Shape | None, values: tuple[Any, ...]) -> list[tuple[Shape, tuple[Any, ...]]]:
    """The parts of `a & b & c`, each with its values."""
    if shape is None:
        return []
    if isinstance(shape, Junction) and shape.op == "and":
        return [one for part, given in parts_of(shape, values) for one in conjuncts(part, given)]
    return [(shape, values)]


def parts_of(shape: Junction, values: tuple[Any, ...]) -> Iterator[tuple[Shape, tuple[Any, ...]]]:
    """The parts of a junction, each with its values."""
    start = 0
    for part in shape.parts:
        size = slots(part)
        yield part, values[start : start + size]
        start += size
