"""New values of a few rows, worked out in Python where their expressions are simple."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sqlglot import exp

from ontolake.sql.catalog.records import ColumnMeta, Table
from ontolake.sql.plan.conditions import table_and_name
from ontolake.sql.plan.small_queries import FEW
from ontolake.sql.plan.small_values import Run, Unable, compiled
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import Parameters
from ontolake.sql.types import BIGINT, BOOLEAN, INTEGER, SMALLINT, TEXT, Stored, Type
from ontolake.sql.write import defaults
from ontolake.sql.write.assignments import is_given
from ontolake.sql.write.rows import Rows

Assigned = Sequence[tuple[ColumnMeta, "exp.Expr | None"]]
Values = Callable[[ColumnMeta, "exp.Expr | None"], Stored]
"""Gives the stored value of a column that is the same for all rows."""
_SAME = (BIGINT, TEXT, BOOLEAN, SMALLINT, INTEGER)
"""Types of which a value needs nothing more to be one of a column of that type."""


def computed(assigned: Assigned) -> list[exp.Expr]:
    """The values that depend on the row that they are set in."""
    return [node for _, node in assigned if node is not None and not is_given(node)]


def changed_rows(table: Table, assigned: Assigned, found: Result, value: Values) -> tuple[Rows, Rows] | None:
    """Rows before and after an UPDATE, of the answer of its query: old columns, then values that depend on the row.

    None unless the rows are few and those values are of the types of the columns.
    """
    stored, width = found.stored(), len(table.columns)
    if stored is None or any(node is None and not defaults.is_fixed(column) for column, node in assigned):
        return None
    places: list[int] = []
    same: list[tuple[int, Stored]] = []
    for column, node in assigned:
        place = table.place[column.column_id]
        if node is None or is_given(node):
            same.append((place, value(column, node)))
        elif column.type not in _SAME or found.types[width + len(places)] != column.type:
            return None
        else:
            places.append(place)
    old = [list(row[:width]) for row in stored]
    given = [each for _, each in same]
    places += [place for place, _ in same]
    return Rows(table, tuples=old), _with_values(table, old, places, [
        [*row[width : width + len(places) - len(given)], *given] for row in stored])


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
