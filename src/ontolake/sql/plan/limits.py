"""LIMIT: how little of a table a query needs that asks for a few rows, in the order of keys or in any."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlglot import exp

from ontolake.sql.catalog.records import Table
from ontolake.sql.errors import SqlError
from ontolake.sql.executor import calls
from ontolake.sql.executor.signatures import AGGREGATES, SCALARS
from ontolake.sql.plan.conditions import is_hiding, table_and_name
from ontolake.sql.syntax.statements import Parameters, constant, given_value

_PLAIN = {"expressions", "from_", "where", "limit", "offset", "order", "kind", "operation_modifiers"}

_OTHERWISE = (exp.Window, exp.UDTF, exp.Query, exp.WithinGroup)
"""What takes more than the row at hand, or may give more than one."""


class Window(NamedTuple):
    """The rows that are asked for: so many from an offset on, in the order of the primary key if `ordered`."""

    limit: exp.Expr | None
    offset: exp.Expr | None
    ordered: bool
    descending: bool

    def rows(self, parameters: Parameters) -> tuple[int | None, int]:
        """How many rows, if that is limited, and from where on. Raises `SqlError`."""
        return _number("LIMIT", "2201W", self.limit, parameters), _number("OFFSET", "2201X", self.offset,
                                                                           parameters) or 0  # fmt: skip


def window_of(tree: exp.Expr, table: Table, kinds: Collection[type[exp.Expr]]) -> Window | None:
    """What a query of one table wants of it, if each row of the answer comes from one row of the table.

    `kinds` are those of all nodes of the query.
    """
    if not isinstance(tree, exp.Select) or any(given for name, given in tree.args.items() if name not in _PLAIN):
        return None
    if any(issubclass(kind, _OTHERWISE) and kind is not exp.Select for kind in kinds) or any(
            node is not tree for node in tree.find_all(exp.Select)):  # fmt: skip
        return None
    if exp.Anonymous in kinds and any(gives_one_value(call) is False for call in tree.find_all(exp.Anonymous)):
        return None
    if tree.args.get("order") is not None and is_hiding(tree, [column.name for column in table.primary_key]):
        return None
    limit, offset = tree.args.get("limit"), tree.args.get("offset")
    if not isinstance(limit, exp.Limit | None) or not _is_plain(limit) or not _is_plain(offset):
        return None
    direction = _direction(tree.args.get("order"), table)
    if direction is None:
        return None
    return Window(None if limit is None else limit.expression, None if offset is None else offset.expression,
                  tree.args.get("order") is not None, direction)  # fmt: skip


def gives_one_value(call: exp.Anonymous) -> bool:
    """Whether a function gives one value for one row: an aggregate takes more rows, others give more."""
    name = str(call.this).lower()
    return name in calls.SPECIAL or (name in SCALARS and name not in AGGREGATES)


def _is_plain(node: exp.Expr | None) -> bool:
    value = None if node is None else node.expression
    return isinstance(value.this if isinstance(value, exp.Neg) else value, exp.Literal | exp.Placeholder | None)


def _direction(order: exp.Order | None, table: Table) -> bool | None:
    """Whether keys are wanted from the last to the first; None if the order is another than that of keys."""
    if order is None:
        return False
    columns: Sequence[exp.Expr] = order.expressions
    if len(columns) > len(table.primary_key):
        return None
    for node, column in zip(columns, table.primary_key, strict=False):
        inner = node.this if isinstance(node, exp.Ordered) else node
        if not isinstance(inner, exp.Column) or table_and_name(inner)[1] != column.name:
            return None
    down = {bool(isinstance(node, exp.Ordered) and node.args.get("desc")) for node in columns}
    return down.pop() if len(down) == 1 else None


def _number(what: str, sqlstate: str, node: exp.Expr | None, parameters: Parameters) -> int | None:
    if node is None:
        return None
    given: Any = given_value(node, parameters) if isinstance(node, exp.Placeholder) else constant(node)
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise SqlError(f"{what} must be a number, 0 or more, not {given!r}", sqlstate=sqlstate)
    return given
