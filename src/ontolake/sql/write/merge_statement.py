"""MERGE: one query joins the source with the target and says which clause each row belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.catalog.records import ColumnMeta, Table
from ontolake.sql.errors import DefinitionError, SqlError, SqlSyntaxError, UnsupportedError
from ontolake.sql.syntax.statements import name_of
from ontolake.sql.write.assignments import is_default

Assigned = list[tuple[ColumnMeta, exp.Expr | None]]


class Clause(NamedTuple):
    """A WHEN clause. `action` is `update`, `delete`, `insert` or `nothing`; `assigned` has None for a default."""

    matched: bool
    condition: exp.Expr | None
    action: str
    assigned: Assigned


def clauses_of(tree: exp.Merge, table: Table, assignments: Callable[[Table, Any], Assigned]) -> list[Clause]:
    """The clauses of a MERGE. Raises `SqlError`."""
    if tree.args.get("returning") is not None:
        raise SqlSyntaxError("MERGE has no RETURNING", hint="PostgreSQL has it from version 17 on")
    found = []
    for when in tree.args["whens"].expressions:
        matched, then = bool(when.args.get("matched")), when.args.get("then")
        if when.args.get("source"):
            raise SqlSyntaxError("WHEN NOT MATCHED BY SOURCE is not known",
                                 hint="PostgreSQL has it from version 17 on; use DELETE … WHERE NOT EXISTS")
        if isinstance(then, exp.Update):
            action, assigned = "update", assignments(table, then.expressions)
        elif isinstance(then, exp.Insert):
            action, assigned = "insert", _inserted(then, table)
        else:
            action, assigned = ("delete" if "DELETE" in str(then).upper() else "nothing"), []
        if action != "nothing" and (action == "insert") is matched:
            raise SqlSyntaxError(f"{action.upper()} does not belong to WHEN {'' if matched else 'NOT '}MATCHED")
        found.append(Clause(matched, when.args.get("condition"), action, assigned))
    _check_reachable(found)
    return found


def _inserted(node: exp.Insert, table: Table) -> Assigned:
    values = node.expression.expressions if isinstance(node.expression, exp.Tuple) else []
    if not values:  # INSERT DEFAULT VALUES
        return []
    names = node.this.expressions if isinstance(node.this, exp.Tuple) else []
    columns = [table.column(name_of(each.this if isinstance(each, exp.Column) else each)) for each in names] \
        or table.visible[: len(values)]  # fmt: skip
    if len(columns) != len(values):
        raise SqlSyntaxError(f"INSERT has {len(values)} values for {len(columns)} columns")
    if len({column.column_id for column in columns}) != len(columns):
        raise DefinitionError("a column is given twice", sqlstate="42701")
    return [(column, None if is_default(value) else value) for column, value in zip(columns, values, strict=True)]


def _check_reachable(clauses: list[Clause]) -> None:
    for matched in (True, False):
        some = [clause for clause in clauses if clause.matched is matched]
        if any(clause.condition is None for clause in some[:-1]):
            raise SqlSyntaxError("a WHEN clause comes behind one that takes all rows", hint="give conditions with AND")


def merge_query(tree: exp.Merge, table: Table, alias: str, clauses: list[Clause]) -> exp.Select:
    """A query for the columns of the target as `o0` …, which clause a row belongs to, and the values of clauses."""
    if isinstance(tree.args["using"], exp.Table) and alias == name_of(tree.args["using"].this) \
            and tree.args["using"].args.get("alias") is None:  # fmt: skip
        raise DefinitionError(f"{alias} is named twice", sqlstate="42712", hint="give one of them an alias")
    required = next((column for _, column in table.required), None)
    if required is None:
        raise UnsupportedError(f"MERGE INTO {table.full_name} needs a column that is NOT NULL")
    present = exp.column(exp.to_identifier(required.name, quoted=True), exp.to_identifier(alias, quoted=True))
    guards = _guards(clauses, present)
    outputs: list[exp.Expr] = [
        exp.alias_(exp.column(exp.to_identifier(column.name, quoted=True), exp.to_identifier(alias, quoted=True)),
                   f"o{n}") for n, column in enumerate(table.columns)]  # fmt: skip
    chosen = exp.Case(ifs=[exp.If(this=guard.copy(), true=exp.Literal.number(n)) for n, guard in enumerate(guards)])
    outputs.append(exp.alias_(chosen, "chosen$", quoted=True))
    for n, clause in enumerate(clauses):
        outputs += [exp.alias_(exp.Case(ifs=[exp.If(this=guards[n].copy(), true=node.copy())]), f"v{n}_{m}")
                    for m, (_, node) in enumerate(clause.assigned) if node is not None]  # fmt: skip
    query = exp.Select(expressions=outputs).from_(tree.args["using"].copy())
    return query.join(tree.this.copy(), on=tree.args["on"].copy(), join_type="left")


def _guards(clauses: list[Clause], present: exp.Expr) -> list[exp.Expr]:
    """For each clause, whether a row belongs to it: it is matched or not, and no clause before takes it."""
    found: list[exp.Expr] = []
    for n, clause in enumerate(clauses):
        missing = exp.Is(this=present.copy(), expression=exp.Null())
        parts: list[exp.Expr] = [exp.Not(this=missing) if clause.matched else missing]
        parts += [exp.Not(this=_holds(other.condition)) for other in clauses[:n]
                  if other.matched is clause.matched and other.condition is not None]  # fmt: skip
        if clause.condition is not None:
            parts.append(_holds(clause.condition))
        found.append(exp.and_(*parts))
    return found


def _holds(condition: exp.Expr) -> exp.Expr:
    return exp.paren(exp.Is(this=exp.paren(condition.copy()), expression=exp.true()))


def check_once(keys: list[bytes]) -> None:
    """Raise `SqlError` if a row of the target is to be changed twice."""
    if len(set(keys)) != len(keys):
        raise SqlError("MERGE cannot change a row a second time", sqlstate="21000",
                       hint="let at most one row of the source match each row of the target")


def numbers(chosen: pa.ChunkedArray, clause: int) -> list[int]:
    """The rows that belong to a clause."""
    return [n for n, value in enumerate(chosen.to_pylist()) if value == clause]
