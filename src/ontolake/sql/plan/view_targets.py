"""Views that INSERT, UPDATE and DELETE name: a simple one stands for its table, as in PostgreSQL.

Simple is a query of one table, without groups, sets, limits and the like. Columns of the view are replaced by those of
the table, its WHERE is added to that of the statement, and RETURNING keeps the view's names.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlglot import exp

from ontolake.sql.catalog.objects import ViewMeta
from ontolake.sql.errors import SqlError, UnknownNameError, UnsupportedError, nearest
from ontolake.sql.executor.names import output_name
from ontolake.sql.plan.views import ALL, Lookup, query_of
from ontolake.sql.syntax.statements import name_of

_DEPTH = 64
_VERBS: dict[type[exp.Expr], str] = {exp.Insert: "insert into", exp.Update: "update", exp.Delete: "delete from"}
_REFUSED = ("joins", "laterals", "group", "having", "distinct", "limit", "offset", "with_", "windows", "qualify")


class _Target(NamedTuple):
    """A view that is changed: the name that the statement has for it, and what its columns are of the table."""

    view: ViewMeta
    alias: str
    columns: dict[str, exp.Expr]

    def column(self, name: str) -> exp.Expr:
        """The expression of a column. Raises `UnknownNameError`."""
        if name not in self.columns:
            raise UnknownNameError(f"the view {self.view.name} has no column {name}", sqlstate="42703",
                                   hint=nearest(name, self.columns))  # fmt: skip
        return self.columns[name]

    def assigned(self, name: str, verb: str) -> exp.Identifier:
        """The table's column that a column of the view stands for. Raises `UnsupportedError` if it is computed."""
        found = self.column(name)
        if not isinstance(found, exp.Column):
            raise UnsupportedError(f'cannot {verb} column "{name}" of view "{self.view.name}"',
                                   hint="it is not a column of the table that the view reads")
        return exp.to_identifier(name_of(found.this), quoted=True)


def retargeted(tree: exp.Expr, lookup: Lookup) -> exp.Expr:
    """A statement that changes tables in place of the views that it names. Raises `SqlError` (55000)."""
    if not any(_view(node, lookup) for node in tree.find_all(*_VERBS)):
        return tree
    copy = tree.copy()
    for node in list(copy.find_all(*_VERBS)):
        for _ in range(_DEPTH):
            view = _view(node, lookup)
            if view is None:
                break
            _retarget(node, view)
        else:
            raise SqlError("views are nested too deeply", sqlstate="54001")
    return copy


def _named(node: exp.Expr) -> exp.Table | None:
    target = node.this.this if isinstance(node.this, exp.Schema) else node.this
    return target if isinstance(target, exp.Table) else None


def _view(node: exp.Expr, lookup: Lookup) -> ViewMeta | None:
    target = _named(node)
    return None if target is None else lookup(target)


def _retarget(node: exp.Expr, view: ViewMeta) -> None:
    query, verb = _unwrapped(query_of(view)), _VERBS[type(node)]
    source = _simple(query, view, verb)
    table = _named(node)
    assert table is not None
    assert isinstance(query, exp.Select)
    given = table.args.get("alias")
    alias = name_of(given.this) if given is not None and given.this is not None else view.name
    outputs = [each.unalias() for each in query.expressions]
    target = _Target(view, alias, dict(zip(view.columns, (_of(each, alias) for each in outputs), strict=True)))
    base = source.copy()
    base.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    if isinstance(node, exp.Insert):
        _insert(node, target, base)
    else:
        _change(node, target, base, query)
    _return(node, target)


def _unwrapped(query: exp.Expr) -> exp.Expr:
    """The query of a view of all columns, which is kept within one that names them, with these names."""
    clause = query.args.get("from_")
    inner = clause.this.this if clause is not None and isinstance(clause.this, exp.Subquery) else None
    if clause is None or clause.this.alias != ALL or not isinstance(inner, exp.Select) or not (
            len(inner.expressions) == 1 and inner.expressions[0].is_star):  # fmt: skip
        return query
    inner.set("expressions", [each.copy() for each in query.expressions])
    return inner


def _simple(query: exp.Expr, view: ViewMeta, verb: str) -> exp.Table:
    """The table that a simple view reads. Raises `SqlError` (55000) for other views."""
    clause = query.args.get("from_") if isinstance(query, exp.Select) else None
    source = None if clause is None else clause.this
    where = query.args.get("where")
    if (not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier) or source.args.get("joins")
            or any(query.args.get(name) for name in _REFUSED) or any(each.is_star for each in query.expressions)
            or any(each.find(exp.Window, exp.Query) or _aggregates(each) for each in query.expressions)
            or source.args.get("version") is not None):  # fmt: skip
        raise SqlError(f'cannot {verb} view "{view.name}"', sqlstate="55000",
                       hint="only a query of one table without DISTINCT, GROUP BY, LIMIT and the like can be changed")
    if where is not None and where.find(exp.Query) is not None:
        raise UnsupportedError(f'cannot {verb} view "{view.name}": its WHERE has a query in it',
                               hint="change the table that it reads")
    return source


def _aggregates(node: exp.Expr) -> bool:
    from ontolake.sql.executor.signatures import AGGREGATES, ROW_FUNCTIONS

    names = {str(each.this).lower() for each in node.find_all(exp.Anonymous)}
    return bool(names & ({*AGGREGATES, "count", "avg"} | ROW_FUNCTIONS))


def _of(node: exp.Expr, alias: str) -> exp.Expr:
    """An expression of a view's query with the name that the statement has for its table."""
    holder = exp.Paren(this=node.copy())
    for column in list(holder.find_all(exp.Column)):
        column.replace(exp.column(exp.to_identifier(name_of(column.this), quoted=True),
                                  exp.to_identifier(alias, quoted=True)))
    found: exp.Expr = holder.this
    return found


def _insert(node: exp.Insert, target: _Target, base: exp.Table) -> None:
    names = [name_of(each) for each in node.this.expressions] if isinstance(node.this, exp.Schema) else []
    if not names:
        names = list(target.columns)[: _width(node.expression, len(target.columns))]
    given = [target.assigned(name, "insert into") for name in names]
    node.set("this", exp.Schema(this=base, expressions=given) if given else base)
    conflict = node.args.get("conflict")
    if conflict is not None:
        _rewrite(conflict, target)
        _assign(conflict, target)


def _width(source: exp.Expr | None, most: int) -> int:
    if isinstance(source, exp.Values) and source.expressions:
        row = source.expressions[0]
        return len(row.expressions) if isinstance(row, exp.Tuple) else 1
    if isinstance(source, exp.Query) and not any(each.is_star for each in source.selects):
        return len(source.selects)
    return most if source is not None else 0


def _change(node: exp.Expr, target: _Target, base: exp.Table, query: exp.Select) -> None:
    for name in ("where", "from_", "using"):
        for part in _parts(node.args.get(name)):
            _rewrite(part, target)
    if isinstance(node, exp.Update):
        for each in node.expressions:
            if isinstance(each, exp.EQ):
                holder = exp.Paren(this=each.expression.copy())
                _rewrite(holder, target)
                each.set("expression", holder.this)
        _assign(node, target)
    own = query.args.get("where")
    if own is not None:
        tests = [_of(own.this, target.alias), *([node.args["where"].this] if node.args.get("where") else [])]
        node.set("where", exp.Where(this=exp.and_(*(exp.Paren(this=each.copy()) for each in tests))))
    node.set("this", base)


def _parts(found: object) -> list[exp.Expr]:
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, exp.Expr)]


def _assign(node: exp.Expr, target: _Target) -> None:
    """Make the columns that SET names those of the table."""
    for each in node.expressions:
        if not isinstance(each, exp.EQ):
            continue
        left = each.this.expressions if isinstance(each.this, exp.Tuple) else [each.this]
        for column in left:
            inner = column.this if isinstance(column, exp.Paren) else column
            if isinstance(inner, exp.Column) and not inner.args.get("table"):
                inner.set("this", target.assigned(name_of(inner.this), "update"))


def _rewrite(part: exp.Expr, target: _Target) -> None:
    """Replace the columns of a view in a part of a statement, other than those that SET names."""
    assigned = {id(column) for each in part.args.get("expressions") or () if isinstance(each, exp.EQ)
                and isinstance(part, exp.OnConflict) for column in each.this.find_all(exp.Column)}  # fmt: skip
    for column in list(part.find_all(exp.Column)):
        qualifier, name = name_of(column.args.get("table")), name_of(column.this)
        if id(column) in assigned or isinstance(column.this, exp.Star) or _is_hidden(column, target):
            continue
        if qualifier == "excluded" and isinstance(part, exp.OnConflict):
            column.set("this", target.assigned(name, "insert into"))
        elif qualifier == target.alias:
            column.replace(_value(target.column(name)))
        elif not qualifier and name in target.columns:
            found = target.columns[name]
            if column.find_ancestor(exp.Query) is None:
                column.replace(_value(found))
            elif not isinstance(found, exp.Column) or name_of(found.this) != name:
                raise UnsupportedError(f"{name} within a query may be a column of the view {target.view.name}",
                                       hint=f"write {target.alias}.{name}")


def _is_hidden(column: exp.Column, target: _Target) -> bool:
    """Whether a query around a column reads the view, or something else, under the same name."""
    query = column.find_ancestor(exp.Select)
    while query is not None:
        clause = query.args.get("from_")
        sources = [each.this for each in (clause, *(query.args.get("joins") or ())) if each is not None]
        if any(str(each.alias_or_name).lower() == target.alias for each in sources):
            return True
        query = query.find_ancestor(exp.Select)
    return False


def _value(found: exp.Expr) -> exp.Expr:
    return found.copy() if isinstance(found, exp.Column) else exp.Paren(this=found.copy())


def _return(node: exp.Expr, target: _Target) -> None:
    clause = node.args.get("returning")
    if clause is None:
        return
    outputs: list[exp.Expr] = []
    for each in clause.expressions:
        whole = isinstance(each, exp.Star) or (
            isinstance(each, exp.Column) and isinstance(each.this, exp.Star)
            and name_of(each.args.get("table")) == target.alias)  # fmt: skip
        if whole:
            outputs += [exp.alias_(_value(found), name, quoted=True) for name, found in target.columns.items()]
            continue
        holder = exp.Paren(this=each.unalias().copy())
        _rewrite(holder, target)
        outputs.append(exp.alias_(holder.this, output_name(each), quoted=True))
    clause.set("expressions", outputs)
