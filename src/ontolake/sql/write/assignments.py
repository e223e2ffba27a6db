"""What SET and VALUES give to columns: values, DEFAULT, rows of values and of queries."""

from __future__ import annotations

from sqlglot import exp

from ontolake.sql.catalog.records import Table
from ontolake.sql.errors import SqlError, SqlSyntaxError
from ontolake.sql.plan.queries import output_names
from ontolake.sql.syntax.statements import NotConstant, ParsedStatement, constant, name_of, position_of


def singly(node: exp.Expr) -> list[exp.Expr]:
    """`(a, b) = (1, 2)` as `a = 1` and `b = 2`, also with the columns of a query. Raises `SqlSyntaxError`."""
    if not isinstance(node, exp.EQ) or not isinstance(node.this, exp.Tuple | exp.Paren):
        return [node]
    columns = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this.this]
    row = node.expression
    if isinstance(row, exp.Subquery):
        return [exp.EQ(this=column, expression=_nth(row, n, len(columns))) for n, column in enumerate(columns)]
    if isinstance(row, exp.Anonymous) and row.name.upper() != "ROW":
        return [node]
    values = row.expressions if isinstance(row, exp.Tuple | exp.Anonymous) else [row]
    if len(values) != len(columns):
        raise SqlSyntaxError(f"SET has {len(values)} values for {len(columns)} columns")
    return [exp.EQ(this=column, expression=value) for column, value in zip(columns, values, strict=True)]


def _nth(row: exp.Subquery, number: int, count: int) -> exp.Expr:
    """One of the columns of a query that gives one row. Raises `SqlSyntaxError` if it has another number of them."""
    names = output_names(row)
    if names is not None and len(names) != count:
        raise SqlSyntaxError(f"the query gives {len(names)} columns for {count}")
    inner = row.copy()
    alias = exp.TableAlias(this=exp.to_identifier("row$", quoted=True),
                           columns=[exp.to_identifier(f"c{n}") for n in range(count)])  # fmt: skip
    inner.set("alias", alias)
    return exp.Subquery(this=exp.Select(expressions=[exp.column(f"c{number}")]).from_(inner))


def is_default(node: exp.Expr) -> bool:
    inner = node.this if isinstance(node, exp.Column) else node
    word = isinstance(inner, exp.Var | exp.Identifier) and not inner.args.get("quoted")
    return bool(word and inner.name.upper() == "DEFAULT")


def is_given(node: exp.Expr) -> bool:
    """Whether a value stands in the statement or its parameters."""
    if isinstance(node, exp.Placeholder):
        return True
    try:
        constant(node)
    except NotConstant:
        return False
    return True


def check_qualified(conflict: exp.OnConflict, table: Table, statement: ParsedStatement) -> None:
    """Raise `SqlError` for a column of ON CONFLICT DO UPDATE that could be of the row or of `excluded`."""
    parts = [node.expression for node in conflict.expressions if isinstance(node, exp.EQ)]
    parts += [conflict.args["where"].this] if conflict.args.get("where") is not None else []
    for column in (each for part in parts for each in part.find_all(exp.Column)):
        inner = column.find_ancestor(exp.Query, exp.OnConflict)
        if not column.table and not isinstance(inner, exp.Query) and name_of(column.this) in table.by_name:
            raise SqlError(f"the column {name_of(column.this)} is ambiguous", sqlstate="42702",
                           position=position_of(column, statement), hint=f"write {table.name}.… or excluded.…")
