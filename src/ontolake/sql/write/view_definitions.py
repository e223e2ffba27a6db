"""CREATE, DROP and ALTER VIEW, and what happens to views when the tables that they read change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from sqlglot import exp

from ontolake.sql.catalog.objects import ViewMeta
from ontolake.sql.catalog.records import Table, entries_of, now
from ontolake.sql.errors import (
    DefinitionError,
    DuplicateNameError,
    SqlError,
    SqlSyntaxError,
    UnknownNameError,
    UnsupportedError,
)
from ontolake.sql.plan.views import ALL, query_of
from ontolake.sql.syntax.statements import DIALECT, name_of, position_of
from ontolake.sql.write.properties import is_idle

if TYPE_CHECKING:
    from ontolake.sql.write.ddl import Definer

Qualify = Callable[[exp.Table], tuple[str, str, str]]
"""The database, schema and name of what a node of a query names. Raises `UnknownNameError`."""
Describe = Callable[[exp.Expr], pa.Schema]
"""The names and types of the columns that a query gives."""


def create(definer: Definer, tree: exp.Create, qualify: Qualify, describe: Describe) -> None:
    """Run CREATE VIEW."""
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    given = [name_of(each) for each in tree.this.expressions] if isinstance(tree.this, exp.Schema) else []
    query = tree.expression
    if not isinstance(query, exp.Query | exp.Values):
        raise UnsupportedError("this form of CREATE VIEW is not supported")
    properties = [] if (given_words := tree.args.get("properties")) is None else given_words.expressions
    for each in properties:
        if not is_idle(each):
            raise UnsupportedError(f"{each.sql(DIALECT)} is not supported with CREATE VIEW",
                                   hint="a view is always there for all; CREATE TABLE AS keeps rows")
    if query.find(exp.Placeholder) is not None:
        raise SqlError("a view has no parameters", sqlstate="42P02")
    parts = [name_of(each) for each in (node.args.get("catalog"), node.args.get("db"), node.this) if each is not None]
    schema, name = definer.new_place(parts)
    old = definer.catalog.objects.get((schema.schema_id, name))
    if not (tree.args.get("replace") and isinstance(old, ViewMeta)):
        if tree.args.get("replace") and definer.catalog.relation(schema.schema_id, name) is not None:
            raise DefinitionError(f"{name} is not a view", sqlstate="42809",
                                  position=position_of(node, definer.statement))
        definer.check_relation(schema.schema_id, name, node)
    described = describe(query)
    columns = (*given, *described.names[len(given) :])
    _check_columns(name, given, columns, described)
    sql = _frozen(query, described.names, qualify).sql(DIALECT)
    kinds = tuple(str(type) for type in described.types)
    made = ViewMeta(object_id=definer.session.next_id("table"), db_id=schema.db_id, schema_id=schema.schema_id,
                    name=name, created_at=now(), sql=sql, columns=columns, types=kinds)  # fmt: skip
    if isinstance(old, ViewMeta):
        _check_replaced(old, made)
        made = msgspec.structs.replace(made, object_id=old.object_id, created_at=old.created_at)
    definer.put(made)


def _check_columns(name: str, given: list[str], columns: tuple[str, ...], described: pa.Schema) -> None:
    if len(given) > len(described.names):
        raise SqlSyntaxError(f"the query of {name} gives {len(described.names)} columns, and {len(given)} are named")
    if doubled := next((each for each in columns if columns.count(each) > 1), None):
        raise DuplicateNameError(f"the view {name} has two columns {doubled}", sqlstate="42701",
                                 hint="name them with AS")  # fmt: skip


def _check_replaced(old: ViewMeta, new: ViewMeta) -> None:
    """Raise `DefinitionError` if a view would lose, rename or retype columns."""
    for n, (name, kind) in enumerate(zip(old.columns, old.types, strict=True)):
        if n >= len(new.columns):
            raise DefinitionError(f"the column {name} of the view {old.name} cannot be dropped",
                                  hint="DROP the view first")
        if (name, kind) != (new.columns[n], new.types[n]):
            raise DefinitionError(f"the column {name} of the view {old.name} cannot become another",
                                  hint="add columns behind those that are there, or DROP the view first")


def _frozen(query: exp.Expr, names: list[str], qualify: Qualify) -> exp.Expr:
    """A query that means the same tables and columns whatever comes later."""
    copy = query.copy()
    ctes = {name_of(each.args["alias"].this) for each in copy.find_all(exp.CTE)}
    for node in list(copy.find_all(exp.Table)):
        if not isinstance(node.this, exp.Identifier) or (not node.args.get("db") and name_of(node.this) in ctes):
            continue
        if node.args.get("alias") is None:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(name_of(node.this), quoted=True)))
        for part, name in zip(("catalog", "db", "this"), qualify(node), strict=True):
            node.set(part, exp.to_identifier(name, quoted=True))
    query = copy
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if not any(each.is_star for each in query.expressions):
        return copy
    outputs = [exp.column(exp.to_identifier(name, quoted=True)) for name in names]
    inner = exp.Subquery(this=copy, alias=exp.TableAlias(this=exp.to_identifier(ALL, quoted=True)))
    return exp.Select(expressions=outputs).from_(inner)


def find(definer: Definer, node: exp.Table) -> ViewMeta:
    """The view that a node names. Raises `UnknownNameError`."""
    names = definer.names(node)
    try:
        return definer.catalog.object(ViewMeta, *names, position_of(node, definer.statement))
    except UnknownNameError:
        if definer.catalog.has(*names):
            raise DefinitionError(f"{names[2]} is not a view", sqlstate="42809", hint="use DROP TABLE") from None
        raise


def drop(definer: Definer, node: exp.Table, cascade: bool) -> None:
    """Run DROP VIEW for one view."""
    view = find(definer, node)
    going(definer, definer.catalog.object_name(view), None, cascade)
    definer.remove(view)
    definer.remove_parts(view.object_id)


def alter(definer: Definer, tree: exp.Alter) -> bool:
    """Run ALTER VIEW: rename it or one of its columns. Returns whether there is one."""
    try:
        view = find(definer, tree.this)
    except UnknownNameError:
        if tree.args.get("exists"):
            return False
        raise
    for action in tree.args["actions"]:
        if isinstance(action, exp.AlterRename):
            name = definer.new_name(name_of(action.this.this), action)
            definer.check_relation(view.schema_id, name, action)
            full = definer.catalog.object_name(view)
            definer.writer.define([msgspec.structs.replace(view, name=name)], [entries_of(view)[1][0]])
            renamed(definer, full, name)
        elif isinstance(action, exp.RenameColumn):
            old, new = name_of(action.this), name_of(action.args["to"])
            if old not in view.columns:
                raise UnknownNameError(f"the view {view.name} has no column {old}", sqlstate="42703")
            if new in view.columns:
                raise DuplicateNameError(f"the view {view.name} has a column {new}", sqlstate="42701")
            going(definer, definer.catalog.object_name(view), old, cascade=False)
            columns = tuple(new if each == old else each for each in view.columns)
            definer.put(msgspec.structs.replace(view, columns=columns))
        else:
            raise UnsupportedError("a view can only be renamed", hint="use CREATE OR REPLACE VIEW")
    return True


# what tables do to views

def _uses(view: ViewMeta, name: str, column: str | None) -> bool:
    """Whether a view reads a table or view, or a column of it."""
    query = query_of(view)
    aliases = {name_of(node.args["alias"].this) for node in query.find_all(exp.Table)
               if ".".join(name_of(node.args.get(part)) for part in ("catalog", "db", "this")) == name}  # fmt: skip
    if not aliases or column is None:
        return bool(aliases)
    return any(name_of(node.this) == column and name_of(node.args.get("table")) in ("", "all$", *aliases)
               for node in query.find_all(exp.Column) if not isinstance(node.this, exp.Star))  # fmt: skip


def users_of(definer: Definer, name: str, column: str | None = None) -> list[ViewMeta]:
    """The views that read a table or view, or a column of it."""
    views = [each for each in definer.catalog.objects.values() if isinstance(each, ViewMeta)]
    return [each for each in views if _uses(each, name, column)]


def going(definer: Definer, name: str, column: str | None, cascade: bool) -> None:
    """Drop the views that need a table, view or column which is dropped. Raises `SqlError` without CASCADE."""
    for view in users_of(definer, name, column):
        full = definer.catalog.object_name(view)
        if not cascade:
            what = name if column is None else f"{name}.{column}"
            raise SqlError(f"the view {full} needs {what}", sqlstate="2BP01", hint="add CASCADE to drop the view too")
        going(definer, full, None, cascade)
        if view.key in definer.catalog.records:
            definer.remove(view)
            definer.remove_parts(view.object_id)


def renamed(definer: Definer, name: str, new: str) -> None:
    """Let views that read a table or view follow it to its new name."""
    for view in users_of(definer, name):
        query = query_of(view)
        for node in query.find_all(exp.Table):
            if ".".join(name_of(node.args.get(part)) for part in ("catalog", "db", "this")) == name:
                node.set("this", exp.to_identifier(new, quoted=True))
        definer.put(msgspec.structs.replace(view, sql=query.sql(DIALECT)))


def check_column(definer: Definer, table: Table, column: str, what: str) -> None:
    """Raise `UnsupportedError` if a column is to be changed that views read."""
    for view in users_of(definer, table.full_name, column)[:1]:
        raise UnsupportedError(f"the column {table.full_name}.{column} cannot {what}: the view {view.name} reads it",
                               hint="DROP the view, and CREATE it again afterwards")
