"""Plans as data between a client and a server. Types go by the names of their tables, fields by their stored names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ontolake.errors import Invalid
from ontolake.history import wire
from ontolake.model.filters import (
    Compare,
    Junction,
    Match,
    Measure,
    Member,
    Negation,
    Order,
    UnaryTest,
    ValueRef,
)
from ontolake.model.types import type_info
from ontolake.ontology.errors import QueryError
from ontolake.ontology.query.needs import owner_of
from ontolake.ontology.query.plan import Plan, PlanHop, Values
from ontolake.ontology.versioned import table_of

_NODES: dict[str, Any] = {cls.__name__: cls for cls in (
    Compare, Junction, Match, Measure, Member, Negation, Order, Plan, PlanHop, UnaryTest, ValueRef,
    Values)}  # fmt: skip
_SEQUENCE, _TYPE, _VALUE = "tuple", "type", "value"


def encode(node: Any) -> Any:
    """A plan, a part of one, or its values, as JSON has it: nodes are lists that begin with their names."""
    if isinstance(node, type):
        return [_TYPE, table_of(type_info(node))]
    if isinstance(node, ValueRef):
        column = owner_of(node).by_name.get(node.name)
        if column is not None:
            node = node._replace(name=column.stored)
    if type(node).__name__ in _NODES and isinstance(node, tuple):
        return [type(node).__name__, *(encode(one) for one in node)]
    if type(node) is tuple:
        return [_SEQUENCE, *(encode(one) for one in node)]
    return [_VALUE, wire.encode(node)]


def decode(data: Any, classes: Mapping[str, Any]) -> Any:
    """What `encode` wrote, with the classes of tables. Raises `Invalid` for anything else."""
    try:
        return _decoded(data, classes)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        if isinstance(error, QueryError | Invalid):
            raise
        raise Invalid(f"this is not a plan: {error}", hint="use a client and a server of one version") from error


def _decoded(data: Any, classes: Mapping[str, Any]) -> Any:
    name, *parts = data
    if name == _VALUE:
        return wire.decode(parts[0])
    if name == _TYPE:
        return classes[parts[0]]
    values = tuple(_decoded(one, classes) for one in parts)
    if name == _SEQUENCE:
        return values
    node = _NODES[name](*values)
    if isinstance(node, ValueRef):
        known = next((column.name for column in owner_of(node).all_columns if column.stored == node.name), node.name)
        return node._replace(name=known)
    return node
