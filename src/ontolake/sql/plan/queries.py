"""Queries: which tables they read, what is known of the rows that they need, and how to get the rest done.

A plan is made once for a statement and a catalog; parameters are filled in when it runs. Every table is read by the
cheapest access; a query that asks for no more than an access gives is answered at once, everything else by DuckDB
on what the accesses have found.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from ontolake.sql.catalog.objects import EnumMeta
from ontolake.sql.catalog.records import ColumnMeta, SqlCatalog, Table
from ontolake.sql.errors import UnknownNameError, UnsupportedError, nearest
from ontolake.sql.executor import pg_types, system_functions
from ontolake.sql.executor.arrow_tables import ReadableTable, readable_table
from ontolake.sql.executor.names import output_name
from ontolake.sql.executor.scopes import Output
from ontolake.sql.keyspace import keys
from ontolake.sql.keyspace.rows import decode_row
from ontolake.sql.plan import access, execution, joins, scans, streams
from ontolake.sql.plan.access import AccessPath
from ontolake.sql.plan.compiled_statements import CompiledStatements
from ontolake.sql.plan.conditions import (
    EQUAL,
    ColumnCondition,
    conditions_of,
    conjuncts,
    exact,
    inner_parts,
    table_and_name,
)
from ontolake.sql.plan.derived import derive
from ontolake.sql.plan.foreign import ForeignTable
from ontolake.sql.plan.joins import key_requests
from ontolake.sql.plan.limits import window_of
from ontolake.sql.plan.matching import facts, normal
from ontolake.sql.plan.small_queries import row_count, small_query
from ontolake.sql.results import Result
from ontolake.sql.syntax.statements import Parameters, ParsedStatement, bound, name_of, position_of
from ontolake.sql.types import Type
from ontolake.sql.write.rows import FEW, decoded

if TYPE_CHECKING:
    from ontolake.sql.keyspace.versions import Keyspace
    from ontolake.sql.transactions import SqlSession

BY_KEYS = "answered by keys alone"
"""The last line of a plan that needs no executor."""
Find = Callable[[exp.Table], tuple[Table, "int | None"]]
"""Finds the table that a statement names, and the version at which it is to be read."""


class TableSource(NamedTuple):
    """A table that a query reads, under a name of its own in DuckDB."""

    name: str
    alias: str
    table: Table
    at: int | None
    columns: list[ColumnMeta]
    conditions: list[ColumnCondition]
    facts: frozenset[str] = frozenset()
    """The conditions as text, for indexes on a part of the table."""


class Direct(NamedTuple):
    """A query that one access may answer alone: these columns of the rows, and the parts of its WHERE."""

    columns: list[ColumnMeta]
    names: list[str]
    parts: frozenset[int]


class QueryPlan:
    """A query, prepared."""

    def __init__(
        self, statement: ParsedStatement, tree: exp.Expr, find: Find,
        given: Mapping[str, pa.Table] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Prepare a query. `given` are rows that names without a schema mean before any table is looked up, besides
        those that come with the statement."""
        given = {**statement.given, **given} if statement.given else given
        self._statement = statement
        self._given: dict[str, pa.Table] = {}
        self.sources: list[TableSource] = []
        copy = self._tree = tree.copy()
        kinds = {type(node) for node in copy.walk()}  # which tells what need not be looked for
        self._has_enums = any(each.this == exp.DType.USERDEFINED for each in (
            copy.find_all(exp.DataType) if any(issubclass(kind, exp.DataType) for kind in kinds) else ()))
        for each in copy.find_all(exp.CTE) if exp.CTE in kinds else ():
            if not isinstance(each.this, exp.Query | exp.Values):
                raise UnsupportedError(f"{each.this.key.upper()} within WITH is not supported",
                                       hint="run it by itself, in one transaction")
        if exp.TableSample in kinds:
            raise UnsupportedError("TABLESAMPLE is not supported", hint="ORDER BY random() LIMIT takes any rows")
        derive(copy, lambda node: _found(node, copy, given, find), kinds)
        scopes = list(traverse_scope(copy)) if isinstance(copy, exp.Query) else []
        tables = [(scope, alias, node) for scope in scopes for alias, node in _tables(scope)]
        known = [each for each in tables if not _is_given(each[2], given)]
        found = {id(node): find(node) for _, _, node in known}
        self._check_columns(scopes, found)
        self.is_foreign = any(isinstance(table, ForeignTable) for table, _ in found.values())
        """Whether rows come from elsewhere, so that the plan serves one statement."""
        alone = len(scopes) == 1 and len(known) == len(scopes[0].sources) == 1 and not self.is_foreign
        self._window = window_of(copy, found[id(known[0][2])][0], kinds) if alone else None
        self._direct = None if self._window is None else self._directly(found)
        self._parts = frozenset(range(len(inner_parts(copy)))) if alone else frozenset()
        for number, (scope, alias, node) in enumerate(known):
            table, at = found[id(node)]
            self.sources.append(TableSource(
                f"t{number}", alias, table, at, _needed(copy, scope, alias, table),
                *_conditions(scope, alias, table, found)))  # fmt: skip
        self._requests = [each for scope in scopes for each in key_requests(scope.expression, [
            source for source, (its, _, _) in zip(self.sources, known, strict=True) if its is scope])]  # fmt: skip
        whole = not self.is_foreign and len(scopes) == 1 and len(known) == len(tables) == len(scopes[0].sources)
        self._small = small_query(copy, self.sources) if whole else None
        self._counted = row_count(copy) if alone else None
        for source, (_, _, node) in zip(self.sources, known, strict=True):
            _rename(node, source.name, source.alias)
        for number, (_, alias, node) in enumerate(each for each in tables if _is_given(each[2], given)):
            self._given[f"g{number}"] = given[name_of(node.this)]
            _rename(node, f"g{number}", alias)
        self._compiled = CompiledStatements(copy)
        self._point = self._pointed()
        columns = [] if self._direct is None else self._direct.columns
        self._types = [column.type for column in columns]
        order = [column.column_id - 1 for column in columns]
        is_whole = bool(order) and order == list(range(len(self.sources[0].table.kinds)))
        self._order = None if is_whole else order
        """Where the columns of the answer stand in a row; None if they are the row."""

    def _pointed(self) -> ColumnCondition | None:
        """The only condition, if it names one row by a primary key of one column."""
        window = self._window
        if self._direct is None or window is None or window.limit or window.offset or len(self._direct.parts) != 1:
            return None
        source = self.sources[0]
        conditions, key = source.conditions, source.table.primary_key
        if source.at is not None or len(key) != 1 or len(conditions) != 1 or not conditions[0].single:
            return None
        return conditions[0] if conditions[0].column is key[0] and conditions[0].operator == EQUAL else None

    @property
    def _keys(self) -> dict[str, list[str]]:
        return {source.name: [column.name for column in source.table.primary_key] for source in self.sources}

    # running

    def run(self, session: SqlSession, parameters: Parameters, *, keep: bool = False) -> Result:
        """The rows of the query. Inside a transaction. With `keep`, whole columns are kept for the next one."""
        if self._statement.system is not None:
            with system_functions.using(self._statement.system):
                return self._run(session, parameters, keep=keep)
        return self._run(session, parameters, keep=keep)

    def _run(self, session: SqlSession, parameters: Parameters, *, keep: bool) -> Result:
        chosen = [self._choose(session, source, parameters) for source in self.sources]
        found = self._by_keys(session, chosen, parameters)
        if found is not None:
            return found
        return _result(execution.run(self._tree, self._tables(session, chosen, keep, parameters), self._keys,
                                     self._enums(session.catalog), parameters, self._compiled))  # fmt: skip

    def batches(self, session: SqlSession, parameters: Parameters) -> Iterator[pa.RecordBatch]:
        """The same in batches, at least one, with types as in `Result.typed`. Inside a transaction that lasts until all
        are read: no more is in memory than it takes."""
        chosen = [self._choose(session, source, parameters) for source in self.sources]
        window, source = self._window, self.sources[0] if self.sources else None
        if window is not None and source is not None and chosen[0].keys is None:
            limit, offset = window.rows(parameters)
            if self._direct is not None and self._is_direct(chosen[0], session.keyspace, limit):
                return streams.direct(session, source, chosen[0], self._direct, (limit, offset))
            if limit is None and not offset and (
                    not window.ordered or self._in_key_order(chosen[0], session.keyspace, None)):  # fmt: skip
                answer = partial(execution.run, self._tree, keys=self._keys, enums=self._enums(session.catalog),
                                 parameters=parameters, kept=self._compiled)  # fmt: skip
                found = streams.by_rows(session, source, chosen[0], answer)
                if found is not None:
                    return found
        few = self._by_keys(session, chosen, parameters)
        if few is not None:
            return few.batches()
        return execution.streamed(self.bound(parameters), self._tables(session, chosen, True, parameters), self._keys,
                                  self._enums(session.catalog))  # fmt: skip

    def _by_keys(self, session: SqlSession, chosen: Sequence[AccessPath], parameters: Parameters) -> Result | None:
        """The answer, if no more than a few rows are needed for it, or what an access finds."""
        if self._window is not None:
            limit, offset = self._window.rows(parameters)
            if self._is_direct(chosen[0], session.keyspace, limit):
                return self._run_direct(session, chosen[0], limit, offset)
            if limit is not None:
                return _result(self._run_window(session, chosen[0], limit, offset, parameters))
        if self._counted is not None and chosen[0].answered >= self._parts:
            return self._counted.run(session, self.sources[0], chosen[0])
        return None if self._small is None else self._small.run(session, chosen, parameters)

    def _tables(
        self, session: SqlSession, chosen: Sequence[AccessPath], keep: bool, parameters: Parameters
    ) -> dict[str, pa.Table]:
        """What the executor works on."""
        keep = keep and session.columns.room > 0 and not (session.transaction and session.transaction.dirty)
        return {**self._read(session, chosen, keep, parameters), **self._given}

    def _is_direct(self, chosen: AccessPath, keyspace: Keyspace, limit: int | None) -> bool:
        """Whether the rows that an access finds, or the first of them, are the answer in the order that it has."""
        direct, window = self._direct, self._window
        if direct is None or window is None or not chosen.answered >= direct.parts:
            return False
        return not window.ordered or self._in_key_order(chosen, keyspace, limit)

    def _in_key_order(self, chosen: AccessPath, keyspace: Keyspace, limit: int | None) -> bool:
        """Whether an access finds rows in the order of their keys, which is the one that is wanted."""
        window = self._window
        assert window is not None
        return self._is_by_key(chosen) and (chosen.keys is not None or (
            not window.descending and self.sources[0].at is None
            and keyspace.is_ordered(limited=limit is not None)))  # fmt: skip

    def _is_by_key(self, chosen: AccessPath) -> bool:
        """Whether an access reads ranges of the primary key, or one key, so that it can go by the order of keys."""
        return chosen.by is None if chosen.keys is None else len(chosen.keys) == 1

    def _run_window(
        self, session: SqlSession, chosen: AccessPath, limit: int, offset: int, parameters: Parameters
    ) -> pa.Table:
        """A few rows: read no more than it takes to have them."""
        source, window = self.sources[0], self._window
        assert window is not None
        tree, room = self.bound(parameters), limit + offset
        if window.ordered and not self._is_by_key(chosen):
            return execution.run(self._tree, self._read(session, [chosen]), enums=self._enums(session.catalog),
                                 parameters=parameters, kept=self._compiled)  # fmt: skip
        tree.set("limit", exp.Limit(expression=exp.Literal.number(room)))
        tree.set("offset", None)
        found: list[pa.Table] = []
        with closing(self._little_by_little(session.keyspace, chosen, room)) as tables:
            while not found or sum(table.num_rows for table in found) < room:
                table = next(tables, None)
                if table is None and found:
                    break
                rows = scans.empty_table(source.columns) if table is None else table
                found.append(execution.run(tree, {source.name: rows}, enums=self._enums(session.catalog)))
        return pa.concat_tables(found, promote_options="permissive").slice(offset, limit)

    def _little_by_little(self, keyspace: Keyspace, chosen: AccessPath, room: int) -> Generator[pa.Table, None, None]:
        """The rows that an access finds, in the order that is wanted, no more at first than `room` may take."""
        source, window = self.sources[0], self._window
        assert window is not None
        answered = chosen.answered >= self._parts
        if answered and (not window.ordered or chosen.keys is not None):
            yield scans.read_table(keyspace, chosen, source.columns, source.at, room)
            return
        if not window.ordered or chosen.keys is not None:
            for batch in scans.read(keyspace, chosen, source.columns, source.at):
                yield pa.Table.from_batches([batch])
            return
        size = room if answered or not room else None
        for span in reversed(chosen.spans) if window.descending else chosen.spans:
            for step in keyspace.steps(span, source.at, size, descending=window.descending) if room else ():
                yield scans.read_table(keyspace, chosen._replace(spans=[step]), source.columns, source.at)

    def _read(
        self, session: SqlSession, chosen: Sequence[AccessPath], keep: bool = False, parameters: Parameters = (),
    ) -> dict[str, pa.Table]:  # fmt: skip
        """The rows of all sources. A table that is read whole by several of them is read once."""
        keyspace = session.keyspace
        found: dict[str, pa.Table] = {
            source.name: source.table.read(source.columns, source.conditions, parameters)
            for source in self.sources if isinstance(source.table, ForeignTable)}  # fmt: skip
        whole: dict[tuple[int, int | None], list[tuple[TableSource, AccessPath]]] = {}
        for source, way in sorted(zip(self.sources, chosen, strict=True), key=lambda each: each[1].kind == "full scan"):
            if source.name in found:
                continue
            if way.kind == "full scan":
                keys = joins.looked_up(keyspace, source, self._requests, found)
                if keys is None:
                    whole.setdefault((source.table.id, source.at), []).append((source, way))
                    continue
                way = keys
            found[source.name] = scans.read_table(keyspace, way, source.columns, source.at)
        for (_, at), together in whole.items():
            columns = list(dict.fromkeys(column for source, _ in together for column in source.columns))
            table = self._read_whole(session, together[0][1], columns, at, keep)
            for source, _ in together:
                found[source.name] = table.select([column.name for column in source.columns])
        return joins.reduced(self._requests, found)

    def _read_whole(
        self, session: SqlSession, way: AccessPath, columns: Sequence[ColumnMeta], at: int | None, keep: bool
    ) -> pa.Table:
        if not keep:
            return scans.read_table(session.keyspace, way, columns, at)
        return session.columns.read(session, way.table, columns, at)

    def _run_direct(self, session: SqlSession, chosen: AccessPath, limit: int | None, offset: int) -> Result:
        source, direct = self.sources[0], self._direct
        assert direct is not None
        if chosen.keys is not None and len(chosen.keys) <= FEW and limit is None and not offset:
            if len(chosen.keys) == 1 and source.at is None:
                one = session.keyspace.get(chosen.keys[0])
                stored = [] if one is None else [one]
            else:
                stored = list(session.keyspace.get_many(chosen.keys, source.at).values())
            places = [source.table.place[column.column_id] for column in direct.columns]
            rows = [[row[n] for n in places] for row in decoded(source.table, stored).tuples]
            return Result(f"SELECT {len(rows)}", len(rows), columns=direct.names, stored=rows,
                          types=[column.type for column in direct.columns])  # fmt: skip
        unique = list(dict.fromkeys(direct.columns))
        room = None if limit is None else limit + offset
        table = scans.read_table(session.keyspace, chosen, unique, source.at, room).slice(offset)
        arrays = [table.column(unique.index(column)) for column in direct.columns]
        table = pa.Table.from_arrays(arrays, names=direct.names)
        return Result(f"SELECT {table.num_rows}", table.num_rows, table=table, types=self._types)

    def paths(self, session: SqlSession, parameters: Parameters) -> list[tuple[str, AccessPath]]:
        """How each table would be read, with its name in the query. Inside a transaction."""
        return [(source.alias, self._choose(session, source, parameters)) for source in self.sources]

    def explain(self, session: SqlSession, parameters: Parameters) -> list[str]:
        """How the query would be run. Inside a transaction."""
        chosen = [self._choose(session, source, parameters) for source in self.sources]
        lines = [each.describe() + (f" at version {source.at}" if source.at is not None else "")
                 for each, source in zip(chosen, self.sources, strict=True)]  # fmt: skip
        if self._window is not None and self._is_direct(chosen[0], session.keyspace, self._window.rows(parameters)[0]):
            return [*lines, BY_KEYS]
        if few := self._described(chosen[0]) if chosen else None:
            lines.append(few)
        for source, way in zip(self.sources, chosen, strict=True):
            wishes = [each for each in self._requests if each.name == source.name]
            if wishes and way.kind == "full scan":
                lines.append(f"  or a multi-get on {source.table.full_name}, if the join asks for few keys")
        return [*lines, "the rest by DuckDB:",
                *(f"  {line}" for line in execution.explained(self.bound(parameters), self._empty(), self._keys))]

    def _empty(self) -> dict[str, pa.Table]:
        """The tables of the query without rows."""
        found = {source.name: scans.empty_table(source.columns) for source in self.sources}
        return found | {name: table.slice(0, 0) for name, table in self._given.items()}

    def schema(self, catalog: SqlCatalog) -> pa.Schema:
        """The names and types of the columns that the query, without parameters, gives. Raises `SqlError`."""
        with system_functions.using(self._statement.system):
            return execution.run(self.bound(()), self._empty(), self._keys, self._enums(lambda: catalog)).schema

    def outputs(self, catalog: SqlCatalog) -> list[Output]:
        """The same by PostgreSQL's types, for a query whose parameters have no values yet. Raises `SqlError`."""
        columns = {source.name: [(column.name, pg_types.of_column(column.type)) for column in source.columns]
                   for source in self.sources}  # fmt: skip
        tables = {name: ReadableTable(pa.table({}), known) for name, known in columns.items()}
        tables |= {name: readable_table(table.slice(0, 0)) for name, table in self._given.items()}
        with system_functions.using(self._statement.system):
            return execution.described(self._tree, tables, self._keys, self._enums(lambda: catalog)).outputs

    def _described(self, chosen: AccessPath) -> str | None:
        """What a LIMIT saves, for EXPLAIN."""
        window = self._window
        if window is None or window.limit is None:
            return None
        if window.ordered and not self._is_by_key(chosen):
            return None
        order = "  from the last key, " if window.descending else "  in the order of keys, " if window.ordered else "  "
        return order + ("no more rows than the LIMIT" if chosen.answered >= self._parts else "until the LIMIT is met")

    def _enums(self, catalog: Callable[[], SqlCatalog]) -> dict[str, Type]:
        """The enums that casts of the query may mean."""
        if not self._has_enums:
            return {}
        return {each.name: each.type for each in catalog().objects.values() if isinstance(each, EnumMeta)}

    def bound(self, parameters: Parameters) -> exp.Expr:
        """The statement for DuckDB, with values for parameters."""
        return bound(self._tree, parameters)

    def _choose(self, session: SqlSession, source: TableSource, parameters: Parameters) -> AccessPath:
        if isinstance(source.table, ForeignTable):
            return AccessPath("foreign scan", source.table, None, (), frozenset())
        return access.choose(source.table, source.conditions, parameters, source.columns, session.keyspace,
                             source.facts)

    def point(self, parameters: Parameters) -> bytes | None:
        """The one key whose row is the whole answer, if the query is that simple."""
        if self._point is None:
            return None
        source = self.sources[0]
        column = source.table.primary_key[0]
        stored = exact(column, self._point.values(parameters)[0])
        return None if stored is None else source.table.prefix + keys.element(column.type.kind, stored)

    def found(self, value: bytes | None) -> Result:
        """The answer when a point get has found this value."""
        direct, table = self._direct, self.sources[0].table
        assert direct is not None
        if value is None:
            return Result("SELECT 0", 0, columns=direct.names, stored=(), types=self._types)
        row: Sequence[Any] = decode_row(table.kinds, value, table.absent)
        if self._order is not None:
            row = [row[n] for n in self._order]
        return Result("SELECT 1", 1, columns=direct.names, stored=(row,), types=self._types)

    # preparing

    def _check_columns(self, scopes: Sequence[Scope], found: dict[int, tuple[Table, int | None]]) -> None:
        """Raise `UnknownNameError` for a column that no table in sight has, as far as that is certain."""
        for scope in scopes:
            tables = {alias: found[id(node)][0] for alias, node in _tables(scope) if id(node) in found}
            if len(tables) != len(scope.sources) or scope.parent is not None:
                continue
            aliases: set[str] | None = None
            for column in scope.columns:
                if column.find_ancestor(exp.Select) is not scope.expression:
                    continue
                qualifier, name = table_and_name(column)
                if qualifier and qualifier not in tables:
                    raise UnknownNameError(f"there is no table {qualifier} in this query", sqlstate="42P01",
                                           position=position_of(column, self._statement),
                                           hint=nearest(qualifier, tables))  # fmt: skip
                candidates = [tables[qualifier]] if qualifier else list(tables.values())
                if any(name in table.by_name for table in candidates):
                    continue
                if isinstance(column.this, exp.Star) or not candidates:
                    continue
                if aliases is None:
                    aliases = {name_of(each.args["alias"]) for each in scope.expression.find_all(exp.Alias)}
                if name in aliases:
                    continue
                if qualifier or len(candidates) == 1:
                    candidates[0].column(name, position_of(column, self._statement))
                names = {each for table in candidates for each in table.by_name}
                raise UnknownNameError(f"no table of this query has a column {name}", sqlstate="42703",
                                       position=position_of(column, self._statement), hint=nearest(name, names))

    def _directly(self, found: dict[int, tuple[Table, int | None]]) -> Direct | None:
        """The query as one that an access may answer alone, if it asks for nothing but columns."""
        tree = self._tree
        table, _ = next(iter(found.values()))
        columns: list[ColumnMeta] = []
        names: list[str] = []
        for each in tree.expressions:
            if isinstance(each, exp.Star) or (isinstance(each, exp.Column) and isinstance(each.this, exp.Star)):
                if any(each.args.get(name) for name in ("except_", "replace", "rename")):
                    return None
                columns += table.visible
                names += [column.name for column in table.visible]
                continue
            inner = each.this if isinstance(each, exp.Alias) else each
            if not isinstance(inner, exp.Column):
                return None
            column = table.by_name.get(table_and_name(inner)[1])
            if column is None:
                return None
            columns.append(column)
            names.append(name_of(each.args["alias"]) if isinstance(each, exp.Alias) else column.name)
        return Direct(columns, names, frozenset(range(len(list(conjuncts(tree.args.get("where")))))))


def run_over(tree: exp.Expr, tables: Mapping[str, pa.Table]) -> Result:
    """The rows of a query over tables that were read already."""
    return _result(execution.run(tree, tables))


def _tables(scope: Scope) -> Iterator[tuple[str, exp.Table]]:
    for source in scope.sources.values():
        if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
            continue
        if source.parent_select in (None, scope.expression):  # a lateral query sees the tables around it, too
            given = source.args.get("alias")
            yield name_of(given.this if given is not None and given.this is not None else source.this), source


def _needed(tree: exp.Expr, scope: Scope, alias: str, table: Table) -> list[ColumnMeta]:
    """The columns that a query may look at; all, if in doubt."""
    names: set[str] = set()
    stars = scope.expression.find_all(exp.Star) if scope.expression is not tree else ()
    if any(not isinstance(star.parent, exp.Anonymous) for star in stars):
        names = {column.name for column in table.visible}
    for node in tree.walk():
        kind = type(node)
        if kind is exp.Star:
            if scope.expression is tree and not isinstance(node.parent, exp.Anonymous):
                names |= {column.name for column in table.visible}
        elif isinstance(node, exp.Column):
            qualifier, name = table_and_name(node)
            if qualifier in ("", alias):
                names.add(name)
        elif kind is exp.Join:
            if node.args.get("method"):
                names |= {column.name for column in table.visible}
            names |= {name_of(each) for each in node.args.get("using") or ()}
    return [column for column in table.columns if column.name in names] or table.primary_key[:1]


def _conditions(
    scope: Scope, alias: str, table: Table, found: dict[int, tuple[Table, int | None]]
) -> tuple[list[ColumnCondition], frozenset[str]]:
    """What the WHERE of a scope, and the ON of its inner joins, say about the columns of one table in it.

    The second part are its conditions as text, if indexes of the table have such.
    """
    query = scope.expression
    if not isinstance(query, exp.Select):
        return [], frozenset()
    others = [found[id(node)][0] for name, node in _tables(scope) if name != alias and id(node) in found]
    alone = len(scope.sources) == 1
    all_known = len(others) + 1 == len(scope.sources)

    def resolve(column: exp.Expr) -> ColumnMeta | None:
        if not isinstance(column, exp.Column):
            text = normal(column, lambda each: resolve(each) is not None) if table.expressions else None
            return table.expressions[text][0] if text in table.expressions else None
        qualifier, name = table_and_name(column)
        if qualifier:
            return table.by_name.get(name) if qualifier == alias else None
        if alone or (all_known and not any(name in other.by_name for other in others)):
            return table.by_name.get(name)
        return None

    parts = inner_parts(query)
    known = facts(parts, lambda each: resolve(each) is not None) if any(
        index.predicate for index in table.indexes) else frozenset()
    return [each for number, part in enumerate(parts) for each in conditions_of(part, number, resolve)], known


def _found(node: exp.Table, tree: exp.Expr, given: Mapping[str, pa.Table], find: Find) -> Table | None:
    """The table that a node names; None if it is rows that are given, or a query of WITH."""
    name = name_of(node.this)
    if _is_given(node, given) or (not node.args.get("db") and any(
            name_of(each.args["alias"].this) == name for each in tree.find_all(exp.CTE))):  # fmt: skip
        return None
    return find(node)[0]


def _is_given(node: exp.Table, given: Mapping[str, pa.Table]) -> bool:
    return bool(given) and not node.args.get("db") and name_of(node.this) in given


def _rename(node: exp.Table, name: str, shown: str) -> None:
    """Make a table of a statement the one that its rows are registered as."""
    alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(shown, quoted=True))
    node.replace(exp.Table(this=exp.to_identifier(name), alias=alias.copy(), joins=node.args.get("joins")))


def output_names(tree: exp.Expr) -> list[str] | None:
    """The names of the columns that a query gives, as PostgreSQL has them; None where a star stands for some."""
    query = tree
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select):
        return None
    names = []
    for each in query.expressions:
        if isinstance(each, exp.Star) or (isinstance(each, exp.Column) and isinstance(each.this, exp.Star)):
            return None
        names.append(output_name(each))
    return names


def _result(table: pa.Table) -> Result:
    return Result(f"SELECT {table.num_rows}", table.num_rows, table=table)


def find_in(
    catalog: SqlCatalog, node: exp.Table, database: str | None, schema: str, statement: ParsedStatement
) -> Table:
    """The table that a node names. Raises `UnknownNameError`."""
    try:
        return catalog.table(name_of(node.args.get("catalog")) or database or catalog.default_database(),
                             name_of(node.args.get("db")) or schema, name_of(node.this))  # fmt: skip
    except UnknownNameError as error:
        error.position = position_of(node, statement)
        raise
