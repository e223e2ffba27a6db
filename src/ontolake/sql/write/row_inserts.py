"""INSERT of one row of parameters, constants, DEFAULT and the time: worked out once, then run again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlglot import exp

from ontolake.sql.catalog.records import ColumnMeta, Table
from ontolake.sql.syntax.statements import NotConstant, Parameters, constant, mark_place
from ontolake.sql.types import Stored
from ontolake.sql.write import defaults
from ontolake.sql.write.assignments import is_default
from ontolake.sql.write.returning import plain_columns
from ontolake.sql.write.sequences import Numbers

Cell = Callable[[Any, Numbers], Stored]
"""Gives the stored value of a column, by the parameters of the statement."""


class RowInsert(NamedTuple):
    """How each column of a row gets its value, and which columns RETURNING gives back, with their names."""

    table: Table
    cells: Sequence[Cell]
    returned: tuple[list[ColumnMeta], list[str]] | None

    def row(self, parameters: Parameters, numbers: Numbers) -> list[Stored]:
        """The row for some parameters."""
        return [cell(parameters, numbers) for cell in self.cells]


def row_insert(
    table: Table, columns: Sequence[ColumnMeta], tree: exp.Insert, *, explicit: bool
) -> RowInsert | None:
    """An INSERT as one of these, if it is."""
    source, clause = tree.expression, tree.args.get("returning")
    if not isinstance(source, exp.Values) or tree.args.get("conflict") or len(source.expressions) != 1:
        return None
    row = source.expressions[0]
    nodes = row.expressions if isinstance(row, exp.Tuple) else [row.this if isinstance(row, exp.Paren) else row]
    returned = None if clause is None else plain_columns(clause, table, tree.this)
    if len(nodes) > len(columns) or (explicit and len(nodes) < len(columns)) or (clause and not returned):
        return None
    found: dict[int, Cell] = {}
    for column, node in zip(columns, nodes, strict=False):
        cell = _cell(column, node)
        if cell is None:
            return None
        found[column.column_id] = cell
    return RowInsert(table, [found.get(column.column_id) or _default(column) for column in table.columns], returned)


def _cell(column: ColumnMeta, node: exp.Expr) -> Cell | None:
    store = column.type.store
    if isinstance(node, exp.Placeholder):
        place: Any = mark_place(node)
        return lambda parameters, numbers: store(parameters[place])
    if is_default(node):
        return _default(column)
    if defaults.is_now(node):
        of = defaults.moment_of(column.type)
        return None if of is None else lambda parameters, numbers: of(numbers.moment)
    try:
        value = constant(node)
    except NotConstant:
        return None
    return lambda parameters, numbers: store(value)  # which 'today' says anew every day


def _default(column: ColumnMeta) -> Cell:
    return lambda parameters, numbers: defaults.value(column, numbers)
