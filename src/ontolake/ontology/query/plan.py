"""A query as data: what to read, when, by which filters, and in what form. An engine turns it into its language.

A plan has no values in it, so that an engine can keep what it made of one; `Values` stand beside it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ontolake.model.filters import Measure, Order, Shape, ValueRef, with_refs


class PlanHop(NamedTuple):
    """One step of a traversal: over a relation, from left to right or the other way."""

    relation: Any
    forward: bool


class Plan(NamedTuple):
    """What a query asks for.

    `history` asks for every state of a row, else for the last one; `as_of` and `since` say whether there is a bound,
    which stands in the values. `output` is `rows`, `keys` (endpoints of paths without relations), `measures` for the
    whole, or `groups`.
    """

    root: Any
    hops: tuple[PlanHop, ...] = ()
    relations: bool = True
    """Whether a traversal gives the relations that it went over."""
    where: Shape | None = None
    order: tuple[Order, ...] = ()
    history: bool = False
    as_of: bool = False
    since: bool = False
    limit: bool = False
    offset: bool = False
    output: Literal["rows", "measures", "groups"] = "rows"
    measures: tuple[Measure, ...] = ()
    groups: tuple[ValueRef, ...] = ()
    having: Shape | None = None
    deletions: bool = False
    """Whether a history has the deletions too. Rows then say behind their commit whether they are one."""

    @property
    def types(self) -> tuple[Any, ...]:
        """The types along the path: the root, then relation and entity of each hop."""
        found = [self.root]
        for hop in self.hops:
            found += [hop.relation, end_of(hop)]
        return tuple(found)


def with_hop(plan: Plan, hop: PlanHop) -> Plan:
    """The plan with one more step.

    Filters and orders so far mean the rows that the path has so far, also if it comes by their types again.
    """
    types = plan.types
    if hop.relation not in types and end_of(hop) not in types:
        return plan._replace(hops=(*plan.hops, hop), deletions=False)  # every type is there once, so names say enough

    def placed(ref: ValueRef) -> ValueRef:
        if ref.at is not None or ref.owner not in types:
            return ref
        return ref._replace(at=len(types) - 1 - types[::-1].index(ref.owner))

    where = None if plan.where is None else with_refs(plan.where, placed)
    order = tuple(Order(placed(one.ref), one.descending) for one in plan.order)
    return plan._replace(hops=(*plan.hops, hop), where=where, order=order, deletions=False)


def end_of(hop: PlanHop) -> Any:
    """The type that a hop leads to."""
    ends = hop.relation.__ontolake_ends__
    return ends[1] if hop.forward else ends[0]


class Values(NamedTuple):
    """The values of a plan, each part in the order in which the plan mentions them."""

    where: tuple[Any, ...] = ()
    measures: tuple[Any, ...] = ()
    having: tuple[Any, ...] = ()
    as_of: int | None = None
    since: int | None = None
    limit: int | None = None
    offset: int | None = None


# `_replace` takes longer than a lookup by key does; these two steps are part of every one.


def with_where(plan: Plan, shape: Shape | None) -> Plan:
    return tuple.__new__(Plan, (*plan[:3], shape, *plan[4:]))


def with_limit(plan: Plan) -> Plan:
    return tuple.__new__(Plan, (*plan[:8], True, *plan[9:]))


assert Plan._fields[3] == "where"
assert Plan._fields[8] == "limit"
