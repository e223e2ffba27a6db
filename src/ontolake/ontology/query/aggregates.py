"""Aggregates for `group_by(...).agg(...)` and `having`, and the ends of relations for filters."""

from __future__ import annotations

from typing import Any, cast

from ontolake.model.entity import Relation
from ontolake.model.filters import Aggregate, Condition, FieldRef, Measure, Side, ValueRef
from ontolake.model.types import type_info
from ontolake.ontology.errors import QueryError


def count(field: FieldRef[Any] | None = None) -> Aggregate:
    """How many rows; with a field, how many in which it has a value."""
    return Aggregate(Measure("count", None if field is None else ref_of(field)))


def sum_(field: FieldRef[Any]) -> Aggregate:
    return Aggregate(Measure("sum", ref_of(field)))


def avg(field: FieldRef[Any]) -> Aggregate:
    return Aggregate(Measure("avg", ref_of(field)))


def min_(field: FieldRef[Any]) -> Aggregate:
    return Aggregate(Measure("min", ref_of(field)))


def max_(field: FieldRef[Any]) -> Aggregate:
    return Aggregate(Measure("max", ref_of(field)))


def avg_len(field: FieldRef[Any]) -> Aggregate:
    """How long text is, or how many elements lists and dicts have, on average."""
    return Aggregate(Measure("avg_len", ref_of(field)))


def count_where(condition: Condition) -> Aggregate:
    """How many rows also fulfil this."""
    if not isinstance(condition, Condition):
        raise QueryError(f"{condition!r} is not a filter")
    return Aggregate(Measure("count_where", None, condition.shape), condition.values)


def ref_of(field: Any) -> ValueRef:
    """The field that a caller named. Raises `QueryError` for anything else."""
    if not isinstance(field, FieldRef):
        raise QueryError(f"{field!r} is not a field", hint="write Type.field")
    if field.ref.any_path is not None:
        raise QueryError("any_path() is for filters only")
    return field.ref


class End:
    """One end of a relation: its attributes are the fields of the entity there."""

    def __init__(self, relation: type[Relation[Any, Any]], side: Side) -> None:
        self._relation = relation
        self._side = side
        info = type_info(relation)
        if info.kind != "relation":
            raise QueryError(f"{info.name} is not a relation: it has no {side} end")
        self._entity = info.left if side == "left" else info.right

    def __getattr__(self, name: str) -> FieldRef[Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in type_info(self._entity).by_name:
            raise QueryError(f"{self._entity.__name__}, the {self._side} end of {self._relation.__name__}, "
                             f"has no field {name!r}")
        return FieldRef(ValueRef(self._relation, name, self._side))


def left(relation: type[Relation[Any, Any]]) -> Any:
    """The left end of a relation: `left(Placed).tier == "gold"`."""
    return cast(Any, End(relation, "left"))


def right(relation: type[Relation[Any, Any]]) -> Any:
    """The right end of a relation."""
    return cast(Any, End(relation, "right"))
