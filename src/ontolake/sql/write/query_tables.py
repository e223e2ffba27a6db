"""CREATE TABLE … AS and SELECT … INTO: a query gives a new table its columns and rows, in one commit.

A column that the query takes from a table, or casts, has the type that is declared there; others have the type of the
answer, where numbers and text have no limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec
import pyarrow as pa
from sqlglot import exp

from ontolake.sql import types
from ontolake.sql.catalog.coercion import is_comparable
from ontolake.sql.catalog.objects import EnumMeta
from ontolake.sql.catalog.records import ColumnMeta, SqlCatalog
from ontolake.sql.errors import DefinitionError, DuplicateNameError, SqlError, SqlSyntaxError, UnsupportedError
from ontolake.sql.history.table_functions import is_historical
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import Parameters, ParsedStatement, bound, name_of
from ontolake.sql.types import Kind, Type
from ontolake.sql.write import bulk, ddl
from ontolake.sql.write.properties import refuse_properties
from ontolake.sql.write.sequences import calls_in

if TYPE_CHECKING:
    from ontolake.sql.naming import StatementNames
    from ontolake.sql.plan.queries import Find
    from ontolake.sql.write.ddl import Definer

Called = Callable[[str, Sequence[exp.Expr], Parameters], tuple[ParsedStatement, tuple[Any, ...]]]
"""The prepared statement of a name, and the values for its parameters that nodes stand for."""
Run = Callable[[exp.Expr], Result]
"""Answers a query."""
_Source = list[tuple[str, Type | None]]
"""The columns of something in FROM, and their types where these are declared."""


def is_query_table(tree: exp.Expr | None) -> TypeGuard[exp.Create]:
    """Whether a statement makes a table of a query."""
    return isinstance(tree, exp.Create) and str(tree.kind).upper() == "TABLE" and (
        tree.args.get("expression") is not None
        or any(isinstance(each, exp.ExecuteAsProperty) for each in _properties(tree)))  # fmt: skip


def source(tree: exp.Create, params: Parameters, called: Called) -> exp.Expr:
    """The query of such a statement with values in place of parameters. `called` finds prepared statements."""
    for each in _properties(tree):
        if isinstance(each, exp.ExecuteAsProperty):
            call = each.this
            name, nodes = (str(call.this).lower(), call.expressions) if isinstance(call, exp.Anonymous) else (
                name_of(call), [])  # fmt: skip
            prepared, params = called(name, nodes, params)
            if prepared.kind != "select" or prepared.tree is None:
                raise DefinitionError(f"the prepared statement {name} is not a SELECT", sqlstate="42809")
            return bound(prepared.tree, params)
    query = tree.args["expression"]
    if not isinstance(query, exp.Query | exp.Values):
        raise UnsupportedError("CREATE TABLE … AS takes a query", hint="use SELECT, VALUES, TABLE or EXECUTE")
    return bound(query, params)


def create(definer: Definer, tree: exp.Create, query: exp.Expr, names: StatementNames, run: Run) -> Result:
    """Make the table and write its rows. `query` has neither parameters nor views. Raises `SqlError`."""
    node = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    refuse_properties("TABLE", [each for each in _properties(tree) if not isinstance(
        each, exp.WithDataProperty | exp.ExecuteAsProperty)])  # fmt: skip
    filled = not any(isinstance(each, exp.WithDataProperty) and each.args.get("no") for each in _properties(tree))
    schema = run(query).typed().schema if is_historical(query) else names.described(_without_calls(query))
    place = definer.table_place(node, bool(tree.args.get("exists")))
    if place is None:
        done = Result("CREATE TABLE AS", 0)
        done.notices = (f"the relation {name_of(node.this)} exists already, and stays as it is",)
        return done
    columns = _names(tree, schema.names)
    rows = run(query).typed() if filled else None
    declared = None if is_historical(query) else _Declared(names, definer).outputs(query, {})
    table = definer.make_table(*place, _definition(definer, columns, schema, declared), tree)
    if rows is None:
        return Result("CREATE TABLE AS", 0)
    count = bulk.load(definer.session, definer.transaction, table, rows.rename_columns(columns))
    return Result(f"SELECT {count}", count)


def _without_calls(query: exp.Expr) -> exp.Expr:
    """A query that has the same columns, and takes no numbers of sequences."""
    if not calls_in(query):
        return query
    copy = query.copy()
    for call in calls_in(copy):
        null = exp.cast(exp.Null(), "BIGINT")
        bare = isinstance(call.parent, exp.Select) and call.arg_key == "expressions"
        call.replace(exp.alias_(null, str(call.this).lower(), quoted=True) if bare else null)
    return copy


def _properties(tree: exp.Expr) -> Sequence[exp.Expr]:
    properties = tree.args.get("properties")
    return properties.expressions if properties is not None else ()


def _names(tree: exp.Create, outputs: Sequence[str]) -> list[str]:
    """The names of the columns: those that are given, then those of the query. Raises `SqlError`."""
    given = tree.this.expressions if isinstance(tree.this, exp.Schema) else []
    if not all(isinstance(each, exp.Identifier) for each in given):
        raise SqlSyntaxError("CREATE TABLE AS takes names of columns, without types or constraints",
                             hint="CAST in the query, or CREATE TABLE and INSERT … SELECT")  # fmt: skip
    if len(given) > len(outputs):
        raise SqlSyntaxError(f"the query gives {len(outputs)} columns, and {len(given)} are named")
    names = [*map(name_of, given), *outputs[len(given) :]]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise DuplicateNameError(f"the column {doubled} is given twice", sqlstate="42701", hint="name it with AS")
    return names


def _definition(
    definer: Definer, names: Sequence[str], schema: pa.Schema, declared: _Source | None
) -> ddl.Definition:
    found = ddl.Definition()
    if declared is None or len(declared) != len(names):
        declared = [(name, None) for name in names]
    for number, (name, arrow, (_, known)) in enumerate(zip(names, schema.types, declared, strict=True), 1):
        type = _type(definer.catalog, name, arrow)
        if known is not None and is_comparable(known, type):
            type = known
        found.columns.append(ColumnMeta(number, 0, definer.new_name(name, exp.Null()), type, True, None, number))
    return found


def _type(catalog: SqlCatalog, name: str, arrow: pa.DataType) -> Type:
    """The type of a column for values that were computed. Raises `DefinitionError`."""
    found = types.TEXT if pa.types.is_null(arrow) else types.from_arrow(arrow)
    if found is None:
        raise DefinitionError(f"the column {name} would have the type {arrow}, which columns cannot have",
                              sqlstate="42P16", hint="CAST it in the query")
    return _known(catalog, found)


def _known(catalog: SqlCatalog, type: Type) -> Type:
    if type.item is not None:
        return msgspec.structs.replace(type, item=_known(catalog, type.item))
    if type.kind == Kind.DECIMAL:
        return types.NUMERIC
    if type.kind == Kind.ENUM:
        for each in catalog.objects.values():
            if isinstance(each, EnumMeta) and (each.name, each.labels) == (type.name, type.labels):
                return each.type
        return types.TEXT
    return type


# declared types

class _Declared:
    """Follows the outputs of queries to columns of tables and to casts."""

    def __init__(self, find: Find, definer: Definer) -> None:
        self._find, self._definer = find, definer

    def outputs(self, query: exp.Expr, outer: dict[str, _Source | None]) -> _Source | None:
        ctes = dict(outer)
        held = query.args.get("with_")
        if held is not None:
            for each in held.expressions:
                ctes[name_of(each.args["alias"].this)] = None if held.args.get("recursive") else _renamed(
                    self.outputs(each.this, ctes), each.args["alias"])
        if isinstance(query, exp.Subquery):
            return self.outputs(query.this, ctes)
        if isinstance(query, exp.SetOperation):
            left, right = self.outputs(query.this, ctes), self.outputs(query.expression, ctes)
            if left is None or right is None or len(left) != len(right):
                return None
            return [(name, type if type == other else None)
                    for (name, type), (_, other) in zip(left, right, strict=True)]  # fmt: skip
        return self._selected(query, ctes) if isinstance(query, exp.Select) else None

    def _selected(self, query: exp.Select, ctes: dict[str, _Source | None]) -> _Source | None:
        joins = query.args.get("joins") or ()
        nodes = [query.args["from_"].this] if query.args.get("from_") else []
        nodes += [join.this for join in joins]
        sources = [(_alias(node), self._source(node, ctes)) for node in nodes]
        merged = any(join.args.get("using") or join.args.get("method") for join in joins)
        found: _Source = []
        for each in query.expressions:
            if each.is_star:
                owner = name_of(each.args.get("table")) if isinstance(each, exp.Column) else ""
                stars = [columns for alias, columns in sources if owner in ("", alias)]
                if merged or any(columns is None for columns in stars):
                    return None
                found += [column for columns in stars for column in columns or ()]
                continue
            found.append((each.alias_or_name, self._type(each.unalias(), sources)))
        return found

    def _type(self, node: exp.Expr, sources: Sequence[tuple[str, _Source | None]]) -> Type | None:
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Cast):
            try:
                return self._definer.type(node.to)
            except SqlError:
                return None
        if isinstance(node, exp.Array):
            items = {self._type(each, sources) for each in node.expressions}
            item = items.pop() if len(items) == 1 else None
            return None if item is None else item if item.item is not None else types.array_of(item)
        if not isinstance(node, exp.Column):
            return None
        owner, name = name_of(node.args.get("table")), name_of(node.this)
        near = [columns for alias, columns in sources if owner in ("", alias)]
        if any(columns is None for columns in near):
            return None
        known = [type for columns in near for column, type in columns or () if column == name]
        return known[0] if len(known) == 1 else None

    def _source(self, node: exp.Expr, ctes: dict[str, _Source | None]) -> _Source | None:
        alias = node.args.get("alias")
        if node.args.get("joins"):
            return None
        if isinstance(node, exp.Subquery):
            return _renamed(self.outputs(node.this, ctes), alias)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            return None
        if not node.args.get("db") and name_of(node.this) in self._definer.statement.given:
            return None
        if not node.args.get("db") and name_of(node.this) in ctes:
            return _renamed(ctes[name_of(node.this)], alias)
        return _renamed([(column.name, column.type) for column in self._find(node)[0].visible], alias)


def _alias(node: exp.Expr) -> str:
    alias = node.args.get("alias")
    if alias is not None and alias.this is not None:
        return name_of(alias.this)
    return name_of(node.this) if isinstance(node, exp.Table) else ""


def _renamed(source: _Source | None, alias: exp.Expr | None) -> _Source | None:
    """Columns with the names that an alias gives to the first of them."""
    if source is None or alias is None:
        return source
    names = [name_of(each) for each in alias.args.get("columns") or ()]
    return [(names[n] if n < len(names) else name, type) for n, (name, type) in enumerate(source)]
