"""Expressions and conditions of indexes, in one form of text, so that a query which has the same one is recognised."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.catalog.records import IndexExpression, IndexMeta, Table
from ontolake.sql.errors import DefinitionError, TypeMismatchError, UnsupportedError
from ontolake.sql.keyspace.columns import stored_array
from ontolake.sql.plan import execution
from ontolake.sql.plan.matching import normal
from ontolake.sql.syntax.statements import name_of, parse_expression
from ontolake.sql.types import BOOLEAN, Type, from_arrow
from ontolake.sql.write import defaults


def expression(table: Table, node: exp.Expr, position: int | None) -> IndexExpression:
    """An expression that an index is on. Raises `DefinitionError` for one that may change by itself."""
    sql = _checked(table, node, position)
    return IndexExpression(sql, _type(table, sql))


def predicate(table: Table, node: exp.Expr, position: int | None) -> str:
    """The condition of an index on a part of a table."""
    sql = _checked(table, node, position)
    if _type(table, sql) != BOOLEAN:
        raise TypeMismatchError("the WHERE of an index has to be a condition", position=position)
    return sql


def _checked(table: Table, node: exp.Expr, position: int | None) -> str:
    if node.find(exp.Query):
        raise UnsupportedError("an index cannot contain a query", position=position)
    if node.find(exp.Window):
        raise DefinitionError("an index cannot contain a window function", sqlstate="42P20", position=position)
    if defaults.is_volatile(node):
        raise DefinitionError("the expression of an index does not always give the same", sqlstate="42P17",
                              position=position)
    for column in node.find_all(exp.Column):
        table.column(name_of(column.this), position)
    sql = normal(node)
    assert sql is not None
    return sql


def _type(table: Table, sql: str) -> Type:
    rows = pa.table([stored_array(column.type, [None, None]) for column in table.columns],
                    names=[column.name for column in table.columns])
    found = execution.run(exp.select(parse_expression(sql).as_("v")).from_("t0"), {"t0": rows})
    if found.num_rows != rows.num_rows:
        raise DefinitionError("an index cannot contain an aggregate function", sqlstate="42803")
    type = from_arrow(found.schema.field(0).type)
    if type is None:
        raise UnsupportedError(f"an index cannot be on values of the type {found.schema.field(0).type}",
                               hint="convert them with CAST")
    return type


def label(node: exp.Expr) -> str:
    """What an expression adds to the name of an index that has none."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    if isinstance(node, exp.Func) and not isinstance(node, exp.Binary | exp.Connector | exp.Cast | exp.Case):
        return node.sql_name().lower()
    return "expr"


def columns_of(index: IndexMeta) -> set[str]:
    """The columns that the expressions and the condition of an index name."""
    texts = [*(each.sql for each in index.expressions), *([index.predicate] if index.predicate else [])]
    return {name for text in texts for name in defaults.columns_of(text)}
