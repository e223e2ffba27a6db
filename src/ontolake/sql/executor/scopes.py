"""What names mean in a query: relations, their columns, and those of the queries around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlglot import exp

from ontolake.sql.errors import SqlError, UnknownNameError, nearest
from ontolake.sql.executor.pg_types import PgType
from ontolake.sql.executor.typed import TypedSql
from ontolake.sql.syntax.statements import name_of


class VisibleColumn(NamedTuple):
    """A column in sight: its name, how DuckDB is told of it, its type."""

    name: str
    sql: str
    type: PgType
    parts: frozenset[str] = frozenset()
    """The columns of relations that it is made of, if these are several."""

    def typed(self) -> TypedSql:
        return TypedSql(self.sql, self.type, self.parts or frozenset((self.sql,)))


class FromRelation(NamedTuple):
    """A table, query or function in FROM. `key` are the columns that make a row of it unique."""

    name: str
    columns: list[VisibleColumn]
    key: frozenset[str] = frozenset()
    scalar: bool = False
    """Whether it is a function that gives one value for a row, not a row of values."""


class Output(NamedTuple):
    """A column that a query gives."""

    name: str
    type: PgType


class CompiledQuery(NamedTuple):
    """A query that was compiled: its outputs are named c0, c1, … in DuckDB."""

    sql: str
    outputs: list[Output]
    loose: frozenset[str] = frozenset()
    volatile: bool = False
    literals: tuple[TypedSql | None, ...] = ()
    """Outputs that are text of no type yet."""


class Cte(NamedTuple):
    """A query of WITH: its name in DuckDB, and its columns."""

    alias: str
    outputs: list[Output]


@dataclass
class Scope:
    """The names that expressions of one query see."""

    parent: Scope | None = None
    relations: list[FromRelation] = field(default_factory=list)
    columns: list[VisibleColumn] = field(default_factory=list)
    ctes: dict[str, Cte] = field(default_factory=dict)
    windows: dict[str, exp.Expr] = field(default_factory=dict)
    groups: frozenset[str] = frozenset()
    """What the query groups by, as it is written for DuckDB."""
    clause: str = ""
    """The clause that is compiled, for messages: aggregates are not allowed in all."""

    def cte(self, name: str) -> Cte | None:
        """The query of WITH that has a name."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.ctes:
                return scope.ctes[name]
            scope = scope.parent
        return None

    def column(self, node: exp.Column) -> VisibleColumn:
        """The column that a node names, here or in a query around. Raises `UnknownNameError` and 42702."""
        qualifier, name = name_of(node.args.get("table")), name_of(node.this)
        scope: Scope | None = self
        while scope is not None:
            found = scope._of(qualifier, name) if qualifier else scope._alone(name)
            if found is not None:
                return found
            scope = scope.parent
        if qualifier:
            known = [each.name for each in self._all_relations()]
            raise UnknownNameError(f"there is no table {qualifier} in this query", sqlstate="42P01",
                                   hint=nearest(qualifier, known))  # fmt: skip
        names = [column.name for relation in self._all_relations() for column in relation.columns]
        raise UnknownNameError(
            f"no table of this query has a column {name}", sqlstate="42703", hint=nearest(name, names)
        )

    def _all_relations(self) -> Sequence[FromRelation]:
        return [*self.relations, *(self.parent._all_relations() if self.parent is not None else ())]

    def _of(self, qualifier: str, name: str) -> VisibleColumn | None:
        relations = [each for each in self.relations if each.name == qualifier]
        if not relations:
            return None
        if len(relations) > 1:
            raise SqlError(f"the table {qualifier} is ambiguous", sqlstate="42P09")
        found = [column for column in relations[0].columns if column.name == name]
        if not found:
            raise UnknownNameError(f"the table {qualifier} has no column {name}", sqlstate="42703",
                                   hint=nearest(name, [column.name for column in relations[0].columns]))  # fmt: skip
        return _single(found, name)

    def _alone(self, name: str) -> VisibleColumn | None:
        found = [column for column in self.columns if column.name == name]
        return _single(found, name) if found else None

    def star(self, node: exp.Column) -> list[VisibleColumn]:
        """The columns of `t.*`. Raises 42P01."""
        name = name_of(node.args.get("table"))
        relation = self.relation(name)
        if relation is None:
            raise SqlError(f"missing FROM-clause entry for table {name}", sqlstate="42P01")
        return relation.columns

    def relation(self, name: str) -> FromRelation | None:
        """The relation of a name, here or in a query around."""
        scope: Scope | None = self
        while scope is not None:
            for each in scope.relations:
                if each.name == name:
                    return each
            scope = scope.parent
        return None


def _single(found: list[VisibleColumn], name: str) -> VisibleColumn:
    if len(found) > 1:
        raise SqlError(f"the column {name} is ambiguous", sqlstate="42702", hint="write it with the table before it")
    return found[0]
