"""RETURNING: what a statement gives of the rows that it wrote, and of the tables that it reads beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from ontolake.sql.catalog.records import ColumnMeta, Table
from ontolake.sql.errors import UnknownNameError, UnsupportedError, nearest
from ontolake.sql.executor.names import output_name
from ontolake.sql.plan.queries import Find, output_names
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import DIALECT, ParsedStatement, name_of, position_of
from ontolake.sql.write.rows import Rows
from ontolake.sql.write.trees import ctes_of

ROWS = "returned$"
"""What the rows are called that RETURNING is about."""


class Returning:
    """A RETURNING clause. `extra` are the columns of other tables that it needs beside those of the target."""

    def __init__(
        self, clause: exp.Returning, table: Table, target: exp.Table, others: Sequence[exp.Expr],
        columns_of: Callable[[exp.Expr], list[str]], statement: ParsedStatement,
    ) -> None:  # fmt: skip
        self._table, self._statement = table, statement
        self.alias = alias_of(target) or table.name
        self._others = {alias_of(each): each for each in others}
        self._columns_of = columns_of
        self.extra: list[exp.Expr] = []
        self.names: list[str] = []
        self._outputs: list[exp.Expr] = []
        for node in clause.expressions:
            if isinstance(node, exp.Star):
                for alias in (self.alias, *self._others):
                    self._add_all(alias)
            elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
                self._add_all(name_of(node.args.get("table")))
            else:
                self.names.append(output_name(node))
                self._outputs.append(node.unalias().copy())
        self._outputs = [node.transform(self._placed) for node in self._outputs]
        self.plain = None if others else plain_columns(clause, table, target)
        """The columns of the table that are all it gives, with their names, if it is that simple."""

    def _add_all(self, alias: str) -> None:
        other = self._others.get(alias)
        names = [column.name for column in self._table.visible] if other is None else self._columns_of(other)
        self.names += names
        self._outputs += [exp.column(exp.to_identifier(name, quoted=True), exp.to_identifier(alias, quoted=True))
                          for name in names]  # fmt: skip

    def _placed(self, node: exp.Expr) -> exp.Expr:
        """A column of another table as one of those that stand beside the rows."""
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return node
        alias, name = name_of(node.args.get("table")), name_of(node.this)
        inner = node.find_ancestor(exp.Query)
        if alias == self.alias or (not alias and name in self._table.by_name):
            return node
        if inner is not None and alias not in self._others:
            return node
        if alias and alias not in self._others:
            raise UnknownNameError(f"there is no table {alias} in this statement", hint=nearest(alias, self._others),
                                   position=position_of(node, self._statement))  # fmt: skip
        if not self._others:
            self._table.column(name, position_of(node, self._statement))
        if node not in self.extra:
            self.extra.append(node.copy())
        return exp.column(exp.to_identifier(f"x${self.extra.index(node)}", quoted=True),
                          exp.to_identifier(self.alias, quoted=True))  # fmt: skip

    def query(self) -> exp.Select:
        """The query over `ROWS` that gives the answer; its columns are called as `names` says."""
        outputs = [exp.alias_(node.copy(), f"r${n}", quoted=True) for n, node in enumerate(self._outputs)]
        source = exp.alias_(exp.to_table(ROWS, quoted=True), self.alias, table=True, quoted=True)
        return exp.Select(expressions=outputs).from_(source)

    def rows(self, written: pa.Table, extra: Sequence[pa.ChunkedArray]) -> pa.Table:
        """What `query` is over: rows that were written, and the other columns for each of them."""
        for n, column in enumerate(extra):
            written = written.append_column(f"x${n}", column)
        return written


def plain_columns(
    clause: exp.Returning, table: Table, target: exp.Expr
) -> tuple[list[ColumnMeta], list[str]] | None:
    """The columns of a table that a RETURNING gives, with their names; None if it gives anything else."""
    alias = alias_of(target.this if isinstance(target, exp.Schema) else target) or table.name
    columns: list[ColumnMeta] = []
    names: list[str] = []
    for node in clause.expressions:
        inner = node.this if isinstance(node, exp.Alias) else node
        if isinstance(inner, exp.Star) and not any(inner.args.values()):
            columns += table.visible
            names += [column.name for column in table.visible]
            continue
        if not isinstance(inner, exp.Column) or name_of(inner.args.get("table")) not in ("", alias) \
                or (column := table.by_name.get(name_of(inner.this))) is None or column.hidden:  # fmt: skip
            return None
        columns.append(column)
        names.append(output_name(node))
    return columns, names


def plain_result(verb: str, done: Rows, columns: Sequence[ColumnMeta], names: Sequence[str]) -> Result:
    """What a statement gives back that has written a few rows: these columns of them."""
    places = [done.table.place[column.column_id] for column in columns]
    stored = [[row[n] for n in places] for row in done.tuples]
    return Result(f"{verb} {len(done)}", len(done), columns=names, types=[column.type for column in columns],
                  stored=stored)  # fmt: skip


def alias_of(node: exp.Expr) -> str:
    """What a table or query of a statement is called in it."""
    alias = node.args.get("alias")
    if alias is not None and alias.this is not None:
        return name_of(alias.this)
    return name_of(node.this) if isinstance(node, exp.Table) else ""


def columns_of_item(item: exp.Expr, tree: exp.Expr, given: Mapping[str, pa.Table], find: Find) -> list[str]:
    """The names of the columns that a table or query of a statement has. Raises `UnsupportedError`."""
    alias = item.args.get("alias")
    if alias is not None and alias.columns:
        return [name_of(each) for each in alias.columns]
    names: list[str] | None = None
    if isinstance(item, exp.Table):
        name = name_of(item.this)
        if name in given:
            return list(given[name].column_names)
        ctes = {name_of(each.args["alias"].this): each for each in ctes_of(tree)}
        if name not in ctes:
            return [column.name for column in find(item)[0].visible]
        columns = ctes[name].args["alias"].columns
        names = [name_of(each) for each in columns] if columns else output_names(ctes[name].this)
    elif isinstance(item, exp.Subquery):
        names = output_names(item)
    if names is None:
        raise UnsupportedError(f"RETURNING all columns of {item.sql(DIALECT)} is not supported",
                               hint="name the columns")  # fmt: skip
    return names
