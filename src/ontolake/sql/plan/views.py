"""Views: their queries take the place of their names before a statement is planned.

Comparisons of a view's columns with values move into its query, so that keys and indexes of its tables answer them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import sqlglot
from sqlglot import exp

from ontolake.sql.catalog.objects import ViewMeta
from ontolake.sql.errors import SqlError
from ontolake.sql.plan.conditions import conjuncts
from ontolake.sql.syntax.statements import DIALECT, name_of

Lookup = Callable[[exp.Table], ViewMeta | None]
"""Gives the view that a node names, if it is one."""
ALL = "all$"
"""The name of a query of all columns within the query of a view, which names them."""
_DEPTH = 64
_COMPARED = (exp.EQ, exp.LT, exp.GT, exp.LTE, exp.GTE, exp.Between, exp.In)
_VALUES = (exp.Literal, exp.Placeholder, exp.Boolean, exp.Neg, exp.Cast, exp.DataType, exp.Paren, exp.DataTypeParam)


@lru_cache(maxsize=256)
def _parsed(sql: str) -> exp.Expr:
    tree = sqlglot.parse_one(sql, dialect=DIALECT)
    for node in tree.walk():
        node.meta.clear()  # places in a text that is not the user's
    return tree


def query_of(view: ViewMeta) -> exp.Expr:
    """The query of a view."""
    return _parsed(view.sql).copy()


def expanded(tree: exp.Expr, lookup: Lookup) -> exp.Expr:
    """A statement with queries in place of views. The statement itself does not change."""
    if not _places(tree, lookup):
        return tree
    copy = tree.copy()
    for _ in range(_DEPTH):
        found = _places(copy, lookup)
        if not found:
            push_down(copy)
            return copy
        for node, view in found:
            _replace(node, view)
    raise SqlError("views are nested too deeply", sqlstate="54001")


def _places(tree: exp.Expr, lookup: Lookup) -> list[tuple[exp.Table, ViewMeta]]:
    """The nodes of a statement that name views."""
    ctes = {name_of(each.args["alias"].this) for each in tree.find_all(exp.CTE)}
    found = []
    for node in tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier) or (
                not node.args.get("db") and name_of(node.this) in ctes):
            continue
        if (view := lookup(node)) is not None:
            found.append((node, view))
    return found


def _replace(node: exp.Table, view: ViewMeta) -> None:
    query = query_of(view)
    if (version := node.args.get("version")) is not None:
        for table in query.find_all(exp.Table):
            if table.args.get("version") is None:
                table.set("version", version.copy())
    alias = node.args.get("alias")
    columns = [exp.to_identifier(name, quoted=True) for name in view.columns]
    if alias is not None and alias.columns:
        columns = [each.copy() for each in alias.columns] + columns[len(alias.columns) :]
    shown = exp.to_identifier(view.name, quoted=True) if alias is None or alias.this is None else alias.this.copy()
    subquery = exp.Subquery(this=query, alias=exp.TableAlias(this=shown, columns=columns), joins=node.args.get("joins"))
    node.replace(subquery)


# moving conditions

def push_down(tree: exp.Expr) -> None:
    """Copy comparisons of columns with values from a WHERE into the derived tables that have the columns."""
    for select in list(tree.find_all(exp.Select)):
        where = select.args.get("where")
        if where is None:
            continue
        sources = list(_sources(select))
        derived = {name_of(each.args["alias"].this): each for each in sources
                   if isinstance(each, exp.Subquery) and each.args.get("alias") is not None
                   and each.args["alias"].this is not None}  # fmt: skip
        for part in conjuncts(where):
            column = _compared(part)
            if column is None:
                continue
            owner = name_of(column.args.get("table"))
            if not owner and len(sources) == 1:
                owner = next(iter(derived), "")
            if owner in derived:
                _push(derived[owner], name_of(column.this), part, column)


def _sources(select: exp.Select) -> Iterator[exp.Expr]:
    if (first := select.args.get("from_")) is not None:
        yield first.this
    for join in select.args.get("joins") or ():
        yield join.this


def _compared(part: exp.Expr) -> exp.Column | None:
    """The column that a condition compares with values, if it is of that kind: NULL never satisfies it."""
    if not isinstance(part, _COMPARED) or part.args.get("query") is not None or part.find(exp.Query) is not None:
        return None
    columns = list(part.find_all(exp.Column))
    sides = [part.this] if isinstance(part, exp.In | exp.Between) else [part.this, part.expression]
    if len(columns) != 1 or not any(side is columns[0] for side in sides):
        return None
    inside = (exp.Column, exp.Identifier, *_VALUES, type(part))
    return columns[0] if all(isinstance(node, inside) for node in part.walk()) else None


def _push(subquery: exp.Subquery, name: str, part: exp.Expr, column: exp.Column) -> None:
    """Add a condition on a column of a derived table to its query, where that gives the same rows."""
    query = subquery.this
    names = [name_of(each) for each in subquery.args["alias"].columns]
    while isinstance(query, exp.Subquery):
        query = query.this
    if isinstance(query, exp.SetOperation) or not isinstance(query, exp.Select) or any(
            query.args.get(each) for each in ("limit", "offset", "having", "qualify", "windows", "fetch", "distinct")):
        return
    if query.find(exp.Window) is not None:
        return
    target = _inner_column(query, names, name)
    group = query.args.get("group")
    if target is None or (group is None and query.find(exp.AggFunc) is not None):
        return
    if group is not None and target not in group.expressions:
        return
    moved = part.copy()
    place = next(node for node in moved.find_all(exp.Column) if node == column)
    place.replace(target.copy())
    query.where(moved, copy=False)


def _inner_column(query: exp.Select, names: list[str], name: str) -> exp.Column | None:
    """The column of a query's sources that it gives under a name."""
    outputs = query.expressions
    if len(outputs) == 1 and isinstance(outputs[0], exp.Star) and not names:
        sources = list(_sources(query))
        return exp.column(exp.to_identifier(name, quoted=True)) if len(sources) == 1 else None
    if any(each.is_star for each in outputs):
        return None
    shown = [names[n] if n < len(names) else name_of(each.args["alias"]) if isinstance(each, exp.Alias) else
             name_of(each.this) if isinstance(each, exp.Column) else "" for n, each in enumerate(outputs)]  # fmt: skip
    if shown.count(name) != 1:
        return None
    found = outputs[shown.index(name)].unalias()
    return found if isinstance(found, exp.Column) else None
