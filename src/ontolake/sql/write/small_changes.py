"""New values of a few rows, worked out in Python where their expressions are simple."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlglot import exp

from ontolake.sql.catalog.records import ColumnMeta, Table
from ontolake.sql.plan.conditions import table_and_name
from ontolake.sql.plan.small_queries import FEW
from ontolake.sql.plan.small_values import Run, Unable, compiled
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import Parameters
from ontolake.sql.types import BIGINT, BOOLEAN, TEXT, Stored, Type
from ontolake.sql.write.rows import Rows

Assigned = Sequence[tuple[ColumnMeta, "exp.Expr | None"]]
_SAME = (BIGINT, TEXT, BOOLEAN)
"""Types of which a value needs nothing more to be one of a column of that type."""


def changed_rows(table: Table, assigned: Assigned, found: Result) -> tuple[Rows, Rows] | None:
    """Rows before and after an UPDATE, of the answer of its query: old columns, then new values.

    None unless the rows are few and the values are of the types of the columns.
    """
    stored, width = found.stored(), len(table.columns)
    if stored is None or any(node is None for _, node in assigned):
        return None
    types = found.types[width : width + len(assigned)]
    if any(column.type not in _SAME or type != column.type for (column, _), type in zip(assigned, types, strict=True)):
        return None
    old = [list(row[:width]) for row in stored]
    places = [table.place[column.column_id] for column, _ in assigned]
    return Rows(table, tuples=old), _with_values(table, old, places, [row[width:] for row in stored])


def _with_values(
    table: Table, old: Sequence[Sequence[Stored]], places: Sequence[int], values: Sequence[Sequence[Stored]]
) -> Rows:
    new = [list(row) for row in old]
    for row, given in zip(new, values, strict=True):
        for place, value in zip(places, given, strict=False):
            row[place] = value
    return Rows(table, tuples=new)


class ConflictChange(NamedTuple):
    """What ON CONFLICT DO UPDATE makes of rows, compiled: new values by the places of columns, and its WHERE."""

    table: Table
    places: Sequence[int]
    runs: Sequence[Run]
    condition: Run | None

    def rows(self, old: Rows, given: Rows, parameters: Parameters) -> tuple[Rows, Rows] | None:
        """Rows before and after; None if there are many, or a value is not for Python."""
        if len(old) > FEW:
            return None
        try:
            envs = list(zip(old.tuples, given.tuples, strict=True))
            kept = [env for env in envs if self.condition is None or self.condition(env, parameters) is True]
            values = [[run(env, parameters) for run in self.runs] for env in kept]
        except Unable:
            return None
        before = [list(env[0]) for env in kept]
        return Rows(self.table, tuples=before), _with_values(self.table, before, self.places, values)


def conflict_change(
    table: Table, names: Mapping[str, int], assigned: Assigned, where: exp.Expr | None
) -> ConflictChange | None:
    """An ON CONFLICT DO UPDATE, by qualifiers (`names`) of the old row, 0, and the new one, 1.

    None if an expression is not that simple.
    """

    def resolve(node: exp.Column) -> tuple[int, int, Type] | None:
        qualifier, name = table_and_name(node)
        column = table.by_name.get(name)
        source = names.get(qualifier)
        return None if column is None or source is None else (source, table.place[column.column_id], column.type)

    try:
        runs = []
        for column, node in assigned:
            if node is None:
                return None
            value = compiled(node, resolve)
            if value.type != column.type or (column.type not in _SAME and not isinstance(node, exp.Column)):
                return None
            runs.append(value.run)
        condition = None if where is None else compiled(where, resolve)
        if condition is not None and condition.type != BOOLEAN:
            return None
    except Unable:
        return None
    places = [table.place[column.column_id] for column, _ in assigned]
    return ConflictChange(table, places, runs, None if condition is None else condition.run)
