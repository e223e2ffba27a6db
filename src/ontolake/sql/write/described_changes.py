"""What statements give, worked out without running them: the types of columns, and on the way those of parameters.

A statement that changes rows is turned into queries that have its expressions in the same sight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.catalog.records import ColumnMeta, SqlCatalog, Table
from ontolake.sql.errors import SqlSyntaxError, UnsupportedError
from ontolake.sql.executor import pg_types
from ontolake.sql.executor.parameter_types import learning
from ontolake.sql.executor.scopes import Output
from ontolake.sql.history.table_functions import HistoricalQuery, is_historical
from ontolake.sql.plan.queries import QueryPlan
from ontolake.sql.syntax.statements import ParsedStatement, mark_place, name_of
from ontolake.sql.types.oids import BY_NAME, builtin_type
from ontolake.sql.write import sequences
from ontolake.sql.write.assignments import is_default, singly
from ontolake.sql.write.returning import alias_of
from ontolake.sql.write.trees import joined, joined_with, with_ctes

if TYPE_CHECKING:
    from ontolake.sql.database import Database
    from ontolake.sql.naming import StatementNames

NamedRows = Mapping[str, pa.Table]
_NONE: NamedRows = MappingProxyType({})


class StatementOutputs:
    """Finds out what statements give, inside a transaction and while types of parameters are learned."""

    def __init__(
        self, db: Database, names: StatementNames, catalog: SqlCatalog, version: Callable[[Any], int]
    ) -> None:
        """`version` gives the version that a moment of the user means."""
        self._db, self._names, self._catalog, self._version = db, names, catalog, version

    def of(self, statement: ParsedStatement) -> list[Output] | None:
        """The columns that a statement gives; None if it gives no rows. Raises `SqlError`."""
        assert statement.tree is not None
        self._statement = statement
        tree = self._names.expanded(statement.tree)
        if statement.kind != "chain":
            return self._part(tree, dict(statement.given))
        return self._chain(tree.copy(), dict(statement.given))

    def _chain(self, tree: exp.Expr, given: dict[str, pa.Table]) -> list[Output] | None:
        """A statement whose WITH writes."""
        held = tree.args["with_"]
        before = exp.With(expressions=[], recursive=held.args.get("recursive"))
        for part in list(held.expressions):
            if not isinstance(part.this, exp.DML):
                before.append("expressions", part.copy())
                continue
            inner = with_ctes(part.this, exp.Select(with_=before)) if before.expressions else part.this
            found = self._part(inner, given)
            if found is not None:
                shown = [name_of(each) for each in part.args["alias"].columns]
                given[name_of(part.args["alias"].this)] = _no_rows(found, shown)
        tree.set("with_", before if before.expressions else None)
        return self._part(tree, given)

    def _part(self, tree: exp.Expr, given: NamedRows) -> list[Output] | None:
        if isinstance(tree, exp.Insert):
            return self._insert(tree, given)
        if isinstance(tree, exp.Update):
            return self._update(tree, given)
        if isinstance(tree, exp.Delete):
            return self._returned(tree, tree.this, given, joined(tree.args.get("using")), ())
        if isinstance(tree, exp.Merge):
            self._merge(tree, given)
            return None
        return self._query(tree, given)

    def _query(self, tree: exp.Expr, given: NamedRows = _NONE) -> list[Output]:
        if is_historical(tree):
            count = max((place + 1 for mark in tree.find_all(exp.Placeholder)
                         if isinstance(place := mark_place(mark), int)), default=0)  # fmt: skip
            rows = HistoricalQuery(self._db, self._names, self._version).run(tree, (None,) * count)
            return [Output(name, pg_types.from_arrow(type)) for name, type in rows.description]
        if sequences.calls_in(tree):
            tree = tree.copy()
            for call in sequences.calls_in(tree):
                alias = exp.alias_(exp.cast(exp.Null(), "BIGINT"), str(call.this).lower())
                call.replace(alias if isinstance(call.parent, exp.Select) else alias.this)
        return QueryPlan(self._statement, tree, self._names, given).outputs(self._catalog)

    # changes

    def _insert(self, tree: exp.Insert, given: NamedRows) -> list[Output] | None:
        target = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
        table, _ = self._names(target)
        names = tree.this.expressions if isinstance(tree.this, exp.Schema) else ()
        columns = [table.column(name_of(node)) for node in names] or table.visible
        source = tree.expression
        if isinstance(source, exp.Values):
            cells: list[exp.Expr] = []
            for row in source.expressions:
                values = row.expressions if isinstance(row, exp.Tuple) else [
                    row.this if isinstance(row, exp.Paren) else row]  # fmt: skip
                if len(values) > len(columns) or (names and len(values) < len(columns)):
                    raise SqlSyntaxError(f"INSERT has {len(values)} values for {len(columns)} columns")
                cells += self._assigned(zip(columns, values, strict=False))
            if cells:
                self._query(with_ctes(exp.Select(expressions=_numbered(cells)), tree), given)
        elif isinstance(source, exp.Query):
            for column, value in zip(columns, source.selects, strict=False):
                self._expect(column, value.unalias())
            self._query(with_ctes(source, tree), given)
        conflict = tree.args.get("conflict")
        if conflict is not None and conflict.expressions:
            self._conflict(table, target, conflict, given)
        return self._returned(tree, target, given, (), ())

    def _conflict(self, table: Table, target: exp.Table, conflict: exp.OnConflict, given: NamedRows) -> None:
        excluded = target.copy()
        excluded.set("alias", exp.TableAlias(this=exp.to_identifier("excluded", quoted=True)))
        cells = self._assigned(self._assignments(table, conflict.expressions))
        query = exp.Select(expressions=_numbered(cells or [exp.Literal.number(1)])).from_(_named(target, table))
        query = query.join(excluded, join_type="cross")
        where = conflict.args.get("where")
        self._query(query if where is None else query.where(where.this.copy()), given)

    def _update(self, tree: exp.Update, given: NamedRows) -> list[Output] | None:
        table, _ = self._names(tree.this)
        cells = self._assigned(self._assignments(table, tree.expressions))
        return self._returned(tree, tree.this, given, joined(tree.args.get("from_")), cells)

    def _merge(self, tree: exp.Merge, given: NamedRows) -> None:
        table, _ = self._names(tree.this)
        cells: list[exp.Expr] = []
        for when in tree.args["whens"].expressions:
            then = when.args.get("then")
            if when.args.get("condition") is not None:
                cells.append(when.args["condition"])
            if isinstance(then, exp.Update):
                cells += self._assigned(self._assignments(table, then.expressions))
            elif isinstance(then, exp.Insert) and isinstance(then.expression, exp.Tuple):
                named = then.this.expressions if isinstance(then.this, exp.Tuple) else []
                columns = [table.column(name_of(each.this if isinstance(each, exp.Column) else each))
                           for each in named] or table.visible  # fmt: skip
                cells += self._assigned(zip(columns, then.expression.expressions, strict=False))
        query = exp.Select(expressions=_numbered(cells or [exp.Literal.number(1)])).from_(tree.args["using"].copy())
        query = query.join(tree.this.copy(), on=tree.args["on"].copy(), join_type="left")
        self._query(with_ctes(query, tree), given)

    def _returned(
        self, tree: exp.Expr, target: exp.Table, given: NamedRows, others: Sequence[exp.Expr], cells: Sequence[exp.Expr]
    ) -> list[Output] | None:
        """What RETURNING gives, after a look at the expressions of a statement over its tables."""
        table, _ = self._names(target)
        clause = tree.args.get("returning")
        where = tree.args.get("where")
        if clause is None and where is None and not cells and not others:
            return None
        items = [each.copy() for each in clause.expressions] if clause is not None else [exp.Literal.number(1)]
        query = joined_with(exp.Select(expressions=[*items, *_numbered(cells)]).from_(_named(target, table)), others)
        if where is not None:
            query = query.where(where.this.copy())
        found = self._query(with_ctes(query, tree), given)
        return None if clause is None else found[: len(found) - len(cells)]

    def _assignments(self, table: Table, nodes: Sequence[exp.Expr]) -> list[tuple[ColumnMeta, exp.Expr]]:
        found = []
        for node in chain.from_iterable(map(singly, nodes)):
            if not isinstance(node, exp.EQ) or not isinstance(node.this, exp.Column):
                raise UnsupportedError("this form of SET is not supported", hint="write SET column = value")
            found.append((table.column(name_of(node.this.this)), node.expression))
        return found

    def _assigned(self, pairs: Any) -> list[exp.Expr]:
        """The expressions that are given to columns and say more than a parameter or a literal."""
        found = []
        for column, value in pairs:
            self._expect(column, value)
            if not is_default(value) and not isinstance(value, exp.Placeholder | exp.Literal | exp.Null | exp.Boolean):
                found.append(value)
        return found

    def _expect(self, column: ColumnMeta, value: exp.Expr) -> None:
        """Note that a parameter has the type of the column that it is given to."""
        types = learning()
        while isinstance(value, exp.Paren):
            value = value.this
        if types is not None and isinstance(value, exp.Placeholder) and isinstance(place := mark_place(value), int):
            types.known.setdefault(place, pg_types.of_column(column.type))


def _named(target: exp.Table, table: Table) -> exp.Table:
    """The table of a statement under the name that its expressions use."""
    found = target.copy()
    if found.args.get("alias") is None:
        found.set("alias", exp.TableAlias(this=exp.to_identifier(alias_of(target) or table.name, quoted=True)))
    return found


def _numbered(cells: Sequence[exp.Expr]) -> list[exp.Expr]:
    return [exp.alias_(cell.copy(), f"v${n}", quoted=True) for n, cell in enumerate(cells)]


def _no_rows(outputs: Sequence[Output], names: Sequence[str]) -> pa.Table:
    """A table of these columns without rows."""
    columns = {}
    for n, output in enumerate(outputs):
        item = output.type.element if output.type.is_array else output.type
        known = BY_NAME.get(item.name, BY_NAME["text"])
        type = builtin_type(known.array_oid if output.type.is_array else known.oid)
        columns[names[n] if n < len(names) else output.name] = pa.array([], pa.string() if type is None else type.arrow)
    return pa.table(columns)
