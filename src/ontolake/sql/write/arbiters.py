"""What ON CONFLICT looks for conflicts in: the primary key, unique indexes on columns, on expressions and on parts."""

from __future__ import annotations

from sqlglot import exp

from ontolake.sql.catalog.records import IndexMeta, Table
from ontolake.sql.errors import DefinitionError, UnknownNameError, nearest
from ontolake.sql.plan.conditions import conjuncts
from ontolake.sql.plan.matching import facts, implies, normal
from ontolake.sql.syntax.statements import ParsedStatement, name_of, position_of


def arbiters(table: Table, conflict: exp.OnConflict, statement: ParsedStatement) -> list[IndexMeta | None]:
    """The primary key (None) or unique indexes that a conflict clause means. Raises `SqlError`."""
    named = conflict.args.get("constraint")
    if named is not None:
        return [_named(table, named, statement)]
    wanted = {_element(table, node, statement) for node in conflict.args.get("conflict_keys") or ()}
    if not wanted:
        return [None, *(index for index in table.indexes if index.unique)]
    where = conflict.args.get("index_predicate")
    known = facts(conjuncts(where), lambda column: True) if where is not None else frozenset()
    found: list[IndexMeta | None] = []
    if wanted == set(table.meta.primary_key_column_ids):
        found.append(None)
    found += [index for index in table.indexes if index.unique and _elements(index) == wanted
              and (not index.predicate or implies(known, index.predicate))]  # fmt: skip
    if not found:
        raise DefinitionError("no primary key or unique index is on just these columns", sqlstate="42P10",
                              hint="name the columns or expressions of one, and its WHERE")
    return found


def _named(table: Table, node: exp.Expr, statement: ParsedStatement) -> IndexMeta | None:
    name = name_of(node)
    if name == table.key_name:
        return None
    unique = {index.name: index for index in table.indexes if index.unique}
    if name not in unique:
        raise UnknownNameError(f"{table.full_name} has no constraint {name}", sqlstate="42704",
                               position=position_of(node, statement),
                               hint=nearest(name, [table.key_name, *unique]))  # fmt: skip
    return unique[name]


def _element(table: Table, node: exp.Expr, statement: ParsedStatement) -> int | str:
    """The id of a column, or the text of an expression."""
    inner = node.this if isinstance(node, exp.Ordered) else node
    while isinstance(inner, exp.Paren | exp.Collate):
        inner = inner.this
    if isinstance(inner, exp.Column | exp.Identifier):
        return table.column(name_of(inner), position_of(inner, statement)).column_id
    for column in inner.find_all(exp.Column):
        table.column(name_of(column.this), position_of(column, statement))
    return normal(inner) or ""


def _elements(index: IndexMeta) -> set[int | str]:
    return {*(id for id in index.column_ids if id > 0), *(part.sql for part in index.expressions)}
