"""Tables that a query sees in another form: with other names for their columns, or whole rows of them as values.

Such a table becomes a query of its own, `(SELECT * FROM t) AS x (a, b)`, which the executor names and takes rows from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sqlglot import exp

from ontolake.sql.catalog.records import Table
from ontolake.sql.syntax.statements import name_of


def derive(
    tree: exp.Expr, find: Callable[[exp.Table], Table | None], kinds: Collection[type[exp.Expr]]
) -> None:
    """Replace tables of a statement that are used so. `find` gives None for a name that is not a table's.

    `kinds` are those of all nodes of the statement.
    """
    for join in list(tree.find_all(exp.Subquery)) if exp.Subquery in kinds else ():
        if isinstance(join.this, exp.Table) and join.args.get("alias") is not None:
            join.set("this", exp.Select(expressions=[exp.Star()]).from_(join.this))
    for node in list(tree.find_all(exp.Table)):
        if not isinstance(node.this, exp.Identifier) or not isinstance(node.parent, exp.From | exp.Join | exp.Table):
            continue
        alias = node.args.get("alias")
        if alias is not None and alias.columns:
            if find(node) is not None:
                _wrap(node)
        elif (select := node.parent_select) is not None and _names_row(select, node):
            table = find(node)
            if table is not None and shown_name(node) not in table.by_name:
                _wrap(node)


def shown_name(node: exp.Table) -> str:
    """The name that a query has for a table."""
    alias = node.args.get("alias")
    return name_of(alias.this if alias is not None and alias.this is not None else node.this)


def _names_row(select: exp.Expr, node: exp.Table) -> bool:
    """Whether a query uses the name of a table like that of a column, or its star as a value."""
    name = shown_name(node)
    for column in select.find_all(exp.Column):
        if isinstance(column.this, exp.Star):
            if name_of(column.args.get("table")) == name and not isinstance(column.parent, exp.Select):
                return True
        elif not column.args.get("table") and name_of(column.this) == name:
            return True
    return False


def _wrap(node: exp.Table) -> None:
    alias = node.args.get("alias")
    inner = node.copy()
    inner.set("alias", None)
    inner.set("joins", None)
    name = exp.to_identifier(name_of(node.this), quoted=True)
    shown = alias.copy() if alias is not None else exp.TableAlias(this=name)
    query = exp.Select(expressions=[exp.Star()]).from_(inner)
    node.replace(exp.Subquery(this=query, alias=shown, joins=node.args.get("joins")))
