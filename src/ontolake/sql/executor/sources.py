"""What stands in FROM: tables, queries, functions that give rows, VALUES, and joins of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlglot import exp

from ontolake.sql.errors import SqlError, SqlSyntaxError, UnknownNameError, UnsupportedError
from ontolake.sql.executor import calls, casts, operators, python_functions, row_functions
from ontolake.sql.executor.expressions import Expressions
from ontolake.sql.executor.pg_types import INT8, TEXT, PgType, common
from ontolake.sql.executor.scopes import CompiledQuery, FromRelation, Output, Scope, VisibleColumn
from ontolake.sql.executor.typed import TypedSql
from ontolake.sql.syntax.dialect import DIALECT
from ontolake.sql.syntax.statements import name_of


class KnownTable(NamedTuple):
    """A table that a statement reads: its columns, and the names of those that make its key."""

    columns: list[tuple[str, PgType]]
    key: tuple[str, ...] = ()


class FromItem(NamedTuple):
    """A part of FROM: its SQL, the relations in it, and the columns that are seen without a table's name."""

    sql: str
    relations: list[FromRelation]
    columns: list[VisibleColumn]


class FromCompiler(Expressions):
    """Compiles FROM."""

    def __init__(self, tables: Mapping[str, KnownTable], enums: Mapping[str, PgType] | None = None) -> None:
        self._tables = tables
        types = [type.element if type.is_array else type for table in tables.values() for _, type in table.columns]
        self.enums = {**{type.name: type for type in types if type.labels}, **(enums or {})}

    def from_clause(self, node: exp.Select, scope: Scope) -> str:
        """FROM with all its joins; the scope learns what is in it."""
        first = node.args.get("from_")
        if first is None:
            return ""
        groups: list[str] = []
        current = self._source(first.this, scope)
        self._enter(scope, current)
        for join in node.args.get("joins") or ():
            if _is_comma(join):
                groups.append(current.sql)
                current = self._source(join.this, scope)
                self._enter(scope, current)
            else:
                self._leave(scope, current)
                current = self._join(current, join, scope)
                self._enter(scope, current)
        for lateral in node.args.get("laterals") or ():
            groups.append(current.sql)
            current = self._source(lateral, scope)
            self._enter(scope, current)
        return " FROM " + ", ".join([*groups, current.sql])

    def _enter(self, scope: Scope, source: FromItem) -> None:
        for each in source.relations:
            if any(other.name == each.name for other in scope.relations if each.name):
                raise SqlError(f'table name "{each.name}" specified more than once', sqlstate="42712")
            scope.relations.append(each)
        scope.columns += source.columns

    def _leave(self, scope: Scope, source: FromItem) -> None:
        scope.relations = [each for each in scope.relations if all(each is not one for one in source.relations)]
        scope.columns = scope.columns[: len(scope.columns) - len(source.columns)]

    def _source(self, node: exp.Expr, scope: Scope) -> FromItem:
        found = self._alone(node, scope)
        for join in node.args.get("joins") or ():
            found = self._join(found, join, scope)
        return found

    def _alone(self, node: exp.Expr, scope: Scope) -> FromItem:
        if node.args.get("sample") is not None or isinstance(node, exp.TableSample):
            raise UnsupportedError("TABLESAMPLE is not supported", hint="ORDER BY random() LIMIT takes any rows")
        if isinstance(node, exp.Paren):
            return self._source(node.this, scope)
        if isinstance(node, exp.Table) and node.args.get("rows_from"):
            return self._rows_from(node, scope)
        if isinstance(node, exp.Table):
            return self._table(node, scope) if isinstance(node.this, exp.Identifier) else self._function(
                node.this, node, scope)  # fmt: skip
        if isinstance(node, exp.Lateral):
            inner = node.this
            if isinstance(inner, exp.Subquery):
                return self._query(inner, node, scope, scope)
            return self._function(inner, node, scope)
        if isinstance(node, exp.Unnest):
            return self._function(node, node, scope)
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
            found = self._source(node.this, scope)
            return self._renamed(found, node) if node.args.get("alias") else found
        if isinstance(node, exp.Subquery | exp.Values):
            return self._query(node, node, scope, self.outer(scope))
        raise UnsupportedError(f"{node.sql(DIALECT)} is not supported in FROM")

    def outer(self, scope: Scope) -> Scope:
        """What a query in FROM sees that is not LATERAL: the queries around and those of WITH."""
        return Scope(scope.parent, ctes=scope.ctes)

    def _renamed(self, source: FromItem, node: exp.Expr) -> FromItem:
        """A join in parentheses that has a name of its own."""
        alias = node.args["alias"]
        names = [name_of(each) for each in alias.columns] + [column.name for column in source.columns][
            len(alias.columns) :
        ]
        columns = [column._replace(name=name) for column, name in zip(source.columns, names, strict=True)]
        return FromItem(source.sql, [FromRelation(name_of(alias.this), columns)], columns)

    def _relation(self, sql: str, node: exp.Expr, default: str, outputs: Sequence[Output],
                  key: Sequence[str] = (), lateral: bool = False) -> FromItem:  # fmt: skip
        """A relation under a name of its own, whose columns are c0, c1, …"""
        alias, short = node.args.get("alias"), self.fresh()
        given = [name_of(each) for each in alias.columns] if alias is not None else []
        if len(given) > len(outputs):
            raise SqlError(
                f"table has {len(outputs)} columns available but {len(given)} columns specified", sqlstate="42P10"
            )
        names = given + [each.name for each in outputs][len(given) :]
        name = name_of(alias.this) if alias is not None and alias.this is not None else default
        columns = [VisibleColumn(each, f"{short}.c{n}", output.type)
                   for n, (each, output) in enumerate(zip(names, outputs, strict=True))]  # fmt: skip
        keys = frozenset(column.sql for column, output in zip(columns, outputs, strict=True) if output.name in key)
        return FromItem(f"{'LATERAL ' * lateral}{sql} AS {short}", [FromRelation(name, columns, keys)], columns)

    def _table(self, node: exp.Table, scope: Scope) -> FromItem:
        name = name_of(node.this)
        if not node.args.get("db") and (cte := scope.cte(name)) is not None:
            return self._relation(cte.alias, node, name, cte.outputs)
        table = self._tables.get(name)
        if table is None:
            raise UnknownNameError(f"relation {name} does not exist", sqlstate="42P01")
        outputs = [Output(each, type) for each, type in table.columns]
        return self._relation(name, node, name, outputs, table.key)

    def _query(self, node: exp.Expr, outer: exp.Expr, scope: Scope, parent: Scope) -> FromItem:
        query = self.query(node, parent)
        lateral = isinstance(outer, exp.Lateral)
        outputs = [Output(each.name, TEXT) if each.type.name == "unknown" else each for each in query.outputs]
        return self._relation(f"({query.sql})", outer, "", outputs, lateral=lateral)

    # functions

    def _function(self, call: exp.Expr, node: exp.Expr, scope: Scope) -> FromItem:
        is_unnest = isinstance(call, exp.Unnest)
        name = "unnest" if is_unnest else str(call.this if isinstance(call.this, str) else name_of(call.this)).lower()
        clause, scope.clause = scope.clause, "functions in FROM"
        arguments = [self.expression(each, scope) for each in call.expressions]
        scope.clause = clause
        alias = node.args.get("alias")
        shown = name_of(alias.this) if alias is not None and alias.this is not None else name
        offset = node.args.get("offset")
        numbered = bool(node.args.get("ordinality") or offset)
        lateral = any(each.loose for each in arguments)
        if name in row_functions.PAIRS:
            return self._pairs(name, arguments, node, lateral)
        if name in row_functions.SPREADING:
            lists = [row_functions.SPREADING[name]([each]) for each in arguments] if name == "unnest" and len(arguments) > 1 else [  # noqa: E501
                row_functions.SPREADING[name](arguments)]  # fmt: skip
            sql = self._rows(lists, numbered)
            if (
                name == "generate_series"
                and not lateral
                and not numbered
                and lists[0][0].startswith("CAST(generate_series(")
            ):
                inner = lists[0][0].removeprefix("CAST(").rpartition(" AS ")[0]
                sql = f"(SELECT CAST(generate_series AS {lists[0][1].duck}) AS c0 FROM {inner})"
            shown = "value" if name in row_functions.NAMED_ROWS else shown
            outputs = [Output(shown if len(lists) == 1 else name, type) for _, type in lists]
        else:
            value = calls.called(name, arguments)
            sql, outputs, lateral = f"(SELECT {value.sql} AS c0)", [Output(shown, value.type)], bool(value.loose)
        scalar = len(outputs) == 1 and not numbered
        if numbered:
            outputs.append(Output(name_of(offset) if isinstance(offset, exp.Identifier) else "ordinality", INT8))
        found = self._relation(sql, node, name, outputs, lateral=lateral)
        return found._replace(relations=[each._replace(scalar=scalar) for each in found.relations])

    def _rows_from(self, node: exp.Table, scope: Scope) -> FromItem:
        """`ROWS FROM (f(…), g(…))`: functions side by side."""
        lists, names = [], []
        for each in node.args["rows_from"]:
            name = str(each.this.this).lower() if isinstance(each.this, exp.Anonymous) else "unnest"
            arguments = [self.expression(one, scope) for one in each.this.expressions]
            if name in row_functions.SPREADING:
                lists.append(row_functions.SPREADING[name](arguments))
            else:
                value = calls.called(name, arguments)
                lists.append((f"[{value.sql}]", value.type))
            names.append(name)
        numbered = bool(node.args.get("ordinality"))
        outputs = [Output(name, type) for name, (_, type) in zip(names, lists, strict=True)]
        outputs += [Output("ordinality", INT8)] if numbered else []
        return self._relation(self._rows(lists, numbered), node, names[0], outputs)

    def _rows(self, lists: Sequence[tuple[str, PgType]], numbered: bool) -> str:
        parts = [f"unnest({sql}) AS c{n}" for n, (sql, _) in enumerate(lists)]
        if numbered:
            longest = ", ".join(f"coalesce(len({sql}), 0)" for sql, _ in lists)
            parts.append(f"unnest(range(1, greatest({longest}) + 1)) AS c{len(lists)}")
        return f"(SELECT {', '.join(parts)})"

    def _pairs(self, name: str, arguments: list[TypedSql], node: exp.Expr, lateral: bool) -> FromItem:
        kind, source = row_functions.PAIRS[name]
        value = casts.converted(arguments[0], source)
        order = "json" if source.name == "json" and kind == "json" else kind
        keys = python_functions.call("json_list", value.sql, f"'keys:{order}'")
        values = python_functions.call("json_list", value.sql, f"'values:{kind}'")
        outputs = [Output("key", TEXT), Output("value", TEXT if kind == "text" else source)]
        return self._relation(
            f"(SELECT unnest({keys}) AS c0, unnest({values}) AS c1)", node, name, outputs, lateral=lateral
        )

    # joins

    def _join(self, left: FromItem, join: exp.Join, scope: Scope) -> FromItem:
        before = len(scope.relations), len(scope.columns)
        self._enter(scope, left)
        right = self._source(join.this, scope)
        self._leave(scope, left)
        assert (len(scope.relations), len(scope.columns)) == before
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if kind not in ("", "INNER", "OUTER", "CROSS") or (join.method or "").upper() not in ("", "NATURAL"):
            raise SqlSyntaxError(f"{kind or join.method} JOIN cannot be read")
        using = [name_of(each) for each in join.args.get("using") or ()]
        if (join.method or "").upper() == "NATURAL":
            names = [column.name for column in right.columns]
            using = [column.name for column in left.columns if column.name in names]
        taken = {each.name for each in left.relations if each.name}
        if twice := next((each.name for each in right.relations if each.name in taken), None):
            raise SqlError(f'table name "{twice}" specified more than once', sqlstate="42712")
        relations = [*left.relations, *right.relations]
        word = f"{side} JOIN" if side else "JOIN"
        if using:
            return self._using(left, right, using, side, word, relations)
        columns = [*left.columns, *right.columns]
        on = join.args.get("on")
        if on is None:
            if kind != "CROSS" and not (join.method or "").upper() == "NATURAL":
                raise SqlSyntaxError("a join needs ON, USING or NATURAL")
            sql = (
                f"{left.sql} CROSS JOIN {right.sql}"
                if kind == "CROSS" or not side
                else f"{left.sql} {word} {right.sql} ON TRUE"
            )
            return FromItem(sql, relations, columns)
        inner = Scope(scope.parent, relations, columns, scope.ctes)
        inner.relations, inner.columns = list(relations), list(columns)
        test = self.condition(on, inner, "JOIN/ON")
        return FromItem(f"{left.sql} {word} {_grouped(right.sql, join)} ON {test.sql}", relations, columns)

    def _using(self, left: FromItem, right: FromItem, using: Sequence[str], side: str, word: str,
               relations: list[FromRelation]) -> FromItem:  # fmt: skip
        merged: list[VisibleColumn] = []
        tests: list[str] = []
        for name in using:
            one, other = _named(left, name, "left"), _named(right, name, "right")
            a, b = operators.matched("=", one.typed(), other.typed())
            tests.append(f"{a.sql} = {b.sql}")
            type = common([one.type, other.type]) or one.type
            if side == "FULL":
                sql = f"coalesce({casts.converted(one.typed(), type).sql}, {casts.converted(other.typed(), type).sql})"
                merged.append(VisibleColumn(name, sql, type, one.typed().loose | other.typed().loose))
            else:
                kept = other if side == "RIGHT" else one
                merged.append(VisibleColumn(name, casts.converted(kept.typed(), type).sql, type, kept.typed().loose))
        rest = [column for column in (*left.columns, *right.columns) if column.name not in using]
        sql = f"{left.sql} {word} {right.sql} ON {' AND '.join(tests)}"
        return FromItem(sql, relations, [*merged, *rest])


def _grouped(sql: str, join: exp.Join) -> str:
    """A join on the right side of another one stays together."""
    return f"({sql})" if join.this.args.get("joins") else sql


def _named(source: FromItem, name: str, side: str) -> VisibleColumn:
    found = [column for column in source.columns if column.name == name]
    if not found:
        raise UnknownNameError(f"the {side} table of the join has no column {name}", sqlstate="42703")
    if len(found) > 1:
        raise SqlError(f"the column {name} is ambiguous", sqlstate="42702")
    return found[0]


def _is_comma(join: exp.Join) -> bool:
    return not any(join.args.get(name) for name in ("on", "using", "side", "kind", "method"))


__all__ = ["CompiledQuery", "FromCompiler", "KnownTable"]
